"""Hits and misses of a loop nest in two simulated caches: it runs on arrays without numbers that count misses.

Each cache is set-associative. A set keeps its lines in the order of their last use and replaces the least recently used one
(LRU). A write to a line that is not there loads it (write-allocate). Writes back to memory are not counted.
Source: Hennessy and Patterson, "Computer Architecture: A Quantitative Approach", appendix B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mnistbench.course.studies.locality.caches import Cache, Caches
from mnistbench.course.studies.locality.nests import ITEM, Nest, starts, strides
from mnistbench.course.studies.locality.result import CacheCounts

#: Dimensions of a stand-in for an array: numba's types have a fixed number of them.
_DIMENSIONS = 4

#: Number of a line that a way has before it has one.
_EMPTY = -1


def simulate(nest: Nest, caches: Caches, *, compiled: bool) -> dict[str, CacheCounts]:
    """Return the counts of each array of a nest; both caches are empty before.

    Args:
        nest: to run once.
        caches: to simulate.
        compiled: compile the simulation; needs numba.
    """
    array_of: Callable[..., Any] = Traced
    tags: Callable[[Cache, int], Any] = _lists
    loops = nest.loops
    if compiled:
        from mnistbench.course.studies.locality.compiled import compiled_loops, compiled_traced, tags_array

        array_of, loops, tags = compiled_traced(), compiled_loops(nest.loops), tags_array
    l1, l2 = tags(caches.l1, _EMPTY), tags(caches.l2, _EMPTY)
    arrays = [
        array_of(first, _padded(strides(shape)), caches.l1.line // ITEM, caches.l2.line // ITEM, l1, l2)
        for first, shape in zip(starts(nest, caches.l2.line), nest.shapes.values(), strict=True)
    ]
    loops(*arrays, *nest.lengths)
    return {
        name: CacheCounts(array.accesses, array.l1_misses, array.l2_misses)
        for name, array in zip(nest.shapes, arrays, strict=True)
    }


def _lists(cache: Cache, line: int) -> list[list[int]]:
    return [[line] * cache.ways for _ in range(cache.sets)]


def _padded(values: tuple[int, ...]) -> tuple[int, ...]:
    return (*values, *[0] * (_DIMENSIONS - len(values)))


# ---- Stand-ins for arrays --------------------------------------------------------------------------------------------

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
    found = ways[position] == line
    while position > 0:
        ways[position] = ways[position - 1]
        position -= 1
    ways[0] = line
    return bool(found)


class Traced:
    """A stand-in for an array: it holds no numbers, counts its accesses, and passes each to the caches."""

    def __init__(self, first: int, strides: Any, of_l1_line: int, of_l2_line: int, l1: Any, l2: Any) -> None:
        """Set the place in memory.

        Args:
            first: number of the first element in memory.
            strides: elements that an index of each dimension skips; a tuple of ``_DIMENSIONS``.
            of_l1_line: elements of a line of L1.
            of_l2_line: elements of a line of L2.
            l1: the lines that L1 has, as :func:`touch` takes them; shared by all arrays.
            l2: those of L2.
        """
        self.first = first
        self.strides = strides
        self.of_l1_line = of_l1_line
        self.of_l2_line = of_l2_line
        self.l1 = l1
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
