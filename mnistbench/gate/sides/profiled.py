"""Profile iterations of a side in turn with the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.profiler import record_function

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import ITERATION
from mnistbench.core.record import OpTable
from mnistbench.measuring.events_to_table import events_of, table
from mnistbench.measuring.host_events import host_events
from mnistbench.measuring.profiling import activities_of, has_device_view, started


def profiled(
    run: Callable[[], object],
    marks: AbstractContextManager[object],
    device: str,
    one_turn: Callable[[], Iterable[None]],
    turns: Iterable[None],
    *,
    around: Callable[[Callable[[], object]], object] = lambda run: run(),
) -> OpTable:
    """Profile iterations and return their operations.

    Args:
        run: runs one iteration.
        marks: entered while the profiler runs.
        device: of the iterations.
        one_turn: returns a turn of this side.
        turns: one for each profiled iteration.
        around: calls its argument, between what precedes and what follows an iteration.
    """

    def marked() -> None:
        with record_function(ITERATION):
            run()

    view = "device" if has_device_view(device) else "host"
    profiler = torch.profiler.profile(activities=activities_of(device, view), profile_memory=True)
    with started(profiler), marks:
        for _ in one_turn():
            around(run)  # the profiler allocates its buffers
        for _ in turns:
            around(marked)
    with gc_paused():
        events = host_events(profiler) if view == "host" else events_of(profiler)
        return table(events, temperature="warm", view=view, device=device)


def columns(profile: OpTable) -> dict[str, Any]:
    """Return a table as JSON columns: counts, and the self times of every iteration in nanoseconds."""
    clock = profile.clock
    return {
        "iteration_ns": list(profile.iteration_ns),
        "busy_ns": list(profile.busy_ns),
        "keys": [list(row.key) for row in profile.rows],
        "calls": [row.calls for row in profile.rows],
        "memory_bytes": [row.memory_bytes for row in profile.rows],
        "kernels": [list(row.kernels) for row in profile.rows],
        "self_ns": [list(row.self_cpu_ns if clock == "cpu" else row.self_device_ns) for row in profile.rows],
    }
