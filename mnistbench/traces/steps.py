"""The steps of a trace: ranges that mark iterations, or the whole trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass

from mnistbench.core.operation import ITERATION
from mnistbench.traces.events import OPERATION, RANGE, DeviceEvent, HostEvent, Trace

_STEP = "ProfilerStep#"


@dataclass(frozen=True)
class Steps:
    """The steps in order."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    thread: Hashable  # that ran them
    is_exclusive: bool  # what the accelerator ran for no step is left out; else it counts to the step before, or to the first
    are_marked: bool  # False: the only step is the whole trace

    def slot_of(self, ns: int) -> int:
        """Return the position of the step of a time; -1 outside of all."""
        slot = bisect_right(self.starts, ns) - 1
        return slot if slot >= 0 and ns <= self.ends[slot] else -1

    def slot_of_device(self, event: DeviceEvent) -> int:
        """Return the position of the step that launched an event or, without a link, of the step in which it ran."""
        ns = event.launch.start if event.launch is not None else event.start
        return self.slot_of(ns) if self.is_exclusive else max(0, bisect_right(self.starts, ns) - 1)

    @property
    def ns(self) -> tuple[int, ...]:
        """Length of each step."""
        return tuple(end - start for start, end in zip(self.starts, self.ends, strict=True))


def steps_of(trace: Trace) -> Steps:
    """Return the marked iterations of mnistbench, else the profiler's steps with an operation, else the whole trace."""
    ranges = [event for event in trace.host if event.kind == RANGE]
    if marked := [event for event in ranges if event.name == ITERATION]:
        return _steps(marked, is_exclusive=True)
    if steps := _with_operations([event for event in ranges if event.name.startswith(_STEP)], trace):
        return _steps(steps, is_exclusive=False)
    events = trace.host or trace.device
    start, end = min(event.start for event in events), max(event.end for event in events)
    return Steps(("whole trace",), (start,), (end,), _busiest_thread(trace), is_exclusive=False, are_marked=False)


def _steps(events: list[HostEvent], *, is_exclusive: bool) -> Steps:
    return Steps(
        names=tuple(event.name for event in events),
        starts=tuple(event.start for event in events),
        ends=tuple(event.end for event in events),
        thread=events[0].thread,
        is_exclusive=is_exclusive,
        are_marked=True,
    )


def _with_operations(steps: list[HostEvent], trace: Trace) -> list[HostEvent]:
    """Leave out steps without an operation: the profiler opens a step that ends with the profile."""
    starts = [step.start for step in steps]
    having = {
        slot
        for event in trace.host
        if event.kind == OPERATION and (slot := bisect_right(starts, event.start) - 1) >= 0 and event.start <= steps[slot].end
    }
    return [step for slot, step in enumerate(steps) if slot in having]


def _busiest_thread(trace: Trace) -> Hashable:
    """Return the thread with the longest operations and ranges."""
    busy: dict[Hashable, int] = {}
    for event in trace.host:
        if event.caller is None and event.kind in (OPERATION, RANGE):
            busy[event.thread] = busy.get(event.thread, 0) + event.ns
    return max(busy, key=lambda thread: busy[thread], default="")
