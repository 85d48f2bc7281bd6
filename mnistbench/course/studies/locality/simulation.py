"""Hits and misses of a loop nest in two simulated caches: it runs on arrays without numbers that count misses.

Each cache is set-associative. A set keeps its lines in the order of their last use and replaces the least recently used one
(LRU). A write to a line that is not there loads it (write-allocate). Writes back to memory are not counted.
Source: Hennessy and Patterson, "Computer Architecture: A Quantitative Approach", appendix B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mnistbench.course.studies.locality.caches import DIMENSIONS, Caches, Traced
from mnistbench.course.studies.locality.nests import ITEM, Nest, starts, strides
from mnistbench.course.studies.locality.result import CacheCounts

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
    loops = nest.loops
    l1: Any
    l2: Any
    l1, l2 = ([[_EMPTY] * cache.ways for _ in range(cache.sets)] for cache in (caches.l1, caches.l2))  # [sets, ways]
    if compiled:
        import numpy as np

        from mnistbench.course.studies.locality.compiled import compiled_loops, compiled_traced

        array_of, loops = compiled_traced(), compiled_loops(nest.loops)
        l1, l2 = (np.array(tags, dtype=np.int64) for tags in (l1, l2))
    arrays = [
        array_of(
            first, (*strides(shape), *[0] * (DIMENSIONS - len(shape))), caches.l1.line // ITEM, caches.l2.line // ITEM, l1, l2
        )
        for first, shape in zip(starts(nest, caches.l2.line), nest.shapes.values(), strict=True)
    ]
    loops(*arrays, *nest.lengths)
    return {
        name: CacheCounts(array.accesses, array.l1_misses, array.l2_misses)
        for name, array in zip(nest.shapes, arrays, strict=True)
    }
