"""Values of a command line, read: what cannot be used is one line with the option, the value and what can be."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mnistbench.core.errors import UsageError

#: No batch, epoch or number of launches is larger.
LARGEST = 2**31

#: A number of that many digits is too large for any option.
_DIGITS = 20

#: More threads than any machine has cores for; OpenMP dies of numbers that the system has no room for.
MOST_THREADS = 1024


def given(flag: str, text: str | None, otherwise: str = "") -> str:
    """Return the value of an option, ``otherwise`` where it was left out.

    Raises:
        UsageError: it is blank, as an unset variable of a script is.
    """
    if text is None:
        return otherwise
    if not text.strip():
        raise UsageError(f"{flag}: {text!r} is no value; give one, or leave the option out")
    return text


def one_of(flag: str, text: str, choices: Iterable[str]) -> str:
    """Return the value if it is one of these.

    Raises:
        UsageError: it is not.
    """
    known = tuple(choices)
    if text not in known:
        raise UsageError(f"{flag}: {text!r} is not known; choose {' or '.join(known)}")
    return text


def whole(flag: str, text: str, least: int, most: int = LARGEST) -> int:
    """Return a whole number.

    Raises:
        UsageError: it is none, or out of bounds.
    """
    digits = text.lstrip("0") or "0"
    number = least - 1
    if re.fullmatch("[0-9]+", text):
        number = int(digits) if len(digits) < _DIGITS else most + 1  # int() of more digits than 4,300 raises
    if not least <= number <= most:
        bounds = f"at least {least}" if most >= LARGEST and number < least else f"{least} to {most}"
        raise UsageError(f"{flag}: {text!r} cannot be used; give a whole number, {bounds}")
    return number


def parts(flag: str, text: str) -> tuple[str, ...]:
    """Return the entries of a comma list, each once.

    Raises:
        UsageError: an entry is empty.
    """
    entries = [part.strip() for part in text.split(",")]
    if not all(entries):
        raise UsageError(f"{flag}: {text!r} has an empty entry; give a comma list such as its default")
    return tuple(dict.fromkeys(entries))


def wholes(flag: str, text: str, least: int, most: int = LARGEST) -> tuple[int, ...]:
    """Return the whole numbers of a comma list, each once.

    Raises:
        UsageError: an entry is empty, no whole number, or out of bounds.
    """
    return tuple(dict.fromkeys(whole(flag, part, least, most) for part in parts(flag, text)))
