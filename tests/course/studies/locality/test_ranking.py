"""Misses and times are compared pair by pair.

A disagreement has a cause only where a number supports it.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from mnistbench.course.studies.locality.result import (
    INSTRUCTIONS,
    L2_MISSES,
    UNKNOWN,
    Agreement,
    CacheCounts,
    NestResult,
    agreement,
    disagreements,
    rank_by_misses,
    rank_by_time,
)


def nest(order, l1_misses, *rounds_ns, l2_misses=0, in_l1_ns=None):
    return NestResult(
        order, 1000, {"a": CacheCounts(10**9, l1_misses, l2_misses)}, rounds_ns, in_l1_ns
    )


def named(*nests):
    return [
        (found.slower.order, found.faster.order, found.fewer, found.cause)
        for found in disagreements(nests)
    ]


@pytest.mark.parametrize(
    ("slow", "fast", "expected"),
    [
        ({"in_l1_ns": 1.9}, {"in_l1_ns": 0.9}, INSTRUCTIONS),
        ({"in_l1_ns": 1.6}, {"in_l1_ns": 1.1}, INSTRUCTIONS),
        ({"in_l1_ns": 1.3}, {"in_l1_ns": 0.9}, UNKNOWN),
        ({"in_l1_ns": 0.9}, {"in_l1_ns": 1.9}, UNKNOWN),
        ({"in_l1_ns": None}, {"in_l1_ns": 1.0}, UNKNOWN),
        ({"l2_misses": 200}, {"l2_misses": 100}, L2_MISSES),
        ({"l2_misses": 103}, {"l2_misses": 100}, UNKNOWN),
        ({"in_l1_ns": 1.9, "l2_misses": 200}, {"in_l1_ns": 0.9, "l2_misses": 100}, INSTRUCTIONS),
    ],
)
@pytest.mark.parametrize(("misses", "fewer"), [(100, True), (200, False), (205, False)])
def test_a_slower_nest_without_more_misses_is_named_with_its_cause(
    slow, fast, expected, misses, fewer
):
    nests = nest("slow", misses, *[2.0] * 5, **slow), nest("fast", 200, *[1.0] * 5, **fast)
    assert named(*nests) == [("slow", "fast", fewer, expected)]


@pytest.mark.parametrize(
    ("misses", "rounds"),
    [
        (300, [2.0] * 5),  # more misses, more time: they agree
        (100, [1.04] * 5),  # too small a difference
        (100, [2.0, 2.0, 2.0, 0.9, 0.9]),  # faster in two rounds
        (100, []),  # not timed
    ],
)
def test_pairs_that_agree_or_differ_within_noise_are_not_named(misses, rounds):
    fast = nest("fast", 200, *[1.0] * len(rounds))
    assert named(nest("slow", misses, *rounds), fast) == []


def test_one_disturbed_round_does_not_hide_a_difference():
    slow = nest("slow", 1, 0.9, *[2.0] * 9)
    assert named(slow, nest("fast", 9, *[1.0] * 10)) == [("slow", "fast", True, UNKNOWN)]


def test_ranks_leave_out_small_differences():
    nests = [nest("a", 100, 3.0, 3.0), nest("b", 104, 1.0, 1.0), nest("c", 300, 1.01, 1.01)]
    assert [rank_by_misses(each, nests) for each in nests] == [1, 1, 3]
    assert [rank_by_time(each, nests) for each in nests] == [3, 1, 1]
    assert rank_by_time(nest("d", 1), [nest("d", 1)]) is None


def test_pairs_are_counted():
    nests = [
        nest("a", 100, 1.0),
        nest("b", 200, 2.0),
        nest("c", 300, 0.5),
        nest("d", 300, 0.7),
        nest("e", 301, 0.7),
    ]
    # a-b same; a-c, a-d, a-e, b-c, b-d, b-e opposite; c-d and c-e in time only; d-e in neither.
    assert agreement(nests) == Agreement(1, 6, 2, 0, 1)
    assert agreement(nests).kendall_tau == pytest.approx((1 - 6) / (9 * 7) ** 0.5)
    assert agreement([nest("a", 1, 1.0), nest("b", 1, 2.0)]).kendall_tau is None
    assert agreement([nest("a", 1, 1.0), nest("b", 2, 1.0), nest("c", 3)]) == Agreement(
        0, 0, 0, 1, 0
    )


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=8))
def test_tau_is_that_of_scipy_where_all_differences_count(values):
    nests = [
        nest(str(number), 2**misses, *[2.0**time] * 2)
        for number, (misses, time) in enumerate(values)
    ]
    theirs = kendalltau(*zip(*values, strict=True)).statistic
    found = agreement(nests).kendall_tau
    assert math.isnan(theirs) if found is None else found == pytest.approx(theirs)
