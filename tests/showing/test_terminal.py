"""Tables that fit a terminal."""

import os
import pty
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core import units
from mnistbench.showing.output import deliver
from mnistbench.showing.report import Block, Report
from mnistbench.showing.table import Column, Table
from mnistbench.showing.terminal import draw, wrapped

NAME = "bench/test_step.py::test_step[convnet-b16-cpu-float32-reference-digits]"
ROW = (NAME, 4.05e6, "[      |   (*)  ]", 0.078, "regressed, confirmed by fresh trials")
COLUMNS = (
    Column("case", lambda row: row[0]),
    Column("base", lambda row: row[1], units.duration),
    Column("-8.0 %   0   +8.0 %", lambda row: row[2], spare=2),
    Column("slowdown below", lambda row: row[3], units.percent, spare=1),
    Column("verdict", lambda row: row[4]),
)
TABLE = Table("cases", COLUMNS, [ROW, ("short", *ROW[1:])])


def widest(text):
    """The length of the longest line, without the sentences below a table."""
    return max(len(line) for line in text.split("\n") if "not fit in" not in line)


def whole(text):
    """All that a drawing has, without the blanks and the lines of the table."""
    return sorted(text.replace(" ", "").replace("-", "").replace("\n", ""))


@pytest.mark.parametrize("width", [0, 200])
def test_a_table_with_enough_room_is_not_changed(width):
    assert draw(TABLE, width=width) == draw(TABLE)


def test_names_and_headings_are_wrapped_and_nothing_is_lost():
    drawn = draw(TABLE, width=110)
    assert widest(drawn) <= 110 < widest(draw(TABLE))
    assert whole(drawn) == whole(draw(TABLE))
    assert "slowdown below" not in drawn


def test_spare_columns_are_left_out_before_the_table_exceeds_the_terminal():
    assert widest(drawn := draw(TABLE, width=70)) <= 70
    assert "[      |" not in drawn
    assert "7.8 %" in drawn
    assert drawn.endswith(
        "1 column does not fit in a line of 70 characters; a wider terminal or a file "
        "(--output) has it"
    )
    drawn = draw(TABLE, width=58)
    assert "7.8 %" not in drawn
    assert drawn.endswith(
        "2 columns do not fit in a line of 58 characters; a wider terminal or a file "
        "(--output) has them"
    )


def test_a_file_keeps_all_columns():
    drawn = draw(TABLE, width=70, leave_out=False)
    assert whole(drawn) == whole(draw(TABLE))
    assert widest(drawn) < widest(draw(TABLE))


def test_a_table_that_cannot_fit_is_left_to_the_terminal():
    numbers = Table("", [Column("n", str, str)] * 40, [1_000])
    assert draw(numbers, width=80) == draw(numbers)


@given(st.text(st.characters(codec="ascii", categories=["L", "P", "Zs"])), st.integers(1, 30))
def test_wrapped_lines_have_the_text_and_no_line_is_too_long(text, width):
    lines = wrapped(text, width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_name_is_broken_between_its_parts():
    assert wrapped("aten::mkldnn_convolution, forward conv2", 26) == [
        "aten::mkldnn_convolution,",
        "forward conv2",
    ]
    assert wrapped("tests/test_step.py::test_step", 20) == ["tests/test_step.py::", "test_step"]


@pytest.mark.parametrize("width", [58, 70, 110])
def test_a_printed_report_fits_its_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "rb"), os.fdopen(terminal, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        deliver(Report("", [Block("", (), (TABLE,))]), "terminal", None)
        stream.flush()
        shown = os.read(controller, 100_000).decode().replace("\r\n", "\n")
    assert widest(re.sub("\x1b\\[[0-9]+m", "", shown)) <= width
    assert "slowdown below" not in shown
    assert ("(*)" in shown) == (width == 110)


def test_a_report_in_a_file_or_a_pipe_has_all_columns(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", "70")
    report = Report("", [Block("", (), (TABLE,))])
    deliver(report, "terminal", tmp_path / "report.txt")
    deliver(report, "terminal", None)
    assert (
        capsys.readouterr().out
        == (tmp_path / "report.txt").read_text(encoding="utf-8")
        == f"{draw(TABLE)}\n"
    )
