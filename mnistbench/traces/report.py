"""Traces of torch.profiler -> tables."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core import units
from mnistbench.core.operation import OpKey, operation_cells
from mnistbench.core.record import NOT_OPERATIONS, OUTSIDE, RUNTIME, UNATTRIBUTED, median_ns
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table
from mnistbench.traces.analysis import Analysis, Kernel
from mnistbench.traces.ranks import RanksRun
from mnistbench.traces.rows import Row, rows_of, summed
from mnistbench.traces.timeline import Timeline

#: Characters of a kernel's name in a table; JSON has the whole name.
_NAME_LENGTH = 70


@dataclass(frozen=True)
class Shown:
    """What the tables show."""

    top: int
    by: str  # op, module or op,module


def blocks(trace: Analysis, shown: Shown) -> list[Block]:
    """Return the report of one trace."""
    found = [Block(_title(trace), lines=tuple(_head(trace)), tables=(_step_table(trace, shown),))]
    if trace.timelines:
        found.append(Block("", tables=(_timeline_table(trace.timelines),)))
    found.append(Block("", tables=(_operation_table(trace, shown),)))
    if trace.kernels:
        found.append(Block("", tables=(_kernel_table(trace, shown),)))
    return found


def _title(trace: Analysis) -> str:
    return units.printable(Path(trace.source).name)


def _head(trace: Analysis) -> Iterator[str]:
    """Yield the machine and the rank."""
    names = [
        f"{name} ({units.size(memory)})" if memory else name or "an accelerator without a name"
        for name, memory in trace.machine
    ]
    versions = [f"{name.replace('_version', '').replace('_', ' ')} {value}" for name, value in trace.versions.items()]
    rank = [] if trace.rank is None else [f"rank {trace.rank}{f' of {trace.ranks}' if trace.ranks else ''}"]
    yield units.printable(", ".join([*(names or ["host only"]), *versions, *rank]))


# ---- Steps and accelerators ------------------------------------------------------------------------------------------


def _step_table(trace: Analysis, shown: Shown) -> Table:
    step_ns, busy = trace.host.iteration_ns, trace.device.busy_ns if trace.device else ()
    longest = sorted(range(len(step_ns)), key=lambda slot: -step_ns[slot])[: shown.top]
    rows = [
        (units.printable(trace.steps[slot]), *(units.microseconds(times[slot]) for times in (step_ns, busy) if times))
        for slot in sorted(longest)
    ]
    typical = [units.microseconds(median_ns(times)) for times in (step_ns, busy) if times]
    return text_table(
        title="steps",
        headings=("step", "us", *(("busy us",) if busy else ())),
        rows=tuple(rows),
        sums=((f"median of {len(step_ns)}", *typical),) if len(step_ns) > 1 else (),
        numbers_from=1,
        lines=tuple(_step_notes(trace, len(step_ns) - len(rows))),
    )


def _step_notes(trace: Analysis, left_out: int) -> Iterator[str]:
    if left_out:
        yield f"{units.count(left_out)} shorter step{'s are' if left_out > 1 else ' is'} not shown."
    if trace.device:
        yield "Busy: time in which the accelerator ran what the step launched."
    if len(trace.steps) > 1 and any(each.unlinked for each in trace.timelines):
        yield "Kernels and copies without a launch count to the step in which they ran, the earliest to the first step."
    if not trace.are_steps_marked:
        yield "No operation ran in a ProfilerStep, so the whole trace is one step."


#: Name of a row of the table of accelerators -> its time.
_TIMES: dict[str, Callable[[Timeline], int]] = {
    "span": lambda each: each.span_ns,
    "busy": lambda each: each.busy_ns,
    "computation": lambda each: each.computation_ns,
    "communication": lambda each: each.communication_ns,
    "exposed communication": lambda each: each.exposed_communication_ns,
    "copies": lambda each: each.copies_ns,
    "exposed copies": lambda each: each.exposed_copies_ns,
    "idle": lambda each: each.idle_ns,
    "starved": lambda each: each.starved_ns,
}

#: The same for numbers of events.
_COUNTS: dict[str, Callable[[Timeline], int]] = {
    "kernels": lambda each: each.kernels,
    "copies and fills": lambda each: each.copies,
    "launches": lambda each: each.launches,
}


def _timeline_table(timelines: Sequence[Timeline]) -> Table:
    def times(of: Callable[[Timeline], int]) -> Iterator[str]:
        for each in timelines:
            yield units.microseconds(of(each))
            yield units.percent(of(each) / each.span_ns) if each.span_ns else units.MISSING

    def counts(of: Callable[[Timeline], int]) -> Iterator[str]:
        for each in timelines:
            yield from (units.count(of(each)), "")

    names = [units.printable(f"{each.device} {each.name}".strip()) for each in timelines]
    return text_table(
        title="accelerators, from the first to the last event",
        headings=("", *(head for name in names for head in (f"{name} us", "of span"))),
        rows=tuple((name, *times(of)) for name, of in _TIMES.items()),
        sums=tuple((name, *counts(of)) for name, of in _COUNTS.items()),
        numbers_from=1,
        lines=tuple(_timeline_notes(timelines)),
    )


def _timeline_notes(timelines: Sequence[Timeline]) -> Iterator[str]:
    yield "Exposed: communication without computation beside it; copies without computation or communication beside them."
    yield "Starved: idle while no launched kernel was waiting."
    if unlinked := sum(each.unlinked for each in timelines):
        ns = sum(each.unlinked_ns for each in timelines)
        yield (
            f"{units.count(unlinked)} kernels and copies ({units.microseconds(ns)} us) have no launch in the trace; "
            "they may have been waiting in time that counts as starved."
        )


# ---- Operations and kernels ------------------------------------------------------------------------------------------


def _operation_table(trace: Analysis, shown: Shown) -> Table:
    rows = rows_of(trace, shown.by)
    operations = [row for row in rows if row.key[0] not in NOT_OPERATIONS]
    rest = sorted((row for row in rows if row.key[0] in NOT_OPERATIONS), key=lambda row: row.key)
    others, whole = operations[shown.top :], summed(rows)
    sums = [(*operation_cells(*row.key), *_cells(row, whole, trace)) for row in rest]
    if others:
        other = f"other ({len(others)} operation{'s' if len(others) > 1 else ''})"
        sums.insert(0, (other, "", "", *_cells(summed(others), whole, trace)))
    per = f"mean of {len(trace.steps)} steps" if len(trace.steps) > 1 else "one step"
    return text_table(
        title=f"operations, {per}",
        headings=("operation", "phase", "module", "calls", "host self us", "host total us",
                 *(("device us", "share", "kernels") if trace.device else ("share",))),
        rows=tuple(
            (*map(units.printable, operation_cells(*row.key)), *_cells(row, whole, trace)) for row in operations[: shown.top]
        ),
        sums=(*sums, ("sum", "", "", *_cells(whole, whole, trace))),
        numbers_from=3,
        lines=tuple(_notes(trace)),
    )  # fmt: skip


def _cells(row: Row, whole: Row, trace: Analysis) -> tuple[str, ...]:
    """Return the numbers of a row per step. Totals contain each other, so a sum of rows has none."""
    name, _, _ = row.key
    is_sum, launched, counted = not name, name not in (OUTSIDE, RUNTIME), name not in (OUTSIDE, UNATTRIBUTED)
    steps = len(trace.steps)

    def us(ns: float, *, known: bool) -> str:
        return units.microseconds(ns / steps) if known else units.MISSING

    share = units.percent(row.size / whole.size) if whole.size else units.MISSING
    cells = (
        units.count(row.calls / steps) if counted and row is not whole else units.MISSING,
        us(row.host_self_ns, known=name != UNATTRIBUTED),
        us(row.host_total_ns, known=counted and not is_sum),
    )
    if row.device_ns is None:
        return (*cells, share)
    kernels = units.count(row.kernels / steps) if launched else units.MISSING
    return (*cells, us(row.device_ns, known=launched), share if launched else units.MISSING, kernels)


def _notes(trace: Analysis) -> Iterator[str]:
    unplaced = trace.unplaced
    shares = [("phase", unplaced.host_phase, unplaced.device_phase), ("module", unplaced.host_module, unplaced.device_module)]
    yield (
        "Not recorded: "
        + "; ".join(
            f"{what} of {units.percent(host)} of the operations' host time"
            + ("" if device is None else f" and of {units.percent(device)} of the device time")
            for what, host, device in shares
        )
        + "."
    )
    unattributed = sum(kernel.count for kernel in trace.kernels if kernel.key[0] == UNATTRIBUTED)
    if unattributed:
        yield f"{UNATTRIBUTED}: {units.count(unattributed)} kernels and copies that the trace links to no operation."
    concurrent_ns = sum(sum(row.self_cpu_ns) for row in trace.host.rows) - sum(trace.host.iteration_ns)
    if concurrent_ns > 0:
        yield (
            f"The host rows add up to {units.microseconds(concurrent_ns / len(trace.steps))} us more than a step: "
            "calls ran at the same time, on several threads or as communication in the background."
        )
    if trace.outside_ns:
        yield f"Left out of the host columns: {units.microseconds(trace.outside_ns)} us of calls that began in no step."
    if trace.outside_device_ns:
        yield f"Left out of the device column: {units.microseconds(trace.outside_device_ns)} us that no iteration launched."
    if trace.unfinished:
        yield f"Left out: {units.count(trace.unfinished)} events without an end; the profiler stopped before."


def _kernel_table(trace: Analysis, shown: Shown) -> Table:
    found: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for kernel in trace.kernels:
        found[kernel.name, kernel.key[0]].append(kernel)
    ordered = sorted(found.items(), key=lambda item: (-sum(kernel.ns for kernel in item[1]), item[0]))
    whole = sum(kernel.ns for kernel in trace.kernels)
    rows = [
        (
            units.cut(units.printable(name), _NAME_LENGTH), units.printable(operation),
            units.count(count := sum(each.count for each in kernels)),
            units.microseconds(ns := sum(each.ns for each in kernels)), units.percent(ns / whole) if whole else units.MISSING,
            units.microseconds(ns / count), units.microseconds(min(each.least_ns for each in kernels)),
            units.microseconds(max(each.most_ns for each in kernels)),
        )
        for (name, operation), kernels in ordered[: shown.top]
    ]  # fmt: skip
    rest = [kernel for _, kernels in ordered[shown.top :] for kernel in kernels]
    other = (f"other ({len(ordered) - shown.top})", "", units.count(sum(each.count for each in rest)),
             units.microseconds(rest_ns := sum(each.ns for each in rest)),
             units.percent(rest_ns / whole) if whole else units.MISSING, "", "", "")  # fmt: skip
    return text_table(
        title="kernels, copies and fills, all steps",
        headings=("kernel", "operation", "count", "us", "share", "mean us", "least us", "most us"),
        rows=tuple(rows),
        sums=(other,) if rest else (),
        numbers_from=2,
    )


# ---- Ranks -----------------------------------------------------------------------------------------------------------


def ranks_blocks(run: RanksRun, shown: Shown) -> list[Block]:
    """Return the report of a distributed run: its ranks, and the spread of each operation over them."""
    return [
        Block("", tables=(_ranks_table(run),)),
        Block("", tables=(_spread_table(run, shown),)),
    ]


def _ranks_table(run: RanksRun) -> Table:
    slowest = run.slowest
    lines = ["Outside collectives: elapsed time in which no communication between ranks ran. The slowest rank has the most."]
    if len({len(rank.steps) for rank in run.ranks}) > 1:
        lines.append("The ranks recorded different numbers of steps, so their elapsed times are not of the same work.")
    if run.missing:
        lines.append(f"Without a file: rank {', '.join(map(str, run.missing))}.")
    return text_table(
        title=units.printable(f"{run.folder}: {len(run.ranks)} rank{'s' if len(run.ranks) > 1 else ''}, us"),
        headings=("rank", "steps", "step", "busy", "elapsed", "collectives", "outside collectives", "file", "note"),
        rows=tuple(
            (
                str(rank.rank), units.count(len(rank.steps)), units.microseconds(median_ns(rank.host.iteration_ns)),
                units.microseconds(median_ns(rank.device.busy_ns)) if rank.device else units.MISSING,
                *map(units.microseconds, (rank.elapsed_ns, rank.collectives_ns, rank.outside_collectives_ns)),
                _title(rank), "slowest" if rank is slowest and len(run.ranks) > 1 else "",
            )
            for rank in run.ranks
        ),
        sums=(),
        numbers_from=0,
        lines=tuple(lines),
        words_after=2,
    )  # fmt: skip


def _spread_table(run: RanksRun, shown: Shown) -> Table:
    of_rank = [{row.key: row.size / len(rank.steps) for row in rows_of(rank, shown.by)} for rank in run.ranks]
    keys = sorted(
        {key for rows in of_rank for key in rows}, key=lambda key: (-max(rows.get(key, 0.0) for rows in of_rank), key)
    )
    clock = "device" if any(rank.device for rank in run.ranks) else "host self"
    rest = len(keys) - shown.top
    return text_table(
        title=f"{clock} time per step over the ranks, us",
        headings=("operation", "phase", "module", "median", "least", "most", "most / least", "rank with the most"),
        rows=tuple(_spread_cells(run, key, [rows.get(key, 0.0) for rows in of_rank]) for key in keys[: shown.top]),
        sums=(),
        numbers_from=3,
        lines=(f"{rest} smaller row{'s are' if rest > 1 else ' is'} not shown.",) if rest > 0 else (),
    )


def _spread_cells(run: RanksRun, key: OpKey, times: Sequence[float]) -> tuple[str, ...]:
    least, most = min(times), max(times)
    return (
        *map(units.printable, operation_cells(*key)),
        *map(units.microseconds, (statistics.median(times), least, most)),
        units.factor(most / least) if least else units.MISSING,
        str(run.ranks[times.index(most)].rank),
    )
