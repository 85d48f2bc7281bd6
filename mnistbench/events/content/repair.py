r"""Repairs of files that torch writes and that are no JSON. Valid JSON never comes here.

What versions of torch and Kineto write as it is:

- bytes of a name that are not UTF-8 (torch 2.4: pytorch/pytorch issue 136180);
- backslashes in paths of Windows, ``torch\cuda\__init__.py`` (kineto issue 336, pytorch issue
  98432);
- quotes in names of Python functions, ``{"device": "cpu"}(12): run`` (pytorch issues 113001 and
  146900);
- ``inf`` and ``nan`` (kineto issue 105);
- a comma after the last argument, and arguments without a value (``ArgsBuilder`` in Kineto's
  ``output_json.cpp`` tells why).

Chrome's format also allows a list of events without its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

#: Inside of a JSON string. All repetitions are possessive, so that no text takes long.
_INSIDE = r'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'

#: After a value: another key, or the end of its object.
_AFTER_VALUE = rf'(?:,\s*+"{_INSIDE}"\s*+:|\}}\s*+(?:[,}}\]]|\Z))'

#: Whatever has only strings that end where JSON goes on: keys, values, and members of lists.
_SOUND_STRINGS = re.compile(
    rf'(?:[^":]++|:(?!\s*+")|:\s*+"{_INSIDE}"(?=\s*+{_AFTER_VALUE})|"{_INSIDE}"(?=\s*+[:,\]]))*+'
)

_OPENING = re.compile(r':?\s*+"')

#: Ends of a string with unescaped quotes. After the name of an event, another key of it follows.
_END_BEFORE_KEY_OF_EVENT = re.compile(
    r'"(?=\s*+,\s*+"(?:ph|cat|pid|tid|ts|dur|tts|tdur|args|id|id2|bp|s|sf|cname)"\s*+:)'
)
_END_BEFORE_KEY = re.compile(r'"(?=\s*+,\s*+"[A-Za-z][^"\\{}]*+"\s*+:)')
_END_BEFORE_BRACE = re.compile(r'"(?=\s*+\}\s*+(?:,\s*+["{]|[}\]]))')
_END_BEFORE_MEMBER = re.compile(r'"(?=\s*+(?:,\s*+["\[{\d-]|\]))')

#: Longest string with unescaped characters that is looked for. Names of kernels have up to some
#: thousand characters.
_LONGEST = 2**16

#: A broken string that contains this has swallowed its end and another event.
_OF_ANOTHER_EVENT = re.compile(r'"(?:ph|name)"\s*+:')

#: So many strings may end in a backslash. For each of them, the whole rest of the text may be
#: looked through.
_MAX_ENDING_IN_BACKSLASH = 100

#: Broken strings are given up when so many times the characters of the text were looked through.
#: Those of a whole file that torch wrote take one or two.
_MAX_LOOKS = 16

_UNESCAPED = re.compile(r'\\["\\]|\\|"')

#: Whatever has only values that JSON allows, or Python's ``json``: NaN, Infinity.
_SOUND_VALUES = re.compile(
    rf'(?:"{_INSIDE}"|[^"a-zA-Z:,]++|:(?!\s*+[,}}\]])|,(?!\s*+[}}\]])|[eE](?=[-+\d])|true|false|'
    r"null|NaN|Infinity)*+"
)

_NOT_FINITE = re.compile(r"inf(?:inity)?|(?P<nan>nan(?:\(\w*\))?)", re.IGNORECASE)


class Repaired(NamedTuple):
    """A document that was read in spite of its mistakes, and a phrase for each kind of repair."""

    document: Any
    repairs: tuple[str, ...]


def repaired(content: bytes) -> Repaired | None:
    """Read bytes that are no JSON; return None where no known mistake explains that."""
    repairs: list[str] = []
    encoding = json.detect_encoding(content)
    text = content.decode(encoding, errors="replace")
    try:
        content.decode(encoding, errors="surrogatepass")
    except UnicodeDecodeError:
        repairs.append("bytes that are not UTF-8 were replaced")
    for repair, phrase in (
        (_with_escapes, "quotes and backslashes that are not escaped were read as they are"),
        (_with_values, "numbers that are not finite and missing values were read"),
    ):
        changed = repair(text)
        if changed != text:
            repairs.append(phrase)
        text = changed
    document = _parsed(text)
    if document is None and text.lstrip().startswith("["):
        document = _parsed(text.rstrip().removesuffix(",") + "]")
        repairs.append("the list of events has no end, so that events may be missing")
    return None if document is None else Repaired(document, tuple(repairs))


def _parsed(text: str) -> Any:
    """Return the document; None if the text is no JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _with_escapes(text: str) -> str:
    """Escape the quotes and backslashes in strings that do not end where JSON goes on."""
    return "".join(_escaped_parts(text))


def _escaped_parts(text: str) -> Iterator[str]:
    position = 0
    ending_in_backslash = 0
    looks = _Looks(_MAX_LOOKS * (len(text) + _LONGEST))
    while position < len(text):
        sound = _SOUND_STRINGS.match(text, position)
        assert sound is not None  # it may be empty
        yield sound[0]
        position = sound.end()
        opening = _OPENING.match(text, position)
        if opening is None:
            break
        inside = _inside(text, position, opening.end(), looks)
        if inside is None or looks.characters_left < 0:
            break
        ending_in_backslash += inside.endswith("\\")
        if ending_in_backslash > _MAX_ENDING_IN_BACKSLASH:
            break
        yield f'{opening[0]}{_UNESCAPED.sub(_escape, inside)}"'
        position = opening.end() + len(inside) + 1
    yield text[position:]


@dataclass
class _Looks:
    """How many characters may still be looked through for the ends of broken strings."""

    characters_left: int


def _inside(text: str, position: int, start: int, looks: _Looks) -> str | None:
    """Return the string that begins at ``start``, without its quotes; None if it has no end.

    Before it, at ``position``, is the colon if the string is a value.
    """
    if text[position] != ":":
        ends = [_END_BEFORE_MEMBER]
    elif text[max(0, position - 20) : position].rstrip().endswith('"name"'):
        ends = [_END_BEFORE_KEY_OF_EVENT, _END_BEFORE_BRACE]
    else:
        ends = [_END_BEFORE_KEY, _END_BEFORE_BRACE]
    for end in ends:
        closing = end.search(text, start, start + _LONGEST)
        looks.characters_left -= closing.end() - start if closing else _LONGEST
        if closing and not _OF_ANOTHER_EVENT.search(text, start, closing.start()):
            return text[start : closing.start()]
    return None


def _escape(backslash: re.Match[str]) -> str:
    """Escape a single backslash or quote; leave an escaped one."""
    return backslash[0] if len(backslash[0]) == 2 else f"\\{backslash[0]}"


def _with_values(text: str) -> str:
    """Write infinite numbers as Python does, missing values as null, no comma before an end."""
    return "".join(_valued_parts(text))


def _valued_parts(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        sound = _SOUND_VALUES.match(text, position)
        assert sound is not None  # it may be empty
        position = sound.end()
        not_finite = _NOT_FINITE.match(text, position)
        if not_finite and not_finite["nan"]:
            yield sound[0].removesuffix("-")
            yield "NaN"
        else:
            yield sound[0]
        if not_finite:
            yield "" if not_finite["nan"] else "Infinity"
            position = not_finite.end()
        elif text[position : position + 1] == ":":
            yield ": null"
            position += 1
        elif text[position : position + 1] == ",":
            position += 1
        else:
            break
    yield text[position:]
