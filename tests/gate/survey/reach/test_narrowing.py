"""Narrow a gate to the affected cases: surveys without them, and the quick look."""

from __future__ import annotations

from dataclasses import replace

import gate_builders as build
import pytest
from surveyed import write

from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.listing import Listings
from mnistbench.gate.processes.messages import Followed, RunCode, Surveys
from mnistbench.gate.processes.sides.stray import Imports
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.narrowing import Narrowing
from mnistbench.gate.words import BASE, HEAD

CASES = ("one", "two", "three", "four", "five", "six")

#: Of both sides; ``changed`` has another body in the head.
TEXT = "def changed():\n    return {}\n\ndef equal():\n    pass\n"
LINES = {"changed": 1, "equal": 4}


def surveys(ran, cases=CASES, **facts):
    """Both sides, whose cases run these functions; others run the one that is equal."""
    code = tuple(RunCode("a.py", name, line) for name, line in LINES.items())
    followed = Followed(
        code=code,
        cases={case: (tuple(LINES).index(ran.get(case, "equal")),) for case in cases},
    )
    listings = build.listings({case: case for case in cases}, **facts)
    imports = Imports("", files={"a": "a.py"})
    return Surveys(
        listings, dict.fromkeys((BASE, HEAD), imports), dict.fromkeys((BASE, HEAD), followed)
    )


@pytest.fixture
def narrowed(tmp_path):
    """Narrow a gate; return its reach and which cases were surveyed again."""
    trees = {
        side: Tree(write(tmp_path / side, {"a.py": TEXT.format(number)}), tmp_path, side)
        for number, side in enumerate((BASE, HEAD))
    }

    def narrow(first, again=lambda _: surveys({}), of_all=(), trial=lambda _: None):
        asked = []

        def survey_again(cases):
            asked.append([*cases])
            return again(cases)

        code = ComparedCode(trees, first.imports, first.followed, ["a.py"])
        narrowing = Narrowing(first.listings, code, of_all, survey_again, trial, lambda _: None)
        return narrowing.reach(), asked

    return narrow


# ---- Surveys without the affected cases ----------------------------------------------------------


def test_cases_that_run_what_differs_are_affected(narrowed):
    reach, _ = narrowed(surveys({"two": "changed"}))
    assert reach.reasons == {"two": ("runs a.py:changed (changed)",)}
    assert [*reach.same] == ["one", "three", "four", "five", "six"]


def test_cases_after_the_first_affected_one_are_surveyed_alone(narrowed):
    _, asked = narrowed(surveys({"two": "changed"}))
    assert asked == [["three", "four", "five", "six"]]


@pytest.mark.parametrize("ran", [{}, {"six": "changed"}, dict.fromkeys(CASES, "changed")])
def test_without_a_case_after_an_affected_one_there_is_no_other_survey(narrowed, ran):
    _, asked = narrowed(surveys(ran))
    assert asked == []


def test_what_counts_for_all_cases_needs_no_other_survey(narrowed):
    reach, asked = narrowed(surveys({}), of_all=["another version of numpy"])
    assert reach.reasons == dict.fromkeys(CASES, ("another version of numpy",))
    assert asked == []


def test_a_case_that_an_earlier_one_hides_is_found(narrowed):
    reach, asked = narrowed(
        surveys({"two": "changed"}),
        lambda cases: surveys({"four": "changed"} if "three" in cases else {}, cases),
    )
    assert {*reach.reasons} == {"two", "four"}
    # It may hide what others run, in turn.
    assert asked == [["three", "four", "five", "six"], ["three", "five", "six"]]


def test_surveys_end_when_none_is_affected(narrowed):
    hidden = ["three", "four"]

    def again(cases):
        return surveys({hidden.pop(0): "changed"} if hidden else {}, cases)

    reach, asked = narrowed(surveys({"one": "changed"}), again)
    assert {*reach.reasons} == {"one", "three", "four"}
    assert asked[-1] == ["two", "five", "six"]
    assert len(asked) == 3


def test_after_too_many_surveys_all_are_affected(narrowed):
    reach, asked = narrowed(
        surveys({"one": "changed"}), lambda cases: surveys({cases[0]: "changed"}, cases)
    )
    assert reach.same == {}
    assert len(asked) == 4
    assert reach.reasons["six"] == ("runs other code each time that other tests are left out",)


def test_a_case_that_needs_others_is_affected(narrowed):
    def again(cases):
        found = surveys({}, cases)
        return replace(found, listings=found.listings.without(["five"]))

    reach, _ = narrowed(surveys({"two": "changed"}), again)
    assert reach.reasons["five"] == ("cannot be run without the tests before it",)
    assert [*reach.same] == ["one", "three", "four", "six"]


@pytest.mark.parametrize("side", [BASE, HEAD])
def test_cases_after_one_of_a_single_side_are_surveyed_alone(narrowed, side):
    first = surveys({})
    other = HEAD if side == BASE else BASE
    listings = {side: first.listings[side], other: first.listings[other].without(["three"])}
    _, asked = narrowed(replace(first, listings=Listings(listings[BASE], listings[HEAD])))
    assert asked == [["four", "five", "six"]]


def test_cases_beside_an_unmeasurable_one_are_surveyed_alone(narrowed):
    _, asked = narrowed(surveys({}, unmeasurable={"six": "is a coroutine"}))
    assert asked == [["one", "two", "three", "four", "five"]]


# ---- The quick look ------------------------------------------------------------------------------


def looks(case, ratio):
    return {"look_ns": {case: (1000, round(1000 * ratio))}}


def test_what_takes_as_long_is_left_out(narrowed):
    reach, asked = narrowed(surveys({}, look_ns=dict.fromkeys(CASES, (1000, 1100))))
    assert reach.is_empty
    assert reach.looks == pytest.approx(dict.fromkeys(CASES, 1.1))
    assert asked == []


@pytest.mark.parametrize(("second", "is_affected"), [(1.5, True), (1.0, False), (0.6, False)])
def test_another_time_is_surveyed_again(narrowed, second, is_affected):
    reach, asked = narrowed(
        surveys({}, **looks("three", 1.5)), lambda _: surveys({}, **looks("three", second))
    )
    assert asked == [["three"]]
    assert [*reach.reasons] == ["three"] * is_affected
    assert reach.looks == ({} if is_affected else {"three": second})


@pytest.mark.parametrize(("trial_ns", "is_affected"), [((1000, 1500), True), ((1000, 1000), False)])
def test_a_repeated_time_counts_if_a_trial_in_turn_shows_it(narrowed, trial_ns, is_affected):
    measured = []

    def trial(cases):
        measured.append([*cases])
        return build.trial(cases={"three": [build.build(*map(build.side, trial_ns))]})

    again = {"look_ns": {"three": (1000, 1500)}}
    reach, _ = narrowed(
        surveys({"two": "changed"}, **again), lambda _: surveys({}, **again), trial=trial
    )
    assert measured == [["two", "three"]]
    assert ("three" in reach.reasons) is is_affected
    assert reach.looks == ({} if is_affected else {"three": 1.0})


def test_another_time_after_an_affected_case_is_repeated_with_that_case(narrowed):
    _, asked = narrowed(surveys({"two": "changed"}, **looks("three", 1.5)))
    assert asked == [["three", "four", "five", "six"], ["two", "three"]]


def test_another_time_after_tests_of_one_side_is_repeated_with_these(narrowed):
    first = surveys({}, unmeasurable={"six": "is a coroutine"}, **looks("three", 1.5))
    new = build.listings({"new": "new"}).head.cases
    head = replace(first.listings.head, cases={**new, **first.listings.head.cases})
    _, asked = narrowed(replace(first, listings=Listings(first.listings.base, head)))
    assert {*asked[-1]} == {"new", "three", "six"}


def with_imports(first, importing_s):
    base, head = (
        replace(first.listings[side], importing_s=seconds)
        for side, seconds in zip((BASE, HEAD), importing_s, strict=True)
    )
    return replace(first, listings=Listings(base, head))


@pytest.mark.parametrize(("second_s", "is_affected"), [(2.0, True), (1.0, False)])
def test_the_shortest_case_stands_for_a_longer_import(narrowed, second_s, is_affected):
    first = surveys({}, seconds={case: 2.0 if case != "four" else 1.0 for case in CASES})
    reach, asked = narrowed(
        with_imports(first, (1.0, 2.0)), lambda _: with_imports(surveys({}), (1.0, second_s))
    )
    assert asked == [["four"]]
    assert [*reach.reasons] == ["four"] * is_affected


def test_a_longer_import_needs_no_case_beside_affected_ones(narrowed):
    reach, asked = narrowed(with_imports(surveys({"six": "changed"}), (1.0, 2.0)))
    assert [*reach.reasons] == ["six"]
    assert asked == []


# ---- What no case runs ---------------------------------------------------------------------------


def test_functions_that_no_case_runs_are_uncovered(narrowed):
    reach, _ = narrowed(surveys({}))
    assert reach.uncovered == ("a.py:changed",)
    reach, _ = narrowed(surveys({"one": "changed"}))
    assert reach.uncovered == ()


def test_an_imported_file_is_used(narrowed):
    reach, _ = narrowed(surveys({}))
    assert reach.unused == ()
