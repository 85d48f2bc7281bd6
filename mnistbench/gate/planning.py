"""Samples of the first launches -> how often later ones measure each case. Pure.

And how many launches are needed.

An effort is a factor of the numbers of iterations in ``gate.sides.alternate``. A bound is the
estimate plus the reach: the spread of a quantity over the launches, times a factor that depends on
the numbers of quantities and launches. The part of the spread that comes from the samples of a
launch falls with the root of the effort, so it follows from the limit. The rest, which differs from
process to process, falls only with more launches.

Plans depend on the samples by the spread of pairs within launches and by the absolute differences
of launches. Both stay the same if the roles of a launch are exchanged, so the permutation test
remains exact whatever is planned.
"""

from __future__ import annotations

import functools
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mnistbench.compare.criteria import LARGE_SHARE
from mnistbench.gate.options import LAUNCHES, LEAST_LAUNCHES, MOST_SHARDS, Thresholds
from mnistbench.gate.statistics import quantities
from mnistbench.gate.statistics.permutation import simultaneous_bounds
from mnistbench.gate.statistics.quantities import Quantity
from mnistbench.gate.statistics.raw_samples import Launch, Shard
from mnistbench.gate.words import ITERATION, OPERATION

#: Smallest effort. A launch then spends less than a tenth of a second on a short test.
LEAST_EFFORT = 1 / 32

#: Threshold of cases whose first launches have the effort 1, as a share.
FULL_CASE = 0.01
#: Threshold of operations whose first launches have the effort 1, as a share.
FULL_OPERATION = 0.025

#: The reach that comes from the samples of a launch, as a share of the limit.
SHARE = 0.4

#: Most launches of the first stage that are planned.
MOST_LAUNCHES = 2 * LAUNCHES
#: Fewest launches from which the spread of a quantity is estimated.
LEAST_KNOWN = 4

#: Most growth of an effort in one plan: a spread of three samples is often several times too large.
MOST_GROWTH = 2.0

#: Most normal quantities that are drawn to find the reach, which grows slowly: with ten times as
#: many by a tenth.
MOST_ROWS = 2_000

#: Least time of a case in a launch with the smallest effort, in seconds.
LEAST_CASE_S = 0.1
#: Least time of a case in a launch with the smallest effort, as a multiple of that in the survey.
CALLS = 4.0


class Efforts(NamedTuple):
    """Of timed and of profiled iterations."""

    timed: float
    profiled: float

    def scaled(self, factor: float) -> Efforts:
        """Return these efforts times a factor, at least the smallest."""
        return Efforts(*(max(LEAST_EFFORT, factor * effort) for effort in self))


class Spent(NamedTuple):
    """What a launch spent on a case."""

    seconds: float
    efforts: Efforts
    timed_s: float
    profiled_s: float

    def with_efforts(self, efforts: Efforts) -> float:
        """Return the expected seconds with other efforts."""
        parts = zip((self.timed_s, self.profiled_s), efforts, self.efforts, strict=True)
        changed = sum(part_s * (effort / used - 1) for part_s, effort, used in parts if used)
        return max(self.seconds + changed, self.seconds - self.timed_s - self.profiled_s)


@dataclass(frozen=True)
class LeastGate:
    """The smallest gate that can be judged: LEAST_LAUNCHES with the smallest effort."""

    loading_s: float  # of both sides, with the calls of the survey
    case_seconds: tuple[float, ...]  # of the calls of each case in the survey
    at_once: int  # launches at the same time
    shard: Shard

    def seconds(self, case_seconds: Sequence[float] | None = None) -> float:
        """Return how long it takes with these cases, by default with all."""
        kept = self.case_seconds if case_seconds is None else case_seconds
        loading_s = max(0.0, self.loading_s - sum(self.case_seconds)) + sum(kept)
        of_launch_s = loading_s + sum(max(LEAST_CASE_S, CALLS * seconds) for seconds in kept)
        return loading_s + math.ceil(LEAST_LAUNCHES / self.at_once) * of_launch_s

    def advice(self, budget_s: float) -> str:
        """Return what makes the cases fit into a budget that is too small: only what helps."""
        increase = f"give --budget {math.ceil(self.seconds())}s"
        shards = self._shards(budget_s)
        ways = [increase, f"use --shard 1/{shards}"] if shards else [increase]
        if len(self.case_seconds) > 1 and self.seconds([min(self.case_seconds)]) <= budget_s:
            ways.append("select fewer tests with -k")
        return " or ".join(ways) if len(ways) < 3 else f"{', '.join(ways[:-1])}, or {ways[-1]}"

    def _shards(self, budget_s: float) -> int:
        """Return the fewest shards of which each fits, also the one with the longest cases.

        0 if no number helps.
        """
        longest_first = sorted(self.case_seconds, reverse=True)
        tests = len(self.shard.tests) or len(longest_first)
        for shards in range(self.shard.of + 1, min(tests, MOST_SHARDS) + 1):
            if self.seconds(longest_first[: math.ceil(tests / shards)]) <= budget_s:
                return shards
        return 0


def first_efforts(limits: Thresholds) -> Efforts:
    """Return the efforts of launches of which no spread is known yet."""
    shares = (FULL_CASE / limits.case, FULL_OPERATION / limits.operation)
    return Efforts(*(max(LEAST_EFFORT, min(1.0, share**2)) for share in shares))


def planned_efforts(
    launches: Sequence[Launch],
    spent: Sequence[Mapping[str, Spent]],
    limits: Thresholds,
    shards: int = 1,
) -> dict[str, Efforts]:
    """Return the efforts of each case, at most 1.

    With them bounds reach the limits as far as the efforts decide.

    ``spent`` is that of each launch, by node id; ``shards`` the number of machines whose bounds are
    simultaneous.
    """
    needed: dict[str, list[float]] = {}
    for quantity, reach in _to_bound(quantities.quantities(launches), shards):
        position = 0 if quantity.is_case else 1
        errors = [quantities.squared_error(quantity, launch) for launch in launches]
        used = [of[quantity.case].efforts[position] for of in spent]
        allowed = (SHARE * math.log1p(limits.of(quantity)) / reach) ** 2
        # More launches help against what differs between processes, a larger effort does not.
        if len(launches) >= LEAST_KNOWN:
            allowed = max(allowed, (_spread(quantity) ** 2 - statistics.fmean(errors)) / 2)
        effort = statistics.fmean(map(operator.mul, errors, used)) / allowed
        if math.isfinite(effort):
            of_case = needed.setdefault(quantity.case, [LEAST_EFFORT, LEAST_EFFORT])
            of_case[position] = max(
                of_case[position], min(1.0, effort, MOST_GROWTH * statistics.fmean(used))
            )
    return {case: Efforts(*efforts) for case, efforts in needed.items()}


def planned_launches(launches: Sequence[Launch], limits: Thresholds, shards: int = 1) -> int:
    """Return the number of launches with which all quantities reach their limits.

    Those count that can with MOST_LAUNCHES.
    """
    needed = [len(launches)]
    for quantity, reach in _to_bound(quantities.quantities(launches), shards):
        number = LAUNCHES * (reach * _spread(quantity) / math.log1p(limits.of(quantity))) ** 2
        if number <= MOST_LAUNCHES:  # not if it is not finite
            needed.append(math.ceil(number))
    return max(needed)


def _spread(quantity: Quantity) -> float:
    """Return the SD of a quantity over launches, from that of absolute differences.

    sqrt(1 - 2 / pi) of it if normal.
    """
    return float(np.std(np.abs(quantity.logs), ddof=1)) / math.sqrt(1 - 2 / math.pi)


def _to_bound(quantities: Sequence[Quantity], shards: int) -> list[tuple[Quantity, float]]:
    """Return the quantities that a pass bounds by their thresholds.

    With the reach of a spread of 1 in LAUNCHES.
    """
    cases = [one for one in quantities if one.kind == ITERATION]
    operations = [one for one in quantities if one.kind == OPERATION and one.share >= LARGE_SHARE]
    return [
        (one, _reach(min(MOST_ROWS, 2 * len(family) * shards)))
        for family in (cases, operations)
        for one in family
    ]


@functools.cache
def _reach(rows: int) -> float:
    """Return the distance of an upper bound from its estimate.

    For so many normal quantities with an SD of 1.
    """
    logs = np.random.default_rng(1).normal(size=(rows, LAUNCHES))
    _, high = simultaneous_bounds(logs, 1)
    return float(np.median(high - logs.mean(axis=1)))
