"""Find the work that a call puts off: threads and processes that go on after it returns."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from mnistbench.core import units
from mnistbench.core.machine import running_children

#: Time in which a thread that a call has given work gets a core, in seconds.
_FIRST_TURN_S = 0.001
#: Time for which threads and processes that may work are watched, in seconds.
_WATCHED_S = 0.01
#: CPU time, in nanoseconds, of a thread or process that works. One that only ends its turn or waits
#: for the next needs a tenth of it.
_WORKING_NS = 500_000


class _CoreTime(NamedTuple):
    """How much a thread or a process has run."""

    cpu_ns: int = 0
    turns: int = 0  # how often it got a core; constant while it waits


class Watch:
    """Finds what goes on after each of several calls, so that its work is not timed.

    Threads and processes that a call has started and not waited for, and earlier ones that work
    after it, as those of a pool do. Those that worked before the call are not of it. If no earlier
    one got a core, the watch does not wait.
    """

    def __init__(self) -> None:
        """Begin to watch."""
        self._threads_before = frozenset[int]()
        self._processes_before = frozenset[int]()
        self._threads_at_return = frozenset[int]()
        self._times_before: dict[int, _CoreTime] = {}
        self._busy_before = frozenset[int]()
        self._others_ns = 0

    def begin(self) -> None:
        """Note what runs before a call."""
        self._threads_before = _threads()
        self._processes_before = running_children()
        earlier = self._threads_before | self._processes_before
        times = _core_times(earlier)
        had_turns = {
            number for number in earlier if times[number] != self._times_before.get(number)
        }
        self._busy_before = _working(had_turns)
        self._times_before = _core_times(earlier) if had_turns else times

    def note_return(self) -> None:
        """Note which threads there are when the call returns.

        Reads no file: that would let another thread have the interpreter, and end.
        """
        self._threads_at_return = _threads()
        self._others_ns = _of_other_threads_ns()

    def outliving(self, tasks: int = 0) -> str:
        """Return what goes on; empty if nothing does.

        Args:
            tasks: of an event loop, which the call has started and not awaited.
        """
        processes = running_children()
        started_threads = self._threads_at_return - self._threads_before
        started_processes = processes - self._processes_before
        earlier_threads = self._threads_at_return & self._threads_before
        earlier = (earlier_threads | (processes & self._processes_before)) - self._busy_before
        had_turns = self._with_turns(earlier)
        working_processes = _working(had_turns & processes)
        working_threads = self._working_threads(had_turns & earlier_threads)
        return _outliving_text(
            len(started_threads) + len(working_threads),
            len(started_processes) + len(working_processes),
            tasks,
        )

    def _with_turns(self, numbers: frozenset[int]) -> frozenset[int]:
        """Return the threads and processes that got a core since the call began."""
        if numbers:
            time.sleep(_FIRST_TURN_S)
        return frozenset(
            number
            for number, times in _core_times(numbers).items()
            if times != self._times_before[number]
        )

    def _working_threads(self, threads: Collection[int]) -> frozenset[int]:
        """Return those that have worked since the call returned."""
        if not threads:
            return frozenset()
        time.sleep(_WATCHED_S)
        if _of_other_threads_ns() - self._others_ns < _WORKING_NS:
            return frozenset()
        return frozenset(
            thread
            for thread, times in _core_times(threads).items()
            if times.cpu_ns - self._times_before[thread].cpu_ns >= _WORKING_NS
        )


def _outliving_text(threads: int, processes: int, tasks: int) -> str:
    counts = [
        units.counted(count, noun, plural)
        for count, noun, plural in (
            (threads, "thread", "threads"),
            (processes, "process", "processes"),
            (tasks, "task", "tasks"),
        )
        if count
    ]
    if not counts:
        return ""
    is_one = threads + processes + tasks == 1
    goes_on = "goes on" if is_one else "go on"
    whose = "its" if is_one else "their"
    return f"{' and '.join(counts)} {goes_on} after the call returns, and {whose} work is not timed"


def _of_other_threads_ns() -> int:
    """Return the CPU time of all threads of the process but this one, in nanoseconds."""
    return time.process_time_ns() - time.thread_time_ns()


def _threads() -> frozenset[int]:
    own = threading.get_native_id()
    return frozenset(
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id is not None and thread.native_id != own
    )


def _working(numbers: Collection[int]) -> frozenset[int]:
    """Return the threads and processes that use a core now; look for _WATCHED_S at them."""
    if not numbers:
        return frozenset()
    before = _core_times(numbers)
    time.sleep(_WATCHED_S)
    return frozenset(
        number
        for number, times in _core_times(numbers).items()
        if times.cpu_ns - before[number].cpu_ns >= _WORKING_NS
    )


def _core_times(numbers: Collection[int]) -> dict[int, _CoreTime]:
    """Return what each of some threads of this process, and processes, has used; 0 if unknown.

    Source: Documentation/scheduler/sched-stats.rst of Linux, "/proc/<pid>/schedstat".
    """
    return {number: _core_time(number) for number in numbers}


def _core_time(number: int) -> _CoreTime:
    own = Path(f"/proc/self/task/{number}/schedstat")
    paths = [own] if own.exists() else Path(f"/proc/{number}/task").glob("*/schedstat")
    cpu_ns = turns = 0
    for path in paths:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().split()
            cpu_ns += int(fields[0])
            turns += int(fields[2])
    return _CoreTime(cpu_ns, turns)
