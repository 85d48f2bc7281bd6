"""The permutation tests and the simultaneous bounds, against slower ways to the same numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from mnistbench.gate.decide.statistics import permutation
from mnistbench.gate.decide.statistics.permutation import LEVEL, directed_test, simultaneous_bounds

SEED = 7
MIXED = ["iteration", "operation", "iteration", "operation", "operation"]


# ---- the tests -----------------------------------------------------------------------------------


def floors(logs, kinds):
    """s0 of each quantity, written down once more."""
    spreads = [float(np.std(np.abs(row), ddof=1)) / math.sqrt(len(row)) for row in logs]
    return [
        float(
            np.median(
                [
                    value
                    for value, other_kind in zip(spreads, kinds, strict=True)
                    if other_kind == kind
                ]
            )
        )
        for kind in kinds
    ]


def statistic(row, floor):
    mean = sum(row) / len(row)
    variance = sum((d - mean) ** 2 for d in row) / (len(row) - 1)
    return mean / (math.sqrt(variance / len(row)) + floor)


def slower(logs, kinds, seed=SEED):
    """p-values of slowdowns."""
    return directed_test(logs, kinds, np.ones(len(logs)), seed)


def by_brute_force(logs, kinds, signs):
    """Adjusted p-values of all quantities by going through every exchange.

    In steps: while the quantity with the largest statistic is significant, the others are compared
    without it.
    """
    rows = (logs * np.array(signs)[:, None]).tolist()
    limits = floors(logs, kinds)
    observed = [statistic(row, limit) for row, limit in zip(rows, limits, strict=True)]
    p = {}
    left = list(range(len(rows)))
    least = 0.0
    while left and least <= LEVEL:
        largest = [
            max(
                statistic(
                    [sign * d for sign, d in zip(exchange, rows[row], strict=True)], limits[row]
                )
                for row in left
            )
            for exchange in itertools.product((1, -1), repeat=logs.shape[1])
        ]
        for row in left:
            reached = sum(
                largest_of_exchange >= observed[row] - 1e-9 * abs(observed[row])
                for largest_of_exchange in largest
            )
            p[row] = max(reached / len(largest), least)
        first = max(left, key=observed.__getitem__)
        least = p[first]
        left.remove(first)
    return [p[row] for row in range(len(rows))]


def drawn(quantities, trials, seed, *, common=0.5, mean=0.0):
    """Normal differences of some percent that share a part, as those of a trial do."""
    generator = np.random.default_rng(seed)
    alone = generator.normal(size=(quantities, trials))
    shared = generator.normal(size=(1, trials))
    return mean + 0.02 * (math.sqrt(common) * shared + math.sqrt(1 - common) * alone)


@pytest.mark.versions
@pytest.mark.parametrize("trials", [4, 6, 8])
@pytest.mark.parametrize(("mean", "seed"), [(0.0, 1), (0.02, 2), (-0.03, 3)])
def test_p_values_are_those_of_all_exchanges_one_by_one(trials, mean, seed):
    logs = drawn(5, trials, seed, mean=mean)
    logs[1] *= 8
    for signs in ([1.0] * 5, [-1.0] * 5, [1.0, -1.0, 1.0, -1.0, -1.0]):
        p_values = directed_test(logs, MIXED, np.array(signs), SEED)
        assert p_values == pytest.approx(by_brute_force(logs, MIXED, signs))


@pytest.mark.versions
@pytest.mark.parametrize(("mean", "seed"), [(0.0, 1), (0.01, 2), (0.02, 3), (-0.02, 4)])
def test_of_a_single_quantity_they_are_those_of_scipy(mean, seed):
    [row] = logs = drawn(1, 10, seed, mean=mean)
    [floor] = floors(logs, ["iteration"])

    def test(alternative):
        return scipy.stats.permutation_test(
            (row,),
            lambda d, axis: d.mean(axis) / (d.std(axis, ddof=1) / math.sqrt(10) + floor),
            permutation_type="samples",
            alternative=alternative,
            n_resamples=2**10,
            vectorized=True,
        ).pvalue

    assert directed_test(logs, ["iteration"], np.array([1.0]), SEED) == pytest.approx(
        [test("greater")]
    )
    assert directed_test(logs, ["iteration"], np.array([-1.0]), SEED) == pytest.approx(
        [test("less")]
    )


@pytest.mark.versions
def test_random_exchanges_are_close_to_all_of_them(monkeypatch):
    logs = drawn(4, 14, 5, mean=0.008)
    kinds = MIXED[:4]
    sampled = [slower(logs, kinds, seed) for seed in (1, 1, 2)]
    monkeypatch.setattr(permutation, "EXCHANGES", 2**14)
    exact = slower(logs, kinds, 1)
    assert 0.005 < min(exact) < 0.5
    np.testing.assert_array_equal(sampled[0], sampled[1])  # a seed is a result
    for p_values in (sampled[0], sampled[2]):
        assert p_values == pytest.approx(exact, abs=0.02)


def test_a_large_effect_does_not_hide_a_small_one():
    # With the roles of one trial exchanged the large one is still the larger: only once it is
    # found may it leave.
    logs = drawn(4, 10, 1, common=0)
    logs[0] += 1.0
    logs[1] += 0.1
    p = slower(logs, MIXED[:4])
    assert p == pytest.approx(by_brute_force(logs, MIXED[:4], np.ones(4)))
    assert max(p[:2]) <= LEVEL < min(p[2:])


def test_the_p_value_of_a_small_effect_does_not_depend_on_a_large_one():
    # Both are significant together, and the small one still has to be compared without the large
    # one.
    logs = drawn(3, 10, 4, common=0)
    logs[0] += 0.2
    logs[1] += 0.05
    # Each has its own s0.
    kinds = ["iteration", "mean", "operation"]
    signs = np.ones(3)
    p = directed_test(logs, kinds, signs, SEED)
    alone = directed_test(logs[1:], kinds[1:], signs[1:], SEED)
    assert p[0] == alone[0] == 1 / 2**10
    assert p[1:] == pytest.approx(alone)


def test_no_p_value_is_zero():
    # What was observed is one of the exchanges, also where they are drawn.
    for trials in (8, 12, 20):
        every = 2**trials
        sure = np.full((3, trials), 0.1)
        drawn_ones = 1 + permutation.EXCHANGES
        least = 1 / every if every <= permutation.EXCHANGES else 1 / drawn_ones
        assert slower(sure, ["iteration"] * 3) == pytest.approx([least] * 3)


def test_a_quantity_of_tiny_spread_does_not_decide_alone():
    # Its statistic without s0 would be a hundred times that of the others.
    logs = drawn(9, 10, 1)
    logs[4] = 1e-5 + 1e-8 * np.arange(10)
    assert slower(logs, ["operation"] * 9)[4] > 0.5


def test_calls_and_operations_have_floors_of_their_own():
    # A call varies by a tenth of what operations do: with one s0 for all, half a percent of it
    # would be hidden.
    calls = drawn(3, 10, 1) / 10
    operations = drawn(12, 10, 2)
    calls[0] += 0.005
    logs = np.vstack([calls, operations])
    assert slower(logs, ["iteration"] * 3 + ["operation"] * 12)[0] <= LEVEL
    assert slower(logs, ["operation"] * 15)[0] > LEVEL


def test_quantities_that_never_differ_are_sure_of_nothing():
    assert slower(np.zeros((3, 8)), ["iteration"] * 3) == pytest.approx([1.0] * 3)
    assert directed_test(np.zeros((3, 8)), ["iteration"] * 3, np.ones(3), SEED) == pytest.approx(
        [1.0] * 3
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_of_all_ways_in_which_coins_can_fall_no_more_than_the_level_raise_an_alarm(seed):
    # The exact validity of the tests: with the same code on both sides every pattern of signs is as
    # likely as any other.
    sizes = np.abs(drawn(6, 8, seed))
    sizes[2] *= 30
    kinds = ["iteration", "iteration", "operation", "operation", "operation", "operation"]
    patterns = np.array(list(itertools.product((1.0, -1.0), repeat=8)))
    expected = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    either = np.array([min(slower(sizes * pattern, kinds)) for pattern in patterns])
    directed = np.array(
        [min(directed_test(sizes * pattern, kinds, expected, SEED)) for pattern in patterns]
    )
    for level in (0.01, 0.05, 0.25):
        assert np.mean(either <= level) <= level
        assert np.mean(directed <= level) <= level
        # Whoever gives up more than an exchange and its opposite is too careful.
        assert min(np.mean(either <= level), np.mean(directed <= level)) > level - 3 / 256


# ---- the bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantities", "trials"), [pytest.param(20, 12, marks=pytest.mark.thorough), (20, 8), (5, 8)]
)
def test_the_bounds_hold_the_truth_all_together(quantities, trials):
    generator = np.random.default_rng(20261120)
    checked = 0
    sets = 400
    for number in range(sets):
        truth = generator.normal(scale=0.03, size=quantities)
        low, high = simultaneous_bounds(
            truth[:, None] + drawn(quantities, trials, [trials, number]), SEED
        )
        checked += bool(np.all(low <= truth) and np.all(truth <= high))
    # 95 % is nominal; the rest is for the error of so few data sets (1.1 % each way) and for normal
    # noise being only alike.
    assert checked / sets >= 0.92
    assert checked / sets <= 0.99


@pytest.mark.versions
def test_bounds_contain_the_estimate_and_hardly_differ_on_either_side_of_it():
    logs = drawn(7, 9, 1, mean=0.1)
    low, high = simultaneous_bounds(logs, SEED)
    mean = logs.mean(axis=1)
    assert np.all(low < mean)
    assert mean - low == pytest.approx(high - mean, rel=0.1)


@pytest.mark.parametrize(
    ("quantities", "trials", "most"), [(4, 10, 0.08), (4, 18, 0.08), (12, 10, 0.06)]
)
def test_upper_bounds_hold_if_single_processes_are_slow(quantities, trials, most):
    generator = np.random.default_rng(20261124)
    wrong = 0
    sets = 300
    for _ in range(sets):
        own = generator.exponential(size=(quantities, trials))
        common = generator.exponential(size=trials)
        wrong += bool((simultaneous_bounds(own + common, SEED)[1] < 2).any())
    assert wrong / sets <= most  # without resampling 0.08 to 0.11


def test_a_slow_trial_widens_the_bound_on_its_side_alone():
    logs = drawn(1, 10, 1)
    logs[0, 3] = 10 * logs.std()
    low, high = simultaneous_bounds(logs, SEED)
    assert high - logs.mean() > 1.2 * (logs.mean() - low)
    assert np.allclose(simultaneous_bounds(-logs, SEED), (-high, -low), rtol=0.1)


def test_bounds_widen_with_the_confidence_and_with_the_number_of_quantities():
    logs = drawn(7, 9, 1)
    widths = [
        np.subtract(*simultaneous_bounds(logs, SEED, confidence))
        for confidence in (0.99, 0.95, 0.5)
    ]
    assert np.all(widths[0] < widths[1])
    assert np.all(widths[1] < widths[2])
    alike = np.vstack([logs[:1], drawn(40, 9, 2, common=0)])
    alone = simultaneous_bounds(logs[:1], SEED)
    together = simultaneous_bounds(alike, SEED)
    assert together[1][0] > alone[1][0]


def test_bounds_of_a_wild_quantity_are_wide_and_leave_the_others():
    logs = drawn(9, 10, 1)
    before = simultaneous_bounds(logs, SEED)
    logs[0] *= 50
    low, high = simultaneous_bounds(logs, SEED)
    assert high[0] - low[0] > 20 * np.median(high - low)
    assert np.median((high - low)[1:]) < 2 * np.median((before[1] - before[0])[1:])


def test_a_change_that_is_equal_in_every_trial_has_equal_bounds():
    low, high = simultaneous_bounds(np.full((2, 8), 0.1), SEED)
    assert [low, high] == pytest.approx(np.full((2, 2), 0.1))
