"""Which cases two surveys affect, beside the code that they run."""

from __future__ import annotations

from dataclasses import replace

import gate_builders as build
import pytest
from surveyed import write

from mnistbench.gate.copies.trees import Tree, all_differing
from mnistbench.gate.processes.messages import OUTSIDE, Followed, RunCode
from mnistbench.gate.processes.sides.stray import Imports
from mnistbench.gate.survey.reach.cases import (
    BY_NEW_CASES,
    IN_COMPILED,
    affected,
    not_followed,
    outside,
    uncovered,
    unused,
)
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.words import BASE, HEAD, MODULE

FIRST = "bench/test_x.py::test_first"
SECOND = "bench/test_x.py::test_second"
LABELS = {FIRST: "first", SECOND: "second"}

CODE = (RunCode("a.py", "run", 1), RunCode("a.py", "other", 4))
TEXT = "def run():\n    return 1\n\ndef other():\n    return {}\n"


@pytest.fixture
def compared(tmp_path):
    """The code of two trees whose cases run ``run``, which is equal, and what they have opened."""

    def compare(base=None, head=None, imported=("a.py",), **followed):
        files = {BASE: base or {"a.py": TEXT}, HEAD: head or {"a.py": TEXT}}
        trees = {
            side: Tree(write(tmp_path / side, of_side), tmp_path / side, side)
            for side, of_side in files.items()
        }
        ran = Followed(**{"code": CODE, "cases": {FIRST: (0,), SECOND: (0,)}, **followed})
        imports = Imports("", files={path: path for path in imported})
        sides = (BASE, HEAD)
        return ComparedCode(
            trees,
            dict.fromkeys(sides, imports),
            dict.fromkeys(sides, ran),
            all_differing(tuple(trees.values())),
        )

    return compare


def listings(**facts):
    return build.listings(LABELS, **facts)


DATA = {"base": {"a.py": TEXT, "data.txt": "1"}, "head": {"a.py": TEXT, "data.txt": "2"}}


def test_equal_trees_affect_none(compared):
    assert affected(compared(), listings(), ()) == {}


def test_what_counts_for_all_is_a_reason_of_each(compared):
    assert affected(compared(), listings(), ["why"]) == dict.fromkeys(LABELS, ("why",))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"parameters": {SECOND: ("1", "2")}}, "has other parameters"),
        ({"result": {SECOND: ("1", "2")}}, "returns another result"),
        ({"returns": {SECOND: ("int", "str")}}, "returns int in the base and str in the head"),
    ],
)
def test_facts_of_a_case_are_compared(compared, facts, reason):
    assert affected(compared(**DATA), listings(**facts), ()) == {SECOND: (reason,)}


@pytest.mark.parametrize(
    "facts", [{"result": {SECOND: ("1", "2")}}, {"returns": {SECOND: ("int", "str")}}]
)
def test_equal_trees_may_return_something_else(compared, facts):
    assert affected(compared(), listings(**facts), ()) == {}


def test_a_result_of_one_side_is_not_compared(compared):
    assert affected(compared(**DATA), listings(result={SECOND: ("1", "")}), ()) == {}


@pytest.mark.parametrize(
    ("opened", "reached"),
    [
        ({SECOND: ("data.txt",)}, {SECOND: ("reads data.txt (changed)",)}),
        ({SECOND: ("a.py",)}, {}),
        (
            {OUTSIDE: ("data.txt",)},
            dict.fromkeys(LABELS, ("data.txt (changed) is read outside of tests",)),
        ),
    ],
)
def test_files_that_are_opened_are_compared(compared, opened, reached):
    assert affected(compared(**DATA, opened=opened), listings(), ()) == reached


def test_what_is_not_followed_is_affected_if_the_trees_differ(compared):
    unfollowed = {SECOND: "starts processes"}
    code = compared(**DATA, unfollowed=unfollowed)
    assert affected(code, listings(), ()) == {SECOND: ("starts processes",)}
    assert affected(replace(code, differing=()), listings(), ()) == {}


@pytest.mark.parametrize("followed", [{"unfollowed": {OUTSIDE: "why"}}, {"sees_all_files": False}])
def test_what_is_not_followed_outside_affects_all(compared, followed):
    assert {*affected(compared(**DATA, **followed), listings(), ())} == {FIRST, SECOND}


def test_a_case_that_one_side_did_not_follow_is_affected(compared):
    reasons = affected(compared(cases={FIRST: (0,)}), listings(), ())
    assert reasons == {SECOND: ("was not followed in the base", "was not followed in the head")}


def test_a_file_that_is_loaded_affects_all(compared):
    files = {"base": {"a.py": TEXT, "b.so": "1"}, "head": {"a.py": TEXT, "b.so": "2"}}
    reasons = affected(compared(**files, imported=("a.py", "b.so")), listings(), ())
    assert reasons == dict.fromkeys(LABELS, ("the project loads b.so (changed)",))


def test_code_of_one_side_affects_a_case(compared):
    code = compared(**DATA)
    head = replace(code.followed[HEAD], cases={FIRST: (0,), SECOND: (0, 1)})
    code = replace(code, followed={**code.followed, HEAD: head})
    assert affected(code, listings(), ()) == {SECOND: ("runs a.py:other in the head alone",)}


def test_made_code_of_one_side_affects_a_case(compared):
    code = compared(**DATA, code=(*CODE, RunCode("", "made 0123", 0)))
    head = replace(code.followed[HEAD], cases={FIRST: (0,), SECOND: (0, 2)})
    code = replace(code, followed={**code.followed, HEAD: head})
    [reason] = affected(code, listings(), ())[SECOND]
    assert reason == "runs a function made that the program makes, in the head alone"


def test_functions_that_may_be_compiled_affect_all(compared):
    files = {"base": {"a.py": TEXT.format(1)}, "head": {"a.py": TEXT.format(2)}}
    assert affected(compared(**files), listings(), ()) == {}
    reasons = affected(compared(**files, compiles=True), listings(), ())
    assert {*reasons} == {FIRST, SECOND}
    assert "may be compiled" in reasons[FIRST][0]


@pytest.mark.parametrize(
    ("path", "base", "head", "is_affected"),
    [
        ("pytest.ini", "[pytest]\naddopts = -q\n", "[pytest]\naddopts = -v\n", True),
        ("tox.ini", "[pytest]\naddopts = -q\n", "[pytest]\naddopts = -v\n", True),
        ("tox.ini", "[testenv]\ndeps = a\n", "[testenv]\ndeps = b\n", False),
        ("pyproject.toml", "[tool.pytest]\nx = 1\n", "[tool.pytest]\nx = 2\n", True),
        ("pyproject.toml", "[tool.pytest_env]\nx = 1\n", "[tool.pytest_env]\nx = 2\n", True),
        ("pyproject.toml", "[tool.ruff]\nx = 1\n", "[tool.ruff]\nx = 2\n", False),
        ("pyproject.toml", "[project]\nx = 1\n", "[project]\nx = 2\n", False),
        ("setup.cfg", "[tool:pytest]\nx = 1\n", "[tool:pytest]\nx = 2\n", True),
        ("setup.cfg", "[a]\nx = 1\n", "[a\nx = 2\n", True),
    ],
)
def test_options_of_pytest_affect_all(compared, path, base, head, is_affected):
    code = compared({"a.py": TEXT, path: base}, {"a.py": TEXT, path: head})
    assert bool(affected(code, listings(), ())) is is_affected


# ---- What no case uses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [
        (TEXT.format(1), TEXT.format(2), ("a.py:other",)),
        (TEXT.format(1), TEXT.format("1\n\ndef new():\n    pass"), ("a.py:new",)),
        (TEXT.format(1), TEXT[: TEXT.index("def other")], ()),
        (TEXT, f"{TEXT}K = 1\n", ("a.py:K",)),
        (TEXT, f"{TEXT}import json\n", ()),
        (TEXT, TEXT.replace("return 1", "return 2"), ()),
        (f"K = 1\n{TEXT}", f"K = 2\n{TEXT}".replace("return 1", "return K"), ()),
    ],
)
def test_functions_and_names_that_no_case_uses_are_uncovered(compared, base, head, found):
    code = compared({"a.py": base}, {"a.py": head})
    start = head.count("\n", 0, head.index("def run")) + 1
    ran = replace(code.followed[HEAD], code=(RunCode("a.py", "run", start),))
    code = replace(code, followed=dict.fromkeys((BASE, HEAD), ran))
    assert uncovered(code, listings()) == found


def test_functions_of_a_compiled_module_are_not_called_uncovered(compared):
    sides = ({"a.py": TEXT.format(1)}, {"a.py": TEXT.format(2)})
    for module in ("a.cpython-311-x86_64-linux-gnu.so", "a.pyd"):
        code = compared(*sides, imported=(module,), cases={})
        assert not_followed(code, listings()) == {"a.py:other": IN_COMPILED}
        assert uncovered(code, listings()) == unused(code) == ()
    code = compared(*sides, imported=("b.so",), cases={})
    assert uncovered(code, listings()) == ("a.py:other",)


def test_functions_that_cases_of_one_side_alone_run_are_not_called_uncovered(compared):
    new = "bench/test_x.py::test_new"
    code = compared(
        {"a.py": TEXT.format(1)},
        {"a.py": TEXT.format(2)},
        cases={FIRST: (0,), SECOND: (0,), new: (1,)},
    )
    assert not_followed(code, listings()) == {"a.py:other": BY_NEW_CASES}
    assert uncovered(code, listings()) == ()


def test_what_differs_and_runs_outside_of_tests_is_kept_for_the_cause_of_a_slower_import(compared):
    code = compared(
        {"a.py": f"K = 1\n{TEXT.format(1)}"},
        {"a.py": f"K = 2\n{TEXT.format(2)}"},
        code=(RunCode("a.py", "run", 2), RunCode("a.py", "other", 5), RunCode("a.py", MODULE, 1)),
        outside=(1, 2),
    )
    assert outside(code) == ("runs a.py:other (changed) outside of tests", "a.py:1 changed")
    assert uncovered(code, listings()) == ("a.py:K",)


@pytest.mark.parametrize("path", ["tests/a.py", "conftest.py", "docs/a.py", ".ci/a.py"])
def test_what_is_not_of_the_project_is_not_uncovered(compared, path):
    code = compared({path: TEXT.format(1)}, {path: TEXT.format(2)}, imported=(path,), code=CODE)
    assert uncovered(code, listings()) == ()


@pytest.mark.parametrize(
    ("path", "is_unused"),
    [
        ("pkg/data.json", True),
        ("pkg/c.py", True),
        ("x.txt", True),
        ("README.md", False),
        ("LICENSE", False),
        (".gitignore", False),
        ("pkg/c.pyi", False),
        ("tests/data.json", False),
        ("pyproject.toml", False),
    ],
)
def test_files_that_nothing_opens_are_unused(compared, path, is_unused):
    code = compared({"a.py": TEXT, path: "1"}, {"a.py": TEXT, path: "2"})
    assert unused(code) == (path,) * is_unused


@pytest.mark.parametrize("path", ["x.txt", "pkg/x.txt", "new/x.txt"])
def test_a_new_file_is_unused(compared, path):
    assert unused(compared(head={"a.py": TEXT, path: "1"})) == (path,)


def test_a_file_that_is_opened_or_imported_is_used(compared):
    code = compared(**DATA, opened={FIRST: ("data.txt",)})
    assert unused(code) == ()
