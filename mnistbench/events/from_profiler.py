"""A profile of this process -> its events and its operation table, without a file.

The events are read from Kineto's results, as torch itself does for ``profile.events()``: that makes
objects of 40 fields, which takes longer than everything else that is done with an event, and it
drops which kernel belongs to which launch. Numbers and links are those of the exported trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import LEFT_OUT, MEMORY, is_communication, is_runtime_call
from mnistbench.core.record import OpTable, Temperature
from mnistbench.events.linking.compiled import CallsOfGraphs, name_compiled
from mnistbench.events.linking.links import link
from mnistbench.events.model import (
    COPY,
    FILL,
    HOST_MEMORY,
    KERNEL,
    NO_ARGUMENTS,
    OPERATION,
    OVERHEAD,
    RANGE,
    RUNTIME,
    SHAPES,
    STACK,
    DeviceEvent,
    MemoryRecord,
    ThreadEvent,
    Trace,
    awaited_overhead,
    device_kind,
    host_kind,
    steps_of,
)
from mnistbench.events.table import host_and_device

#: c10::DeviceType of the host.
_CPU = 0

#: at::RecordScope::USER_SCOPE: ranges of ``record_function``, of marks and of optimizers.
_USER_SCOPE = 7

#: Kineto's names of events of the category OVERHEAD. torch 2.11 does not tell the category.
_OVERHEAD_NAMES = frozenset(
    [
        "Activity Buffer Request",
        "Buffer Flush",
        "Command Buffer Full",
        "Driver Compiler",
        "Instrumentation",
        "Lazy Function Loading",
        "Resource",
        "Runtime Triggered Module Loading",
        "Unrecognized",
    ]
)

#: Kineto's name of a runtime call that it does not know.
_UNKNOWN_CALL = "INVALID"


def operation_table(
    profiler: Any,
    device: str,
    view: str,
    *,
    temperature: Temperature = "warm",
    first_of_process: bool = False,
    profiler_ns: int = 0,
    graphs: CallsOfGraphs | None = None,
) -> OpTable:
    """Return the operations of a profile with marked iterations, one sample per iteration.

    Args:
        profiler: a ``torch.profiler.profile`` that has ended.
        device: of the case; the memory of the rows is its memory.
        view: ``host`` or ``device``; only the latter has device times.
        temperature: ``cold`` if the profile is of the first iteration of the case.
        first_of_process: whether no case had run before in this process.
        profiler_ns: overhead of the profiler per operation call; 0: not measured.
        graphs: that were compiled while it ran; None if they were not observed.
    """
    trace = trace_of(profiler, graphs)
    with gc_paused():
        both = host_and_device(
            trace,
            steps_of(trace),
            has_device=view == "device",
            memory_of_host=device.partition(":")[0] == "cpu",
        )
    return replace(
        both.device or both.host,
        temperature=temperature,
        first_of_process=first_of_process,
        profiler_ns=profiler_ns,
    )


def trace_of(profiler: Any, graphs: CallsOfGraphs | None = None) -> Trace:
    """Return the events of a ``torch.profiler.profile`` that has ended, with their links.

    ``graphs`` are those that were compiled while it ran, which tell what compiled kernels compute.
    """
    assert profiler.profiler is not None, "the profile has ended"
    with gc_paused():  # its searches take longer the more events there are
        trace = read(profiler.profiler)
        link(trace)
        name_compiled(trace, graphs)
    return trace


def read(profiler: Any) -> Trace:
    """Return the events of a ``torch.autograd.profiler.profile`` that has ended, without links."""
    results: Any = profiler.kineto_results
    assert results is not None, "the profile has ended"
    return _ProfileReading(has_stacks=bool(profiler.with_stack)).trace(results.events())


class _ProfileReading:
    """Collects the events of one profile."""

    def __init__(self, *, has_stacks: bool) -> None:
        self._has_stacks = has_stacks
        self._host: list[ThreadEvent] = []
        self._overhead: list[ThreadEvent] = []
        self._device: list[DeviceEvent] = []
        self._memory: list[MemoryRecord] = []
        self._threads: set[int] = set()
        self._autograd_threads: dict[int, int] = {}
        # Of host events that are no ranges, by their names, which are few.
        self._categories: dict[str, str] = {}

    def trace(self, events: Iterable[Any]) -> Trace:
        for event in events:
            name = event.name()
            if name == MEMORY:
                self._memory.append(_memory_record(event))
            elif name in LEFT_OUT or _is_hidden(event):
                continue
            elif event.device_type().value == _CPU:
                self._add_host(event, name)
            elif launched := _device_event(event, name):
                self._device.append(launched)
        return Trace(
            source="",
            host=[*self._host, *awaited_overhead(self._host, self._overhead)],
            device=self._device,
            flows=[],
            memory=self._memory,
            autograd_threads=self._autograd_threads,
        )

    def _add_host(self, event: Any, name: str) -> None:
        thread = event.device_resource_id()  # the system's number, which runtime calls have, too
        if event.scope() == _USER_SCOPE:
            # A range that ends on another thread is around nothing.
            if not _is_async(event) or is_communication(name):
                self._host.append(
                    ThreadEvent(name, RANGE, thread, event.start_ns(), event.end_ns())
                )
            return
        category = self._categories.get(name)
        if category is None:
            category = self._categories[name] = _host_category(event, name)
        kind = host_kind(category)
        if kind == OPERATION:
            if thread not in self._threads:
                self._threads.add(thread)
                self._autograd_threads[event.start_thread_id()] = thread
            operation = _operation(event, name, thread)
            if self._has_stacks:
                operation.args = {**operation.args, STACK: event.stack()}
            self._host.append(operation)
        elif kind == RUNTIME:
            call = _runtime_call(event, name, thread)
            (self._overhead if category == OVERHEAD else self._host).append(call)


def _is_hidden(event: Any) -> bool:
    """Whether torch shows the event to nobody. torch 2.6 has no such events."""
    return hasattr(event, "is_hidden_event") and bool(event.is_hidden_event())


def _operation(event: Any, name: str, thread: int) -> ThreadEvent:
    sequence = event.sequence_nr()
    shapes = event.shapes()
    return ThreadEvent(
        name,
        OPERATION,
        thread,
        event.start_ns(),
        event.end_ns(),
        external=event.correlation_id(),
        sequence=sequence if sequence >= 0 else None,
        forward_thread=event.fwd_thread_id(),
        args={SHAPES: shapes} if shapes else NO_ARGUMENTS,
    )


def _runtime_call(event: Any, name: str, thread: int) -> ThreadEvent:
    return ThreadEvent(
        name,
        RUNTIME,
        thread,
        event.start_ns(),
        event.end_ns(),
        external=event.linked_correlation_id() or None,
        correlation=event.correlation_id() or None,
    )


def _device_event(event: Any, name: str) -> DeviceEvent | None:
    """Return a kernel, a copy or a fill; None for other events of a device."""
    kind = _device_kind(event, name)
    if kind is None:
        return None
    device = str(event.device_index())
    return DeviceEvent(
        name,
        kind,
        event.start_ns(),
        event.end_ns(),
        device=device,
        stream=f"{device} {event.device_resource_id()}",
        external=event.linked_correlation_id() or None,
        correlation=event.correlation_id() or None,
    )


def _memory_record(event: Any) -> MemoryRecord:
    is_of_host = event.device_type().value in HOST_MEMORY
    return MemoryRecord(event.start_ns(), event.nbytes(), is_of_host, event.device_resource_id())


def _is_async(event: Any) -> bool:
    return bool(event.is_async()) or event.start_thread_id() != event.end_thread_id()


# ---- Categories, which torch 2.11 does not tell --------------------------------------------------


def _host_category(event: Any, name: str) -> str:
    """Return Kineto's category of a host event that is no range."""
    if hasattr(event, "activity_type"):
        return str(event.activity_type())
    if name in _OVERHEAD_NAMES:
        return OVERHEAD
    return "cuda_runtime" if is_runtime_call(name) or name == _UNKNOWN_CALL else "cpu_op"


def _device_kind(event: Any, name: str) -> str | None:
    """Return the kind of a device event; None if it is no work, such as the copy of a range."""
    if hasattr(event, "activity_type"):
        return device_kind(event.activity_type())
    if event.is_user_annotation():
        return None
    if name.startswith("Memcpy"):
        return COPY
    return FILL if name.startswith("Memset") else KERNEL
