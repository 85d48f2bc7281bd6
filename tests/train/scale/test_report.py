"""What ``mnistbench scale`` prints, against files in golden/, and where the figure has its points."""

from __future__ import annotations

import pytest
from scale_builders import launched, scaling

from mnistbench.showing.markdown import markdown_report
from mnistbench.showing.terminal import draw_report
from mnistbench.train.scale.report import blocks, figure, table
from mnistbench.train.scale.result import WEAK


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("strong", scaling()),
        ("weak", scaling(launched(1, 80), launched(2, 100, 102, samples=128), scaling=WEAK)),
        ("without_one", scaling(launched(2, 50, 45), launched(3, 40, 35), cores=8)),
    ],
)
def test_a_report(golden, name, found):
    golden(draw_report(blocks(found)) + "\n", f"scale_{name}.txt")


def test_markdown(golden):
    golden(markdown_report(blocks(scaling()), "strong scaling over ranks"), "scale.markdown")


def places(drawing):
    """Return the column and the height above the axis of each mark."""
    lines = [line.partition("|")[2] for line in drawing.split("\n") if "|" in line]
    found = {}
    for height, line in enumerate(reversed(lines)):
        for column, mark in enumerate(line):
            found.setdefault(mark, []).append((column, height))
    return found


def test_points_are_below_the_ideal_line_as_far_as_they_are_slower():
    found = places(figure(scaling()))
    (_, one), (_, two) = sorted(found["o"])
    [(right, four)] = found["x"]
    assert (one, two, four) == pytest.approx([1 / 4 * 14, 1.6 / 4 * 14, 80 / 60 / 4 * 14], abs=0.5)
    assert max(found["."]) == (right, 14)


def test_one_number_of_ranks_is_a_figure_too():
    assert places(figure(scaling(launched(1, 80))))["o"] == [(56, 14)]


def test_a_row_that_is_oversubscribed_says_so_and_has_no_efficiency():
    heads = table(scaling()).headers
    rows = [dict(zip(heads, row, strict=True)) for row in table(scaling()).rows]
    assert [(row["efficiency"], row["note"]) for row in rows] == [("100.0 %", ""), ("80.0 %", ""), ("-", "oversubscribed")]
    assert [row["exposed communication"] for row in rows] == ["-", "5.00 ms", "12.0 ms"]
