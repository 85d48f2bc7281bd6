"""How the change of a case is divided among its functions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ANY_SPEED

from mnistbench.gate.explain.attribution import ENGINE, MIN_SHARE, CallCounts, causes
from mnistbench.gate.samples.case_profile import (
    COMPILED,
    FILE,
    FIXTURE,
    PACKAGE,
    CalledBy,
    CallPath,
    CaseProfile,
    OtherChange,
    ProfiledFunction,
)

SAME = ("", False)
CHANGED = ("changed", True)
USES = ("uses N (a.py:1 changed)", False)


def profile(functions, *paths):
    """A profile of functions, name -> change, and of paths.

    Each path is the position of the one before, a name, and calls and self times of both sides.
    """
    names = ["", *functions]
    return CaseProfile(
        tuple(ProfiledFunction(name, *functions.get(name, SAME)) for name in names),
        (
            CallPath(-1, 0, 1, 1, 0, 0),
            *(CallPath(parent, names.index(name), *rest) for parent, name, *rest in paths),
        ),
    )


def named(explained):
    return {cause.function: round(cause.change_ns) for cause in explained.functions}


def test_a_function_that_takes_longer_itself_has_its_change():
    explained = causes(
        profile({"f": CHANGED, "g": SAME}, (0, "f", 1, 1, 10, 30), (1, "g", 1, 1, 5, 5))
    )
    assert named(explained) == {"f": 20}
    [cause] = explained.functions
    assert (cause.share, cause.makes, cause.calls) == (1, None, CallCounts("f", 1, 1))


def test_calls_of_an_unchanged_function_count_for_the_changed_caller():
    explained = causes(
        profile({"f": CHANGED, "g": SAME}, (0, "f", 1, 1, 10, 10), (1, "g", 1, 3, 5, 15))
    )
    assert named(explained) == {"f": 10}
    assert explained.functions[0].makes == CallCounts("g", 1, 3)


def test_time_below_an_unchanged_function_counts_for_the_changed_one_above():
    explained = causes(
        profile(
            {"f": CHANGED, "g": SAME, "h": SAME},
            (0, "f", 1, 1, 10, 10),
            (1, "g", 2, 4, 10, 20),
            (2, "h", 2, 4, 100, 200),
        )
    )
    assert named(explained) == {"f": 110}
    assert explained.functions[0].makes == CallCounts("g", 2, 4)


def test_a_changed_function_below_another_has_its_own_part():
    explained = causes(
        profile({"f": CHANGED, "g": CHANGED}, (0, "f", 1, 1, 10, 11), (1, "g", 1, 1, 10, 90))
    )
    assert named(explained) == {"g": 80}


def test_more_calls_of_a_changed_function_by_an_unchanged_one_are_its_own():
    """Such as of one that has lost its cache."""
    explained = causes(
        profile({"f": USES, "g": CHANGED}, (0, "f", 1, 1, 10, 10), (1, "g", 1, 9, 10, 90))
    )
    assert named(explained) == {"g": 80}


def test_both_more_calls_and_longer_ones_are_divided_by_their_logarithms():
    explained = causes(
        profile({"f": CHANGED, "g": CHANGED}, (0, "f", 1, 1, 10, 10), (1, "g", 1, 2, 10, 80))
    )
    parts = named(explained)
    assert parts == {
        "f": round(70 * math.log(2) / math.log(8)),
        "g": round(70 * math.log(4) / math.log(8)),
    }


def test_a_new_path_counts_for_the_changed_function_on_it():
    explained = causes(
        profile(
            {"f": CHANGED, "new": ("new", True), "g": SAME},
            (0, "f", 1, 1, 10, 10),
            (1, "new", 0, 1, 0, 5),
            (2, "g", 0, 60, 0, 50),
        )
    )
    assert named(explained) == {"new": 55}
    assert explained.functions[0].calls == CallCounts("new", 0, 1)


def test_a_new_path_without_a_changed_function_counts_for_its_caller():
    explained = causes(
        profile({"f": CHANGED, "g": SAME}, (0, "f", 1, 1, 10, 10), (1, "g", 0, 60, 0, 50))
    )
    assert named(explained) == {"f": 50}
    assert explained.functions[0].makes == CallCounts("g", 0, 60)


def test_without_changed_code_more_calls_come_before_longer_calls():
    explained = causes(
        profile(
            {"f": SAME, "g": SAME, "h": SAME},
            (0, "f", 1, 1, 10, 10),
            (1, "g", 1, 5, 10, 50),
            (1, "h", 1, 1, 10, 51),
        )
    )
    assert [cause.function for cause in explained.functions] == ["h", "g"]
    assert not explained.functions[1].profiled.change


def test_what_explains_half_comes_first_then_what_differs_itself():
    explained = causes(
        profile(
            {"f": CHANGED, "g": USES, "h": USES},
            (0, "f", 1, 1, 10, 20),
            (0, "g", 1, 1, 10, 110),
            (0, "h", 1, 1, 10, 40),
        )
    )
    assert [cause.function for cause in explained.functions] == ["g", "f", "h"]
    assert explained.are_enough


def names(found):
    return [cause.function for cause in found]


def producer(*others, made=(4_000, 16_000), label=(90_000, 90_000)):
    """An unchanged ``work`` takes four times as long; ``make`` and ``label`` have changed."""
    case_profile = profile(
        {"make": CHANGED, "label": CHANGED, "work": SAME},
        (0, "make", 1, 1, *made),
        (0, "label", 1, 1, *label),
        (0, "work", 1, 1, 100_000, 400_000),
    )
    return causes(replace(case_profile, others=others), only_tree=True)


DATA = OtherChange(FIXTURE, "conftest.py:data", "changed")
TABLE = OtherChange(FILE, "table.json", "changed")


def test_an_unchanged_function_is_no_cause_but_what_made_its_values():
    explained = producer()
    assert names(explained.functions) == ["make", "label", "work"]
    assert explained.spent.function == "work"
    assert not explained.are_enough


def test_what_changed_as_the_case_did_is_the_only_suspect():
    assert names(producer(DATA, TABLE).suspects) == ["make"]


def test_without_such_a_function_all_changes_are_suspects_the_likely_ones_first():
    explained = producer(TABLE, DATA, made=(20_000, 4_000))
    assert names(explained.suspects) == ["make", "conftest.py:data", "label", "table.json"]
    assert names(explained.functions) == [*names(explained.suspects), "work"]


def test_functions_of_the_same_time_come_after_those_that_run_before_the_iterations():
    same_time = producer(TABLE, DATA, made=(10, 40))
    assert names(same_time.suspects) == [
        "conftest.py:data",
        *("make", "label"),  # a change of nanoseconds does not count
        "table.json",
    ]


def test_a_faster_unchanged_function_has_suspects_of_its_direction():
    case_profile = profile(
        {"make": CHANGED, "label": CHANGED, "work": SAME},
        (0, "label", 1, 1, 4_000, 9_000),
        (0, "make", 1, 1, 16_000, 4_000),
        (0, "work", 1, 1, 400_000, 100_000),
    )
    assert names(causes(case_profile).suspects) == ["make"]


def test_changed_functions_that_explain_half_together_leave_no_suspects():
    functions = {"f": CHANGED, "g": CHANGED, "work": SAME}
    explained = causes(
        profile(
            functions,
            (0, "f", 1, 1, 10, 40),
            (0, "g", 1, 1, 10, 35),
            (0, "work", 1, 1, 10, 60),
        )
    )
    assert explained.spent is None
    assert names(explained.functions) == ["f", "g", "work"]


@pytest.mark.parametrize(
    ("other", "function", "is_in_it"),
    [
        (OtherChange(COMPILED, "src/pkg/_c.cpython-313-x86_64-linux-gnu.so", "changed"), "", True),
        (OtherChange(COMPILED, "pkg/_c.abi3.so", "changed"), "", True),
        (OtherChange(COMPILED, "pkg/_b.abi3.so", "changed"), "", False),
        (OtherChange(COMPILED, "pkg/other_c.so", "changed"), "_c.work", False),
        (OtherChange(PACKAGE, "pkg", "1.0 -> 1.1"), "", True),
        (OtherChange(PACKAGE, "Some-Pkg", "1.0 -> 1.1"), "some_pkg.inner.work", True),
        (OtherChange(PACKAGE, "pk", "1.0 -> 1.1"), "", False),
        (OtherChange(PACKAGE, "pkg", "1.0 -> 1.1"), "sorted", False),
    ],
)
def test_time_in_a_changed_module_or_package_is_evidence_for_it(other, function, is_in_it):
    work = function or "pkg._c.work"
    case_profile = profile({"label": CHANGED, work: SAME}, (0, work, 1, 1, 10, 40))
    explained = causes(replace(case_profile, others=(DATA, other)))
    assert (names(explained.suspects) == [other.name]) == is_in_it
    assert names(explained.functions)[-1] == work


def test_without_a_known_change_there_are_no_suspects():
    explained = causes(profile({"work": SAME}, (0, "work", 1, 1, 10, 40)))
    assert explained.suspects == ()
    assert names(explained.functions) == ["work"]


def test_no_function_may_be_enough():
    functions = dict.fromkeys("abcd", CHANGED)
    explained = causes(profile(functions, *((0, name, 1, 1, 10, 20) for name in functions)))
    assert not explained.are_enough
    assert len(explained.functions) == 4


def test_an_improvement_has_causes_of_its_direction():
    explained = causes(
        profile({"f": CHANGED, "g": CHANGED}, (0, "f", 1, 1, 90, 10), (0, "g", 1, 1, 10, 20))
    )
    assert explained.change_ns == -70
    assert named(explained) == {"f": -80}


def test_comprehensions_count_for_the_function_around_them():
    explained = causes(
        profile(
            {"a.py:f": CHANGED, "a.py:f.<locals>.<listcomp>": CHANGED},
            (0, "a.py:f", 1, 1, 10, 10),
            (1, "a.py:f.<locals>.<listcomp>", 1, 1, 10, 60),
        )
    )
    assert named(explained) == {"a.py:f": 50}


def test_without_a_change_there_is_no_cause():
    explained = causes(profile({"f": CHANGED}, (0, "f", 1, 1, 10, 10)))
    assert (explained.change_ns, explained.functions, explained.are_enough) == (0, (), False)


def test_calls_are_those_of_the_function_that_makes_them():
    explained = causes(
        profile(
            {"f": CHANGED, "g": SAME, "h": SAME},
            (0, "f", 1, 1, 10, 10),
            (1, "g", 1, 3, 50, 150),
            (0, "h", 1, 1, 10, 10),
            (3, "g", 7, 7, 350, 350),
        )
    )
    assert explained.functions[0].makes == CallCounts("g", 1, 3)


def test_a_built_in_function_is_no_cause_if_the_trees_alone_differ():
    """It takes longer because of what it gets."""
    case_profile = profile(
        {"f": SAME, "search": SAME}, (0, "f", 1, 1, 10, 10), (1, "search", 5, 5, 50, 150)
    )
    functions = [
        replace(function, is_of_tree=function.name == "f") for function in case_profile.functions
    ]
    case_profile = replace(case_profile, functions=tuple(functions))
    assert named(causes(case_profile)) == {"search": 100}
    explained = causes(case_profile, only_tree=True)
    assert named(explained) == {"f": 100}
    assert explained.functions[0].inside == "search"


def backward(*operations):
    """A step that differs itself and calls the engine; ``f`` and ``g`` call its operations."""
    case_profile = profile(
        {"step": CHANGED, "f": CHANGED, "g": SAME, ENGINE: SAME},
        (0, "step", 1, 1, 10, 10),
        (1, "f", 1, 1, 10, 10),
        (1, ENGINE, 1, 1, 100, 200),
    )
    return causes(replace(case_profile, operations=operations))


MM = ("aten::mm", "backward", "fc")


def test_the_backward_pass_counts_for_what_calls_its_operations():
    explained = backward(CalledBy(MM, 2, 10, 40), CalledBy(("aten::mul", "backward", ""), 2, 5, 5))
    assert named(explained) == {"f": 100}


def test_of_other_operations_it_counts_for_what_calls_the_engine():
    assert named(backward(CalledBy(MM, 2, 10, 40), CalledBy(MM, None, 10, 20))) == {
        "f": 75,
        "step": 25,
    }
    assert named(backward()) == {"step": 100}


CHANGES = st.sampled_from([SAME, CHANGED, USES, ("new", True)])


@st.composite
def profiles(draw):
    functions = {name: draw(CHANGES) for name in "abcdef"[: draw(st.integers(1, 6))]}
    paths = []
    for position in range(1, draw(st.integers(2, 12))):
        parent = draw(st.integers(0, position - 1))
        above = (1, 1) if parent == 0 else paths[parent - 1][2:4]
        # A path that is not called on a side continues on none there.
        calls = [number and draw(st.integers(0, 9)) for number in above]
        times = [number and draw(st.integers(0, 1000)) for number in calls]
        paths.append((parent, draw(st.sampled_from(sorted(functions))), *calls, *times))
    return profile(functions, *paths)


@ANY_SPEED
@given(profiles())
def test_the_parts_add_up_to_the_change(drawn):
    explained = causes(drawn)
    change_ns = sum(path.head_self_ns - path.base_self_ns for path in drawn.paths)
    assert explained.change_ns == change_ns
    named_ns = sum(cause.change_ns for cause in explained.functions)
    if change_ns:
        # Those that are not named explain less, or go against the change.
        opposite_or_small = (named_ns - change_ns) / change_ns
        assert opposite_or_small >= -MIN_SHARE * len(drawn.functions)


@pytest.mark.parametrize("factor", [2, 1000])
def test_shares_do_not_depend_on_the_unit_of_time(factor):
    def scaled(unit):
        return profile(
            {"f": CHANGED, "g": CHANGED},
            (0, "f", 1, 2, 10 * unit, 40 * unit),
            (1, "g", 3, 4, 10 * unit, 80 * unit),
        )

    shares, scaled_shares = (
        [cause.share for cause in causes(scaled(unit)).functions] for unit in (1, factor)
    )
    assert shares == pytest.approx(scaled_shares)
