"""The wording of a report in one language, read from texts/*.toml, and how sentences are filled in."""

from __future__ import annotations

import functools
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from mnistbench.core import units
from mnistbench.course.lab.explain import Name, Noun, Place, Word
from mnistbench.course.lab.sheets import Quantity

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Code:
    """Text in a code font: a name, a file or a command."""

    text: str


@dataclass(frozen=True)
class Cited:
    """A number that links to its entry in the section of sources."""

    text: str
    entry: int


#: Returns the entry of a number in the sources.
Cite = Callable[[Quantity], int]

#: A piece of running text.
Inline = str | Code | Cited
Text = tuple[Inline, ...]


class Texts:
    """The wording in one language."""

    def __init__(self, language: str) -> None:
        """Load it.

        Args:
            language: one of LANGUAGES.
        """
        self.language = language
        self._texts = _load(language)

    def plain(self, section: str, key: str, **values: object) -> str:
        """Return a wording as plain text, without marks for code."""
        return _plain(self.text(section, key, **values))

    def text(self, section: str, key: str, **values: object) -> Text:
        """Return a wording with its placeholders filled in; words and places are translated."""
        return self.cited(section, key, values, None)

    def cited(self, section: str, key: str, values: Mapping[str, object], cite: Cite | None) -> Text:
        """Return a wording like :meth:`text`, with each number linked to its entry.

        Args:
            section: section of the wording.
            key: key in that section.
            values: values of the placeholders.
            cite: returns the entry of a number; None: numbers are plain text.
        """
        pieces: list[Inline] = []
        in_code = False
        for literal, name, _, _ in string.Formatter().parse(self._texts[section][key]):
            for position, part in enumerate(literal.split("`")):
                in_code ^= position > 0
                pieces += [Code(part) if in_code else part] if part else []
            if name is not None:
                filled = self._filled(values[name], cite)
                pieces += [Code(_plain(filled))] if in_code else filled
        return _joined(_spaced(pieces))

    def signs(self, section: str) -> set[str]:
        """Return the characters that a section uses."""
        return set("".join(self._texts[section].values()))

    def has(self, section: str, key: str) -> bool:
        """Return whether there is such a wording."""
        return key in self._texts[section]

    def place(self, place: Place, *, short: bool = False) -> str:
        """Return a place as text."""
        if place.device != "cpu":
            return place.device
        key = ("short_" if short else "") + ("one" if place.threads == 1 else "many")
        return self.plain("place", key, threads=place.threads)

    def word(self, word: Word) -> Text:
        """Return a word of a sentence."""
        match word:
            case Name():
                return (Code(word.text),)
            case Noun():
                return self.text("noun", word.key)
            case Place():
                return (self.place(word),) if word.device == "cpu" else (Code(word.device),)
            case _:
                return (units.count(word),)

    def _filled(self, value: object, cite: Cite | None) -> list[Inline]:
        if isinstance(value, Quantity):
            return [Cited(number(value), cite(value)) if cite else number(value)]
        if isinstance(value, Name | Noun | Place | int):
            return list(self.word(value))
        return [str(value)]


@functools.cache
def _load(language: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = tomllib.loads(
        files("mnistbench.course.lab").joinpath("texts", f"{language}.toml").read_text(encoding="utf-8")
    )
    return found


def _plain(pieces: Iterable[Inline]) -> str:
    return "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)


def _spaced(pieces: Iterable[Inline]) -> list[Inline]:
    """Insert a space between Chinese characters and Latin letters, digits or code, as is usual in Chinese text."""
    spaced: list[Inline] = []
    for piece in pieces:
        if spaced and _meet(spaced[-1], piece):
            spaced.append(" ")
        spaced.append(piece)
    return spaced


def _meet(left: Inline, right: Inline) -> bool:
    last, first = _plain([left])[-1:], _plain([right])[:1]
    return (_is_chinese(last) and _is_latin(first, right)) or (_is_latin(last, left) and _is_chinese(first))


def _is_chinese(sign: str) -> bool:
    return "\u4e00" <= sign <= "\u9fff"


def _is_latin(sign: str, piece: Inline) -> bool:
    return isinstance(piece, Code) or (sign.isascii() and sign.isalnum())


def _joined(pieces: Iterable[Inline]) -> Text:
    """Join neighbouring pieces of the same kind."""
    joined: list[Inline] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if isinstance(piece, str) and isinstance(before, str):
            joined[-1] = before + piece
        elif isinstance(piece, Code) and isinstance(before, Code):
            joined[-1] = Code(before.text + piece.text)
        else:
            joined.append(piece)
    return tuple(joined)


def number(quantity: Quantity) -> str:
    """Return a cited number as text."""
    return shown(quantity.value, quantity.kind)


def shown(value: float, kind: str) -> str:
    """Return a number of one of the KINDS of ``sheets`` as text."""
    return _FORMATS.get(kind, units.factor)(value)


_FORMATS: dict[str, Callable[[float], str]] = {
    "time": units.duration,
    "seconds": lambda seconds: units.duration(1e9 * seconds),
    "bytes": units.size,
    "flops": units.flops,
    "flops_per_s": units.flops_per_s,
    "bytes_per_s": units.bytes_per_s,
    "share": units.percent,
    "percentage": lambda value: units.percent(value / 100),
    "count": units.count,
    "label": str,
    "loss": "{:.4f}".format,
}
