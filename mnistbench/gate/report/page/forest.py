"""Estimates -> rows of forest plots."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.options import Thresholds
from mnistbench.judging.verdicts import (
    BELOW_FLOOR,
    IMPROVED,
    PASSED,
    REGRESSED,
    UNCONFIRMED,
    WITHIN,
)
from mnistbench.showing.page.charts import DrawnInterval, ForestAxis, Interval

#: Verdict or outcome -> class of its colour.
_TONES = {
    REGRESSED: "worse",
    IMPROVED: "better",
    PASSED: "better",
    BELOW_FLOOR: "",
    WITHIN: "",
    UNCONFIRMED: "",
}


def tone(verdict: str) -> str:
    """Return the class of the colour of a verdict or an outcome; empty for what is no finding."""
    word = verdict.partition(",")[0]
    return _TONES.get(word, "undecided") if word else ""


def six_digits(number: float) -> float | None:
    """Return a number for the page's script, with more digits than it shows; None if infinite."""
    return float(f"{number:.6g}") if math.isfinite(number) else None


@dataclass(frozen=True)
class ForestPlot:
    """Intervals on a common axis, each on a grid with the threshold of its quantity."""

    name: str
    estimates: Sequence[Estimate]
    limits: Thresholds

    @functools.cached_property
    def thresholds(self) -> list[float]:
        """The smallest changes that matter; each has a grid."""
        return sorted({self.limits.of(estimate.quantity) for estimate in self.estimates})

    @functools.cached_property
    def axis(self) -> ForestAxis:
        """The common axis; it is not drawn if there are no estimates."""
        intervals = map(_interval, self.estimates)
        return ForestAxis.of(intervals, max(self.thresholds, default=1.0))

    def grid(self, estimate: Estimate) -> int:
        """Return the number of the grid behind an estimate."""
        return self.thresholds.index(self.limits.of(estimate.quantity))

    def drawn(self, estimate: Estimate) -> DrawnInterval:
        """Return the row of an estimate."""
        return self.axis.drawn(_interval(estimate))


def _interval(estimate: Estimate) -> Interval:
    return Interval(estimate.low, estimate.change, estimate.high)
