"""Measure one side of a case in turn with the process of the other side.

By all clocks, then under the profiler.

The gate's own code measures both sides. Sides alternate iteration by iteration, so that both
iterations of a pair see the same speed of the machine, which changes within seconds on a shared
one. A random draw decides which side begins a pair; the next pair has the reverse order. Both
processes call these functions with equal random generators.

CPU time is also measured while both sides run at once on their core. The kernel switches between
them every few milliseconds, so both see the same speed even if it changes during an iteration. Does
not import torch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import random
import resource
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mnistbench.gate.sides.case import SAMPLE_NS, WARMUP_CALLS, Outcome, SideCase
from mnistbench.gate.sides.side import Side
from mnistbench.gate.sides.turns import Turns, in_pairs
from mnistbench.gate.words import FIRST, LEAST_PAIRS, PARTS, SETUP
from mnistbench.measuring.timing import Clock, Sample, clocked, with_queue

#: Pairs of iterations of a build: (factor, fewest, most); effort * factor / sqrt(seconds of an
#: iteration) are made. For cases whose pairs have the same variance, this minimizes the sum of the
#: variances of the means (Neyman's allocation).
TIMED_PAIRS = (5.0, 6, 64)
PROFILED_PAIRS = (2.6, 5, 16)

#: The same if CPU time is also measured while both sides run at once: pairs, which then only show
#: how much longer the wall time is, and blocks of iterations.
FEW_PAIRS = (1.5, 5, 12)
BLOCKS = (3.5, 5, 16)

#: A call that takes longer, in nanoseconds, is not repeated to find out how long it takes.
LONG_NS = 25_000_000
#: Shorter calls are repeated for this time, in nanoseconds.
ROUGH_NS = 1_000_000

#: Length of a block, in nanoseconds of CPU time of a side: several times the few milliseconds for
#: which the kernel lets one of two processes run.
BLOCK_NS = 60_000_000
#: The fewest blocks are shorter with a small effort, down to this, which is two such times, in
#: nanoseconds.
LEAST_BLOCK_NS = 6_000_000
#: With less than this effort, samples of short functions are shorter, too.
FULL_SAMPLES = 1 / 4
#: Shortest samples of short functions, as a share of those with a large effort.
LEAST_SAMPLE = 0.4

#: Most means of consecutive times that are stored instead of single ones; a pass that is no soak
#: has fewer times. Also most of the slowest iterations.
MOST = 100
#: Share of the slowest iterations.
SLOWEST = 0.01


@dataclass
class SideRun:
    """One side of one case, and its samples in nanoseconds."""

    side: Side
    case: SideCase
    node_id: str = ""
    added: float = 0.0  # share of its time for which each iteration is made longer
    efforts: tuple[float, float] = (1.0, 1.0)  # of timed and of profiled iterations
    used: tuple[float, float] = (0.0, 0.0)  # the efforts that the numbers of iterations amount to
    # Of both sides, for timed and for profiled iterations.
    seconds: tuple[float, float] = (0.0, 0.0)
    outcome: Outcome = field(init=False)  # after the warm-up
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)
    queued_ns: list[int] = field(default_factory=list)  # of wall_ns: another process had the core
    block_ns: list[int] = field(default_factory=list)  # CPU time of an iteration, mean of a block
    iterations: int = 0

    def columns(self) -> dict[str, Any]:
        """Return the samples as JSON.

        Times, or means of consecutive ones, and the slowest of single iterations in turn.
        """
        if len(self.queued_ns) != len(self.wall_ns):
            self.queued_ns.clear()  # the case started processes during a soak
        # Never below 0.
        alone_ns = sorted(map(operator.sub, self.wall_ns, self.queued_ns or itertools.repeat(0)))
        names = "wall_ns", "queued_ns", "cpu_ns", "device_ns", "block_ns"
        return {
            **{name: _shortened(getattr(self, name)) for name in names},
            "iterations": self.iterations,
            "slowest_ns": alone_ns[-min(MOST, math.ceil(SLOWEST * len(alone_ns))) :],
        }

    def counted(self, name: str) -> AbstractContextManager[None]:
        """Count the body as a cost of this case, until its first iteration here has ended."""
        is_over = self.node_id in self.side.once[FIRST]
        return contextlib.nullcontext() if is_over else self.side.counted(name, self.node_id)

    def build(self) -> None:
        """Build the case; raises errors as ``run_case``."""
        with self.side.errors_named(), self.counted(SETUP):
            self.case.build()

    def run_case(self, *, counts_queue: bool = False) -> Sample:
        """Run an iteration and return its times.

        Args:
            counts_queue: the case has one thread; the sample has the time in which another process
                had the core.

        Raises:
            SideError: the code of the side raises.
        """
        self.iterations += 1
        with self.side.errors_named():
            with self.counted(SETUP):
                self.case.prepare()
            try:
                return with_queue(self._clocked) if counts_queue else self._clocked()
            finally:
                self.case.finish()

    def _clocked(self) -> Sample:
        """Run the work of an iteration, without what precedes and follows it."""
        with self.counted(FIRST):
            sample = self.case.clocked()
        return self._longer(sample) if self.added else sample

    def _longer(self, sample: Sample) -> Sample:
        """Compute for a share of an iteration's time, right after it.

        Return the times of both together.
        """
        clock, ns = (
            (Clock.cpu_ns, sample.cpu_ns)
            if _has_one_thread(self.case)
            else (Clock.wall_ns, sample.wall_ns)
        )
        until_ns = clock() + round(self.added * ns)

        def spin() -> None:
            while clock() < until_ns:
                pass

        spun = clocked(spin)
        device_ns = None if sample.device_ns is None else sample.device_ns + spun.wall_ns
        return Sample(sample.wall_ns + spun.wall_ns, sample.cpu_ns + spun.cpu_ns, device_ns)


def measure(
    side_run: SideRun,
    turns: Turns,
    order: Sequence[str],
    coin: random.Random,
    *,
    shares_core: bool,
    soak_ns: float = 0,
) -> list[dict[str, Any]]:
    """Build a case, time and profile it in turn with the other side.

    Return its samples as JSON, those of a soak by part.

    Args:
        side_run: the side of this process.
        turns: of this side.
        order: in which the sides are built and warmed up.
        coin: decides which side begins a pair.
        shares_core: a case with one thread has one core, the same on both sides.
        soak_ns: time in which the case is timed and not profiled; 0 if this is no soak.

    Raises:
        SideError: the code of the side raises.
        PeerError: the process of the other side has ended.
    """
    for _ in turns.of(order):
        side_run.build()
    case = side_run.case
    of_side = list[Any]()
    for _ in turns.of(order):
        of_side = [_warm_up(side_run), case.may_be_repeated]
    durations_ns, repeatable = zip(*turns.exchange(of_side), strict=True)
    longest = max(durations_ns)
    if all(repeatable) and longest < LONG_NS:
        longest = _calibrated(side_run, turns, order)
    for _ in turns.of(order):
        with side_run.side.errors_named():
            side_run.outcome = case.outcome()
            case.reset()
        of_side = [_has_operations(side_run), _has_one_thread(case)]
    profilable, of_one_thread = zip(*turns.exchange(of_side), strict=True)
    if all(repeatable):
        sample_ns = SAMPLE_NS * max(LEAST_SAMPLE, min(1.0, side_run.efforts[0] / FULL_SAMPLES))
        case.loops = max(1, round(sample_ns / longest))
        longest *= case.loops
    began_ns = Clock.wall_ns()
    parts = list(
        _timed(side_run, turns, order, coin, longest, soak_ns, all(of_one_thread), shares_core)
    )
    timed_ns = Clock.wall_ns() - began_ns
    profiled = 0
    whole = 1
    for _ in turns.of(order):
        digest, number = side_run.outcome
        with side_run.side.errors_named():
            same = {
                "loops": case.loops,
                "by_share": case.by_share,
                "parameters": case.parameters,
                "outcome": (digest, number if case.is_finite() else None),
            }
    if all(profilable) and not soak_ns:
        began_ns = Clock.wall_ns()
        whole = _number(longest, *PROFILED_PAIRS)
        profiled = max(
            PROFILED_PAIRS[1], _number(longest, *PROFILED_PAIRS, effort=side_run.efforts[1])
        )
        with side_run.side.errors_named():
            same |= case.operations(
                partial(turns.of, order), turns.of(in_pairs(order, coin, profiled))
            )
    side_run.used = parts[0].used[0], profiled / whole
    side_run.seconds = timed_ns / 1e9, (Clock.wall_ns() - began_ns) / 1e9 if profiled else 0.0
    return [
        {"first": order[0], "sides": {side_run.side.name: part.columns() | same}} for part in parts
    ]


def _timed(
    side_run: SideRun,
    turns: Turns,
    order: Sequence[str],
    coin: random.Random,
    longest: int,
    soak_ns: float,
    of_one_thread: bool,
    shares_core: bool,
) -> Iterator[SideRun]:
    """Time iterations in turn, and at once if possible.

    Yield the samples; a soak has PARTS of equal time.
    """
    in_blocks = shares_core and of_one_thread
    effort = side_run.efforts[0]
    numbers = FEW_PAIRS if in_blocks else TIMED_PAIRS
    size = max(1, round(BLOCK_NS / longest))
    pairs = _number(longest, *numbers, effort=effort)
    block_ns = float(BLOCK_NS)
    blocks = 1
    used = pairs / _number(longest, *numbers)
    if in_blocks and not soak_ns:
        whole, blocks = (_number(size * longest, *BLOCKS, effort=part) for part in (1.0, effort))
        block_ns = max(LEAST_BLOCK_NS, BLOCK_NS * min(1.0, whole * effort / blocks))
        used = blocks * max(1, round(block_ns / longest)) / (whole * size)
    ends_ns: float = Clock.wall_ns()
    for _ in range(PARTS if soak_ns else 1):
        part = SideRun(
            side_run.side, side_run.case, side_run.node_id, side_run.added, used=(used, 0.0)
        )
        is_over = False
        ends_ns += soak_ns / PARTS
        while not is_over:
            size = max(1, round(block_ns / longest))
            _time(
                part,
                turns,
                in_pairs(order, coin, size if soak_ns else pairs),
                of_one_thread=of_one_thread,
            )
            for _ in (
                turns.at_once(itertools.islice(in_pairs(order, coin, blocks), blocks))
                if in_blocks
                else ()
            ):
                part.block_ns.append(sum(part.run_case().cpu_ns for _ in range(size)) // size)
            # Iterations may get longer, and rare ones are slow.
            later = [Clock.wall_ns() >= ends_ns, min(part.wall_ns[-3:])]
            over, durations_ns = zip(*turns.exchange(later), strict=True)
            is_over = any(over)
            longest = max(1, *durations_ns)
        yield part


def rehearse(side_run: SideRun) -> None:
    """Run and profile a case once, so that late imports (data set, optimizer, profiler) are done.

    Discard the result.

    Raises:
        SideError: the code of the side raises.
    """
    side_run.build()
    side_run.run_case()
    if _has_operations(side_run):
        with side_run.side.errors_named():
            side_run.case.operations(lambda: [None], [None])


def _warm_up(side_run: SideRun) -> int:
    """Warm up.

    Return the duration of an iteration in nanoseconds, with what precedes and follows it.
    """
    side_run.case.loops = 1
    elapsed = list[int]()
    for _ in range(WARMUP_CALLS):
        began = Clock.wall_ns()
        side_run.run_case()
        elapsed.append(Clock.wall_ns() - began)
    return max(1, min(elapsed))  # another program may have had the core


def _calibrated(side_run: SideRun, turns: Turns, order: Sequence[str]) -> int:
    """Return the duration of one call of a short function, in nanoseconds.

    Of more and more calls until they take long.

    The side that takes longer counts: both make the same number of calls, so what depends on it
    stays equal. Of each side the shortest of three samples counts, because another program may have
    the core for longer than a sample.
    """
    case = side_run.case
    elapsed = 0
    while True:
        for _ in turns.of(order):
            elapsed = min(side_run.run_case().wall_ns for _ in range(3))
        longest: int = max(turns.exchange(elapsed))
        if longest >= ROUGH_NS:
            return max(1, longest // case.loops)
        case.loops *= 10


def _number(duration_ns: int, factor: float, fewest: int, most: int, *, effort: float = 1.0) -> int:
    """Return the number of pairs or blocks whose iterations take this time.

    The same for all sides.
    """
    return max(
        LEAST_PAIRS,
        round(effort * max(fewest, min(most, round(factor / math.sqrt(duration_ns / 1e9))))),
    )


def _time(side_run: SideRun, turns: Turns, pairs: Iterable[str], *, of_one_thread: bool) -> None:
    """Time iterations in turn with the other side.

    Args:
        side_run: receives the samples.
        turns: of this side.
        pairs: the side of each turn.
        of_one_thread: both sides have one thread, so the time in which other processes had its core
            is measured, unless the case starts processes itself.
    """
    began_with_children, ended_s = _children()
    for _ in turns.of(pairs):
        sample = side_run.run_case(counts_queue=of_one_thread)
        side_run.wall_ns.append(sample.wall_ns)
        if sample.device_ns is not None:
            side_run.device_ns.append(sample.device_ns)
        elif _has_one_thread(side_run.case):  # of several threads the CPU clock returns the sum
            side_run.cpu_ns.append(sample.cpu_ns)
        if of_one_thread:
            side_run.queued_ns.append(sample.queued_ns)
    has_children, ended_later_s = _children()
    if any(turns.exchange(began_with_children or has_children or ended_later_s > ended_s)):
        side_run.queued_ns.clear()  # a process of the case may have had the core


def _shortened(times_ns: Sequence[int]) -> list[int]:
    """Return the times, or if they are more than MOST, the means of consecutive ones."""
    each = math.ceil(len(times_ns) / MOST) or 1
    return [
        round(statistics.fmean(times_ns[first : first + each]))
        for first in range(0, len(times_ns), each)
    ]


def _children() -> tuple[bool, float]:
    """Return whether there are child processes, also if the system does not tell.

    And the CPU time of ended ones, seconds.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    has_children = True
    with contextlib.suppress(OSError):  # no such files, or a thread has ended meanwhile
        Path("/proc/thread-self/children").read_bytes()
        has_children = any(path.read_bytes() for path in Path("/proc/self/task").glob("*/children"))
    return has_children, ended.ru_utime + ended.ru_stime


def _has_operations(side_run: SideRun) -> bool:
    """Whether the case can be profiled.

    The first time, a call of a plain test is profiled to find out.
    """
    with side_run.side.errors_named():
        return side_run.case.has_operations


def _has_one_thread(case: SideCase) -> bool:
    return case.device == "cpu" and case.threads == 1 and not case.parallel
