"""A case of a workload as the gate measures it on one side.

It also has what profiles any case.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd.profiler import profile as allocations_profile
from torch.profiler import record_function

from mnistbench.core.compiled.compilation import Compilation
from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import ITERATION, MODEL
from mnistbench.core.record import OpTable, finite
from mnistbench.events import from_profiler
from mnistbench.gate.processes.sides.case import Outcome, SideCase, seed_all
from mnistbench.measuring.provider import Turn
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Sample
from mnistbench.suite.measuring.case import on_device
from mnistbench.suite.measuring.device_timing import timed
from mnistbench.suite.measuring.observing import Observed, observed_if
from mnistbench.suite.measuring.profiling import (
    activities_of,
    has_compiled_code,
    has_device_view,
    marked,
    started,
)


class WorkloadCase(SideCase):
    """One phase of a workload."""

    def __init__(self, build: Callable[[], Any], device: str, threads: int) -> None:
        """Prepare; ``build`` returns a ``Case`` of the side's own mnistbench."""
        self._build = build
        self.device = device
        self.threads = threads
        self._built: Any

    def build(self) -> None:
        """Make the case in one thread, from fresh seeds."""
        # The previous case may have more; the initial weights must not depend on it.
        torch.set_num_threads(1)
        seed_all(0)  # the case seeds torch's generator; a user's model may use the others
        self._built = self._build()
        self.parameters = self._built.parameter_count
        torch.set_num_threads(self.threads)

    def reset(self) -> None:
        """Restore the initial weights, optimizer state and random state."""
        self._built.reset()

    def __call__(self) -> None:
        """Run the measured work once and wait for the device."""
        self._built()

    def clocked(self) -> Sample:
        """Run an iteration and return its times, on an accelerator also by its events."""
        device = torch.device(self.device)
        with on_device(device):
            return timed(self._built, device)

    @property
    def has_operations(self) -> bool:
        """Whether the phase is profiled per operation."""
        return self._built.runner is not None

    def outcome(self) -> Outcome:
        """Return a hash of all weights and of the output, and the mean of the output.

        Without an output the number is the sum of absolute weights.

        On one thread of a CPU the same code returns the same hash, so different hashes mean
        different computations.
        """
        with torch.inference_mode():
            case = self._built
            # Contains other objects for modules with get_extra_state.
            state = case.model.state_dict().values()
            tensors = [
                tensor.detach().cpu().contiguous()
                for tensor in state
                if isinstance(tensor, torch.Tensor)
            ]
            number = sum(float(tensor.double().abs().sum()) for tensor in tensors)
            training = case.model.training
            if case.inputs is not None:
                output = case.model.eval()(case.inputs)
                case.model.train(training)
                if isinstance(output, torch.Tensor):
                    tensors.append(output.cpu().contiguous())
                    number = float(output.double().mean())
            digest = hashlib.sha256()
            for tensor in tensors:
                content = tensor.reshape(-1).view(torch.uint8)
                # tensor.numpy() needs numpy.
                digest.update(ctypes.string_at(content.data_ptr(), content.numel()))
        return digest.hexdigest()[:16], finite(number)

    def is_finite(self) -> bool:
        """Whether weights and output are finite after the iterations so far."""
        return self.outcome()[1] is not None

    def operations(
        self, one_turn: Turn, turns: Iterable[None], *, observes: bool = True
    ) -> dict[str, Any]:
        """Profile iterations from the initial state."""

        def prepare() -> None:
            self.reset()
            self()  # the optimizer creates its state

        profile = profiled(
            self._built,
            partial(marked, self._built),
            self.device,
            one_turn,
            turns,
            prepare=prepare,
            compiled=partial(has_compiled_code, self._built),
            observes=observes,
            outside=MODEL,
        )
        return columns(profile)

    @contextmanager
    def marked(self) -> Iterator[Callable[[], None]]:
        """Put the marks of profiled iterations on the case; yield what runs one iteration."""
        with marked(self._built, is_compiled=has_compiled_code(self._built)):
            yield self._built

    def facts(self) -> dict[str, str]:
        """Return whether the fast step had its compiled loops, which need numba."""
        # Of the side's own copy, which has run the case.
        loops = getattr(sys.modules.get("mnistbench.suite.workloads.compiled"), "loops", None)
        if not (loops and loops.cache_info().currsize):
            return {}
        return {"loops of the fast step": "compiled" if loops() is not None else "not compiled"}

    def peak_memory(self) -> int | None:
        """Return the peak memory of tensors in an iteration, in bytes.

        On a CPU this is the memory of tensors that existed before the build plus what the allocator
        reports from then on, which includes temporary buffers inside operations. On an accelerator
        it is the peak that its allocator reports. None on other devices, and for whole epochs and
        data, which run once.
        """
        before = sum(live_storages().values())
        with allocations_profile(profile_memory=True) as profiler:
            self.build()
            profiles_cpu = self.has_operations and torch.device(self.device).type == "cpu"
            if profiles_cpu:
                self._warm_up()
                with gc_paused(), record_function(ITERATION):
                    self()
        if profiles_cpu:
            return before + _peak_bytes(profiler)
        if not self.has_operations:
            self()
            return None
        self._warm_up()
        return self._peak_of_device()

    def _warm_up(self) -> None:
        for _ in range(WARMUP_ITERATIONS):
            self()

    def _peak_of_device(self) -> int | None:
        device = torch.device(self.device)
        if device.type not in {"cuda", "xpu"}:
            return None
        device_module = torch.get_device_module(device)
        device_module.reset_peak_memory_stats(device)
        self()
        return int(device_module.max_memory_allocated(device))


def live_storages() -> dict[int, int]:
    """Return the bytes of each CPU storage in use, by address.

    Storages of objects that ``gc.freeze`` has frozen are left out.
    """
    gc.collect()
    bytes_of_storage: dict[int, int] = {}
    # A subclass of Tensor may compute or raise.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.Tensor):
                try:
                    storage = torch.Tensor.untyped_storage(thing)
                    # A fake tensor has the device of a CPU tensor, its storage has not.
                    if storage.device.type == "cpu":
                        bytes_of_storage[storage.data_ptr()] = storage.nbytes()
                except (NotImplementedError, RuntimeError):
                    continue  # sparse, or a wrapper without a storage
    return bytes_of_storage


def _peak_bytes(profiler: allocations_profile) -> int:
    """Return the peak of the recorded allocations during the marked iteration, in bytes."""
    trace = from_profiler.read(profiler)
    [iteration] = [event for event in trace.host if event.name == ITERATION]
    current = 0
    peak = 0
    for record in trace.memory:
        if record.ns > iteration.end:
            break
        if record.of_host:
            if record.ns >= iteration.start:
                peak = max(peak, current)
            current += record.n_bytes
    return max(peak, current)


# ---- Profiling -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideProfile:
    """The operations of a case on one side."""

    table: OpTable
    compilation: Compilation | None  # None: nothing is compiled


def profiled(
    run: Callable[[], object],
    marks: Callable[..., AbstractContextManager[object]],
    device: str,
    one_turn: Turn,
    turns: Iterable[None],
    *,
    prepare: Callable[[], object] = lambda: None,
    compiled: Callable[[], bool],
    observes: bool,
    outside: str,
    around: Callable[[Callable[[], object]], object] = lambda run: run(),
) -> SideProfile:
    """Profile iterations and return their operations.

    Args:
        run: an iteration.
        marks: entered while the profiler runs; takes ``is_compiled``.
        device: of the operations.
        one_turn: turns in which code is compiled, and buffers of the profiler are made.
        turns: of the profiled iterations.
        prepare: called before the profiler runs.
        compiled: whether code of the case is compiled.
        observes: compile it anew, to know its kernels.
        outside: module of compiled operations in no module.
        around: calls an iteration with what precedes and follows it.
    """

    def marked() -> None:
        with record_function(ITERATION):
            run()

    view = "device" if has_device_view(device) else "host"
    profiler = torch.profiler.profile(activities=activities_of(device, view), profile_memory=True)
    observed: Observed | None = None
    is_compiled = False
    with ExitStack() as stack:
        for _ in one_turn():
            is_compiled = compiled()
            observing = observed_if(is_compiled and observes, partial(around, run), outside)
            observed = stack.enter_context(observing)
            prepare()
        stack.enter_context(started(profiler))
        stack.enter_context(marks(is_compiled=is_compiled))
        for _ in one_turn():
            around(run)  # the profiler allocates its buffers
        for _ in turns:
            around(marked)
    graphs = observed.graphs if observed else None
    table = from_profiler.operation_table(profiler, device, view, graphs=graphs)
    return SideProfile(table, observed.compilation if observed else None)


def columns(profile: SideProfile, loops: int = 1) -> dict[str, Any]:
    """Return a profile of ``loops`` calls as JSON columns, those of one call.

    Counts, and the self times of every iteration in nanoseconds.
    """
    table = profile.table.of_one_call(loops)
    clock = table.clock
    return {
        "busy_ns": list(table.busy_ns),
        "keys": [list(row.key) for row in table.rows],
        "calls": [row.calls for row in table.rows],
        "memory_bytes": [row.memory_bytes for row in table.rows],
        "kernels": [list(row.kernels) for row in table.rows],
        "varying": [list(row.varying) for row in table.rows],
        "self_ns": [
            list(row.self_cpu_ns if clock == "cpu" else row.self_device_ns) for row in table.rows
        ],
        "compilation": asdict(profile.compilation) if profile.compilation else None,
    }
