"""Hits and misses of a loop nest in two simulated caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mnistbench.course.studies.locality.caches import Cache, Caches
from mnistbench.course.studies.locality.measured import Counts
from mnistbench.course.studies.locality.nests import ITEM, Nest, starts, strides
from mnistbench.course.studies.locality.traced import Traced

#: Dimensions of a stand-in for an array: numba's types have a fixed number of them.
_DIMENSIONS = 4

#: Number of a line that a way has before it has one.
_EMPTY = -1


def simulate(nest: Nest, caches: Caches, *, compiled: bool) -> dict[str, Counts]:
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
        name: Counts(array.accesses, array.l1_misses, array.l2_misses) for name, array in zip(nest.shapes, arrays, strict=True)
    }


def _lists(cache: Cache, line: int) -> list[list[int]]:
    return [[line] * cache.ways for _ in range(cache.sets)]


def _padded(values: tuple[int, ...]) -> tuple[int, ...]:
    return (*values, *[0] * (_DIMENSIONS - len(values)))
