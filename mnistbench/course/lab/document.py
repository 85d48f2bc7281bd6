"""The structure of a report, and its two forms: Markdown, and one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.units import printable
from mnistbench.course.lab.texts import Cited, Code, Inline, Text


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: Text


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: tuple[Text, ...]


@dataclass(frozen=True)
class Table:
    """Cells of text. The columns are words, then numbers, then words."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    numbers_from: int  # first column of numbers
    files: tuple[str, ...] = ()  # sources of its numbers, below the report's directory
    words_after: int = 0  # columns of words at the end
    first_entry: int = 0  # if not 0, rows are entries of the sources, and this is the first one's number

    @property
    def number_columns(self) -> range:
        """Return the columns of numbers."""
        return range(self.numbers_from, len(self.headers) - self.words_after)


@dataclass(frozen=True)
class Picture:
    """A figure: ``figures/<name>.svg`` and ``.png``."""

    name: str
    caption: str  # caption and alternative text
    files: tuple[str, ...] = ()  # tables that it was drawn from


Block = Paragraph | Bullets | Table | Picture


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


def cell(text: str | Code) -> Text:
    """Return a cell of one piece."""
    return (text,) if text else ()


# ---- Markdown --------------------------------------------------------------------------------------------------------

#: Characters that would become markup in running text. Text from files is escaped, too.
_ESCAPED = str.maketrans({**{sign: f"\\{sign}" for sign in "\\`*_[]|#~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"})


def markdown(document: Document) -> str:
    """Return the report as Markdown that GitHub, Pandoc and editors read."""
    parts = [f"# {_escaped(document.title)}"]
    for number, section in enumerate(document.sections, 1):
        parts.append(f"## {number}. {_escaped(section.title)}")
        parts += [_block(block, document.source) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, source: str) -> str:
    match block:
        case Paragraph():
            return _inlines(block.text)
        case Bullets():
            return "\n".join(f"- {_inlines(item)}" for item in block.items)
        case Picture():
            link = f"![{_escaped(block.caption)}](figures/{block.name}.svg)"
            return f"{link}\n\n*{_escaped(block.caption)}*{_files(block.files, source)}"
        case Table():
            return _table(block, source)


def _table(table: Table, source: str) -> str:
    rules = ["---:" if column in table.number_columns else "---" for column in range(len(table.headers))]
    lines = [_row(map(_escaped, table.headers)), _row(rules)]
    for position, row in enumerate(table.rows):
        cells = [_inlines(item, in_table=True) for item in row]
        if table.first_entry:
            cells[0] = f'<a id="n{table.first_entry + position}"></a>{cells[0]}'
        lines.append(_row(cells))
    return f"**{_escaped(table.caption)}**{_files(table.files, source)}\n\n" + "\n".join(lines)


def _files(files: Sequence[str], source: str) -> str:
    listed = ", ".join(f"[{_escaped(file)}]({file})" for file in files)
    return source.replace("{files}", listed) if files else ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return printable(text).translate(_ESCAPED)


def _inlines(text: Text, *, in_table: bool = False) -> str:
    return "".join(_inline(piece, in_table=in_table) for piece in text)


def _inline(piece: Inline, *, in_table: bool) -> str:
    match piece:
        case Cited():
            return f"[{_escaped(piece.text)}](#n{piece.entry})"
        case Code():
            code = printable(piece.text)
            fence = "``" if "`" in code else "`"
            padding = " " if "`" in code else ""
            return f"{fence}{padding}{code.replace('|', chr(92) + '|') if in_table else code}{padding}{fence}"
        case _:
            return _escaped(piece)


# ---- HTML ------------------------------------------------------------------------------------------------------------


def html(document: Document, picture: Callable[[str], bytes]) -> str:
    """Return the report as one page without references to a network.

    Args:
        document: the report.
        picture: returns the SVG of a figure by its name.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mnistbench.course.lab", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda value: type(value).__name__
    environment.filters["shown"] = printable
    environment.globals["data_uri"] = lambda name: "data:image/svg+xml;base64," + base64.b64encode(picture(name)).decode()
    return environment.get_template("report.html.jinja").render(document=document)


def picture_in(directory: Path) -> Callable[[str], bytes]:
    """Return a function that reads the figures of a report by name."""
    return lambda name: (directory / "figures" / f"{name}.svg").read_bytes()
