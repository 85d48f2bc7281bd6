"""Efforts and numbers of launches follow from the limits and from the spread.

Not from which side is faster.
"""

import math
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.gate import planning
from mnistbench.gate.options import LAUNCHES, Thresholds
from mnistbench.gate.planning import (
    LEAST_EFFORT,
    MOST_LAUNCHES,
    Efforts,
    LeastGate,
    Spent,
    first_efforts,
    planned_efforts,
    planned_launches,
)
from mnistbench.gate.statistics import quantities, raw_samples
from mnistbench.gate.statistics.permutation import simultaneous_bounds
from mnistbench.gate.statistics.raw_samples import WHOLE, Launch, Shard, SideSample
from mnistbench.gate.words import BASE, HEAD

SPENT = Spent(1.0, Efforts(0.25, 0.25), 0.5, 0.2)


def side(times, operation=(), turns=()):
    operations = (
        {("aten::mm", "forward", ""): raw_samples.Operation(tuple(operation), 1.0, 0, ())}
        if len(operation)
        else {}
    )
    ns = tuple(map(float, times))
    turns = tuple(map(float, turns)) or ns
    return SideSample({"wall": turns, "cpu": turns}, ns, ("", 0.0), 0, operations)


def launches(
    count, *, within=0.01, between=0.0, change=0.0, blocks=8, cases=("t",), seed=1, operation=None
):
    """Launches whose blocks have this spread of log(head / base).

    Their processes differ by the other one.
    """
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        of_launch = {}
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
            of_launch[case] = [
                {
                    BASE: side([1e6] * blocks, rows[0]),
                    HEAD: side(1e6 * factors, rows[1], 1e6 * turns),
                }
            ]
        found.append(Launch(1, of_launch, 1.0))
    return found


def spent_on(found, efforts=(0.25, 0.25)):
    return [
        dict.fromkeys(launch.cases, SPENT._replace(efforts=Efforts(*efforts))) for launch in found
    ]


def plan_of(found, threshold=0.02, efforts=(0.25, 0.25)):
    return planned_efforts(
        found, spent_on(found, efforts), Thresholds(case=threshold, operation=0.05, once=0.2)
    )


@pytest.mark.parametrize(
    ("case", "operation", "efforts"),
    [
        (0.01, 0.025, (1, 1)),
        (0.005, 0.05, (1, 1 / 4)),
        (0.02, 0.05, (1 / 4, 1 / 4)),
        (0.05, 0.5, (1 / 25, LEAST_EFFORT)),
    ],
)
def test_first_efforts_fall_with_the_square_of_the_limit(case, operation, efforts):
    assert first_efforts(Thresholds(case=case, operation=operation, once=0.2)) == pytest.approx(
        efforts
    )


def test_the_squared_error_is_the_variance_of_the_difference_over_launches_with_equal_processes():
    many = launches(400, blocks=25)
    [wall, *_] = quantities.quantities(many)
    assert wall.kind == "iteration"
    errors = [quantities.squared_error(wall, launch) for launch in many]
    # Three times the error of a variance of 400 numbers, 7 %.
    assert statistics.fmean(errors) == pytest.approx(statistics.variance(wall.logs), rel=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_does_not_depend_on_the_roles_of_any_launch(seed):
    draw = random.Random(seed)
    found = launches(10, between=0.02, change=0.03, cases=("t", "u"), seed=seed, operation=0.05)
    exchanged = [
        replace(
            launch,
            cases={
                c: [{BASE: b[HEAD], HEAD: b[BASE]} for b in builds]
                for c, builds in launch.cases.items()
            },
        )
        if draw.random() < 0.5
        else launch
        for launch in found
    ]
    for case, efforts in plan_of(found).items():
        assert plan_of(exchanged)[case] == pytest.approx(efforts)
    limits = Thresholds(case=0.02, operation=0.05, once=0.2)
    assert planned_launches(exchanged, limits) == planned_launches(found, limits)


def test_half_the_limit_takes_four_times_the_effort_and_twice_the_spread_too():
    whole = plan_of(launches(2, within=0.01), efforts=(1, 1))["t"].timed
    assert LEAST_EFFORT < whole < 0.25
    assert plan_of(launches(2, within=0.01), math.expm1(math.log1p(0.02) / 2), efforts=(1, 1))[
        "t"
    ].timed == pytest.approx(4 * whole)
    assert plan_of(launches(2, within=0.02), efforts=(1, 1))["t"].timed == pytest.approx(4 * whole)


def test_a_quiet_case_has_the_smallest_effort_and_a_noisy_one_at_most_twice_that_of_before():
    assert plan_of(launches(2, within=0.0001))["t"] == (LEAST_EFFORT, LEAST_EFFORT)
    assert plan_of(launches(2, within=0.2))["t"].timed == 0.5
    assert plan_of(launches(2, within=0.2), efforts=(0.8, 0.8))["t"].timed == 1.0


def test_a_larger_effort_is_not_spent_on_what_differs_between_processes():
    alike, differing = (
        plan_of(launches(6, within=0.02, between=each), efforts=(1, 1))["t"].timed
        for each in (0.0, 0.05)
    )
    assert differing < alike / 4


def test_a_large_operation_has_an_effort_of_its_own():
    timed, profiled = plan_of(launches(3, within=0.0001, operation=0.05), efforts=(1, 1))["t"]
    assert timed == LEAST_EFFORT < profiled


def test_a_case_without_usable_times_has_no_plan():
    zero = [Launch(1, {"t": [{BASE: side([0] * 8), HEAD: side([0] * 8)}]}, 1.0)] * 2
    assert plan_of(zero) == {}


@pytest.mark.parametrize(("between", "cases"), [(0.005, 3), (0.012, 3), (0.012, 40)])
def test_so_many_launches_reach_the_limit(between, cases):
    names = [f"t{number}" for number in range(cases)]
    limits = Thresholds(case=0.03, operation=0.05, once=0.2)
    needed = planned_launches(
        launches(LAUNCHES, within=0.001, between=between, cases=names), limits
    )
    assert LAUNCHES <= needed <= MOST_LAUNCHES
    found = [
        one
        for one in quantities.quantities(
            launches(needed, within=0.001, between=between, cases=names, seed=2)
        )
        if one.is_case
    ]
    _, high = simultaneous_bounds(np.array([one.logs for one in found]), 1)
    assert np.mean(high <= math.log1p(0.03)) > 0.95


def test_bounds_of_all_shards_together_need_more():
    limits = Thresholds(case=0.05, operation=0.05, once=0.2)
    names = ["t0", "t1", "t2"]
    found = launches(LAUNCHES, within=0.001, between=0.03, cases=names)
    one, forty = (planned_launches(found, limits, shards) for shards in (1, 40))
    assert LAUNCHES <= one < forty <= MOST_LAUNCHES
    noisy = launches(3, within=0.05, cases=names)
    one, many = (
        planned_efforts(noisy, spent_on(noisy), limits, shards)["t0"].timed for shards in (1, 8)
    )
    assert one < many


def test_a_case_that_no_plan_can_bound_takes_no_more_launches():
    found = launches(LAUNCHES, between=0.5)
    assert planned_launches(found, Thresholds(case=0.02, operation=0.05, once=0.2)) == LAUNCHES


def test_the_reach_grows_with_the_number_of_cases():
    assert planning._reach(4) < planning._reach(40) < planning._reach(400) < 2.5


@pytest.mark.parametrize(
    ("efforts", "seconds"),
    [((0.25, 0.25), 1.0), ((0.5, 0.25), 1.5), ((0.25, 0.5), 1.2), ((0.0625, 0.0625), 0.475)],
)
def test_the_expected_time_changes_with_the_parts_that_depend_on_efforts(efforts, seconds):
    assert SPENT.with_efforts(Efforts(*efforts)) == pytest.approx(seconds)


def test_nothing_is_expected_of_a_part_that_was_not_measured():
    assert (
        SPENT._replace(efforts=Efforts(0.25, 0.0), profiled_s=0.0).with_efforts(Efforts(0.25, 1.0))
        == 1.0
    )


def test_smaller_efforts_stop_at_the_smallest():
    assert Efforts(0.5, 0.1).scaled(0.125) == (0.0625, LEAST_EFFORT)


# ---- A budget that is too small ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case_seconds", "budget_s", "advice"),
    [
        ([0.1], 3.0, "give --budget 14s"),
        ([0.1] * 4, 14.0, "give --budget 26s, use --shard 1/4, or select fewer tests with -k"),
        ([0.1] * 4, 20.0, "give --budget 26s, use --shard 1/2, or select fewer tests with -k"),
        ([0.1] * 4, 1.0, "give --budget 26s"),  # loading alone takes longer
        # The shard of the long test never fits.
        ([0.1, 10.0], 20.0, "give --budget 424s or select fewer tests with -k"),
    ],
)
def test_the_advice_for_a_budget_that_is_too_small_is_only_what_helps(
    case_seconds, budget_s, advice
):
    gate = LeastGate(
        loading_s=1.0 + sum(case_seconds), case_seconds=tuple(case_seconds), at_once=1, shard=WHOLE
    )
    assert gate.advice(budget_s) == advice


def test_a_shard_that_does_not_fit_is_divided_into_more_parts_than_before():
    tests = tuple(f"t.py::t[{number}]" for number in range(8))
    gate = LeastGate(loading_s=1.4, case_seconds=(0.1,) * 4, at_once=1, shard=Shard(2, 2, tests))
    assert "--shard 1/4" in gate.advice(20.0)


@given(
    loading_s=st.floats(0.1, 100),
    case_seconds=st.lists(st.floats(0.001, 10), min_size=1, max_size=30),
    at_once=st.sampled_from([1, 2]),
    share=st.floats(0.01, 0.99),
)
def test_each_advised_number_of_shards_fits_into_the_budget(
    loading_s, case_seconds, at_once, share
):
    gate = LeastGate(loading_s + sum(case_seconds), tuple(case_seconds), at_once, WHOLE)
    budget_s = share * gate.seconds()
    _, _, shards = gate.advice(budget_s).partition("--shard 1/")
    if not shards:
        return
    number = int(shards.partition(",")[0].partition(" ")[0])
    assert 2 <= number <= len(case_seconds)
    largest = sorted(case_seconds)[-math.ceil(len(case_seconds) / number) :]
    assert gate.seconds(largest) <= budget_s
