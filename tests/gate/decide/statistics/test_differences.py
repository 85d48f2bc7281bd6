"""Difference between the times of two sides."""

from __future__ import annotations

import math

import pytest

from mnistbench.gate.decide.statistics.differences import difference, difference_of_means

# ---- the difference between two sides ------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "new", "ratio"),
    [
        ([100, 100, 100], [110, 130, 90], 1.1),
        ([100, 100, 100, 100], [100, 110, 121, 200], math.sqrt(1.1 * 1.21)),
        ([100, 1_000, 10], [110, 1_100, 11], 1.1),  # pair by pair, whatever each pair's speed
        ([100, 100, 100, 100], [110, 110, 110], 1.1),  # what has no partner is no pair
        # A pair with a time of nothing is left out, and the others count.
        ([0, 100, 100, 100], [110, 110, 110, 110], 1.1),
        ([100, 100, 100, 100], [110, 0, 110, 110], 1.1),
        # It runs in every other iteration.
        ([0, 100, 0, 100, 0, 100], [0, 110, 0, 110, 0, 110], 1.1),
    ],
)
def test_a_difference_is_the_median_over_pairs(base, new, ratio):
    assert difference(base, new).log == pytest.approx(math.log(ratio))


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ([], []),
        ([1], []),
        ([], [1]),
        ([0, 5, 5], [5, 5, 5]),
        ([5], [0]),
        ([5, 5], [5, 5]),
        # In every other iteration of one side, and in all of the other: it takes twice as long, and
        # the median is the same.
        ([0, 5, 0, 5, 0, 5], [5, 5, 5, 5, 5, 5]),
    ],
)
def test_with_too_few_usable_pairs_there_is_no_difference(base, new):
    assert math.isnan(difference(base, new).log)


@pytest.mark.parametrize(
    ("base", "new", "ratio"),
    [([100] * 5, [100, 100, 100, 100, 200], 1.2), ([0, 2], [2, 4], 3.0), ([7], [7], 1.0)],
)
def test_a_difference_of_means_counts_what_few_iterations_do(base, new, ratio):
    assert difference_of_means(base, new).log == pytest.approx(math.log(ratio))


@pytest.mark.parametrize(("base", "new"), [([], []), ([0], [1]), ([1], [0]), ([], [1])])
def test_without_a_time_there_is_no_difference_of_means(base, new):
    assert math.isnan(difference_of_means(base, new).log)
