"""Measure one side of a case in lockstep with the process of the other side.

It is timed by all clocks, and then profiled.

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
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from mnistbench.core.machine import ended_children_s
from mnistbench.gate.processes.iterations import blocks_of, profiled_pairs, sample_ns, timed_pairs
from mnistbench.gate.processes.messages import ALL_ITERATIONS, Efforts
from mnistbench.gate.processes.sides.case import SideCase
from mnistbench.gate.processes.sides.side import Side
from mnistbench.gate.processes.sides.turns import Turns, in_pairs
from mnistbench.gate.words import COLD, FIRST, SETUP
from mnistbench.measuring.provider import imported_provider
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Clock, Sample, with_queue

#: A call that takes longer, in nanoseconds, is not repeated to find out how long it takes.
LONG_NS = 25_000_000
#: Shorter calls are repeated for this time, in nanoseconds.
ROUGH_NS = 1_000_000


@dataclass
class SideRun:
    """One side of one case, and its samples in nanoseconds."""

    side: Side
    case: SideCase
    node_id: str = ""
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)
    queued_ns: list[int] = field(default_factory=list)  # of wall_ns: another process had the core
    block_ns: list[int] = field(default_factory=list)  # CPU time of an iteration, mean of a block
    iterations: int = 0  # timed ones

    @property
    def has_one_thread(self) -> bool:
        """Whether CPU time is the time of the case: of several threads it is their sum."""
        return self.case.device == "cpu" and self.case.threads == 1 and not self.case.parallel

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
        with self._prepared():
            return with_queue(self._clocked) if counts_queue else self._clocked()

    def run_with_empty_cache(self) -> None:
        """Call the case with an empty cache of the compiler, and count what the call takes.

        Errors are those of ``run_case``.
        """
        with (
            imported_provider().empty_compiler_cache(),
            self._prepared(),
            self.side.counted(COLD, self.node_id),
        ):
            self.case.clocked()

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[None]:
        """Do what precedes and follows the work of an iteration, and name its errors."""
        with self.side.errors_named():
            with self.counted(SETUP):
                self.case.prepare()
            try:
                yield
            finally:
                self.case.finish()

    def _clocked(self) -> Sample:
        """Run the work of an iteration, without what precedes and follows it."""
        with self.counted(FIRST):
            return self.case.clocked()

    def has_operations(self) -> bool:
        """Return whether the case can be profiled.

        The first time, a call of a plain test is profiled to find out.
        """
        with self.side.errors_named():
            return self.case.has_operations


def rehearse(side_run: SideRun) -> None:
    """Run and profile a case once, so that late imports (data set, optimizer, profiler) are done.

    Discard the result.

    Raises:
        SideError: the code of the side raises.
    """
    side_run.build()
    side_run.run_case()
    if side_run.has_operations():
        with side_run.side.errors_named():
            side_run.case.operations(lambda: [None], [None], observes=False)


@dataclass(frozen=True)
class Measured:
    """What the measurement of a build has given and taken."""

    columns: dict[str, Any]  # samples of this side, as JSON
    efforts: Efforts  # numbers of iterations that it made / those of ALL_ITERATIONS
    timed_s: float  # what the timed iterations of both sides took
    profiled_s: float


def measure(
    side_run: SideRun,
    turns: Turns,
    order: Sequence[str],
    coin: random.Random,
    efforts: Efforts = ALL_ITERATIONS,
    *,
    shares_core: bool,
    is_compiled_anew: bool = False,
) -> Measured:
    """Build a case, time and profile it in lockstep with the other side.

    Args:
        side_run: the side of this process.
        turns: of this side.
        order: in which the sides are built and warmed up.
        coin: decides which side begins a pair.
        efforts: of this build.
        shares_core: a case with one thread has one core, the same on both sides.
        is_compiled_anew: call it with an empty cache of the compiler, too.

    Raises:
        SideError: the code of the side raises.
        PeerError: the process of the other side has ended.
    """
    steps = Lockstep(side_run, turns, order, coin)
    steps.build()
    if is_compiled_anew:
        steps.compile_anew()
    call_ns = steps.warm_up()
    iteration_ns = steps.calibrate(call_ns, efforts.timed)
    outcome = steps.read_outcome()
    began_ns = Clock.wall_ns()
    used_timed = steps.time_pairs(iteration_ns, efforts.timed, shares_core=shares_core)
    if steps.in_blocks:
        used_timed = steps.time_blocks(iteration_ns, efforts.timed)
    timed_ns = Clock.wall_ns() - began_ns
    columns = steps.times() | steps.describe(outcome)
    began_ns = Clock.wall_ns()
    operations, used_profiled = steps.profile(iteration_ns, efforts.profiled)
    profiled_ns = Clock.wall_ns() - began_ns if operations else 0
    return Measured(
        columns | operations,
        Efforts(used_timed, used_profiled),
        timed_s=timed_ns / 1e9,
        profiled_s=profiled_ns / 1e9,
    )


class Lockstep:
    """The steps in which two processes measure a case, each its own side.

    Both processes take the same steps in the same order. A step begins with the turns or with the
    exchange that it needs; whatever decides how many turns follow has been exchanged before.
    """

    def __init__(
        self, side_run: SideRun, turns: Turns, order: Sequence[str], coin: random.Random
    ) -> None:
        self._side_run = side_run
        self._case = side_run.case
        self._turns = turns
        self._order = order
        self._coin = coin
        self._has_operations = False  # of this side, known after read_outcome
        #: Whether CPU time is measured in blocks, too; known after time_pairs.
        self.in_blocks = False

    def build(self) -> None:
        """In turn: build the case."""
        for _ in self._turns.of(self._order):
            self._side_run.build()

    def compile_anew(self) -> None:
        """In turn: call the case with an empty cache of the compiler."""
        for _ in self._turns.of(self._order):
            self._side_run.run_with_empty_cache()

    def warm_up(self) -> int:
        """In turn: run the first iterations.

        Return the duration of an iteration of this side in nanoseconds, with what precedes and
        follows it.
        """
        durations_ns = list[int]()
        for _ in self._turns.of(self._order):
            self._case.loops = 1
            for _ in range(WARMUP_ITERATIONS):
                began_ns = Clock.wall_ns()
                self._side_run.run_case()
                durations_ns.append(Clock.wall_ns() - began_ns)
        return max(1, min(durations_ns))  # another program may have had the core

    def calibrate(self, own_call_ns: int, effort: float) -> int:
        """Exchange how long a call takes; choose how many calls an iteration has.

        Both sides get the same number, so what depends on it stays equal: the side that takes
        longer decides.

        Return the duration of an iteration of that side, in nanoseconds.
        """
        durations_ns, can_loop = zip(
            *self._turns.exchange([own_call_ns, self._case.can_loop]), strict=True
        )
        call_ns: int = max(durations_ns)
        if not all(can_loop):
            return call_ns
        if call_ns < LONG_NS:
            call_ns = self._short_call_ns()
        self._case.loops = max(1, round(sample_ns(effort) / call_ns))
        return call_ns * self._case.loops

    def _short_call_ns(self) -> int:
        """In turn: time more and more calls until they take long; return the duration of one.

        Of each side the shortest of three samples counts, because another program may have the core
        for longer than a sample.
        """
        own_ns = 0
        while True:
            for _ in self._turns.of(self._order):
                own_ns = min(self._side_run.run_case().wall_ns for _ in range(3))
            longest_ns: int = max(self._turns.exchange(own_ns))
            if longest_ns >= ROUGH_NS:
                return max(1, longest_ns // self._case.loops)
            self._case.loops *= 10

    def read_outcome(self) -> Any:
        """In turn: return what the case computes after the warm-up, and restore its first state."""
        outcome: Any = None
        for _ in self._turns.of(self._order):
            with self._side_run.side.errors_named():
                outcome = self._case.outcome()
                self._case.reset()
            self._has_operations = self._side_run.has_operations()
        return outcome

    def time_pairs(self, iteration_ns: int, effort: float, *, shares_core: bool) -> float:
        """Exchange whether the sides have one thread; in turn: time iterations.

        Of one thread the time in which other processes had its core is measured, unless the case
        starts processes itself.

        Return the effort that the number of pairs amounts to.
        """
        side_run = self._side_run
        have_one_thread = all(self._turns.exchange(side_run.has_one_thread))
        self.in_blocks = shares_core and have_one_thread
        pairs = timed_pairs(iteration_ns, effort, in_blocks=self.in_blocks)
        began_with_children, ended_before_s = child_processes()
        for _ in self._turns.of(in_pairs(self._order, self._coin, pairs)):
            sample = side_run.run_case(counts_queue=have_one_thread)
            side_run.wall_ns.append(sample.wall_ns)
            if sample.device_ns is not None:
                side_run.device_ns.append(sample.device_ns)
            elif side_run.has_one_thread:
                side_run.cpu_ns.append(sample.cpu_ns)
            if have_one_thread:
                side_run.queued_ns.append(sample.queued_ns)
        side_run.iterations += pairs
        has_children, ended_after_s = child_processes()
        has_started_some = ended_after_s > ended_before_s
        if any(self._turns.exchange(began_with_children or has_children or has_started_some)):
            side_run.queued_ns.clear()  # a process of the case may have had the core
        return pairs / timed_pairs(iteration_ns, 1.0, in_blocks=self.in_blocks)

    def time_blocks(self, iteration_ns: int, effort: float) -> float:
        """At once with the other side: measure the CPU time of blocks of iterations.

        Return the effort that their number and length amount to.
        """
        blocks, size, full_iterations = blocks_of(iteration_ns, effort)
        firsts = islice(in_pairs(self._order, self._coin, blocks), blocks)
        for _ in self._turns.at_once(firsts):
            cpu_ns = sum(self._side_run.run_case().cpu_ns for _ in range(size))
            self._side_run.block_ns.append(cpu_ns // size)
        self._side_run.iterations += blocks * size
        return blocks * size / full_iterations

    def times(self) -> dict[str, Any]:
        """Return the samples so far as JSON columns."""
        names = ("wall_ns", "queued_ns", "cpu_ns", "device_ns", "block_ns", "iterations")
        return {name: getattr(self._side_run, name) for name in names}

    def describe(self, outcome: Any) -> dict[str, Any]:
        """In turn: return what the case is and computes, as JSON.

        The number of the outcome is None if the timed iterations have led to no finite one.
        """
        described = dict[str, Any]()
        digest, number = outcome
        for _ in self._turns.of(self._order):
            with self._side_run.side.errors_named():
                described = {
                    "loops": self._case.loops,
                    "by_share": self._case.by_share,
                    "parameters": self._case.parameters,
                    "outcome": (digest, number if self._case.is_finite() else None),
                }
        return described

    def profile(self, iteration_ns: int, effort: float) -> tuple[dict[str, Any], float]:
        """Exchange whether the sides can be profiled; in turn: profile iterations.

        Return the operations as JSON columns, and the effort that the number of iterations amounts
        to; nothing and 0 if a side cannot be profiled.
        """
        if not all(self._turns.exchange(self._has_operations)):
            return {}, 0.0
        pairs = profiled_pairs(iteration_ns, effort)
        with self._side_run.side.errors_named():
            operations = self._case.operations(
                partial(self._turns.of, self._order),
                self._turns.of(in_pairs(self._order, self._coin, pairs)),
            )
        return operations, pairs / profiled_pairs(iteration_ns, 1.0)


def child_processes() -> tuple[bool, float]:
    """Return whether there are child processes, also if the system does not tell.

    The CPU time of ended ones, in seconds, is returned, too.
    """
    ended_s = ended_children_s()
    has_children = True
    with contextlib.suppress(OSError):  # no such files, or a thread has ended meanwhile
        Path("/proc/thread-self/children").read_bytes()
        has_children = any(path.read_bytes() for path in Path("/proc/self/task").glob("*/children"))
    return has_children, ended_s
