"""Values -> one HTML file, drawn by a template in ``web/``.

The file loads nothing from the network.

The templates draw everything that appears once. ``web/page.js`` sorts, filters and draws the rows
of operation tables, which would be most of the page, when a case is opened; ``web/icicle.js`` draws
call paths; ``web/sorting.js`` sorts tables that a template has drawn.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup

from mnistbench import __version__
from mnistbench.core import units
from mnistbench.showing.page import charts

#: All of them; text of a record or a name cannot be anything else in them.
TEMPLATES = Templates(
    loader=PackageLoader("mnistbench", "showing/page/web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    # Control characters and marks of text direction in a name are escaped.
    finalize=lambda value: (
        units.printable(value)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    ),
)
TEMPLATES.filters["kind"] = lambda value: type(value).__name__
# ``tojson`` writes <, >, & and ' as \uXXXX, so no text can end its element.
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}


def html_page(template: str, **values: Any) -> str:
    """Return a whole HTML document.

    Args:
        template: file in ``web/`` that extends ``frame.html``.
        values: what it draws.
    """
    style = source("page.css")
    # One program: page.js begins to run it.
    script = source("icicle.js") + source("sorting.js") + source("page.js")
    text = TEMPLATES.get_template(template).render(
        version=__version__,
        style=style,
        script=script,
        style_hash=_source_hash(style),
        script_hash=_source_hash(script),
        charts=charts,
        **values,
    )
    return text.rstrip("\n") + "\n"


def source(name: str) -> str:
    """Return the text of a file in ``web/``."""
    return TEMPLATES.loader.get_source(TEMPLATES, name)[0]  # type: ignore[union-attr]


def _source_hash(text: str) -> str:
    """Return a hash-source of the Content Security Policy.

    https://www.w3.org/TR/CSP3/#grammardef-hash-source
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
