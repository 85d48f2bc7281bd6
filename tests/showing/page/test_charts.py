"""Geometry of charts: positions of points, ticks and bars."""

import itertools
import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import ANY_SPEED, NUMBERS

from mnistbench.showing.page import charts
from mnistbench.showing.page.charts import (
    ForestAxis,
    Interval,
    bar_chart,
    line_chart,
    median_at,
    sparkline,
)


def points(text):
    return [tuple(map(float, point.split(","))) for point in text.split()]


def texts(ticks):
    return [text for _, text in ticks]


# ---- sparklines ----------------------------------------------------------------------------------


def test_a_sparkline_has_the_smallest_value_at_the_bottom():
    assert sparkline([5, 9, 7]) == "1.0,22.0 60.0,2.0 119.0,12.0"


def test_a_sparkline_of_equal_values_is_level():
    assert {y for _, y in points(sparkline([5, 5, 5]))} == {charts.SPARK_HEIGHT / 2}
    assert sparkline([]) == ""


def test_the_median_is_on_the_scale_of_the_sparkline():
    assert median_at([5, 9, 7]) == 12.0
    assert median_at([5, 5]) == median_at([]) == charts.SPARK_HEIGHT / 2


@ANY_SPEED
@given(st.lists(st.integers(0, 2**63), max_size=100))
def test_a_sparkline_is_inside_its_box(values):
    positions = points(sparkline(values))
    assert len(positions) == len(values)
    assert all(0 <= x <= charts.SPARK_WIDTH and 0 <= y <= charts.SPARK_HEIGHT for x, y in positions)


# ---- curves --------------------------------------------------------------------------------------


def test_a_curve_spans_its_axes():
    chart = line_chart("loss", "step", [("train", [(1, 2.0), (51, 0.5), (101, 0.0)], "0")])
    (line,) = chart.lines
    assert points(line.parts[0])[0] == (charts.LEFT, charts.TOP)
    assert points(line.parts[0])[-1] == (
        charts.LINES_WIDTH - charts.RIGHT,
        charts.LINES_HEIGHT - charts.BOTTOM,
    )
    assert texts(chart.up_ticks) == ["0.0", "0.5", "1.0", "1.5", "2.0"]
    assert texts(chart.across_ticks) == ["20", "40", "60", "80", "100"]


def test_a_missing_value_breaks_the_curve_and_a_single_one_is_a_dot():
    chart = line_chart("loss", "step", [("train", [(1, 1.0), (2, 2.0), (3, None), (4, 1.5)], "")])
    (line,) = chart.lines
    assert [len(points(part)) for part in line.parts] == [2]
    assert len(line.dots) == 1


def test_without_a_value_there_is_no_chart():
    assert line_chart("loss", "step", []) is None
    assert line_chart("loss", "step", [("train", [], ""), ("test", [(1, None)], "")]) is None


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 0.32, ["0.10", "0.15", "0.20", "0.25", "0.30"]),
        (0, 1_000_000, ["0", "200,000", "400,000", "600,000", "800,000", "1,000,000"]),
        (-1, 1, ["-1.0", "-0.5", "0.0", "0.5", "1.0"]),
        (3, 3, ["3"]),
        (2.5e-9, 3.5e-9, ["2.4e-09", "2.6e-09", "2.8e-09", "3e-09", "3.2e-09", "3.4e-09"]),
    ],
)
def test_ticks_are_round_numbers(low, high, expected):
    chart = line_chart("x", "step", [("a", [(0, low), (1, high)], "")])
    assert texts(chart.up_ticks) == expected


@ANY_SPEED
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63), st.none() | NUMBERS), max_size=20))
@example([(0, math.nextafter(sys.float_info.max, 0)), (0, sys.float_info.max)])
def test_any_curve_is_inside_its_box(curve):
    chart = line_chart("x", "step", [("a", curve, "")])
    if chart is None:
        assert all(value is None for _, value in curve)
        return
    (line,) = chart.lines
    positions = [point for part in line.parts for point in points(part)] + list(line.dots)
    assert len(positions) == sum(value is not None for _, value in curve)
    marks = [(at, charts.TOP) for at, _ in chart.across_ticks] + [
        (charts.LEFT, at) for at, _ in chart.up_ticks
    ]
    assert all(math.isfinite(x) and 0 <= x <= charts.LINES_WIDTH for x, _ in positions + marks)
    assert all(math.isfinite(y) and 0 <= y <= charts.LINES_HEIGHT for _, y in positions + marks)
    assert 1 <= len(chart.up_ticks) <= 3 * charts.TICKS


# ---- bars ----------------------------------------------------------------------------------------


def test_bars_have_one_scale_and_the_longest_takes_the_width():
    chart = bar_chart(
        "time",
        [("b1", (("1", 10, "a"), ("other", 30, "b")), "40"), ("b16", (("1", 20, "a"),), "20")],
    )
    width = charts.BARS_WIDTH - charts.BAR_LEFT - charts.BAR_RIGHT
    assert [[segment.width for segment in bar.segments] for bar in chart.bars] == [
        [width / 4, 3 * width / 4],
        [width / 2],
    ]
    assert [bar.segments[0].x for bar in chart.bars] == [charts.BAR_LEFT] * 2
    assert chart.bars[0].segments[1].x == charts.BAR_LEFT + width / 4
    assert chart.height == 2 * charts.BAR_HEIGHT + charts.BAR_GAP


def test_a_segment_shows_its_number_if_it_is_wide_enough():
    chart = bar_chart("time", [("b1", (("1", 1, "a"), ("2", 1_000, "b"), ("other", 500, "c")), "")])
    assert [segment.number for segment in chart.bars[0].segments] == ["", "2", ""]


def test_bars_of_nothing_have_no_width():
    chart = bar_chart("time", [("b1", (("1", 0, "a"),), "0")])
    assert [segment.width for segment in chart.bars[0].segments] == [0]


# ---- intervals -----------------------------------------------------------------------------------

LEFT_END = charts.FOREST_MARGIN
RIGHT_END = charts.FOREST_WIDTH - charts.FOREST_MARGIN


def test_an_axis_of_quiet_intervals_has_room_for_twice_the_threshold():
    axis = ForestAxis.of([Interval(-0.01, 0.0, 0.01)], 0.02)
    assert (axis.x(-0.04), axis.x(0.0), axis.x(0.04)) == (LEFT_END, 110, RIGHT_END)
    assert [text for _, text in axis.ticks] == ["-2 %", "0", "+2 %"]


def test_a_large_change_does_not_reduce_small_intervals_to_points():
    small = Interval(-0.01, 0.0, 0.01)
    axis = ForestAxis.of([small, Interval(1.9, 2.0, 2.1)], 0.02)
    assert axis.x(2.1) == RIGHT_END
    assert axis.x(small.high) - axis.x(small.low) > 2 * 8  # the circle of the change


@pytest.mark.parametrize(
    ("interval", "end"),
    [
        (Interval(0.1, 0.2, 30.0), "H212m-4-4 4 4-4 4"),
        (Interval(0.1, 40.0, 50.0), "H212m-4-4 4 4-4 4"),
        (Interval(math.inf, math.inf, math.inf), "H212m-4-4 4 4-4 4"),
        (Interval(0.1, 0.2, 0.3), "H212"),
    ],
)
def test_an_interval_beyond_the_axis_ends_in_an_arrow(interval, end):
    axis = ForestAxis.of([interval], 0.02)
    assert axis.drawn(interval).path.endswith(end)


def test_an_interval_that_is_cut_off_at_the_left_begins_with_an_arrow():
    axis = ForestAxis(-0.04, 0.04, 0.02)
    assert axis.drawn(Interval(-0.5, -0.3, -0.02)).path == "M8 13m4-4-4 4 4 4-4-4H47.7"


@ANY_SPEED
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=20), st.floats(0.001, 1.0))
def test_any_interval_is_inside_its_plot_and_ticks_do_not_overlap(bounds, threshold):
    intervals = [Interval(*sorted(max(-1.0, bound) for bound in row)) for row in bounds]
    axis = ForestAxis.of(intervals, threshold)
    for interval in intervals:
        ends = [axis.x(share) for share in (interval.low, interval.change, interval.high)]
        assert LEFT_END <= ends[0] <= ends[1] <= ends[2] <= RIGHT_END
    places = [x for x, _ in axis.ticks]
    assert all(
        second - first >= charts.FOREST_TICKS for first, second in itertools.pairwise(places)
    )
    assert any(text == "0" for _, text in axis.ticks)
