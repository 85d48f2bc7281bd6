"""Loop nests are ranked by misses and by time; small differences give the same rank."""

import pytest

from mnistbench.course.studies.locality.study import (
    CacheCounts,
    NestResult,
    rank_by_misses,
    rank_by_time,
    slower_than_its_misses,
)


def nest(order, l1_misses, *rounds_ns):
    return NestResult(order, 1000, {"a": CacheCounts(10**9, l1_misses, 0)}, rounds_ns)


@pytest.mark.parametrize(
    ("misses", "rounds", "slower"),
    [
        (100, [2.0] * 5, True),
        (200, [2.0] * 5, True),
        (205, [2.0] * 5, True),
        (300, [2.0] * 5, False),  # more misses, more time: the ranks agree
        (100, [1.04] * 5, False),  # too small a difference
        (100, [2.0, 2.0, 2.0, 0.9, 0.9], False),  # faster in two rounds
        (100, [0.9, *[2.0] * 9], True),  # one disturbed round
        (100, [], False),  # not timed
    ],
)
def test_a_nest_is_slower_than_its_misses_if_a_faster_one_has_no_fewer(misses, rounds, slower):
    fast = nest("fast", 200, *[1.0] * len(rounds))
    assert slower_than_its_misses(nest("slow", misses, *rounds), [fast]) is slower


def test_ranks_leave_out_small_differences():
    nests = [nest("a", 100, 3.0, 3.0), nest("b", 104, 1.0, 1.0), nest("c", 300, 1.01, 1.01)]
    assert [rank_by_misses(row, nests) for row in nests] == [1, 1, 3]
    assert [rank_by_time(row, nests) for row in nests] == [3, 1, 1]
    assert rank_by_time(nest("d", 1), [nest("d", 1)]) is None
