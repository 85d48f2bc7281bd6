"""Profiled cases -> the tables and the roofline that people look at, and CSV."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mnistbench.compare.diff import grouped
from mnistbench.core import units
from mnistbench.core.operation import operation_name
from mnistbench.core.params import device_label
from mnistbench.core.record import OpRow, OpTable, median_ns, quartiles_ns
from mnistbench.profile.result import ColdCall, Cost, OpKey, Profiled
from mnistbench.report.rows import Block, Table, operation_cells

#: What rows can be ordered by, and what then stands in the columns.
SORTS = {
    "self-cpu": "self CPU time",
    "self-device": "self device time",
    "total": "total CPU time",
    "memory": "memory allocated less freed",
    "calls": "calls",
}

#: An accelerator that runs nothing for a larger share of a call waits for its host.
LAUNCH_BOUND = 0.5

#: Rows of the table of a first call: what it is spent on is a few operations.
COLD_ROWS = 5

#: Characters of a roofline's picture.
_WIDTH, _HEIGHT = 64, 14
_MARKS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Shown:
    """What a user wants to see."""

    top: int = 10
    min_share: float = 0.01
    sort: str = ""  # one of SORTS; empty: by the clock of the table
    by: str = "op,module"
    shapes: bool = False
    memory: bool = False


@dataclass(frozen=True)
class Row:
    """Operations of one case that are shown as one, per iteration."""

    key: OpKey
    calls: float
    self_cpu_ns: int
    self_device_ns: int
    total_ns: int
    memory_bytes: int
    cost: Cost | None
    shapes: tuple[str, ...]

    def self_ns(self, clock: str) -> int:
        """Return the self time by ``cpu`` or ``device``."""
        return self.self_device_ns if clock == "device" else self.self_cpu_ns

    def value(self, sort: str) -> float:
        """Return what it is ordered by."""
        values = {"self-cpu": self.self_cpu_ns, "self-device": self.self_device_ns, "total": self.total_ns,
                  "memory": abs(self.memory_bytes), "calls": self.calls}  # fmt: skip
        return values[sort]


def rows_of(case: Profiled, table: OpTable, by: str) -> dict[OpKey, Row]:
    """Return the operations of a table, grouped ``op``, ``module`` or ``op,module``, without what lies outside them."""
    found: dict[OpKey, list[OpRow]] = defaultdict(list)
    for row in table.rows:
        if row.is_operation:
            found[grouped(row.key, by)].append(row)
    return {
        key: Row(
            key=key,
            calls=sum(row.calls for row in rows),
            self_cpu_ns=sum(median_ns(row.self_cpu_ns) for row in rows),
            self_device_ns=sum(median_ns(row.self_device_ns) for row in rows),
            # operations of a module call each other: their totals would count time twice
            total_ns=sum(median_ns(row.self_cpu_ns if by == "module" else row.total_cpu_ns) for row in rows),
            memory_bytes=sum(row.memory_bytes for row in rows),
            cost=_sum(case.costs[row.key] for row in rows if row.key in case.costs),
            shapes=tuple(sorted({shape for row in rows for shape in row.shapes})),
        )
        for key, rows in found.items()
    }


def _sum(costs: Iterable[Cost]) -> Cost | None:
    listed = list(costs)
    flops = [cost.flops for cost in listed if cost.flops is not None]
    return Cost(sum(flops) if flops else None, sum(cost.n_bytes for cost in listed)) if listed else None


def blocks(cases: Sequence[Profiled], shown: Shown) -> list[Block]:
    """Return the whole report: batch sizes side by side, then each case by itself, layers, first calls."""
    found: list[Block] = []
    for group in _groups(cases):
        views = [table.view for table in group[0].tables]
        if len(group) > 1:
            found.append(Block("", tables=tuple(side_by_side(group, view, shown) for view in views)))
        for case in group:
            found += [Block("", tables=tuple(work_table(case, table, shown) for table in case.tables))]
        found += [Block(f"Roofline, {_title(group[-1])}", drawing=drawing) for drawing in roofline(group[-1], shown)]
    found += [Block("", tables=(layer_table(case),)) for case in _one_of_each_network(cases) if case.layers]
    found += [Block("", tables=(table,)) for case in cases for table in cold_tables(case)]
    return found


def _groups(cases: Iterable[Profiled]) -> list[list[Profiled]]:
    """Return cases that differ in their batch size alone, the smallest first."""
    found: dict[tuple[str, ...], list[Profiled]] = defaultdict(list)
    for case in cases:
        params = case.params
        found[params.phase, params.workload, params.device, params.dtype].append(case)
    return [sorted(group, key=lambda case: case.params.batch_size) for group in found.values()]


def _one_of_each_network(cases: Iterable[Profiled]) -> list[Profiled]:
    return list({case.params.workload: case for case in cases}.values())


def _title(case: Profiled, *, batch: bool = True) -> str:
    params = case.params
    size = f" at batch {params.batch_size}" if batch else ""
    device = device_label(params.device, params.dtype, params.compile)
    return f"{params.phase} {params.workload}{size} on {params.dataset}, {device}, {_threads(params.threads)}"


def _threads(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def _view(table: OpTable) -> str:
    return "host and device activities" if table.view == "device" else "host activities"


def _sort(table: OpTable, shown: Shown) -> str:
    """Return what this table is ordered by: device time only where the device was watched."""
    own = "self-device" if table.clock == "device" else "self-cpu"
    return own if shown.sort in ("", "self-device") else shown.sort


# ---- Batch sizes side by side ----------------------------------------------------------------------------------------


def side_by_side(group: Sequence[Profiled], view: str, shown: Shown) -> Table:
    """Return a row per operation and, per batch size, what it is ordered by with its share."""
    tables = [table for case in group if (table := case.table(view))]
    sort = _sort(tables[0], shown)
    columns = [rows_of(case, table, shown.by) for case, table in zip(group, tables, strict=True)]
    wholes = [_whole(table, rows, sort) for table, rows in zip(tables, columns, strict=True)]
    shares: dict[OpKey, float] = defaultdict(float)
    for rows, whole in zip(columns, wholes, strict=True):
        for key, row in rows.items():
            shares[key] = max(shares[key], row.value(sort) / whole if whole else 0.0)
    keys = [key for key in sorted(shares, key=lambda key: (-shares[key], key)) if shares[key] >= shown.min_share][: shown.top]
    rest = [key for key in shares if key not in keys]
    cells: list[tuple[str, ...]] = []
    for key in keys:
        values = (_value_cells([rows[key]], whole, sort) if key in rows else _NONE for rows, whole in _zip(columns, wholes))
        cells.append((*operation_cells(*key), *(cell for pair in values for cell in pair)))
    others = (_value_cells([rows[k] for k in rest if k in rows], whole, sort) for rows, whole in _zip(columns, wholes))
    outside = (_outside_cells(table, whole, sort) for table, whole in zip(tables, wholes, strict=True))
    calls = ((units.microseconds(case.call_ns), "") for case in group)
    labelled = [(f"other ({len(rest)} operation{'s' if len(rest) > 1 else ''})", others)] if rest else []
    labelled += [("outside operations", outside), ("one call without the profiler", calls)] if sort.startswith("self") else []
    return Table(
        title=f"{_title(group[0], batch=False)}, {_view(tables[0])}: {SORTS[sort]} per iteration",
        headers=("operation", "phase", "module", *(head for case in group for head in (_head(case, sort), "share"))),
        rows=tuple(cells),
        sums=tuple((name, "", "", *(cell for pair in pairs for cell in pair)) for name, pairs in labelled),
        numbers_from=3,
    )


_NONE = (units.MISSING, units.MISSING)


def _zip(columns: Sequence[dict[OpKey, Row]], wholes: Sequence[float]) -> Iterator[tuple[dict[OpKey, Row], float]]:
    return zip(columns, wholes, strict=True)


def _whole(table: OpTable, rows: dict[OpKey, Row], sort: str) -> float:
    """Return what a share is a share of."""
    if sort in ("self-cpu", "self-device"):
        return sum(row.self_ns("device" if sort == "self-device" else "cpu") for row in table.rows)
    if sort == "total":
        return median_ns(table.iteration_ns)
    return sum(row.value(sort) for row in rows.values())


def _head(case: Profiled, sort: str) -> str:
    unit = {"memory": "KiB", "calls": "calls"}.get(sort, "us")
    return f"b{case.params.batch_size} {unit}"


def _value_cells(rows: Sequence[Row], whole: float, sort: str) -> tuple[str, str]:
    if not rows:
        return _NONE
    value = sum(row.value(sort) for row in rows)
    share = units.percent(value / whole) if whole else units.MISSING
    if sort == "memory":
        return (_kib(sum(row.memory_bytes for row in rows)), share)
    return (units.count(value) if sort == "calls" else units.microseconds(value), share)


def _outside_cells(table: OpTable, whole: float, sort: str) -> tuple[str, str]:
    clock = "device" if sort == "self-device" else "cpu"
    outside = sum(row.self_ns(clock) for row in table.rows if not row.is_operation)
    return (units.microseconds(outside), units.percent(outside / whole) if whole else units.MISSING)


def _kib(n_bytes: int) -> str:
    return f"{n_bytes / 1024:,.1f}"


# ---- One case --------------------------------------------------------------------------------------------------------


def work_table(case: Profiled, table: OpTable, shown: Shown) -> Table:
    """Return what the operations of one case take, what they have to do, and how near they come to the machine's best."""
    sort, clock = _sort(table, shown), table.clock
    rows = rows_of(case, table, shown.by)
    picked, rest = _picked(rows, table, sort, shown)
    heads, cells = ["operation", "phase", "module"], [list(operation_cells(*row.key)) for row in picked]

    def column(head: str, cell: Callable[[Row], str]) -> None:
        heads.append(head)
        for line, row in zip(cells, picked, strict=True):
            line.append(cell(row))

    whole = _whole(table, rows, "self-device" if clock == "device" else "self-cpu")
    column("calls", lambda row: units.count(row.calls))
    column("self us", lambda row: units.microseconds(row.self_ns(clock)))
    column("share", lambda row: units.percent(row.self_ns(clock) / whole) if whole else units.MISSING)
    column("total us", lambda row: units.microseconds(row.total_ns))
    if shown.memory:
        column("kept KiB", lambda row: _kib(row.memory_bytes))
    if worked_in(case, table):
        column("MFLOP", lambda row: _millions(row.cost.flops if row.cost else None))
        column("GFLOP/s", lambda row: _giga_per_s(row.cost.flops if row.cost else None, row.self_ns(clock)))
        column("moves MB", lambda row: _millions(row.cost.n_bytes if row.cost else None))
        column("GB/s", lambda row: _giga_per_s(row.cost.n_bytes if row.cost else None, row.self_ns(clock)))
        column("of roof", lambda row: _of_roof(case, row, clock))
    if shown.shapes:
        column("shapes", lambda row: "; ".join(row.shapes) or units.MISSING)
    return Table(
        title=f"{_title(case)}, {_view(table)}: by {SORTS[sort]}",
        headers=tuple(heads),
        rows=tuple(map(tuple, cells)),
        sums=(),
        numbers_from=3,
        lines=(*_left_out(rest), *(sentences(case, table) if worked_in(case, table) else ())),
        words_after=int(shown.shapes),
    )


def worked_in(case: Profiled, table: OpTable) -> bool:
    """Whether a table's times are those of the work: an accelerator's host only launches it."""
    return table.view == "device" or case.params.device == "cpu"


def _picked(rows: dict[OpKey, Row], table: OpTable, sort: str, shown: Shown) -> tuple[list[Row], int]:
    whole = _whole(table, rows, sort)
    ordered = sorted(rows.values(), key=lambda row: (-row.value(sort), row.key))
    picked = [row for row in ordered if whole and row.value(sort) / whole >= shown.min_share][: shown.top]
    return picked, len(rows) - len(picked)


def _millions(number: int | None) -> str:
    return units.MISSING if number is None else f"{number / 1e6:,.2f}"


def _giga_per_s(number: int | None, ns: int) -> str:
    return units.MISSING if number is None or ns <= 0 else f"{number / ns:,.1f}"


def _of_roof(case: Profiled, row: Row, clock: str) -> str:
    share = of_roof(case, row.cost, row.self_ns(clock))
    return units.MISSING if share is None else units.percent(share)


def of_roof(case: Profiled, cost: Cost | None, ns: int) -> float | None:
    """Return achieved by attainable FLOP/s, or bytes by the copy's where FLOPs are not counted; None if not known.

    Above 1 the data came from a cache: a large copy's does not.
    """
    if cost is None or case.ceilings is None or ns <= 0:
        return None
    if cost.flops:
        return cost.flops / (ns / 1e9) / case.ceilings.attainable(cost.flops, cost.n_bytes)
    return cost.n_bytes / (ns / 1e9) / case.ceilings.bytes_per_s


def _left_out(rest: int) -> list[str]:
    return [f"{rest} smaller operation{'s are' if rest > 1 else ' is'} not shown."] if rest else []


def sentences(case: Profiled, table: OpTable) -> Iterator[str]:
    """Yield what holds for the whole call."""
    low, high = quartiles_ns(case.calls_ns)
    yield (
        f"One call takes {units.duration(case.call_ns)} without the profiler (median of {len(case.calls_ns)}, interquartile "
        f"range {units.duration(high - low)}), {units.duration(case.call_ns / case.samples)} a sample; profiled, "
        f"{units.duration(median_ns(table.iteration_ns))}"
        + (f": the profiler adds {units.duration(table.profiler_ns)} to each call of an operation" if table.profiler_ns else "")
        + "."
    )
    if case.flops is None:
        yield "FLOPs: none of its operations has a formula to count them by."
    elif case.utilisation is not None and case.ceilings:
        peak, bandwidth = units.flops_per_s(case.ceilings.flops_per_s), units.bytes_per_s(case.ceilings.bytes_per_s)
        yield (
            f"{units.flops(case.flops)} a call, {units.flops_per_s(case.flops / (case.call_ns / 1e9))}: model FLOP utilisation "
            f"{units.percent(case.utilisation)} of the {peak} ({case.ceilings.precision}) that a large matrix product or "
            f"convolution reached here; a large copy reached {bandwidth}."
        )
    if case.idle is not None:
        bound = "it waits for its host: bound by launches" if case.idle > LAUNCH_BOUND else "not bound by launches"
        yield f"The accelerator ran nothing for {units.percent(case.idle)} of a call; {bound}."


# ---- Roofline --------------------------------------------------------------------------------------------------------


def roofline(case: Profiled, shown: Shown) -> Iterator[str]:
    """Yield the picture: FLOP/s over FLOP per byte, both logarithmic, the roof and the operations below it.

    Williams, Waterman and Patterson, "Roofline", CACM 52 (2009) 65. Nothing where there is nothing to place.
    """
    if case.ceilings is None or not case.tables or not worked_in(case, case.tables[-1]):
        return
    table = case.tables[-1]
    rows = rows_of(case, table, shown.by)
    points = [
        (row, row.cost.flops / row.cost.n_bytes, row.cost.flops / (row.self_ns(table.clock) / 1e9))
        for row in _picked(rows, table, _sort(table, shown), shown)[0]
        if row.cost and row.cost.flops and row.cost.n_bytes and row.self_ns(table.clock) > 0
    ][: len(_MARKS)]
    if not points:
        return
    peak, bandwidth = case.ceilings.flops_per_s, case.ceilings.bytes_per_s
    ridge = peak / bandwidth
    low_x = math.log2(min(ridge, *(x for _, x, _ in points))) - 1
    high_x = math.log2(max(ridge, *(x for _, x, _ in points))) + 1
    high_y = math.log2(max(peak, *(y for *_, y in points))) + 0.5
    low_y = min(math.log2(bandwidth) + low_x, *(math.log2(y) for *_, y in points)) - 0.5
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def put(log_x: float, log_y: float, mark: str) -> None:
        column = round((log_x - low_x) / (high_x - low_x) * (_WIDTH - 1))
        line = round((high_y - log_y) / (high_y - low_y) * (_HEIGHT - 1))
        while grid[line][column] in _MARKS and column < _WIDTH - 1:  # two operations in one place stand side by side
            column += 1
        grid[line][column] = mark

    for column in range(_WIDTH):
        log_x = low_x + column * (high_x - low_x) / (_WIDTH - 1)
        put(log_x, min(math.log2(peak), math.log2(bandwidth) + log_x), "-" if log_x >= math.log2(ridge) else "/")
    for mark, (_, x, y) in zip(_MARKS, points, strict=False):
        put(math.log2(x), math.log2(y), mark)
    labels = [""] * _HEIGHT
    labels[0], labels[-1] = (units.flops_per_s(2**value) for value in (high_y, low_y))
    width = max(map(len, labels))
    lines = [f"{label:>{width}} |{''.join(line).rstrip()}" for label, line in zip(labels, grid, strict=True)]
    left, right = f"{2**low_x:.2g}", f"{2**high_x:.3g} FLOP/byte"
    lines += [f"{'':{width}} +{'-' * _WIDTH}", f"{'':{width}}  {left}{right:>{_WIDTH - len(left)}}"]
    for mark, (row, x, y) in zip(_MARKS, points, strict=False):
        share = of_roof(case, row.cost, row.self_ns(table.clock)) or 0.0
        limit = "computing" if x >= ridge else "memory"
        cached = ": its data came from a cache" if share > 1 and x < ridge else ""
        name = operation_name(*row.key)
        rates = f"{x:.1f} FLOP/byte, {units.flops_per_s(y)}, {units.percent(share)} of what {limit} allows{cached}"
        lines.append(units.printable(f"{mark}  {name}: {rates}"))
    yield "\n".join(lines)


# ---- Layers and first calls ------------------------------------------------------------------------------------------


def layer_table(case: Profiled) -> Table:
    """Return every layer of the network with its shape, parameters, FLOPs and bytes, for one sample."""
    flops = [layer.flops for layer in case.layers if layer.flops is not None]
    return Table(
        title=f"{case.params.workload}: layers, forward, one sample",
        headers=("layer", "kind", "output", "parameters", "MFLOP", "output KiB", "parameters KiB"),
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
        lines=("MFLOP: of layers that a formula counts; a multiplication and an addition are two.",),
    )  # fmt: skip


def cold_tables(case: Profiled) -> Iterator[Table]:
    """Yield the first call beside later ones, by operation."""
    if not case.cold:
        return
    warm = case.table("host")
    tables = [*(call.table for call in case.cold), *([warm] if warm else [])]
    columns = [_ns_by_name(table) for table in tables]
    names = sorted({name for column in columns for name in column}, key=lambda name: -max(c.get(name, 0) for c in columns))
    heads = [_cold_head(call, case.trained_steps) for call in case.cold] + (["warm us"] if warm else [])
    yield Table(
        title=f"{_title(case)}: the first call of a process, self CPU time",
        headers=("operation", *heads),
        rows=tuple(
            (name, *(units.microseconds(column[name]) if name in column else units.MISSING for column in columns))
            for name in names[:COLD_ROWS]
        ),
        sums=(("whole call, profiled", *(units.microseconds(median_ns(table.iteration_ns)) for table in tables)),),
        numbers_from=1,
        lines=("Each column that begins with first is a process of its own.",),
    )


def _cold_head(call: ColdCall, steps: int) -> str:
    if call.first:
        return "first, trained us" if call.trained else "first, untrained us"
    return f"same process, {steps} steps later us"


def _ns_by_name(table: OpTable) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in table.rows:
        if row.is_operation:
            found[operation_cells(*row.key)[0]] += row.self_ns("cpu")
    return found


# ---- CSV -------------------------------------------------------------------------------------------------------------

CSV_COLUMNS = (
    "workload", "phase_of_case", "batch_size", "device", "dtype", "threads", "dataset", "view", "operation", "phase", "module",
    "calls", "self_cpu_ns", "self_device_ns", "total_cpu_ns", "memory_bytes", "flops", "bytes", "of_roof",
)  # fmt: skip


def csv_rows(cases: Iterable[Profiled], by: str) -> Iterator[tuple[object, ...]]:
    """Yield every operation of every case."""
    for case in cases:
        params = case.params
        for table in case.tables:
            for row in sorted(rows_of(case, table, by).values(), key=lambda row: -row.self_ns(table.clock)):
                share = of_roof(case, row.cost, row.self_ns(table.clock)) if worked_in(case, table) else None
                yield (
                    params.workload, params.phase, params.batch_size, params.device, params.dtype, params.threads,
                    params.dataset, table.view, *row.key, row.calls, row.self_cpu_ns,
                    row.self_device_ns if table.view == "device" else None, row.total_ns, row.memory_bytes,
                    row.cost.flops if row.cost else None, row.cost.n_bytes if row.cost else None,
                    None if share is None else round(share, 4),
                )  # fmt: skip
