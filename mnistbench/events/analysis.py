"""A file -> its operation tables, kernels and timelines; a folder of ranks -> a distributed run."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import UNATTRIBUTED, OpKey, covered, is_communication
from mnistbench.core.record import OpTable
from mnistbench.events.content.formats import NoTraceError
from mnistbench.events.from_file import ENDINGS, read
from mnistbench.events.launches import Launches, unrecorded_launches
from mnistbench.events.linking.compiled import name_compiled
from mnistbench.events.linking.links import link
from mnistbench.events.model import (
    COPY,
    KERNEL,
    PYTHON,
    RANGE,
    DeviceEvent,
    Impossible,
    Steps,
    Trace,
    steps_of,
)
from mnistbench.events.processes import split
from mnistbench.events.table import host_and_device, key_of
from mnistbench.events.work.costs import Costs, costs_of

#: Number of processes that a message names.
_NAMED = 4


@dataclass(frozen=True)
class Kernel:
    """All runs of one kernel, copy or fill for one operation. Times are nanoseconds."""

    key: OpKey  # of its row in the device table
    name: str
    kind: str  # kernel, copy or fill
    count: int
    timed: int  # those of them that have a time
    ns: int  # sum
    least_ns: int
    most_ns: int


@dataclass(frozen=True)
class Tables:
    """The operations of a trace, and what their columns leave out.

    A table has a sample per step.
    """

    steps: tuple[str, ...]  # names
    are_steps_marked: bool  # False: the only step is the whole trace
    host: OpTable
    device: OpTable | None  # None: no accelerator was recorded
    memory_bytes: Mapping[OpKey, int]  # of each row, allocated minus freed in all steps
    # Host self time of operations and runtime calls that started in no step, which is left out.
    outside_ns: int
    outside_device_ns: int  # device time that was launched in no step, if that is left out
    # Host self time in steps that other threads than that of the steps ran.
    other_threads_ns: int
    beside_ns: int  # in communication that runs beside its thread

    @property
    def shown(self) -> OpTable:
        """The device table, or the host table without an accelerator."""
        return self.device or self.host

    @functools.cached_property
    def unplaced(self) -> Mapping[str, float | None]:
        """Shares of the time whose phase or module is not recorded; see :func:`_unplaced`."""
        return _unplaced(self.host, self.device)

    @property
    def ranges(self) -> frozenset[str]:
        """Names of the rows that are ranges with kernels.

        Their host time outside operations is in the row OUTSIDE.
        """
        if self.device is None:
            return frozenset()
        return (
            frozenset(row.name for row in self.device.rows)
            - {row.name for row in self.host.rows}
            - {UNATTRIBUTED}
        )


@dataclass(frozen=True)
class TimelineInfo:
    """When the accelerators of a trace ran something."""

    devices: tuple[Timeline, ...]  # of each accelerator that ran something
    machine: tuple[tuple[str, int], ...]  # name and bytes of memory of these accelerators
    # From the first to the last event of the accelerator; without one, the steps.
    elapsed_ns: int
    collectives_ns: int  # of ``elapsed_ns``, time in which communication between ranks ran

    @property
    def outside_collectives_ns(self) -> int:
        """Elapsed time without the time in communication between ranks."""
        return self.elapsed_ns - self.collectives_ns


@dataclass(frozen=True)
class FileNotes:
    """What a file says of its run, and how it was read."""

    source: str  # the file
    versions: Mapping[str, str]  # of CUDA or HIP, its driver and its profiling library
    rank: int | None  # None: the run was not distributed
    ranks: int | None
    unfinished: int  # events without an end, which are left out
    untimed: int  # host events without a time that can be, which are left out
    left_out: Mapping[str, int]  # events that are not known, by their category
    repairs: tuple[str, ...]  # how a file that is no JSON was read
    impossible: Impossible


@dataclass(frozen=True)
class Analysis:
    """A trace."""

    file: FileNotes
    tables: Tables
    timeline: TimelineInfo
    kernels: tuple[Kernel, ...]  # the longest first
    launches: Launches  # of kernels, and how many of them have none in the trace
    costs: Costs  # work of the rows of ``tables.shown``; empty if it was not counted


def analyse(path: Path, *, counts_work: bool = False) -> Analysis:
    """Read a trace of one process, gather its operations and, if asked to, count their work.

    Raises:
        RecordError: the file is no trace, or damaged, or several processes are merged into it.
    """
    with gc_paused():
        trace = linked(path)
    return _analysis(trace, counts_work=counts_work)


def analyse_processes(path: Path, *, counts_work: bool = False) -> tuple[Analysis, ...]:
    """Return the analysis of each process that is merged into a file.

    Raises:
        RecordError: the file is no trace, or damaged, or its processes cannot be told apart.
    """
    with gc_paused():
        traces = linked_processes(path)
    return tuple(_analysis(trace, counts_work=counts_work) for trace in traces)


def _analysis(trace: Trace, *, counts_work: bool) -> Analysis:
    with gc_paused():
        steps = steps_of(trace)
        launches = unrecorded_launches(trace)
        launched = [event for event in trace.device if steps.slot_of_device(event) >= 0]
        tables = _tables(trace, steps, launched)
        return Analysis(
            file=FileNotes(
                source=trace.source,
                versions=trace.versions,
                rank=trace.rank,
                ranks=trace.ranks,
                unfinished=trace.unfinished,
                untimed=trace.untimed,
                left_out=trace.left_out,
                repairs=trace.repairs,
                impossible=trace.impossible,
            ),
            tables=tables,
            timeline=_timeline_info(trace, steps, tables.host),
            kernels=_kernels(launched),
            launches=launches.in_steps(steps),
            costs=costs_of(trace, steps, launches) if counts_work else Costs(),
        )


def _tables(trace: Trace, steps: Steps, launched: Sequence[DeviceEvent]) -> Tables:
    """Return the tables of a trace, and what their columns leave out.

    Args:
        trace: the trace, linked.
        steps: its steps.
        launched: device events that count to a step.
    """
    try:
        host, device, memory_bytes = host_and_device(
            trace, steps, has_device=bool(trace.device), memory_of_host=not trace.device
        )
    except ValueError as error:  # each of its times and sizes is possible, and a sum is not
        raise RecordError(
            f"{trace.source}: its times or sizes add up to more than can be ({error}); the "
            "file is damaged"
        ) from None
    outside = (
        event
        for event in trace.host
        if event.replaced_by is None and steps.slot_of(event.start) < 0
    )
    concurrent = [
        event
        for event in trace.kept_host
        if (event.thread != steps.thread or event.is_beside) and steps.slot_of(event.start) >= 0
    ]
    return Tables(
        steps=steps.names,
        are_steps_marked=steps.are_marked,
        host=host,
        device=device,
        memory_bytes=memory_bytes,
        outside_ns=sum(event.self_ns for event in outside if event.kind not in (PYTHON, RANGE)),
        outside_device_ns=sum(event.ns for event in trace.device)
        - sum(event.ns for event in launched),
        other_threads_ns=sum(event.self_ns for event in concurrent if not event.is_beside),
        beside_ns=sum(event.ns for event in concurrent if event.is_beside),
    )


def _timeline_info(trace: Trace, steps: Steps, host: OpTable) -> TimelineInfo:
    devices = timelines(trace)
    memory = dict(trace.devices.values())
    host_communication = (
        (event.start, min(event.end, steps.ends[slot]))
        for event in trace.host
        if is_communication(event.name) and (slot := steps.slot_of(event.start)) >= 0
    )
    spans_ns = [timeline.span_ns for timeline in devices]
    communication_ns = [timeline.communication_ns for timeline in devices]
    return TimelineInfo(
        devices=devices,
        machine=tuple((timeline.name, memory.get(timeline.name, 0)) for timeline in devices),
        elapsed_ns=max(spans_ns, default=sum(host.iteration_ns)),
        collectives_ns=max(communication_ns) if devices else covered(host_communication),
    )


def linked(path: Path) -> Trace:
    """Read a trace, and set the callers and scopes of its events and the operations of kernels.

    Raises:
        RecordError: the file is no trace, or damaged, or several processes are merged into it.
    """
    traces = linked_processes(path)
    if len(traces) > 1:
        names = ", ".join(
            trace.source.removeprefix(str(path)).strip(" ()") for trace in traces[:_NAMED]
        )
        more = ", ..." if len(traces) > _NAMED else ""
        raise RecordError(
            f"{path}: {len(traces)} processes are merged into it ({names}{more}); give the trace "
            "of one of them"
        )
    return traces[0]


def linked_processes(path: Path) -> tuple[Trace, ...]:
    """Return the linked trace of each process that is merged into a file."""
    traces = split(read(path))
    for trace in traces:
        link(trace)
        name_compiled(trace)
    return traces


def _kernels(launched: Sequence[DeviceEvent]) -> tuple[Kernel, ...]:
    counts: Counter[tuple[OpKey, str, str]] = Counter()
    times: dict[tuple[OpKey, str, str], list[int]] = defaultdict(list)
    for event in launched:
        which = (key_of(event), event.name, event.kind)
        counts[which] += 1
        times[which] += [event.ns] if event.ns or event.is_timed else []
    kernels = [
        Kernel(
            *which,
            count=counts[which],
            timed=len(ns),
            ns=sum(ns),
            least_ns=min(ns, default=0),
            most_ns=max(ns, default=0),
        )
        for which, ns in times.items()
    ]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.ns, kernel.key, kernel.name)))


def _unplaced(host: OpTable, device: OpTable | None) -> dict[str, float | None]:
    """Return the shares of the time whose phase, and whose module, is not recorded, from 0 to 1.

    ``host_phase`` and ``host_module`` are shares of the host self time of all operations.

    ``device_phase`` and ``device_module`` are of the time of all kernels, copies and fills; None
    without any.
    """
    shares: dict[str, float | None] = {}
    for view, rows in (
        ("host", [row for row in host.rows if row.is_operation]),
        ("device", device.rows if device else ()),
    ):
        for name in ("phase", "module"):
            times = [
                (sum(row.self_cpu_ns if view == "host" else row.self_device_ns), getattr(row, name))
                for row in rows
            ]
            whole = sum(ns for ns, _ in times)
            unknown = sum(ns for ns, known in times if not known)
            shares[f"{view}_{name}"] = unknown / whole if whole else 0.0 if view == "host" else None
    return shares


# ---- Timelines: busy and idle time, and copies and communication beside which nothing else ran ---


@dataclass(frozen=True)
class Timeline:
    """An accelerator from the start of its first event to the end of its last.

    Times are nanoseconds.

    Events without a possible time are counted, but are not in the times.
    """

    device: str  # number, as the trace has it
    name: str  # empty where the trace does not describe its machine
    span_ns: int
    busy_ns: int  # at least one kernel, copy or fill ran
    computation_ns: int  # a kernel that is not communication, or a fill, ran
    communication_ns: int  # a kernel that communicates between ranks ran
    exposed_communication_ns: int  # and no computation
    copies_ns: int  # a copy ran
    exposed_copies_ns: int  # and neither computation nor communication
    starved_ns: int  # idle, and no launched event was waiting
    kernels: int
    copies: int  # and fills
    launches: int  # runtime calls that launched at least one event
    unlinked: int  # events without a launch in the trace
    unlinked_ns: int  # their time

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns


def timelines(trace: Trace) -> tuple[Timeline, ...]:
    """Return the timeline of each accelerator that ran something."""
    events_of_device: dict[str, list[DeviceEvent]] = defaultdict(list)
    for event in trace.device:
        events_of_device[event.device].append(event)
    return tuple(
        _timeline(number, trace.name_of(number), events)
        for number, events in sorted(events_of_device.items())
    )


def _timeline(number: str, name: str, events: list[DeviceEvent]) -> Timeline:
    timed = [event for event in events if event.is_timed]
    copies = [event for event in timed if event.kind == COPY]
    communication = [event for event in timed if event.is_communication]
    computation = [event for event in timed if event.kind != COPY and not event.is_communication]
    first = min((event.start for event in timed), default=0)
    busy_ns = _ran_ns(timed)
    span_ns = max((event.ran_until for event in timed), default=0) - first
    waiting = [(event.launch.end, event.start) for event in timed if event.launch is not None]
    queued_ns = covered(
        [
            *((event.start, event.ran_until) for event in timed),
            *((max(first, launched), began) for launched, began in waiting),
        ]
    )
    unlinked = [event for event in events if event.launch is None]
    return Timeline(
        device=number,
        name=name,
        span_ns=span_ns,
        busy_ns=busy_ns,
        computation_ns=_ran_ns(computation),
        communication_ns=_ran_ns(communication),
        exposed_communication_ns=_ran_ns([*communication, *computation]) - _ran_ns(computation),
        copies_ns=_ran_ns(copies),
        exposed_copies_ns=busy_ns - _ran_ns([*communication, *computation]),
        starved_ns=span_ns - queued_ns,
        kernels=sum(event.kind == KERNEL for event in events),
        copies=sum(event.kind != KERNEL for event in events),
        launches=len({id(event.launch) for event in events if event.launch is not None}),
        unlinked=len(unlinked),
        unlinked_ns=sum(event.ns for event in unlinked),
    )


def _ran_ns(events: Iterable[DeviceEvent]) -> int:
    return covered((event.start, event.ran_until) for event in events)


# ---- Ranks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RanksRun:
    """The traces of one run, by rank. ``rank`` of each is a number."""

    folder: str  # or the file that they are merged into
    ranks: tuple[Analysis, ...]
    missing: tuple[int, ...]  # ranks of the run without a file
    other_files: tuple[str, ...] = ()  # names of those that have nothing of PyTorch
    # Files of the folder that several ranks are merged into, which are left out.
    merged: tuple[str, ...] = ()
    # Traces of the folder without a rank and without an accelerator, which are left out.
    without_rank: tuple[str, ...] = ()

    @property
    def slowest(self) -> Analysis:
        """The rank with the longest time outside collectives.

        The others wait for it in a collective.
        """
        return max(self.ranks, key=lambda rank: rank.timeline.outside_collectives_ns)


def read_ranks(folder: Path, progress: Callable[[str], None]) -> RanksRun:
    """Read the traces of one run, which are files of a folder that end in .json or .json.gz.

    Programs put other JSON files beside their traces: these are left out. ``progress`` is called
    with the name of each file before it is read.

    Raises:
        UsageError: the folder has no such file, or the traces are not the ranks of one run.
        RecordError: a file is damaged, or none is a trace.
    """
    try:
        files = sorted(
            path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file()
        )
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read ({error.strerror})") from None
    if not files:
        raise UsageError(
            f"{folder}: has no file that ends in .json or .json.gz; name a folder with a trace of "
            "each rank"
        )
    content = _FolderContent()
    for path in files:
        progress(path.name)
        content.add(path)
    if not (content.of_rank or content.without_rank) and content.merged:
        raise UsageError(
            f"{folder / content.merged[0]}: several ranks are merged into it; name this file "
            "instead of its folder"
        )
    if not (content.of_rank or content.without_rank) and content.first_error is not None:
        raise content.first_error
    ranks = tuple(content.of_rank[rank] for rank in sorted(content.of_rank))
    # Of a program on accelerators, a process without one is no rank: vLLM writes a trace of its
    # front-end beside those of the ranks.
    have_accelerators = bool(ranks) and all(rank.tables.device is not None for rank in ranks)
    for trace in content.without_rank:
        if trace.tables.device is not None or not have_accelerators:
            raise UsageError(
                f"{trace.file.source}: has no distributedInfo with a rank, so its rank is not "
                f"known; {_ONE_RUN}"
            )
    sizes = sorted({str(trace.file.ranks) for trace in ranks})
    if len(sizes) > 1:
        raise UsageError(
            f"{folder}: the files are of runs with {' and '.join(sizes)} ranks; {_ONE_RUN}"
        )
    return replace(
        ranks_run(folder, ranks, content.other_files, content.merged),
        without_rank=tuple(Path(trace.file.source).name for trace in content.without_rank),
    )


#: What to do if the traces of a folder are not the ranks of one run.
_ONE_RUN = "leave one run in the folder, or name its files one by one"


@dataclass
class _FolderContent:
    """The files of a folder of ranks."""

    of_rank: dict[int, Analysis] = field(default_factory=dict)
    # Names of files that several ranks are merged into.
    merged: list[str] = field(default_factory=list)
    without_rank: list[Analysis] = field(default_factory=list)
    # Names of those that have nothing of PyTorch.
    other_files: list[str] = field(default_factory=list)
    first_error: NoTraceError | None = None  # of the other files

    def add(self, path: Path) -> None:
        """Read a file.

        Raises:
            UsageError: its rank is impossible, or that of a file before it.
            RecordError: it is damaged.
        """
        try:
            trace, *more = analyse_processes(path, counts_work=True)
        except NoTraceError as error:
            self.other_files.append(path.name)
            self.first_error = self.first_error or error
            return
        if more:
            self.merged.append(path.name)
            return
        rank = trace.file.rank
        if rank is None:
            self.without_rank.append(trace)
            return
        if trace.file.ranks is not None and not 0 <= rank < trace.file.ranks:
            raise UsageError(
                f"{trace.file.source}: is rank {rank} of {trace.file.ranks}, which cannot be; "
                f"{_ONE_RUN}"
            )
        if rank in self.of_rank:
            raise UsageError(
                f"{self.of_rank[rank].file.source} and {trace.file.source} are both rank {rank}; "
                f"{_ONE_RUN}"
            )
        self.of_rank[rank] = trace


def ranks_run(
    source: Path,
    ranks: tuple[Analysis, ...],
    other_files: Iterable[str] = (),
    merged: Iterable[str] = (),
) -> RanksRun:
    """Return the run of some ranks, which are in order.

    Args:
        source: their folder, or the file that they are merged into.
        ranks: the trace of each.
        other_files: files of the folder that have nothing of PyTorch.
        merged: files of the folder that several ranks are merged into.
    """
    having = {trace.file.rank for trace in ranks}
    missing = tuple(rank for rank in range(ranks[0].file.ranks or 0) if rank not in having)
    return RanksRun(str(source), ranks, missing, tuple(other_files), tuple(merged))
