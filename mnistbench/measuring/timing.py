"""Time a function by the wall clock and the CPU clock. Does not import torch.

Nothing but the function runs between the two readings of a clock. It has to wait for the device
before it returns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: Warm-up iterations of a case, at every batch size: memory is allocated, algorithms are chosen,
#: and the optimizer creates its state.
WARMUP_ITERATIONS = 2


def _queued_ns() -> int:
    """Return how long this thread could run while another one had its core.

    0 where the system does not tell.

    Source: Documentation/scheduler/sched-stats.rst of Linux, "/proc/<pid>/schedstat".
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class Clock:
    """The clocks of the process.

    Packages that replace the functions of ``time`` in tests do not find those of a class.
    """

    wall_ns = staticmethod(time.perf_counter_ns)
    cpu_ns = staticmethod(time.process_time_ns)
    thread_ns = staticmethod(time.thread_time_ns)
    queued_ns = staticmethod(_queued_ns)


class Sample(NamedTuple):
    """Times of one iteration, in nanoseconds."""

    wall_ns: int
    cpu_ns: int  # summed over all threads of the process
    device_ns: int | None = None  # on the accelerator's own clock; None on a CPU
    # Part of wall_ns in which another process had the core; 0 if that is not known.
    queued_ns: int = 0

    @property
    def alone_ns(self) -> int:
        """Wall time without the time in which another process had the core."""
        return self.wall_ns - self.queued_ns


def clocked(work: Callable[[], object]) -> Sample:
    """Run one iteration and return its times.

    The readings of the CPU clock enclose those of the wall clock.
    """
    wall_ns = Clock.wall_ns
    cpu_ns = Clock.cpu_ns
    # The frames of ``work`` follow this one in memory, on a page that is not mapped yet. A call now
    # takes the page fault, so that it is not timed.
    (lambda: None)()  # noqa: PLC3002
    cpu_start = cpu_ns()
    start = wall_ns()
    work()
    end = wall_ns()
    cpu_end = cpu_ns()
    return Sample(end - start, cpu_end - cpu_start)


# CPython keeps Python's frames in chunks of 16 KiB. If the frame of a call does not fit into the
# rest of a chunk, the call maps another chunk until it returns, which takes some microseconds, and
# depends on the depth of the stack. The frame of ``clocked`` is larger than a chunk, so CPython
# maps a chunk for it, with at least 1,000 slots behind it (MINIMUM_OVERHEAD in Python/pystate.c).
# The frames of ``work`` are there.
clocked.__code__ = clocked.__code__.replace(co_stacksize=4096)


def with_queue(run_iteration: Callable[[], Sample]) -> Sample:
    """Run an iteration of one thread.

    Return its times with the part in which another process had the core.

    Between the readings of the queue is nothing but the iteration: its setup may wait for the core,
    too. The queue is read before the clocks start and after they stop. If the thread loses its core
    in between, it has queued for longer than the clocks can show, so the part is at most wall time
    minus CPU time.
    """
    before_ns = Clock.queued_ns()
    sample = run_iteration()
    queued_ns = Clock.queued_ns() - before_ns
    return sample._replace(queued_ns=min(queued_ns, max(0, sample.wall_ns - sample.cpu_ns)))


def times_ns(
    work: Callable[[], object],
    *,
    seconds: float,
    least: int,
    most: int = sys.maxsize,
    untimed: int = 0,
) -> tuple[int, ...]:
    """Run iterations until they fill a time; return the wall time of each, in nanoseconds.

    Args:
        work: one iteration.
        seconds: time to fill.
        least: number of timed iterations, even if they take longer.
        most: largest number of timed iterations, even if they do not fill the time.
        untimed: iterations before the timed ones.
    """
    for _ in range(untimed):
        work()
    iterations_ns: list[int] = []
    left_ns = seconds * 1e9
    while len(iterations_ns) < least or (left_ns > 0 and len(iterations_ns) < most):
        iterations_ns.append(clocked(work).wall_ns)
        left_ns -= iterations_ns[-1]
    return tuple(iterations_ns)
