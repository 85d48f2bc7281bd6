"""Draws tables and reports as text for a terminal.

Returns strings; who prints them decides where.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TextIO

from tabulate import SEPARATING_LINE, tabulate

from mnistbench.core.units import printable
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table

_COLOURS = {
    "regressed": 31,
    "suspect": 33,
    "inconclusive": 33,
    "incomparable": 33,
    "missing": 33,
    "improved": 32,
}


def draw(table: Table, *, colour: bool = False) -> str:
    """Return the table: title, headings, rows, a line, the sums, and the sentences below."""
    rows, sums = (
        [[printable(cell) for cell in row] for row in part]
        for part in (table.cells, table.sum_cells)
    )
    if colour and table.headings[-1] == "verdict":
        rows, sums = ([[*row[:-1], _coloured(row[-1])] for row in part] for part in (rows, sums))
    drawn = tabulate(
        [*rows, *([SEPARATING_LINE] if rows and sums else []), *sums],
        headers=table.headings,
        tablefmt="simple",
        disable_numparse=True,  # cells are finished text: 1,234.50 must not become 1234.5
        colalign=["right" if column.is_number else "left" for column in table.drawn],
    )
    return "\n".join(
        [*map(printable, table.title.split("\n")), drawn, *map(printable, table.lines)]
    )


def draw_report(blocks: Iterable[Block], *, colour: bool = False) -> str:
    """Return a whole report."""
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
        parts.extend(draw(table, colour=colour) for table in block.tables)
    return "\n\n".join(parts)


def colours(stream: TextIO) -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _coloured(text: str) -> str:
    colour = _COLOURS.get(text.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0])
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text
