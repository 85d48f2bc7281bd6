"""The soak: one long launch, which shows growth and rare slow iterations.

It confirms nothing: one process can be slow.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from mnistbench.core import units
from mnistbench.gate.options import MEAN_FACTOR
from mnistbench.gate.statistics.decision import SOAKED, Reason
from mnistbench.gate.statistics.quantities import quantities
from mnistbench.gate.statistics.raw_samples import SOAK, Launch
from mnistbench.gate.words import BASE, HEAD, MEAN, PARTS, WALL

#: Quantile of 97.5 % of Student's t with PARTS - 1 degrees of freedom.
_T = 2.262


class Soak(NamedTuple):
    """A case in the soak, by wall time. Changes are shares; pairs are of the base and the head."""

    case: str  # node id
    iterations: int  # of each side
    change: float  # of the mean
    low: float  # its 95 % confidence interval, from the changes of the parts
    high: float
    # Of the head relative to the base, from the first part to the last one: lower bound.
    least_growth: float
    means_ns: tuple[float, float]  # that of the base, and what the change makes of it
    growths: tuple[float, float]  # of each side alone
    # Means of the slowest iterations in turn, of each part 1 % and at most 100.
    slowest_ns: tuple[float, float]


def soaks(launches: Sequence[Launch]) -> Iterable[Soak]:
    """Yield the cases of the soak that have usable times.

    Growth is the difference of two parts; its error is estimated from the differences of successive
    parts. Source: von Neumann et al., The Mean Square Successive Difference, Ann. Math. Statist. 12
    (1941) 153.
    """
    for case, parts in [
        item for launch in launches if launch.stage == SOAK for item in launch.cases.items()
    ]:
        found = quantities([Launch(SOAK, {case: [part]}, 0.0) for part in parts])
        logs = next((mean.logs for mean in found if (mean.kind, mean.clock) == (MEAN, WALL)), ())
        if len(logs) == PARTS and all(map(math.isfinite, logs)):
            middle = statistics.fmean(logs)
            reach = _T * statistics.stdev(logs) / math.sqrt(PARTS)
            step = math.hypot(*map(operator.sub, logs[1:], logs)) / math.sqrt(PARTS - 1)
            sides = [[part[side] for part in parts] for side in (BASE, HEAD)]
            base, head = ([statistics.fmean(part.times[WALL]) for part in side] for side in sides)
            base_ns, head_ns = (
                statistics.fmean(ns for part in side for ns in part.slowest_ns or (0,))
                for side in sides
            )
            yield Soak(
                case,
                sum(part.iterations for part in sides[0]),
                math.expm1(middle),
                math.expm1(middle - reach),
                math.expm1(middle + reach),
                math.expm1(logs[-1] - logs[0] - _T * step),
                (statistics.fmean(base), statistics.fmean(base) * math.exp(middle)),
                (base[-1] / base[0] - 1, head[-1] / head[0] - 1),
                (base_ns, head_ns),
            )


def reasons(
    found: Iterable[Soak], threshold: float, regressed: Collection[str]
) -> Iterable[Reason]:
    """Yield why a gate with this threshold of cases is inconclusive.

    Means of regressed cases are not judged again.
    """
    advice = (
        "one launch cannot confirm it; run the gate again with the same --soak, and profile the "
        "head if it comes again"
    )
    for one in found:
        shares = (one.change, one.low, one.high, *one.growths)
        change, low, high, base, head = (units.percent(share, signed=True) for share in shares)
        if one.low > MEAN_FACTOR * threshold and one.case not in regressed:
            yield Reason(
                SOAKED,
                f"{one.case}: mean wall time in the soak {change} ({low} to {high}); {advice}",
            )
        if one.least_growth > threshold:
            grew = f"wall time grows during the soak, {head} in the head and {base} in the base"
            yield Reason(SOAKED, f"{one.case}: {grew}; {advice}")
