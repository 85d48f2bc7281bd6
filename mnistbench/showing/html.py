"""HTML: a document as one page that needs no other file."""

from __future__ import annotations

import base64
from pathlib import Path

from mnistbench.core.units import printable
from mnistbench.showing.report import Document


def html_document(document: Document, figures: Path) -> str:
    """Return the document as one page without references to a network.

    ``figures`` is the directory of its figures.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mnistbench.showing", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(kind=lambda value: type(value).__name__, shown=printable)
    environment.globals["data_uri"] = lambda name: (
        "data:image/svg+xml;base64,"
        + base64.b64encode((figures / f"{name}.svg").read_bytes()).decode()
    )
    return environment.get_template("document.html.jinja").render(document=document)
