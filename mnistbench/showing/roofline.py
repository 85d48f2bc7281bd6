"""A roofline plot made of characters: FLOP/s over FLOP per byte, both logarithmic.

Williams, Waterman and Patterson, "Roofline", CACM 52 (2009) 65.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence

from mnistbench.core import units
from mnistbench.core.roofline import Ceilings, Point

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
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def put(log_x: float, log_y: float, mark: str) -> None:
        column = round((log_x - low_x) / (high_x - low_x) * (_WIDTH - 1))
        line = round((high_y - log_y) / (high_y - low_y) * (_HEIGHT - 1))
        while grid[line][column] in _MARKS and column < _WIDTH - 1:  # move a second operation of one place to the right
            column += 1
        grid[line][column] = mark

    for column in range(_WIDTH):
        log_x = low_x + column * (high_x - low_x) / (_WIDTH - 1)
        put(log_x, min(math.log2(peak), math.log2(bandwidth) + log_x), "-" if log_x >= math.log2(ridge) else "/")
    for mark, point in zip(_MARKS, points, strict=False):
        put(math.log2(point.x), math.log2(point.y), mark)
    labels = [units.flops_per_s(2**high_y), *[""] * (_HEIGHT - 2), units.flops_per_s(2**low_y)]
    width = max(map(len, labels))
    left, right = f"{2**low_x:.2g}", f"{2**high_x:.3g} FLOP/byte"
    lines = [f"{label:>{width}} |{''.join(line).rstrip()}" for label, line in zip(labels, grid, strict=True)]
    lines += [f"{'':{width}} +{'-' * _WIDTH}", f"{'':{width}}  {left}{right:>{_WIDTH - len(left)}}"]
    return "\n".join([*lines, *_legend(points, ridge)])


def _legend(points: Sequence[Point], ridge: float) -> Iterator[str]:
    for mark, point in zip(_MARKS, points, strict=False):
        limit = "compute" if point.x >= ridge else "memory"
        cached = " (its data came from a cache)" if point.of_roof > 1 and limit == "memory" else ""
        reached = f"{units.percent(point.of_roof)} of the {limit} limit{cached}"
        text = f"{mark}  {point.name}: {point.x:.1f} FLOP/byte, {units.flops_per_s(point.y)}, {reached}"
        yield units.printable(text)
