"""Times of one case: the first iteration, pytest-benchmark's rounds, iterations by the events of an accelerator.

Nothing else runs inside a timed region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from mnistbench.core.record import OpTable
from mnistbench.measuring.case import Case, on_device
from mnistbench.measuring.clocks import Sample, clocked
from mnistbench.measuring.profiling import profile_first_call

#: Iterations after the first one and before the rounds, at every batch size: memory is allocated, algorithms are chosen.
WARMUP_CALLS = 2

#: Iterations timed by events on an accelerator, after the rounds; fewer for a whole epoch.
EVENT_CALLS = 20
EVENT_CALLS_OF_AN_EPOCH = 3

#: Outside pytest: seconds to fill with timed iterations; the fewest iterations and the most.
CALLS_S = 1.0
CALLS = (10, 1_000)

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Timed:
    """Results of the timed passes of a case."""

    rounds_ns: tuple[int, ...] = ()  # wall time per iteration of each round
    device_ns: tuple[int, ...] = ()  # single iterations on the accelerator's clock; empty on a CPU
    first_call: OpTable | None = field(default=None, repr=False)  # operations of the first iteration


def measure(case: Case, benchmark: Any, *, cold: bool, first_of_process: bool) -> Timed:
    """Run a case through a pytest-benchmark fixture.

    Args:
        case: a case that has not run yet.
        benchmark: pytest-benchmark's fixture; if it is disabled, the case runs once and nothing is measured.
        cold: profile the first iteration.
        first_of_process: no case has run in this process before.
    """
    if not benchmark.enabled:
        benchmark(case)
        return Timed()
    first_call = None
    if case.runner is not None:
        if cold:
            first_call = profile_first_call(case, first_of_process=first_of_process)
        for _ in range(WARMUP_CALLS):
            case()
        case.reset()
    try:
        benchmark(case)
    except BaseException:  # pytest-benchmark sets this for an Exception only: it would save what Ctrl-C interrupted
        benchmark.has_error = True
        raise
    rounds_ns = tuple(round(seconds * 1e9) for seconds in benchmark.stats.stats.data)
    return Timed(rounds_ns, device_times(case), first_call)


def time_calls(case: Case) -> tuple[int, ...]:
    """Return the wall time of single warm iterations from the case's initial state, in nanoseconds.

    Their number fills CALLS_S seconds, within the bounds CALLS.
    """
    for _ in range(WARMUP_CALLS):
        case()
    case.reset()
    times: list[int] = []
    least, most = CALLS
    while len(times) < least or (sum(times) < CALLS_S * 1e9 and len(times) < most):
        times.append(timed(case).wall_ns)
    return tuple(times)


def device_times(case: Case) -> tuple[int, ...]:
    """Return the elapsed time of single iterations on the accelerator's clock, in nanoseconds; empty on a CPU.

    An iteration ends with the host's wait for the device, so these times have the gaps between kernels. They begin at the
    initial state of the case: after more rounds, other weights give other times.
    """
    device = torch.device(case.params.device)
    if device.type == "cpu":
        return ()
    case.reset()
    with on_device(device):
        return tuple(event_ns(case, device) for _ in range(EVENT_CALLS if case.runner else EVENT_CALLS_OF_AN_EPOCH))


def timed(work: Callable[[], object], device: torch.device = _CPU) -> Sample:
    """Run one iteration and return its times.

    On an accelerator, its events enclose the readings of the other clocks.

    Args:
        work: has to wait for the device before it returns.
        device: the current accelerator if events are to be recorded.
    """
    if device.type == "cpu":
        return clocked(work)
    began, ended = _events(device)
    began.record()
    sample = clocked(work)
    ended.record()
    return sample._replace(device_ns=_elapsed_ns(began, ended))


def event_ns(work: Callable[[], object], device: torch.device) -> int:
    """Run one iteration and return its time on the clock of the current accelerator alone, in nanoseconds."""
    start, end = _events(device)
    start.record()
    work()
    end.record()
    return _elapsed_ns(start, end)


def _events(device: torch.device) -> tuple[Any, Any]:
    make_event = torch.get_device_module(device).Event
    return make_event(enable_timing=True), make_event(enable_timing=True)


def _elapsed_ns(start: Any, end: Any) -> int:
    end.synchronize()
    return round(float(start.elapsed_time(end)) * 1e6)  # from milliseconds
