"""Tables: typed columns over rows.

Every format draws a table from its columns, so a new column is one line.

::

    LAYERS = (
        Column("layer", lambda layer: layer.name, key="layer"),
        Column("saved KiB", lambda layer: layer.saved, units.kibibytes, key="saved_bytes"),
    )
    Table("Layers of convnet", LAYERS, layers)
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from mnistbench.core import units
from mnistbench.showing.text import Code, Text

_Row = TypeVar("_Row")

#: Most characters of a cell.
_LONGEST_CELL = 300


@dataclass(frozen=True)
class Column(Generic[_Row]):
    """A column over rows of one type."""

    heading: str | None  # None: only in CSV and JSON
    value: Callable[[_Row], Any]  # None for a cell without a value, a Text for one with marks
    # Value -> text of a number, drawn at the right; None for a column of words.
    shown: Callable[[Any], str] | None = None
    key: str = ""  # name in CSV and JSON; empty: only in terminal, Markdown and HTML
    # A terminal that is too narrow has none of the columns with the largest number, then none of
    # those with the next one; 0: the column is always there.
    spare: int = 0

    @property
    def is_number(self) -> bool:
        return self.shown is not None

    def cell(self, row: _Row) -> str:
        """Return the text of a cell, without marks. A long one is cut: all rows have its width."""
        return units.cut(self._shown(self.value(row)), _LONGEST_CELL)

    def text(self, row: _Row) -> Text:
        """Return the text of a cell."""
        value = self.value(row)
        if isinstance(value, Text):
            return value
        return Text([value if isinstance(value, Code) else self._shown(value)])

    def _shown(self, value: Any) -> str:
        if value is None:
            return units.MISSING
        return self.shown(value) if self.shown and not isinstance(value, Text) else str(value)


@dataclass(frozen=True)
class Table:
    """A title, columns, rows, rows below the line (sums), and sentences under the table."""

    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    sums: Sequence[Any] = ()
    lines: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # sources of its numbers, below the directory of the report
    # Number of the first row's anchor; None if the rows are no entries of the sources.
    anchors_from: int | None = None
    is_sortable: bool = False  # in a page, by each of its columns

    @property
    def drawn(self) -> list[Column[Any]]:
        """The columns that terminal, Markdown and HTML have."""
        return [column for column in self.columns if column.heading is not None]

    @property
    def headings(self) -> list[str]:
        """The heading of each drawn column."""
        return [column.heading or "" for column in self.drawn]

    @property
    def cells(self) -> list[list[str]]:
        return [[column.cell(row) for column in self.drawn] for row in self.rows]

    @property
    def texts(self) -> list[list[Text]]:
        """The cells of the rows with their marks."""
        return [[column.text(row) for column in self.drawn] for row in self.rows]

    @property
    def sum_cells(self) -> list[list[str]]:
        return [[column.cell(row) for column in self.drawn] for row in self.sums]

    def csv(self) -> str:
        """Return the rows and sums as CSV: the values of the columns that have a key."""
        columns = [column for column in self.columns if column.key]
        rows = ([column.value(row) for column in columns] for row in (*self.rows, *self.sums))
        return csv_text([column.key for column in columns], rows)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows for JSON: key -> value."""
        return [
            {column.key: column.value(row) for column in self.columns if column.key}
            for row in self.rows
        ]


def text_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    sums: Iterable[Sequence[str]] = (),
    lines: Iterable[str] = (),
    numbers_from: int = 1,
    words_after: int = 0,
) -> Table:
    """Return a table whose cells are finished text, for columns that depend on the data.

    Headings are words, then numbers from position ``numbers_from`` on, then ``words_after`` columns
    of words. Sums are the rows below the line.
    """
    numbers = range(numbers_from, len(headings) - words_after)
    columns = [
        Column[Sequence[str]](heading, itemgetter(position), str if position in numbers else None)
        for position, heading in enumerate(headings)
    ]
    return Table(title, columns, tuple(rows), tuple(sums), tuple(lines))


def csv_text(keys: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV. Text that a spreadsheet would run as a formula gets a quote before it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = units.printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
