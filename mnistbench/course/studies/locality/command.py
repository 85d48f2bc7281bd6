"""``mnistbench study locality``: cache misses and time of loops in several orders."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.locality.caches import Caches, of_this_machine, parse
from mnistbench.course.studies.locality.report import blocks
from mnistbench.course.studies.locality.result import COLUMNS, Study, csv_rows, dumps
from mnistbench.measuring import import_torch
from mnistbench.showing.arguments import add_format, add_output, given, one_of, parts, whole, wholes
from mnistbench.showing.output import deliver_tables, output_file, progress_bar

if TYPE_CHECKING:
    from mnistbench.course.studies.locality.run import Task

#: Largest side of a matrix or a tile.
_LARGEST = 1024

#: Times of each loop nest.
_ROUNDS = 11

#: Default sides of the matrices and default convolution: with numba, and without, where the simulation is much slower.
#: One matrix of any of these sides does not fit in an L1 of 48 KiB. With rows of 128 elements, a power of two, the elements of
#: a column are in few sets.
_SIZES, _CONVOLUTION = (120, 128), "conv2-b1"
_SIZES_IN_PYTHON, _CONVOLUTION_IN_PYTHON = (112,), "conv1-b1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--size", metavar="N", help="comma list of sides of square matrices (default: 120,128; without numba: 112)")
    add("--convolution", metavar="NAME", help="chapter, conv1-b1, conv2-b16, ... (default: conv2-b1; without numba: conv1-b1)")
    add("--order", metavar="NAMES", help="comma list of loop orders: ijk, tiled, columns_innermost, ... (default: all)")
    add("--tile", metavar="N", help="side of a tile (default: the largest of whole lines of which L1 holds three)")
    add("--l1", metavar="SIZE:LINE:WAYS", help="first cache, such as 32K:64:8 (default: that of this machine)")
    add("--l2", metavar="SIZE:LINE:WAYS", help="second cache, such as 1M:64:16 (default: that of this machine)")
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Simulate, measure, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used.
    """
    from mnistbench.course.studies.locality.nests import ORDERS

    sizes = None if parsed.size is None else wholes("--size", parsed.size, 2, _LARGEST)
    tile = None if parsed.tile is None else whole("--tile", parsed.tile, 1, _LARGEST)
    orders = [one_of("--order", name, ORDERS) for name in parts("--order", given("--order", parsed.order, ",".join(ORDERS)))]
    _check_needed(parsed, orders)
    caches = _caches(parsed)
    output = output_file(parsed)
    found = measured(sizes, parsed.convolution, orders, caches, tile)
    deliver_tables(
        parsed.format, output, blocks=blocks(found), heading="loop orders, cache misses and time", json=dumps(found),
        columns=COLUMNS, rows=csv_rows(found),
    )  # fmt: skip
    return 0


def _check_needed(parsed: argparse.Namespace, orders: Sequence[str]) -> None:
    """Check that each option is used.

    Raises:
        UsageError: none of the orders uses it.
    """
    from mnistbench.course.studies.locality.nests import CONVOLUTIONS, PRODUCTS

    users = {"size": tuple(PRODUCTS), "tile": ("tiled",), "convolution": tuple(CONVOLUTIONS)}
    for name, using in users.items():
        if getattr(parsed, name) is not None and not set(using) & set(orders):
            raise UsageError(f"--{name} is used by none of the orders; add {' or '.join(using)} to --order")


def _caches(parsed: argparse.Namespace) -> Caches:
    own = {name: parse(f"--{name}", getattr(parsed, name)) for name in ("l1", "l2") if getattr(parsed, name) is not None}
    return replace(of_this_machine(), **own)


def measured(
    sizes: Sequence[int] | None, convolution: str | None, orders: Sequence[str], caches: Caches, tile: int | None
) -> Study:
    """Return the study, with the defaults of the command for what is None.

    Args:
        sizes: sides of the matrices.
        convolution: name of a default size of ``mnistbench study convolution``.
        orders: names of loop orders.
        caches: to simulate.
        tile: side of a tile.

    Raises:
        UsageError: the convolution is not known, or a simulation takes too long.
    """
    from mnistbench.course.studies.locality.run import study

    tasks = list(_tasks(sizes, convolution, orders, caches, tile))
    with progress_bar("order") as progress:
        return study(tasks, caches, rounds=_ROUNDS, progress=progress)


def _tasks(
    sizes: Sequence[int] | None, convolution: str | None, orders: Sequence[str], caches: Caches, tile: int | None
) -> Iterator[Task]:
    from mnistbench.course.studies.locality.compiled import numba_version
    from mnistbench.course.studies.locality.nests import CONVOLUTIONS, tile_that_fits
    from mnistbench.course.studies.locality.run import convolution_task, product_task

    has_numba = bool(numba_version())
    for size in sizes or (_SIZES if has_numba else _SIZES_IN_PYTHON):
        yield product_task(size, orders, tile or tile_that_fits(caches.l1))
    if set(orders) & set(CONVOLUTIONS):
        import_torch()
        from mnistbench.course.studies.convolution.sizes import GRID

        name = convolution or (_CONVOLUTION if has_numba else _CONVOLUTION_IN_PYTHON)
        yield convolution_task(name, GRID[one_of("--convolution", name, GRID)], orders)
