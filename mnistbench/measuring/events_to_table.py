"""Events of torch.profiler -> an operation table.

A forward operation belongs to the phase and the module of the marks around it (``marks``). A
backward operation belongs to the module whose forward operation has its autograd sequence number.
Operations without such a link are NO_MODULE: gradient accumulation (autograd gives it no number)
and the optimizer (it works on parameters, not in a module).

A kernel belongs to the operation to which the profiler has linked it. The kernels and copies of an
iteration without such an operation are the row UNATTRIBUTED, so that the device times of a table
add up to all of them: in recorded runs of large models 30 % of the time of all kernels had no link.
Calls of the accelerator's runtime are no operations but the row RUNTIME.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time

from mnistbench.core import operation
from mnistbench.core.machine import gc_paused
from mnistbench.core.record import OpTable, RowSums, subtract_waiting

_US = 1000  # ns

_USER_SCOPE = 7  # at::RecordScope::USER_SCOPE: record_function, by marks and by optimizers

#: Kineto's types of events, where torch has them: host events that are no operations, and device
#: events that are no work. torch 2.11 has none.
_OVERHEAD = "overhead"
_RUNTIME_TYPES = ("_runtime", "_driver", _OVERHEAD)
_IDLE_TYPES = ("gpu_user_annotation", "cuda_sync")

#: Kineto's names of events of the type _OVERHEAD, and of a runtime call that it does not know.
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
_UNKNOWN_CALL = "INVALID"


class Event(Protocol):
    """The fields of ``torch.autograd.profiler_util.FunctionEvent`` that are read here.

    Times are microseconds.
    """

    name: str
    scope: int
    thread: int
    fwd_thread: int | None
    sequence_nr: int
    device_type: DeviceType
    cpu_parent: Any
    cpu_children: list[Any]
    input_shapes: Any
    kernels: Any
    self_cpu_memory_usage: int
    self_device_memory_usage: int
    time_range: Any
    cpu_time_total: float
    self_cpu_time_total: float
    self_device_time_total: float


def events_of(recorded: torch.profiler.profile) -> list[Any]:
    """Return the events of a profile; they have the fields of ``Event``."""
    with gc_paused():  # the profiler parses them now
        return list(recorded.events() or ())  # type: ignore[no-untyped-call]


def is_annotation(event: Any) -> bool:
    """Whether a device event is no kernel or copy of memory.

    It is the copy of a range, or a synchronisation.
    """
    if getattr(event, "is_user_annotation", False) or event.name.startswith("mnistbench."):
        return True
    return getattr(event, "activity_type", None) in _IDLE_TYPES


def _is_of_runtime(event: Event) -> bool:
    """Whether a host event is a call of the accelerator's runtime.

    Or overhead of its profiling interface.
    """
    kind = getattr(event, "activity_type", None)
    if kind is None:
        return (
            operation.is_runtime_call(event.name)
            or event.name == _UNKNOWN_CALL
            or _is_overhead(event)
        )
    return operation.is_runtime_call(event.name) or bool(kind.endswith(_RUNTIME_TYPES))


def _is_overhead(event: Event) -> bool:
    """Whether a host event is overhead of the accelerator's profiling interface."""
    kind = getattr(event, "activity_type", None)
    return event.name in _OVERHEAD_NAMES if kind is None else bool(kind == _OVERHEAD)


def _without_own_overhead(host: Sequence[Event]) -> Iterator[Event]:
    """Leave out the profiler's overhead on a thread without operations.

    Nothing else waits for it.
    """
    threads = {event.thread for event in host if not _is_overhead(event)}
    return (event for event in host if event.thread in threads)


# ---- Rows of a table -----------------------------------------------------------------------------


class _Iterations:
    """The marked iterations of a profile, in order."""

    def __init__(self, host: Iterable[Event], name: str) -> None:
        marked = (event for event in host if event.name == name)
        self.events = sorted(marked, key=lambda event: event.time_range.start)
        self.thread = self.events[0].thread if self.events else 0
        self._starts = [event.time_range.start for event in self.events]

    def slot_of(self, event: Event) -> int:
        """Return the position of the iteration in which an event started; -1 outside of all."""
        slot = bisect_right(self._starts, event.time_range.start) - 1
        return (
            slot if slot >= 0 and event.time_range.start <= self.events[slot].time_range.end else -1
        )


def table(
    events: Iterable[Event],
    *,
    temperature: str,
    view: str,
    device: str = "cpu",
    first_of_process: bool = False,
    iteration: str = operation.ITERATION,
) -> OpTable:
    """Gather profiler events into one row per (operation, phase, module).

    With one sample per marked iteration.

    The self host times of the rows add up to the iteration: the time of ranges outside operations
    is the row OUTSIDE of their phase, that of calls of the accelerator's runtime the row RUNTIME.
    If backward runs on a thread of its own (with an accelerator), the caller's wait for it is
    subtracted from the row OUTSIDE. Communication between ranks runs beside the iteration and comes
    on top of it.

    The self device times of the rows add up to all kernels and copies that start in the iterations
    or that their operations have launched.

    Args:
        events: events of a profile with marked iterations.
        temperature: ``cold`` or ``warm``.
        view: ``host`` or ``device``; only the latter reads device times.
        device: of the case; its memory is that of the rows.
        first_of_process: copied to the table.
        iteration: name of the ranges that mark iterations; events outside them are ignored.
    """
    listed = list(events)
    host = list(
        _without_own_overhead([event for event in listed if event.device_type == DeviceType.CPU])
    )
    iterations = _Iterations(host, iteration)
    inside = [event for event in host if iterations.slot_of(event) >= 0]
    samples = _gathered(inside, iterations, view, on_host=torch.device(device).type == "cpu")
    busy: tuple[int, ...] = ()
    if view == "device":
        work = [
            event
            for event in listed
            if event.device_type != DeviceType.CPU and not is_annotation(event)
        ]
        _add_unattributed(samples, work, inside, iterations)
        busy = _busy(work, iterations)
    return OpTable.from_rows(
        temperature=temperature,
        view=view,
        iteration_ns=_nanoseconds(event.cpu_time_total for event in iterations.events),
        rows=tuple(row.op_row(key, view, _US) for key, row in samples.items()),
        first_of_process=first_of_process,
        busy_ns=busy,
    )


def _busy(work: Iterable[Event], iterations: _Iterations) -> tuple[int, ...]:
    """Return the time in which the accelerator ran, for each iteration, in nanoseconds.

    It ran at least one kernel or copy.
    """
    ran = [event.time_range for event in work]
    ranges = (event.time_range for event in iterations.events)
    return _nanoseconds(
        operation.covered((max(one.start, each.start), min(one.end, each.end)) for one in ran)
        for each in ranges
    )


def _add_unattributed(
    samples: dict[operation.OpKey, RowSums],
    work: Iterable[Event],
    inside: Iterable[Event],
    iterations: _Iterations,
) -> None:
    """Add the row of the kernels and copies that no operation of the iterations has.

    They started in an iteration.

    Events of torch 2.11 do not say to which operation a kernel is linked. The kernels of operations
    are found again by name and duration, which the profiler copies from the event of the kernel:
    those that run in the iteration of their operation first, because others may have equal
    durations.
    """
    launched = [
        (iterations.slot_of(event), kernel)
        for event in inside
        if _launches(event)
        for kernel in event.kernels
    ]
    in_time = Counter((slot, kernel.name, kernel.duration) for slot, kernel in launched)
    left = [
        event
        for event in work
        if not _taken(in_time, (iterations.slot_of(event), event.name, _ran_us(event)))
    ]
    late: Counter[tuple[str, float]] = Counter()
    for (_, name, ran_us), count in in_time.items():
        late[name, ran_us] += count
    for event in left:
        slot = iterations.slot_of(event)
        if not _taken(late, (event.name, _ran_us(event))) and slot >= 0:
            row = samples[operation.UNATTRIBUTED, "", operation.NO_MODULE]
            row.calls += 1
            row.self_device[slot] += _ran_us(event)
            row.kernels.add(event.name)


def _ran_us(event: Event) -> float:
    return float(event.time_range.end - event.time_range.start)


def _taken(counts: Counter[Any], key: tuple[Any, ...]) -> bool:
    """Take one from the count of a key; return whether there was one."""
    if counts[key] <= 0:
        return False
    counts[key] -= 1
    return True


def _is_range(event: Event) -> bool:
    """Whether an event is a range of Python code.

    Communication is one for torch.distributed, from its call to its end.
    """
    return event.scope == _USER_SCOPE and not operation.is_communication(event.name)


def _launches(event: Event) -> bool:
    """Whether the kernels of an event are an operation's.

    A range has its own copy on the device among them.
    """
    return event.scope != _USER_SCOPE and not _is_of_runtime(event)


def _row_of(event: Event, scope: operation.Scope) -> operation.OpKey:
    if _is_range(event):
        return (operation.OUTSIDE, scope.phase, operation.NO_MODULE)
    return (
        (operation.RUNTIME, "", operation.NO_MODULE)
        if _is_of_runtime(event)
        else (event.name, scope.phase, scope.module)
    )


def _gathered(
    host: Sequence[Event], iterations: _Iterations, view: str, *, on_host: bool
) -> dict[operation.OpKey, RowSums]:
    """Sum the events of each row in each iteration."""
    samples: dict[operation.OpKey, RowSums] = defaultdict(lambda: RowSums(len(iterations.events)))
    # (phase, iteration) -> self time on other threads.
    elsewhere: dict[tuple[str, int], float] = defaultdict(float)
    for event, scope in _walked(host, _forward_modules(host)):
        slot = iterations.slot_of(event)
        beside = operation.runs_beside(event.name)
        row = samples[key := _row_of(event, scope)]
        row.self_cpu[slot] += event.cpu_time_total if beside else event.self_cpu_time_total
        if event.thread != iterations.thread and not beside:
            elsewhere[scope.phase, slot] += event.self_cpu_time_total
        if key[0] == operation.OUTSIDE:
            row.total_cpu[slot] += event.self_cpu_time_total
            continue
        row.calls += 1
        row.total_cpu[slot] += event.cpu_time_total
        row.memory[slot] += (
            event.self_cpu_memory_usage if on_host else event.self_device_memory_usage
        )
        # torch 2.11 may give a runtime call the kernels of an equal number.
        if view == "device" and _launches(event):
            row.self_device[slot] += event.self_device_time_total
            row.kernels.update(kernel.name for kernel in event.kernels)
        if event.input_shapes:
            row.shapes.add(str(event.input_shapes))
    subtract_waiting(samples, elsewhere)
    return samples


def _nanoseconds(microseconds: Iterable[float]) -> tuple[int, ...]:
    """Round; a difference of rounded times can be below 0."""
    return tuple(max(0, round(value * 1_000)) for value in microseconds)


def _forward_modules(events: Iterable[Event]) -> dict[tuple[int, int], str]:
    """Map (thread, sequence number) of forward operations to their module.

    Several operations have the same number, the counter's value when each began. The last one made
    the autograd node.
    """
    found: dict[tuple[int, int], str] = {}
    in_order = sorted(_walked(events, {}), key=lambda placed: placed[0].time_range.start)
    for event, scope in in_order:
        if scope.phase == "forward" and event.sequence_nr >= 0 and event.scope != _USER_SCOPE:
            found[event.thread, event.sequence_nr] = scope.module
    return found


def placed(events: Iterable[Event]) -> Iterator[tuple[Event, operation.Scope]]:
    """Yield every host event with its phase and module."""
    host = [event for event in events if event.device_type == DeviceType.CPU]
    return _walked(host, _forward_modules(host))


def _walked(
    events: Iterable[Event], forward_modules: dict[tuple[int, int], str]
) -> Iterator[tuple[Event, operation.Scope]]:
    """Walk the call trees; yield every event with the scope that its ancestors set."""
    pending = [
        (event, operation.Scope("", operation.NO_MODULE))
        for event in events
        if event.cpu_parent is None
    ]
    while pending:
        event, scope = pending.pop()
        if event.name.startswith(operation.PHASE):
            scope = operation.Scope(event.name.removeprefix(operation.PHASE), operation.NO_MODULE)
        elif event.name.startswith(operation.MODULE):
            scope = operation.Scope(scope.phase, event.name.removeprefix(operation.MODULE))
        elif event.name.startswith(operation.ENGINE_NODE):
            tie = (event.fwd_thread or 0, event.sequence_nr)
            scope = operation.Scope("backward", forward_modules.get(tie, operation.NO_MODULE))
        yield event, scope
        pending.extend((child, scope) for child in event.cpu_children)
