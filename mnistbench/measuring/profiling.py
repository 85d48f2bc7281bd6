"""A case -> operation tables, through torch.profiler.

The callable that is profiled is the one that is timed. During the profiled pass alone it is *marked*: ranges around
the runner's parts say which phase an operation belongs to, hooks put a range around each module's forward. A backward
operation belongs to the module whose forward operation has its autograd sequence number. What has no such tie stays
UNTIED: accumulating a gradient (autograd gives it no number), the optimizer (it works on parameters, not in a module).
"""

from __future__ import annotations

import functools
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.gc_pause import gc_paused
from mnistbench.core.record import OUTSIDE, UNTIED, OpRow, OpTable, median_ns
from mnistbench.measuring.case import Case
from mnistbench.workloads.step import Inference, Step

#: Iterations run after a reset and before profiling: the optimizer makes its state in the first, the profiler its
#: own buffers in the last, which is profiled and dropped.
WARMUP_ITERATIONS = 2

#: Ranges of ours are told from operations by these prefixes.
ITERATION = "mnistbench.iteration"
_PHASE = "mnistbench.phase:"
_MODULE = "mnistbench.module:"

#: Blocks of each kind, and calls in a block: disturbances only ever add, so the quickest of a few is the cost.
_COST_BLOCKS = 10
_COST_CALLS = 300

_ENGINE_NODE = "autograd::engine::evaluate_function:"
_USER_SCOPE = 7  # at::RecordScope::USER_SCOPE: record_function, ours and the optimizers' own

#: The loss belongs to no module of the model; its operations are named for what they are.
LOSS = "(loss)"
#: Operations in the outermost module's own forward, outside any child.
MODEL = "(model)"

_PHASE_OF_PART = {
    "zero_grad": "optimizer",
    "forward": "forward",
    "loss": "forward",
    "backward": "backward",
    "update": "optimizer",
}


def profile_first_call(case: Case, *, first_of_process: bool) -> OpTable:
    """Run the case for the first time and return what that cost: one iteration, host activities only."""
    recorded = record(case, iterations=1, activities=[ProfilerActivity.CPU], shapes=False)
    return table(events_of(recorded), temperature="cold", view="host", first_of_process=first_of_process)


def profile(case: Case, *, iterations: int, view: str = "host", shapes: bool = False) -> OpTable:
    """Return the operations of a warm case, from its initial state, one sample per iteration.

    Args:
        case: a case with a runner.
        iterations: how many are kept, at least 1.
        view: ``host`` for host activities alone, ``device`` for host and device.
        shapes: record the distinct input shapes of each operation.
    """
    return warm_table(record_warm(case, iterations=iterations, view=view, shapes=shapes), case.params.device, view)


def record_warm(case: Case, *, iterations: int, view: str = "host", shapes: bool = False) -> torch.profiler.profile:
    """Return the profiler that saw iterations of a warm case: what :func:`warm_table` and a trace are made of."""
    case.reset()
    for _ in range(WARMUP_ITERATIONS):
        case()
    return record(case, iterations=iterations, activities=activities_of(case.params.device, view), shapes=shapes, dropped=1)


def warm_table(recorded: torch.profiler.profile, device: str, view: str) -> OpTable:
    """Return the operations that :func:`record_warm` saw."""
    cost = cost_per_call(tuple(activities_of(device, view)))
    return replace(table(events_of(recorded), temperature="warm", view=view), profiler_ns=cost)


def events_of(recorded: torch.profiler.profile) -> list[Any]:
    """Return all that a profiler saw, as ``Event`` has it."""
    return list(recorded.events() or ())  # type: ignore[no-untyped-call]


def activities_of(device: str, view: str) -> list[ProfilerActivity]:
    """Return what the profiler watches in the view ``host`` or ``device``."""
    return [ProfilerActivity.CPU, *([_device_activity(device)] if view == "device" else [])]


@functools.cache  # a property of the machine and the process, and 0.1 s to measure
def cost_per_call(activities: tuple[ProfilerActivity, ...]) -> int:
    """Return what the profiler adds to each call of an operation, in nanoseconds.

    The quickest profiled block less the quickest plain one, which alternate. They call one small operation in place, so
    that nothing else takes time.
    """
    operand = torch.ones(16)

    def block() -> int:
        start = time.perf_counter_ns()
        for _ in range(_COST_CALLS):
            operand.neg_()
        return time.perf_counter_ns() - start

    def profiled() -> int:
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True):
            block()  # its first calls make the profiler's buffers
            return block()

    pairs = [(block(), profiled()) for _ in range(_COST_BLOCKS)]
    quickest, quickest_profiled = (min(pair[side] for pair in pairs) for side in (0, 1))
    return max(0, round((quickest_profiled - quickest) / _COST_CALLS))


def _device_activity(device: str) -> ProfilerActivity:
    return {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}[torch.device(device).type]


def has_device_view(device: str) -> bool:
    """Whether the profiler can watch that device (not mps: Kineto does not see it)."""
    return torch.device(device).type in ("cuda", "xpu")


def record(
    case: Case, *, iterations: int, activities: Sequence[ProfilerActivity], shapes: bool, dropped: int = 0
) -> torch.profiler.profile:
    """Run the case, marked, under the profiler; the first ``dropped`` calls are not marked as iterations.

    ``acc_events`` silences a warning about schedules, of which there is none here.
    """
    profiler = torch.profiler.profile(activities=activities, record_shapes=shapes, profile_memory=True, acc_events=True)
    with ExitStack() as parsing, profiler, marked(case):
        for _ in range(dropped):
            case()
        for _ in range(iterations):
            with record_function(ITERATION):
                case()
        parsing.enter_context(gc_paused())  # the profiler parses when it is left
    return profiler


def busy_ns(recorded: torch.profiler.profile) -> tuple[int, ...]:
    """Return for each iteration how long the accelerator ran at least one kernel or copy, in nanoseconds."""
    events = events_of(recorded)
    iterations = [event.time_range for event in events if event.device_type == DeviceType.CPU and event.name == ITERATION]
    ran = sorted(
        (event.time_range.start, event.time_range.end)
        for event in events
        if event.device_type != DeviceType.CPU and not _is_annotation(event)
    )
    return _nanoseconds(_covered(ran, iteration.start, iteration.end) for iteration in iterations)


def _is_annotation(event: Any) -> bool:
    """Whether a device's event is the shadow of a range, not work."""
    return bool(getattr(event, "is_user_annotation", False)) or event.name.startswith("mnistbench.")


def _covered(spans: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Return how much of an interval the spans, sorted by their start, cover together."""
    covered, until = 0.0, start
    for begin, finish in spans:
        covered += max(0.0, min(finish, end) - max(begin, until))
        until = max(until, finish)
    return covered


# ---- Marks -----------------------------------------------------------------------------------------------------------


@contextmanager
def marked(case: Case) -> Iterator[None]:
    """Put ranges around the runner's parts and the model's modules while the body runs.

    Hooks are not seen by compiled code, so a compiled model's operations stay with no module.
    """
    assert case.runner is not None, "only a case with a runner is profiled per operation"
    with ExitStack() as undo:
        _mark_parts(case.runner, undo)
        if not case.params.compile:
            _mark_modules(case.model, undo)
        yield


def _mark_parts(runner: Step | Inference, undo: ExitStack) -> None:
    for part, phase in _PHASE_OF_PART.items():
        method = getattr(runner, part, None)
        if method is None:
            continue
        setattr(runner, part, _in_ranges(method, [_PHASE + phase, *([_MODULE + LOSS] if part == "loss" else [])]))
        undo.callback(delattr, runner, part)  # the instance's attribute hid the class's method


def _in_ranges(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        with ExitStack() as ranges:
            for name in names:
                ranges.enter_context(record_function(name))
            return function(*args)

    return wrapper


def _mark_modules(model: nn.Module, undo: ExitStack) -> None:
    open_ranges: list[record_function] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            open_ranges.append(record_function(_MODULE + name))
            open_ranges[-1].__enter__()  # type: ignore[no-untyped-call]

        return hook

    def leave(*_: object) -> None:
        open_ranges.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        undo.callback(module.register_forward_pre_hook(enter(name or MODEL)).remove)
        undo.callback(module.register_forward_hook(leave, always_call=True).remove)


# ---- Events to rows --------------------------------------------------------------------------------------------------


class Event(Protocol):
    """The fields of ``torch.autograd.profiler_util.FunctionEvent`` that are read here. Times are microseconds."""

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


@dataclass
class _Samples:
    """Sums over one iteration's events of a row, one slot per iteration."""

    slots: int
    calls: int = 0
    self_cpu: list[float] = field(default_factory=list)
    total_cpu: list[float] = field(default_factory=list)
    self_device: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.self_cpu, self.total_cpu, self.self_device = ([0.0] * self.slots for _ in range(3))
        self.memory = [0] * self.slots


@dataclass(frozen=True)
class Place:
    """Where an event stands: the phase and module of the ranges around it."""

    phase: str
    module: str


def table(
    events: Iterable[Event], *, temperature: str, view: str, first_of_process: bool = False, iteration: str = ITERATION
) -> OpTable:
    """Gather profiler events into one row per (operation, phase, module), one sample per marked iteration.

    The rows' self host times of one thread add up to the iteration: what ranges spend outside operations is the row
    OUTSIDE of their phase. Where backward runs on a thread of its own (an accelerator), the caller's wait for it is
    taken off that row.

    Args:
        events: those of a profile whose iterations were marked.
        temperature: ``cold`` or ``warm``.
        view: ``host`` or ``device``; device times are read in the latter.
        first_of_process: kept in the table.
        iteration: what marks the iterations; work outside them does not count.
    """
    host = [event for event in events if event.device_type == DeviceType.CPU]
    iterations = sorted((event for event in host if event.name == iteration), key=lambda event: event.time_range.start)
    starts = [event.time_range.start for event in iterations]
    main_thread = iterations[0].thread if iterations else 0

    def slot_of(event: Event) -> int:
        slot = bisect_right(starts, event.time_range.start) - 1
        return slot if slot >= 0 and event.time_range.start <= iterations[slot].time_range.end else -1

    host = [event for event in host if slot_of(event) >= 0]  # in a profile of two sides, half of them
    forward_modules = _forward_modules(host)
    samples: dict[tuple[str, str, str], _Samples] = defaultdict(lambda: _Samples(len(iterations)))
    elsewhere: dict[tuple[str, int], float] = defaultdict(float)  # (phase, iteration) -> self time on other threads

    for event, place in _walked(host, forward_modules):
        slot = slot_of(event)
        is_range = event.scope == _USER_SCOPE
        row = samples[(OUTSIDE, place.phase, UNTIED) if is_range else (event.name, place.phase, place.module)]
        row.self_cpu[slot] += event.self_cpu_time_total
        if is_range:
            row.total_cpu[slot] += event.self_cpu_time_total
            continue
        row.calls += 1
        row.total_cpu[slot] += event.cpu_time_total
        row.memory[slot] += event.self_device_memory_usage if view == "device" else event.self_cpu_memory_usage
        if view == "device":
            row.self_device[slot] += event.self_device_time_total
            row.kernels.update(kernel.name for kernel in event.kernels)
        if event.input_shapes:
            row.shapes.add(str(event.input_shapes))
        if event.thread != main_thread:
            elsewhere[place.phase, slot] += event.self_cpu_time_total

    for (phase, slot), waited in elsewhere.items():
        outside = samples.get((OUTSIDE, phase, UNTIED))
        if outside is not None:
            outside.self_cpu[slot] = outside.total_cpu[slot] = max(0.0, outside.self_cpu[slot] - waited)

    return OpTable(
        temperature=temperature,
        view=view,
        iteration_ns=_nanoseconds(event.cpu_time_total for event in iterations),
        rows=tuple(
            OpRow(
                name=name,
                phase=phase,
                module=module,
                calls=row.calls / len(iterations),
                self_cpu_ns=_nanoseconds(row.self_cpu),
                total_cpu_ns=_nanoseconds(row.total_cpu),
                self_device_ns=_nanoseconds(row.self_device) if view == "device" else (),
                memory_bytes=median_ns(row.memory),
                shapes=tuple(sorted(row.shapes)),
                kernels=tuple(sorted(row.kernels)),
            )
            for (name, phase, module), row in samples.items()
        ),
        first_of_process=first_of_process,
    )


def _nanoseconds(microseconds: Iterable[float]) -> tuple[int, ...]:
    """Round; a difference of rounded times may lie below 0."""
    return tuple(max(0, round(value * 1_000)) for value in microseconds)


def _forward_modules(events: Iterable[Event]) -> dict[tuple[int, int], str]:
    """Map (thread, sequence number) of forward operations to their module.

    Several operations carry one number: it is the counter's value when each began. The last to begin made the node.
    """
    found: dict[tuple[int, int], str] = {}
    in_order = sorted(_walked(events, {}), key=lambda placed: placed[0].time_range.start)
    for event, place in in_order:
        if place.phase == "forward" and event.sequence_nr >= 0 and event.scope != _USER_SCOPE:
            found[event.thread, event.sequence_nr] = place.module
    return found


def placed(events: Iterable[Event]) -> Iterator[tuple[Event, Place]]:
    """Yield every event of the host with the phase and the module that it belongs to."""
    host = [event for event in events if event.device_type == DeviceType.CPU]
    return _walked(host, _forward_modules(host))


def _walked(events: Iterable[Event], forward_modules: dict[tuple[int, int], str]) -> Iterator[tuple[Event, Place]]:
    """Walk the call trees and yield every event with the place that its ancestors give it."""
    pending = [(event, Place("", UNTIED)) for event in events if event.cpu_parent is None]
    while pending:
        event, place = pending.pop()
        if event.name.startswith(_PHASE):
            place = Place(event.name.removeprefix(_PHASE), UNTIED)
        elif event.name.startswith(_MODULE):
            place = Place(place.phase, event.name.removeprefix(_MODULE))
        elif event.name.startswith(_ENGINE_NODE):
            tie = (event.fwd_thread or 0, event.sequence_nr)
            place = Place("backward", forward_modules.get(tie, UNTIED))
        yield event, place
        pending.extend((child, place) for child in event.cpu_children)
