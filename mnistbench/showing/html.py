"""HTML: a document as one page that needs no other file."""

from __future__ import annotations

import base64
from pathlib import Path

from mnistbench.showing.report import Document


def html_document(document: Document, figures: Path) -> str:
    """Return the document as one page without references to a network.

    ``figures`` is the directory of its figures.
    """
    from mnistbench.showing.page.html_page import TEMPLATES  # it loads jinja2

    def data_uri(name: str) -> str:
        drawing = (figures / f"{name}.svg").read_bytes()
        return f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"

    return TEMPLATES.get_template("document.html").render(document=document, data_uri=data_uri)
