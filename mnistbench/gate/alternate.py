"""Measure one side of a case in turn with the process of the other side: by all clocks, then under the profiler.

The gate's own code measures both sides. Sides alternate iteration by iteration, so that both iterations of a pair see the same
speed of the machine, which changes within seconds on a shared one. A random draw decides which side begins a pair; the next
pair has the reverse order. Both processes call these functions with equal random generators.

CPU time is also measured while both sides run at once on their core. The kernel switches between them every few milliseconds,
so both see the same speed even if it changes during an iteration.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import math
import random
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
from torch.autograd.profiler import profile as allocations_profile
from torch.profiler import record_function

from mnistbench.core.gc_pause import gc_paused
from mnistbench.core.record import OpTable, finite
from mnistbench.gate.side import Side
from mnistbench.gate.turns import Turns
from mnistbench.measuring.events_to_table import events_of, table
from mnistbench.measuring.host_events import host_events
from mnistbench.measuring.marks import ITERATION, marked
from mnistbench.measuring.profiling import activities_of, has_device_view, started
from mnistbench.measuring.timing import on_device, timed

#: Warm-up iterations of a side: memory is allocated, algorithms are chosen, the optimizer creates its state.
WARMUP_CALLS = 2

#: Pairs of iterations of a build: (factor, fewest, most); the number is factor / sqrt(seconds of an iteration). For cases
#: whose pairs have the same variance, this minimizes the sum of the variances of the means (Neyman's allocation).
TIMED_PAIRS = (5.0, 6, 64)
PROFILED_PAIRS = (2.6, 5, 16)

#: The same if CPU time is also measured while both sides run at once: pairs, which then only show how much longer the wall time
#: is, and blocks of iterations.
FEW_PAIRS = (1.5, 5, 12)
BLOCKS = (3.5, 5, 16)

#: Shortest block, in nanoseconds of CPU time of a side: several times the few milliseconds for which the kernel lets one of two
#: processes run.
BLOCK_NS = 60_000_000


class Case(Protocol):
    """The part of a side's ``mnistbench.measuring.case.Case`` that the gate uses."""

    params: Any
    model: nn.Module
    inputs: torch.Tensor | None
    runner: Any

    @property
    def parameter_count(self) -> int:
        """Number of trainable parameters of the model."""

    def __call__(self) -> None:
        """Run the measured work once and wait for the device."""

    def reset(self) -> None:
        """Restore the initial weights, optimizer state and random state."""


@dataclass
class SideRun:
    """One side of one case: how to build it, and its samples in nanoseconds."""

    side: Side
    build: Callable[[], Case]
    case: Case = field(init=False)
    outcome: tuple[str, float | None] = field(init=False)  # after the warm-up
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)
    queued_ns: list[int] = field(default_factory=list)  # of wall_ns: another process had the core
    block_ns: list[int] = field(default_factory=list)  # CPU time of an iteration, mean of a block

    @property
    def device(self) -> torch.device:
        """The device of the case."""
        return torch.device(self.case.params.device)

    def run_case(self) -> None:
        """Run the measured work once.

        Raises:
            SideError: the code of the side raises.
        """
        with self.side.errors_named():
            self.case()


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
        _build(side_run)
    iteration_ns = 0
    for _ in turns.of(order):
        iteration_ns = _warm_up(side_run)
    of_side = [iteration_ns, side_run.case.runner is not None, _has_one_thread(side_run)]
    durations_ns, have_runners, have_one_thread = zip(*turns.exchange(of_side), strict=True)
    longest = max(durations_ns)
    in_blocks = shares_core and all(have_one_thread)
    pairs = _pairs(order, coin, _number(longest, *(FEW_PAIRS if in_blocks else TIMED_PAIRS)))
    _time(side_run, turns, pairs, of_one_thread=all(have_one_thread))
    if in_blocks:
        size = max(1, math.ceil(BLOCK_NS / longest))
        for _ in turns.at_once(_number(size * longest, *BLOCKS)):
            _time_block(side_run, size)
    found: dict[str, Any] = {
        "wall_ns": side_run.wall_ns,
        "queued_ns": side_run.queued_ns,
        "cpu_ns": side_run.cpu_ns,
        "device_ns": side_run.device_ns,
        "block_ns": side_run.block_ns,
        "parameters": side_run.case.parameter_count,
    }
    for _ in turns.of(order):
        found["outcome"] = _checked_outcome(side_run)
    if all(have_runners):
        pairs = _pairs(order, coin, _number(longest, *PROFILED_PAIRS))
        found |= operations(_profiled(side_run, partial(turns.of, order), turns.of(pairs)))
    return {"first": order[0], "sides": {side_run.side.name: found}}


def rehearse(side_run: SideRun) -> None:
    """Run and profile a case once, so that late imports (data set, optimizer, profiler) are done; discard the result.

    Raises:
        SideError: the code of the side raises.
    """
    _build(side_run)
    side_run.run_case()
    if side_run.case.runner is not None:
        _profiled(side_run, lambda: [None], [None])


def _build(side_run: SideRun) -> None:
    torch.set_num_threads(1)  # the previous case may have more; the initial weights must not depend on it
    seed_all(0)  # the case seeds torch's generator; a user's model may use the others
    with side_run.side.errors_named():
        side_run.case = side_run.build()
    torch.set_num_threads(side_run.side.threads_of(side_run.case.params))


def seed_all(seed: int) -> None:
    """Seed all generators that a step may use."""
    torch.manual_seed(seed)
    random.seed(seed)
    with contextlib.suppress(ModuleNotFoundError):  # the environment of a side may have torch and pytest alone
        import numpy as np

        np.random.seed(seed)  # noqa: NPY002  # the global one is what a user's code may draw from


def _warm_up(side_run: SideRun) -> int:
    """Warm up, reset the case, and return the wall time of the last iteration in nanoseconds."""
    with side_run.side.errors_named():
        for _ in range(WARMUP_CALLS):
            elapsed = timed(side_run.case).wall_ns
    side_run.outcome = outcome(side_run)
    with side_run.side.errors_named():
        side_run.case.reset()
    return elapsed


def _number(duration_ns: int, factor: float, fewest: int, most: int) -> int:
    """Return the number of pairs or blocks whose iterations take this time, the same for all sides."""
    return max(fewest, min(most, round(factor / math.sqrt(duration_ns / 1e9))))


def _pairs(names: Sequence[str], coin: random.Random, pairs: int) -> Iterator[str]:
    """Yield the sides pair by pair: in random order, then in the reverse order, and so on."""
    order = list(names)
    for pair in range(pairs):
        order = order[::-1] if pair % 2 else coin.sample(order, len(order))
        yield from order


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
        with side_run.side.errors_named(), on_device(side_run.device):
            sample = timed(side_run.case, side_run.device)
        side_run.wall_ns.append(sample.wall_ns)
        if sample.device_ns is not None:
            side_run.device_ns.append(sample.device_ns)
        elif _has_one_thread(side_run):  # of several threads the CPU clock returns the sum
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


def _has_one_thread(side_run: SideRun) -> bool:
    return side_run.device.type == "cpu" and side_run.side.threads_of(side_run.case.params) == 1


def _time_block(side_run: SideRun, iterations: int) -> None:
    with side_run.side.errors_named():
        began = time.process_time_ns()
        for _ in range(iterations):
            side_run.case()
        side_run.block_ns.append((time.process_time_ns() - began) // iterations)


def outcome(side_run: SideRun) -> tuple[str, float | None]:
    """Return a hash of all weights and of the output, and the mean of the output (or the sum of absolute weights).

    On one thread of a CPU the same code returns the same hash, so different hashes mean different computations.
    """
    with side_run.side.errors_named(), torch.inference_mode():
        case = side_run.case
        state = case.model.state_dict().values()  # contains other objects for modules with get_extra_state
        found = [tensor.detach().cpu().contiguous() for tensor in state if isinstance(tensor, torch.Tensor)]
        number = sum(float(tensor.double().abs().sum()) for tensor in found)
        training = case.model.training
        if case.inputs is not None:
            output = case.model.eval()(case.inputs)
            case.model.train(training)
            if isinstance(output, torch.Tensor):
                found.append(output.cpu().contiguous())
                number = float(output.double().mean())
        digest = hashlib.sha256()
        for tensor in found:
            content = tensor.reshape(-1).view(torch.uint8)
            digest.update(ctypes.string_at(content.data_ptr(), content.numel()))  # tensor.numpy() needs numpy
    return digest.hexdigest()[:16], finite(number)


def _checked_outcome(side_run: SideRun) -> tuple[str, float | None]:
    """Return the outcome of the warm-up, with None as its number if the timed iterations led to NaN or infinity."""
    digest, number = side_run.outcome
    return digest, number if outcome(side_run)[1] is not None else None


# ---- Operations ------------------------------------------------------------------------------------------------------


def _profiled(side_run: SideRun, one_turn: Callable[[], Iterable[None]], turns: Iterable[None]) -> OpTable:
    """Profile iterations.

    Args:
        side_run: of a case that has a runner.
        one_turn: returns a turn of this side.
        turns: one for each profiled iteration.
    """
    for _ in one_turn():
        with side_run.side.errors_named():
            side_run.case.reset()
        side_run.run_case()  # the optimizer creates its state
    device = side_run.case.params.device
    view = "device" if has_device_view(device) else "host"
    profiler = torch.profiler.profile(activities=activities_of(device, view), profile_memory=True)
    with started(profiler), marked(side_run.case):  # type: ignore[arg-type]  # the side's own Case
        for _ in one_turn():
            side_run.run_case()  # the profiler allocates its buffers
        for _ in turns:
            with record_function(ITERATION):
                side_run.run_case()
    with gc_paused():
        events = host_events(profiler) if view == "host" else events_of(profiler)
        return table(events, temperature="warm", view=view)


def operations(profile: OpTable) -> dict[str, Any]:
    """Return a table as JSON columns: counts, and the self times of every iteration in nanoseconds."""
    clock = profile.clock
    return {
        "iteration_ns": list(profile.iteration_ns),
        "keys": [list(row.key) for row in profile.rows],
        "calls": [row.calls for row in profile.rows],
        "memory_bytes": [row.memory_bytes for row in profile.rows],
        "kernels": [list(row.kernels) for row in profile.rows],
        "self_ns": [list(row.self_cpu_ns if clock == "cpu" else row.self_device_ns) for row in profile.rows],
    }


# ---- Memory ----------------------------------------------------------------------------------------------------------


def peak_memory(side_run: SideRun) -> int | None:
    """Build and warm up a case, and return the peak memory of tensors in the next iteration, in bytes.

    On a CPU this is the memory of tensors that existed before the build plus what the allocator reports from then on, which
    includes temporary buffers inside operations. On an accelerator it is the peak that its allocator reports. None on other
    devices, and for whole epochs and data, which run once.

    Raises:
        SideError: the code of the side raises.
    """
    before = sum(live_storages().values())
    with allocations_profile(profile_memory=True) as profiler:
        _build(side_run)
        of_cpu = side_run.case.runner is not None and side_run.device.type == "cpu"
        if of_cpu:
            _warm_iterations(side_run)
            with gc_paused(), record_function(ITERATION):
                side_run.run_case()
    if of_cpu:
        return before + _peak_bytes(profiler)
    if side_run.case.runner is None:
        side_run.run_case()
        return None
    _warm_iterations(side_run)
    return _peak_of_device(side_run)


def _warm_iterations(side_run: SideRun) -> None:
    for _ in range(WARMUP_CALLS):
        side_run.run_case()


def live_storages() -> dict[int, int]:
    """Return the bytes of each CPU storage in use, by address, without those of objects frozen by ``gc.freeze``."""
    gc.collect()
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.layout is torch.strided:
            try:
                storage = thing.untyped_storage()
                if storage.device.type == "cpu":  # a fake tensor has the device of a CPU tensor, its storage has not
                    found[storage.data_ptr()] = storage.nbytes()
            except (NotImplementedError, RuntimeError):
                continue  # a wrapper without a storage
    return found


def _peak_bytes(profiler: allocations_profile) -> int:
    """Return the peak of the recorded allocations during the marked iteration, in bytes."""
    recorded: Any = profiler.kineto_results
    events = recorded.events()
    [iteration] = [event for event in events if event.name() == ITERATION]
    began, ended = iteration.start_ns(), iteration.start_ns() + iteration.duration_ns()
    allocations = [e for e in events if e.name() == "[memory]" and e.device_type() == DeviceType.CPU]
    current = peak = 0
    for event in sorted(allocations, key=lambda event: event.start_ns()):
        if event.start_ns() > ended:
            break
        if event.start_ns() >= began:
            peak = max(peak, current)
        current += event.nbytes()
    return max(peak, current)


def _peak_of_device(side_run: SideRun) -> int | None:
    device = side_run.device
    if device.type not in {"cuda", "xpu"}:
        return None
    of_device = torch.get_device_module(device)
    of_device.reset_peak_memory_stats(device)
    side_run.run_case()
    return int(of_device.max_memory_allocated(device))
