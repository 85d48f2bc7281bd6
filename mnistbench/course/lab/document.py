"""The structure of a report, and its two forms: Markdown, and one self-contained HTML page.

Tables are those of ``mnistbench.showing``. Their cells, and the sentences of a report, may have
pieces that are more than words: code, and numbers with a link.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.units import printable
from mnistbench.showing.table import Table


class Code(str):
    """Text in a code font: a name, a file or a command."""

    __slots__ = ()


@dataclass(frozen=True)
class Cited:
    """A number that links to its entry in the section of sources."""

    text: str
    entry: int

    def __str__(self) -> str:
        return self.text


#: Running text: its pieces.
Text = tuple[str | Cited, ...]


@dataclass(frozen=True)
class Exhibit:
    """A table, or a figure: ``figures/<name>.svg`` and ``.png``."""

    shown: Table | str  # the table, or the name of the figure
    caption: str  # also the alternative text of a figure
    files: tuple[str, ...] = ()  # sources of its numbers, below the report's directory
    # If not 0, rows are entries of the sources, and this is the first one's number.
    first_entry: int = 0


#: A paragraph, a list of sentences, a table or a figure.
Block = Text | list[Text] | Exhibit


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    language: str  # code of HTML's lang attribute
    source: str  # suffix of captions, with the placeholder {files}
    sections: tuple[Section, ...]


def cell_texts(table: Table) -> list[list[Text]]:
    """Return the text of each cell of a table whose values may be running text."""
    values = ([column.value(row) for column in table.drawn] for row in table.rows)
    return [[value if isinstance(value, tuple) else (value,) for value in row] for row in values]


#: Characters that would become markup in running text. Text from files is escaped, too.
_ESCAPED = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "\\`*_[]|#~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def markdown(document: Document) -> str:
    """Return the report as Markdown that GitHub, Pandoc and editors read."""
    parts = [f"# {_escaped(document.title)}"]
    for number, section in enumerate(document.sections, 1):
        parts.append(f"## {number}. {_escaped(section.title)}")
        parts += [_block(block, document.source) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, source: str) -> str:
    if isinstance(block, tuple):
        return _inlines(block)
    if isinstance(block, list):
        return "\n".join(f"- {_inlines(item)}" for item in block)
    listed = ", ".join(f"[{_escaped(file)}]({file})" for file in block.files)
    files = source.replace("{files}", listed) if listed else ""
    caption = _escaped(block.caption)
    if isinstance(block.shown, str):
        return f"![{caption}](figures/{block.shown}.svg)\n\n*{caption}*{files}"
    rules = ["---:" if column.is_number else "---" for column in block.shown.drawn]
    lines = [_row(map(_escaped, block.shown.headings)), _row(rules)]
    for position, row in enumerate(cell_texts(block.shown)):
        target = f'<a id="n{block.first_entry + position}"></a>' if block.first_entry else ""
        lines.append(
            _row([target + _inlines(row[0]), *(_inlines(cell, in_table=True) for cell in row[1:])])
        )
    return f"**{caption}**{files}\n\n" + "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return printable(text).translate(_ESCAPED)


def _inlines(text: Text, *, in_table: bool = False) -> str:
    shown = []
    for piece in text:
        if isinstance(piece, Cited):
            shown.append(f"[{_escaped(piece.text)}](#n{piece.entry})")
        elif isinstance(piece, Code):
            code = printable(piece)
            fence, padding = ("``", " ") if "`" in code else ("`", "")
            code = code.replace("|", "\\|") if in_table else code
            shown.append(f"{fence}{padding}{code}{padding}{fence}")
        else:
            shown.append(_escaped(piece))
    return "".join(shown)


def html(document: Document, figures: Path) -> str:
    """Return the report as one page without references to a network.

    ``figures`` is the directory of its figures.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mnistbench.course.lab", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        kind=lambda value: type(value).__name__, shown=printable, cell_texts=cell_texts
    )
    environment.globals["data_uri"] = lambda name: (
        "data:image/svg+xml;base64,"
        + base64.b64encode((figures / f"{name}.svg").read_bytes()).decode()
    )
    return environment.get_template("report.html.jinja").render(document=document)
