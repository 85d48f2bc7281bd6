"""Simulate and time loop nests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.locality.caches import Caches, of_this_machine
from mnistbench.course.studies.locality.compiled import numba_version
from mnistbench.course.studies.locality.measured import Measured, Problem
from mnistbench.course.studies.locality.nests import CONVOLUTIONS, ITEM, PRODUCTS, Nest, convolution, in_l1, product
from mnistbench.course.studies.locality.result import INSTALL, Study
from mnistbench.course.studies.locality.simulation import simulate
from mnistbench.course.studies.locality.timing import rounds_ns

if TYPE_CHECKING:
    from mnistbench.course.studies.convolution.sizes import ConvolutionSizes  # it imports torch


#: Most multiply-adds of a nest, with and without numba: a simulation compiled by numba does about 10 million in a second.
MOST, MOST_IN_PYTHON = 1024**3, 128**3


@dataclass(frozen=True)
class Task:
    """A computation, and the loop nests that do it."""

    name: str
    text: str
    nests: tuple[Nest, ...]  # on the same arrays


def product_task(size: int, orders: Iterable[str], tile: int) -> Task:
    """Return the product of square matrices, in those of the orders that are orders of a product."""
    nests = tuple(product(order, size, size, size, tile) for order in orders if order in PRODUCTS)
    tiles = f", tiles of {tile}x{tile}" if "tiled" in orders else ""
    return Task(f"product-{size}", f"product of {size}x{size} matrices{tiles}", nests)


def convolution_task(name: str, sizes: ConvolutionSizes, orders: Iterable[str]) -> Task:
    """Return a convolution, in those of the orders that are orders of one.

    Raises:
        UsageError: the loops cannot compute it.
    """
    return Task(name, f"convolution {sizes}", tuple(convolution(order, sizes) for order in orders if order in CONVOLUTIONS))


def study(tasks: Iterable[Task], caches: Caches, *, rounds: int, progress: Callable[[str], None] = lambda _: None) -> Study:
    """Simulate each nest, and time it if numba is installed.

    Args:
        tasks: to do. Those without nests are left out.
        caches: to simulate.
        rounds: times of each nest.
        progress: receives what is done next.

    Raises:
        UsageError: a task takes too long.
    """
    numba = numba_version()
    wanted = [task for task in tasks if task.nests]
    for task in wanted:
        _check(task, MOST if numba else MOST_IN_PYTHON)
    return Study(caches, numba, tuple(_problem(task, caches, rounds if numba else 0, progress) for task in wanted))


def _check(task: Task, most: int) -> None:
    if task.nests[0].multiply_adds > most:
        remedy = "" if most == MOST else f", or {INSTALL}"
        raise UsageError(
            f"{task.name}: {task.nests[0].multiply_adds:,} multiply-adds are too many to simulate; "
            f"give at most {most:,}{remedy}"
        )


def _problem(task: Task, caches: Caches, rounds: int, progress: Callable[[str], None]) -> Problem:
    """Return the counts of all nests, and their times, unless there are no rounds."""
    counts = []
    for nest in task.nests:
        progress(f"{task.name} {nest.order}: misses")
        counts.append(simulate(nest, caches, compiled=rounds > 0))
    progress(f"{task.name}: time")
    times = _times(task.nests, caches.l2.line, rounds) if rounds else [((), None)] * len(counts)
    nests = tuple(
        Measured(nest.order, nest.multiply_adds, of_arrays, rounds_ns, in_l1_ns)
        for nest, of_arrays, (rounds_ns, in_l1_ns) in zip(task.nests, counts, times, strict=True)
    )
    one = task.nests[0]
    return Problem(task.name, task.text, one.n_bytes, _lines(one, caches.l1.line), nests)


def _times(nests: Sequence[Nest], line: int, rounds: int) -> list[tuple[tuple[float, ...], float | None]]:
    """Return for each nest the time of a multiply-add in each round, and the median with data in L1, in nanoseconds."""
    small = [in_l1(nest, of_this_machine().l1.size // 2) for nest in nests]
    timed = iter(rounds_ns([*nests, *(nest for nest in small if nest is not None)], line, rounds))
    of_nests = [next(timed) for _ in nests]
    in_l1_ns = [None if nest is None else statistics.median(next(timed)) for nest in small]
    return list(zip(of_nests, in_l1_ns, strict=True))


def _lines(nest: Nest, line: int) -> int:
    """Return how many lines the arrays occupy; each begins at one."""
    return sum(math.ceil(math.prod(shape) * ITEM / line) for shape in nest.shapes.values())
