"""Difference of a quantity between the two sides of a build."""

from __future__ import annotations

import functools
import math
import operator
import statistics
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from mnistbench.core.operation import (
    NOT_OPERATIONS,
    OpKey,
)
from mnistbench.gate.statistics.raw_samples import Build, SideSample
from mnistbench.gate.words import BASE, BUSY, CPU, DEVICE, HEAD, LEAST_PAIRS, WALL

#: Least squared error of a difference: some clocks advance in steps.
_LEAST_SQUARE = 1e-12


def times_by(clock: str, side: SideSample) -> Sequence[float]:
    """Return the times of a side by a clock, ns."""
    return side.times[clock]


def differ_in_build(
    differ: Callable[[Sequence[float], Sequence[float]], float], clock: str, build: Build
) -> float:
    """Return the difference of a case by a clock.

    CPU time is compared over blocks and over pairs, if there are blocks. Wall time is then the
    product of this CPU time and of the factor by which the wall time of an iteration is longer.
    That factor hardly varies: both clocks of an iteration see the same speed.
    """
    if clock in (DEVICE, BUSY) or not all(side.block_ns for side in build.values()):
        return differ_by(differ, functools.partial(times_by, clock), build)
    of_cpu = _differ_by_cpu(differ, build)
    return of_cpu + differ_by(differ, _wall_by_cpu, build) if clock == WALL else of_cpu


def _differ_by_cpu(
    differ: Callable[[Sequence[float], Sequence[float]], float], build: Build
) -> float:
    """Return the mean of the differences over blocks and over pairs.

    Weighted by the inverse squares of their errors.

    A long iteration varies less in blocks. Of a short one both are as exact, and their errors are
    independent.
    """
    ways = operator.attrgetter("block_ns"), functools.partial(times_by, CPU)
    of_blocks, of_pairs = (differ_by(differ, way, build) for way in ways)
    weights = [
        1 / max(differ_by(squared_error_by_pairs, way, build), _LEAST_SQUARE) for way in ways
    ]
    if not all(map(math.isfinite, (*weights, of_pairs))):
        return of_blocks
    if differ is squared_error_by_pairs:
        return 1 / sum(weights)
    return (weights[0] * of_blocks + weights[1] * of_pairs) / sum(weights)


def _wall_by_cpu(side: SideSample) -> list[float]:
    """Return wall time / CPU time of each iteration; 0 if the CPU clock did not advance."""
    return [
        wall / cpu if cpu else 0.0
        for wall, cpu in zip(side.times[WALL], side.times[CPU], strict=True)
    ]


def differ_by(
    differ: Callable[[Sequence[float], Sequence[float]], float],
    times: Callable[[SideSample], Sequence[float]],
    build: Build,
) -> float:
    """Return a comparison of times of both sides of a build."""
    return differ(times(build[BASE]), times(build[HEAD]))


def whole_times(side: SideSample) -> Sequence[float]:
    """Return the times that operations have shares of.

    Busy times of an accelerator, else the sums of all operations.
    """
    return side.times[BUSY] if BUSY in side.times else times_of(side.operations, side)


def differ_in_profile(
    keys: Sequence[OpKey],
    build: Build,
    differ: Callable[[Sequence[float], Sequence[float]], float] | None = None,
) -> float:
    """Return the difference of operations, or another summary of their pairs.

    If both sides ran blocks at once, it is the mean of two estimates: the change of the operations
    over pairs of profiled iterations, and the change of their share of the iteration plus that of
    the untraced case. The share does not depend on a change of the machine's speed between the
    iterations of a pair. The overhead of the profiler has to be the same on both sides, so they
    have to have the same number of calls, and small, which it is not for the short call of a plain
    test.
    """
    comparable = all(side.block_ns and side.by_share for side in build.values())
    differ = differ or difference
    if not comparable or len({_calls(side) for side in build.values()}) > 1:
        return differ_by(differ, functools.partial(times_of, keys), build)

    def mean_with_share(side: SideSample) -> list[float]:
        # Half of log(time) + log(time / whole).
        return [
            time / math.sqrt(whole) if whole else 0.0
            for time, whole in zip(
                times_of(keys, side), times_of(side.operations, side), strict=True
            )
        ]

    return differ_by(differ, mean_with_share, build) + differ_in_build(differ, WALL, build) / 2


def _calls(side: SideSample) -> float:
    """Return the number of calls of all operations in an iteration."""
    return sum(
        operation.calls
        for key, operation in side.operations.items()
        if key[0] not in NOT_OPERATIONS
    )


def times_of(keys: Iterable[OpKey], side: SideSample) -> list[int]:
    """Return the sum over operations for each iteration, ns.

    0 for operations that the side does not have.
    """
    rows = [side.operations[key].self_ns for key in keys if key in side.operations]
    iterations = max((len(operation.self_ns) for operation in side.operations.values()), default=0)
    return list(map(sum, zip(*rows, strict=True))) if rows else [0] * iterations


def changed_sum(keys: Sequence[OpKey], build: Build) -> float:
    """Return the change of the sum of replaced operations, as a logarithm.

    Without the part that moved within their places.

    Exchanging the sides only changes the sign.
    """
    change = differ_by(difference, functools.partial(times_of, keys), build)
    alone = _share_added(set(keys), build)
    return change * (added_share(keys, build) / alone) if alone else change


def added_share(keys: Sequence[OpKey], build: Build) -> float:
    """Return the change of a case by new and gone operations, as a logarithm.

    Limited by the change of their places.

    Without the limit, work that moves from a remaining operation to a new one of the same place
    would look like a slowdown. Returns the value closer to 0 of the two, and 0 if their signs
    differ.
    """
    places = {key[1:] for key in keys}
    around = {
        key
        for side in build.values()
        for key in side.operations
        if key[1:] in places and key[0] not in NOT_OPERATIONS
    }
    alone = _share_added(set(keys), build)
    in_place = _share_added(around, build)
    if math.isnan(alone) or math.isnan(in_place):
        return math.nan
    return min(alone, in_place, key=abs) if alone * in_place > 0 else 0.0


def _share_added(keys: AbstractSet[OpKey], build: Build) -> float:
    """Return the median over pairs of log((rest + new) / (rest + gone)).

    An operation takes no time on a side that does not have it. The rest of an iteration is the mean
    of both iterations of a pair: exchanging the sides then only changes the sign, and the speed of
    the machine cancels.
    """
    gone, new = (times_of(keys, build[side]) for side in (BASE, HEAD))
    others = [times_of(side.operations.keys() - keys, side) for side in build.values()]
    rest = [(one + other) / 2 for one, other in zip(*others, strict=False)]
    return difference(
        [remains + time for remains, time in zip(rest, gone, strict=False)],
        [remains + time for remains, time in zip(rest, new, strict=False)],
    )


def difference(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the median over pairs of log(new / base); NaN if too few pairs are usable.

    The iterations of a pair follow each other. The speed of a shared machine changes by up to a
    factor of two for seconds at a time, so both iterations of most pairs have the same speed, and
    the median ignores the others. Pairs with a time of 0 are left out. Too few pairs are usable if
    fewer than LEAST_PAIRS remain, or if the number of pairs with a 0 on one side only is at least
    half of those that remain (an operation that does not run in every iteration).
    """
    pairs = list(zip(base, new, strict=False))
    usable = _log_ratios(base, new)
    one_sided = sum((earlier > 0) != (later > 0) for earlier, later in pairs)
    if len(usable) < LEAST_PAIRS or 2 * one_sided >= len(usable):
        return math.nan
    return statistics.median(usable)


def _log_ratios(base: Sequence[float], new: Sequence[float]) -> list[float]:
    return [
        math.log(later / earlier)
        for earlier, later in zip(base, new, strict=False)
        if earlier > 0 and later > 0
    ]


def squared_error_by_pairs(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the squared standard error of ``difference``.

    Of a median of normal numbers, pi / 2 times that of their mean.
    """
    usable = _log_ratios(base, new)
    return math.pi / 2 * statistics.variance(usable) / len(usable) if len(usable) > 1 else math.nan


def difference_of_means(base: Sequence[float], new: Sequence[float]) -> float:
    """Return log(mean of new / mean of base); NaN if there is no time.

    Unlike the median, the mean changes with events in fewer than half of the iterations.
    """
    if not base or not new or sum(base) <= 0 or sum(new) <= 0:
        return math.nan
    return math.log(statistics.fmean(new) / statistics.fmean(base))
