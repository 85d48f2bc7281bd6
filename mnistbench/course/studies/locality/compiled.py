"""What numba compiles.

The loops on arrays, which are timed, and the loops on stand-ins that count misses.

numba compiles a function for the types of its arguments, so the loops that are timed and those that
are simulated are the same functions. It compiles without ``fastmath``: a sum is added in the order
of its loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mnistbench.course.studies.locality.caches import Traced, touch
from mnistbench.course.studies.locality.nests import ITEM, Nest, starts
from mnistbench.measuring.timing import clocked

#: A timed block of calls takes at least about this long, so that the call from Python does not
#: count.
_BLOCK_NS = 2_000_000

#: The first array begins at a multiple of this many bytes, as in the simulation, where it begins at
#: 0.
_PAGE = 4096


@functools.cache
def compiled_loops(loops: Callable[..., None]) -> Callable[..., None]:
    """Return the loops, compiled at the first call with arguments of new types."""
    import numba

    compiled: Callable[..., None] = numba.njit(loops)
    return compiled


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

    compiled: Callable[..., None] = numba.njit(calls)
    return compiled


@functools.cache
def compiled_traced() -> Callable[..., Any]:
    """Return the class :class:`caches.Traced`, compiled."""
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
    compiled: Callable[..., Any] = jitclass(fields)(Traced)
    return compiled


# ---- Times ---------------------------------------------------------------------------------------

# CPU times, which leave out the time in which other programs had the core, of blocks of calls, and
# all nests in each round. ``measuring.timing`` measures wall times of single calls.


def rounds_ns(nests: Sequence[Nest], line: int, rounds: int) -> list[tuple[float, ...]]:
    """Return for each nest the time of a multiply-add in each round, in nanoseconds.

    A round times each nest once, so that a slow phase of the machine is a slow phase of all of
    them. Nests with the same shapes use the same arrays, each of which begins at a multiple of
    ``line`` bytes.
    """
    arrays = {
        shapes: arrays_of(nest, line) for nest in nests for shapes in [tuple(nest.shapes.items())]
    }
    blocks = [_timed_block(nest, arrays[tuple(nest.shapes.items())]) for nest in nests]
    times = [[block() for block in blocks] for _ in range(rounds)]
    return [tuple(nest_times) for nest_times in zip(*times, strict=True)]


def call_of(nest: Nest, arrays: Sequence[np.ndarray[Any, Any]]) -> Callable[[int], object]:
    """Return the function that runs a nest as often as its argument says.

    Its first call compiles the loops.
    """
    calls = repeated(nest.loops)
    # For indices that can be negative, numba adds a check, and with it LLVM does not vectorize the
    # loops of a tile.
    lengths = [np.uintp(length) for length in nest.lengths]
    return lambda number: calls(number, *arrays, *lengths)


def arrays_of(nest: Nest, line: int) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a nest, where the simulation has them.

    Random numbers from 0 to 1, and zeros in the result.

    Each begins at a multiple of ``line`` bytes.
    """
    memory = np.zeros(nest.n_bytes + len(nest.shapes) * line + _PAGE, dtype=np.uint8)
    memory = memory[-memory.ctypes.data % _PAGE :]
    arrays = [
        np.ndarray(shape, np.float32, memory, first * ITEM)
        for first, shape in zip(starts(nest, line), nest.shapes.values(), strict=True)
    ]
    random = np.random.default_rng(0)
    for array in arrays[:-1]:
        array[...] = random.random(array.shape)
    return arrays


def _timed_block(nest: Nest, arrays: Sequence[np.ndarray[Any, Any]]) -> Callable[[], float]:
    """Compile the loops.

    Return what times a number of calls together, and returns the time of a multiply-add.
    """
    call = call_of(nest, arrays)
    call(1)  # compiles

    def taken_ns(number: int) -> int:
        return clocked(functools.partial(call, number)).cpu_ns

    number = 1
    while (block_ns := taken_ns(number)) < _BLOCK_NS / 2:
        number *= min(100, math.ceil(_BLOCK_NS / max(block_ns, 1)))
    return lambda: taken_ns(number) / number / nest.multiply_adds
