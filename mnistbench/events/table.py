"""Linked and placed events -> the operation table of a profiled case.

Its rows are operations, and the rest of the time by what it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from mnistbench.core.operation import (
    BYTES,
    CALLS,
    NO_MODULE,
    OUTSIDE,
    RUNTIME,
    UNATTRIBUTED,
    OpKey,
    covered,
    is_communication,
)
from mnistbench.core.record import OpRow, OpTable, View, median_ns
from mnistbench.events import model
from mnistbench.events.linking.compiled import name_of_device_event
from mnistbench.events.model import DeviceEvent, MemoryRecord, Steps, ThreadEvent, Trace


@dataclass
class RowSums:
    """What is summed into a row of a table, one slot per iteration. Times are nanoseconds."""

    slots: int
    calls: list[int] = field(default_factory=list)
    self_cpu: list[int] = field(default_factory=list)
    total_cpu: list[int] = field(default_factory=list)
    self_device: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for times in (self.self_cpu, self.total_cpu, self.self_device):
            times.extend([0] * self.slots)
        self.calls.extend([0] * self.slots)
        self.memory.extend([0] * self.slots)

    def op_row(self, key: OpKey, view: str) -> OpRow:
        """Return the row of a table of the view ``host``, ``device`` or ``functions``."""

        def possible(times: list[int]) -> tuple[int, ...]:
            # Where calls of a thread overlap, a self time can be below 0.
            return tuple(max(0, ns) for ns in times)

        name, phase, module = key
        on_device = view == "device"
        columns = ((CALLS, self.calls), (BYTES, self.memory))
        return OpRow(
            name=name,
            phase=phase,
            module=module,
            calls=sum(self.calls) / self.slots,
            self_cpu_ns=possible(self.self_cpu),
            total_cpu_ns=possible(self.total_cpu),
            self_device_ns=possible(self.self_device) if on_device else (),
            memory_bytes=median_ns(self.memory),
            shapes=tuple(sorted(self.shapes)),
            kernels=tuple(sorted(self.kernels)) if on_device else (),
            sources=tuple(sorted(self.sources)),
            varying=tuple(name for name, column in columns if len(set(column)) > 1),
        )


class HostAndDevice(NamedTuple):
    """The two tables of a trace."""

    host: OpTable
    device: OpTable | None  # None: no accelerator was recorded
    # Of each row, allocated minus freed in all steps; a table has the median of a step.
    memory_bytes: Mapping[OpKey, int]


def host_and_device(
    trace: Trace, steps: Steps, *, has_device: bool, memory_of_host: bool
) -> HostAndDevice:
    """Return the host table and, with ``has_device``, the device table.

    The self host times of the host table add up to the steps, as those of a profiled case do, and
    the runtime has a row of its own. The device times of the device table add up to all kernels,
    copies and fills of the steps. A range with kernels has a row in the device table only: its host
    time outside operations is in the row OUTSIDE of its phase. The memory of both is that of the
    host or of the accelerators.
    """
    memory = _Allocations(record for record in trace.memory if record.of_host == memory_of_host)
    rows: dict[OpKey, RowSums] = defaultdict(lambda: RowSums(len(steps.names)))
    _add_host(rows, trace, steps, memory)
    kernel_rows = _kernels_alone(trace) - rows.keys() | {(UNATTRIBUTED, "", NO_MODULE)}
    device_rows = _ranges_alone(trace, rows) | kernel_rows
    _add_device(rows, trace, steps, kernel_rows, device_rows)
    host = _table(
        "host", {key: row for key, row in rows.items() if key not in device_rows}, steps, ()
    )
    device = _table("device", rows, steps, _busy_ns(trace, steps)) if has_device else None
    return HostAndDevice(
        host, device, memory_bytes={key: sum(row.memory) for key, row in rows.items()}
    )


def key_of(event: DeviceEvent) -> OpKey:
    """Return the row of a device event.

    That is its operation; outside of all operations the launch of a graph, or the range; else
    UNATTRIBUTED.
    """
    if event.operation is not None:
        name = name_of_device_event(event)
        return (name, *event.operation.scope) if name else event.operation.key
    if event.launch is not None and event.launch.launches_graph:
        return event.launch.key
    if event.range is not None:
        return event.range.key
    return (UNATTRIBUTED, "", NO_MODULE)


def _table(
    view: View, sums: Mapping[OpKey, RowSums], steps: Steps, busy_ns: tuple[int, ...]
) -> OpTable:
    rows = tuple(row.op_row(key, view) for key, row in sums.items())
    return OpTable("warm", view, steps.ns, rows, busy_ns=busy_ns)


def _ranges_alone(trace: Trace, host_rows: Container[OpKey]) -> set[OpKey]:
    """Return the rows of ranges with kernels that are no rows of the host table."""
    ranges = {
        id(event.range): event.range for event in trace.device if event.range is not None
    }.values()
    return {key for range_ in ranges if (key := range_.key) not in host_rows}


def _kernels_alone(trace: Trace) -> set[OpKey]:
    """Return the rows of kernels that compiled code launches, which have no event on the host."""
    return {key_of(event) for event in trace.device if name_of_device_event(event)}


def _add_device(
    rows: dict[OpKey, RowSums],
    trace: Trace,
    steps: Steps,
    kernel_rows: Container[OpKey],
    device_rows: Container[OpKey],
) -> None:
    """Add the device events to the rows.

    Launches of graphs outside operations, and the rows ``device_rows``, have no calls of the host:
    they are counted here. A call of one of ``kernel_rows``, which are among them, is a kernel.
    """
    counted: set[int] = set()  # ids of ranges and launches of graphs
    for launched in trace.device:
        slot = steps.slot_of_device(launched)
        if slot < 0:
            continue
        key = key_of(launched)
        row = rows[key]
        row.self_device[slot] += launched.ns
        row.kernels.add(launched.name)
        if key in kernel_rows:
            row.calls[slot] += 1
            continue
        launches_graph = launched.launch is not None and launched.launch.launches_graph
        counted_event = launched.launch if launches_graph else launched.range
        if launched.operation is not None or counted_event is None or id(counted_event) in counted:
            continue
        if launches_graph:
            counted.add(id(counted_event))
            row.calls[slot] += 1
        elif key in device_rows:
            row.calls[slot] += id(counted_event.whole) not in counted
            counted |= {id(counted_event), id(counted_event.whole)}
            row.total_cpu[slot] += counted_event.ns


def _add_host(rows: dict[OpKey, RowSums], trace: Trace, steps: Steps, memory: _Allocations) -> None:
    elsewhere: dict[tuple[str, int], int] = defaultdict(int)  # phase of the waiting thread, step
    ranges: list[ThreadEvent] = []  # of the thread of the steps, around the event
    for event in trace.host:
        while ranges and ranges[-1].end <= event.start:
            ranges.pop()
        if event.kind == model.RANGE and event.thread == steps.thread:
            ranges.append(event)
        slot = steps.slot_of(event.start)
        if event.kind == model.PYTHON or event.replaced_by is not None or slot < 0:
            continue
        is_range = event.kind == model.RANGE and not is_communication(event.name)
        runtime_or_key = (RUNTIME, "", NO_MODULE) if event.kind == model.RUNTIME else event.key
        row = rows[(OUTSIDE, event.scope.phase, NO_MODULE) if is_range else runtime_or_key]
        row.self_cpu[slot] += event.self_ns
        if event.kind != model.RUNTIME and not event.is_beside:
            _add_memory(rows, row, slot, event, memory, is_range=is_range)
        if event.thread != steps.thread and not event.is_beside:
            elsewhere[ranges[-1].scope.phase if ranges else "", slot] += event.self_ns
        if is_range:
            row.total_cpu[slot] += event.self_ns
            continue
        row.calls[slot] += 1
        row.total_cpu[slot] += event.ns
        if shapes := event.args.get(model.SHAPES):
            row.shapes.add(str(shapes))
    if trace.host and not steps.are_marked:
        thread_events = [
            event
            for event in trace.host
            if event.thread == steps.thread and event.kind != model.PYTHON
        ]
        called_ns = sum(
            event.ns for event in thread_events if event.caller is None and not event.is_beside
        )
        outside = rows[OUTSIDE, "", NO_MODULE]
        outside.self_cpu[0] += steps.ns[0] - called_ns
        outside.total_cpu[0] = outside.self_cpu[0]
    subtract_waiting(rows, elsewhere)


def subtract_waiting(
    rows: MutableMapping[OpKey, RowSums], elsewhere: Mapping[tuple[str, int], int]
) -> None:
    """Subtract what other threads ran from the time outside operations.

    The thread of the iterations waits for them.

    ``elsewhere`` maps (phase of the waiting thread, iteration) to the self time on other threads.
    """
    for (phase, slot), waited in elsewhere.items():
        outside = rows.get((OUTSIDE, phase, NO_MODULE))
        if outside is not None:
            left_ns = max(0, outside.self_cpu[slot] - waited)
            outside.self_cpu[slot] = left_ns
            outside.total_cpu[slot] = left_ns


def _add_memory(
    rows: dict[OpKey, RowSums],
    row: RowSums,
    slot: int,
    event: ThreadEvent,
    memory: _Allocations,
    *,
    is_range: bool,
) -> None:
    """Add the memory of an event to its row, and subtract it from the operation that called it."""
    n_bytes = memory.within(event)
    if not n_bytes:
        return
    if not is_range:
        row.memory[slot] += n_bytes
    if event.caller is not None and event.caller.kind == model.OPERATION:
        rows[event.caller.key].memory[slot] -= n_bytes


def _busy_ns(trace: Trace, steps: Steps) -> tuple[int, ...]:
    """Return the time in which the accelerator ran what each step launched."""
    spans: list[list[tuple[int, int]]] = [[] for _ in steps.names]
    for event in trace.device:
        slot = steps.slot_of_device(event)
        if slot >= 0 and event.is_timed:
            spans[slot].append((event.start, event.ran_until))
    return tuple(covered(step_spans) for step_spans in spans)


class _Allocations:
    """Memory that was allocated and freed in an event."""

    def __init__(self, records: Iterable[MemoryRecord]) -> None:
        ordered = list(records)
        self._starts = [record.ns for record in ordered]
        self._sums = [0, *accumulate(record.n_bytes for record in ordered)]

    def within(self, event: ThreadEvent) -> int:
        """Return the bytes allocated minus freed while the event ran."""
        if not self._starts:
            return 0
        return (
            self._sums[bisect_right(self._starts, event.end)]
            - self._sums[bisect_left(self._starts, event.start)]
        )
