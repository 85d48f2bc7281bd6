"""Columns of operations that commands share, and a roofline plot made of characters.

The plot shows FLOP/s over FLOP per byte, both logarithmic: Williams, Waterman and Patterson,
"Roofline", CACM 52 (2009) 65.
"""

from __future__ import annotations

import math
import string
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mnistbench.core import units
from mnistbench.core.operation import OpKey, grouped, operation_cells, operation_name
from mnistbench.core.record import OpRow, OpTable, median_ns
from mnistbench.events.work.roofline import Ceilings, OperationSum
from mnistbench.showing.plot import Plot
from mnistbench.showing.report import Block
from mnistbench.showing.table import Column, Table

_First = TypeVar("_First")

#: The first columns of a table of operations. CSV and JSON have the names as torch has them.
NAMES: tuple[Column[OperationSum], ...] = (
    Column("operation", lambda row: units.printable(operation_cells(*row.key)[0])),
    Column("phase", lambda row: units.printable(operation_cells(*row.key)[1])),
    Column("module", lambda row: units.printable(operation_cells(*row.key)[2])),
    Column(None, lambda row: row.key[0], key="operation"),
    Column(None, lambda row: row.key[1], key="phase"),
    Column(None, lambda row: row.key[2], key="module"),
)


def summed(table: OpTable, by: str, *, of_all: bool = False) -> dict[OpKey, OperationSum]:
    """Sum rows by ``op``, ``module`` or ``op,module``, as medians or over all iterations."""
    rows_by_key: dict[OpKey, list[OpRow]] = defaultdict(list)
    totals_ns: dict[OpKey, int] = defaultdict(int)
    iterations, time = (len(table.iteration_ns), sum) if of_all else (1, median_ns)
    for row, total_ns in zip(table.rows, table.totals_ns, strict=True):
        key = grouped(row.key, by)
        rows_by_key[key].append(row)
        # Operations of a module call each other, so the sum of their totals would count time twice.
        if by == "module":
            totals_ns[key] += time(row.self_cpu_ns)
        else:
            totals_ns[key] += sum(row.total_cpu_ns) if of_all else total_ns
    return {
        key: OperationSum(
            key=key,
            calls=sum(row.calls for row in rows) * iterations,
            self_cpu_ns=sum(time(row.self_cpu_ns) for row in rows),
            total_cpu_ns=totals_ns[key],
            self_device_ns=sum(time(row.self_device_ns) for row in rows)
            if table.view == "device"
            else None,
            memory_bytes=sum(row.memory_bytes for row in rows),
            shapes=tuple(sorted({shape for row in rows for shape in row.shapes})),
        )
        for key, rows in rows_by_key.items()
    }


def work_columns(iterations: int = 1) -> tuple[Column[OperationSum], ...]:
    """Return the columns about the work of an operation in one iteration.

    The times of rows are those of this many.
    """

    def of_one(shown: Callable[[float], str]) -> Callable[[int], str]:
        return lambda number: shown(number / iterations)

    def rate(
        number: Callable[[OperationSum], int | None],
    ) -> Callable[[OperationSum], float | None]:
        return lambda row: (
            None
            if (amount := number(row)) is None or row.self_ns <= 0
            else 1e9 * amount / row.self_ns
        )

    return (
        Column("FLOPs", lambda row: row.flops, of_one(units.flops), key="flops"),
        Column("FLOP/s", rate(lambda row: row.flops), units.flops_per_s),
        Column("moved", lambda row: row.n_bytes, of_one(units.decimal_size), key="bytes"),
        Column("bytes/s", rate(lambda row: row.n_bytes), units.bytes_per_s),
        Column("of roof", lambda row: row.of_roof, units.percent, key="of_roof"),
        Column("limit", lambda row: row.limit, key="limit"),
    )


def paired(
    first: Sequence[Column[_First]],
    columns: Sequence[Column[Any]],
    rows: Iterable[tuple[_First, Any]],
) -> Table:
    """Return the table for CSV and JSON of pairs; the columns of the first member come first."""

    def of(column: Column[Any], position: int) -> Column[Any]:
        return replace(column, value=lambda row: column.value(row[position]))

    return Table(
        "",
        (*(of(column, 0) for column in first), *(of(column, 1) for column in columns)),
        tuple(rows),
    )


# ---- The plot ------------------------------------------------------------------------------------

#: Width of the plot in characters.
_WIDTH = 64
#: Height of the plot in characters.
_HEIGHT = 14
_MARKS = string.ascii_lowercase


def rooflines(title: str, rows: Iterable[OperationSum]) -> Iterator[Block]:
    """Yield a plot of operations for each number format.

    Those in several formats are left out: each has a peak of its own.
    """
    rows_by_ceilings: dict[Ceilings, list[OperationSum]] = defaultdict(list)
    for row in rows:
        if (
            row.ceilings
            and row.flops
            and row.n_bytes
            and row.of_roof is not None
            and " and " not in row.ceilings.precision
        ):
            rows_by_ceilings[row.ceilings].append(row)
    for ceilings, limited_rows in rows_by_ceilings.items():
        yield Block(
            f"Roofline, {title}, {ceilings.precision}",
            drawing=_plot(limited_rows[: len(_MARKS)], ceilings),
        )


def _plot(rows: Sequence[OperationSum], ceilings: Ceilings) -> str:
    """Return the plot of at least one operation over FLOP per byte, and a line of text for each."""
    points = [
        ((row.flops or 0) / (row.n_bytes or 1), (row.flops or 0) / (row.self_ns / 1e9))
        for row in rows
    ]
    peak = ceilings.flops_per_s
    bandwidth = ceilings.bytes_per_s
    ridge = peak / bandwidth
    low_x = math.log2(min(ridge, *(x for x, _ in points))) - 1
    high_x = math.log2(max(ridge, *(x for x, _ in points))) + 1
    high_y = math.log2(max(peak, *(y for _, y in points))) + 0.5
    low_y = min(math.log2(bandwidth) + low_x, *(math.log2(y) for _, y in points)) - 0.5
    grid = Plot((low_x, high_x), (low_y, high_y), _WIDTH, _HEIGHT)
    for column in range(_WIDTH):
        log_x = low_x + column * (high_x - low_x) / (_WIDTH - 1)
        roof = min(math.log2(peak), math.log2(bandwidth) + log_x)
        grid.put(log_x, roof, "-" if log_x >= math.log2(ridge) else "/")
    legend = []
    for mark, row, (x, y) in zip(_MARKS, rows, points, strict=False):
        grid.put(math.log2(x), math.log2(y), mark, beside=_MARKS)
        limit = "compute" if x >= ridge else "memory"
        share = row.of_roof or 0
        cached = " (its data came from a cache)" if share > 1 and limit == "memory" else ""
        reached = f"{units.percent(share)} of the {limit} limit{cached}"
        name = operation_name(*row.key)
        legend.append(
            units.printable(f"{mark}  {name}: {x:.1f} FLOP/byte, {units.flops_per_s(y)}, {reached}")
        )
    ends = (
        units.flops_per_s(2**low_y),
        units.flops_per_s(2**high_y),
        f"{2**low_x:.2g}",
        f"{2**high_x:.3g} FLOP/byte",
    )
    return grid.drawn(*ends, legend)
