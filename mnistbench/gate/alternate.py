"""What measures the sides of a launch: their turns, the clocks, the profiler. One code for all sides, the gate's own.

Sides alternate call by call, so that the two calls of a pair see the same machine: on a shared one its speed changes
within seconds. A coin decides who goes first in every other pair, and the pair after it is turned round.
"""

from __future__ import annotations

import gc
import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
from torch.autograd.profiler import profile as allocations_profile
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.gc_pause import gc_paused
from mnistbench.core.record import OpTable, finite
from mnistbench.measuring.events_to_table import events_of, table
from mnistbench.measuring.marks import ITERATION, marked
from mnistbench.measuring.timing import event_ns, on_device

#: Calls of a side before anything counts: memory is allocated, algorithms are chosen, the optimizer has its state.
WARMUP_CALLS = 2

#: Pairs of calls of a build: this number divided by the root of a call's seconds, between the fewest and the most. For
#: cases whose pairs spread alike, no other division of the same time has a smaller sum of variances (Neyman's allocation).
TIMED_PAIRS = (5.0, 6, 64)
PROFILED_PAIRS = (1.3, 5, 8)

#: Pairs of the control, each time it is measured.
CONTROL_PAIRS = 40

_Turn = TypeVar("_Turn")


class Case(Protocol):
    """What is used of a side's ``mnistbench.measuring.case.Case``."""

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
        """Put weights, optimizer state and random numbers back to where the case began."""


@dataclass
class SideRun:
    """A side in one case: how it is built, and what makes the process its own."""

    name: str
    build: Callable[[], Case]
    turn: Callable[[], AbstractContextManager[None]]
    case: Case = field(init=False)
    random: RandomState = field(init=False)
    outcome: tuple[str, float | None] = field(init=False)  # of the warm-up, which has as many calls on both sides
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)

    @contextmanager
    def playing(self) -> Iterator[Case]:
        """Run the body as this side: its modules, its random numbers."""
        with self.turn():
            self.random.restore()
            try:
                yield self.case
            finally:
                self.random = RandomState(self.random.device)


class RandomState:
    """The state of every generator that a step may draw from, as it is now."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._torch = torch.get_rng_state()
        self._accelerator = torch.get_device_module(device).get_rng_state(device) if device.type in ("cuda", "xpu") else None
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002  # the global one is what a user's code may draw from

    def restore(self) -> None:
        """Put it back."""
        torch.set_rng_state(self._torch)
        if self._accelerator is not None:
            torch.get_device_module(self.device).set_rng_state(self._accelerator, self.device)
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002

    @staticmethod
    def seed(seed: int) -> None:
        """Seed them all."""
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002


def measure(side_runs: Sequence[SideRun], coin: random.Random) -> dict[str, Any]:
    """Build a case for every side in this order, time and profile them by turns; return what was measured.

    Args:
        side_runs: the first is built and warmed up first.
        coin: decides who goes first.
    """
    for side_run in side_runs:
        _build(side_run)
    longest = max(_warm_up(side_run) for side_run in side_runs)
    for side_run in _turns(side_runs, coin, _pairs(longest, *TIMED_PAIRS)):
        with side_run.playing() as case:
            _timed_call(case, side_run)
    found: dict[str, Any] = {
        "first": side_runs[0].name,
        "sides": {
            side_run.name: {
                "wall_ns": side_run.wall_ns,
                "cpu_ns": side_run.cpu_ns,
                "device_ns": side_run.device_ns,
                "outcome": _checked_outcome(side_run),
                "parameters": side_run.case.parameter_count,
            }
            for side_run in side_runs
        },
    }
    if all(side_run.case.runner is not None for side_run in side_runs):
        tables = _profiled(side_runs, coin, _pairs(longest, *PROFILED_PAIRS))
        for name, profile in tables.items():
            found["sides"][name] |= operations(profile)
    return found


def rehearse(side_run: SideRun) -> None:
    """Import what a case imports late: a data set's library, the optimizer's, the profiler's. Nothing of it is kept."""
    _build(side_run)
    with side_run.playing() as case:
        case()
    if side_run.case.runner is not None:
        _profiled([side_run], random.Random(0), 1)  # noqa: S311  # a coin


def _build(side_run: SideRun) -> None:
    with side_run.turn():
        RandomState.seed(0)  # the case seeds torch's itself; a user's model may draw from the others
        side_run.case = side_run.build()
        torch.set_num_threads(side_run.case.params.threads)
        side_run.random = RandomState(torch.device(side_run.case.params.device))


def _warm_up(side_run: SideRun) -> int:
    """Return the time of the last call, in nanoseconds."""
    with side_run.playing() as case:
        for _ in range(WARMUP_CALLS):
            start = time.perf_counter_ns()
            case()
            elapsed = time.perf_counter_ns() - start
    side_run.outcome = outcome(side_run)
    with side_run.playing() as case:
        case.reset()
    return elapsed


def _pairs(call_ns: int, pairs_of_a_second: float, fewest: int, most: int) -> int:
    """Return the number of pairs of calls that take this long; it is one number for all sides, so that it favours none."""
    return max(fewest, min(most, round(pairs_of_a_second / math.sqrt(call_ns / 1e9))))


def _turns(side_runs: Sequence[_Turn], coin: random.Random, pairs: int) -> Iterator[_Turn]:
    """Yield whose turn it is, pair by pair: in the coin's order, then in that order turned round, and again."""
    order = list(side_runs)
    for pair in range(pairs):
        order = order[::-1] if pair % 2 else coin.sample(order, len(order))
        yield from order


def _timed_call(case: Case, side_run: SideRun) -> None:
    device = side_run.random.device

    def timed() -> None:
        cpu, start = time.process_time_ns(), time.perf_counter_ns()
        case()
        end, cpu_end = time.perf_counter_ns(), time.process_time_ns()
        side_run.wall_ns.append(end - start)
        if device.type == "cpu" and case.params.threads == 1:  # other threads' time would be added up
            side_run.cpu_ns.append(cpu_end - cpu)

    if device.type == "cpu":
        timed()
    else:
        with on_device(device):
            side_run.device_ns.append(event_ns(timed, device))


def outcome(side_run: SideRun) -> tuple[str, float | None]:
    """Return what the case has computed so far: a hash of all weights and of the output, and one number for people.

    The same code on one thread of a CPU reaches the same bits; where it did not, the two sides do not compute the same.
    """
    with side_run.turn(), torch.inference_mode():
        case = side_run.case
        state = case.model.state_dict().values()  # of modules with get_extra_state more than tensors
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
    """Return what the warm-up computed, without a number if the timed calls have left none that is finite.

    Sides in separate processes have different numbers of timed calls, after which the same code has other weights.
    """
    digest, number = side_run.outcome
    return digest, number if outcome(side_run)[1] is not None else None


# ---- Operations ------------------------------------------------------------------------------------------------------


def _profiled(side_runs: Sequence[SideRun], coin: random.Random, pairs: int) -> dict[str, OpTable]:
    """Profile all sides in one session of the profiler, each iteration marked as its side's."""
    for side_run in side_runs:
        with side_run.playing() as case:
            case.reset()
            case()  # the optimizer makes its state
    device = side_runs[0].random.device
    activities = [ProfilerActivity.CPU]
    if device.type in ("cuda", "xpu"):
        activities.append(ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.XPU)
    with ExitStack() as parsing:
        with (
            torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler,
            ExitStack() as marks,
        ):
            for side_run in side_runs:
                marks.enter_context(marked(side_run.case))  # type: ignore[arg-type]  # the side's own Case
            for side_run in side_runs:  # the profiler makes its buffers
                with side_run.playing() as case:
                    case()
            for side_run in _turns(side_runs, coin, pairs):
                with side_run.playing() as case, record_function(f"{ITERATION}:{side_run.name}"):
                    case()
            parsing.enter_context(gc_paused())
        events = events_of(profiler)
        view = "device" if len(activities) > 1 else "host"
        return {
            side_run.name: table(events, temperature="warm", view=view, iteration=f"{ITERATION}:{side_run.name}")
            for side_run in side_runs
        }


def operations(profile: OpTable) -> dict[str, Any]:
    """Return a table as JSON columns: what is counted, and the self time of every iteration."""
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
    """Build a case, run it until it is warm, and return the most bytes of tensors that were alive in one more iteration.

    On a CPU these are the tensors that were alive before the build, and what the allocator reports from the build on,
    temporary buffers inside operations included. On an accelerator its allocator's own peak. None where there is no such
    number, and for whole epochs and data, which run once.

    Args:
        side_run: a side that is alone in the process.
        built: called when the case is built.
    """
    before = sum(live_storages().values())
    with allocations_profile(profile_memory=True) as profiler:
        _build(side_run)
        built()
        of_cpu = side_run.case.runner is not None and side_run.random.device.type == "cpu"
        if of_cpu:
            _warm_iterations(side_run)
            with side_run.playing() as case, gc_paused(), record_function(ITERATION):
                case()
    if of_cpu:
        return before + _peak_bytes(profiler)
    if side_run.case.runner is None:
        with side_run.playing() as case:
            case()
        return None
    _warm_iterations(side_run)
    return _peak_of_device(side_run)


def _warm_iterations(side_run: SideRun) -> None:
    for _ in range(WARMUP_CALLS):
        with side_run.playing() as case:
            case()


def live_storages() -> dict[int, int]:
    """Return the bytes of each storage on the CPU that a tensor uses, by its address; not of objects frozen by ``gc``."""
    gc.collect()
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.layout is torch.strided:
            try:
                storage = thing.untyped_storage()
                if storage.device.type == "cpu":  # a fake tensor says it is on the CPU, its storage does not
                    found[storage.data_ptr()] = storage.nbytes()
            except (NotImplementedError, RuntimeError):
                continue  # a wrapper without memory of its own
    return found


def _peak_bytes(profiler: allocations_profile) -> int:
    """Return the most bytes that were allocated at once during the marked iteration, of what the profiler has seen."""
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
    with side_run.playing() as case:
        case()
    return int(of_device.max_memory_allocated(device))


# ---- The control -----------------------------------------------------------------------------------------------------


class Control:
    """A small fixed kernel, built twice as if it were two sides: where these two differ, the machine moved."""

    def __init__(self) -> None:
        self._left = torch.rand(192, 192)
        self._right = torch.rand(192, 192)
        self._stream = torch.rand(1 << 18)

    def __call__(self) -> None:
        """Multiply two matrices and pass over a megabyte, some milliseconds in all."""
        for _ in range(6):
            self._left @ self._right
            self._stream.mul(1.5).sqrt()


def measure_control(names: Sequence[str], coin: random.Random) -> dict[str, list[int]]:
    """Build the control once per name in this order and time them by turns; wall times in nanoseconds."""
    torch.set_num_threads(1)
    controls = {name: Control() for name in names}
    found: dict[str, list[int]] = {name: [] for name in names}
    for control in controls.values():
        for _ in range(WARMUP_CALLS):
            control()
    for name in _turns(names, coin, CONTROL_PAIRS):
        start = time.perf_counter_ns()
        controls[name]()
        found[name].append(time.perf_counter_ns() - start)
    return found
