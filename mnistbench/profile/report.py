"""Profiled cases -> tables and a roofline plot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mnistbench.core import units
from mnistbench.core.operation import OpKey, is_communication, operation_cells, operation_name
from mnistbench.core.params import device_label
from mnistbench.core.record import OpTable, median_ns, quartiles_ns
from mnistbench.core.roofline import of_roof, point
from mnistbench.profile.result import ColdCall, Profiled
from mnistbench.profile.rows import Row, rows_of, worked_in
from mnistbench.showing.report import Block
from mnistbench.showing.roofline import plot
from mnistbench.showing.table import Table, text_table

#: Sort keys, and the titles of their columns.
SORTS = {
    "self-cpu": "self CPU time",
    "self-device": "self device time",
    "total": "total CPU time",
    "memory": "memory allocated less freed",
    "calls": "calls",
}

#: Above this idle share of an iteration, an accelerator is limited by kernel launches.
LAUNCH_BOUND = 0.5

#: Rows of the table of a first call: a few operations take most of it.
COLD_ROWS = 5


@dataclass(frozen=True)
class Shown:
    """The options of the report."""

    top: int = 10
    min_share: float = 0.01
    sort: str = ""  # one of SORTS; empty: by the clock of the table
    by: str = "op,module"
    shapes: bool = False
    memory: bool = False


def blocks(cases: Sequence[Profiled], shown: Shown) -> list[Block]:
    """Return the whole report: batch sizes side by side, then each case, its layers and its first calls."""
    found: list[Block] = []
    one_of_each = {case.params.workload: case for case in cases}
    for group in _groups(cases):
        views = [table.view for table in group[0].tables]
        if len(group) > 1:
            found.append(Block("", tables=tuple(side_by_side(group, view, shown) for view in views)))
        for case in group:
            found += [Block("", tables=tuple(work_table(case, table, shown) for table in case.tables))]
        found += [Block(f"Roofline, {_title(group[-1])}", drawing=drawing) for drawing in roofline(group[-1], shown)]
    found += [Block("", tables=(layer_table(case),)) for case in one_of_each.values() if case.layers]
    found += [Block("", tables=(table,)) for case in cases for table in cold_tables(case)]
    return found


def _groups(cases: Iterable[Profiled]) -> list[list[Profiled]]:
    """Return the cases grouped by everything but the batch size, the smallest first."""
    found: dict[tuple[str, ...], list[Profiled]] = defaultdict(list)
    for case in cases:
        params = case.params
        found[params.phase, params.workload, params.device, params.dtype].append(case)
    return [sorted(group, key=lambda case: case.params.batch_size) for group in found.values()]


def _title(case: Profiled, *, batch: bool = True) -> str:
    params = case.params
    size = f" at batch {params.batch_size}" if batch else ""
    device = device_label(params.device, params.dtype, params.compile, params.step)
    threads = units.threads(params.threads)
    rank = f", rank 0 of {case.ranks.ranks}" if case.ranks else ""
    return f"{params.phase} {params.workload}{size} on {params.dataset}, {device}, {threads}{rank}"


def _view(table: OpTable) -> str:
    return "host and device activities" if table.view == "device" else "host activities"


def _sort(table: OpTable, shown: Shown) -> str:
    """Return the sort key of a table: device time only if the device was profiled."""
    own = "self-device" if table.clock == "device" else "self-cpu"
    return own if shown.sort in ("", "self-device") else shown.sort


# ---- Batch sizes side by side ----------------------------------------------------------------------------------------


def side_by_side(group: Sequence[Profiled], view: str, shown: Shown) -> Table:
    """Return a row per operation and, for each batch size, a column of the sort key and one of its share."""
    tables = [table for case in group if (table := case.table(view))]
    sort = _sort(tables[0], shown)
    columns = [_Column(case, table, sort, shown.by) for case, table in zip(group, tables, strict=True)]
    shares = {key: max(column.share(key) for column in columns) for key in {key for one in columns for key in one.rows}}
    keys = [key for key in sorted(shares, key=lambda key: (-shares[key], key)) if shares[key] >= shown.min_share][: shown.top]
    rest = [key for key in shares if key not in keys]

    def row(first: Sequence[str], cells: Callable[[_Column], tuple[str, str]]) -> tuple[str, ...]:
        return (*first, *(cell for column in columns for cell in cells(column)))

    def summed(first: Sequence[str], keys: Sequence[OpKey]) -> tuple[str, ...]:
        return row(first, lambda column: column.cells(keys))

    other = f"other ({len(rest)} operation{'s' if len(rest) > 1 else ''})"
    sums = [summed((other, "", ""), rest)] if rest else []
    if sort.startswith("self"):
        clock = "device" if sort == "self-device" else "cpu"
        names = dict.fromkeys(name for table in tables for name in table.rest_ns(clock))
        sums += [row((operation_name(name, "", ""), "", ""), partial(_Column.rest_cells, name=name)) for name in names]
        if view == "device":
            sums.append(row(("device busy time", "", ""), _Column.busy_cells))
        without = "one iteration without the profiler"
        sums.append(row((without, "", ""), lambda column: (units.microseconds(column.case.call_ns), "")))
    return text_table(
        title=f"{_title(group[0], batch=False)}, {_view(tables[0])}: {SORTS[sort]} per iteration",
        headings=row(("operation", "phase", "module"), lambda column: (column.head, "share")),
        rows=tuple(summed(operation_cells(*key), [key]) for key in keys),
        sums=tuple(sums),
        numbers_from=3,
    )


class _Column:
    """The sort key of one batch size, by operation."""

    def __init__(self, case: Profiled, table: OpTable, sort: str, by: str) -> None:
        self.case, self.rows = case, rows_of(table, case.costs, by)
        self._table, self._sort, self._whole = table, sort, _whole(table, self.rows, sort)

    @property
    def head(self) -> str:
        """Batch size and unit."""
        unit = {"memory": "KiB", "calls": "calls"}.get(self._sort, "us")
        return f"b{self.case.params.batch_size} {unit}"

    def share(self, key: OpKey) -> float:
        """Return the operation's share; 0 where it did not run."""
        return self.rows[key].value(self._sort) / self._whole if key in self.rows and self._whole else 0.0

    def cells(self, keys: Iterable[OpKey]) -> tuple[str, str]:
        """Return the sum of these operations and its share; no numbers where none of them ran."""
        rows = [self.rows[key] for key in keys if key in self.rows]
        if not rows:
            return (units.MISSING, units.MISSING)
        value = sum(row.value(self._sort) for row in rows)
        if self._sort == "memory":
            text = _kib(sum(row.memory_bytes for row in rows))
        else:
            text = units.count(value) if self._sort == "calls" else units.microseconds(value)
        return (text, _share(value, self._whole))

    def rest_cells(self, name: str) -> tuple[str, str]:
        """Return the time of what is no operation and its share."""
        rest = self._table.rest_ns("device" if self._sort == "self-device" else "cpu").get(name, 0)
        return (units.microseconds(rest), _share(rest, self._whole))

    def busy_cells(self) -> tuple[str, str]:
        """Return the time in which the accelerator ran kernels or copies."""
        return (units.microseconds(median_ns(self.case.busy_ns)), "")


def _whole(table: OpTable, rows: Mapping[OpKey, Row], sort: str) -> float:
    """Return the value of the whole iteration, of which the operations have shares.

    Communication runs beside the operations, so it has a share but is not a part of the sum.
    """
    if sort in ("self-cpu", "self-device"):
        clock = "device" if sort == "self-device" else "cpu"
        return sum(row.self_ns(clock) for row in table.rows if not is_communication(row.name))
    if sort == "total":
        return median_ns(table.iteration_ns)
    return sum(row.value(sort) for row in rows.values())


def _kib(n_bytes: int) -> str:
    return f"{n_bytes / 1024:,.1f}"


# ---- One case --------------------------------------------------------------------------------------------------------


def work_table(case: Profiled, table: OpTable, shown: Shown) -> Table:
    """Return the time, the FLOPs and bytes, and the share of the roofline limit of each operation of a case."""
    work: dict[str, Callable[[Row], str]] = {}
    if worked_in(case, table):
        work = cost_columns(table.clock)
        work["of roof"] = lambda row: percent(of_roof(case.ceilings, row.cost, row.self_ns(table.clock)))
    lines = (*(sentences(case, table) if worked_in(case, table) else ()), *rank_sentences(case))
    return operations_table(_title(case), table, rows_of(table, case.costs, shown.by), shown, work, lines)


def operations_table(
    title: str,
    table: OpTable,
    rows: Mapping[OpKey, Row],
    shown: Shown,
    work: Mapping[str, Callable[[Row], str]],
    lines: Iterable[str],
    words: Mapping[str, Callable[[Row], str]] | None = None,
) -> Table:
    """Return the table of the operations that the options show.

    Args:
        title: what was profiled.
        table: all operations.
        rows: the operations, grouped.
        shown: the options.
        work: columns about the work of an operation, after those with times.
        lines: sentences under the table.
        words: columns of words, at the end.
    """
    sort, clock = _sort(table, shown), table.clock
    picked, rest = picked_rows(rows, table, shown)
    left_out = [f"{rest} smaller operation{'s are' if rest > 1 else ' is'} not shown."] if rest else []
    whole = _whole(table, rows, "self-device" if clock == "device" else "self-cpu")
    columns: dict[str, Callable[[Row], str]] = {
        "calls": lambda row: units.count(row.calls),
        "self us": lambda row: units.microseconds(row.self_ns(clock)),
        "share": lambda row: _share(row.self_ns(clock), whole),
        "total us": lambda row: units.microseconds(row.total_ns),
    }
    if shown.memory:
        columns["kept KiB"] = lambda row: _kib(row.memory_bytes)
    columns |= work
    columns |= words or {}
    if shown.shapes:
        columns["shapes"] = lambda row: "; ".join(row.shapes) or units.MISSING
    return text_table(
        title=f"{title}, {_view(table)}: by {SORTS[sort]}",
        headings=("operation", "phase", "module", *columns),
        rows=tuple((*operation_cells(*row.key), *(cell(row) for cell in columns.values())) for row in picked),
        sums=(),
        numbers_from=3,
        lines=(*left_out, *lines),
        words_after=len(words or ()) + int(shown.shapes),
    )


def cost_columns(clock: str) -> dict[str, Callable[[Row], str]]:
    """Return the columns with FLOPs, bytes and their rates."""
    return {
        "MFLOP": lambda row: _millions(row.cost.flops if row.cost else None),
        "GFLOP/s": lambda row: _giga_per_s(row.cost.flops if row.cost else None, row.self_ns(clock)),
        "MB moved": lambda row: _millions(row.cost.n_bytes if row.cost else None),
        "GB/s": lambda row: _giga_per_s(row.cost.n_bytes if row.cost else None, row.self_ns(clock)),
    }


def picked_rows(rows: Mapping[OpKey, Row], table: OpTable, shown: Shown) -> tuple[list[Row], int]:
    """Return the rows that the options show, in their order, and the number of the others."""
    sort = _sort(table, shown)
    whole = _whole(table, rows, sort)
    ordered = sorted(rows.values(), key=lambda row: (-row.value(sort), row.key))
    picked = [row for row in ordered if whole and row.value(sort) / whole >= shown.min_share][: shown.top]
    return picked, len(rows) - len(picked)


def _share(value: float, whole: float) -> str:
    return units.percent(value / whole) if whole else units.MISSING


def percent(share: float | None) -> str:
    """Return a share as a percentage; no number for None."""
    return units.MISSING if share is None else units.percent(share)


def _millions(number: int | None) -> str:
    return units.MISSING if number is None else f"{number / 1e6:,.2f}"


def _giga_per_s(number: int | None, ns: int) -> str:
    return units.MISSING if number is None or ns <= 0 else f"{number / ns:,.1f}"


def sentences(case: Profiled, table: OpTable) -> Iterator[str]:
    """Yield sentences about the whole iteration."""
    low, high = quartiles_ns(case.calls_ns)
    overhead = f" (overhead {units.duration(table.profiler_ns)} per operation call)" if table.profiler_ns else ""
    yield (
        f"One iteration takes {units.duration(case.call_ns)} without the profiler (median of {len(case.calls_ns)}, "
        f"interquartile range {units.duration(high - low)}), {units.duration(case.call_ns / case.samples)} per sample; "
        f"with the profiler, {units.duration(median_ns(table.iteration_ns))}{overhead}."
    )
    if case.ceilings is None:
        yield "Ceilings: not measured, because the free memory of the device does not suffice."
    if case.flops is None:
        yield "FLOPs: not known, because there is no formula for any of the operations."
    elif case.utilisation is not None and case.ceilings:
        rate = units.flops_per_s(case.flops / (case.call_ns / 1e9))
        peak, bandwidth = units.flops_per_s(case.ceilings.flops_per_s), units.bytes_per_s(case.ceilings.bytes_per_s)
        yield (
            f"{units.flops(case.flops)} per iteration, {rate}: model FLOP utilisation {units.percent(case.utilisation)} of the "
            f"{peak} ({case.ceilings.precision}) that a large matrix product or convolution reached on this machine; "
            f"a large copy reached {bandwidth}."
        )
    if case.idle is not None:
        limit = "limited by kernel launches" if case.idle > LAUNCH_BOUND else "not limited by kernel launches"
        busy = f"busy for {units.duration(median_ns(case.busy_ns))} of the {units.duration(case.call_ns)} of an iteration"
        yield f"The accelerator is {busy}, and idle for {units.percent(case.idle)}: {limit}."


def rank_sentences(case: Profiled) -> Iterator[str]:
    """Yield sentences about the steps of all ranks; none for one process."""
    times = case.ranks
    if times is None or times.no_sync_typical_ns is None or times.exposed_ns is None or times.exposed_share is None:
        return
    yield (
        f"This is rank 0, which computes {case.samples} of the {case.params.batch_size} samples. Communication (gloo:, nccl:) "
        "runs beside the operations and includes the wait for other ranks, so shares can add up to more than 100 %."
    )
    yield (
        f"A step takes {units.duration(times.typical_ns)} on its slowest rank (median of {len(times.slowest_ns)}), a step "
        f"without communication (no_sync) {units.duration(times.no_sync_typical_ns)}: exposed communication "
        f"{units.duration(times.exposed_ns)}, {units.percent(times.exposed_share)} of the step."
    )
    medians = times.of_each_rank_ns
    yield (
        f"Over the {times.ranks} ranks, the step takes {units.duration(min(medians))} to {units.duration(max(medians))}; "
        f"rank {medians.index(max(medians))} is the slowest."
    )


def roofline(case: Profiled, shown: Shown) -> Iterator[str]:
    """Yield the plot of a case's operations, or nothing where no operation has a place in it."""
    if case.ceilings is None or not case.tables or not worked_in(case, case.tables[-1]):
        return
    table = case.tables[-1]
    rows, _ = picked_rows(rows_of(table, case.costs, shown.by), table, shown)
    found = (point(operation_name(*row.key), row.cost, row.self_ns(table.clock), case.ceilings) for row in rows)
    if points := [one for one in found if one]:
        yield plot(points, case.ceilings)


# ---- Layers and first calls ------------------------------------------------------------------------------------------


def layer_table(case: Profiled) -> Table:
    """Return every layer of the network with its shape, parameters, FLOPs and bytes, for one sample."""
    flops = [layer.flops for layer in case.layers if layer.flops is not None]
    return text_table(
        title=f"{case.params.workload}: layers, forward, one sample",
        headings=("layer", "kind", "output", "parameters", "MFLOP", "output KiB", "parameters KiB"),
        rows=tuple(
            (
                layer.name, layer.kind, " x ".join(map(str, layer.output_shape)) or "1", f"{layer.parameters:,}",
                _millions(layer.flops), _kib(layer.output_bytes), _kib(layer.parameter_bytes),
            )
            for layer in case.layers
        ),
        sums=(
            (
                "all", "", "", f"{sum(layer.parameters for layer in case.layers):,}", _millions(sum(flops) if flops else None),
                _kib(sum(layer.output_bytes for layer in case.layers)),
                _kib(sum(layer.parameter_bytes for layer in case.layers)),
            ),
        ),
        numbers_from=3,
        lines=("MFLOP: only of layers with a FLOP formula; one multiplication and one addition count as two.",),
    )  # fmt: skip


def cold_tables(case: Profiled) -> Iterator[Table]:
    """Yield a table of the first call and later calls of a process, by operation."""
    if not case.cold:
        return
    warm = case.table("host")
    tables = [*(call.table for call in case.cold), *([warm] if warm else [])]
    columns = [_ns_by_name(table) for table in tables]
    names = sorted({name for column in columns for name in column}, key=lambda name: -max(c.get(name, 0) for c in columns))
    heads = [_cold_head(call, case.trained_steps) for call in case.cold] + (["warm us"] if warm else [])
    yield text_table(
        title=f"{_title(case)}: the first call of a process, self CPU time",
        headings=("operation", *heads),
        rows=tuple(
            (name, *(units.microseconds(column[name]) if name in column else units.MISSING for column in columns))
            for name in names[:COLD_ROWS]
        ),
        sums=(("whole iteration, profiled", *(units.microseconds(median_ns(table.iteration_ns)) for table in tables)),),
        numbers_from=1,
        lines=('Each "first" column was measured in a new process.',),
    )


def _cold_head(call: ColdCall, steps: int) -> str:
    if call.first:
        return "first, trained us" if call.trained else "first, untrained us"
    return f"{steps} steps later, same process us"


def _ns_by_name(table: OpTable) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in table.rows:
        if row.is_operation:
            found[operation_cells(*row.key)[0]] += row.self_ns("cpu")
    return found
