"""A roofline plot made of characters: FLOP/s over FLOP per byte, both logarithmic.

Williams, Waterman and Patterson, "Roofline", CACM 52 (2009) 65.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence

from mnistbench.core import units
from mnistbench.core.roofline import Ceilings, Point
from mnistbench.showing.plot import Plot

#: Size of the plot in characters.
_WIDTH, _HEIGHT = 64, 14
_MARKS = string.ascii_lowercase


def plot(points: Sequence[Point], ceilings: Ceilings) -> str:
    """Return the plot of at least one point, with a line of text for each; more points than letters are left out."""
    points = points[: len(_MARKS)]
    peak, bandwidth = ceilings.flops_per_s, ceilings.bytes_per_s
    ridge = peak / bandwidth
    low_x = math.log2(min(ridge, *(point.x for point in points))) - 1
    high_x = math.log2(max(ridge, *(point.x for point in points))) + 1
    high_y = math.log2(max(peak, *(point.y for point in points))) + 0.5
    low_y = min(math.log2(bandwidth) + low_x, *(math.log2(point.y) for point in points)) - 0.5
    grid = Plot((low_x, high_x), (low_y, high_y), _WIDTH, _HEIGHT)
    for column in range(_WIDTH):
        log_x = low_x + column * (high_x - low_x) / (_WIDTH - 1)
        roof = min(math.log2(peak), math.log2(bandwidth) + log_x)
        grid.put(log_x, roof, "-" if log_x >= math.log2(ridge) else "/")
    for mark, point in zip(_MARKS, points, strict=False):
        grid.put(math.log2(point.x), math.log2(point.y), mark, beside=_MARKS)
    ends = (units.flops_per_s(2**low_y), units.flops_per_s(2**high_y), f"{2**low_x:.2g}", f"{2**high_x:.3g} FLOP/byte")
    return grid.drawn(*ends, _legend(points, ridge))


def _legend(points: Sequence[Point], ridge: float) -> Iterator[str]:
    for mark, point in zip(_MARKS, points, strict=False):
        limit = "compute" if point.x >= ridge else "memory"
        cached = " (its data came from a cache)" if point.of_roof > 1 and limit == "memory" else ""
        reached = f"{units.percent(point.of_roof)} of the {limit} limit{cached}"
        text = f"{mark}  {point.name}: {point.x:.1f} FLOP/byte, {units.flops_per_s(point.y)}, {reached}"
        yield units.printable(text)
