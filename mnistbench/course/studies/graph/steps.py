"""Steps of a program.

Their operations, their times, eager and compiled in turn, and the order of their kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
from torch.profiler import record_function

from mnistbench.core.operation import ITERATION
from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.study import Dispatched, Scheduled, StepTimes
from mnistbench.measuring.events_to_table import events_of, is_annotation
from mnistbench.measuring.profiling import activities_of, export_trace, has_device_view, started
from mnistbench.profile.counting import Counting

#: Untimed steps before the timed ones.
_WARMUP = 2
#: Fewest timed steps.
_LEAST = 5
#: Most timed steps.
_MOST = 500


def dispatched(program: Program) -> Dispatched:
    """Return the operations of one eager forward and backward pass, below autograd."""
    program.zero_grad()
    forward = Counting()
    backward = Counting()
    with forward:
        result = program.compute(*program.arguments)
    with backward:
        program.backward(result)
    program.zero_grad()
    return Dispatched(
        tuple(forward.names),
        tuple(backward.names),
        forward.views + backward.views,
        forward.moved_bytes + backward.moved_bytes,
    )


def timed_steps(
    program: Program, computes: dict[str, Callable[..., Tensor]], seconds: float
) -> dict[str, tuple[StepTimes, ...]]:
    """Return times of steps in several ways, one after the other in turn.

    So a disturbance meets all of them.

    ``computes`` has the forward pass of each way; the steps of all ways together fill the
    ``seconds``.
    """
    times: dict[str, list[StepTimes]] = {way: [] for way in computes}
    program.zero_grad()
    for number in range(_WARMUP + _MOST):
        for way, compute in computes.items():
            step = program.timed_step(compute)
            if number >= _WARMUP:
                times[way].append(step)
        spent = sum(step.total_ns for steps in times.values() for step in steps)
        if number >= _WARMUP + _LEAST and spent > seconds * 1e9:
            break
    return {way: tuple(steps) for way, steps in times.items()}


# ---- The order of operations and kernels, from a profile -----------------------------------------

#: Profiled steps.
_STEPS = 5

#: Inductor's name for a generated kernel in a profile.
_KERNEL = re.compile(r"(?:graph_\d+_)?((?:cpp|triton_[a-z]+)_fused_\w*)")


def schedule(
    program: Program, way: str, compute: Callable[..., Tensor], trace: Path | None
) -> list[Scheduled]:
    """Return the operations and kernels of the fastest of a few warm steps.

    They are in the order of their starts.

    An operation that another one calls is not among them. On a CPU these are calls, and on an
    accelerator its kernels. ``trace`` is the file of a Chrome trace.
    """
    device = program.arguments[0].device
    view = "device" if has_device_view(str(device)) else "host"
    profiler = torch.profiler.profile(activities=activities_of(str(device), view))
    with started(profiler):
        program.step(compute)  # the profiler makes its buffers
        for _ in range(_STEPS):
            with record_function(ITERATION):
                program.step(compute)
    events = events_of(profiler)
    if trace:
        export_trace(profiler, trace)
    return list(scheduled(events, way, on_device=view == "device"))


def scheduled(events: Sequence[Any], way: str, *, on_device: bool) -> Iterator[Scheduled]:
    """Yield what ran in the fastest of the marked steps: disturbances only add time.

    With ``on_device`` these are the kernels of an accelerator, else the calls of the host.
    """
    marks = [
        event for event in events if event.name == ITERATION and event.device_type == DeviceType.CPU
    ]
    if not marks:
        return
    fastest = min((mark.time_range for mark in marks), key=lambda span: span.end - span.start)
    begin = fastest.start
    end = fastest.end
    for event in sorted(events, key=lambda event: event.time_range.start):
        inside = begin <= event.time_range.start <= end
        # The copy of a range is none.
        is_kernel = event.device_type != DeviceType.CPU and not is_annotation(event)
        if inside and (is_kernel if on_device else _is_outermost(event)):
            start = event.time_range.start - begin
            duration = event.time_range.end - event.time_range.start
            generated = _KERNEL.fullmatch(event.name)
            name = generated[1] if generated else event.name.removeprefix("aten::")
            yield Scheduled(way, name, round(start * 1e3), round(duration * 1e3))


def _is_outermost(event: Any) -> bool:
    """Whether it is an operation of the host that no other one calls."""
    if event.device_type != DeviceType.CPU or not _is_operation(event):
        return False
    caller = event.cpu_parent
    while caller is not None and not _is_operation(caller):
        caller = caller.cpu_parent
    return caller is None


def _is_operation(event: Any) -> bool:
    return ("::" in event.name.split(" ")[0] and not event.name.startswith("autograd::")) or bool(
        _KERNEL.fullmatch(event.name)
    )
