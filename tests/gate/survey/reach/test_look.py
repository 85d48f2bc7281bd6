"""The quick look: which times and sizes of the same code are another matter."""

from __future__ import annotations

from dataclasses import replace

import gate_builders as build
import pytest
from gate_builders import CASE

from mnistbench.gate.listing import Listings
from mnistbench.gate.survey.reach.look import (
    is_confirmed,
    is_process_confirmed,
    is_process_repeated,
    is_repeated,
    look,
    look_ratio,
    process_look,
)
from mnistbench.gate.words import ALL_CASES, BASE, HEAD, IMPORT

MIB = 2**20


def sides(**facts):
    """Two sides with a case; a fact has the values of base and head."""
    return build.listings({CASE: "one"}, **{name: {CASE: pair} for name, pair in facts.items()})


@pytest.mark.parametrize(
    ("times_ns", "ratio"), [((1000, 1500), 1.5), ((1000, 0), 0.0), ((0, 1000), 0.0)]
)
def test_the_ratio_is_that_of_the_head(times_ns, ratio):
    assert look_ratio(sides(look_ns=times_ns), CASE) == ratio


def test_times_are_compared_with_those_of_a_loop():
    slower_core = sides(look_ns=(1000, 1500), look_loops=(0.1, 0.11))
    assert look_ratio(slower_core, CASE) == pytest.approx(1.1)
    assert look(slower_core, CASE) == ""
    assert look_ratio(sides(look_ns=(1000, 1500), look_loops=(0.1, 0.0)), CASE) == 1.5


@pytest.mark.parametrize(
    ("times_ns", "is_seen"),
    [
        ((1000, 1400), True),
        ((1400, 1000), True),
        ((1000, 1250), False),
        ((100, 145), False),  # 45 ns are no difference
        ((100, 200), True),
        ((1000, 1000), False),
    ],
)
def test_a_time_differs_by_a_factor_and_an_amount(times_ns, is_seen):
    assert bool(look(sides(look_ns=times_ns), CASE)) is is_seen


def test_the_look_says_how_much():
    assert look(sides(look_ns=(1000, 2000)), CASE) == (
        "runs the same code, but took 2 times as long in a quick look"
    )


@pytest.mark.parametrize(
    ("sizes", "is_seen"),
    [((MIB, 40 * MIB), True), ((40 * MIB, 0), True), ((0, 2 * MIB), False), ((0, 0), False)],
)
def test_memory_differs_by_a_factor_and_an_amount(sizes, is_seen):
    assert ("of memory" in look(sides(peak_bytes=sizes), CASE)) is is_seen


def processes(base, head):
    both = sides()
    return Listings(replace(both.base, **base), replace(both.head, **head))


@pytest.mark.parametrize(
    ("base", "head", "what"),
    [
        ({"importing_s": 1.0}, {"importing_s": 1.5}, "the import"),
        ({"importing_s": 1.0}, {"importing_s": 1.2}, ""),
        ({"importing_s": 0.001}, {"importing_s": 0.009}, ""),
        (
            {"importing_s": 2.1, "framework_s": 2.0},
            {"importing_s": 2.4, "framework_s": 2.0},
            "the import",
        ),
        ({"loaded_bytes": 100 * MIB}, {"loaded_bytes": 120 * MIB}, "the process"),
        ({"loaded_bytes": 100 * MIB}, {"loaded_bytes": 110 * MIB}, ""),
        ({}, {}, ""),
    ],
)
def test_processes_differ_before_their_first_case(base, head, what):
    said = process_look(processes(base, head))
    assert said.startswith(f"stands for {what}, ") if what else not said


@pytest.mark.parametrize(
    ("first_ns", "again_ns", "is_seen"),
    [
        ((1000, 1500), (1000, 2000), True),
        ((1000, 500), (2000, 1000), True),
        ((1000, 1500), (2000, 1000), False),  # the other way round
        ((1000, 1500), (1000, 1100), False),
        ((1000, 1500), (1000, 0), False),
    ],
)
def test_a_second_survey_repeats_a_time(first_ns, again_ns, is_seen):
    assert is_repeated(sides(look_ns=first_ns), sides(look_ns=again_ns), CASE) is is_seen


def test_a_second_survey_repeats_a_size():
    first = sides(peak_bytes=(MIB, 40 * MIB))
    assert is_repeated(first, first, CASE)
    assert not is_repeated(first, sides(peak_bytes=(40 * MIB, MIB)), CASE)
    assert not is_repeated(first, sides(look_ns=(1000, 2000)), CASE)


def test_a_case_that_a_second_survey_cannot_run_counts():
    assert is_repeated(sides(look_ns=(1000, 2000)), build.listings({}), CASE)


@pytest.mark.parametrize(
    ("base", "head", "is_seen"),
    [
        ({"importing_s": 1.0}, {"importing_s": 2.0}, True),
        ({"importing_s": 1.0}, {"importing_s": 1.0}, False),
        ({"loaded_bytes": 100 * MIB}, {"loaded_bytes": 140 * MIB}, False),
    ],
)
def test_a_second_survey_repeats_an_import(base, head, is_seen):
    first = processes({"importing_s": 1.0}, {"importing_s": 2.0})
    assert is_process_repeated(first, processes(base, head)) is is_seen


@pytest.mark.parametrize(
    ("trial_ns", "is_seen"),
    [((1000, 2000), True), ((2000, 1000), False), ((1000, 1100), False)],
)
def test_a_trial_confirms_a_time(trial_ns, is_seen):
    trial = build.trial(build.build(*map(build.side, trial_ns)))
    assert is_confirmed(trial, sides(look_ns=(1000, 1500)), CASE) is is_seen


def test_a_trial_needs_to_show_no_size_and_no_case_that_it_does_not_measure():
    same = build.trial(build.build(build.side(1000), build.side(1000)))
    assert is_confirmed(same, sides(peak_bytes=(MIB, 40 * MIB)), CASE)
    assert is_confirmed(build.trial(cases={}), sides(look_ns=(1000, 1500)), CASE)


@pytest.mark.parametrize(("head_s", "is_seen"), [(2, True), (1, False)])
def test_a_trial_confirms_an_import(head_s, is_seen):
    once = {side: {IMPORT: {ALL_CASES: s * 10**9}} for side, s in ((BASE, 1), (HEAD, head_s))}
    trial = build.trial(once=once)
    longer = processes({"importing_s": 1.0}, {"importing_s": 2.0})
    larger = processes({"loaded_bytes": 100 * MIB}, {"loaded_bytes": 140 * MIB})
    assert is_process_confirmed(trial, longer) is is_seen
    assert is_process_confirmed(trial, larger)
