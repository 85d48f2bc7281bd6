"""A report: blocks of sentences, plots and tables, and the data behind them. Formats draw it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mnistbench import __version__
from mnistbench.showing.table import Table

#: Version of the JSON of reports.
REPORT = 1


@dataclass(frozen=True)
class Block:
    """A part of a report: a heading, sentences, a drawing made of characters, tables."""

    title: str
    lines: tuple[str, ...] = ()
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

    @property
    def json(self) -> str:
        return json.dumps(self.data, indent=1, allow_nan=False) + "\n"


def document(name: str, **values: Any) -> dict[str, Any]:
    """Return the JSON object of a report: its name, the version of mnistbench, and the values.

    The reports of all commands are one format, version 1 of ``REPORT``: a program reads the keys
    that it knows. The version is raised when a key is removed or renamed, or its meaning, type or
    unit changes, and docs/schema has a schema for each name.
    """
    return {"schema": REPORT, "report": name, "mnistbench": __version__, **values}
