"""One case measured: the cold call, pytest-benchmark's rounds, device time by events. Nothing else runs while it times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from mnistbench.measuring.case import Case
from mnistbench.measuring.profiling import profile_first_call

#: Calls after the cold one and before the rounds, at every batch size: memory is allocated, algorithms are chosen.
WARMUP_CALLS = 2

#: Calls timed by events on an accelerator, after the rounds; fewer of a whole epoch.
EVENT_CALLS = 20
EVENT_CALLS_OF_AN_EPOCH = 3

#: Outside pytest: seconds that calls are timed for, the fewest calls and the most.
CALLS_S = 1.0
CALLS = (10, 1_000)


def measure(case: Case, benchmark: Any, *, cold: bool, first_of_process: bool) -> tuple[int, ...]:
    """Run a case through a pytest-benchmark fixture; return device times in nanoseconds (none on a CPU).

    Leaves the cold table and the rounds on the case.

    Args:
        case: just built, never called.
        benchmark: pytest-benchmark's fixture; where that is disabled, the case runs once and nothing is measured.
        cold: profile the first call.
        first_of_process: no case has run in this process before.
    """
    if not benchmark.enabled:
        benchmark(case)
        return ()
    if case.runner is not None:
        if cold:
            case.first_call = profile_first_call(case, first_of_process=first_of_process)
        for _ in range(WARMUP_CALLS):
            case()
        case.reset()
    try:
        benchmark(case)
    except BaseException:  # pytest-benchmark marks what an Exception ended; Ctrl-C would be saved as if whole
        benchmark.has_error = True
        raise
    case.rounds_ns = tuple(round(seconds * 1e9) for seconds in benchmark.stats.stats.data)
    return device_times(case)


def time_calls(case: Case) -> tuple[int, ...]:
    """Return the wall time of single warm calls from the case's initial state, in nanoseconds.

    As many calls as fill CALLS_S seconds, between the fewest and the most of CALLS.
    """
    for _ in range(WARMUP_CALLS):
        case()
    case.reset()
    times: list[int] = []
    least, most = CALLS
    while len(times) < least or (sum(times) < CALLS_S * 1e9 and len(times) < most):
        start = time.perf_counter_ns()
        case()
        times.append(time.perf_counter_ns() - start)
    return tuple(times)


def device_times(case: Case) -> tuple[int, ...]:
    """Return the time of single calls on the accelerator's own clock, in nanoseconds; none on a CPU."""
    device = torch.device(case.params.device)
    if device.type == "cpu":
        return ()
    with on_device(device):
        return tuple(event_ns(case, device) for _ in range(EVENT_CALLS if case.runner else EVENT_CALLS_OF_AN_EPOCH))


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make an accelerator the current one while the body runs: events are recorded there."""
    return torch.accelerator.device_index(device.index or 0) if device.type != "mps" else contextlib.nullcontext()


def event_ns(call: Callable[[], None], device: torch.device) -> int:
    """Return the time of one call on the clock of the current accelerator, in nanoseconds."""
    make_event = torch.get_device_module(device).Event
    start, end = make_event(enable_timing=True), make_event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return round(float(start.elapsed_time(end)) * 1e6)  # milliseconds
