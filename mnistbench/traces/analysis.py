"""A file -> what it contains: operation tables, kernels, timelines of the accelerators, and how much has no place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import OpKey, covered, is_communication
from mnistbench.core.record import OpRow, OpTable
from mnistbench.traces.calls import link_calls
from mnistbench.traces.events import PYTHON, RANGE, DeviceEvent, Trace
from mnistbench.traces.links import link_kernels
from mnistbench.traces.places import place
from mnistbench.traces.reader import read
from mnistbench.traces.steps import Steps, steps_of
from mnistbench.traces.table import key_of, tables
from mnistbench.traces.timeline import Timeline, timelines


@dataclass(frozen=True)
class Kernel:
    """All runs of one kernel, copy or fill for one operation. Times are nanoseconds."""

    key: OpKey  # of its row in the device table
    name: str
    kind: str  # kernel, copy or fill
    count: int
    ns: int  # sum
    least_ns: int
    most_ns: int


@dataclass(frozen=True)
class Unplaced:
    """Shares of the time whose phase or module is not recorded, from 0 to 1."""

    host_phase: float  # of the host self time of all operations
    host_module: float
    device_phase: float | None  # of the time of all kernels, copies and fills; None without any
    device_module: float | None


@dataclass(frozen=True)
class Analysis:
    """A trace. Each table has a sample per step."""

    source: str  # the file
    steps: tuple[str, ...]  # names
    are_steps_marked: bool  # False: the only step is the whole trace
    host: OpTable
    device: OpTable | None  # None: no accelerator was recorded
    kernels: tuple[Kernel, ...]  # the longest first
    timelines: tuple[Timeline, ...]  # of each accelerator that ran something
    unplaced: Unplaced
    machine: tuple[tuple[str, int], ...]  # name and bytes of memory of these accelerators
    versions: Mapping[str, str]  # of CUDA or HIP, its driver and its profiling library
    rank: int | None  # None: the run was not distributed
    ranks: int | None
    unfinished: int  # events without an end, which are left out
    outside_ns: int  # host self time of operations and runtime calls that started in no step, which is left out
    outside_device_ns: int  # device time that was launched in no step, if that is left out
    elapsed_ns: int  # from the first to the last event of the accelerator; without one, the sum of the steps
    collectives_ns: int  # of that, time in which communication between ranks ran

    @property
    def table(self) -> OpTable:
        """The device table, or the host table without an accelerator."""
        return self.device or self.host

    @property
    def outside_collectives_ns(self) -> int:
        """Elapsed time without the time in communication between ranks."""
        return self.elapsed_ns - self.collectives_ns

    def kernel_counts(self) -> dict[OpKey, int]:
        """Return the number of kernels, copies and fills of each row of the device table, in all steps."""
        counts: dict[OpKey, int] = defaultdict(int)
        for kernel in self.kernels:
            counts[kernel.key] += kernel.count
        return dict(counts)


def analyse(path: Path) -> Analysis:
    """Read a trace and gather its operations.

    Raises:
        RecordError: the file is no trace, or damaged.
    """
    with gc_paused():
        trace = linked(path)
        return analysis_of(trace, steps_of(trace))


def linked(path: Path) -> Trace:
    """Read a trace, and set the callers and the places of its events and the operations of its kernels.

    Raises:
        RecordError: the file is no trace, or damaged.
    """
    trace = read(path)
    link_calls(trace)
    link_kernels(trace)
    place(trace)
    return trace


def analysis_of(trace: Trace, steps: Steps) -> Analysis:
    """Gather the operations of a trace that :func:`linked` returned."""
    host, device = tables(trace, steps)
    launched = [event for event in trace.device if steps.slot_of_device(event) >= 0]
    ran = timelines(trace)
    memory = {device.name: device.memory_bytes for device in trace.devices}
    return Analysis(
        source=trace.source,
        steps=steps.names,
        are_steps_marked=steps.are_marked,
        host=host,
        device=device,
        kernels=_kernels(launched),
        timelines=ran,
        unplaced=_unplaced(host, device),
        machine=tuple((each.name, memory.get(each.name, 0)) for each in ran),
        versions=trace.versions,
        rank=trace.rank,
        ranks=trace.ranks,
        unfinished=trace.unfinished,
        outside_ns=_outside_ns(trace, steps),
        outside_device_ns=sum(event.ns for event in trace.device) - sum(event.ns for event in launched),
        elapsed_ns=max((each.span_ns for each in ran), default=sum(steps.ns)),
        collectives_ns=max((each.communication_ns for each in ran), default=_host_communication_ns(trace, steps)),
    )


def _outside_ns(trace: Trace, steps: Steps) -> int:
    return sum(
        event.self_ns
        for event in trace.host
        if event.kind not in (PYTHON, RANGE) and event.replaced_by is None and steps.slot_of(event.start) < 0
    )


def _host_communication_ns(trace: Trace, steps: Steps) -> int:
    """Return the time in which a backend for the CPU communicated in the steps."""
    ranges = (event for event in trace.host if is_communication(event.name) and steps.slot_of(event.start) >= 0)
    return covered((event.start, min(event.end, steps.ends[steps.slot_of(event.start)])) for event in ranges)


def _kernels(launched: Sequence[DeviceEvent]) -> tuple[Kernel, ...]:
    times: dict[tuple[OpKey, str, str], list[int]] = defaultdict(list)
    for event in launched:
        times[key_of(event), event.name, event.kind].append(event.ns)
    found = [Kernel(*which, len(ns), sum(ns), min(ns), max(ns)) for which, ns in times.items()]
    return tuple(sorted(found, key=lambda kernel: (-kernel.ns, kernel.key, kernel.name)))


def _unplaced(host: OpTable, device: OpTable | None) -> Unplaced:
    operations = [row for row in host.rows if row.is_operation]
    ran = device.rows if device else ()

    def share(rows: Sequence[OpRow], clock: str, name: str) -> float | None:
        times = [(sum(row.self_cpu_ns if clock == "cpu" else row.self_device_ns), getattr(row, name)) for row in rows]
        whole = sum(ns for ns, _ in times)
        return sum(ns for ns, known in times if not known) / whole if whole else None

    return Unplaced(
        host_phase=share(operations, "cpu", "phase") or 0.0,
        host_module=share(operations, "cpu", "module") or 0.0,
        device_phase=share(ran, "device", "phase"),
        device_module=share(ran, "device", "module"),
    )
