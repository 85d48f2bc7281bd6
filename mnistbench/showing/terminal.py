"""Draws tables and reports as text for a terminal.

Returns strings; who prints them decides where.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from typing import TextIO

from tabulate import SEPARATING_LINE, tabulate

from mnistbench.core.units import counted, printable
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table

#: Blanks between two columns, and the fewest beside a heading.
_GAP = 2
#: Least width to which a column of words is wrapped, in characters.
_MIN_WIDTH = 20
#: A part of a name or of a sentence, after which a line can end.
_PART = re.compile(r"[^\s,/:_.\[-]*[\s,/:_.\[-]*")

_COLOURS = {
    "regressed": 31,
    "suspect": 33,
    "inconclusive": 33,
    "incomparable": 33,
    "missing": 33,
    "improved": 32,
}


def draw(table: Table, *, colour: bool = False, width: int = 0, leave_out: bool = True) -> str:
    """Return the table: title, headings, rows, a line, the sums, and the sentences below.

    Args:
        table: columns and rows.
        colour: whether verdicts are coloured.
        width: characters of a line, to which headings and words are wrapped; 0 if any number fits.
        leave_out: whether spare columns are left out where wrapping is not enough.
    """
    table, widths = _fitted(table, width, leave_out=leave_out)
    headings, *cells = (
        [
            "\n".join(wrapped(text, most - (0 if number else _GAP)))
            for text, most in zip(row, widths, strict=True)
        ]
        for number, row in enumerate(_texts(table))
    )
    rows = cells[: len(table.rows)]
    sums = cells[len(table.rows) :]
    if colour and table.headings[-1] == "verdict":
        rows, sums = ([[*row[:-1], _coloured(row[-1])] for row in part] for part in (rows, sums))
    drawn = tabulate(
        [*rows, *([SEPARATING_LINE] if rows and sums else []), *sums],
        headers=headings,
        tablefmt="simple",
        disable_numparse=True,  # cells are finished text: 1,234.50 must not become 1234.5
        colalign=["right" if column.is_number else "left" for column in table.drawn],
    )
    return "\n".join(
        [*map(printable, table.title.split("\n")), drawn, *map(printable, table.lines)]
    )


def _texts(table: Table) -> list[list[str]]:
    """Return the headings, and the printable cells of each row."""
    cells = [*table.cells, *table.sum_cells]
    return [table.headings, *([printable(cell) for cell in row] for row in cells)]


def _fitted(table: Table, width: int, *, leave_out: bool) -> tuple[Table, list[int]]:
    """Return the table with the columns that a line has room for, and the width of each.

    A table that cannot fit is as it was: lines that the terminal breaks are easier to read if
    nothing else is broken.
    """
    columns = table.drawn
    texts = list(zip(*_texts(table), strict=True))
    # Headings are wrapped before names are, as far as the cells of their columns are narrower.
    longest = [max(len(heading) + _GAP, *map(len, cells), 1) for heading, *cells in texts]
    least = [
        max(len(max(heading.split(), key=len, default="")) + _GAP, *map(len, cells), 1)
        if column.is_number
        else natural
        if column.spare  # a picture
        else min(natural, _MIN_WIDTH)
        for column, (heading, *cells), natural in zip(columns, texts, longest, strict=True)
    ]
    words = [
        place for place, column in enumerate(columns) if not (column.is_number or column.spare)
    ]
    places = list(range(len(columns)))

    def room(widths: list[int]) -> int:
        return width - sum(widths[place] + _GAP for place in places) + _GAP

    if not width or room(longest) >= 0:
        return table, longest
    numbers = sorted({column.spare for column in columns if column.spare}) if leave_out else []
    while numbers and room(least) < 0:
        places = [place for place in places if columns[place].spare != numbers[-1]]
        del numbers[-1]
    if leave_out and room(least) < 0:
        return table, longest
    widths = [longest[place] if place in words else least[place] for place in range(len(columns))]
    while room(widths) < 0 and (wide := [place for place in words if widths[place] > least[place]]):
        widths[max(wide, key=lambda place: widths[place])] -= 1
    if left_out := len(columns) - len(places):
        does, them = ("does", "it") if left_out == 1 else ("do", "them")
        line = (
            f"{counted(left_out, 'column')} {does} not fit in a line of {width} characters; a "
            f"wider terminal or a file (--output) has {them}"
        )
        table = replace(
            table,
            columns=[columns[place] for place in places],
            lines=(*table.lines, line),
        )
    return table, [widths[place] for place in places]


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of at most ``width`` characters, broken between its parts if it can.

    Parts end with a blank or with a sign between the parts of a name.
    """
    if len(text) <= width:
        return [text]
    lines = [""]
    for part in filter(None, _PART.findall(text)):
        if len(lines[-1] + part.rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
        while len(lines[-1].rstrip()) > width:
            lines.append(lines[-1][width:])
            lines[-2] = lines[-2][:width]
    return [line.rstrip() for line in lines]


def draw_report(blocks: Iterable[Block], *, colour: bool = False, width: int = 0) -> str:
    """Return a whole report; ``width`` is that of a line, as in :func:`draw`."""
    parts = []
    for block in blocks:
        if block.lines or block.drawing:
            heading = [f"{block.title}:"] if block.title else []
            parts.append(
                "\n".join(
                    [
                        *heading,
                        *(printable(str(line)) for line in block.lines),
                        *([block.drawing] if block.drawing else []),
                    ]
                )
            )
        parts.extend(draw(table, colour=colour, width=width) for table in block.tables)
    return "\n\n".join(parts)


def colours(stream: TextIO) -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def line_width(stream: TextIO) -> int:
    """Return the characters of a line: those of a terminal, any number (0) in a file or a pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def _coloured(text: str) -> str:
    colour = _COLOURS.get(text.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0])
    lines = text.split("\n")
    return "\n".join(f"\x1b[{colour}m{line}\x1b[0m" for line in lines) if colour else text
