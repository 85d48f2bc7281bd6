"""Plots made of characters: where marks are put, labels of axes, bars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.showing.plot import BAR, Plot, bars, beside


def test_plot_has_marks_labels_and_a_legend():
    plot = Plot((0, 4), (0, 2), width=9, height=3)
    for x, y, mark in ((0, 0, "o"), (2, 1, "o"), (4, 2, "x")):
        plot.put(x, y, mark)
    assert plot.drawn("0", "2.0", "0", "4 ranks", ["o  measured"]).splitlines() == [
        "2.0 |        x",
        "    |    o",
        "  0 |o",
        "    +---------",
        "     0 4 ranks",
        "o  measured",
    ]


def test_mark_moves_to_the_right_of_one_that_stays_visible():
    plot = Plot((0, 4), (0, 1), width=5, height=2)
    plot.put(1, 0, "-")
    for mark in "abc":
        plot.put(1, 0, mark, beside="abc")
    assert plot.drawn("", "", "", "").splitlines()[1] == " | abc"


@given(st.floats(-1e6, 1e6), st.floats(0, 1), st.floats(0, 1))
def test_values_between_the_ends_are_in_the_grid(low, x, y):
    plot = Plot((low, low + 3), (low, low + 5), width=7, height=4)
    plot.put(low + 3 * x, low + 5 * y, "o")
    assert plot.drawn("", "", "", "").count("o") == 1


def test_bars_are_joined_with_the_names_of_their_rows():
    misses = bars("misses", [("1.000", [(1.0, "x")]), ("0.500", [(0.5, "x")])], 1.0)
    times = bars("ns", [("4.000", [(1.0, "="), (3.0, "x")]), ("0.000", [(0.0, "x")])], 4.0)
    assert beside(["ijk", "i"], misses, times) == "\n".join(
        [
            "             misses                            ns",
            f"ijk   1.000 |{'x' * 24}   4.000 |{'=' * 6}{'x' * 18}",
            f"i     0.500 |{'x' * 12}{' ' * 12}   0.000 |",
        ]
    )


@pytest.mark.parametrize("parts", [3, 7])
def test_rounded_parts_of_a_bar_sum_to_its_length(parts):
    [_, line] = bars("", [("", [(1.0, "x")] * parts)], parts)
    assert line.count("x") == BAR
