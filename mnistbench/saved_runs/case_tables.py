"""Tables of operations and of functions.

A table of operations has the cases of a workload beside each other, a column pair per batch size. A
table of functions is of one case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mnistbench.core import units
from mnistbench.core.compiled.compilation import lines_of
from mnistbench.core.operation import CALLS, operation_cells, operation_name
from mnistbench.core.params import CALL
from mnistbench.core.record import CaseRecord, OpRow, OpTable, median_ns
from mnistbench.showing.side_by_side import OperationColumn, SideBySide
from mnistbench.showing.table import Table, text_table
from mnistbench.showing.text import uneven

#: Multiple of the wall time without the profiler from which on, and below which, a line says that
#: the profiled iterations are not like the timed ones. cProfile makes short functions up to eight
#: times slower.
MAX_SLOWED = 10
MIN_SEEN = 0.5


def case_tables(records: Iterable[CaseRecord], top: int) -> list[Table]:
    """Return the tables of operations, then those of functions.

    A table of operations per phase, workload and device has a column pair per batch size.
    """
    cases = list(records)
    operations = [batch_size_table(group, top) for group in batch_groups(cases)]
    return [*operations, *filter(None, (function_table(case, top) for case in cases))]


def batch_groups(records: Iterable[CaseRecord]) -> list[list[CaseRecord]]:
    """Return groups of cases with a warm table that differ in batch size alone, in its order."""
    groups: dict[tuple[str, ...], list[CaseRecord]] = defaultdict(list)
    for record in records:
        if record.table("warm") and (params := record.params):
            key = record.test, params.phase, params.workload, params.device_label, params.dataset
            groups[key].append(record)
    return [
        sorted(group, key=lambda record: record.known_params.batch_size)
        for group in groups.values()
    ]


def batch_size_table(records: Sequence[CaseRecord], top: int) -> Table:
    """Return the table of one of :func:`batch_groups`.

    Rows: the ``top`` operations by their largest share in any column; the rest as ``other``, so
    that columns add up. Times are as profiled, with the cost of the profiler.
    """
    tables = [table for record in records if (table := record.table("warm"))]
    columns = [OperationColumn.from_table(table) for table in tables]
    cases = SideBySide(columns)
    shown = cases.ranked[:top]
    rest = cases.ranked[top:]
    params = records[0].known_params
    clock = tables[0].clock
    title = (
        f"{params.phase} {params.workload} on {params.dataset}, {params.device}, "
        f"{params.dtype}{params.variant}"
    )
    times = [f"b{record.known_params.batch_size}" for record in records]
    if params.phase == CALL:
        title = f"{records[0].label}, {params.device}"
        times = ["time"]
    sums = {
        f"other ({units.counted(len(rest), 'operation')})": cases.summed_cells(rest),
        **{
            operation_name(name, "", ""): cases.cells(column.rest.get(name) for column in columns)
            for name in cases.rest_names
        },
        "sum of one profiled iteration": cases.cells(column.total for column in columns),
        "device busy time": _times(median_ns(table.busy_ns) or None for table in tables),
        "device elapsed time without the profiler": _times(
            median_ns(record.device_ns) or None for record in records
        ),
        _untraced(records): _times(
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
        rows=tuple((*operation_cells(*key), *cases.summed_cells([key])) for key in shown),
        sums=tuple(
            (name, "", "", *cells)
            for name, cells in sums.items()
            if set(cells) - {"", units.MISSING}
        ),
        numbers_from=3,
        lines=tuple(
            units.printable(f"{name}: {line}" if len(times) > 1 else line)
            for name, record, table in zip(times, records, tables, strict=True)
            for line in _lines(record, table)
        ),
    )


def function_table(record: CaseRecord, top: int) -> Table | None:
    """Return the functions of a case, those of the largest self time first; None without a table.

    Functions after the first ``top`` are summed, so that the column adds up.
    """
    table = record.functions
    if table is None:
        return None
    column = OperationColumn.from_table(table)
    functions = sorted(
        (row for row in table.rows if row.is_operation),
        key=lambda row: (-row.self_ns("cpu"), row.key),
    )
    totals_ns = {row.key: ns for row, ns in zip(table.rows, table.totals_ns, strict=True)}
    hidden = functions[top:]

    def share(ns: float) -> str:
        return units.percent(ns / column.total) if column.total else units.MISSING

    sums = {
        **(
            {f"other ({units.counted(len(hidden), 'function')})": sum(map(_self_ns, hidden))}
            if hidden
            else {}
        ),
        **{operation_name(name, "", ""): ns for name, ns in column.rest.items()},
        "sum of one profiled iteration": column.total,
    }
    wall = units.duration(record.timing.median_ns) if record.timing else units.MISSING
    return text_table(
        title=units.printable(f"{record.label}: self time of functions per iteration"),
        headings=("function", "module", "calls", "self", "share", "total", "defined at"),
        rows=tuple(
            (
                units.printable(row.name),
                units.printable(row.module),
                units.count(row.calls),
                units.duration(_self_ns(row)),
                share(_self_ns(row)),
                units.duration(totals_ns[row.key]),
                units.printable(", ".join(row.sources)) or units.MISSING,
            )
            for row in functions[:top]
        ),
        sums=(
            *((name, "", "", units.duration(ns), share(ns), "", "") for name, ns in sums.items()),
            (_untraced([record]), "", "", wall, "", "", ""),
        ),
        lines=tuple(
            filter(
                None,
                (
                    uneven(sum(CALLS in row.varying for row in functions)),
                    _far_from_wall_time(record, table, "functions"),
                ),
            )
        ),
        numbers_from=2,
        words_after=1,
    )


def _untraced(records: Iterable[CaseRecord]) -> str:
    """Return the name of the time of pytest-benchmark, whose timer may measure another one."""
    clocks = {record.timing.clock for record in records if record.timing}
    return f"{' or '.join(sorted(clocks)) or 'wall'} time without the profiler"


def _lines(record: CaseRecord, table: OpTable) -> Iterator[str]:
    """Yield what is said of a case below its table of operations."""
    if line := _far_from_wall_time(record, table, "operations"):
        yield line
    if record.compilation:
        yield from lines_of(record.compilation)


def _far_from_wall_time(record: CaseRecord, table: OpTable, rows: str) -> str:
    """Return that the sum of a table is far from the wall time without the profiler; else empty.

    Device times have no gaps between kernels, so theirs may be.
    """
    if record.timing is None or table.clock == "device" or record.timing.median_ns <= 0:
        return ""
    ratio = table.total_ns / record.timing.median_ns
    if MIN_SEEN <= ratio <= MAX_SLOWED:
        return ""
    if ratio > MAX_SLOWED:
        return (
            f"the profiled iterations took {ratio:,.0f} times as long as without the "
            "profiler, because of the profiler or of other programs: do not rely on these times"
        )
    return (
        f"the {rows} take {units.percent(ratio)} of the {_untraced([record])}: the "
        "profiled iterations did less work, or it is done where the profiler does not see it"
    )


def _self_ns(row: OpRow) -> int:
    return row.self_ns("cpu")


def _times(nanoseconds: Iterable[float | None]) -> list[str]:
    return [
        cell
        for value in nanoseconds
        for cell in (units.MISSING if value is None else units.duration(value), "")
    ]
