"""Steps of a program.

A step has operations, times (eager and compiled in turn), and an order of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import record_function

from mnistbench.core.compiled.names import FUSED
from mnistbench.core.operation import ITERATION
from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.study import COMPILED, Dispatched, Scheduled, StepTimes
from mnistbench.events.from_profiler import trace_of
from mnistbench.events.model import DeviceEvent, ThreadEvent, Trace
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.measuring.observing import named_kernels
from mnistbench.suite.measuring.profiling import (
    activities_of,
    export_trace,
    has_device_view,
    started,
)
from mnistbench.suite.profile.counting import Counting

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

    A disturbance meets all of them.

    ``computes`` has the forward pass of each way; the steps of all ways together fill the
    ``seconds``.
    """
    times: dict[str, list[StepTimes]] = {way: [] for way in computes}
    program.zero_grad()
    for number in range(WARMUP_ITERATIONS + _MOST):
        for way, compute in computes.items():
            step = program.timed_step(compute)
            if number >= WARMUP_ITERATIONS:
                times[way].append(step)
        spent = sum(step.total_ns for steps in times.values() for step in steps)
        if number >= WARMUP_ITERATIONS + _LEAST and spent > seconds * 1e9:
            break
    return {way: tuple(steps) for way, steps in times.items()}


# ---- The order of operations and kernels, from a profile -----------------------------------------

#: Profiled steps.
_STEPS = 5


def schedule(
    program: Program, way: str, compute: Callable[..., Tensor], trace_file: Path | None
) -> list[Scheduled]:
    """Return the operations and kernels of the fastest of a few warm steps.

    They are in the order of their starts.

    An operation that another one calls is not among them. On a CPU these are calls, and on an
    accelerator its kernels. ``trace_file`` is that of a Chrome trace.
    """
    device = program.arguments[0].device
    view = "device" if has_device_view(str(device)) else "host"
    profiler = torch.profiler.profile(activities=activities_of(str(device), view))
    with named_kernels() if way == COMPILED else nullcontext(), started(profiler):
        program.step(compute)  # the profiler makes its buffers
        for _ in range(_STEPS):
            with record_function(ITERATION):
                program.step(compute)
    if trace_file:
        export_trace(profiler, trace_file)
    return list(scheduled(trace_of(profiler), way, on_device=view == "device"))


def scheduled(trace: Trace, way: str, *, on_device: bool) -> Iterator[Scheduled]:
    """Yield what ran in the fastest of the marked steps: disturbances only add time.

    With ``on_device`` these are the kernels of an accelerator, else the calls of the host.
    """
    steps = [event for event in trace.host if event.name == ITERATION]
    if not steps:
        return
    fastest = min(steps, key=lambda step: step.ns)
    events: list[ThreadEvent] | list[DeviceEvent] = (
        trace.device if on_device else [event for event in trace.kept_host if _is_outermost(event)]
    )
    for event in events:
        if fastest.start <= event.start <= fastest.end:
            name = event.name.removeprefix("aten::")
            yield Scheduled(way, name, event.start - fastest.start, event.ns)


def _is_outermost(event: ThreadEvent) -> bool:
    """Whether it is an operation that no other one calls."""
    if not _is_operation(event):
        return False
    caller = event.caller
    while caller is not None and not _is_operation(caller):
        caller = caller.caller
    return caller is None


def _is_operation(event: ThreadEvent) -> bool:
    is_of_library = "::" in event.name.split(" ")[0] and not event.name.startswith("autograd::")
    return is_of_library or event.name.startswith(FUSED)
