"""Time one call by the wall clock and by the CPU clock. Does not import torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Sample(NamedTuple):
    """Times of one iteration, in nanoseconds."""

    wall_ns: int
    cpu_ns: int  # summed over all threads of the process
    device_ns: int | None = None  # on the accelerator's own clock; None on a CPU


def clocked(work: Callable[[], object]) -> Sample:
    """Run one iteration and return its times.

    Only ``work`` runs between the two readings of the wall clock. Those of the CPU clock enclose them.

    Args:
        work: has to wait for the device before it returns.
    """
    cpu_start, start = time.process_time_ns(), time.perf_counter_ns()
    work()
    end, cpu_end = time.perf_counter_ns(), time.process_time_ns()
    return Sample(end - start, cpu_end - cpu_start)
