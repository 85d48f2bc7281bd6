"""Markdown: a report for a comment on a pull request, and a document. No text becomes markup."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mnistbench.core.units import printable
from mnistbench.showing.report import Block, Document, Figure, Part
from mnistbench.showing.table import Table
from mnistbench.showing.terminal import draw
from mnistbench.showing.text import Cited, Code, Link, Text

#: Ends a word, so that GitHub makes no mention, issue number or link of plain text; it also reads
#: character entities.
_BREAK = "<!-- -->"

#: Characters of a line of a drawn table, beyond which headings and names are wrapped: usual names
#: stay whole, and long ones move no number out of a wide window.
_DRAWN_WIDTH = 150

#: Characters that would become HTML.
_HTML_SIGNS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
#: Characters that would become markup in a comment, where ``in_html`` breaks the words with ``#``.
_COMMENT_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]()|~!$"})
#: Characters that would become markup in a document, which GitHub, Pandoc and editors read.
_DOCUMENT_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|#~$"})


def in_html(text: str) -> str:
    """Return text that is shown literally inside an HTML element."""
    shown = printable(text).translate(_HTML_SIGNS)
    for sign in ("@", "#", ":/", "www", "GH-"):
        shown = shown.replace(sign, f"{sign[:1]}{_BREAK}{sign[1:]}")
    return shown


def escaped(text: str) -> str:
    """Return text that is shown literally in a paragraph or a cell of a comment."""
    return in_html(printable(text).translate(_COMMENT_SIGNS))


# ---- A comment on a pull request -----------------------------------------------------------------


def markdown_report(
    blocks: Iterable[Block],
    outcome: str,
    *,
    first_lines: Sequence[Text] | None = None,
    drawn: bool = False,
    limit: tuple[int, str] | None = None,
) -> str:
    """Return a whole report. Tables of cases are folded, to keep a comment short.

    With ``first_lines``, these are below the outcome, and everything else is folded. If it is
    ``drawn``, tables are as on a terminal, the first of them open: a plot made of characters needs
    their width. ``limit`` is the most bytes, to which the longest parts are cut, and how to see
    what is cut, for the line in its place.
    """
    parts = [f"### mnistbench: {escaped(outcome)}"]
    if first_lines is not None:
        parts.append("\n".join(map(_item, first_lines)))
        parts.append("<details><summary>the whole report</summary>")
    tables = 0
    for block in blocks:
        lines = map(_item, block.lines)
        parts.append(
            "\n".join(
                [
                    *(
                        [f"**{escaped(block.title)}**", ""]
                        if block.title and (block.lines or block.drawing)
                        else []
                    ),
                    *lines,
                ]
            )
        )
        if block.drawing:
            parts.append(f"<pre>\n{in_html_lines(block.drawing)}\n</pre>")
        for table in block.tables:
            parts.append(_drawn(table, opened=not tables) if drawn else _folded(table))
            tables += 1
    if first_lines is not None:
        parts.append("</details>")
    most, see_all = limit or (sys.maxsize, "")
    text = ""
    longest = most
    while not text or (len(text.encode()) > most and longest):
        text = "\n\n".join(_cut(part, longest, see_all) for part in parts if part) + "\n"
        longest = longest * 9 // 10
    return text


def _item(line: str | Text) -> str:
    """Return a line as an item of a list, below the one that it belongs to."""
    if isinstance(line, Text):
        return f"- {''.join(map(_comment_piece, line))}"
    text = line.lstrip(" ")
    if line.partition(". ")[0].isdigit():  # it numbers itself
        return escaped(line)
    return f"{line[: len(line) - len(text)]}- {escaped(text)}"


def _comment_piece(piece: str | Cited) -> str:
    shown = escaped(str(piece))
    return f"[{shown}](<{piece.address}>)" if isinstance(piece, Link) else shown


def _cut(part: str, most_bytes: int, see_all: str) -> str:
    """Return a part without its last lines if it is too long.

    A line with their number takes their place.
    """
    encoded = part.encode()
    lines = part.split("\n")
    if len(encoded) <= most_bytes or len(lines) == 1:  # the heading
        return part
    end = [line for line in lines[-2:] if line.startswith("</")]
    # Room for the rest.
    shown = encoded[: max(0, most_bytes - 120)].decode(errors="ignore").split("\n")[:-1]
    more = f"{len(lines) - len(shown) - len(end)} more lines; {see_all}"
    return "\n".join([*shown, more if end else f"- {more}", *end])


def in_html_lines(text: str) -> str:
    """Return lines that are shown literally inside a preformatted element."""
    return "\n".join(map(in_html, text.split("\n")))


def _drawn(table: Table, *, opened: bool) -> str:
    drawn = draw(replace(table, title=""), width=_DRAWN_WIDTH, leave_out=False)
    lines = in_html_lines("\n".join(line for line in drawn.split("\n") if line.strip()))
    return (
        f"<details{' open' if opened else ''}><summary>{in_html(table.title)}</summary>\n<pre>\n"
        f"{lines}\n</pre>\n</details>"
    )


def _folded(table: Table) -> str:
    rules = ["---:" if column.is_number else "---" for column in table.drawn]
    texts = (map(escaped, cells) for cells in (*table.cells, *table.sum_cells))
    rows = [_row(cells) for cells in (map(escaped, table.headings), rules, *texts)]
    lines = ["", *(f"- {escaped(line)}" for line in table.lines)] if table.lines else []
    return "\n".join(
        [f"<details><summary>{in_html(table.title)}</summary>", "", *rows, *lines, "", "</details>"]
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---- A document ----------------------------------------------------------------------------------


def markdown_document(document: Document) -> str:
    """Return the document as Markdown that GitHub, Pandoc and editors read."""
    parts = [f"# {_literal(document.title)}"]
    for number, section in enumerate(document.sections, 1):
        parts.append(f"## {number}. {_literal(section.title)}")
        parts += [_part(part, document) for part in section.parts]
    return "\n\n".join(parts) + "\n"


def _part(part: Part, document: Document) -> str:
    match part:
        case Text():
            return _sentence(part, document.entries)
        case list():
            return "\n".join(f"- {_sentence(text, document.entries)}" for text in part)
        case Figure():
            caption = _literal(part.caption)
            files = _sources(part.files, document)
            return f"![{caption}](figures/{part.name}.svg)\n\n*{caption}*{files}"
        case Table():
            return _table(part, document)


def _table(table: Table, document: Document) -> str:
    rules = ["---:" if column.is_number else "---" for column in table.drawn]
    lines = [_row(map(_literal, table.headings)), _row(rules)]
    for position, texts in enumerate(table.texts):
        cells = [_sentence(text, document.entries, in_table=True) for text in texts]
        if table.anchors_from is not None:
            cells[0] = f'<a id="n{table.anchors_from + position}"></a>{cells[0]}'
        lines.append(_row(cells))
    caption = f"**{_literal(table.title)}**{_sources(table.files, document)}"
    return f"{caption}\n\n" + "\n".join(lines)


def _sources(files: Iterable[str], document: Document) -> str:
    links = ", ".join(f"[{_literal(file)}]({file})" for file in files)
    return document.source.replace("{files}", links) if links else ""


def _literal(text: str) -> str:
    return printable(text).translate({**_DOCUMENT_SIGNS, **_HTML_SIGNS})


def _code(code: str, *, in_table: bool) -> str:
    """Return a code span, whose fence is longer than any run of backticks in it.

    One space at both ends is not of the code. Source: CommonMark 0.31.2, section 6.1.
    """
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if longest or (code[:1] == code[-1:] == " ") else ""
    code = code.replace("|", "\\|") if in_table else code
    return f"{fence}{padding}{code}{padding}{fence}"


def _sentence(text: Text, entries: Mapping[Cited, int], *, in_table: bool = False) -> str:
    shown = []
    for piece in text:
        if isinstance(piece, Code):
            shown.append(_code(printable(piece), in_table=in_table))
        elif isinstance(piece, str):
            shown.append(_literal(piece))
        else:
            shown.append(f"[{_literal(str(piece))}](#n{entries[piece]})")
    return "".join(shown)
