"""Difference of a quantity between the two sides of a build: of a case, and of operations.

Exchanging the sides changes the sign of a difference and nothing else: the permutation test
requires that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mnistbench.core.operation import NOT_OPERATIONS, OpKey
from mnistbench.gate.decide.statistics.permutation import Array
from mnistbench.gate.samples.raw_samples import Build, SideSample
from mnistbench.gate.words import BASE, BUSY, CPU, DEVICE, HEAD, MIN_PAIRS, WALL
from mnistbench.judging.kinds import ADDED, ITERATION, MEAN, REPLACED

#: Least squared error of a difference: some clocks advance in steps.
_MIN_SQUARE = 1e-12

#: Times, one per iteration, in ns.
Times = Sequence[float] | Array


class Difference(NamedTuple):
    """Difference between the times of the base and the head."""

    log: float  # log(head / base); NaN if too few times are usable
    # Squared standard error of the median over pairs; NaN if fewer than two pairs are usable.
    squared_error: float


# ---- Two columns of times ------------------------------------------------------------------------


def difference(base_ns: Times, head_ns: Times) -> Difference:
    """Return the median over pairs of log(head / base).

    The iterations of a pair follow each other. The speed of a shared machine changes by up to a
    factor of two for seconds at a time, so both iterations of most pairs have the same speed, and
    the median ignores the others. Pairs with a time of 0 are left out. Too few pairs are usable if
    fewer than MIN_PAIRS remain, or if the number of pairs with a 0 on one side only is at least
    half of those that remain (an operation that does not run in every iteration).
    """
    count = min(len(base_ns), len(head_ns))
    base = np.asarray(base_ns[:count], dtype=np.float64)
    head = np.asarray(head_ns[:count], dtype=np.float64)
    is_usable = (base > 0) & (head > 0)
    one_sided = np.count_nonzero((base > 0) != (head > 0))
    logs = np.log(head[is_usable] / base[is_usable])
    # The error of a median of normal numbers is sqrt(pi / 2) times that of their mean.
    squared_error = math.pi / 2 * np.var(logs, ddof=1) / len(logs) if len(logs) > 1 else math.nan
    has_enough = len(logs) >= MIN_PAIRS and 2 * one_sided < len(logs)
    return Difference(float(np.median(logs)) if has_enough else math.nan, float(squared_error))


def difference_of_means(base_ns: Times, head_ns: Times) -> Difference:
    """Return log(mean of head / mean of base); NaN if there is no time.

    Unlike the median, the mean changes with events in fewer than half of the iterations.
    """
    squared_error = difference(base_ns, head_ns).squared_error
    if not sum(base_ns) > 0 or not sum(head_ns) > 0:
        return Difference(math.nan, squared_error)
    return Difference(math.log(np.mean(head_ns) / np.mean(base_ns)), squared_error)


# ---- A case --------------------------------------------------------------------------------------


def case_difference(build: Build, clock: str, kind: str) -> Difference:
    """Return the difference of a case by a clock: of its medians (ITERATION) or means (MEAN).

    CPU time is compared over blocks and over pairs, if there are blocks. Wall time is then the
    product of this CPU time and of the factor by which the wall time of an iteration is longer.
    That factor hardly varies: both clocks of an iteration see the same speed.
    """
    base = build[BASE]
    head = build[HEAD]
    if clock in (DEVICE, BUSY) or not base.block_times or not head.block_times:
        return _compared(kind, base.times[clock], head.times[clock])
    cpu = _cpu_difference(base, head, kind)
    if clock == CPU:
        return cpu
    wall_by_cpu = _compared(kind, _wall_by_cpu(base), _wall_by_cpu(head))
    return Difference(cpu.log + wall_by_cpu.log, cpu.squared_error + wall_by_cpu.squared_error)


def _compared(kind: str, base_ns: Times, head_ns: Times) -> Difference:
    return (difference_of_means if kind == MEAN else difference)(base_ns, head_ns)


def _cpu_difference(base: SideSample, head: SideSample, kind: str) -> Difference:
    """Return the weighted mean of the differences over blocks and over pairs.

    Weights are the inverse squares of their errors. A long iteration varies less in blocks. Of a
    short one both are as exact, and their errors are independent.
    """
    blocks = _compared(kind, base.block_times, head.block_times)
    pairs = _compared(kind, base.times[CPU], head.times[CPU])
    if not all(map(math.isfinite, (blocks.squared_error, pairs.squared_error, pairs.log))):
        return blocks
    weight_of_blocks = 1 / max(blocks.squared_error, _MIN_SQUARE)
    weight_of_pairs = 1 / max(pairs.squared_error, _MIN_SQUARE)
    weights = weight_of_blocks + weight_of_pairs
    log = (weight_of_blocks * blocks.log + weight_of_pairs * pairs.log) / weights
    return Difference(log, 1 / weights)


def _wall_by_cpu(side: SideSample) -> Array:
    """Return wall time / CPU time of each iteration; 0 if the CPU clock did not advance."""
    wall = np.asarray(side.times[WALL], dtype=np.float64)
    cpu = np.asarray(side.times[CPU], dtype=np.float64)
    return np.divide(wall, cpu, out=np.zeros_like(wall), where=cpu != 0)


# ---- Operations ----------------------------------------------------------------------------------


def operations_log(kind: str, keys: Collection[OpKey], build: Build) -> float:
    """Return log(head / base) of the sum of operations; of ADDED that of their case."""
    if kind == REPLACED:
        return _replaced_log(build, keys)
    if kind == ADDED:
        return _added_log(build, keys)
    return _operation_difference(build, keys).log


def total_ns(side: SideSample, keys: Iterable[OpKey]) -> int:
    """Return the sum of times over operations and iterations, ns; a missing one takes none."""
    return sum(sum(side.operations[key].self_ns) for key in keys if key in side.operations)


def summed_ns(side: SideSample, keys: Iterable[OpKey]) -> Array:
    """Return the sum over operations for each profiled iteration, ns; a missing one takes none."""
    rows = [side.operations[key].self_ns for key in keys if key in side.operations]
    iterations = max((len(operation.self_ns) for operation in side.operations.values()), default=0)
    return np.sum(rows, axis=0, dtype=np.float64) if rows else np.zeros(iterations)


def whole_ns(side: SideSample) -> Times:
    """Return what shares are of: busy times of an accelerator, or sums of all operations."""
    return side.times[BUSY] if BUSY in side.times else summed_ns(side, side.operations)


def _operation_difference(build: Build, keys: Collection[OpKey]) -> Difference:
    """Return the difference of operations that both sides have.

    If both sides ran blocks at once, it is the mean of two estimates: the change of the operations
    over pairs of profiled iterations, and the change of their share of the iteration plus that of
    the untraced case. The share does not depend on a change of the machine's speed between the
    iterations of a pair. The overhead of the profiler has to be the same on both sides, so they
    have to have the same number of calls, and small, which it is not for the short call of a plain
    test.
    """
    base = build[BASE]
    head = build[HEAD]
    has_shares = all(side.block_times and side.by_share for side in (base, head))
    if not has_shares or _calls(base) != _calls(head):
        return difference(summed_ns(base, keys), summed_ns(head, keys))
    operations = difference(_mean_with_share(base, keys), _mean_with_share(head, keys))
    case = case_difference(build, WALL, ITERATION)
    return Difference(
        operations.log + case.log / 2, operations.squared_error + case.squared_error / 2
    )


def _mean_with_share(side: SideSample, keys: Iterable[OpKey]) -> Array:
    """Return exp of half of log(time) + log(time / whole) of each iteration."""
    time = summed_ns(side, keys)
    whole = summed_ns(side, side.operations)
    return np.divide(time, np.sqrt(whole), out=np.zeros_like(time), where=whole != 0)


def _calls(side: SideSample) -> float:
    """Return the number of calls of all operations in an iteration."""
    return sum(
        operation.calls
        for key, operation in side.operations.items()
        if key[0] not in NOT_OPERATIONS
    )


# ---- Operations of one side ----------------------------------------------------------------------


def _replaced_log(build: Build, keys: Collection[OpKey]) -> float:
    """Return the log of the change of replaced operations, without what moved in their places."""
    change = difference(summed_ns(build[BASE], keys), summed_ns(build[HEAD], keys)).log
    alone = _log_added(build, keys)
    return change * (_added_log(build, keys) / alone) if alone else change


def _added_log(build: Build, keys: Collection[OpKey]) -> float:
    """Return the change of a case by new and gone operations, as a logarithm.

    It is limited by the change of their places.

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
    alone = _log_added(build, keys)
    with_places = _log_added(build, around)
    if math.isnan(alone) or math.isnan(with_places):
        return math.nan
    return min(alone, with_places, key=abs) if alone * with_places > 0 else 0.0


def _log_added(build: Build, keys: Collection[OpKey]) -> float:
    """Return the median over pairs of log((rest + new) / (rest + gone)).

    An operation takes no time on a side that does not have it. The rest of an iteration is the mean
    of both iterations of a pair: exchanging the sides then only changes the sign, and the speed of
    the machine cancels.
    """
    gone = summed_ns(build[BASE], keys)
    new = summed_ns(build[HEAD], keys)
    count = min(len(gone), len(new))
    rests = [summed_ns(side, side.operations.keys() - keys)[:count] for side in build.values()]
    rest = sum(rests) / 2
    return difference(rest + gone[:count], rest + new[:count]).log
