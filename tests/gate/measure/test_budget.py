"""The number of trials follows from the spread, not from which side is faster.

Efforts follow from the limits and from the budget.
"""

import math
import random
from dataclasses import replace

import gate_builders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from mnistbench.core.params import CALL
from mnistbench.gate.decide.statistics import quantities
from mnistbench.gate.decide.statistics.permutation import simultaneous_bounds
from mnistbench.gate.decide.verdict.findings import CHECKPOINTS
from mnistbench.gate.listing import ListedCase
from mnistbench.gate.measure.budget import (
    MAX_TRIALS,
    MAX_TRIALS_BELOW_FULL,
    MIN_CASE_S,
    MIN_EFFORT,
    Budget,
    SurveyedCase,
    SurveyedTimes,
    _surveyed_case,
    first_efforts,
    planned_trials,
)
from mnistbench.gate.options import MIN_TRIALS, TRIALS, Thresholds
from mnistbench.gate.processes.messages import Efforts, Spent
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.raw_samples import Trial
from mnistbench.gate.words import BASE, HEAD, WALL
from mnistbench.judging.kinds import ITERATION

SPENT = Spent(1.0, Efforts(0.25, 0.25), 0.5, 0.2)


def budget_with(spent):
    """A budget after a round of 5 s, which is 4 s longer than the case."""
    return Budget(0.0, None, lambda: 0.0, rounds_s={1: [5.0]}, spent=[{"t": spent}])


def planned(trials, limits, shards=1):
    return planned_trials(quantities.quantities(trials), limits, shards)


def side(times, operation=(), turns=()):
    operations = (
        {("aten::mm", "forward", ""): raw_samples.Operation(tuple(operation), 1.0, 0, ())}
        if len(operation)
        else {}
    )
    ns = tuple(map(float, times))
    turns = tuple(map(float, turns)) or ns
    return gate_builders.side(
        operations=operations, times={"wall": turns, "cpu": turns}, block_ns=ns, outcome=("", 0.0)
    )


def trials(
    count, *, within=0.01, between=0.0, change=0.0, blocks=8, cases=("t",), seed=1, operation=None
):
    """Trials whose blocks have this spread of log(head / base).

    Their processes differ by the other one.
    """
    draw = np.random.default_rng(seed)
    measured = []
    for _ in range(count):
        trial_cases = {}
        for case in cases:
            factors, turns = np.exp(
                draw.normal(change + draw.normal(0, between), within, (2, blocks))
            )
            profiled = np.exp(draw.normal(0, operation or 0.0, (2, blocks))) * 1e6
            rows = (
                [row.astype(int).tolist() for row in profiled]
                if operation is not None
                else [(), ()]
            )
            trial_cases[case] = [
                {
                    BASE: side([1e6] * blocks, rows[0]),
                    HEAD: side(1e6 * factors, rows[1], 1e6 * turns),
                }
            ]
        measured.append(Trial(1, trial_cases, 1.0))
    return measured


@pytest.mark.parametrize(
    ("case", "operation", "efforts"),
    [
        (0.01, 0.025, (1, 1)),
        (0.005, 0.05, (1, 1 / 4)),
        (0.02, 0.05, (1 / 4, 1 / 4)),
        (0.05, 0.5, (1 / 25, MIN_EFFORT)),
    ],
)
def test_first_efforts_fall_with_the_square_of_the_limit(case, operation, efforts):
    assert first_efforts(Thresholds(case=case, operation=operation, once=0.2)) == pytest.approx(
        efforts
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_does_not_depend_on_the_roles_of_any_trial(seed):
    draw = random.Random(seed)
    measured = trials(10, between=0.02, change=0.03, cases=("t", "u"), seed=seed, operation=0.05)
    exchanged = [
        replace(
            trial,
            cases={
                c: [{BASE: b[HEAD], HEAD: b[BASE]} for b in builds]
                for c, builds in trial.cases.items()
            },
        )
        if draw.random() < 0.5
        else trial
        for trial in measured
    ]
    limits = Thresholds(case=0.02, operation=0.05, once=0.2)
    assert planned(exchanged, limits) == planned(measured, limits)


@pytest.mark.parametrize(("between", "cases"), [(0.005, 3), (0.012, 3), (0.012, 40)])
def test_so_many_trials_reach_the_limit(between, cases):
    names = [f"t{number}" for number in range(cases)]
    limits = Thresholds(case=0.03, operation=0.05, once=0.2)
    needed = planned(trials(TRIALS, within=0.001, between=between, cases=names), limits)
    assert TRIALS <= needed <= MAX_TRIALS
    cases_with_more = [
        quantity
        for quantity in quantities.quantities(
            trials(needed, within=0.001, between=between, cases=names, seed=2)
        )
        if quantity.is_case
    ]
    _, high = simultaneous_bounds(np.array([quantity.logs for quantity in cases_with_more]), 1)
    assert np.mean(high <= math.log1p(0.03)) > 0.95


@pytest.mark.parametrize("sd", [0.007, 0.017, 0.022, 0.026])
def test_bounds_hold_where_their_number_of_trials_follows_from_the_spread(sd):
    """Upper bounds of three cases; whatever the spread is, at most 2.5 % of gates have a wrong one.

    The spread is that of gates with ten trials, with more, and with as many as are planned.
    """
    draw = np.random.default_rng(1)
    limits = Thresholds(case=0.02, operation=0.05, once=0.2)
    gates = 400
    wrong = 0
    for _ in range(gates):
        logs = draw.normal(0, sd, (3, MAX_TRIALS))
        cases = [
            quantities.CaseTime(f"t{n}", ITERATION, WALL, tuple(row), 1e6, 1e6)
            for n, row in enumerate(logs[:, :TRIALS])
        ]
        number = planned_trials(cases, limits)
        _, high = simultaneous_bounds(logs[:, :number], 1)
        wrong += bool((high < 0).any())
    assert binomtest(wrong, gates, 0.035, "greater").pvalue > 0.01


@pytest.mark.parametrize("sd", [0.004, 0.006])
def test_a_slowdown_of_a_small_limit_is_found_with_the_planned_trials(sd):
    draw = np.random.default_rng(1)
    limits = Thresholds(case=0.005, operation=0.05, once=0.2)
    gates = 150
    found_slower = 0
    for _ in range(gates):
        logs = math.log1p(0.005) + draw.normal(0, sd, MAX_TRIALS_BELOW_FULL)
        case = quantities.CaseTime("t", ITERATION, WALL, tuple(logs[:TRIALS]), 1e6, 1e6)
        number = planned_trials([case], limits)
        low, _ = simultaneous_bounds(logs[np.newaxis, :number], 1)
        found_slower += bool(low[0] > 0)
    assert binomtest(found_slower, gates, 0.9, "less").pvalue > 0.01


def test_bounds_of_all_shards_together_need_more():
    limits = Thresholds(case=0.05, operation=0.05, once=0.2)
    names = ["t0", "t1", "t2"]
    measured = trials(TRIALS, within=0.001, between=0.03, cases=names)
    gate_trials, shard_trials = (planned(measured, limits, shards) for shards in (1, 40))
    assert TRIALS <= gate_trials < shard_trials <= MAX_TRIALS


def a_slower_case(logs):
    return quantities.CaseTime("t", ITERATION, WALL, tuple(logs), 1e6, 1e6)


@pytest.mark.parametrize("faster", [1, -1], ids=["head slower", "head faster"])
def test_a_case_that_differs_by_much_more_than_its_limit_takes_no_more_trials(faster):
    limits = Thresholds(case=0.05, operation=0.05, once=0.2)

    def planned_after(change):
        logs = [faster * (change + spread) for spread in (-0.065, 0.065) * (TRIALS // 2)]
        return planned_trials([a_slower_case(logs)], limits)

    assert planned_after(0.25) == TRIALS
    assert planned_after(0.07) > TRIALS


def test_a_case_that_no_plan_can_bound_takes_no_more_trials():
    measured = trials(TRIALS, between=0.5)
    assert planned(measured, Thresholds(case=0.02, operation=0.05, once=0.2)) == TRIALS


def test_without_a_quantity_that_a_pass_bounds_there_are_as_many_trials_as_usual():
    assert planned_trials([], Thresholds(case=0.005)) == TRIALS


@pytest.mark.parametrize(
    ("efforts", "seconds"),
    [((0.25, 0.25), 1.0), ((0.5, 0.25), 1.5), ((0.25, 0.5), 1.2), ((0.0625, 0.0625), 0.475)],
)
def test_the_expected_time_changes_with_the_parts_that_depend_on_efforts(efforts, seconds):
    assert budget_with(SPENT).round_s(["t"], Efforts(*efforts)) == pytest.approx(4.0 + seconds)


def test_nothing_is_expected_of_a_part_that_was_not_measured():
    spent = replace(SPENT, efforts=Efforts(0.25, 0.0), profiled_s=0.0)
    assert budget_with(spent).round_s(["t"], Efforts(0.25, 1.0)) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("left_s", "timed"),
    [(1_000.0, 0.25), (23.5, 0.16), (1.0, MIN_EFFORT)],
    ids=["all fit", "shorter ones fit", "none fit"],
)
def test_efforts_become_smaller_until_the_trials_fit(left_s, timed):
    efforts = budget_with(SPENT).efforts_that_fit(["t"], Efforts(0.25, 0.05), 5, left_s)
    assert efforts.timed == pytest.approx(timed)
    assert efforts.profiled == pytest.approx(max(MIN_EFFORT, 0.05 * timed / 0.25))


@pytest.mark.parametrize(
    ("trials", "saves"), [(8, True), (9, True), (10, False)], ids=["8", "9", "10"]
)
def test_a_trial_may_save_fresh_ones(trials, saves):
    budget = Budget(0.0, 100.0, lambda: 0.0)
    assert budget.deadline_for_tenth_trial(trials, 10.0) == (60.0 if saves else 0.0)


# ---- A budget that is too small ------------------------------------------------------------------


LEAST = Efforts(MIN_EFFORT, MIN_EFFORT)


def surveyed(call_seconds, start_s=1.0, budget_s=60.0, at_once=1):
    """A budget before the first trial; each side calls each case for half of its seconds."""
    cases = {
        f"t{number}": SurveyedCase(call_s=call_s) for number, call_s in enumerate(call_seconds)
    }
    times = SurveyedTimes(start_s, cases)
    return Budget(0.0, budget_s, lambda: 0.0, at_once=at_once, surveyed=times), list(cases)


@pytest.mark.parametrize(
    ("case", "efforts", "seconds"),
    [
        # Two warm-up calls and one whose result is kept, and three pairs: six calls on each side.
        (SurveyedCase(2.0), LEAST, 12.0),
        (SurveyedCase(2.0), Efforts(1.0, 1.0), 18.0),
        (SurveyedCase(2.0, in_blocks=True), LEAST, 18.0),
        (SurveyedCase(2.0, has_operations=True), LEAST, 22.0),
        (SurveyedCase(2.0, build_s=3.0, builds=2), LEAST, 30.0),
        (SurveyedCase(2e-6), LEAST, MIN_CASE_S),
    ],
)
def test_the_time_of_a_trial_follows_from_the_calls_of_the_survey(case, efforts, seconds):
    assert case.trial_s(efforts) == pytest.approx(seconds)


def test_fixtures_of_both_sides_count_in_a_trial():
    params = {"phase": CALL, "device": "cpu", "threads": 1}
    listed = ListedCase("t", params, seconds=4.0, setup_s=1.5)
    case = _surveyed_case(
        [listed, listed], has_one_thread=False, has_operations=False, is_compiled_anew=False
    )
    assert case.trial_s(LEAST) == pytest.approx(2 * 1.5 + SurveyedCase(4.0).trial_s(LEAST))


def test_repeated_compilations_of_both_sides_count_in_a_trial():
    params = {"phase": CALL, "device": "cpu", "threads": 1}
    listed = ListedCase("t", params, seconds=4.0, compile_ns=10_000_000_000)
    once, each_time = (
        _surveyed_case(
            [listed, listed], has_one_thread=False, has_operations=False, is_compiled_anew=anew
        ).trial_s(LEAST)
        for anew in (False, True)
    )
    assert each_time - once == pytest.approx(2 * 10)


def test_times_of_trials_replace_those_of_the_survey():
    budget, cases = surveyed([2.0])
    assert budget.round_s(cases, LEAST) == pytest.approx(1.0 + 12.0)
    budget.rounds_s[1].append(9.0)
    budget.spent.append({"t0": Spent(4.0, LEAST, 2.0, 0.0)})
    assert budget.round_s(cases, LEAST) == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("call_seconds", "budget_s", "kept"),
    [
        ([0.2, 0.1, 0.3], 60.0, "t0 t1 t2"),
        ([0.2, 0.1, 5.0], 60.0, "t0 t1"),  # 30 s a trial
        # 8 trials of both fit into 60 s, those of the other three not with time for fresh ones.
        ([1.0, 0.2, 0.2, 1.2], 60.0, "t1 t2"),
        ([0.9], 60.0, "t0"),  # 51 s: a single case needs no time for others
        ([1.4], 60.0, ""),
    ],
)
def test_the_slowest_cases_are_left_out_until_the_others_can_be_decided(
    call_seconds, budget_s, kept
):
    budget, cases = surveyed(call_seconds, budget_s=budget_s)
    deadline = 0.6 * budget_s
    assert budget.cases_that_fit(cases, LEAST, MIN_TRIALS, deadline) == kept.split()


@pytest.mark.parametrize(
    ("call_seconds", "tried"),
    [
        ([0.1, 0.1], ""),  # all fit
        ([0.1, 1.3], "t1"),  # 9.4 s a trial, which fit if they take 0.6 of it
        ([1.3, 0.1], "t0"),
        ([0.1, 2.0], ""),  # 13.6 s a trial
        ([0.9], ""),
        ([0.5, 0.1, 0.7], "t0 t2"),
        # To try a second one would take time of the others.
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.6, 0.6], "t5"),
    ],
)
def test_cases_are_tried_that_fit_if_trials_are_quicker_than_expected(call_seconds, tried):
    budget, cases = surveyed(call_seconds)
    deadline = 36.0
    kept = budget.cases_that_fit(cases, LEAST, MIN_TRIALS, deadline)
    assert budget.cases_to_try(cases, kept, LEAST, MIN_TRIALS, deadline) == tried.split()


@given(
    call_seconds=st.lists(st.floats(0.001, 3), min_size=2, max_size=12),
    at_once=st.sampled_from([1, 2]),
)
def test_cases_that_are_tried_take_no_time_of_the_others(call_seconds, at_once):
    budget, cases = surveyed(call_seconds, at_once=at_once)
    deadline = 36.0
    kept = budget.cases_that_fit(cases, LEAST, MIN_TRIALS, deadline)
    tried = budget.cases_to_try(cases, kept, LEAST, MIN_TRIALS, deadline)
    assert not {*tried}.intersection(kept)
    first_s = budget.round_s([*kept, *tried], LEAST)
    later_s = (budget.number_of_rounds(MIN_TRIALS) - 1) * budget.round_s(kept, LEAST)
    assert not tried or first_s + later_s <= deadline + 1e-9


@given(
    start_s=st.floats(0.1, 20),
    call_seconds=st.lists(st.floats(0.001, 10), min_size=1, max_size=12),
    at_once=st.sampled_from([1, 2]),
    flagged=st.integers(0, 3),
)
def test_a_sufficient_budget_has_time_for_both_stages_and_the_cause(
    start_s, call_seconds, at_once, flagged
):
    budget, cases = surveyed(call_seconds, start_s, None, at_once)
    again = cases[:flagged]
    budget.prepared_s = 7.0
    budget_s = budget.sufficient_s(cases, again, LEAST, TRIALS)
    assert budget_s >= 7.0
    began = 7.0
    enough = replace(budget, budget_s=budget_s, now=lambda: began)
    deadline = enough.deadline_of_first_stage(len(cases))
    first_s = enough.number_of_rounds(TRIALS) * enough.round_s(cases, LEAST)
    assert began + first_s <= deadline
    fresh_s = enough.number_of_rounds(max(CHECKPOINTS)) * enough.round_s(again, LEAST)
    assert began + first_s + fresh_s + enough.profile_s(again) <= enough.deadline
    kept = enough.cases_that_fit(cases, LEAST, MIN_TRIALS, deadline)
    assert kept == cases
