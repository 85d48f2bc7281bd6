"""Measure the sides of a launch: iterations in alternation, by all clocks, then under the profiler.

The gate's own code measures both sides. Sides alternate iteration by iteration, so that both iterations of a pair see the same
speed of the machine, which changes within seconds on a shared one. A random draw decides which side begins a pair; the next
pair has the reverse order. If each side has a process of its own, both processes call these functions with equal random
generators, and each one runs the turns of its side.
"""

from __future__ import annotations

import gc
import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
from torch.autograd.profiler import profile as allocations_profile
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.gc_pause import gc_paused
from mnistbench.core.record import OpTable, finite
from mnistbench.gate.turns import OneProcess
from mnistbench.measuring.events_to_table import events_of, table
from mnistbench.measuring.marks import ITERATION, marked
from mnistbench.measuring.timing import on_device, timed

#: Warm-up iterations of a side: memory is allocated, algorithms are chosen, the optimizer creates its state.
WARMUP_CALLS = 2

#: Pairs of iterations of a build: (factor, fewest, most); the number is factor / sqrt(seconds of an iteration). For cases
#: whose pairs have the same variance, this minimizes the sum of the variances of the means (Neyman's allocation).
TIMED_PAIRS = (5.0, 6, 64)
PROFILED_PAIRS = (1.3, 5, 8)

#: Pairs of iterations of the control, each time it is measured.
CONTROL_PAIRS = 40


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
    """One side of one case: how to build and run it, and its samples in nanoseconds."""

    name: str
    build: Callable[[], Case]
    turn: Callable[[], AbstractContextManager[None]]  # activates the side's modules
    case: Case = field(init=False)
    random: RandomState = field(init=False)
    outcome: tuple[str, float | None] = field(init=False)  # after the warm-up, which has as many iterations on both sides
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)

    @contextmanager
    def active(self) -> Iterator[Case]:
        """Run the body with this side's modules and random state."""
        with self.turn():
            self.random.restore()
            try:
                yield self.case
            finally:
                self.random = RandomState(self.random.device)


class RandomState:
    """A copy of the state of every random generator that a step may use."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._torch = torch.get_rng_state()
        self._accelerator = torch.get_device_module(device).get_rng_state(device) if device.type in ("cuda", "xpu") else None
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002  # the global one is what a user's code may draw from

    def restore(self) -> None:
        """Restore the copied state."""
        torch.set_rng_state(self._torch)
        if self._accelerator is not None:
            torch.get_device_module(self.device).set_rng_state(self._accelerator, self.device)
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002

    @staticmethod
    def seed(seed: int) -> None:
        """Seed all generators."""
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002


def measure(
    side_runs: Sequence[SideRun], coin: random.Random, processes: OneProcess | None = None, order: Sequence[str] = ()
) -> dict[str, Any]:
    """Build a case for every side, time and profile the sides in alternation; return the samples as JSON.

    Args:
        side_runs: the sides of this process.
        coin: decides which side begins a pair.
        processes: the turns of the sides; all sides are in this process if not given.
        order: in which the sides, those of all processes, are built and warmed up; that of ``side_runs`` if not given.

    Raises:
        PeerEndedError: the process of the other side has ended.
    """
    processes, order = processes or OneProcess(), order or [side_run.name for side_run in side_runs]
    runs = {side_run.name: side_run for side_run in side_runs}
    for name in processes.turns(order):
        _build(runs[name])
    iteration_ns = [_warm_up(runs[name]) for name in processes.turns(order)]
    profiles = all(side_run.case.runner is not None for side_run in side_runs)
    found_by_all = processes.exchange([max(iteration_ns), profiles])
    longest = max(found[0] for found in found_by_all)
    for name in processes.turns(_pairs(order, coin, _number_of_pairs(longest, *TIMED_PAIRS))):
        with runs[name].active() as case:
            _time_iteration(case, runs[name])
    found: dict[str, Any] = {"first": order[0], "sides": {}}
    for name in processes.turns(order):
        side_run = runs[name]
        found["sides"][name] = {
            "wall_ns": side_run.wall_ns,
            "cpu_ns": side_run.cpu_ns,
            "device_ns": side_run.device_ns,
            "outcome": _checked_outcome(side_run),
            "parameters": side_run.case.parameter_count,
        }
    if all(profiles for _, profiles in found_by_all):
        pairs = _pairs(order, coin, _number_of_pairs(longest, *PROFILED_PAIRS))
        for name, profile in _profiled(runs, processes, order, pairs).items():
            found["sides"][name] |= operations(profile)
    return found


def rehearse(side_run: SideRun) -> None:
    """Run and profile a case once, so that late imports (data set, optimizer, profiler) are done; discard the result."""
    _build(side_run)
    with side_run.active() as case:
        case()
    if side_run.case.runner is not None:
        _profiled({side_run.name: side_run}, OneProcess(), [side_run.name], [side_run.name])


def _build(side_run: SideRun) -> None:
    with side_run.turn():
        RandomState.seed(0)  # the case seeds torch's generator; a user's model may use the others
        side_run.case = side_run.build()
        torch.set_num_threads(side_run.case.params.threads)
        side_run.random = RandomState(torch.device(side_run.case.params.device))


def _warm_up(side_run: SideRun) -> int:
    """Warm up, reset the case, and return the wall time of the last iteration in nanoseconds."""
    with side_run.active() as case:
        for _ in range(WARMUP_CALLS):
            elapsed = timed(case).wall_ns
    side_run.outcome = outcome(side_run)
    with side_run.active() as case:
        case.reset()
    return elapsed


def _number_of_pairs(iteration_ns: int, factor: float, fewest: int, most: int) -> int:
    """Return the number of pairs for iterations of this duration, the same for all sides."""
    return max(fewest, min(most, round(factor / math.sqrt(iteration_ns / 1e9))))


def _pairs(names: Sequence[str], coin: random.Random, pairs: int) -> Iterator[str]:
    """Yield the sides pair by pair: in random order, then in the reverse order, and so on."""
    order = list(names)
    for pair in range(pairs):
        order = order[::-1] if pair % 2 else coin.sample(order, len(order))
        yield from order


def _time_iteration(case: Case, side_run: SideRun) -> None:
    device = side_run.random.device
    with on_device(device):
        sample = timed(case, device)
    side_run.wall_ns.append(sample.wall_ns)
    if sample.device_ns is not None:
        side_run.device_ns.append(sample.device_ns)
    elif case.params.threads == 1:  # of several threads the CPU clock returns the sum
        side_run.cpu_ns.append(sample.cpu_ns)


def outcome(side_run: SideRun) -> tuple[str, float | None]:
    """Return a hash of all weights and of the output, and the mean of the output (or the sum of absolute weights).

    On one thread of a CPU the same code returns the same hash, so different hashes mean different computations.
    """
    with side_run.turn(), torch.inference_mode():
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
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16], finite(number)


def _checked_outcome(side_run: SideRun) -> tuple[str, float | None]:
    """Return the outcome of the warm-up, with None as its number if the timed iterations led to NaN or infinity.

    The outcome after the timed iterations cannot be compared: sides in separate processes run different numbers of them.
    """
    digest, number = side_run.outcome
    return digest, number if outcome(side_run)[1] is not None else None


# ---- Operations ------------------------------------------------------------------------------------------------------


def _profiled(
    runs: Mapping[str, SideRun], processes: OneProcess, order: Sequence[str], turns: Iterable[str]
) -> dict[str, OpTable]:
    """Profile the sides of this process in one profiler session; the mark of each iteration names its side.

    Args:
        runs: the sides of this process.
        processes: the turns of the sides.
        order: the order of the sides before the profiled iterations.
        turns: the side of each profiled iteration.
    """
    for name in processes.turns(order):
        with runs[name].active() as case:
            case.reset()
            case()  # the optimizer creates its state
    device = next(iter(runs.values())).random.device
    activities = [ProfilerActivity.CPU]
    if device.type in ("cuda", "xpu"):
        activities.append(ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.XPU)
    with ExitStack() as parsing:
        with (
            torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler,
            ExitStack() as marks,
        ):
            for side_run in runs.values():
                marks.enter_context(marked(side_run.case))  # type: ignore[arg-type]  # the side's own Case
            for name in processes.turns(order):  # the profiler allocates its buffers
                with runs[name].active() as case:
                    case()
            for name in processes.turns(turns):
                with runs[name].active() as case, record_function(f"{ITERATION}:{name}"):
                    case()
            parsing.enter_context(gc_paused())
        events = events_of(profiler)
        view = "device" if len(activities) > 1 else "host"
        return {name: table(events, temperature="warm", view=view, iteration=f"{ITERATION}:{name}") for name in runs}


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


def peak_memory(side_run: SideRun, built: Callable[[], None]) -> int | None:
    """Build and warm up a case, and return the peak memory of tensors in the next iteration, in bytes.

    On a CPU this is the memory of tensors that existed before the build plus what the allocator reports from then on, which
    includes temporary buffers inside operations. On an accelerator it is the peak that its allocator reports. None on other
    devices, and for whole epochs and data, which run once.

    Args:
        side_run: a side that has the process to itself.
        built: called after the build.
    """
    before = sum(live_storages().values())
    with allocations_profile(profile_memory=True) as profiler:
        _build(side_run)
        built()
        of_cpu = side_run.case.runner is not None and side_run.random.device.type == "cpu"
        if of_cpu:
            _warm_iterations(side_run)
            with side_run.active() as case, gc_paused(), record_function(ITERATION):
                case()
    if of_cpu:
        return before + _peak_bytes(profiler)
    if side_run.case.runner is None:
        with side_run.active() as case:
            case()
        return None
    _warm_iterations(side_run)
    return _peak_of_device(side_run)


def _warm_iterations(side_run: SideRun) -> None:
    for _ in range(WARMUP_CALLS):
        with side_run.active() as case:
            case()


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
    device = side_run.random.device
    if device.type not in {"cuda", "xpu"}:
        return None
    of_device = torch.get_device_module(device)
    of_device.reset_peak_memory_stats(device)
    with side_run.active() as case:
        case()
    return int(of_device.max_memory_allocated(device))


# ---- The control -----------------------------------------------------------------------------------------------------


class Control:
    """A small fixed kernel. Two instances are timed like two sides; a difference means that the machine's speed changed."""

    def __init__(self) -> None:
        self._left = torch.rand(192, 192)
        self._right = torch.rand(192, 192)
        self._stream = torch.rand(1 << 18)

    def __call__(self) -> None:
        """Multiply matrices and read a megabyte, several times: some milliseconds in total."""
        for _ in range(6):
            self._left @ self._right
            self._stream.mul(1.5).sqrt()


def measure_control(
    names: Sequence[str], coin: random.Random, processes: OneProcess | None = None, order: Sequence[str] = ()
) -> dict[str, list[int]]:
    """Build a control for each side of this process, time them in alternation, and return wall times in nanoseconds.

    Args:
        names: the sides of this process.
        coin: decides which side begins a pair.
        processes: the turns of the sides; all sides are in this process if not given.
        order: of the sides of all processes; that of ``names`` if not given.
    """
    processes, order = processes or OneProcess(), order or names
    torch.set_num_threads(1)
    controls = {name: Control() for name in names}
    found: dict[str, list[int]] = {name: [] for name in names}
    for name in processes.turns(order):
        for _ in range(WARMUP_CALLS):
            controls[name]()
    for name in processes.turns(_pairs(order, coin, CONTROL_PAIRS)):
        found[name].append(timed(controls[name]).wall_ns)
    return found
