"""Profiled cases -> tables and a roofline plot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mnistbench.core import units
from mnistbench.core.operation import (
    NOT_OPERATIONS,
    OpKey,
    grouped,
    is_communication,
    operation_cells,
    operation_name,
)
from mnistbench.core.record import OpTable, as_data, median_ns, quartiles_ns
from mnistbench.events.work.roofline import Cost, OperationSum, total_cost
from mnistbench.events.work.roofline_tables import NAMES, paired, rooflines, summed, work_columns
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.side_by_side import OperationColumn, SideBySide
from mnistbench.showing.table import Column, Table, text_table
from mnistbench.suite.profile.result import SORTS, Layer, OperationCosts, Profiled, Settings

#: Above this idle share of an iteration, an accelerator is limited by kernel launches.
LAUNCH_BOUND = 0.5

#: Rows of the table of a first call: a few operations take most of it.
COLD_ROWS = 5

#: Sort key -> value of a row.
_VALUES: Mapping[str, Callable[[OperationSum], float]] = {
    "self-cpu": lambda row: row.self_cpu_ns,
    "self-device": lambda row: row.self_device_ns or 0,
    "total": lambda row: row.total_cpu_ns or 0,
    "memory": lambda row: row.memory_bytes,
    "calls": lambda row: row.calls,
}


def profile_report(cases: Sequence[Profiled], shown: Settings) -> Report:
    """Return the report of profiled cases."""
    data = [
        {
            **as_data(replace(case, costs=OperationCosts())),  # operations have them
            "operations": _csv([case], shown).records(),
        }
        for case in cases
    ]
    return Report(
        "operations: time, FLOPs and bytes, roofline limit",
        blocks(cases, shown),
        document("profile", cases=data),
        _csv(cases, shown),
    )


def blocks(cases: Sequence[Profiled], shown: Settings) -> list[Block]:
    """Return the whole report.

    Batch sizes side by side, then each case, its layers and its first calls.
    """
    report_blocks: list[Block] = []
    # By everything but the batch size.
    groups: dict[tuple[str, ...], list[Profiled]] = defaultdict(list)
    for case in cases:
        groups[
            case.params.phase, case.params.workload, case.params.device, case.params.dtype
        ].append(case)
    for group in groups.values():
        group.sort(key=lambda case: case.params.batch_size)
        views = [table.view for table in group[0].tables]
        if len(group) > 1:
            report_blocks.append(
                Block("", tables=tuple(side_by_side(group, view, shown) for view in views))
            )
        report_blocks += [
            Block("", tables=tuple(work_table(case, table, shown) for table in case.tables))
            for case in group
        ]
        if group[-1].tables:
            table = group[-1].tables[-1]
            report_blocks += rooflines(
                _title(group[-1]), _picked(rows_of(group[-1], table, shown.by), table, shown)
            )
    case_of_workload = {case.params.workload: case for case in cases}
    report_blocks += [
        Block("", tables=(layer_table(case),)) for case in case_of_workload.values() if case.layers
    ]
    report_blocks += [Block("", tables=(cold_table(case),)) for case in cases if case.cold]
    return report_blocks


def _title(case: Profiled, *, batch: bool = True) -> str:
    params = case.params
    size = f" at batch {params.batch_size}" if batch else ""
    threads = units.threads(params.threads)
    rank = f", rank 0 of {case.ranks.ranks}" if case.ranks else ""
    where = f"{params.device_label}, {threads}{rank}"
    return f"{params.phase} {params.workload}{size} on {params.dataset}, {where}"


def _view(table: OpTable) -> str:
    return "host and device activities" if table.view == "device" else "host activities"


def _sort(table: OpTable, shown: Settings) -> str:
    """Return the sort key of a table: device time only if the device was profiled."""
    own = "self-device" if table.clock == "device" else "self-cpu"
    return own if shown.sort in (None, "self-device") else shown.sort


# ---- Rows ----------------------------------------------------------------------------------------


def rows_of(case: Profiled, table: OpTable, by: str) -> dict[OpKey, OperationSum]:
    """Return the operations of a table with their work, without the time outside operations."""
    costs: dict[OpKey, list[Cost]] = defaultdict(list)
    for key, cost in case.costs.items():
        costs[grouped(key, by)].append(cost)
    ceilings = case.ceilings if shows_work(case, table) else None
    return {
        key: replace(row, cost=total_cost(costs[key]) if key in costs else None, ceilings=ceilings)
        for key, row in summed(table, by).items()
        if key[0] not in NOT_OPERATIONS
    }


def shows_work(case: Profiled, table: OpTable) -> bool:
    """Whether the times of a table are those of the work itself.

    The host of an accelerator only launches it.
    """
    return table.view == "device" or case.params.device == "cpu"


def _whole(table: OpTable, rows: Mapping[OpKey, OperationSum], sort: str) -> float:
    """Return the value of the whole iteration, of which the operations have shares.

    Communication runs beside the operations, so it has a share but is not a part of the sum.
    """
    if sort in ("self-cpu", "self-device"):
        clock = "device" if sort == "self-device" else "cpu"
        return sum(row.self_ns(clock) for row in table.rows if not is_communication(row.name))
    if sort == "total":
        return median_ns(table.iteration_ns)
    return sum(abs(_VALUES[sort](row)) for row in rows.values())


def _picked(
    rows: Mapping[OpKey, OperationSum], table: OpTable, shown: Settings
) -> list[OperationSum]:
    """Return the rows that the options show, in their order."""
    sort = _sort(table, shown)
    whole = _whole(table, rows, sort)
    value = _VALUES[sort]
    ordered = sorted(rows.values(), key=lambda row: (-abs(value(row)), row.key))
    return [row for row in ordered if whole and abs(value(row)) / whole >= shown.min_share][
        : shown.top
    ]


def _csv(cases: Sequence[Profiled], shown: Settings) -> Table:
    rows = [
        ((case, table), row)
        for case in cases
        for table in case.tables
        for row in sorted(
            rows_of(case, table, shown.by).values(), key=lambda row: (-row.self_ns, row.key)
        )
    ]
    return paired(_CASE, _columns(1, shown, with_work=True), rows)


def _of_params(name: str) -> Column[tuple[Profiled, OpTable]]:
    return Column(
        None,
        lambda of: getattr(of[0].params, name),
        key="phase_of_case" if name == "phase" else name,
    )


#: Columns of CSV and JSON before those of an operation.
_CASE: tuple[Column[tuple[Profiled, OpTable]], ...] = (
    *map(_of_params, ("workload", "phase", "batch_size", "device", "dtype", "threads", "dataset")),
    Column(None, lambda of: of[1].view, key="view"),
)


# ---- Batch sizes side by side --------------------------------------------------------------------


def side_by_side(group: Sequence[Profiled], view: str, shown: Settings) -> Table:
    """Return a row per operation, with two columns for each batch size.

    They are the sort key and its share.
    """
    cases = [(case, table) for case in group if (table := case.table(view))]
    tables = [table for _, table in cases]
    sort = _sort(tables[0], shown)
    unit, text = {"memory": (" KiB", units.kibibytes), "calls": (" calls", units.count)}.get(
        sort, ("", units.duration)
    )
    clock = "device" if sort == "self-device" else "cpu"
    columns = []
    for case, table in cases:
        rows = rows_of(case, table, shown.by)
        values = {key: _VALUES[sort](row) for key, row in rows.items()}
        rest = table.rest_ns(clock) if sort.startswith("self") else {}
        columns.append(OperationColumn(values, rest, _whole(table, rows, sort)))
    sizes = SideBySide(columns, text)
    large = [key for key in sizes.ranked if sizes.largest_share(key) >= shown.min_share]
    keys = large[: shown.top]
    sums: list[tuple[str, ...]] = []
    if rest_keys := [key for key in sizes.ranked if key not in set(keys)]:
        name = f"other ({units.counted(len(rest_keys), 'operation')})"
        sums.append((name, "", "", *sizes.summed_cells(rest_keys)))
    for name in sizes.rest_names:
        cells = sizes.cells(column.rest.get(name, 0) for column in columns)
        sums.append((operation_name(name, "", ""), "", "", *cells))
    if sort.startswith("self"):
        times = {"one iteration without the profiler": [case.call_ns for case, _ in cases]}
        if view == "device":
            times = {"device busy time": [median_ns(case.busy_ns) for case, _ in cases], **times}
        for name, durations in times.items():
            cells = [cell for ns in durations for cell in (units.duration(ns), "")]
            sums.append((name, "", "", *cells))
    heads = (head for case, _ in cases for head in (f"b{case.params.batch_size}{unit}", "share"))
    return text_table(
        title=f"{_title(group[0], batch=False)}, {_view(tables[0])}: {SORTS[sort]} per iteration",
        headings=("operation", "phase", "module", *heads),
        rows=tuple((*operation_cells(*key), *sizes.summed_cells([key])) for key in keys),
        sums=tuple(sums),
        numbers_from=3,
    )


# ---- One case ------------------------------------------------------------------------------------


def work_table(case: Profiled, table: OpTable, shown: Settings) -> Table:
    """Return the time, the work and the share of the roofline limit of each operation.

    The work is FLOPs and bytes. The operations are those of a case.
    """
    rows = rows_of(case, table, shown.by)
    with_work = shows_work(case, table)
    picked = _picked(rows, table, shown)
    left_out = len(rows) - len(picked)
    lines = (
        [f"{left_out} smaller operation{'s are' if left_out > 1 else ' is'} not shown."]
        if left_out
        else []
    )
    if with_work and any((row.of_roof or 0) > 1 for row in picked):
        lines.append(
            "An operation can reach more than 100 % of the roof if its data come from a cache, or "
            "if the library does fewer FLOPs than are counted."
        )
    lines += [*(sentences(case, table) if with_work else ()), *rank_sentences(case)]
    whole = _whole(table, rows, "self-device" if table.clock == "device" else "self-cpu")
    return Table(
        f"{_title(case)}, {_view(table)}: by {SORTS[_sort(table, shown)]}",
        _columns(whole, shown, with_work=with_work),
        picked,
        lines=tuple(lines),
    )


def _columns(whole: float, shown: Settings, *, with_work: bool) -> tuple[Column[OperationSum], ...]:
    """Return the columns of operations; ``whole`` is the time of which each has a share."""
    return (
        *NAMES,
        Column("calls", lambda row: row.calls, units.count, key="calls"),
        Column(None, lambda row: row.self_cpu_ns, key="self_cpu_ns"),
        Column(None, lambda row: row.self_device_ns, key="self_device_ns"),
        Column("self", lambda row: row.self_ns, units.duration),
        Column("share", lambda row: row.self_ns / whole if whole else None, units.percent),
        Column("total", lambda row: row.total_cpu_ns, units.duration, key="total_cpu_ns"),
        Column(
            "kept KiB" if shown.memory else None,
            lambda row: row.memory_bytes,
            units.kibibytes,
            key="memory_bytes",
        ),
        *(column if with_work else replace(column, heading=None) for column in work_columns()),
        Column("shapes" if shown.shapes else None, lambda row: "; ".join(row.shapes) or None),
    )


def sentences(case: Profiled, table: OpTable) -> Iterator[str]:
    """Yield sentences about the whole iteration."""
    low, high = quartiles_ns(case.calls_ns)
    overhead = (
        f" (overhead {units.duration(table.profiler_ns)} per operation call)"
        if table.profiler_ns
        else ""
    )
    yield (
        f"One iteration takes {units.duration(case.call_ns)} without the profiler (median of "
        f"{len(case.calls_ns)}, interquartile range {units.duration(high - low)}), "
        f"{units.duration(case.call_ns / case.samples)} per sample; with the profiler, "
        f"{units.duration(median_ns(table.iteration_ns))}{overhead}."
    )
    if case.ceilings is None:
        yield "Ceilings: not measured, because the free memory of the device does not suffice."
    if case.flops is None:
        yield "FLOPs: not known, because there is no formula for any of the operations."
    elif case.utilisation is not None and case.ceilings:
        rate = units.flops_per_s(case.flops / (case.call_ns / 1e9))
        peak = units.flops_per_s(case.ceilings.flops_per_s)
        bandwidth = units.bytes_per_s(case.ceilings.bytes_per_s)
        yield (
            f"{units.flops(case.flops)} per iteration, {rate}: model FLOP utilisation "
            f"{units.percent(case.utilisation)} of the {peak} ({case.ceilings.precision}) that a "
            "large matrix product or convolution reached on this machine; a large copy reached "
            f"{bandwidth}."
        )
    if case.idle is not None:
        limit = (
            "limited by kernel launches"
            if case.idle > LAUNCH_BOUND
            else "not limited by kernel launches"
        )
        busy = (
            f"busy for {units.duration(median_ns(case.busy_ns))} of the "
            f"{units.duration(case.call_ns)} of an iteration"
        )
        yield f"The accelerator is {busy}, and idle for {units.percent(case.idle)}: {limit}."


def rank_sentences(case: Profiled) -> Iterator[str]:
    """Yield sentences about the steps of all ranks; none for one process."""
    times = case.ranks
    if (
        times is None
        or times.no_sync_typical_ns is None
        or times.exposed_ns is None
        or times.exposed_share is None
    ):
        return
    yield (
        f"This is rank 0, which computes {case.samples} of the {case.params.batch_size} samples. "
        "Communication (gloo:, nccl:) runs beside the operations and includes the wait for other "
        "ranks, so shares can add up to more than 100 %."
    )
    yield (
        f"A step takes {units.duration(times.typical_ns)} on its slowest rank (median of "
        f"{len(times.slowest_ns)}), a step without communication (no_sync) "
        f"{units.duration(times.no_sync_typical_ns)}: exposed communication "
        f"{units.duration(times.exposed_ns)}, {units.percent(times.exposed_share)} of the step."
    )
    medians = times.of_each_rank_ns
    yield (
        f"Over the {times.ranks} ranks, the step takes {units.duration(min(medians))} to "
        f"{units.duration(max(medians))}; rank {medians.index(max(medians))} is the slowest."
    )


# ---- Layers and first calls ----------------------------------------------------------------------

_LAYERS: tuple[Column[Layer], ...] = (
    Column("layer", lambda layer: layer.name),
    Column("kind", lambda layer: layer.kind),
    Column(
        "output",
        lambda layer: (" x ".join(map(str, layer.output_shape)) or "1") if layer.kind else "",
    ),
    Column("parameters", lambda layer: layer.parameters, units.count),
    Column("FLOPs", lambda layer: layer.flops, units.flops),
    Column("output KiB", lambda layer: layer.output_bytes, units.kibibytes),
    Column("parameters KiB", lambda layer: layer.parameter_bytes, units.kibibytes),
)


def layer_table(case: Profiled) -> Table:
    """Return every layer of the network with what it computes.

    Its shape, parameters, FLOPs and bytes, for one sample.
    """
    flops = [layer.flops for layer in case.layers if layer.flops is not None]
    whole = Layer(
        name="all",
        kind="",
        output_shape=(),
        parameters=sum(layer.parameters for layer in case.layers),
        parameter_bytes=sum(layer.parameter_bytes for layer in case.layers),
        flops=sum(flops) if flops else None,
        output_bytes=sum(layer.output_bytes for layer in case.layers),
    )
    return Table(
        f"{case.params.workload}: layers, forward, one sample",
        _LAYERS,
        case.layers,
        (whole,),
        (
            (
                "FLOPs: only of layers with a FLOP formula; one multiplication and one addition "
                "count as two."
            ),
        ),
    )


def cold_table(case: Profiled) -> Table:
    """Return the table of the first call and later calls of a process, by operation."""
    warm = case.table("host")
    tables = [*(call.table for call in case.cold), *([warm] if warm else [])]
    rows_of_tables = [rows_of(case, table, "op") for table in tables]
    columns = [
        {operation_cells(*key)[0]: row.self_cpu_ns for key, row in rows.items()}
        for rows in rows_of_tables
    ]
    names = {name for column in columns for name in column}
    ordered = sorted(
        names, key=lambda name: (-max(column.get(name, 0) for column in columns), name)
    )
    heads = [
        f"first, {'trained' if call.trained else 'untrained'}"
        if call.first
        else f"{case.trained_steps} steps later, same process"
        for call in case.cold
    ] + (["warm"] if warm else [])
    return text_table(
        title=f"{_title(case)}: the first call of a process, self CPU time",
        headings=("operation", *heads),
        rows=tuple(
            (
                name,
                *(
                    units.duration(column[name]) if name in column else units.MISSING
                    for column in columns
                ),
            )
            for name in ordered[:COLD_ROWS]
        ),
        sums=(
            (
                "whole iteration, profiled",
                *(units.duration(median_ns(table.iteration_ns)) for table in tables),
            ),
        ),
        numbers_from=1,
        lines=('Each "first" column was measured in a new process.',),
    )
