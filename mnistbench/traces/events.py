"""The events of a trace. Times are integer nanoseconds on the clock of the trace."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Kinds of host events: an operation, a range of ``record_function``, a Python function, a call of the device's runtime.
OPERATION, RANGE, PYTHON, RUNTIME = "operation", "range", "python", "runtime"

#: Kinds of device events.
KERNEL, COPY, FILL = "kernel", "copy", "fill"

#: Part of the name of a kernel that communicates: of NCCL and RCCL, of PyTorch's symmetric memory, of vLLM's own all-reduce.
_COMMUNICATION = re.compile(r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce", re.IGNORECASE)


class Place(NamedTuple):
    """The phase and the module of an event; empty where they are not recorded."""

    phase: str
    module: str


NOWHERE = Place("", "")


class HostEvent:
    """Something that a thread of the host ran."""

    __slots__ = (
        "args", "caller", "children", "correlation", "end", "external", "forward_thread", "is_beside", "kind", "name", "parent",
        "place", "replaced_by", "self_ns", "sequence", "start", "thread",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, thread: Hashable, start: int, end: int, args: Mapping[str, Any]) -> None:
        self.name = name
        self.kind = kind
        self.thread = thread
        self.start = start
        self.end = end
        self.args = args  # as recorded, not checked
        self.external = _whole(args.get("External id"))
        self.correlation = _whole(args.get("correlation"))
        self.sequence = _whole(args.get("Sequence number"))  # autograd's
        self.forward_thread = _whole(args.get("Fwd thread id"))  # of an operation of backward; autograd's number of a thread
        self.parent: HostEvent | None = None  # the innermost event around it
        self.caller: HostEvent | None = None  # the innermost event around it that is no Python function
        self.children = 0  # events of which it is the caller
        self.self_ns = end - start  # without the time of these
        self.is_beside = False  # it runs beside its thread: communication of a backend for the CPU
        self.replaced_by: HostEvent | None = None  # its caller, if both are one operation
        self.place = NOWHERE

    @property
    def ns(self) -> int:
        """Time with the events that it called."""
        return self.end - self.start

    @property
    def is_backward(self) -> bool:
        """Whether autograd ran it for an operation of forward."""
        return bool(self.forward_thread) and self.sequence is not None

    @property
    def kept(self) -> HostEvent:
        """The event that is counted for this one."""
        event = self
        while event.replaced_by is not None:
            event = event.replaced_by
        return event


class DeviceEvent:
    """A kernel, a copy or a fill that an accelerator ran."""

    __slots__ = ("correlation", "device", "end", "external", "kind", "launch", "name", "operation", "start")

    def __init__(self, name: str, kind: str, process: Any, start: int, end: int, args: Mapping[str, Any]) -> None:
        self.name = name
        self.kind = kind
        self.start = start
        self.end = end
        self.device = _name(args.get("device"), process)
        self.external = _whole(args.get("External id"))
        self.correlation = _whole(args.get("correlation"))
        self.launch: HostEvent | None = None  # the runtime call that launched it
        self.operation: HostEvent | None = None  # the innermost operation around that call

    @property
    def ns(self) -> int:
        """Time on the device."""
        return self.end - self.start

    @property
    def is_communication(self) -> bool:
        """Whether it is a kernel that communicates between ranks: ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``."""
        return self.kind == KERNEL and _communicates(self.name)


class Flow(NamedTuple):
    """The link from an operation of forward to the one of backward that autograd ran for it: threads and starts."""

    forward: tuple[Hashable, int]
    backward: tuple[Hashable, int]


class MemoryRecord(NamedTuple):
    """Memory that was allocated, or freed if ``n_bytes`` is below 0."""

    ns: int
    n_bytes: int
    of_host: bool


@dataclass(frozen=True)
class Device:
    """An accelerator of the machine, as the trace describes it."""

    number: str
    name: str
    memory_bytes: int  # 0 where it is not recorded


@dataclass
class Trace:
    """A whole file. ``host`` and ``device`` are sorted by start."""

    source: str  # the file
    host: list[HostEvent]
    device: list[DeviceEvent]
    flows: list[Flow]
    memory: list[MemoryRecord]
    devices: tuple[Device, ...]
    versions: Mapping[str, str] = field(default_factory=dict)  # of CUDA or HIP, its driver and its profiling library
    rank: int | None = None  # None: the run was not distributed
    ranks: int | None = None
    unfinished: int = 0  # events without an end, which are left out
    is_rounded: bool = False  # all times are whole microseconds, as in files of earlier versions

    def name_of(self, number: str) -> str:
        """Return the name of an accelerator; empty where the trace does not describe it.

        A process that may use some devices only numbers them from 0, but its events have the numbers of the machine.
        """
        names = {device.number: device.name for device in self.devices}
        of_all = set(names.values())
        return names.get(number, of_all.pop() if len(of_all) == 1 else "")


@functools.lru_cache(maxsize=4096)
def _communicates(name: str) -> bool:
    return _COMMUNICATION.search(name) is not None


def _whole(value: object) -> int | None:
    """Return a whole number from 0 as it is; None for anything else."""
    return value if type(value) is int and value >= 0 else None


def _name(*values: object) -> str:
    """Return the first number or text."""
    return next((str(value) for value in values if type(value) in (int, str)), "")
