"""The statistics of a gate, against slower ways to the same numbers, and the verdicts that they lead to."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import gate_builders
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from mnistbench.gate import decision, permutation
from mnistbench.gate.decision import (
    CONTRADICTED,
    IMPROVED,
    INCONCLUSIVE,
    LEAST_LAUNCHES,
    PASSED,
    REGRESSED,
    SMALL,
    UNCONFIRMED,
    UNDECIDED,
    Thresholds,
    candidates,
    decide,
)
from mnistbench.gate.permutation import LEVEL, directed_test, family_test, simultaneous_bounds

SEED = 7
LIMITS = Thresholds()
MIXED = ["call", "operation", "call", "operation", "operation"]


# ---- the tests ----------------------------------------------------------------------------------------------------------


def floors(logs, kinds):
    """s0 of each quantity, written down once more."""
    spreads = [float(np.std(np.abs(row), ddof=1)) / math.sqrt(len(row)) for row in logs]
    return [float(np.median([value for value, other in zip(spreads, kinds, strict=True) if other == kind])) for kind in kinds]


def statistic(row, floor):
    mean = sum(row) / len(row)
    variance = sum((d - mean) ** 2 for d in row) / (len(row) - 1)
    return mean / (math.sqrt(variance / len(row)) + floor)


def by_brute_force(logs, kinds, signs=None):
    """Adjusted p-values of all quantities by going through every exchange: one-sided where signs are given.

    In steps: what is found leaves, and what is left is held against the largest of what is left.
    """
    size = abs if signs is None else float
    rows = (logs if signs is None else logs * np.array(signs)[:, None]).tolist()
    limits = floors(logs, kinds)
    p, left, least = {}, list(range(len(rows))), 0.0
    while left:
        largest = [
            max(size(statistic([sign * d for sign, d in zip(exchange, rows[one], strict=True)], limits[one])) for one in left)
            for exchange in itertools.product((1, -1), repeat=logs.shape[1])
        ]
        for one in left:
            observed = size(statistic(rows[one], limits[one]))
            reached = sum(each >= observed - 1e-9 * abs(observed) for each in largest)
            p[one] = max(reached / len(largest), least)
        found = [one for one in left if p[one] <= LEVEL]
        if not found:
            break
        least, left = max(p[one] for one in found), [one for one in left if one not in found]
    return [p[one] for one in range(len(rows))]


def drawn(quantities, launches, seed, *, common=0.5, mean=0.0):
    """Normal differences of some percent that share a part with each other, as those of a launch do."""
    generator = np.random.default_rng(seed)
    alone = generator.normal(size=(quantities, launches))
    shared = generator.normal(size=(1, launches))
    return mean + 0.02 * (math.sqrt(common) * shared + math.sqrt(1 - common) * alone)


@pytest.mark.parametrize("launches", [4, 6, 8])
@pytest.mark.parametrize(("mean", "seed"), [(0.0, 1), (0.02, 2), (-0.03, 3)])
def test_p_values_are_those_of_all_exchanges_one_by_one(launches, mean, seed):
    logs = drawn(5, launches, seed, mean=mean)
    logs[1] *= 8
    assert family_test(logs, MIXED, SEED) == pytest.approx(by_brute_force(logs, MIXED))
    for signs in ([1.0] * 5, [-1.0] * 5, [1.0, -1.0, 1.0, -1.0, -1.0]):
        found = directed_test(logs, MIXED, np.array(signs), SEED)
        assert found == pytest.approx(by_brute_force(logs, MIXED, signs))


@pytest.mark.parametrize(("mean", "seed"), [(0.0, 1), (0.01, 2), (0.02, 3), (-0.02, 4)])
def test_of_a_single_quantity_they_are_those_of_scipy(mean, seed):
    [row] = logs = drawn(1, 10, seed, mean=mean)
    [floor] = floors(logs, ["call"])

    def test(alternative, size):
        return scipy.stats.permutation_test(
            (row,), lambda d, axis: size(d.mean(axis) / (d.std(axis, ddof=1) / math.sqrt(10) + floor)),
            permutation_type="samples", alternative=alternative, n_resamples=2**10, vectorized=True,
        ).pvalue  # fmt: skip

    assert family_test(logs, ["call"], SEED) == pytest.approx([test("greater", np.abs)])
    assert directed_test(logs, ["call"], np.array([1.0]), SEED) == pytest.approx([test("greater", np.array)])
    assert directed_test(logs, ["call"], np.array([-1.0]), SEED) == pytest.approx([test("less", np.array)])


def test_random_exchanges_are_close_to_all_of_them(monkeypatch):
    logs = drawn(4, 14, 5, mean=0.008)
    kinds = MIXED[:4]
    sampled = [family_test(logs, kinds, seed) for seed in (1, 1, 2)]
    monkeypatch.setattr(permutation, "EXCHANGES", 2**14)
    exact = family_test(logs, kinds, 1)
    assert 0.01 < min(exact) < 0.5
    np.testing.assert_array_equal(sampled[0], sampled[1])  # a seed is a result
    for found in (sampled[0], sampled[2]):
        assert found == pytest.approx(exact, abs=0.02)


def test_a_large_effect_does_not_hide_a_small_one():
    # With the roles of one launch exchanged the large one is still the larger: only once it is found may it leave.
    logs = drawn(4, 10, 1, common=0)
    logs[0] += 1.0
    logs[1] += 0.1
    p = family_test(logs, MIXED[:4], SEED)
    assert p == pytest.approx(by_brute_force(logs, MIXED[:4]))
    assert max(p[:2]) <= LEVEL < min(p[2:])
    signs = np.ones(4)
    assert directed_test(logs, MIXED[:4], signs, SEED)[:2] == pytest.approx(by_brute_force(logs, MIXED[:4], signs)[:2])


def test_no_p_value_is_zero():
    # What was observed is one of the exchanges, also where they are drawn.
    for launches in (8, 12, 20):
        every = 2**launches
        sure, drawn_ones = np.full((3, launches), 0.1), 1 + permutation.EXCHANGES
        least = (2 / every, 1 / every) if every <= permutation.EXCHANGES else (1 / drawn_ones, 1 / drawn_ones)
        assert family_test(sure, ["call"] * 3, SEED) == pytest.approx([least[0]] * 3)
        assert directed_test(sure, ["call"] * 3, np.ones(3), SEED) == pytest.approx([least[1]] * 3)


def test_the_fewest_launches_that_are_judged_are_the_fewest_that_can_be():
    assert 2 / 2**LEAST_LAUNCHES <= LEVEL < 2 / 2 ** (LEAST_LAUNCHES - 1)


def test_a_quantity_of_tiny_spread_does_not_decide_alone():
    # Its statistic without s0 would be a hundred times that of the others.
    logs = drawn(9, 10, 1)
    logs[4] = 1e-5 + 1e-8 * np.arange(10)
    assert family_test(logs, ["operation"] * 9, SEED)[4] > 0.5


def test_calls_and_operations_have_floors_of_their_own():
    # A call varies by a tenth of what operations do: with one s0 for all, half a percent of it would be hidden.
    calls, operations = drawn(3, 10, 1) / 10, drawn(12, 10, 2)
    calls[0] += 0.005
    logs = np.vstack([calls, operations])
    assert family_test(logs, ["call"] * 3 + ["operation"] * 12, SEED)[0] <= LEVEL
    assert family_test(logs, ["operation"] * 15, SEED)[0] > LEVEL


def test_more_quantities_make_none_surer():
    logs = drawn(6, 8, 4, mean=0.01)
    few, many = family_test(logs[:3], ["call"] * 3, SEED), family_test(logs, ["call"] * 3 + ["operation"] * 3, SEED)
    assert all(more >= one for one, more in zip(few, many, strict=False))


def test_quantities_that_never_differ_are_sure_of_nothing():
    assert family_test(np.zeros((3, 8)), ["call"] * 3, SEED) == pytest.approx([1.0] * 3)
    assert directed_test(np.zeros((3, 8)), ["call"] * 3, np.ones(3), SEED) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("seed", [1, 2])
def test_of_all_ways_in_which_coins_can_fall_no_more_than_the_level_raise_an_alarm(seed):
    # The exact validity of the tests: with the same code on both sides every pattern of signs is as likely as any other.
    sizes = np.abs(drawn(6, 8, seed))
    sizes[2] *= 30
    kinds = ["call", "call", "operation", "operation", "operation", "operation"]
    patterns = np.array(list(itertools.product((1.0, -1.0), repeat=8)))
    expected = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    either = np.array([min(family_test(sizes * pattern, kinds, SEED)) for pattern in patterns])
    directed = np.array([min(directed_test(sizes * pattern, kinds, expected, SEED)) for pattern in patterns])
    for level in (0.01, 0.05, 0.25):
        assert np.mean(either <= level) <= level
        assert np.mean(directed <= level) <= level
        # Whoever gives up more than an exchange and its opposite is too careful.
        assert min(np.mean(either <= level), np.mean(directed <= level)) > level - 3 / 256


# ---- the bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quantities", "launches"), [pytest.param(20, 12, marks=pytest.mark.thorough), (20, 8), (5, 8)])
def test_the_bounds_hold_the_truth_all_together(quantities, launches):
    generator = np.random.default_rng(20261120)
    checked, sets = 0, 400
    for number in range(sets):
        truth = generator.normal(scale=0.03, size=quantities)
        low, high = simultaneous_bounds(truth[:, None] + drawn(quantities, launches, [launches, number]), SEED)
        checked += bool(np.all(low <= truth) and np.all(truth <= high))
    # 95 % is nominal; the rest is for the error of so few data sets (1.1 % each way) and for normal noise being only alike.
    assert checked / sets >= 0.92
    assert checked / sets <= 0.99


def test_bounds_contain_the_estimate_and_are_as_far_from_it_on_either_side():
    logs = drawn(7, 9, 1, mean=0.1)
    low, high = simultaneous_bounds(logs, SEED)
    mean = logs.mean(axis=1)
    assert np.all(low < mean)
    assert mean - low == pytest.approx(high - mean)


def test_bounds_widen_with_the_confidence_and_with_the_number_of_quantities():
    logs = drawn(7, 9, 1)
    widths = [np.subtract(*simultaneous_bounds(logs, SEED, confidence)) for confidence in (0.99, 0.95, 0.5)]
    assert np.all(widths[0] < widths[1])
    assert np.all(widths[1] < widths[2])
    alike = np.vstack([logs[:1], drawn(40, 9, 2, common=0)])
    alone = simultaneous_bounds(logs[:1], SEED)
    together = simultaneous_bounds(alike, SEED)
    assert together[1][0] > alone[1][0]


def test_bounds_shrink_with_launches():
    widths = []
    for launches in (8, 12, 32):
        low, high = simultaneous_bounds(drawn(7, launches, 3), SEED)
        widths.append(float(np.median(high - low)))
    assert widths[0] > widths[1] > widths[2]
    # As fast as an error of a mean does, or faster: few launches have heavier tails.
    assert widths[2] < widths[0] / 1.8


def test_bounds_of_a_wild_quantity_are_wide_and_leave_the_others():
    logs = drawn(9, 10, 1)
    before = simultaneous_bounds(logs, SEED)
    logs[0] *= 50
    low, high = simultaneous_bounds(logs, SEED)
    assert high[0] - low[0] > 20 * np.median(high - low)
    assert np.median((high - low)[1:]) < 2 * np.median((before[1] - before[0])[1:])


def test_what_is_the_same_in_every_launch_has_no_room():
    low, high = simultaneous_bounds(np.full((2, 8), 0.1), SEED)
    assert [low, high] == pytest.approx(np.full((2, 2), 0.1))


# ---- candidates ---------------------------------------------------------------------------------------------------------


def logs(change, *, spread=0.003, count=12, seed=0):
    """Differences with exactly this mean change, and this standard deviation."""
    noise = np.random.default_rng([seed, count]).normal(size=count)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    return tuple((math.log1p(change) + spread * noise).tolist())


def call(change=0.0, *, case="case", seed=0, spread=0.003, count=12, **changes):
    return gate_builders.effect(logs(change, spread=spread, count=count, seed=[seed, 0]), case=case, **changes)


def operation(change=0.0, *, case="case", name="aten::mm, forward fc1", seed=0, spread=0.009, count=12, **changes):
    found = logs(change, spread=spread, count=count, seed=[seed, 1])
    return gate_builders.effect(found, **{"case": case, "kind": "operation", "name": name, **changes})


def added(change=0.0, **changes):
    """What operations that the base lacks add to their case, as a share of it."""
    return operation(
        change, **{"kind": "replaced", "name": "new and gone operations, forward fc1", "spread": 0.0005, **changes}
    )


def mean(change=0.0, **changes):
    """The mean of a case, which varies more than its median."""
    return call(change, **{"kind": "mean", "spread": 0.006, **changes})


def quiet(count=12, seed=0):
    """Two cases of three operations each in which nothing differs."""
    for case, number in itertools.product(("case", "other case"), range(2)):
        yield call(case=case, seed=[seed, number], count=count, name=("wall", "cpu")[number], clock=("wall", "cpu")[number])
    for case, number in itertools.product(("case", "other case"), range(3)):
        yield operation(case=case, name=f"operation {number}", seed=[seed, len(case), number], count=count)


def among(*effects, count=12, seed=0):
    """These effects, and quiet ones for all keys that they do not have."""
    keys = {effect.key for effect in effects}
    return [*effects, *(effect for effect in quiet(count, seed) if effect.key not in keys)]


def still(count=12):
    """A control that did not move."""
    return logs(0.0, spread=0.001, count=count)


def decided(first, second=(), controls=None, thresholds=LIMITS, seed=SEED):
    return decide(first, second, [still()] if controls is None else controls, thresholds, seed)


MM = "aten::mm, forward fc1"


@pytest.mark.parametrize(
    ("effect", "flagged"),
    [
        (operation(0.1), True),
        (operation(-0.1), True),
        (operation(0.04), False),  # sure, but no matter
        (operation(0.1, spread=0.3), False),  # large, but not sure
        (call(0.03), True),
        (call(-0.03), True),
        (call(0.015), False),
        (call(0.03, spread=0.1), False),
        (operation(0.1, kind="other", name="other"), True),
        (added(0.008), True),
        (added(0.003), False),
        (mean(0.03), True),
        (mean(0.015), False),
        (call(0.03, name="cpu", clock="cpu"), True),
        (call(0.03, name="device", clock="device"), True),
    ],
)
def test_a_candidate_is_surely_and_relevantly_changed(effect, flagged):
    assert [one.effect for one in candidates(among(effect), LIMITS, SEED)] == [effect] * flagged


@pytest.mark.parametrize(("thresholds", "flagged"), [(Thresholds(), 0), (Thresholds(0.01), 1), (Thresholds(0.01, 0.03), 2)])
def test_thresholds_of_calls_and_operations_are_apart(thresholds, flagged):
    assert len(candidates(among(call(0.015), operation(0.04)), thresholds, SEED)) == flagged


def test_with_too_few_launches_nothing_is_flagged():
    assert candidates([], LIMITS, SEED) == []
    assert candidates([call(1.0, count=7)], LIMITS, SEED) == []
    assert len(candidates([call(1.0, count=8)], LIMITS, SEED)) == 1


def test_what_has_no_difference_in_a_launch_is_no_candidate_and_keeps_nobody_from_being_one():
    spoiled = operation(0.5, name="spoiled")
    spoiled = dataclasses.replace(spoiled, logs=(math.nan, *spoiled.logs[1:]))
    assert [one.effect.name for one in candidates(among(operation(0.1), spoiled), LIMITS, SEED)] == [MM]


# ---- verdicts -----------------------------------------------------------------------------------------------------------


def texts(result):
    return [reason.text for reason in result.reasons]


def found(first, second=(), **changes):
    """What became of a comparison: outcome, verdicts of the findings, reasons."""
    result = decided(among(*first), second, **changes)
    return result.outcome, [finding.verdict for finding in result.findings], texts(result)


def fresh(effect_of, change, **changes):
    """The same quantity in ten fresh launches."""
    return effect_of(change, count=10, seed=99, **changes)


def test_what_does_not_differ_passes_and_says_what_is_excluded():
    result = decided(among())
    assert (result.outcome, result.findings, result.reasons) == (PASSED, (), ())
    assert (result.launches, result.fresh) == (12, 0)
    assert 0 < result.bound < LIMITS.call
    assert result.bound == max(one.high for one in result.cases)
    assert (len(result.cases), len(result.operations)) == (4, 6)


@pytest.mark.parametrize(
    ("first", "second", "verdict", "outcome"),
    [
        (operation(0.1), fresh(operation, 0.1), REGRESSED, REGRESSED),
        (operation(0.1), fresh(operation, 0.04, spread=0.03), REGRESSED, REGRESSED),  # 5 % cannot be excluded
        (operation(0.1), fresh(operation, 0.03), SMALL, PASSED),
        (operation(-0.1), fresh(operation, -0.03), SMALL, PASSED),
        (call(0.03), fresh(call, 0.03), REGRESSED, REGRESSED),
        # The other way round in fresh launches, or nothing.
        (operation(0.1), fresh(operation, -0.1), UNCONFIRMED, PASSED),
        (operation(0.1), fresh(operation, 0.0), UNCONFIRMED, PASSED),
        (operation(-0.1), fresh(operation, 0.1), UNCONFIRMED, PASSED),
        # An improvement never fails.
        (operation(-0.1), fresh(operation, -0.1), IMPROVED, PASSED),
        (call(-0.3), fresh(call, -0.3), IMPROVED, PASSED),
        (call(-0.3), fresh(call, 0.0), UNCONFIRMED, PASSED),
    ],
)
def test_a_candidate_is_what_fresh_launches_make_of_it(first, second, verdict, outcome):
    # An operation of a quarter of its case moves it by little; the case has room for it here.
    share = {} if first.kind == "call" else {"share": 0.005}
    changed, again = (dataclasses.replace(one, **share) for one in (first, second))
    assert found([changed], among(again, count=10, seed=5)) == (outcome, [verdict], [])


@pytest.mark.parametrize(("again", "verdict", "outcome"), [(0.008, REGRESSED, REGRESSED), (0.003, SMALL, PASSED)])
def test_new_operations_matter_from_half_a_percent_of_their_case_on(again, verdict, outcome):
    second = among(fresh(added, again, share=0.01), fresh(call, 0.008), count=10, seed=5)
    assert found([added(0.008, share=0.01), call(0.008)], second) == (outcome, [verdict], [])


def test_an_operation_that_fresh_launches_neither_confirm_nor_exclude_is_no_pass():
    flagged = operation(0.1, share=0.005)
    outcome, verdicts, [reason] = found([flagged], among(fresh(operation, 0.1, spread=0.4, share=0.005), count=10, seed=5))
    assert (outcome, verdicts) == (INCONCLUSIVE, [UNDECIDED])
    assert re.fullmatch(
        rf"case: {MM} was flagged, and 10 fresh launches neither .* 5.0 % \(up to \d+.\d %\); measure again", reason
    )


@pytest.mark.parametrize("first", [operation(0.04), call(0.015, spread=0.001), call(0.01)])
def test_what_is_below_its_threshold_is_not_found(first):
    outcome, verdicts, _ = found([first])
    assert (outcome, verdicts) == (PASSED, [])


def test_the_estimate_to_report_is_that_of_launches_that_did_not_choose_it():
    [finding] = decided(among(operation(0.1, share=0.005)), [fresh(operation, 0.07, share=0.005)]).findings
    assert finding.screened.change == pytest.approx(0.1)
    assert finding.best is finding.confirmed
    assert finding.best.change == pytest.approx(0.07)
    assert finding.best.launches == 10


def test_bounds_of_what_was_measured_again_are_of_all_its_launches():
    first = among(call(0.03))
    once, again = decided(first), decided(first, [fresh(call, 0.01)])
    before, after = once.cases[0], again.cases[0]
    assert (before.effect.key, after.effect.key) == (first[0].key, first[0].key)
    assert (before.launches, after.launches) == (12, 22)
    assert after.change == pytest.approx(math.expm1((12 * math.log(1.03) + 10 * math.log(1.01)) / 22))
    assert after.p == before.p
    assert {one.launches for one in again.cases[1:]} == {12}


def test_findings_come_in_the_order_of_what_they_cost_their_case():
    changes = {"a": (0.5, 0.01), "b": (0.1, 0.2), "c": (-0.3, 0.1)}
    first = [operation(change, name=name, share=share, seed=1) for name, (change, share) in changes.items()]
    second = [fresh(operation, change, name=name, share=share) for name, (change, share) in changes.items()]
    result = decided(among(*first), second)
    assert [finding.screened.effect.name for finding in result.findings] == ["c", "b", "a"]


# ---- inconclusive -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_launches_judge_nothing(count):
    first = [call(0.5, count=count) if count > 1 else gate_builders.effect((0.5,) * count)]
    result = decided(first)
    assert (result.outcome, result.cases, result.findings, result.launches) == (INCONCLUSIVE, (), (), count)
    assert texts(result) == [f"{count} launches are too few: the test needs at least 8"]


def test_nothing_measured_is_inconclusive():
    result = decided([])
    assert (result.outcome, texts(result)) == (INCONCLUSIVE, ["0 launches are too few: the test needs at least 8"])
    assert result.bound == math.inf


@pytest.mark.parametrize(
    ("spoiled", "what"),
    [
        (call(case="third"), "third: too few iterations have a usable time of wall time"),
        (operation(name="spoiled"), "case: too few iterations have a usable time of spoiled"),
        (operation(name="moved", kind="replaced"), "case: too few iterations have a usable time of moved"),
    ],
)
def test_a_quantity_without_a_difference_is_a_reason(spoiled, what):
    spoiled = dataclasses.replace(spoiled, logs=(*spoiled.logs[:-1], math.nan))
    result = decided(among(spoiled))
    assert (result.outcome, result.findings) == (INCONCLUSIVE, ())
    [reason] = result.reasons
    assert reason.text.startswith(what)
    assert not reason.is_excusable


@pytest.mark.parametrize("change", [0.02, -0.02])
@pytest.mark.parametrize("stage", [0, 1])
def test_where_the_control_moved_nothing_is_blamed_on_the_code(change, stage):
    controls = [still(), still(10)]
    controls[stage] = logs(change, spread=0.002, count=len(controls[stage]))
    outcome, verdicts, [reason] = found(
        [operation(0.1, share=0.005)], [fresh(operation, 0.1, share=0.005)], controls=controls
    )  # fmt: skip
    assert (outcome, verdicts) == (INCONCLUSIVE, [REGRESSED])
    assert reason == (
        "the machine moved, not only the code: the control, which is the same on both sides, differs by "
        f"{change * 100:+.1f} %; measure again when nothing else runs"
    )


@pytest.mark.parametrize(
    "control",
    [
        logs(0.002, spread=0.0001),  # surely, but by little
        logs(0.05, spread=0.5),  # by much, but not surely
        logs(0.05, count=7),  # too few to say
        (),
    ],
    ids=["little", "unsure", "few", "empty"],
)
def test_a_control_that_did_not_surely_move_by_much_is_no_reason(control):
    assert found([], controls=[control]) == (PASSED, [], [])
    regressed = [operation(0.1, share=0.005)], [fresh(operation, 0.1, share=0.005)]
    assert found(*regressed, controls=[control])[0] == REGRESSED


def test_a_control_without_a_time_is_a_reason():
    outcome, _, reasons = found([], controls=[(math.nan,) * 12])
    assert outcome == INCONCLUSIVE
    assert reasons == ["the control has no usable time, so a change of the machine would not be noticed; measure again"]


def test_an_operation_that_its_whole_case_contradicts_is_no_regression():
    # Half of the case got 30 % slower, and the case did not.
    changed = operation(0.3, share=0.5), fresh(operation, 0.3, share=0.5)
    outcome, verdicts, [reason] = found(changed[:1], changed[1:])
    assert (outcome, verdicts) == (INCONCLUSIVE, [CONTRADICTED])
    assert reason == f"case: {MM} differs by +30.0 %, but its case's untraced time does not; look at it by itself"


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([call(0.15)], REGRESSED),  # the case got slower by as much
        ([call(0.15, name="cpu", clock="cpu")], REGRESSED),  # by either clock
        ([call(0.15, case="other case")], CONTRADICTED),
        ([operation(-0.4, name="x", share=0.4)], REGRESSED),  # another operation gave it back
        ([operation(-0.4, name="x", share=0.4, case="other case")], CONTRADICTED),
        ([operation(-0.4, name="x", share=0.05)], CONTRADICTED),
        ([operation(-0.4, name="x", share=0.4, spread=1.0)], CONTRADICTED),  # or perhaps not
    ],
)
def test_what_other_operations_gave_back_explains_a_case_that_did_not_get_slower(others, verdict):
    result = decided(among(operation(0.3, share=0.5), *others), [fresh(operation, 0.3, share=0.5)])
    assert [one.verdict for one in result.findings if one.screened.effect.name == MM] == [verdict]


@pytest.mark.parametrize("count", [0, 7])
def test_what_was_flagged_and_measured_again_too_little_asks_for_more_time(count):
    second = [operation(0.1, count=count, share=0.005)] if count else []
    outcome, verdicts, [reason] = found([operation(0.1, share=0.005)], second)
    assert (outcome, verdicts) == (INCONCLUSIVE, [UNCONFIRMED])
    assert reason == (
        f"case: {MM} differs by +10.0 %, and {count} fresh launches are too few to confirm it; give it a larger --budget"
    )


def test_an_improvement_that_was_not_measured_again_is_no_reason():
    assert found([operation(-0.1)]) == (PASSED, [UNCONFIRMED], [])


def test_what_fresh_launches_could_not_measure_is_not_blamed_on_their_number():
    spoiled = fresh(operation, 0.1, share=0.005)
    second = [*among(spoiled, count=10, seed=5)[1:], dataclasses.replace(spoiled, logs=(math.nan, *spoiled.logs[1:]))]
    outcome, verdicts, [reason] = found([operation(0.1, share=0.005)], second)
    assert (outcome, verdicts) == (INCONCLUSIVE, [UNCONFIRMED])
    assert "too few" not in reason
    assert "--budget" not in reason


def test_a_case_that_is_too_noisy_says_how_many_launches_would_settle_it():
    noisy = call(0.005, spread=0.04, case="noisy")
    result = decided(among(noisy))
    [reason] = texts(result)
    [estimate] = [one for one in result.cases if one.effect == noisy]
    assert (result.outcome, result.findings) == (INCONCLUSIVE, ())
    match = re.fullmatch(
        r"noisy: a slowdown of up to (\d+\.\d) % of its wall time cannot be ruled out; about (\d+) launches would settle it",
        reason,
    )
    assert float(match[1]) == pytest.approx(100 * estimate.high, abs=0.1)
    count = int(match[2])
    assert 12 < count < 200
    # And so they do: launches of the same spread, as many of all cases.
    again = call(0.005, spread=0.04, case="noisy", count=count)
    assert decided(among(again, count=count)).outcome == PASSED


@pytest.mark.parametrize(
    ("noisy", "end"),
    [
        (call(0.0199, spread=0.05, case="noisy"), "cannot be ruled out; too noisy"),
        (call(0.03, spread=0.05, case="noisy"), "cannot be ruled out, the estimate being +3.0 %; measure again"),
    ],
)
def test_a_case_that_no_number_of_launches_settles_says_so(noisy, end):
    outcome, verdicts, [reason] = found([noisy])
    assert (outcome, verdicts) == (INCONCLUSIVE, [])
    assert reason.startswith("noisy: a slowdown of up to ")
    assert reason.endswith(end)


def test_a_bound_that_is_not_excluded_is_more_than_the_threshold_also_as_it_is_written():
    # "up to 2.0 % cannot be excluded" would contradict a threshold of 2 %.
    for spread in np.linspace(0.008, 0.03, 20):
        for reason in texts(decided([call(0.0, spread=spread)])):
            assert float(re.search(r"up to (\d+\.\d) %", reason)[1]) > 2.0


@pytest.mark.parametrize(("clock", "title"), [("wall", "wall time"), ("cpu", "CPU time"), ("device", "device time")])
def test_every_clock_of_a_case_has_to_exclude_a_regression(clock, title):
    outcome, _, [reason] = found([call(0.005, spread=0.04, name=clock, clock=clock)])
    assert outcome == INCONCLUSIVE
    assert reason.startswith("case: a slowdown of up to ")
    assert f" of its {title} cannot" in reason


def test_a_case_whose_regression_is_confirmed_needs_no_bound():
    outcome, verdicts, reasons = found([call(0.1)], among(fresh(call, 0.1), count=10, seed=5))
    assert (outcome, verdicts, reasons) == (REGRESSED, [REGRESSED], [])


def test_a_case_of_which_an_operation_alone_regressed_needs_its_bound_where_that_is_accepted():
    noisy = [call(0.005, spread=0.05), operation(0.1, share=0.005)]
    again = among(fresh(call, 0.005, spread=0.05), fresh(operation, 0.1, share=0.005), count=10, seed=5)
    for accepted, reasons in ((False, 0), (True, 1)):
        result = decide(among(*noisy), again, [still(), still(10)], LIMITS, SEED, lambda _, accepted=accepted: accepted)
        assert (result.outcome, len(result.reasons)) == (REGRESSED, reasons)
        assert result.bound > LIMITS.call


def test_a_regression_is_told_also_where_another_case_is_too_noisy():
    noisy = call(0.005, spread=0.05, case="noisy")
    outcome, verdicts, reasons = found([call(0.1), noisy], [fresh(call, 0.1)])
    assert (outcome, verdicts, len(reasons)) == (REGRESSED, [REGRESSED], 1)


def test_what_happens_in_few_iterations_is_seen_by_the_mean():
    # Every fifth iteration takes twice as long: the median does not move.
    first = [call(0.0), mean(0.2, seed=5)]
    outcome, verdicts, _ = found(first, among(fresh(call, 0.0), fresh(mean, 0.2), count=10, seed=5))
    assert (outcome, verdicts) == (REGRESSED, [REGRESSED])
    assert decided(among(*first)).outcome == INCONCLUSIVE  # flagged, and not confirmed by anything


def test_a_mean_that_excludes_little_is_a_reason_and_one_that_excludes_enough_is_stated():
    result = decided(among(mean(0.0, spread=0.05)))
    assert result.outcome == PASSED
    assert LIMITS.call < result.bound_of_means < decision.MEAN_FACTOR * LIMITS.call
    outcome, _, [reason] = found([mean(0.0, spread=0.2)])
    assert outcome == INCONCLUSIVE
    assert " of its mean wall time cannot be ruled out" in reason


@pytest.mark.parametrize(
    ("noisy", "reasons", "named"),
    [
        (operation(0.0, spread=0.1, share=0.10), 1, 1),  # a tenth of its case has to be bounded
        (operation(0.0, spread=0.1, share=0.099), 0, 1),
        (operation(0.0, share=0.5), 0, 0),
        (operation(-0.2, spread=0.1, share=0.10), 0, 0),
        (added(0.0, spread=0.01, share=0.2), 1, 1),
        (added(0.0, spread=0.01, share=0.03), 0, 1),
    ],
)
def test_an_operation_that_is_not_bounded_is_named_and_a_large_one_is_a_reason(noisy, reasons, named):
    result = decided(among(noisy))
    assert [one.effect for one in result.unbounded] == [noisy] * named
    assert [reason.kind for reason in result.reasons] == [decision.NOISE] * reasons
    assert result.outcome == (INCONCLUSIVE if reasons else PASSED)


def test_of_what_is_not_bounded_the_largest_share_comes_first():
    noisy = [operation(0.0, spread=0.1, share=share, name=f"of {share}", seed=9) for share in (0.03, 0.08, 0.05)]
    assert [one.effect.name for one in decided(among(*noisy)).unbounded] == ["of 0.08", "of 0.05", "of 0.03"]


def test_only_noise_and_the_budget_are_excusable():
    kinds = (decision.NOISE, decision.BUDGET, decision.MACHINE, decision.CONTRADICTION, decision.UNMEASURED,
             decision.MISSING, decision.ACCEPTANCE, decision.BROKEN)  # fmt: skip
    assert [kind for kind in kinds if decision.Reason(kind, "").is_excusable] == [decision.NOISE, decision.BUDGET]


@pytest.mark.parametrize("factor", [0.01, 30.0])
def test_differences_of_any_size_have_a_verdict(factor):
    # Seven cases in eight launches whose differences are orthogonal: the exchanges reach far beyond what was observed.
    rows = factor * scipy.linalg.hadamard(8)[1:]
    effects = [gate_builders.effect(tuple(map(float, row)), case=f"case {number}") for number, row in enumerate(rows)]
    result = decide(effects, [], [still(8)], LIMITS, SEED)
    assert result.outcome == INCONCLUSIVE
    assert all(one.high == math.inf or one.high > 0 for one in result.cases)


# ---- properties ---------------------------------------------------------------------------------------------------------


def mirrored(effects):
    return [
        dataclasses.replace(one, logs=tuple(-log for log in one.logs), base_ns=one.new_ns, new_ns=one.base_ns)
        for one in effects
    ]


SCENES = {
    "nothing": ([], []),
    "slower": ([call(0.1), operation(0.3)], [fresh(call, 0.1), fresh(operation, 0.3)]),
    "faster": ([operation(-0.1, share=0.005)], [fresh(operation, -0.1, share=0.005)]),
    "unconfirmed": ([operation(0.1, share=0.005)], [fresh(operation, 0.0, share=0.005)]),
    "noisy": ([call(0.03, spread=0.05)], []),
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_same_samples_are_judged_the_same(scene):
    first, second = SCENES[scene]
    assert decided(among(*first), second) == decided(among(*first), second)


@pytest.mark.parametrize("scene", SCENES)
def test_sides_that_change_names_change_the_verdict_and_mirror_the_bounds(scene):
    first, second = SCENES[scene]
    one, other = decided(among(*first), second), decided(mirrored(among(*first)), mirrored(second))
    turned = {REGRESSED: IMPROVED, IMPROVED: REGRESSED, UNCONFIRMED: UNCONFIRMED}
    assert [f.verdict for f in other.findings] == [turned[f.verdict] for f in one.findings]
    for before, after in zip((*one.cases, *one.operations), (*other.cases, *other.operations), strict=True):
        assert after.p == before.p
        assert 1 + after.change == pytest.approx(1 / (1 + before.change))
        assert (1 + after.low, 1 + after.high) == pytest.approx((1 / (1 + before.high), 1 / (1 + before.low)))
    if scene == "slower":
        assert (one.outcome, other.outcome) == (REGRESSED, PASSED)


LOGS = st.sampled_from([0.0, 0.0, 0.01, -0.01, 0.3, 43.0, -43.0, math.nan]) | st.floats(-43, 43)


@st.composite
def any_effects(draw):
    """Whatever differences of whole nanoseconds can be; a launch whose times are spoiled has none."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["call", "mean", "operation", "replaced", "other"]))
        clock = draw(st.sampled_from(["wall", "cpu", "device"])) if kind in ("call", "mean") else ""
        found.append(
            gate_builders.effect(
                draw(st.just((draw(LOGS),) * 8) | st.tuples(*[LOGS] * 8)), kind=kind, name=f"{number}",
                clock=clock, share=draw(st.floats(0, 1)),
            )
        )  # fmt: skip
    return found


@settings(parent=strategies.ANY_SPEED, max_examples=100)
@given(any_effects(), st.booleans(), st.tuples(*[LOGS] * 8))
def test_whatever_was_measured_there_is_a_verdict(effects, again, control):
    result = decided(effects, effects if again else (), controls=[control])
    assert result.outcome in {PASSED, REGRESSED, INCONCLUSIVE}
    assert (result.outcome == REGRESSED) <= any(finding.verdict == REGRESSED for finding in result.findings)
    for estimate in (*result.cases, *result.operations):
        assert -1 <= estimate.low <= estimate.change <= estimate.high
        assert 0 < estimate.p <= 1
    if result.outcome == PASSED:
        assert not result.reasons
        assert all(finding.verdict != REGRESSED for finding in result.findings)
        assert result.bound <= LIMITS.call or all(one.effect.kind != "call" for one in result.cases)
        assert result.bound_of_means <= 0.1 or all(one.effect.kind != "mean" for one in result.cases)
