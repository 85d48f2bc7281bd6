"""Saved runs -> one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.operation import operation_cells
from mnistbench.core.record import OpTable
from mnistbench.page.run_view import PageRun, run_view
from mnistbench.saved_runs.report import run_references
from mnistbench.showing.page.html_page import html_page


def runs_page(runs: Sequence[PageRun]) -> str:
    """Return the page, a whole HTML document."""
    references = run_references([shown.saved for shown in runs])
    return html_page(
        "runs.html",
        operations_data=_operations_data,
        runs=[
            {
                **run_view(number, shown),
                "reference": references[shown.saved.path],
                "file": _file(shown.saved.path, references[shown.saved.path]),
            }
            for number, shown in enumerate(runs)
        ],
    )


def _file(path: Path, reference: str) -> str:
    """Return the name of a file, with its folder if the reference to the run has it."""
    if reference == str(path):
        return reference
    return f"{path.parent.name}/{path.name}" if "/" in reference else path.name


def _operations_data(tables: Iterable[OpTable]) -> dict[str, Any]:
    """Return the tables as rows of numbers, in the order that ``page.js`` names.

    All tables share the names.
    """
    keys: dict[tuple[str, str, str], int] = {}
    details: dict[tuple[str, str, str], set[str]] = {}
    shown = []
    for table in tables:
        rows = []
        for row, total_ns in zip(table.rows, table.totals_ns, strict=True):
            position = keys.setdefault(row.key, len(keys))
            details.setdefault(row.key, set()).update(row.shapes, row.kernels, row.sources)
            rows.append(
                [
                    position,
                    row.calls,
                    row.self_ns("cpu"),
                    row.spread_ns(table.clock),
                    total_ns,
                    row.self_ns("device") if table.view == "device" else None,
                    row.memory_bytes,
                ]
            )
        shown.append({"temperature": table.temperature, "view": table.view, "rows": rows})
    return {
        "operations": [
            [*map(units.printable, (*operation_cells(*key), "; ".join(sorted(details[key]))))]
            for key in keys
        ],
        "tables": shown,
    }
