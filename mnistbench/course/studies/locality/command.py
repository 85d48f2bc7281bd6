"""``mnistbench study locality``: cache misses and time of loops in several orders."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution.sizes import GRID
from mnistbench.course.studies.locality.caches import Caches, of_this_machine
from mnistbench.course.studies.locality.nests import (
    CONVOLUTIONS,
    ITEM,
    PRODUCTS,
    Nest,
    convolution,
    in_l1,
    product,
    tile_that_fits,
)
from mnistbench.course.studies.locality.report import INSTALL, report_of
from mnistbench.course.studies.locality.result import Computation, LocalityStudy, NestResult, Settings
from mnistbench.course.studies.locality.simulation import simulate
from mnistbench.showing.output import check, deliver
from mnistbench.showing.progress import Progress

#: Times of each loop nest.
_ROUNDS = 11

#: Default sides of the matrices and default convolution: with numba, and without, where the simulation is much slower.
#: One matrix of any of these sides does not fit in an L1 of 48 KiB. With rows of 128 elements, a power of two, the elements of
#: a column are in few sets.
_SIZES, _CONVOLUTION = (120, 128), "conv2-b1"
_SIZES_IN_PYTHON, _CONVOLUTION_IN_PYTHON = (112,), "conv1-b1"

#: Most multiply-adds of a nest, with and without numba: a simulation compiled by numba does about 10 million in a second.
MOST, MOST_IN_PYTHON = 1024**3, 128**3


def run(settings: Settings) -> int:
    """Simulate each loop nest, time it if numba is installed, report, and return 0.

    Raises:
        UsageError: the caches do not fit together, or the loops cannot compute something or take too long.
    """
    if settings.output:
        check(settings.output)
    numba, caches = numba_version(), settings.caches
    wanted = [(name, text, nests) for name, text, nests in _wanted(settings, caches, bool(numba)) if nests]
    for name, _, [nest, *_] in wanted:
        most = MOST if numba else MOST_IN_PYTHON
        if nest.multiply_adds > most:
            remedy = "" if numba else f", or {INSTALL}"
            raise UsageError(
                f"{name}: {nest.multiply_adds:,} multiply-adds are too many to simulate; give at most {most:,}{remedy}"
            )
    with Progress(sys.stderr, quiet=True) as progress:
        found = tuple(computed(*each, caches, _ROUNDS if numba else 0, progress.step) for each in wanted)
    deliver(report_of(LocalityStudy(caches, numba, found)), settings.format, settings.output)
    return 0


def numba_version() -> str:
    """Return the version of numba; empty if it cannot be imported, for example because it is too old for this numpy."""
    try:
        import numba
    except ImportError:
        return ""
    return str(numba.__version__)


def _wanted(settings: Settings, caches: Caches, has_numba: bool) -> Sequence[tuple[str, str, Sequence[Nest]]]:
    """Return the name, a description and the loop nests of each computation."""
    products = [order for order in settings.orders if order in PRODUCTS]
    convolutions = [order for order in settings.orders if order in CONVOLUTIONS]
    tile = settings.tile or tile_that_fits(caches.l1)
    tiles = f", tiles of {tile}x{tile}" if "tiled" in products else ""
    name = settings.convolution or (_CONVOLUTION if has_numba else _CONVOLUTION_IN_PYTHON)
    return [
        *(
            (f"product-{n}", f"product of {n}x{n} matrices{tiles}", [product(order, n, n, n, tile) for order in products])
            for n in settings.sizes or (_SIZES if has_numba else _SIZES_IN_PYTHON)
        ),
        (name, f"convolution {GRID[name]}", [convolution(order, GRID[name]) for order in convolutions]),
    ]


def computed(
    name: str, text: str, nests: Sequence[Nest], caches: Caches, rounds: int, progress: Callable[[str], None]
) -> Computation:
    """Simulate all nests of a computation, and time them.

    Args:
        name: of the computation.
        text: its description.
        nests: on the same arrays.
        caches: to simulate.
        rounds: times of each nest; 0: they are not timed, and nothing is compiled.
        progress: receives what is done next.
    """
    counts = []
    for nest in nests:
        progress(f"{name} {nest.order}: misses")
        counts.append(simulate(nest, caches, compiled=rounds > 0))
    progress(f"{name}: time")
    times = _times(nests, caches.l2.line, rounds) if rounds else [((), None)] * len(counts)
    found = tuple(
        NestResult(nest.order, nest.multiply_adds, of_arrays, rounds_ns, in_l1_ns)
        for nest, of_arrays, (rounds_ns, in_l1_ns) in zip(nests, counts, times, strict=True)
    )
    lines = sum(math.ceil(math.prod(shape) * ITEM / caches.l1.line) for shape in nests[0].shapes.values())
    return Computation(name, text, nests[0].n_bytes, lines, found)


def _times(nests: Sequence[Nest], line: int, rounds: int) -> list[tuple[tuple[float, ...], float | None]]:
    """Return for each nest the time of a multiply-add in each round, and the median with data in L1, in nanoseconds."""
    from mnistbench.course.studies.locality.compiled import rounds_ns

    small = [in_l1(nest, of_this_machine().l1.size // 2) for nest in nests]
    timed = iter(rounds_ns([*nests, *(nest for nest in small if nest is not None)], line, rounds))
    of_nests = [next(timed) for _ in nests]
    in_l1_ns = [None if nest is None else statistics.median(next(timed)) for nest in small]
    return list(zip(of_nests, in_l1_ns, strict=True))
