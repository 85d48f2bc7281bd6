"""Busy and idle time of an accelerator, and the copies and communication beside which nothing else ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mnistbench.core.operation import covered
from mnistbench.traces.events import COPY, KERNEL, DeviceEvent, Trace

_Span = tuple[int, int]


@dataclass(frozen=True)
class Timeline:
    """An accelerator from the start of its first event to the end of its last. Times are nanoseconds."""

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
        """Time in which nothing ran."""
        return self.span_ns - self.busy_ns


def timelines(trace: Trace) -> tuple[Timeline, ...]:
    """Return the timeline of each accelerator that ran something."""
    of_device: dict[str, list[DeviceEvent]] = defaultdict(list)
    for event in trace.device:
        of_device[event.device].append(event)
    return tuple(_timeline(number, trace.name_of(number), found) for number, found in sorted(of_device.items()))


def _timeline(number: str, name: str, found: list[DeviceEvent]) -> Timeline:
    copies = [event for event in found if event.kind == COPY]
    communication = [event for event in found if event.is_communication]
    computation = [event for event in found if event.kind != COPY and not event.is_communication]
    busy_ns, span_ns = _ran_ns(found), max(event.end for event in found) - min(event.start for event in found)
    waiting = [(event.launch.end, event.start) for event in found if event.launch is not None]
    first = min(event.start for event in found)
    queued_ns = covered([*_spans(found), *((max(first, launched), began) for launched, began in waiting)])
    unlinked = [event for event in found if event.launch is None]
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
        kernels=sum(event.kind == KERNEL for event in found),
        copies=sum(event.kind != KERNEL for event in found),
        launches=len({id(event.launch) for event in found if event.launch is not None}),
        unlinked=len(unlinked),
        unlinked_ns=sum(event.ns for event in unlinked),
    )


def _ran_ns(found: Iterable[DeviceEvent]) -> int:
    return covered(_spans(found))


def _spans(found: Iterable[DeviceEvent]) -> list[_Span]:
    return [(event.start, event.end) for event in found]
