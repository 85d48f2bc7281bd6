"""Traces -> a report: steps, accelerators, operations, their work, kernels, spread over ranks."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.operation import (
    NOT_OPERATIONS,
    OUTSIDE,
    RUNTIME,
    UNATTRIBUTED,
    OpKey,
    grouped,
    is_runtime_call,
    operation_cells,
    shortened,
)
from mnistbench.core.record import as_data, median_ns
from mnistbench.events.analysis import Analysis, FileNotes, Kernel, RanksRun, Tables, Timeline
from mnistbench.events.launches import Launches
from mnistbench.events.model import UNNAMED, Impossible
from mnistbench.events.work.arguments import NOT_RECORDED
from mnistbench.events.work.costs import NO_DATA, Costs, Peaks, peaks_of
from mnistbench.events.work.flops import Work
from mnistbench.events.work.roofline import OperationSum, total
from mnistbench.events.work.roofline_tables import NAMES, paired, rooflines, summed, work_columns
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table, text_table

#: Characters of a kernel's name in a table; JSON has the whole name.
_NAME_LENGTH = 70

#: Number of names that a sentence lists.
_NAMES = 3

#: Smaller shares of the time are not listed.
_MIN_SHARE = 0.0005

_NO_PEAK = "operations in a number format without a known peak"


def traces_report(
    traces: Sequence[Analysis], top: int, by: str, user_peaks: Mapping[str, float | None]
) -> Report:
    """Return the report of traces.

    ``user_peaks`` are ``tflops`` and ``gbs`` of the user, see :func:`peaks_of`.
    """
    shown = _with_rows(traces, by, user_peaks)
    blocks = [
        block
        for trace, peaks, rows in shown
        for block in _trace_blocks(trace, peaks, rows, top, by)
    ]
    return Report(
        "operations of a trace", blocks, document("trace", traces=_data(shown)), _csv(shown)
    )


def ranks_report(
    run: RanksRun, top: int, by: str, user_peaks: Mapping[str, float | None]
) -> Report:
    """Return the report of a distributed run: its ranks, and the spread of operations over them."""
    shown = _with_rows(run.ranks, by, user_peaks)
    blocks = [
        Block("", tables=(_ranks_table(run),)),
        Block("", tables=(_spread_table(run, top, by),)),
    ]
    data = document(
        "trace",
        folder=run.folder,
        slowest_rank=run.slowest.file.rank,
        missing_ranks=run.missing,
        left_out_files=(*run.merged, *run.without_rank, *run.other_files),
        traces=_data(shown),
    )
    return Report("operations of a trace", blocks, data, _csv(shown))


#: A trace, the peaks with which its work is compared, and its rows, the longest first.
_Shown = tuple[Analysis, Peaks, list[OperationSum]]


def _with_rows(
    traces: Iterable[Analysis], by: str, user_peaks: Mapping[str, float | None]
) -> list[_Shown]:
    with_peaks = [(trace, peaks_of(trace.timeline.machine, **user_peaks)) for trace in traces]
    return [(trace, peaks, _rows_of(trace, by, peaks)) for trace, peaks in with_peaks]


def _trace_blocks(
    trace: Analysis, peaks: Peaks, rows: Sequence[OperationSum], top: int, by: str
) -> Iterator[Block]:
    tables = trace.tables
    yield Block(
        units.printable(Path(trace.file.source).name),
        lines=(_head(trace.file, trace.timeline.machine, trace.launches),),
        tables=(_step_table(tables, trace.launches, trace.timeline.devices, top),),
    )
    if trace.timeline.devices:
        yield Block("", tables=(_timeline_table(trace.timeline.devices, trace.file.impossible),))
    yield Block("", tables=(_operation_table(trace, rows, top),))
    if trace.kernels:
        yield Block("", tables=(_kernel_table(trace.kernels, top),))
    if trace.costs.work:
        shown = [row for row in rows if row.key[0] not in NOT_OPERATIONS][:top]
        every = rows if by == "op,module" else _rows_of(trace, "op,module", peaks)
        time = Column[OperationSum](
            "time", lambda row: row.self_ns, lambda ns: units.duration(ns / len(tables.steps))
        )
        title = f"work by {'device' if tables.device else 'host'} time, {_per_step(tables)}"
        columns = (
            *NAMES,
            time,
            _share_column(every, on_device=tables.device is not None),
            *work_columns(len(tables.steps)),
        )
        yield Block(
            "",
            tables=(
                Table(title, columns, shown, lines=tuple(_work_notes(trace, every, peaks, by))),
            ),
        )
        yield from rooflines(units.printable(Path(trace.file.source).name), shown)


def _head(file: FileNotes, machine: Sequence[tuple[str, int]], launches: Launches) -> str:
    """Return the machine and the rank."""
    names = [
        f"{name or UNNAMED} ({units.size(memory)})" if memory else name or UNNAMED
        for name, memory in machine
    ]
    versions = [
        f"{name.replace('_version', '').replace('_', ' ')} {value}"
        for name, value in file.versions.items()
    ]
    rank = (
        []
        if file.rank is None
        else [f"rank {file.rank}{f' of {file.ranks}' if file.ranks else ''}"]
    )
    is_recorded = not launches.n_lost and not launches.captured
    without = (
        "host only" if is_recorded else "host only: kernels of the accelerator are not recorded"
    )
    return units.printable(", ".join([*(names or [without]), *versions, *rank]))


# ---- Data ----------------------------------------------------------------------------------------


def _rows_of(trace: Analysis, by: str, peaks: Peaks) -> list[OperationSum]:
    """Return the rows of a trace with the work and the times of all steps, the longest first.

    A sum in which the work of one operation is not known has no work.
    """
    work: dict[OpKey, Work] = defaultdict(Work)
    uncounted: dict[OpKey, str] = {}  # the reason of the longest operation without work
    for row in sorted(
        summed(trace.tables.shown, "op,module", of_all=True).values(), key=lambda row: -row.self_ns
    ):
        key = grouped(row.key, by)
        if counted := trace.costs.work.get(row.key):
            work[key].add(counted)
        elif row.self_ns > 0 and (
            row.key[0] not in NOT_OPERATIONS or row.key in trace.costs.uncounted
        ):
            uncounted.setdefault(key, trace.costs.uncounted.get(row.key, NO_DATA))
    kernels: dict[OpKey, int] = Counter()
    for kernel in trace.kernels:
        kernels[grouped(kernel.key, by)] += kernel.count
    memory_bytes: dict[OpKey, int] = Counter()
    for operation, n_bytes in trace.tables.memory_bytes.items():
        memory_bytes[grouped(operation, by)] += n_bytes
    rows = []
    for key, row in summed(trace.tables.shown, by, of_all=True).items():
        known = work[key] if key in work and key not in uncounted else None
        rows.append(
            replace(
                row,
                kernels=kernels[key],
                memory_bytes=memory_bytes[key],
                cost=known.cost if known else None,
                ceilings=peaks.ceilings(known) if known else None,
                uncounted=uncounted.get(key, "") if trace.costs.work else "",
            )
        )
    return sorted(rows, key=lambda row: (-row.self_ns, -row.self_cpu_ns, row.key))


def _csv(shown: Sequence[_Shown]) -> Table:
    pairs = [(trace, row) for trace, _, rows in shown for row in rows]
    source = Column[Analysis](None, lambda trace: trace.file.source, key="trace")
    ranges = {name for trace, _, _ in shown for name in trace.tables.ranges}
    return paired(
        [source], (*_time_columns(shown[0][0].tables, ranges), *work_columns(), *_PEAKS), pairs
    )


#: Columns of CSV and JSON.
_PEAKS: tuple[Column[OperationSum], ...] = (
    Column(None, lambda row: (row.cost and row.cost.precision) or None, key="precision"),
    Column(
        None,
        lambda row: (
            row.ceilings.flops_per_s
            if row.ceilings and math.isfinite(row.ceilings.flops_per_s)
            else None
        ),
        key="peak_flops_per_s",
    ),
    Column(
        None, lambda row: row.ceilings.bytes_per_s if row.ceilings else None, key="peak_bytes_per_s"
    ),
    Column(None, lambda row: row.uncounted or None, key="not_counted"),
)


def _data(shown: Sequence[_Shown]) -> list[dict[str, Any]]:
    """Return traces for JSON.

    Times are nanoseconds; tables have a sample per step, operations the sum of all steps.
    """
    return [
        {
            "source": trace.file.source,
            "steps": trace.tables.steps,
            "are_steps_marked": trace.tables.are_steps_marked,
            "host": as_data(trace.tables.host),
            "device": as_data(trace.tables.device),
            "kernels": as_data(trace.kernels),
            "launches": as_data(trace.launches),
            "timelines": [
                {**asdict(timeline), "idle_ns": timeline.idle_ns}
                for timeline in trace.timeline.devices
            ],
            "machine": trace.timeline.machine,
            **as_data(trace.file),
            "outside_ns": trace.tables.outside_ns,
            "outside_device_ns": trace.tables.outside_device_ns,
            "collectives_ns": trace.timeline.collectives_ns,
            "other_threads_ns": trace.tables.other_threads_ns,
            "beside_ns": trace.tables.beside_ns,
            "outside_collectives_ns": trace.timeline.outside_collectives_ns,
            "peaks": asdict(peaks),
            "operations": _csv([(trace, peaks, rows)]).records(),
        }
        for trace, peaks, rows in shown
    ]


# ---- Steps and accelerators ----------------------------------------------------------------------


def _step_table(
    tables: Tables, launches: Launches, timelines: Iterable[Timeline], top: int
) -> Table:
    step_ns = tables.host.iteration_ns
    busy = tables.device.busy_ns if tables.device else ()
    longest = sorted(range(len(step_ns)), key=lambda slot: -step_ns[slot])[:top]
    rows = [
        (
            units.printable(tables.steps[slot]),
            *(units.duration(times[slot]) for times in (step_ns, busy) if times),
        )
        for slot in sorted(longest)
    ]
    typical = [units.duration(median_ns(times)) for times in (step_ns, busy) if times]
    lines = []
    if left_out := len(step_ns) - len(rows):
        lines.append(
            f"{units.count(left_out)} shorter step{'s are' if left_out > 1 else ' is'} not shown."
        )
    if tables.device:
        is_longer = any(busy_ns > ns for busy_ns, ns in zip(busy, step_ns, strict=True))
        longer = (
            "; it may run that before or after the step, and so for longer than the step lasts"
            if is_longer
            else ""
        )
        lines.append(f"Busy: time in which the accelerator ran what the step launched{longer}.")
    if len(tables.steps) > 1 and any(timeline.unlinked for timeline in timelines):
        lines.append(
            "Kernels and copies without a launch count to the step in which they ran, the "
            "earliest to the first step."
        )
    if not tables.are_steps_marked:
        lines.append("No operation ran in a ProfilerStep, so the whole trace is one step.")
    lines += _launch_notes(launches, tables)
    return text_table(
        title="steps",
        headings=("step", "time", *(("busy",) if busy else ())),
        rows=tuple(rows),
        sums=((f"median of {len(step_ns)}", *typical),) if len(step_ns) > 1 else (),
        numbers_from=1,
        lines=tuple(lines),
    )


def _launch_notes(launches: Launches, tables: Tables) -> Iterator[str]:
    """Yield sentences about launches whose kernels the trace does not have."""
    if launches.captured:
        launches_text = units.counted(launches.n_calls, "kernel launch", "kernel launches")
        yield (
            f"{units.count(launches.captured)} of {launches_text} ran while a graph was captured, "
            "which adds kernels to the graph and runs none."
        )
    if not launches.n_lost:
        return
    text = f"{launches.lost_of_all} in the trace"
    if tables.device is None:
        yield (
            f"{text}: no time of the accelerator is recorded. Its operations have the times of "
            "their launches, and no rates."
        )
        return
    steps = [
        f"{units.printable(name)}: {units.count(lost)} of {units.count(calls)}"
        for name, lost, calls in zip(tables.steps, launches.lost, launches.calls, strict=True)
        if lost
    ]
    whose = "its" if launches.n_lost == 1 else "their"
    if not tables.are_steps_marked or not steps:
        yield f"{text}; {whose} time is missing in the device times."
        return
    listed = ", ".join([*steps[:_NAMES], *(["..."] if len(steps) > _NAMES else [])])
    steps_text = "this step" if len(steps) == 1 else "these steps"
    yield (
        f"{text} ({listed}); {whose} time is missing in the device times of {steps_text}, and so "
        "in all means and medians."
    )


#: Rows of the table of accelerators: the times of a Timeline, by the names of its fields.
_TIMES = (
    "span",
    "busy",
    "computation",
    "communication",
    "exposed communication",
    "copies",
    "exposed copies",
    "idle",
    "starved",
)


def _timeline_table(timelines: Sequence[Timeline], impossible: Impossible) -> Table:
    def times(name: str) -> Iterator[str]:
        for timeline in timelines:
            ns = getattr(timeline, f"{name.replace(' ', '_')}_ns")
            yield units.duration(ns)
            yield units.percent(ns / timeline.span_ns) if timeline.span_ns else units.MISSING

    numbers = {
        "kernels": [timeline.kernels for timeline in timelines],
        "copies and fills": [timeline.copies for timeline in timelines],
        "launches": [timeline.launches for timeline in timelines],
    }
    lines = [
        (
            "Exposed: communication without computation beside it; copies without computation or "
            "communication beside them."
        ),
        "Starved: idle while no launched kernel was waiting.",
    ]
    if unlinked := sum(timeline.unlinked for timeline in timelines):
        ns = sum(timeline.unlinked_ns for timeline in timelines)
        lines.append(
            f"Kernels and copies without a launch in the trace: {units.count(unlinked)}, "
            f"{units.duration(ns)}. They may have been waiting in time that counts as starved."
        )
    lines += _impossible_on_device(impossible)
    names = [
        units.printable(f"{timeline.device} {timeline.name}".strip()) for timeline in timelines
    ]
    return text_table(
        title="accelerators, from the first to the last event",
        headings=("", *(head for name in names for head in (name, "of span"))),
        rows=[(name, *times(name)) for name in _TIMES],
        sums=[
            (name, *(cell for count in counts for cell in (units.count(count), "")))
            for name, counts in numbers.items()
        ],
        numbers_from=1,
        lines=tuple(lines),
    )


def _impossible_on_device(impossible: Impossible) -> Iterator[str]:
    if impossible.overlapping_kernels:
        number = units.count(impossible.overlapping_kernels)
        yield (
            f"Impossible: kernels that overlap the next kernel of their stream ({number}, by "
            f"{units.duration(impossible.overlapping_kernels_ns)} in all). A stream runs one "
            "kernel at a time, so their recorded times are too long. Here each of them ends "
            "where the next one begins; the other tables have the recorded times."
        )
    if impossible.past_wait:
        yield (
            "Impossible: kernels and copies that end after a call that waited for them "
            f"({units.count(impossible.past_wait)}, by up to "
            f"{units.duration(impossible.past_wait_ns)}). Their recorded times are too long or "
            "too late. Here they end where that call ends; the other tables have the recorded "
            "times."
        )
    if impossible.untimed:
        yield (
            "Impossible: kernels and copies that have a time of 0, last more than seven days or "
            f"begin long before their own launch ({units.count(impossible.untimed)}). They are "
            "left out of the times here and of the busy times of the steps."
        )
    if impossible.before_launch:
        number = units.count(impossible.before_launch)
        yield (
            f"Impossible: kernels and copies that begin before their own launch ({number}, by up "
            f"to {units.duration(impossible.before_launch_ns)}). The clocks of the host and of "
            "the accelerator differ, or these times are wrong."
        )


# ---- Operations and kernels ----------------------------------------------------------------------


#: Name of the row below all others.
_SUM = "sum"


def _time_columns(tables: Tables, ranges: Iterable[str]) -> tuple[Column[OperationSum], ...]:
    """Return the columns with times per step; CSV and JSON have those of all steps.

    ``ranges`` are the names of rows without a host time of their own.
    """
    steps = len(tables.steps)
    # None: not on a terminal.
    device, kernels = ("device", "kernels") if tables.device else (None, None)

    def time(ns: int) -> str:
        return units.duration(ns / steps)

    def count(number: float) -> str:
        return units.count(number / steps)

    def blank_in(
        value: Callable[[OperationSum], Any], *names: str
    ) -> Callable[[OperationSum], Any]:
        return lambda row: None if row.key[0] in names else value(row)

    def of_host(value: Callable[[OperationSum], Any], *names: str) -> Callable[[OperationSum], Any]:
        # Its time is in RUNTIME.
        return lambda row: None if is_runtime_call(row.key[0]) else blank_in(value, *names)(row)

    return (
        *NAMES,
        Column(
            "calls",
            blank_in(lambda row: round(row.calls), OUTSIDE, UNATTRIBUTED, _SUM),
            count,
            key="calls",
        ),
        Column(
            "host self",
            of_host(lambda row: row.self_cpu_ns, UNATTRIBUTED, *ranges),
            time,
            key="self_cpu_ns",
        ),
        Column(
            "host total",
            of_host(lambda row: row.total_cpu_ns, OUTSIDE, UNATTRIBUTED),
            time,
            key="total_cpu_ns",
        ),
        Column(
            device,
            blank_in(lambda row: row.self_device_ns, OUTSIDE, RUNTIME),
            time,
            key="self_device_ns",
        ),
        Column(kernels, blank_in(lambda row: row.kernels, OUTSIDE, RUNTIME), count, key="kernels"),
        Column(None, lambda row: row.memory_bytes, key="memory_bytes"),
    )


def _share_column(rows: Sequence[OperationSum], *, on_device: bool) -> Column[OperationSum]:
    whole = sum(row.self_ns for row in rows)
    without = (OUTSIDE, RUNTIME) if on_device else ()
    return Column(
        "share",
        lambda row: row.self_ns / whole if whole and row.key[0] not in without else None,
        units.percent,
    )


def _operation_table(trace: Analysis, rows: Sequence[OperationSum], top: int) -> Table:
    tables = trace.tables
    operations = [row for row in rows if row.key[0] not in NOT_OPERATIONS]
    rest = sorted((row for row in rows if row.key[0] in NOT_OPERATIONS), key=lambda row: row.key)
    if hidden := operations[top:]:
        rest.insert(0, total(hidden, f"other ({units.counted(len(hidden), 'operation')})"))
    return Table(
        f"operations, {_per_step(tables)}",
        (
            *_time_columns(tables, tables.ranges),
            _share_column(rows, on_device=tables.device is not None),
        ),
        operations[:top],
        (*rest, total(rows, _SUM)),
        tuple(_notes(trace)),
    )


def _per_step(tables: Tables) -> str:
    return f"mean of {len(tables.steps)} steps" if len(tables.steps) > 1 else "one step"


def _notes(trace: Analysis) -> Iterator[str]:
    tables = trace.tables
    impossible = trace.file.impossible
    parts = []
    for kind in ("phase", "module"):
        host = tables.unplaced[f"host_{kind}"]
        device = tables.unplaced[f"device_{kind}"]
        device_share = (
            "" if device is None else f" and of {units.percent(device)} of the device time"
        )
        parts.append(
            f"{kind} of {units.percent(host or 0.0)} of the operations' host time{device_share}"
        )
    yield f"Not recorded: {'; '.join(parts)}."
    if tables.ranges:
        yield (
            "Ranges with kernels of their own are rows; their host time outside operations is in "
            f"{OUTSIDE}."
        )
    unattributed = sum(kernel.count for kernel in trace.kernels if kernel.key[0] == UNATTRIBUTED)
    if unattributed:
        yield (
            f"{UNATTRIBUTED}: kernels and copies that the trace links to no operation; "
            f"{units.count(unattributed)} of them."
        )
    yield from _impossible_on_host(impossible)
    added_ns = sum(sum(row.self_cpu_ns) for row in tables.host.rows) - sum(tables.host.iteration_ns)
    concurrent_ns = added_ns - impossible.overlapping_calls_ns
    if concurrent_ns > 0:
        ways = [
            *(["on several threads"] if tables.other_threads_ns else []),
            *(["as communication in the background"] if tables.beside_ns else []),
        ]
        reason = (
            f"calls ran at the same time, {' and '.join(ways)}"
            if ways
            else "the trace has calls of one thread that overlap, or no numbers of threads"
        )
        yield (
            f"The host rows add up to {units.duration(concurrent_ns / len(tables.steps))} more "
            f"than a step: {reason}."
        )
    yield from _left_out_and_repaired(trace.file, tables)
    if not trace.costs.work and NOT_RECORDED in trace.costs.uncounted.values():
        yield (
            "FLOPs and bytes cannot be counted without shapes; torch.profiler records them with "
            "record_shapes=True."
        )


def _left_out_and_repaired(file: FileNotes, tables: Tables) -> Iterator[str]:
    if tables.outside_ns:
        yield (
            f"Left out of the host columns: {units.duration(tables.outside_ns)} of calls that "
            "began in no step."
        )
    if tables.outside_device_ns:
        yield (
            f"Left out of the device column: {units.duration(tables.outside_device_ns)} that no "
            "iteration launched."
        )
    if file.unfinished:
        yield (
            f"Left out: {units.counted(file.unfinished, 'event')} without an end; the profiler "
            "stopped before."
        )
    if file.untimed:
        yield (
            f"Left out: {units.counted(file.untimed, 'event')} without a time: the file has 0 for "
            "their start, or a duration of more than seven days. Times, calls and shares are those "
            "of the other events."
        )
    if file.left_out:
        counts = [
            f"{units.count(number)} of {units.printable(category)}"
            for category, number in file.left_out.items()
        ]
        yield f"Left out: events that mnistbench does not know, {', '.join(counts)}."
    if file.repairs:
        yield f"The file is not valid JSON and was repaired: {'; '.join(file.repairs)}."


def _impossible_on_host(impossible: Impossible) -> Iterator[str]:
    if impossible.past_step:
        yield (
            "Impossible: calls that end after the step in which they begin "
            f"({units.count(impossible.past_step)}, by {units.duration(impossible.past_step_ns)} "
            "in all), although one thread runs both. That time is left out."
        )
    if impossible.overlapping_calls:
        yield (
            "Impossible: calls that overlap another call of their thread "
            f"({units.count(impossible.overlapping_calls)}, by "
            f"{units.duration(impossible.overlapping_calls_ns)} in all), although a thread runs "
            "one call at a time. That time is in the rows of both."
        )


def _kernel_table(every: Sequence[Kernel], top: int) -> Table:
    groups: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for kernel in every:
        groups[kernel.name, kernel.key[0]].append(kernel)
    ordered = sorted(
        groups.items(), key=lambda item: (-sum(kernel.ns for kernel in item[1]), item[0])
    )
    whole = sum(kernel.ns for kernel in every)
    rows = [
        (
            units.cut(units.printable(name), _NAME_LENGTH),
            units.printable(operation),
            units.count(sum(kernel.count for kernel in kernels)),
            units.duration(ns := sum(kernel.ns for kernel in kernels)),
            units.percent(ns / whole) if whole else units.MISSING,
            *(
                (
                    units.duration(ns / timed),
                    units.duration(min(kernel.least_ns for kernel in kernels if kernel.timed)),
                    units.duration(max(kernel.most_ns for kernel in kernels)),
                )
                if (timed := sum(kernel.timed for kernel in kernels))
                else (units.MISSING,) * 3
            ),
        )
        for (name, operation), kernels in ordered[:top]
    ]
    rest = [kernel for _, kernels in ordered[top:] for kernel in kernels]
    other_row = (
        f"other ({len(ordered) - top})",
        "",
        units.count(sum(kernel.count for kernel in rest)),
        units.duration(rest_ns := sum(kernel.ns for kernel in rest)),
        units.percent(rest_ns / whole) if whole else units.MISSING,
        "",
        "",
        "",
    )
    return text_table(
        title="kernels, copies and fills, all steps",
        headings=("kernel", "operation", "count", "time", "share", "mean", "least", "most"),
        rows=tuple(rows),
        sums=(other_row,) if rest else (),
        numbers_from=2,
    )


# ---- Ranks ---------------------------------------------------------------------------------------


def listed_numbers(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as text: ``1, 3, 5 to 1023``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def _ranks_table(run: RanksRun) -> Table:
    slowest = run.slowest
    lines = [
        (
            "Outside collectives: elapsed time in which no communication between ranks ran. The "
            "slowest rank has the most."
        )
    ]
    if len({len(rank.tables.steps) for rank in run.ranks}) > 1:
        lines.append(
            "The ranks recorded different numbers of steps, so their elapsed times are not of the "
            "same work."
        )
    lines += [
        (
            f"Rank {rank.file.rank}: {rank.launches.lost_of_all} in the trace, so its times on the "
            "accelerator are too short."
        )
        for rank in run.ranks
        if rank.launches.n_lost
    ]
    if run.merged:
        lines.append(
            f"Left out: {', '.join(map(units.printable, run.merged))}: several ranks are merged "
            "into one file."
        )
    if run.without_rank:
        lines.append(
            f"Left out: {', '.join(map(units.printable, run.without_rank))}: no rank and no "
            "accelerator, as of a process that prepares or distributes work."
        )
    if run.missing:
        lines.append(f"Without a file: rank {listed_numbers(run.missing)}.")
    if run.other_files:
        names = ", ".join(units.printable(name) for name in run.other_files[:_NAMES])
        more = f" and {len(run.other_files) - _NAMES} more" if len(run.other_files) > _NAMES else ""
        them = "it" if len(run.other_files) == 1 else "them"
        lines.append(f"Left out, because nothing of PyTorch is in {them}: {names}{more}.")
    return text_table(
        title=units.printable(f"{run.folder}: {units.counted(len(run.ranks), 'rank')}"),
        headings=(
            "rank",
            "steps",
            "step",
            "busy",
            "elapsed",
            "collectives",
            "outside collectives",
            "file",
            "note",
        ),
        rows=tuple(
            (
                str(rank.file.rank),
                units.count(len(rank.tables.steps)),
                units.duration(median_ns(rank.tables.host.iteration_ns)),
                units.duration(median_ns(rank.tables.device.busy_ns))
                if rank.tables.device
                else units.MISSING,
                *map(
                    units.duration,
                    (
                        rank.timeline.elapsed_ns,
                        rank.timeline.collectives_ns,
                        rank.timeline.outside_collectives_ns,
                    ),
                ),
                units.printable(Path(rank.file.source).name),
                "slowest" if rank is slowest and len(run.ranks) > 1 else "",
            )
            for rank in run.ranks
        ),
        sums=(),
        numbers_from=0,
        lines=tuple(lines),
        words_after=2,
    )


def _spread_table(run: RanksRun, top: int, by: str) -> Table:
    summed_ranks = [(rank, summed(rank.tables.shown, by, of_all=True)) for rank in run.ranks]
    times_of_ranks = [
        {key: row.self_ns / len(rank.tables.steps) for key, row in rows.items()}
        for rank, rows in summed_ranks
    ]
    times = {
        key: [rows.get(key, 0.0) for rows in times_of_ranks]
        for key in {key for rows in times_of_ranks for key in rows}
    }
    keys = sorted(times, key=lambda key: (-max(times[key]), key))
    clock = "device" if any(rank.tables.device for rank in run.ranks) else "host self"
    rest = len(keys) - top

    def spread(ns: Sequence[float]) -> tuple[str, ...]:
        least = min(ns)
        most = max(ns)
        ratio = units.factor(most / least) if least else units.MISSING
        return (
            *map(units.duration, (statistics.median(ns), least, most)),
            ratio,
            str(run.ranks[ns.index(most)].file.rank),
        )

    return text_table(
        title=f"{clock} time per step over the ranks",
        headings=(
            "operation",
            "phase",
            "module",
            "median",
            "least",
            "most",
            "most / least",
            "rank with the most",
        ),
        rows=tuple(
            (*map(units.printable, operation_cells(*key)), *spread(times[key]))
            for key in keys[:top]
        ),
        numbers_from=3,
        lines=(f"{rest} smaller row{'s are' if rest > 1 else ' is'} not shown.",)
        if rest > 0
        else (),
    )


# ---- Work ----------------------------------------------------------------------------------------


def _work_notes(
    trace: Analysis, rows: Sequence[OperationSum], peaks: Peaks, by: str
) -> Iterator[str]:
    """Yield sentences about the peaks, and about the time that has no place on the roofline."""
    yield _peaks_note(trace.timeline.machine, trace.costs, peaks)
    whole = sum(row.self_ns for row in rows)
    rest: dict[str, list[OperationSum]] = defaultdict(list)
    for row in rows:
        if row.cost is None:
            reason = row.uncounted or (
                "time outside operations" if row.key[0] in NOT_OPERATIONS else NOT_RECORDED
            )
            rest[reason].append(row)
        elif not peaks.missing and not row.ceilings:
            rest[_NO_PEAK].append(row)
    if not whole:
        return
    placed = whole - sum(row.self_ns for unplaced in rest.values() for row in unplaced)
    share = (
        f"{units.percent(placed / whole)} of the {'device' if trace.tables.device else 'host'} time"
    )
    text = (
        f"With them, {share} would have a place."
        if peaks.missing
        else f"{share} has a place on the roofline."
    )
    if reasons := list(_reasons(rest, whole)):
        text += f" The rest: {'; '.join(reasons)}."
    yield text
    if names := sorted(
        {shortened(key[0]) for key, work in trace.costs.work.items() if work.is_bound}
    ):
        yield (
            f"FLOPs of {', '.join(names)} are upper bounds: they include those that a causal mask "
            "leaves out."
        )
    if by != "op,module" and rest:
        yield "A sum over operations has a place only if each of them has one."


def _reasons(rest: Mapping[str, list[OperationSum]], whole: int) -> Iterator[str]:
    """Yield each reason with its share of the time and the longest operations, by share."""
    shares = {reason: sum(row.self_ns for row in rows) / whole for reason, rows in rest.items()}
    for reason, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share < _MIN_SHARE:
            continue
        times: dict[str, int] = defaultdict(int)
        for row in rest[reason]:
            if row.key[0] not in NOT_OPERATIONS:
                times[shortened(row.key[0])] += row.self_ns
        names = [name for name in sorted(times, key=lambda name: -times[name]) if times[name]]
        listed = ", ".join([*names[:_NAMES], *(["..."] if len(names) > _NAMES else [])])
        yield f"{units.percent(share)} {reason}{f' ({listed})' if listed else ''}"


def _peaks_note(machine: Iterable[tuple[str, int]], costs: Costs, peaks: Peaks) -> str:
    """Return a sentence with the peaks that are used, or what is missing."""
    if peaks.missing:
        names = list(
            dict.fromkeys(f"a device {name!r}" if name else UNNAMED for name, _ in machine)
        )
        of = " or ".join(names) or "the processor"
        options = " and ".join(peaks.missing)
        return (
            f"No operation has a place on the roofline, because the peaks of {of} are not known: "
            f"give {options}."
        )
    bandwidth = units.bytes_per_s(peaks.bytes_per_s or 0)
    if peaks.flops_per_s_of_all:
        return (
            f"Peaks: {units.flops_per_s(peaks.flops_per_s_of_all)} for every number format, "
            f"{bandwidth} ({peaks.source})."
        )
    used = sorted({dtype for work in costs.work.values() for dtype in work.flops})
    rates = [f"{units.flops_per_s(rate)} ({dtype})" for dtype in used if (rate := peaks.of(dtype))]
    tf32 = (
        " Products of float32 count as TF32 where the name of a kernel contains it."
        if "tf32" in used
        else ""
    )
    return f"Peaks: {', '.join([*rates, bandwidth])} ({peaks.source}).{tf32}"
