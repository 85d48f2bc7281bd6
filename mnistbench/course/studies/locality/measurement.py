"""Simulate the misses of loop nests, and time them if numba is installed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.core.extras import install
from mnistbench.course.studies.convolution.sizes import GRID
from mnistbench.course.studies.locality.caches import DIMENSIONS, Caches, Traced, of_this_machine
from mnistbench.course.studies.locality.nests import (
    CONVOLUTIONS,
    ITEM,
    PRODUCTS,
    Nest,
    convolution,
    in_l1,
    product,
    starts,
    strides,
    tile_that_fits,
)
from mnistbench.course.studies.locality.study import (
    CacheCounts,
    Computation,
    LocalityStudy,
    NestResult,
    Settings,
)

#: Times of each loop nest.
_ROUNDS = 11

#: Default sides of the matrices with numba. One matrix of any of these sides does not fit in an L1
#: of 48 KiB. With rows of 128 elements, a power of two, the elements of a column are in few sets.
_SIZES = (120, 128)
#: Default convolution with numba.
_CONVOLUTION = "conv2-b1"
#: Default sides of the matrices without numba, where the simulation is much slower.
_SIZES_IN_PYTHON = (112,)
#: Default convolution without numba.
_CONVOLUTION_IN_PYTHON = "conv1-b1"

#: Most multiply-adds of a nest with numba: a simulation compiled by it does about 10 million in a
#: second.
MOST = 1024**3
#: Most multiply-adds of a nest without numba.
MAX_IN_PYTHON = 128**3


def study(settings: Settings, progress: Callable[[str], None]) -> LocalityStudy:
    """Simulate each loop nest, and time it if numba is installed."""
    numba = _numba_version()
    caches = settings.caches
    most = MOST if numba else MAX_IN_PYTHON
    sizes = settings.sizes or (_SIZES if numba else _SIZES_IN_PYTHON)
    name = settings.convolution or (_CONVOLUTION if numba else _CONVOLUTION_IN_PYTHON)
    tile = settings.tile or tile_that_fits(caches.l1)
    products = [order for order in settings.orders if order in PRODUCTS]
    tiles = f", tiles of {tile}x{tile}" if "tiled" in products else ""
    wanted = {
        f"product-{n}": (
            f"product of {n}x{n} matrices{tiles}",
            [product(order, n, n, n, tile) for order in products],
        )
        for n in sizes
    }
    convolutions = [
        convolution(order, GRID[name]) for order in settings.orders if order in CONVOLUTIONS
    ]
    wanted[name] = f"convolution {GRID[name]}", convolutions
    wanted = {name: (text, nests) for name, (text, nests) in wanted.items() if nests}
    for name, (_, [nest, *_]) in wanted.items():
        if nest.multiply_adds > most:
            remedy = "" if numba else f", or {install('numba')}"
            raise UsageError(
                f"{name}: {nest.multiply_adds:,} multiply-adds are too many to simulate; give at "
                f"most {most:,}{remedy}"
            )
    computations = [
        _computed(name, text, nests, caches, _ROUNDS if numba else 0, progress)
        for name, (text, nests) in wanted.items()
    ]
    return LocalityStudy(caches, numba, tuple(computations))


def _numba_version() -> str:
    """Return the version of numba.

    Empty if it cannot be imported, for example because it is too old for this numpy.
    """
    try:
        import numba
    except ImportError:
        return ""
    return str(numba.__version__)


def _computed(
    name: str,
    text: str,
    nests: Sequence[Nest],
    caches: Caches,
    rounds: int,
    progress: Callable[[str], None],
) -> Computation:
    """Simulate all nests of a computation, on the same arrays, and time each ``rounds`` times.

    With 0, nothing is compiled.
    """
    counts = []
    for nest in nests:
        progress(f"{name} {nest.order}: misses")
        counts.append(simulate(nest, caches, compiled=rounds > 0))
    progress(f"{name}: time")
    times = _times(nests, caches.l2.line, rounds) if rounds else [((), None)] * len(counts)
    results = tuple(
        NestResult(nest.order, nest.multiply_adds, array_counts, rounds_ns, in_l1_ns)
        for nest, array_counts, (rounds_ns, in_l1_ns) in zip(nests, counts, times, strict=True)
    )
    lines = sum(
        math.ceil(math.prod(shape) * ITEM / caches.l1.line) for shape in nests[0].shapes.values()
    )
    return Computation(name, text, nests[0].n_bytes, lines, results)


def _times(
    nests: Sequence[Nest], line: int, rounds: int
) -> list[tuple[tuple[float, ...], float | None]]:
    """Return for each nest the time of a multiply-add in each round, in nanoseconds.

    The median is that with data in L1.
    """
    from mnistbench.course.studies.locality.compiled import rounds_ns

    small = [in_l1(nest, of_this_machine().l1.size // 2) for nest in nests]
    timed = iter(rounds_ns([*nests, *(nest for nest in small if nest is not None)], line, rounds))
    times_of_nests = [next(timed) for _ in nests]
    in_l1_ns = [None if nest is None else statistics.median(next(timed)) for nest in small]
    return list(zip(times_of_nests, in_l1_ns, strict=True))


def simulate(nest: Nest, caches: Caches, *, compiled: bool) -> dict[str, CacheCounts]:
    """Run a nest once, compiled by numba or not; return the counts of each array.

    Both caches are empty before.

    A nest runs on arrays without numbers that count misses. Each cache is set-associative. A set
    keeps its lines in the order of their last use and replaces the least recently used one (LRU). A
    write to a line that is not there loads it (write-allocate). Writes back to memory are not
    counted. Source: Hennessy and Patterson, "Computer Architecture: A Quantitative Approach",
    appendix B.
    """
    array_of: Callable[..., Any] = Traced
    loops = nest.loops
    # [sets, ways] of L1 and of L2; no line has the number -1.
    caches_lines: list[Any] = [
        [[-1] * cache.ways for _ in range(cache.sets)] for cache in (caches.l1, caches.l2)
    ]
    if compiled:
        import numpy as np

        from mnistbench.course.studies.locality.compiled import compiled_loops, compiled_traced

        array_of = compiled_traced()
        loops = compiled_loops(nest.loops)
        caches_lines = [np.array(lines, dtype=np.int64) for lines in caches_lines]
    arrays = [
        array_of(
            first,
            (*strides(shape), *[0] * (DIMENSIONS - len(shape))),
            caches.l1.line // ITEM,
            caches.l2.line // ITEM,
            *caches_lines,
        )
        for first, shape in zip(starts(nest, caches.l2.line), nest.shapes.values(), strict=True)
    ]
    loops(*arrays, *nest.lengths)
    return {
        name: CacheCounts(array.accesses, array.l1_misses, array.l2_misses)
        for name, array in zip(nest.shapes, arrays, strict=True)
    }
