"""Running text of a report: words, code, and numbers that the report cites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from mnistbench.core import units


class Code(str):
    """Text in a code font: a name, a file or a command."""

    __slots__ = ()


class Link(str):
    """Text that leads to an address, if a format has links."""

    __slots__ = ("address",)
    address: str

    def __new__(cls, text: str, address: str) -> Self:
        """Return the text with its address."""
        link = super().__new__(cls, text)
        link.address = address
        return link


class Cited:
    """A number with an entry in the section of sources.

    It is hashable, and equal numbers share an entry. ``str`` returns its text.
    """

    __slots__ = ()


class Text(tuple[str | Cited, ...]):
    """A sentence or a cell: its pieces. ``str`` returns the words without marks."""

    __slots__ = ()

    def __str__(self) -> str:
        return "".join(map(str, self))

    @property
    def cited(self) -> Iterator[Cited]:
        """The numbers among the pieces."""
        return (piece for piece in self if isinstance(piece, Cited))


def uneven(averages: int) -> str:
    """Return the line below a table of functions, so many of which have averages of calls."""
    counts = (
        f"calls of {units.counted(averages, 'function')} are averages, because they differ from "
        "call to call"
        if averages
        else "calls are exact"
    )
    return (
        "cProfile slows Python down unevenly: a function of many short calls looks larger than it "
        f"is; {counts}"
    )
