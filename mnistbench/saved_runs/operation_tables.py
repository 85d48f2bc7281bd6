"""Tables of operations: the cases of a workload beside each other, a column pair per batch size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from mnistbench.core import units
from mnistbench.core.operation import (
    OUTSIDE,
    RUNTIME,
    UNATTRIBUTED,
    operation_cells,
    operation_name,
)
from mnistbench.core.params import CALL, REFERENCE, device_label
from mnistbench.core.record import CaseRecord, OpTable, median_ns
from mnistbench.showing.table import Table, text_table


def operation_tables(records: Iterable[CaseRecord], top: int) -> list[Table]:
    """Return a table per phase, workload and device, a column pair per batch size."""
    return [operation_table(group, top) for group in batch_groups(records)]


def batch_groups(records: Iterable[CaseRecord]) -> list[list[CaseRecord]]:
    """Return the cases with a warm table, grouped by everything but the batch size.

    The smallest first.
    """
    groups: dict[tuple[str, ...], list[CaseRecord]] = defaultdict(list)
    for record in records:
        if record.table("warm") and (params := record.params):
            device = device_label(params.device, params.dtype, params.compile, params.step)
            groups[record.test, params.phase, params.workload, device, params.dataset].append(
                record
            )
    return [
        sorted(group, key=lambda record: record.known_params.batch_size)
        for group in groups.values()
    ]


def operation_table(records: Sequence[CaseRecord], top: int) -> Table:
    """Return the table of one of :func:`batch_groups`.

    Rows: the ``top`` operations by their largest share in any column; the rest as ``other``, so
    that columns add up.
    """
    tables = [table for record in records if (table := record.table("warm"))]
    columns = [TimesOfCase(table) for table in tables]
    keys = ranked(columns)
    shown = keys[:top]
    rest = keys[top:]
    params = records[0].known_params
    clock = tables[0].clock
    step = "" if params.step == REFERENCE else f", {params.step} step"
    title = (
        f"{params.phase} {params.workload} on {params.dataset}, {params.device}, "
        f"{params.dtype}{step}"
    )
    times = [f"b{record.known_params.batch_size}" for record in records]
    if params.phase == CALL:
        title = f"{params.label}, {params.device}"
        times = ["time"]
    sums = {
        f"other ({units.counted(len(rest), 'operation')})": _cells(
            columns, [column.sum(rest) for column in columns]
        ),
        **{
            operation_name(name, "", ""): _cells(
                columns, [column.rest.get(name) for column in columns]
            )
            for name in rest_names(columns)
        },
        "sum of one profiled iteration": _cells(columns, [column.total for column in columns]),
        "device busy time": _times(median_ns(table.busy_ns) or None for table in tables),
        "device elapsed time without the profiler": _times(
            median_ns(record.device_ns) or None for record in records
        ),
        "wall time without the profiler": _times(
            record.timing.median_ns if record.timing else None for record in records
        ),
        "first call": _times(record.first_call_ns for record in records),
    }
    return text_table(
        title=units.printable(
            f"{title}: self {'device' if clock == 'device' else 'CPU'} time per iteration"
        ),
        headings=(
            "operation",
            "phase",
            "module",
            *(head for time in times for head in (time, "share")),
        ),
        rows=tuple(
            (*operation_cells(*key), *_cells(columns, [column.sum([key]) for column in columns]))
            for key in shown
        ),
        sums=tuple(
            (name, "", "", *cells)
            for name, cells in sums.items()
            if set(cells) - {"", units.MISSING}
        ),
        numbers_from=3,
    )


def ranked(columns: Sequence[TimesOfCase]) -> list[tuple[str, str, str]]:
    """Return the operations by their largest share in any column."""
    found = {key for column in columns for key in column.operations}
    return sorted(found, key=lambda key: (-max(column.share(key) for column in columns), key))


def rest_names(columns: Iterable[TimesOfCase]) -> list[str]:
    """Return the names of what is no operation in any column, in the order of tables."""
    found = {name for column in columns for name in column.rest}
    return [name for name in (OUTSIDE, RUNTIME, UNATTRIBUTED) if name in found]


class TimesOfCase:
    """The warm table of one case, by operation."""

    def __init__(self, table: OpTable) -> None:
        self._ns = {row.key: row.self_ns(table.clock) for row in table.rows if row.is_operation}
        self.operations = set(self._ns)
        self.total = table.total_ns
        self.rest = table.rest_ns(table.clock)  # of what is no operation, by name

    def sum(self, keys: Iterable[tuple[str, str, str]]) -> int | None:
        """Return the sum over the operations that the case has; None if it has none of them."""
        found = [self._ns[key] for key in keys if key in self._ns]
        return sum(found) if found else None

    def share(self, key: tuple[str, str, str]) -> float:
        """Return the share of the operation; 0 if the case does not have it."""
        return self._ns.get(key, 0) / self.total if self.total else 0.0


def _cells(columns: Sequence[TimesOfCase], times_ns: Sequence[int | None]) -> list[str]:
    """Return time and share of each column."""
    cells = []
    for column, ns in zip(columns, times_ns, strict=True):
        share = (
            units.MISSING if ns is None or not column.total else units.percent(ns / column.total)
        )
        cells += [units.MISSING if ns is None else units.duration(ns), share]
    return cells


def _times(nanoseconds: Iterable[float | None]) -> list[str]:
    return [
        cell
        for value in nanoseconds
        for cell in (units.MISSING if value is None else units.duration(value), "")
    ]
