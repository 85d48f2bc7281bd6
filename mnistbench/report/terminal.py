"""Draws tables as text for a terminal. Returns strings; who prints them decides where."""

from __future__ import annotations

from tabulate import SEPARATING_LINE, tabulate

from mnistbench.report.rows import Table


def draw(table: Table) -> str:
    """Return the table: title, heads, rows, a line, the sums, and the sentences below."""
    body = [*table.rows, *([SEPARATING_LINE] if table.rows and table.sums else []), *table.sums]
    columns = len(table.headers)
    drawn = tabulate(
        body,
        headers=table.headers,
        tablefmt="simple",
        disable_numparse=True,  # cells are finished text: 1,234.50 must not become 1234.5
        colalign=["left"] * table.numbers_from + ["right"] * (columns - table.numbers_from),
    )
    return "\n".join([table.title, drawn, *table.lines])
