"""The order of the operations and kernels of one step, from a profile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
from torch.profiler import record_function

from mnistbench.core.operation import ITERATION
from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.result import Scheduled
from mnistbench.measuring.events_to_table import events_of, is_annotation
from mnistbench.measuring.profiling import activities_of, has_device_view, started
from mnistbench.profile.run import export_trace

#: Profiled steps.
_STEPS = 5

#: Inductor's name for a generated kernel in a profile.
_KERNEL = re.compile(r"(?:graph_\d+_)?((?:cpp|triton_[a-z]+)_fused_\w*)")


def schedule(program: Program, way: str, compute: Callable[..., Tensor], trace: Path | None) -> list[Scheduled]:
    """Return the operations and kernels of the fastest of a few warm steps in the order of their starts.

    An operation that another one calls is not among them. On a CPU these are calls, and on an accelerator its kernels.

    Args:
        program: whose step it is.
        way: EAGER or COMPILED.
        compute: its forward pass in this way.
        trace: file of a Chrome trace; None: no trace.

    Raises:
        UsageError: the trace cannot be written.
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


def scheduled(events: Iterable[Any], way: str, *, on_device: bool) -> Iterator[Scheduled]:
    """Yield what ran in the fastest of the marked steps: disturbances only add time.

    Args:
        events: of the profiler.
        way: EAGER or COMPILED.
        on_device: whether to take the kernels of an accelerator, not the calls of the host.
    """
    events = list(events)
    marks = [event for event in events if event.name == ITERATION and event.device_type == DeviceType.CPU]
    if not marks:
        return
    fastest = min((mark.time_range for mark in marks), key=lambda span: span.end - span.start)
    begin, end = fastest.start, fastest.end
    for event in sorted(events, key=lambda event: event.time_range.start):
        inside = begin <= event.time_range.start <= end
        if inside and (_is_kernel(event) if on_device else _is_outermost(event)):
            start, duration = event.time_range.start - begin, event.time_range.end - event.time_range.start
            yield Scheduled(way, _name(event), round(start * 1e3), round(duration * 1e3))


def _name(event: Any) -> str:
    match = _KERNEL.fullmatch(event.name)
    return match[1] if match else event.name.removeprefix("aten::")


def _is_kernel(event: Any) -> bool:
    """Whether it is a kernel or a copy of an accelerator, not the copy of a range."""
    return event.device_type != DeviceType.CPU and not is_annotation(event)


def _is_outermost(event: Any) -> bool:
    """Whether it is an operation of the host that no other one calls."""
    if event.device_type != DeviceType.CPU or not _is_operation(event):
        return False
    caller = event.cpu_parent
    while caller is not None:
        if _is_operation(caller):
            return False
        caller = caller.cpu_parent
    return True


def _is_operation(event: Any) -> bool:
    return ("::" in event.name.split(" ")[0] and not event.name.startswith("autograd::")) or bool(_KERNEL.fullmatch(event.name))
