"""What differs between two trees, without running them."""

from __future__ import annotations

import pytest
from surveyed import write

from mnistbench.gate.processes.messages import Followed, RunCode
from mnistbench.gate.survey.reach.differences import (
    changed_functions,
    changed_statements,
    differences,
)
from mnistbench.gate.survey.reach.side_code import SideCode
from mnistbench.gate.survey.reach.source import MODULE, read
from mnistbench.gate.words import BASE, HEAD


@pytest.fixture
def compared(tmp_path):
    """Compare two projects whose files are all imported outside of tests.

    Return the differences and the code of the head.
    """

    def compare(base, head, followed=None):
        sides = {
            name: SideCode(
                write(tmp_path / name, files),
                frozenset(files),
                followed or Followed(plain_classes=dict.fromkeys(files, ("A", "B"))),
            )
            for name, files in ((BASE, base), (HEAD, head))
        }
        paths = {*base, *head}
        differing = [path for path in paths if base.get(path) != head.get(path)]
        return differences(sides, differing), sides[HEAD]

    return compare


def reason(compared, base, head, code, user=""):
    """Return why code of the file b.py differs if the file a.py does."""
    files = {"b.py": user}
    found, side = compared({**files, "a.py": base}, {**files, "a.py": head})
    assert not found.everywhere
    return found.of_code(code, side)


def everywhere(compared, base, head, user=""):
    files = {"b.py": user}
    found, _ = compared({**files, "a.py": base}, {**files, "a.py": head})
    return [*found.everywhere]


# ---- Statements and functions of a file ----------------------------------------------------------


def test_functions_are_changed_new_and_gone():
    base = read("def a(): return 1\ndef b(): pass\ndef c(): pass\n")
    head = read("def a(): return 2\ndef b(): pass\ndef d(): pass\n")
    assert changed_functions(base, head) == {"a": "changed", "c": "gone", "d": "new"}


def test_one_of_two_functions_with_a_name_is_changed():
    base = read("if a:\n    def f(): return 1\nelse:\n    def f(): return 2\n")
    head = read("if a:\n    def f(): return 1\nelse:\n    def f(): return 3\n")
    assert changed_functions(base, head) == {"f": "changed"}


@pytest.mark.parametrize(
    ("base", "head", "changed"),
    [
        ("a = 1\nb = 1\n", "a = 1\nb = 2\n", {("b", "changed")}),
        ("a = 1\n", "a = 1\nb = 2\n", {("b", "new")}),
        ("a = 1\nb = 2\n", "a = 1\n", {("b", "gone")}),
        ("a = 1\nb = 2\n", "b = 2\na = 1\n", set()),
        ("a = 1\na = 2\n", "a = 2\na = 1\n", {("a", "changed")}),
        ("a, b = c\n", "a, b = d\n", {("a", "changed"), ("b", "changed")}),
        ("if a:\n    b = 1\n", "if not a:\n    b = 1\n", {("b", "changed")}),
        ("b = a[0]\na.clear()\n", "a.clear()\nb = a[0]\n", {("b", "changed")}),
    ],
)
def test_statements_of_a_name_are_compared(base, head, changed):
    found = changed_statements(read(base), read(head))
    names = {(name, how) for _, one, how in found for name in one.names}
    assert names == changed


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "is_seen"),
    [
        ("from a import K\ndef f():\n    return K\n", True),
        ("from a import K as L\ndef f():\n    return L\n", True),
        ("from a import *\ndef f():\n    return K\n", True),
        ("import a\ndef f():\n    return a.K\n", True),
        ("import a\ndef f():\n    return getattr(a, 'K')\n", True),
        ("import a\ndef f(name):\n    return getattr(a, name)\n", False),  # it is seen to get it
        ("import a\ndef f():\n    return vars(a)\n", True),
        ("from a import K\nL = [K]\ndef f():\n    return L\n", True),
        ("from a import OTHER\ndef f():\n    return OTHER\n", False),
        ("K = 1\ndef f():\n    return K\n", False),
        ("def f():\n    K = 1\n    return K\n", False),
    ],
)
def test_a_name_counts_where_it_occurs(compared, user, is_seen):
    line = user[: user.index("def")].count("\n") + 1
    base = "K = 1\nOTHER = 1\n"
    why = reason(compared, base, base.replace("K = 1", "K = 2"), RunCode("b.py", "f", line), user)
    assert bool(why) is is_seen


def test_the_reason_names_the_first_difference(compared):
    user = "from a import K\ndef f():\n    return K\n"
    why = reason(compared, "K = 1\n", "K = 2\n", RunCode("b.py", "f", 2), user)
    assert why == "runs b.py:f, which uses K (a.py:1 changed)"


@pytest.mark.parametrize(
    ("body", "is_seen"),
    [("return g()", False), ("return g", True), ("return hasattr(a, 'g')", True)],
)
def test_a_new_function_counts_where_it_is_not_only_called(compared, body, is_seen):
    user = f"import a\nfrom a import g\ndef f():\n    {body}\n"
    why = reason(compared, "", "def g(): pass\n", RunCode("b.py", "f", 3), user)
    assert bool(why) is is_seen


def test_a_lambda_belongs_to_its_statement(compared):
    text = "K = {0}\nF = lambda: K\n"
    code = RunCode("a.py", "<lambda>", 2)
    assert "uses K" in reason(compared, text.format(1), text.format(2), code)


def test_a_name_of_a_class_counts_with_its_class(compared):
    user = "from a import A\ndef f():\n    return A()\n"
    why = reason(
        compared, "class A:\n    k = 1\n", "class A:\n    k = 2\n", RunCode("b.py", "f", 2), user
    )
    assert "uses A" in why


@pytest.mark.parametrize(
    ("base", "head", "reader"),
    [
        ("def g(): pass\n", 'def g():\n    "Text."\n', "g.__doc__"),
        ("def g(x): pass\n", "def g(x: int): pass\n", "inspect.signature(g)"),
        ("def g(): pass\n", "def g(): return 1\n", "g.__code__"),
        ("def g(): pass\nk = 1\n", "k = 1\ndef g(): pass\n", "vars(a)"),
    ],
)
def test_what_only_describes_code_counts_where_it_is_read(compared, base, head, reader):
    user = f"def f(g):\n    return {reader}\ndef h(g):\n    return g()\n"
    files = {"b.py": user}
    found, side = compared({**files, "a.py": base}, {**files, "a.py": head})
    assert found.of_code(RunCode("b.py", "f", 1), side)
    assert not found.of_code(RunCode("b.py", "h", 3), side)


def test_names_that_code_has_got_are_those_that_differ(compared):
    found, _ = compared({"a.py": "K = 1\n"}, {"a.py": "K = 2\ndef g(): pass\n"})
    assert found.of_fetched(["J", "K"]) == "gets K by its name (a.py:1 changed)"
    assert found.of_fetched(["g"])
    assert not found.of_fetched(["J"])


# ---- What counts everywhere ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("T = []\n", "T = []\nT.append(1)\n"),
        ("import gc\n", "import gc\ngc.freeze()\n"),
        ("", "@register\ndef g(): pass\n"),
        ("", "class A(metaclass=M): pass\n"),
        ("class A:\n    pass\n", "class A:\n    __slots__ = ()\n"),
        ("T = f(1)\n", "T = f(2)\n"),
        ("from b import *\n", "from c import *\n"),
        ("pytestmark = 1\n", "pytestmark = 2\n"),
        ("T.append(1)\nT.append(2)\n", "T.append(2)\nT.append(1)\n"),
        ("K = 1\n", "K = \n"),
    ],
)
def test_an_action_counts_everywhere(compared, base, head):
    assert everywhere(compared, base, head)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("", "K = 1\n"),
        ("", "def g(): pass\n"),
        ("", "class A:\n    k = 1\n"),
        ("", "import json\n"),
        ("import json\nimport re\n", "import re\nimport json\n"),
        ("def g(): pass\n", "def g(): return 1\n"),
        ("K = 1\n", "# comment\n\nK: int = 1\n"),
        ("def g(): pass\ndef h(): pass\n", "def h(): pass\ndef g(): pass\n"),
    ],
)
def test_a_definition_or_a_value_does_not(compared, base, head):
    assert not everywhere(compared, base, head)


def test_a_value_that_is_used_by_an_action_counts_everywhere(compared):
    user = "from a import K\nregister(K)\n"
    assert everywhere(compared, "K = 1\n", "K = 2\n", user) == ["b.py:2 uses K (a.py:1 changed)"]


@pytest.mark.parametrize(
    ("followed", "counts"),
    [
        (Followed(plain_classes={"a.py": ("A",)}), False),
        (Followed(plain_classes={"a.py": ()}), True),
        (Followed(plain_classes={"a.py": ("A",)}, acting=(("a.py", 2),)), True),
    ],
)
def test_a_class_counts_everywhere_if_its_definition_runs_code(compared, followed, counts):
    found, _ = compared(
        {"a.py": "class A:\n    k = 1\n"}, {"a.py": "class A:\n    k = 2\n"}, followed
    )
    assert bool(found.everywhere) is counts


@pytest.mark.parametrize("outside", [True, False])
def test_a_function_that_ran_at_an_import_counts_everywhere(compared, outside):
    followed = Followed(code=(RunCode("a.py", "g", 1),), outside=(0,) if outside else ())
    found, _ = compared({"a.py": "def g(): pass\n"}, {"a.py": "def g(): return 1\n"}, followed)
    assert [*found.everywhere] == ["runs a.py:g (changed) outside of tests"] * outside


def test_a_file_that_this_python_cannot_read_counts_everywhere(compared):
    found, side = compared({"a.py": "K = 1\n"}, {"a.py": "K = \n"})
    assert [*found.everywhere] == ["this Python cannot read a.py"]
    assert "cannot read" in found.of_code(RunCode("a.py", "f", 1), side)


def test_the_import_of_a_file_by_a_test_alone_counts_for_it(compared):
    followed = Followed(code=(RunCode("a.py", MODULE, 1),), cases={"test": (0,)})
    found, side = compared({"a.py": "T.append(1)\n"}, {"a.py": "T.append(2)\n"}, followed)
    assert not found.everywhere
    assert found.of_code(RunCode("a.py", MODULE, 1), side) == "imports a.py (a.py:1 changed)"


def test_the_order_of_files_with_actions_counts_everywhere(tmp_path):
    files = dict.fromkeys(("a.py", "b.py"), "T.append(1)\n")
    sides = {
        side: SideCode(
            write(tmp_path / side, files),
            frozenset(files),
            Followed(code=tuple(RunCode(path, MODULE, 1) for path in order), outside=(0, 1)),
        )
        for side, order in ((BASE, ("a.py", "b.py")), (HEAD, ("b.py", "a.py")))
    }
    assert [*differences(sides, ()).everywhere] == ["b.py is imported earlier or later than a.py"]


def test_code_that_the_program_makes_is_not_compared_by_its_place(compared):
    found, side = compared({"a.py": "K = 1\n"}, {"a.py": "K = 2\n"})
    assert not found.of_code(RunCode("", "made 0123", 0), side)


def test_code_that_is_not_found_differs(compared):
    code = RunCode("b.py", "f", 7)
    user = "from a import K\ndef f():\n    return K\n"
    assert "is not found" in reason(compared, "K = 1\n", "K = 2\n", code, user)
