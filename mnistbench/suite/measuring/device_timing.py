"""Time a function by the events of an accelerator, beside the clocks of ``measuring/timing``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mnistbench.measuring.timing import Sample, clocked


def timed(work: Callable[[], object], device: torch.device | None = None) -> Sample:
    """Run one iteration and return its times.

    On an accelerator, its events enclose the readings of the other clocks.
    """
    if device is None or device.type == "cpu":
        return clocked(work)
    began, ended = _events(device)
    began.record()
    sample = clocked(work)
    ended.record()
    return sample._replace(device_ns=_elapsed_ns(began, ended))


def event_ns(work: Callable[[], object], device: torch.device) -> int:
    """Run one iteration and return its time, in nanoseconds.

    The clock is that of the current accelerator alone.
    """
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
