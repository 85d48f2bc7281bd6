"""The size, the line and the ways of a cache, those of this machine, and a simulated cache.

Does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench.core.errors import UsageError

#: Where Linux describes the caches of the first core.
LINUX = Path("/sys/devices/system/cpu/cpu0/cache")

#: Bytes of the largest cache.
MAX_BYTES = 2**30
#: Most ways of a cache: the simulation searches the ways one by one.
MAX_WAYS = 1024

#: Dimensions of a stand-in for an array: numba's types have a fixed number of them.
DIMENSIONS = 4

_UNITS = {"": 1, "K": 1024, "M": 1024**2}


@dataclass(frozen=True)
class Cache:
    """A set-associative cache.

    A direct-mapped one has one way, a fully associative one as many as lines.

    Raises:
        ValueError: no such cache can be simulated.
    """

    size: int  # bytes
    line: int  # bytes
    ways: int  # lines of a set
    source: str = ""  # where the values are from

    def __post_init__(self) -> None:
        if self.line < 4 or self.line & (self.line - 1):
            raise ValueError(f"has a line of {self.line} bytes; give a power of two, at least 4")
        if not 1 <= self.ways <= MAX_WAYS:
            raise ValueError(f"has {self.ways} ways; give 1 to {MAX_WAYS:,}")
        if not 1 <= self.size <= MAX_BYTES or self.size % (self.line * self.ways):
            limits = (
                f"a multiple of line times ways, {self.line * self.ways}, up to "
                f"{MAX_BYTES // _UNITS['M']}M"
            )
            raise ValueError(f"has {self.size} bytes; give {limits}")

    @property
    def sets(self) -> int:
        """Number of sets. A line can be in one of them: its number modulo the sets."""
        return self.size // (self.line * self.ways)


@dataclass(frozen=True)
class Caches:
    """Two levels. The second one is asked for the lines that the first one does not have."""

    l1: Cache
    l2: Cache

    def __post_init__(self) -> None:
        if self.l2.line < self.l1.line:
            raise UsageError(
                f"--l2: a line of {self.l2.line} bytes is smaller than one of L1, {self.l1.line}; "
                "give at least that"
            )


_USUAL = "a usual one, because this system does not describe its caches"

#: Used where the system does not describe its caches.
USUAL = Caches(Cache(32 * 1024, 64, 8, _USUAL), Cache(1024**2, 64, 16, _USUAL))


def cache_of(source: str) -> Callable[[str], Cache]:
    """Return a kind for caches such as ``32K:64:8``: size, line and ways."""

    def read(text: str) -> Cache:
        match = re.fullmatch(r"([0-9]{1,12})([KM]?):([0-9]{1,12}):([0-9]{1,12})", text)
        if match is None:
            raise ValueError("is not of the form SIZE:LINE:WAYS; give 32K:64:8, for example")
        number, unit, line, ways = match.groups()
        return Cache(int(number) * _UNITS[unit], int(line), int(ways), source)

    return read


def of_this_machine(directory: Path = LINUX) -> Caches:
    """Return the caches of this machine, as Linux describes them.

    Usual values where it does not.
    """

    def text(index: Path, name: str) -> str:
        return (index / name).read_text(encoding="utf-8").strip()

    def cache(index: Path) -> Cache:
        values = (
            text(index, name) for name in ("size", "coherency_line_size", "ways_of_associativity")
        )
        return cache_of(str(index))(":".join(values))

    try:
        indices = {
            text(index, "level"): index
            for index in directory.glob("index*")
            if text(index, "type") != "Instruction"
        }
        return Caches(cache(indices["1"]), cache(indices["2"]))
    except (OSError, KeyError, ValueError, UsageError):
        return USUAL


# ---- Stand-ins for arrays ------------------------------------------------------------------------

# They run in Python and compiled by numba (``compiled``), so they use only what numba supports.


def touch(sets: Any, line: int) -> bool:
    """Use a line; return whether the cache had it.

    Args:
        sets: [sets, ways] numbers of lines, those of each set from the last used to the first used.
        line: number of the line, its address divided by the bytes of a line.
    """
    ways = sets[line % len(sets)]
    last = len(ways) - 1
    position = 0
    while position < last and ways[position] != line:
        position += 1
    is_hit = ways[position] == line
    while position > 0:
        ways[position] = ways[position - 1]
        position -= 1
    ways[0] = line
    return bool(is_hit)


class Traced:
    """A stand-in for an array.

    It holds no numbers, counts its accesses, and passes each to the caches.
    """

    def __init__(
        self, first: int, strides: Any, of_l1_line: int, of_l2_line: int, l1: Any, l2: Any
    ) -> None:
        self.first = first  # number of the first element in memory
        # Elements that an index of each dimension skips; a tuple of ``DIMENSIONS``.
        self.strides = strides
        self.of_l1_line = of_l1_line  # elements of a line of L1
        self.of_l2_line = of_l2_line
        self.l1 = l1  # the lines that L1 has, as :func:`touch` takes them; shared by all arrays
        self.l2 = l2
        self.accesses = 0
        self.l1_misses = 0
        self.l2_misses = 0

    def access(self, index: tuple[int, ...]) -> None:
        """Count an access to an element."""
        element = self.first
        for dimension in range(len(index)):
            element += index[dimension] * self.strides[dimension]
        self.accesses += 1
        if not touch(self.l1, element // self.of_l1_line):
            self.l1_misses += 1
            if not touch(self.l2, element // self.of_l2_line):
                self.l2_misses += 1

    def __getitem__(self, index: tuple[int, ...]) -> float:
        self.access(index)
        return 0.0

    def __setitem__(self, index: tuple[int, ...], value: float) -> None:
        self.access(index)
