"""Difference of a quantity between the two sides of a build.

Exchanging the sides changes the sign of a difference and nothing else: the permutation test
requires that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mnistbench.gate.statistics.permutation import Array
from mnistbench.gate.statistics.raw_samples import Build, SideSample
from mnistbench.gate.words import BASE, BUSY, CPU, DEVICE, HEAD, LEAST_PAIRS, WALL
from mnistbench.judging.kinds import MEAN

#: Least squared error of a difference: some clocks advance in steps.
_LEAST_SQUARE = 1e-12

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
    fewer than LEAST_PAIRS remain, or if the number of pairs with a 0 on one side only is at least
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
    has_enough = len(logs) >= LEAST_PAIRS and 2 * one_sided < len(logs)
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
    if clock in (DEVICE, BUSY) or not base.block_ns or not head.block_ns:
        return _compared(kind, base.times[clock], head.times[clock])
    cpu = _cpu_difference(base, head, kind)
    if clock == CPU:
        return cpu
    wall_by_cpu = _compared(kind, _wall_by_cpu(base), _wall_by_cpu(head))
    return Difference(cpu.log + wall_by_cpu.log, cpu.squared_error + wall_by_cpu.squared_error)


def _compared(kind: str, base_ns: Times, head_ns: Times) -> Difference:
    return (difference_of_means if kind == MEAN else difference)(base_ns, head_ns)


def _cpu_difference(base: SideSample, head: SideSample, kind: str) -> Difference:
    """Return the mean of the differences over blocks and over pairs.

    Weighted by the inverse squares of their errors. A long iteration varies less in blocks. Of a
    short one both are as exact, and their errors are independent.
    """
    blocks = _compared(kind, base.block_ns, head.block_ns)
    pairs = _compared(kind, base.times[CPU], head.times[CPU])
    if not all(map(math.isfinite, (blocks.squared_error, pairs.squared_error, pairs.log))):
        return blocks
    weight_of_blocks = 1 / max(blocks.squared_error, _LEAST_SQUARE)
    weight_of_pairs = 1 / max(pairs.squared_error, _LEAST_SQUARE)
    weights = weight_of_blocks + weight_of_pairs
    log = (weight_of_blocks * blocks.log + weight_of_pairs * pairs.log) / weights
    return Difference(log, 1 / weights)


def _wall_by_cpu(side: SideSample) -> Array:
    """Return wall time / CPU time of each iteration; 0 if the CPU clock did not advance."""
    wall = np.asarray(side.times[WALL], dtype=np.float64)
    cpu = np.asarray(side.times[CPU], dtype=np.float64)
    return np.divide(wall, cpu, out=np.zeros_like(wall), where=cpu != 0)
