"""The events of a trace and its steps. Times are integer nanoseconds on the clock of the trace."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from mnistbench.core.operation import ITERATION, OpKey, Scope
from mnistbench.events.communication import is_collective, is_communication_kernel

#: Kind of a host event: an operation.
OPERATION = "operation"
#: Kind of a host event: a range of ``record_function``.
RANGE = "range"
#: Kind of a host event: a Python function.
PYTHON = "python"
#: Kind of a host event: a call of the device's runtime.
RUNTIME = "runtime"

#: Kind of a device event: a kernel.
KERNEL = "kernel"
#: Kind of a device event: a copy of memory.
COPY = "copy"
#: Kind of a device event: memory that is filled.
FILL = "fill"

#: Category of the profiler's own work: on its buffers, which have a thread of their own, or loading
#: a kernel.
OVERHEAD = "overhead"

#: Categories of Kineto that are no work: copies of ranges, marks, and waiting that has an event of
#: the runtime, too.
NO_WORK = frozenset(
    (
        "gpu_user_annotation",
        "Trace",
        "cpu_instant_event",
        "external_correlation",
        "cuda_sync",
        "xpu_sync",
        "cuda_event",
        "cuda_profiler_range",
    )
)

#: Values of c10::DeviceType that are memory of the host: CPU, MKLDNN, IDEEP.
HOST_MEMORY = (0, 2, 5)

_HOST_KINDS = {"cpu_op": OPERATION, "user_annotation": RANGE, "python_function": PYTHON}
_DEVICE_KINDS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": FILL}
#: cuda_runtime, cuda_driver, xpu_runtime, privateuse1_runtime, ...
_RUNTIME_ENDS = ("_runtime", "_driver", OVERHEAD)


def host_kind(category: str) -> str | None:
    """Return the kind of the host events of a category of Kineto; None for others."""
    return _HOST_KINDS.get(category) or (RUNTIME if category.endswith(_RUNTIME_ENDS) else None)


def device_kind(category: str) -> str | None:
    """Return the kind of the device events of a category of Kineto; None for others."""
    return _DEVICE_KINDS.get(category)


#: What a device is called where the trace has no name of it.
UNNAMED = "an accelerator without a name"

NOWHERE = Scope()

#: Arguments of an event that has none.
NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})

#: Argument of an operation: the shapes of its inputs.
SHAPES = "Input Dims"
#: Argument of an operation: the functions of Python around it, the innermost first.
STACK = "Call stack"


class ThreadEvent:
    """Something that a thread of the host ran."""

    __slots__ = (
        "args",
        "caller",
        "children",
        "correlation",
        "end",
        "external",
        "forward_thread",
        "is_beside",
        "kind",
        "name",
        "parent",
        "replaced_by",
        "rest_of",
        "scope",
        "self_ns",
        "sequence",
        "start",
        "thread",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        thread: Hashable,
        start: int,
        end: int,
        *,
        external: int | None = None,
        correlation: int | None = None,
        sequence: int | None = None,
        forward_thread: int | None = None,
        args: Mapping[str, Any] = NO_ARGUMENTS,
    ) -> None:
        self.name = name
        self.kind = kind
        self.thread = thread
        self.start = start
        self.end = end
        # Of an operation, its number; of a call of the runtime, that of the operation around it.
        self.external = external
        self.correlation = correlation  # number that a launch shares with what it launches
        self.sequence = sequence  # autograd's
        # Of an operation of backward; autograd's number of a thread.
        self.forward_thread = forward_thread
        self.args = args  # as recorded, not checked
        self.parent: ThreadEvent | None = None  # the innermost event around it
        # The innermost event around it that is no Python function.
        self.caller: ThreadEvent | None = None
        self.children = 0  # events of which it is the caller
        self.self_ns = end - start  # without the time of these
        self.is_beside = False  # it runs beside its thread: communication of a backend for the CPU
        self.replaced_by: ThreadEvent | None = None  # its caller, if both are one operation
        # The first part of a range or a function that was cut, because it does not nest.
        self.rest_of: ThreadEvent | None = None
        self.scope = NOWHERE

    @property
    def key(self) -> OpKey:
        """Name, phase and module: the row of a table that it belongs to."""
        return (self.name, *self.scope)

    @property
    def ns(self) -> int:
        """Time with the events that it called."""
        return self.end - self.start

    @property
    def process(self) -> Hashable:
        """The process that ran it; empty where the trace has no number of it."""
        return self.thread[0] if isinstance(self.thread, tuple) else ""

    @property
    def launches_graph(self) -> bool:
        """Whether the call launches a graph of kernels: ``cudaGraphLaunch``, ``hipGraphLaunch``."""
        return self.kind == RUNTIME and "GraphLaunch" in self.name

    @property
    def is_backward(self) -> bool:
        """Whether autograd ran it for an operation of forward."""
        return bool(self.forward_thread) and self.sequence is not None

    def enclosing(self, prefix: str) -> ThreadEvent | None:
        """Return the innermost of this event and those around it whose name begins so."""
        event: ThreadEvent | None = self
        while event is not None and not event.name.startswith(prefix):
            event = event.caller
        return event

    @property
    def whole(self) -> ThreadEvent:
        """The event itself, or the first part of one that was cut."""
        return self.rest_of or self

    @property
    def kept(self) -> ThreadEvent:
        """The event that is counted for this one."""
        event = self
        while event.replaced_by is not None:
            event = event.replaced_by
        return event


class DeviceEvent:
    """A kernel, a copy or a fill that an accelerator ran."""

    __slots__ = (
        "correlation",
        "device",
        "end",
        "external",
        "is_of_graph",
        "is_timed",
        "kind",
        "launch",
        "name",
        "operation",
        "process",
        "ran_until",
        "range",
        "rank",
        "start",
        "stream",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        start: int,
        end: int,
        *,
        device: str,
        stream: str,
        external: int | None = None,
        correlation: int | None = None,
        is_of_graph: bool = False,
        process: Hashable = "",
        rank: int | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.start = start
        self.end = end
        self.device = device  # number, as recorded; empty if there is none
        self.stream = stream  # distinct for each stream of the trace; empty if there is none
        self.external = external  # number of the operation that launched it
        self.correlation = correlation  # number that it shares with its launch
        self.is_of_graph = is_of_graph  # known in newer files; see launch for others
        # As the file has it: mostly the number of the device.
        self.process = process
        self.rank = rank  # if a tool that merges files wrote it
        self.is_timed = True  # False: its time is impossible, so it is in no time line
        self.ran_until = end  # earlier, if it cannot have run so long
        self.launch: ThreadEvent | None = None  # the runtime call that launched it
        self.operation: ThreadEvent | None = None  # the innermost operation around that call
        # Without an operation: the innermost named range around that call.
        self.range: ThreadEvent | None = None

    @property
    def ns(self) -> int:
        """Time on the device, as recorded; see ``ran_until``."""
        return self.end - self.start

    @property
    def is_possible(self) -> bool:
        """Whether it can have run when the trace says."""
        return self.is_timed and self.ran_until == self.end

    @property
    def is_communication(self) -> bool:
        """Whether a kernel communicates between ranks, by its name or its operation."""
        if self.kind != KERNEL:
            return False
        around = self.operation or self.range
        return is_communication_kernel(self.name) or (
            around is not None and is_collective(around.name)
        )


#: Where an event begins: thread and start.
Place = tuple[Hashable, int]


class MemoryRecord(NamedTuple):
    """Memory that was allocated, or freed if ``n_bytes`` is below 0."""

    ns: int
    n_bytes: int
    of_host: bool
    thread: Hashable  # that allocated or freed it


@dataclass
class Impossible:
    """Times of a trace that cannot be; see ``impossible``. Times are nanoseconds."""

    past_step: int = 0  # calls that end after the step in which they begin, on its thread
    past_step_ns: int = 0  # their time after the step, which is left out
    overlapping_calls: int = 0  # calls that begin in another call of their thread and end after it
    overlapping_calls_ns: int = 0  # time in which both run
    overlapping_kernels: int = 0  # kernels that run until after the next one of their stream begins
    overlapping_kernels_ns: int = 0  # time in which both run
    # Kernels, copies and fills that end after a call that waited for the accelerator.
    past_wait: int = 0
    past_wait_ns: int = 0  # the most by which one does
    # Kernels, copies and fills without a time that can be; they are in no time line.
    untimed: int = 0
    before_launch: int = 0  # others that begin before their own launch
    before_launch_ns: int = 0  # the most by which one does


@dataclass
class Trace:
    """A whole file, or a whole profile. ``host``, ``device`` and ``memory`` are sorted by start."""

    source: str  # the file; empty for a profile of this process
    host: list[ThreadEvent]
    device: list[DeviceEvent]
    # From an operation of forward to the one of backward that autograd ran for it.
    flows: list[tuple[Place, Place]]
    memory: list[MemoryRecord]
    # Autograd's number of a thread -> the thread, where the events tell it.
    autograd_threads: Mapping[int, Hashable] = field(default_factory=dict)
    # Number -> name and bytes of memory, 0 where they are not recorded.
    devices: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    # Of CUDA or HIP, its driver and its profiling library.
    versions: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None  # None: the run was not distributed
    ranks: int | None = None
    unfinished: int = 0  # events without an end, which are left out
    untimed: int = 0  # host events without a time that can be, which are left out
    is_rounded: bool = False  # all times are whole microseconds, as in files of earlier versions
    # Events that are not known: "the category x" -> number.
    left_out: Mapping[str, int] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()  # how a file that is no JSON was read
    impossible: Impossible = field(default_factory=Impossible)

    def __post_init__(self) -> None:
        self.host.sort(key=lambda event: (event.start, -event.end))
        self.device.sort(key=lambda event: (event.start, event.end))
        self.memory.sort(key=lambda record: record.ns)

    @property
    def kept_host(self) -> Iterator[ThreadEvent]:
        """Events of the host that are counted: no Python functions, and no repetitions."""
        return (event for event in self.host if event.kind != PYTHON and event.replaced_by is None)

    def name_of(self, number: str) -> str:
        """Return the name of an accelerator; empty where the trace does not describe it.

        A process that may use some devices only numbers them from 0, but its events have the
        numbers of the machine.
        """
        names = {name for name, _ in self.devices.values()}
        return (
            self.devices[number][0]
            if number in self.devices
            else names.pop()
            if len(names) == 1
            else ""
        )


def awaited_overhead(
    host: Iterable[ThreadEvent], overhead: Iterable[ThreadEvent]
) -> list[ThreadEvent]:
    """Return the profiler's own work on threads of other events; nothing waits for the rest."""
    threads = {event.thread for event in host}
    return [event for event in overhead if event.thread in threads]


def process_of(thread: Hashable) -> Hashable:
    """Return the process of a thread; empty for a damaged one."""
    return thread[0] if isinstance(thread, tuple) else ""


# ---- Steps: ranges that mark iterations, or the whole trace --------------------------------------


#: Begins the name of the range of a step of the profiler; its number follows.
STEP = "ProfilerStep#"

#: Clocks of the host and of an accelerator that differ by so much have no time in common.
CLOCKS_DIFFER_NS = 1_000_000


@dataclass(frozen=True)
class Steps:
    """The steps in order."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    thread: Hashable  # that ran them
    # Drop kernels launched outside all steps; otherwise count them to the step before, or to the
    # first.
    drops_outside: bool
    are_marked: bool  # False: the only step is the whole trace

    def slot_of(self, ns: int) -> int:
        """Return the position of the step of a time; -1 outside of all.

        What begins when a step ends is after it; the whole trace has nothing after it.
        """
        slot = bisect_right(self.starts, ns) - 1
        if slot < 0 or ns > self.ends[slot]:
            return -1
        return -1 if self.are_marked and ns == self.ends[slot] else slot

    def slot_of_device(self, event: DeviceEvent) -> int:
        """Return the position of the step that launched an event, or without a link ran it."""
        ns = event.launch.start if event.launch is not None else event.start
        return self.slot_of(ns) if self.drops_outside else max(0, bisect_right(self.starts, ns) - 1)

    @property
    def ns(self) -> tuple[int, ...]:
        """Length of each step."""
        return tuple(end - start for start, end in zip(self.starts, self.ends, strict=True))


def steps_of(trace: Trace) -> Steps:
    """Return the marked iterations of mnistbench, or the profiler's steps, or the whole trace.

    A step of the profiler needs an operation.

    The whole trace is from the first to the last event, of the host and of the accelerators.
    """
    ranges = [event for event in trace.host if event.kind == RANGE]
    marked = [event for event in ranges if event.name == ITERATION]
    if steps := marked or _with_operations(
        [event for event in ranges if event.name.startswith(STEP)], trace
    ):
        return Steps(
            names=tuple(event.name for event in steps),
            starts=tuple(event.start for event in steps),
            ends=tuple(event.end for event in steps),
            thread=steps[0].thread,
            drops_outside=bool(marked),
            are_marked=True,
        )
    ran = [(event.start, event.end) for event in trace.host]
    if not ran or trace.impossible.before_launch_ns < CLOCKS_DIFFER_NS:
        ran += [(event.start, event.ran_until) for event in trace.device if event.is_timed]
    start = min((start for start, _ in ran), default=0)
    end = max((end for _, end in ran), default=0)
    busy: dict[Hashable, int] = defaultdict(int)  # by thread, in operations and ranges
    for event in trace.host:
        if event.caller is None and event.kind in (OPERATION, RANGE):
            busy[event.thread] += event.ns
    thread = max(busy, key=lambda thread: busy[thread], default="")
    return Steps(("whole trace",), (start,), (end,), thread, drops_outside=False, are_marked=False)


def _with_operations(steps: list[ThreadEvent], trace: Trace) -> list[ThreadEvent]:
    """Leave out steps without an operation: the profiler opens one that ends with the profile."""
    starts = [step.start for step in steps]
    having = {
        slot
        for event in trace.host
        if event.kind == OPERATION
        and (slot := bisect_right(starts, event.start) - 1) >= 0
        and event.start <= steps[slot].end
    }
    return [step for slot, step in enumerate(steps) if slot in having]
