"""Events of a profile of host activities.

Read from the profiler with the fields alone that a table needs.

``torch.profiler`` makes objects of 40 fields, which takes five times as long as everything else
that is done with an event. Values and tree are those of ``profile.events()``.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import LEFT_OUT, MEMORY

_OUT_OF_MEMORY = "[OutOfMemory]"
_HOST_MEMORY = (DeviceType.CPU, DeviceType.MKLDNN, DeviceType.IDEEP)
_DEVICE_MEMORY = (DeviceType.CUDA, DeviceType.PrivateUse1, DeviceType.HIP, DeviceType.XPU)


class TimeRange(NamedTuple):
    """Start and end, in microseconds since the start of the profile."""

    start: float
    end: float


class HostEvent:
    """An event of the host, with the fields of ``events_to_table.Event``."""

    __slots__ = (
        "cpu_children",
        "cpu_memory_usage",
        "cpu_parent",
        "device_memory_usage",
        "fwd_thread",
        "input_shapes",
        "is_async",
        "name",
        "scope",
        "sequence_nr",
        "thread",
        "time_range",
    )

    device_type = DeviceType.CPU
    kernels = ()
    self_device_time_total = 0.0

    def __init__(
        self, name: str, thread: int, time_range: TimeRange, memory: int, device_memory: int
    ) -> None:
        self.name = name
        self.thread = thread
        self.time_range = time_range
        self.cpu_memory_usage = memory
        self.device_memory_usage = device_memory
        self.fwd_thread = thread
        self.scope = 0
        self.sequence_nr = -1
        self.is_async = False
        self.input_shapes: Sequence[Any] = ()
        self.cpu_parent: HostEvent | None = None
        self.cpu_children: list[HostEvent] = []

    @property
    def cpu_time_total(self) -> float:
        """Time with the children, in microseconds."""
        return self.time_range.end - self.time_range.start

    @property
    def self_cpu_time_total(self) -> float:
        """Time without the children, in microseconds."""
        return (
            0
            if self.is_async
            else self.cpu_time_total - sum([child.cpu_time_total for child in self.cpu_children])
        )

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes allocated minus freed, without the children."""
        return (
            0
            if self.is_async
            else self.cpu_memory_usage
            - sum([child.cpu_memory_usage for child in self.cpu_children])
        )

    @property
    def self_device_memory_usage(self) -> int:
        """The same of an accelerator's memory.

        Its allocator reports to a profile of host activities, too.
        """
        if self.is_async:
            return 0
        return self.device_memory_usage - sum(
            [child.device_memory_usage for child in self.cpu_children]
        )


def host_events(recorded: torch.profiler.profile) -> list[Any]:
    """Return the events of a profile of host activities alone, sorted by start.

    As ``HostEvent``.
    """
    assert recorded.profiler is not None, "the profile has ended"
    assert recorded.profiler.kineto_results is not None, "the profile has ended"
    with gc_paused():
        results = recorded.profiler.kineto_results
        first = results.trace_start_ns()
        raw = results.events()
        memory = _Memory([event for event in raw if event.name() == MEMORY])
        events = [
            _event(event, first, memory)
            for event in raw
            if event.name() not in LEFT_OUT and not _is_hidden(event)
        ]
        alone = [*memory.outside(), *(event for event in raw if event.name() == _OUT_OF_MEMORY)]
        for event in alone:
            at = (event.start_ns() - first) / 1000
            sizes = (_n_bytes(event), _n_device_bytes(event))
            events.append(
                HostEvent(event.name(), event.start_thread_id(), TimeRange(at, at), *sizes)
            )
        events.sort(key=_by_time)
        _link(events)
        return _without_repetitions(events)


def allocations(
    recorded: torch.profiler.profile, events: Sequence[HostEvent]
) -> Iterator[tuple[float, int, HostEvent | None]]:
    """Yield each allocation and free of host memory in their order.

    Frees of what was allocated before the profile are missing.

    Yields:
        Its time in microseconds, as in the events, its bytes, below 0 for a free, and the innermost
        event that contains it.
    """
    assert recorded.profiler is not None, "the profile has ended"
    assert recorded.profiler.kineto_results is not None, "the profile has ended"
    results = recorded.profiler.kineto_results
    records = sorted(
        (event for event in results.events() if event.name() == MEMORY),
        key=lambda record: record.start_ns(),
    )
    waiting = deque(sorted(events, key=_by_time))
    around: list[HostEvent] = []
    for record in records:
        at = (record.start_ns() - results.trace_start_ns()) / 1000
        while waiting and waiting[0].time_range.start <= at:
            around.append(waiting.popleft())
        around = [event for event in around if event.time_range.end >= at]
        innermost = [
            event
            for event in around
            if event.thread == record.start_thread_id() and event.name != MEMORY
        ]
        yield at, _n_bytes(record), innermost[-1] if innermost else None


def _event(event: Any, first: int, memory: _Memory) -> HostEvent:
    start = event.start_ns()
    end = event.end_ns()
    time_range = TimeRange((start - first) / 1000, (end - first) / 1000)
    made = HostEvent(
        _name(event.name()), event.start_thread_id(), time_range, *memory.between(start, end)
    )
    made.fwd_thread = event.fwd_thread_id()
    made.scope = event.scope()
    made.sequence_nr = event.sequence_nr()
    made.is_async = event.is_async() or made.thread != event.end_thread_id()
    made.input_shapes = event.shapes()
    return made


def _is_hidden(event: Any) -> bool:
    return bool(getattr(event, "is_hidden_event", bool)())  # torch 2.11 may lack it


@functools.cache
def _name(name: str) -> str:
    # As profile.events() does.
    readable: str = torch._C._demangle(name) if len(name) > 1 else name  # noqa: SLF001
    return "ProfilerStep*" if readable.startswith("ProfilerStep#") else readable


def _n_bytes(event: Any) -> int:
    return int(event.nbytes()) if event.device_type() in _HOST_MEMORY else 0


def _n_device_bytes(event: Any) -> int:
    return int(event.nbytes()) if event.device_type() in _DEVICE_MEMORY else 0


def _by_time(event: HostEvent) -> tuple[float, float]:
    return event.time_range.start, -event.time_range.end


class _Memory:
    """Allocations, by time. Remembers which of them an event contains."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._records = sorted(records, key=lambda record: record.start_ns())
        self._starts = [record.start_ns() for record in self._records]
        self._sums, self._device_sums = (
            [0, *itertools.accumulate(map(count, self._records))]
            for count in (_n_bytes, _n_device_bytes)
        )
        # Of the number of events around a record, against the one before.
        self._changes = [0] * (len(self._records) + 1)

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Return the bytes allocated minus freed from one time to another, both included.

        Of the host and of accelerators.
        """
        low = bisect_left(self._starts, start)
        high = bisect_right(self._starts, end)
        self._changes[low] += 1
        self._changes[high] -= 1
        return self._sums[high] - self._sums[low], self._device_sums[high] - self._device_sums[low]

    def outside(self) -> list[Any]:
        """Return the records that no event contains."""
        depths = itertools.accumulate(self._changes)
        return [record for record, depth in zip(self._records, depths, strict=False) if depth == 0]


def _link(events: Iterable[HostEvent]) -> None:
    """Set parents and children.

    An event is the child of the innermost one of its thread that contains it.
    """
    around: dict[int, list[HostEvent]] = defaultdict(list)
    for event in events:
        if event.is_async:
            continue
        stack = around[event.thread]
        start = event.time_range.start
        end = event.time_range.end
        while stack and (start >= stack[-1].time_range.end or end > stack[-1].time_range.end):
            stack.pop()
        if stack:
            event.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(event)
        stack.append(event)


def _without_repetitions(events: list[HostEvent]) -> list[HostEvent]:
    """Leave out an event that is the only child of one with its name.

    Its children become the parent's.
    """
    while True:
        kept = []
        for event in events:
            parent = event.cpu_parent
            if parent is None or parent.name != event.name or len(parent.cpu_children) != 1:
                kept.append(event)
                continue
            parent.cpu_children = event.cpu_children
            for child in event.cpu_children:
                child.cpu_parent = parent
        if len(kept) == len(events):
            return kept
        events = kept
