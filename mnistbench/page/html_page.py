"""Runs -> one HTML file, drawn by the templates in ``web/``.

The file loads nothing from the network.

The templates draw everything that appears once. ``web/page.js`` sorts, filters and draws the rows
of operation tables, which would be most of the page, when a case is opened.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined

from mnistbench import __version__
from mnistbench.core import units
from mnistbench.core.operation import operation_cells
from mnistbench.core.record import OpTable, median_ns
from mnistbench.page import charts
from mnistbench.page.run_view import PageRun, run_view

_TEMPLATES = Templates(
    loader=PackageLoader("mnistbench", "page/web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    # Control characters and marks of text direction in a name are escaped.
    finalize=lambda value: units.printable(value) if type(value) is str else value,
)
# ``tojson`` writes <, >, & and ' as \uXXXX, so no text can end its element.
_TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}


def page(runs: Sequence[PageRun]) -> str:
    """Return the page, a whole HTML document."""
    style, script = (
        _TEMPLATES.loader.get_source(_TEMPLATES, name)[0]  # type: ignore[union-attr]
        for name in ("page.css", "page.js")
    )
    text = _TEMPLATES.get_template("page.html").render(
        version=__version__,
        style=style,
        script=script,
        style_hash=_source_hash(style),
        script_hash=_source_hash(script),
        charts=charts,
        operations_data=_operations_data,
        runs=[run_view(number, shown) for number, shown in enumerate(runs)],
    )
    return text.rstrip("\n") + "\n"


def _source_hash(text: str) -> str:
    """Return a hash-source of the Content Security Policy.

    https://www.w3.org/TR/CSP3/#grammardef-hash-source
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- Operations, for page.js ---------------------------------------------------------------------


def _operations_data(tables: Iterable[OpTable]) -> dict[str, Any]:
    """Return the tables as rows of numbers, in the order that ``page.js`` names.

    All tables share the names.
    """
    keys: dict[tuple[str, str, str], int] = {}
    details: dict[tuple[str, str, str], set[str]] = {}
    shown = []
    for table in tables:
        rows = []
        for row in table.rows:
            position = keys.setdefault(row.key, len(keys))
            details.setdefault(row.key, set()).update(row.shapes, row.kernels, row.sources)
            rows.append(
                [
                    position,
                    row.calls,
                    row.self_ns("cpu"),
                    row.spread_ns(table.clock),
                    median_ns(row.total_cpu_ns),
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
