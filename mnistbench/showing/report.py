"""A report: sentences, tables, plots and figures, and the data behind them. Formats draw it.

A :class:`Report` is what a command prints, in blocks. A :class:`Document` is a paper with numbered
sections, figures and sources, which is written to a directory.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mnistbench import __version__
from mnistbench.showing.table import Table
from mnistbench.showing.text import Cited, Text

#: Version of the JSON of reports.
REPORT = 1

#: Begins a line that belongs to the line above it: once for each level.
INDENT = "  "


@dataclass(frozen=True)
class Block:
    """A part of a report: a heading, sentences, a drawing made of characters, tables."""

    title: str
    lines: tuple[str | Text, ...] = ()
    tables: tuple[Table, ...] = ()
    drawing: str = ""


@dataclass(frozen=True)
class Report:
    """What a command shows."""

    heading: str  # of the Markdown
    blocks: Sequence[Block]
    data: Mapping[str, Any] = field(default_factory=dict)  # the JSON; see document
    table: Table | None = None  # the CSV; None for reports without one
    # Markdown has the tables as on a terminal: a plot made of characters needs their width.
    drawn: bool = False
    limit: tuple[int, str] | None = None  # most bytes of the Markdown, and how to see what is cut
    html: Callable[[], str] | None = None  # makes the HTML page; None for reports without one
    # What the Markdown has above the blocks, which are then folded; None if they are not.
    first_lines: Sequence[Text] | None = None

    @property
    def json(self) -> str:
        return json.dumps(self.data, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Figure:
    """A picture of a document: ``figures/<name>.svg`` and ``.png``."""

    name: str
    caption: str  # also the alternative text
    files: tuple[str, ...] = ()  # sources of its numbers, below the directory of the document


#: A paragraph, a list of sentences, a table or a figure.
Part = Text | list[Text] | Table | Figure


@dataclass(frozen=True)
class Section:
    """A heading of a document, and what is below it."""

    name: str
    title: str
    parts: tuple[Part, ...]

    @property
    def texts(self) -> Iterator[Text]:
        """All sentences and cells, in their order."""
        for part in self.parts:
            match part:
                case Text():
                    yield part
                case list():
                    yield from part
                case Table():
                    yield from (cell for row in part.texts for cell in row)


@dataclass(frozen=True)
class Document:
    """A paper, in one language."""

    title: str
    language: str  # code of HTML's lang attribute
    source: str  # suffix of captions, with the placeholder {files}
    sections: tuple[Section, ...]

    @functools.cached_property
    def entries(self) -> dict[Cited, int]:
        """The entry of each cited number, from 1, in the order in which a reader meets them."""
        return entries_of(self.sections)


def entries_of(sections: Iterable[Section]) -> dict[Cited, int]:
    """Return the entry of each cited number: from 1, in the order of the sections."""
    cited = (number for section in sections for text in section.texts for number in text.cited)
    return {number: entry for entry, number in enumerate(dict.fromkeys(cited), 1)}


def document(name: str, **values: Any) -> dict[str, Any]:
    """Return the JSON object of a report: its name, the version of mnistbench, and the values.

    The reports of all commands are one format, version 1 of ``REPORT``: a program reads the keys
    that it knows. The version is raised when a key is removed or renamed, or its meaning, type or
    unit changes, and docs/schema has a schema for each name.
    """
    return {"schema": REPORT, "report": name, "mnistbench": __version__, **values}
