"""What numba compiles: the loops on arrays, the loops on stand-ins that count misses, and the stand-ins.

numba compiles a function for the types of its arguments, so the loops that are timed and those that are simulated are the same
functions. It compiles without ``fastmath``: a sum is added in the order of its loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mnistbench.course.studies.locality.caches import Cache
from mnistbench.course.studies.locality.traced import Traced, touch


def numba_version() -> str:
    """Return the version of numba; empty if it cannot be imported, for example because it is too old for this numpy."""
    try:
        import numba
    except ImportError:
        return ""
    return str(numba.__version__)


@functools.cache
def compiled_loops(loops: Callable[..., None]) -> Callable[..., None]:
    """Return the loops, compiled at the first call with arguments of new types."""
    import numba

    found: Callable[..., None] = numba.njit(loops)
    return found


@functools.cache
def repeated(loops: Callable[..., None]) -> Callable[..., None]:
    """Return a compiled function that runs the loops as often as its first argument says.

    One call of a compiled function from Python takes about as long as the shortest loops.
    """
    import numba

    inner = compiled_loops(loops)

    def calls(number: int, *arguments: Any) -> None:
        for _ in range(number):
            inner(*arguments)

    found: Callable[..., None] = numba.njit(calls)
    return found


@functools.cache
def compiled_traced() -> Callable[..., Any]:
    """Return the class :class:`traced.Traced`, compiled."""
    from numba import int64
    from numba.experimental import jitclass
    from numba.extending import register_jitable
    from numba.types import UniTuple

    register_jitable(touch)
    numbers = ("first", "of_l1_line", "of_l2_line", "accesses", "l1_misses", "l2_misses")
    fields = [
        *((name, int64) for name in numbers),
        ("strides", UniTuple(int64, 4)),
        *((name, int64[:, ::1]) for name in ("l1", "l2")),
    ]
    found: Callable[..., Any] = jitclass(fields)(Traced)
    return found


def tags_array(cache: Cache, line: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the lines that a cache has, [sets, ways], each the same number."""
    return np.full((cache.sets, cache.ways), line, dtype=np.int64)
