"""HTML: a document as one page that needs no other file."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from mnistbench.core import units
from mnistbench.showing.report import Document
from mnistbench.showing.table import Table
from mnistbench.showing.text import Text

#: A number at the beginning of a cell: ``1.52 (1.48 - 1.56)``, ``8/11``.
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def html_document(document: Document, figures: Path) -> str:
    """Return the document as one page without references to a network.

    ``figures`` is the directory of its figures.
    """
    from mnistbench.showing.page.html_page import TEMPLATES, source  # it loads jinja2

    def data_uri(name: str) -> str:
        drawing = (figures / f"{name}.svg").read_bytes()
        return f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"

    tables = (part for section in document.sections for part in section.parts)
    is_sortable = any(isinstance(part, Table) and part.is_sortable for part in tables)
    return TEMPLATES.get_template("document.html").render(
        document=document,
        data_uri=data_uri,
        script=source("sorting.js") if is_sortable else "",
        sort_kinds=sort_kinds,
        sort_value=sort_value,
    )


def sort_kinds(table: Table) -> list[str]:
    """Return how each column is sorted: by the number at the beginning of its cells, or as text."""
    columns = zip(*table.texts, strict=True)
    return [
        "number"
        if all(_NUMBER.match(cell) for cell in map(str, column) if cell != units.MISSING)
        else "text"
        for column in columns
    ] or ["text"] * len(table.drawn)


def sort_value(cell: Text, kind: str) -> str | None:
    """Return what a cell is sorted by; None if it is missing."""
    text = str(cell)
    if text == units.MISSING:
        return None
    number = _NUMBER.match(text) if kind == "number" else None
    return number[0].replace(",", "") if number else text
