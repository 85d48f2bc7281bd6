"""Measure one side of a case in turn with the process of the other side: by all clocks, then under the profiler.

The gate's own code measures both sides. Sides alternate iteration by iteration, so that both iterations of a pair see the same
speed of the machine, which changes within seconds on a shared one. A random draw decides which side begins a pair; the next
pair has the reverse order. Both processes call these functions with equal random generators.

CPU time is also measured while both sides run at once on their core. The kernel switches between them every few milliseconds,
so both see the same speed even if it changes during an iteration. Does not import torch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mnistbench.gate.sides.case import SAMPLE_NS, WARMUP_CALLS, Outcome, SideCase
from mnistbench.gate.sides.side import Side
from mnistbench.gate.sides.turns import Turns, in_pairs
from mnistbench.measuring.timing import Clock, Sample, clocked

#: Pairs of iterations of a build: (factor, fewest, most); the number is factor / sqrt(seconds of an iteration). For cases
#: whose pairs have the same variance, this minimizes the sum of the variances of the means (Neyman's allocation).
TIMED_PAIRS = (5.0, 6, 64)
PROFILED_PAIRS = (2.6, 5, 16)

#: The same if CPU time is also measured while both sides run at once: pairs, which then only show how much longer the wall time
#: is, and blocks of iterations.
FEW_PAIRS = (1.5, 5, 12)
BLOCKS = (3.5, 5, 16)

#: A call that takes longer, in nanoseconds, is not repeated to find out how long it takes.
LONG_NS = 100_000_000

#: Shortest block, in nanoseconds of CPU time of a side: several times the few milliseconds for which the kernel lets one of two
#: processes run.
BLOCK_NS = 60_000_000


@dataclass
class SideRun:
    """One side of one case, and its samples in nanoseconds."""

    side: Side
    case: SideCase
    alive: Callable[[], None] = lambda: None  # called after each timed iteration
    added: float = 0.0  # share of its time for which each iteration is made longer
    outcome: Outcome = field(init=False)  # after the warm-up
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)
    queued_ns: list[int] = field(default_factory=list)  # of wall_ns: another process had the core
    block_ns: list[int] = field(default_factory=list)  # CPU time of an iteration, mean of a block

    def run_case(self) -> Sample:
        """Run an iteration and return its times.

        Raises:
            SideError: the code of the side raises.
        """
        with self.side.errors_named():
            self.case.prepare()
            try:
                sample = self.case.clocked()
                return self._longer(sample) if self.added else sample
            finally:
                self.case.finish()
                self.alive()

    def _longer(self, sample: Sample) -> Sample:
        """Compute for a share of an iteration's time, right after it, and return the times of both together."""
        clock, ns = (Clock.cpu_ns, sample.cpu_ns) if _has_one_thread(self.case) else (Clock.wall_ns, sample.wall_ns)
        until_ns = clock() + round(self.added * ns)

        def spin() -> None:
            while clock() < until_ns:
                pass

        spun = clocked(spin)
        device_ns = None if sample.device_ns is None else sample.device_ns + spun.wall_ns
        return Sample(sample.wall_ns + spun.wall_ns, sample.cpu_ns + spun.cpu_ns, device_ns)


def measure(side_run: SideRun, turns: Turns, order: Sequence[str], coin: random.Random, *, shares_core: bool) -> dict[str, Any]:
    """Build a case, time and profile it in turn with the other side; return the samples of this side as JSON.

    Args:
        side_run: the side of this process.
        turns: of this side.
        order: in which the sides are built and warmed up.
        coin: decides which side begins a pair.
        shares_core: a case with one thread has one core, the same on both sides.

    Raises:
        SideError: the code of the side raises.
        PeerError: the process of the other side has ended.
    """
    for _ in turns.of(order):
        with side_run.side.errors_named():
            side_run.case.build()
    case, of_side = side_run.case, list[Any]()
    for _ in turns.of(order):
        of_side = [_warm_up(side_run), case.may_be_repeated, _has_operations(side_run), _has_one_thread(case)]
    durations_ns, repeatable, profilable, of_one_thread = zip(*turns.exchange(of_side), strict=True)
    longest = max(durations_ns)
    if all(repeatable):
        case.loops = max(1, round(SAMPLE_NS / longest))
        longest *= case.loops
    in_blocks = shares_core and all(of_one_thread)
    pairs = in_pairs(order, coin, _number(longest, *(FEW_PAIRS if in_blocks else TIMED_PAIRS)))
    _time(side_run, turns, pairs, of_one_thread=all(of_one_thread))
    if in_blocks:
        size = max(1, math.ceil(BLOCK_NS / longest))
        blocks = _number(size * longest, *BLOCKS)
        for _ in turns.at_once(itertools.islice(in_pairs(order, coin, blocks), blocks)):
            _time_block(side_run, size)
    found: dict[str, Any] = {
        "loops": case.loops,
        "by_share": case.by_share,
        "wall_ns": side_run.wall_ns,
        "queued_ns": side_run.queued_ns,
        "cpu_ns": side_run.cpu_ns,
        "device_ns": side_run.device_ns,
        "block_ns": side_run.block_ns,
        "parameters": case.parameters,
    }
    for _ in turns.of(order):
        digest, number = side_run.outcome
        with side_run.side.errors_named():
            found["outcome"] = digest, number if case.is_finite() else None
    if all(profilable):
        pairs = in_pairs(order, coin, _number(longest, *PROFILED_PAIRS))
        with side_run.side.errors_named():
            found |= case.operations(partial(turns.of, order), turns.of(pairs))
    return {"first": order[0], "sides": {side_run.side.name: found}}


def rehearse(side_run: SideRun) -> None:
    """Run and profile a case once, so that late imports (data set, optimizer, profiler) are done; discard the result.

    Raises:
        SideError: the code of the side raises.
    """
    with side_run.side.errors_named():
        side_run.case.build()
    side_run.run_case()
    if _has_operations(side_run):
        with side_run.side.errors_named():
            side_run.case.operations(lambda: [None], [None])


def _warm_up(side_run: SideRun) -> int:
    """Warm up, reset the case, and return the duration of an iteration in nanoseconds, with what precedes and follows it."""
    case = side_run.case
    case.loops, elapsed = 1, 0
    for _ in range(WARMUP_CALLS):
        began = Clock.wall_ns()
        side_run.run_case()
        elapsed = Clock.wall_ns() - began
    if case.may_be_repeated and elapsed < LONG_NS:
        elapsed = _calibrated(side_run)
    with side_run.side.errors_named():
        side_run.outcome = case.outcome()
        case.reset()
    return max(1, elapsed)


def _calibrated(side_run: SideRun) -> int:
    """Return the duration of one call of a short function, in nanoseconds: of ten times as many calls until they take long.

    The shortest of three samples counts, because another program may have the core for longer than a sample.
    """
    case = side_run.case
    while (elapsed := min(side_run.run_case().wall_ns for _ in range(3))) < SAMPLE_NS:
        case.loops *= 10
    each = elapsed // case.loops
    case.loops = 1
    return each


def _number(duration_ns: int, factor: float, fewest: int, most: int) -> int:
    """Return the number of pairs or blocks whose iterations take this time, the same for all sides."""
    return max(fewest, min(most, round(factor / math.sqrt(duration_ns / 1e9))))


def _time(side_run: SideRun, turns: Turns, pairs: Iterable[str], *, of_one_thread: bool) -> None:
    """Time iterations in turn with the other side.

    Args:
        side_run: receives the samples.
        turns: of this side.
        pairs: the side of each turn.
        of_one_thread: both sides have one thread, so the time in which other processes had its core is measured, unless the
            case starts processes itself.
    """
    began_with_children, ended_s = _children()
    for _ in turns.of(pairs):
        queued_ns = _queued_ns()
        sample = side_run.run_case()
        side_run.wall_ns.append(sample.wall_ns)
        if sample.device_ns is not None:
            side_run.device_ns.append(sample.device_ns)
        elif _has_one_thread(side_run.case):  # of several threads the CPU clock returns the sum
            side_run.cpu_ns.append(sample.cpu_ns)
        if of_one_thread:
            side_run.queued_ns.append(_queued_ns() - queued_ns)
    has_children, ended_later_s = _children()
    if any(turns.exchange(began_with_children or has_children or ended_later_s > ended_s)):
        side_run.queued_ns.clear()  # a process of the case may have had the core


def _queued_ns() -> int:
    """Return how long this thread could run while another one had its core; 0 where the system does not tell.

    Source: Documentation/scheduler/sched-stats.rst of Linux, "/proc/<pid>/schedstat".
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _children() -> tuple[bool, float]:
    """Return whether there are child processes, also if the system does not tell; and the CPU time of ended ones, seconds."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    has_children = True
    with contextlib.suppress(OSError):  # no such files, or a thread has ended meanwhile
        Path("/proc/thread-self/children").read_bytes()
        has_children = any(path.read_bytes() for path in Path("/proc/self/task").glob("*/children"))
    return has_children, ended.ru_utime + ended.ru_stime


def _has_operations(side_run: SideRun) -> bool:
    """Whether the case can be profiled; the first time, a call of a plain test is profiled to find out."""
    with side_run.side.errors_named():
        return side_run.case.has_operations


def _has_one_thread(case: SideCase) -> bool:
    return case.device == "cpu" and case.threads == 1 and not case.parallel


def _time_block(side_run: SideRun, iterations: int) -> None:
    spent = sum(side_run.run_case().cpu_ns for _ in range(iterations))
    side_run.block_ns.append(spent // iterations)
