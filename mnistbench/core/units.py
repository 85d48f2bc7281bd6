"""Format times, bytes, counts and lists as text; no other module does.

mnistbench stores nanoseconds and bytes. A unit is chosen *after* rounding, so that
no table ever shows ``1000.00 us`` beside ``1.00 ms``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

_TIME_UNITS = (("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))
_BYTE_UNITS = (("B", 1), ("KiB", 1024), ("MiB", 1024**2), ("GiB", 1024**3))
_DECIMAL_PREFIXES = (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
_SIGNIFICANT_DIGITS = 3
_TICK_DIGITS = 9
_TICK_DECIMALS = 6

_ADDRESS = re.compile(r" ?\bat 0x[0-9A-Fa-f]+")

#: No time in nanoseconds and no size in bytes is larger: 292 years, 8 EiB.
LARGEST = 2**63 - 1

#: Text for a missing number. It is not 0, because 0 is a measurement.
MISSING = "-"

#: Most items of a list that a sentence names.
NAMED = 3


def duration(nanoseconds: float, *, signed: bool = False) -> str:
    """Return a time with three significant digits and a fitting unit.

    ``12.3 us``, ``1.00 ms``, with a sign for a difference.

    A time below 1 ns has two decimals. A time of 0 is ``0 ns``: it has no digits that could be
    rounded.
    """
    return _scaled(nanoseconds, _TIME_UNITS, signed=signed)


def size(n_bytes: float, *, signed: bool = False) -> str:
    """Return a size in binary units: ``1.50 MiB``, with a sign for a difference."""
    return _scaled(n_bytes, _BYTE_UNITS, signed=signed)


def flops(number: float) -> str:
    """Return a number of floating-point operations in decimal units: ``1.15 GFLOP``."""
    return f"{_scaled(number, _DECIMAL_PREFIXES)}FLOP"


def flops_per_s(rate: float) -> str:
    """Return a rate of floating-point operations: ``112 GFLOP/s``."""
    return f"{flops(rate)}/s"


def bytes_per_s(rate: float) -> str:
    """Return a rate of bytes in decimal units, as in memory specifications: ``20.1 GB/s``."""
    return f"{decimal_size(rate)}/s"


def decimal_size(n_bytes: float) -> str:
    """Return a number of bytes in the units of their rates: ``12.5 GB``."""
    return f"{_scaled(n_bytes, _DECIMAL_PREFIXES)}B"


def factor(ratio: float) -> str:
    """Return a ratio of two numbers with three significant digits: ``4.17``."""
    for decimals in (2, 1):
        text = f"{ratio:,.{decimals}f}"
        if len(text.replace(",", "").replace(".", "")) <= _SIGNIFICANT_DIGITS:
            return text
    return f"{ratio:,.0f}"


def kibibytes(n_bytes: float) -> str:
    """Return a size for a table column headed ``KiB``: ``1,234.5``."""
    return _without_negative_zero(f"{n_bytes / 1024:,.1f}")


def percent(fraction: float, *, signed: bool = False) -> str:
    """Return a fraction of 1 as a percentage with one decimal: ``0.25`` is ``25.0 %``."""
    return _without_negative_zero(f"{fraction * 100:{'+' if signed else ''}.1f}") + " %"


def percent_up(fraction: float) -> str:
    """Return a bound as a percentage with one decimal, rounded up.

    So the text is still a bound.
    """
    return percent(
        math.ceil(round(fraction * 1_000, 6)) / 1_000 if math.isfinite(fraction) else fraction
    )


def growth(fraction: float, *, up: bool = False) -> str:
    """Return a bound of a growth for a sentence: ``12.5 %``, from 100 % on ``a factor of 3.50``.

    With ``up`` it is rounded up, so that it is still a bound.
    """
    if not 1 <= fraction < math.inf:
        return percent_up(fraction) if up else percent(fraction)
    times = 1 + fraction
    if up:
        digits = 10.0 ** max(0, 2 - int(math.log10(times)))
        times = math.ceil(round(times * digits, 6)) / digits
    return f"a factor of {factor(times)}"


def count(number: float) -> str:
    """Return a number of calls: no decimals for a whole number, else one."""
    return _without_negative_zero(
        f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"
    )


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things with its noun, whose plural ends in s unless it is given.

    ``1 case``, ``1,200 cases``.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def threads(number: int) -> str:
    """Return a number of threads: ``1 thread``, ``2 threads``."""
    return counted(number, "thread")


def tick(value: float, step: float) -> str:
    """Return a tick label with as many decimals as the step of the axis needs.

    ``0.25``, ``1,000``.
    """
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals > _TICK_DECIMALS or abs(value) >= 10**_TICK_DIGITS:
        return f"{value:.3g}"
    return _without_negative_zero(f"{value:,.{decimals}f}")


def printable(text: str) -> str:
    """Return text from a file with unprintable characters as escape sequences.

    These are escapes, line ends and hidden marks.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def without_addresses(text: str) -> str:
    """Return text without addresses of objects, which differ between processes.

    ``<function f at 0x7f14d53aa8e0>`` becomes ``<function f>``.
    """
    return _ADDRESS.sub("", text)


def cut(text: str, longest: int) -> str:
    """Return text of at most ``longest`` characters; a cut text ends in ``...``."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def listed(value: object) -> str:
    """Return a field of an environment as text.

    The members of a mapping or a list, ``none`` if it is empty.
    """
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(map(listed, value)) or "none"
    return str(value)


def joined(items: Sequence[str], last: str = "and") -> str:
    """Return ``a, b and c``; ``last`` is the word before the last item."""
    return f" {last} ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def and_more(
    items: Sequence[str], most: int = NAMED, separator: str = ", ", last: str = " and "
) -> str:
    """Return ``a, b and 3 more``.

    Args:
        items: all of them.
        most: number of items that are named.
        separator: between two items.
        last: before the number of the others.
    """
    named = separator.join(items[:most])
    return f"{named}{last}{len(items) - most} more" if len(items) > most else named


def and_others(items: Sequence[str], most: int) -> list[str]:
    """Return at most ``most`` texts: of more items the first ones, and ``3 others``."""
    if len(items) <= most:
        return [*items]
    return [*items[: most - 1], f"{len(items) - most + 1} others"]


def and_so_on(items: Sequence[str], most: int = NAMED, separator: str = ", ") -> str:
    """Return ``a, b, ...``."""
    return separator.join([*items[:most], "..."] if len(items) > most else items)


def counted_names(names: Iterable[str], most: int, what: str = "") -> str:
    """Return ``a, b``, or of a long list its length: ``12 tests (a, b, ...)``.

    Args:
        names: all of them.
        most: number of names that are shown.
        what: the names are of, in the plural.
    """
    all_names = list(names)
    shown = and_so_on(all_names, most)
    if len(all_names) <= most:
        return shown
    return " ".join(filter(None, (str(len(all_names)), what, f"({shown})")))


def first_lines(lines: Iterable[str], most: int, see_all: str) -> list[str]:
    """Return lines; of more than ``most`` the first ones, and a line ``3 more; SEE_ALL``."""
    all_lines = list(lines)
    if len(all_lines) <= most:
        return all_lines
    return [*all_lines[:most], f"{len(all_lines) - most} more; {see_all}"]


def _scaled(value: float, units: tuple[tuple[str, float], ...], *, signed: bool = False) -> str:
    if value == 0:
        return f"0 {units[0][0]}"
    sign = "-" if value < 0 else "+" if signed else ""
    magnitude = abs(value)
    for position, (name, size) in enumerate(units):
        text = factor(magnitude / size)
        larger = units[position + 1] if position + 1 < len(units) else None
        if larger is None or float(text.replace(",", "")) < larger[1] / size:
            return f"{_without_negative_zero(sign + text)} {name}"
    raise AssertionError("the largest unit takes any value")


def _without_negative_zero(text: str) -> str:
    """Remove the sign of ``-0.0``, which looks like a change."""
    return (
        text
        if any(digit in text for digit in "123456789")
        else text.replace("-", "").replace("+", "")
    )
