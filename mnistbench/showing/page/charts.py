"""Compute the geometry of charts from numbers, in the units of an SVG view box.

``web/charts.html`` draws it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.core.record import median

SPARK_WIDTH = 120
SPARK_HEIGHT = 24

#: Width of the whole picture of a line chart, in pixels.
LINES_WIDTH = 440
#: Height of the whole picture of a line chart, in pixels.
LINES_HEIGHT = 220
#: Margin of a line chart for the text at the left axis, in pixels.
LEFT = 56
#: Margin of a line chart at the right, in pixels.
RIGHT = 12
#: Margin of a line chart at the top, in pixels.
TOP = 8
#: Margin of a line chart for the text at the lower axis, in pixels.
BOTTOM = 36

#: Width of the whole picture of stacked bars, in pixels.
BARS_WIDTH = 720
#: Height of a row of a bar, in pixels.
BAR_HEIGHT = 26
#: Gap between two bars, in pixels.
BAR_GAP = 12
#: Margin for the name of a bar at the left, in pixels.
BAR_LEFT = 56
#: Margin for the sum of a bar at the right, in pixels.
BAR_RIGHT = 84
#: Smallest width of a segment that shows its number.
NUMBER_WIDTH = 18

#: Width of a forest plot, in pixels.
FOREST_WIDTH = 220
#: Height of a row of a forest plot, in pixels.
FOREST_HEIGHT = 26
#: Margin of a forest plot at each end, for the arrow of an interval that is cut off, in pixels.
FOREST_MARGIN = 8
#: Least distance of two ticks of a forest plot, and twice that of a tick from the end, in pixels.
FOREST_TICKS = 45
#: Largest change that a forest plot shows, as a share; larger ones are cut off at its edge.
WIDEST_CHANGE = 10.0
#: Largest bound that a forest plot makes room for, as a share, unless the change is half of it.
WIDEST_BOUND = 1.0

#: Approximate number of ticks of an axis.
TICKS = 5
#: Smallest range with an axis: below it, floats have no round numbers between or around the values.
_MIN_REACH = 1e-300
#: Largest range with an axis: above it, floats have no round numbers around the values.
_LARGEST_REACH = 1e300


def sparkline(values: Sequence[float]) -> str:
    """Return the points of a line through the values.

    The smallest value is at the bottom, the largest one at the top.
    """
    low = min(values, default=0)
    high = max(values, default=0)
    return _points(
        (
            _scale(position, 0, max(1, len(values) - 1), 1, SPARK_WIDTH - 1),
            _scale(value, low, high, SPARK_HEIGHT - 2, 2) if high > low else SPARK_HEIGHT / 2,
        )
        for position, value in enumerate(values)
    )


# ---- Curves --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnLine:
    """One curve."""

    name: str
    parts: tuple[str, ...]  # points of each unbroken part
    dots: tuple[tuple[float, float], ...]  # values without a neighbor
    last: str  # the last value as text


@dataclass(frozen=True)
class LineChart:
    """Curves over a common axis of steps."""

    title: str
    across: str  # unit of the horizontal axis
    lines: tuple[DrawnLine, ...]
    across_ticks: tuple[tuple[float, str], ...]  # position and text
    up_ticks: tuple[tuple[float, str], ...]


Curve = Sequence[tuple[int, float | None]]


def line_chart(
    title: str, across: str, curves: Iterable[tuple[str, Curve, str]]
) -> LineChart | None:
    """Return curves on common axes; None where no curve has a value.

    A curve has a name, points (step, value; None where it was not finite) and the last value as
    text.
    """
    named = list(curves)
    points = [(step, value) for _, curve, _ in named for step, value in curve if value is not None]
    if not points:
        return None
    steps, values = zip(*points, strict=True)
    x_low = min(steps)
    x_high = max(steps)
    across_ticks = _ticks(x_low, x_high, whole=True)
    up_ticks = _ticks(min(values), max(values))
    y_low = min(up_ticks[0], *values)
    y_high = max(up_ticks[-1], *values)

    def x(step: float) -> float:
        return _scale(step, x_low, x_high, LEFT, LINES_WIDTH - RIGHT)

    def y(value: float) -> float:
        return _scale(value, y_low, y_high, LINES_HEIGHT - BOTTOM, TOP)

    def line(name: str, curve: Curve, last: str) -> DrawnLine:
        parts = [[(x(step), y(value)) for step, value in part] for part in _unbroken(curve)]
        return DrawnLine(
            name=name,
            parts=tuple(_points(part) for part in parts if len(part) > 1),
            dots=tuple(
                (round(part[0][0], 1), round(part[0][1], 1)) for part in parts if len(part) == 1
            ),
            last=last,
        )

    return LineChart(
        title=title,
        across=across,
        lines=tuple(line(*one) for one in named),
        across_ticks=_drawn(across_ticks, x),
        up_ticks=_drawn(up_ticks, y),
    )


def _unbroken(curve: Curve) -> Iterable[list[tuple[int, float]]]:
    """Yield the parts between values that are not finite."""
    for _, part in itertools.groupby(curve, key=lambda point: point[1] is None):
        if finite := [(step, value) for step, value in part if value is not None]:
            yield finite


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return about TICKS round numbers inside the range or just below it.

    Their distance is 1, 2 or 5 times a power of ten.
    """
    reach = high - low
    if not _MIN_REACH < reach < _LARGEST_REACH:
        return [low]
    least = reach / TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step) if whole else math.floor(low / step)
    # Between two values that differ in their last bit, several multiples are the same float.
    ticks = list(
        dict.fromkeys(number * step for number in range(first, math.floor(high / step) + 1))
    )
    return ticks or [low]


def _drawn(
    ticks: Sequence[float], place: Callable[[float], float]
) -> tuple[tuple[float, str], ...]:
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) or 1.0
    return tuple((round(place(tick), 1), units.tick(tick, step)) for tick in ticks)


# ---- Bars ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """A part of a bar."""

    kind: str  # its place among the parts, from 1; other; outside
    x: float
    width: float
    text: str  # shown when the pointer is over it

    @property
    def number(self) -> str:
        """The text inside the segment; empty if it is too narrow."""
        return self.kind if self.kind.isdigit() and self.width >= NUMBER_WIDTH else ""


@dataclass(frozen=True)
class StackedBar:
    """A bar of stacked parts."""

    name: str
    y: float
    segments: tuple[Segment, ...]
    end: float  # right end
    total: str


@dataclass(frozen=True)
class BarChart:
    """Bars below each other, on one scale."""

    name: str  # quantity that the length shows
    height: float
    bars: tuple[StackedBar, ...]


def bar_chart(
    name: str, stacks: Sequence[tuple[str, Sequence[tuple[str, float, str]], str]]
) -> BarChart:
    """Return stacked bars, scaled so that the longest takes the whole width.

    ``stacks`` has for each bar its name, its parts (kind, length, text) and its total as text.
    """
    longest = max((sum(length for _, length, _ in parts) for _, parts, _ in stacks), default=0.0)
    bars = []
    for position, (title, parts, total) in enumerate(stacks):
        segments = []
        reached = 0.0
        for kind, length, text in parts:
            start, end = (
                _scale(value, 0, longest, BAR_LEFT, BARS_WIDTH - BAR_RIGHT)
                for value in (reached, reached + length)
            )
            segments.append(Segment(kind, round(start, 1), round(end - start, 1), text))
            reached += length
        end = _scale(reached, 0, longest, BAR_LEFT, BARS_WIDTH - BAR_RIGHT)
        bars.append(
            StackedBar(
                title, position * (BAR_HEIGHT + BAR_GAP), tuple(segments), round(end, 1), total
            )
        )
    return BarChart(name, len(stacks) * (BAR_HEIGHT + BAR_GAP) - BAR_GAP, tuple(bars))


# ---- Intervals -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A change with its bounds, as shares: 0.05 is 5 % more."""

    low: float
    change: float
    high: float


@dataclass(frozen=True)
class DrawnInterval:
    """A row of a forest plot."""

    path: str  # from the lower to the upper bound, with an arrow where it is cut off
    x: float  # of the change


@dataclass(frozen=True)
class ForestAxis:
    """The axis of a forest plot: linear near 0, and logarithmic far from it (area hyperbolic sine).

    Small and large changes are told apart on one axis: a regression of 200 % does not reduce
    intervals of 2 % to a point.
    """

    low: float
    high: float
    linear: float  # about up to this share the axis is linear

    @classmethod
    def of(cls, intervals: Iterable[Interval], threshold: float) -> ForestAxis:
        """Return the axis that has room for the intervals, and for twice the threshold."""
        lowest = -2 * threshold
        highest = 2 * threshold
        for interval in intervals:
            change = min(interval.change, WIDEST_CHANGE)
            high = min(interval.high, max(WIDEST_BOUND, 2 * change))
            lowest = min(lowest, interval.change, interval.low)
            highest = max(highest, change, high)
        return cls(max(-1.0, lowest), highest, threshold)

    def x(self, change: float) -> float:
        """Return the position of a change; of one beyond the axis that of its end."""
        low, value, high = (
            math.asinh(share / self.linear)
            for share in (self.low, max(self.low, min(change, self.high)), self.high)
        )
        return round(_scale(value, low, high, FOREST_MARGIN, FOREST_WIDTH - FOREST_MARGIN), 1)

    def drawn(self, interval: Interval) -> DrawnInterval:
        """Return the row of an interval."""
        left = self.x(interval.low)
        right = self.x(interval.high)
        middle = FOREST_HEIGHT / 2
        start = "m4-4-4 4 4 4-4-4" if interval.low < self.low else ""
        end = "m-4-4 4 4-4 4" if interval.high > self.high else ""
        return DrawnInterval(f"M{left:g} {middle:g}{start}H{right:g}{end}", self.x(interval.change))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Position and text of round changes, 0 among them, that are far enough from each other."""
        ticks = [(self.x(0.0), "0")]
        for sign, edge in ((1, self.high), (-1, -self.low)):
            last_x = self.x(0.0)
            for share in _ROUND_SHARES:
                x = self.x(sign * share)
                has_room = FOREST_TICKS / 2 <= x <= FOREST_WIDTH - FOREST_TICKS / 2
                if has_room and share <= edge and abs(x - last_x) >= FOREST_TICKS:
                    ticks.append((x, f"{sign * share * 100:+g} %"))
                    last_x = x
        return sorted(ticks)


#: Changes at which an axis of intervals may have a tick: 0.1 %, 0.2 %, 0.5 %, 1 %, ..., 1,000 %.
_ROUND_SHARES = [
    step * 10.0**power for power in range(-3, 2) for step in (1, 2, 5) if step * 10.0**power <= 10
]


# ---- All charts ----------------------------------------------------------------------------------


def median_at(values: Sequence[float]) -> float:
    """Return the vertical position of the median in :func:`sparkline`, from the top."""
    low = min(values, default=0)
    high = max(values, default=0)
    return (
        round(_scale(median(values), low, high, SPARK_HEIGHT - 2, 2), 1)
        if high > low
        else SPARK_HEIGHT / 2
    )


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    """Return the position of a value between start and end.

    Start if the range is empty or too large for an axis.
    """
    return (
        start + (value - low) / (high - low) * (end - start)
        if _MIN_REACH < high - low < _LARGEST_REACH
        else start
    )


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
