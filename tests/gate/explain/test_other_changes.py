"""What differs that profiled iterations do not call."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from gate_builders import CASE, header

from mnistbench.gate.explain.other_changes import MAX_KEPT, with_others
from mnistbench.gate.listing import Reach
from mnistbench.gate.samples.case_profile import (
    COMPILED,
    FILE,
    FIXTURE,
    FUNCTION,
    IMPORT,
    PACKAGE,
    SETTING,
    STATEMENT,
    VARIABLE,
    CaseProfile,
    OtherChange,
    ProfiledFunction,
)
from mnistbench.gate.words import BASE, HEAD


@dataclass
class Code:
    """Compared code of a case with these reasons, beside those of a header."""

    reasons: tuple[str, ...] = ()

    def why_affected(self, node_id):
        assert node_id == CASE
        return self.reasons

    def is_edited(self, path, what):
        return path != "same.py"

    def line_in_head(self, path, name):
        return 12 if name == "make" else 0

    def is_fixture(self, path, name):
        return path.endswith("conftest.py") and name == "data"


def others(*reasons, code=Code(), called=(), **changes):  # noqa: B008  # it is not changed
    profile = CaseProfile(tuple(map(ProfiledFunction, ("the case", *called))))
    first = header(reach=Reach(is_known=True, reasons={CASE: reasons}), **changes)
    return with_others(profile, CASE, first, code).others


USES = "uses N (pkg/a.py:1 changed)"


@pytest.mark.parametrize(
    ("reason", "other"),
    [
        (
            "runs pkg/a.py:make (changed)",
            OtherChange(FUNCTION, "pkg/a.py:make", "changed", line=12),
        ),
        ("runs pkg/a.py:A.f (new) outside of tests", OtherChange(FUNCTION, "pkg/a.py:A.f", "new")),
        (
            f"runs pkg/a.py:f.<locals>.<lambda>, which {USES}",
            OtherChange(FUNCTION, "pkg/a.py:f.<locals>.<lambda>", USES, differs_itself=False),
        ),
        (
            "pkg/a.py:f (changed) may be compiled, so that it is not seen to run",
            OtherChange(FUNCTION, "pkg/a.py:f", "changed"),
        ),
        (
            "runs bench/conftest.py:data (changed)",
            OtherChange(FIXTURE, "bench/conftest.py:data", "changed"),
        ),
        (
            f"runs bench/conftest.py:data, which {USES}",
            OtherChange(FIXTURE, "bench/conftest.py:data", USES, differs_itself=False),
        ),
        ("reads my data/x.json (changed)", OtherChange(FILE, "my data/x.json", "changed")),
        ("x.cfg (changed) is read outside of tests", OtherChange(FILE, "x.cfg", "changed")),
        ("pkg/c.py:6 changed", OtherChange(STATEMENT, "pkg/c.py:6", "changed")),
        (f"pkg/c.py:6 {USES}", OtherChange(STATEMENT, "pkg/c.py:6", USES, differs_itself=False)),
        (
            "gets limit by its name (pkg/c.py:6 changed)",
            OtherChange(STATEMENT, "pkg/c.py:6", "changed"),
        ),
        ("imports pkg/c.py (pkg/c.py:6 new)", OtherChange(IMPORT, "pkg/c.py", "pkg/c.py:6 new")),
        ("the project loads pkg/_c.so (changed)", OtherChange(COMPILED, "pkg/_c.so", "changed")),
        (
            "pkg/a.py is imported earlier or later than pkg/b.py",
            OtherChange(SETTING, "pkg/a.py is imported earlier or later than pkg/b.py", ""),
        ),
        (
            "the options of pytest in tox.ini differ",
            OtherChange(SETTING, "the options of pytest in tox.ini", ""),
        ),
        ("the sides have other interpreters", OtherChange(SETTING, "other interpreters", "")),
        ("has other parameters", OtherChange(SETTING, "other parameters", "")),
    ],
)
def test_a_reason_names_what_differs(reason, other):
    assert others(reason) == (other,)


@pytest.mark.parametrize(
    "reason",
    [
        "returns another result",
        "returns list in the base and tuple in the head",
        "runs pkg/a.py:f in the head alone",
        "runs a function <lambda> that the program makes, in the base alone",
        "runs the same code, but took 1.8 times as long in a quick look",
        "was not followed in the base",
        # They may differ by what runs before them.
        "same.py:6 changed",
        "runs same.py:make (changed)",
        "starts processes, which are not followed",
    ],
)
def test_what_only_follows_from_a_change_is_none(reason):
    assert others(reason) == ()


def test_versions_and_variables_have_the_values_of_both_sides():
    packages = {"numpy": ("2.0", "2.1"), "same": ("1", "1")}
    found = others(
        "the sides have other packages: numpy 2.0 -> 2.1",
        "the sides have other environment variables",
        packages=packages,
        variables={BASE: {"MODE": "1"}, HEAD: {"MODE": "2", "OTHER": "x"}},
    )
    assert found == (
        OtherChange(PACKAGE, "numpy", "2.0 -> 2.1"),
        OtherChange(VARIABLE, "MODE", "1 -> 2"),
        OtherChange(VARIABLE, "OTHER", "not set -> x"),
    )


def test_functions_that_differ_themselves_come_first_and_called_ones_are_left_out():
    code = Code(
        (
            "the project loads pkg/_c.so (changed)",
            "reads x.json (changed)",
            f"runs pkg/a.py:used, which {USES}",
            "runs pkg/a.py:make (changed)",
            "runs pkg/a.py:called (changed)",
            "runs bench/conftest.py:data (changed)",
        )
    )
    found = others("reads x.json (changed)", code=code, called=["pkg/a.py:called"])
    assert [other.name for other in found] == [
        *("bench/conftest.py:data", "pkg/a.py:make", "pkg/a.py:used", "x.json", "pkg/_c.so")
    ]


def test_only_some_of_many_are_kept():
    assert len(others(*(f"runs a.py:f{number} (new)" for number in range(99)))) == MAX_KEPT
