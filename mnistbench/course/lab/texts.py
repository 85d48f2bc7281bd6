"""The wording of a report in one language, and how sentences and tables are filled in.

It is read from wording/*.toml.
"""

from __future__ import annotations

import functools
import itertools
import string
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from mnistbench.core import units
from mnistbench.core.options import one_of, option
from mnistbench.course.lab.lab_file import DevicePlace
from mnistbench.course.lab.sheets import Sheet, Word
from mnistbench.showing.table import Column, Table, text_table
from mnistbench.showing.text import Cited, Code, Text

LANGUAGES = ("en", "zh")


def language() -> Any:
    """Declare the language of what a person reads."""
    return option("--lang", one_of(*LANGUAGES), "en", "language: en or zh", "LANG")


class Texts:
    """The wording in one of LANGUAGES."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = wording(language)

    def plain(self, section: str, key: str, **values: object) -> str:
        """Return a wording as plain text, without marks for code."""
        return str(self.text(section, key, **values))

    def text(self, section: str, key: str, **values: object) -> Text:
        """Return a wording with its placeholders filled in; words and places are translated."""
        pieces: list[str | Cited] = []
        is_code = False
        for literal, name, _, _ in string.Formatter().parse(self._texts[section][key]):
            for position, part in enumerate(literal.split("`")):
                is_code ^= position > 0
                pieces += [Code(part) if is_code else part] if part else []
            if name is None:
                continue
            filled = self.words(values[name])
            pieces += [Code(filled)] if is_code else filled
        return _joined(_spaced(pieces))

    def has(self, section: str, key: str) -> bool:
        """Return whether there is such a wording."""
        return key in self._texts[section]

    def words(self, value: object) -> Text:
        """Return a value of a sentence: names, words to translate and numbers."""
        match value:
            case Code() | Cited():
                return Text([value])
            case Word():
                return self.text(value.section, value)
            case DevicePlace():
                is_cpu = value.device == "cpu"
                return Text([self.place(value) if is_cpu else Code(value.device)])
            case int():
                return Text([units.count(value)])
        return Text([str(value)])

    def place(self, place: DevicePlace, *, short: bool = False) -> str:
        """Return a place as text."""
        if place.device != "cpu":
            return place.device
        key = ("short_" if short else "") + ("one" if place.threads == 1 else "many")
        return self.plain("place", key, threads=place.threads)

    def table(
        self, caption: str, sheet: Sheet, rows: Iterable[Any] | None = None, **values: object
    ) -> Table:
        """Return a sheet, or some rows of it, as a table.

        The columns that have a heading, which is a key of ``column``.
        """
        columns = [
            Column[Any](
                self.plain("column", column.heading),
                functools.partial(self._cell, column),
                column.shown,
            )
            for column in sheet.columns
            if column.heading is not None
        ]
        title = self.plain("caption", caption, **values)
        shown_rows = tuple(sheet.rows if rows is None else rows)
        return Table(title, columns, shown_rows, files=(sheet.file,))

    def _cell(self, column: Column[Any], row: Any) -> Text:
        value = column.value(row)
        if value is None or value == "":
            return Text([units.MISSING])
        if isinstance(value, Text):
            return value
        if isinstance(value, DevicePlace):
            return Text([self.place(value, short=True)])
        if column.shown and not isinstance(value, str):
            return Text([column.shown(value)])
        return self.words(value)

    @staticmethod
    def rows(
        title: str,
        headings: Sequence[str],
        rows: Iterable[Sequence[Any]],
        files: tuple[str, ...] = (),
        *,
        numbers: int = 0,
    ) -> Table:
        """Return a table of finished cells, of which the last ``numbers`` columns are numbers."""
        table = text_table(title, headings, rows, numbers_from=len(headings) - numbers)
        return replace(table, files=files)


@functools.cache
def wording(language: str) -> dict[str, dict[str, str]]:
    """Return the wording of a language: section -> key -> text.

    English texts that are their keys are not in the file.
    """
    file = files("mnistbench.course.lab").joinpath("wording", f"{language}.toml")
    sections: dict[str, dict[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    if language != "en":
        return sections
    keys = wording("zh")
    return {
        section: {
            key: sections.get(section, {}).get(key, key.replace("_", " ")) for key in keys[section]
        }
        for section in keys
    }


def _spaced(pieces: Sequence[str | Cited]) -> list[str | Cited]:
    """Insert a space between Chinese characters and Latin letters, digits or code.

    That is usual in Chinese text.
    """

    def is_chinese(sign: str) -> bool:
        return "\u4e00" <= sign <= "\u9fff"

    def is_latin(sign: str, piece: str | Cited) -> bool:
        return isinstance(piece, Code) or (sign.isascii() and sign.isalnum())

    spaced = list(pieces[:1])
    for before, piece in itertools.pairwise(pieces):
        last = str(before)[-1:]
        first = str(piece)[:1]
        if (is_chinese(last) and is_latin(first, piece)) or (
            is_latin(last, before) and is_chinese(first)
        ):
            spaced.append(" ")
        spaced.append(piece)
    return spaced


def _joined(pieces: Iterable[str | Cited]) -> Text:
    """Join neighbouring pieces of the same kind."""
    joined: list[str | Cited] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if isinstance(piece, str) and isinstance(before, str) and type(piece) is type(before):
            joined[-1] = type(before)(before + piece)
        else:
            joined.append(piece)
    return Text(joined)
