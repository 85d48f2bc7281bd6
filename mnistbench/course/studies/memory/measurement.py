"""Predict and measure the memory of each case, and search for the largest batch sizes.

A peak is measured by the profiler's allocations on a CPU, and by the allocator's statistics on
CUDA.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.machine import available_bytes
from mnistbench.core.operation import ITERATION
from mnistbench.core.params import Params
from mnistbench.course.studies.memory.layers import Iteration, Ledger, Places
from mnistbench.course.studies.memory.prediction import predicted_peak
from mnistbench.course.studies.memory.study import (
    LargestBatch,
    LayerMemory,
    MemoryCase,
    MemoryStudy,
    Peak,
    Settings,
    Site,
)
from mnistbench.events.from_profiler import trace_of
from mnistbench.events.model import MemoryRecord, ThreadEvent, Trace
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.measuring.case import (
    Case,
    build,
    fork_random,
    memory_suffices,
    synchronizer,
    thread_count,
)
from mnistbench.suite.measuring.environment import resolve_devices
from mnistbench.suite.measuring.profiling import in_ranges, profile_warm
from mnistbench.suite.profile.run import too_large
from mnistbench.suite.workloads.workload import Workload, builtin_workloads, params_of

#: Dataset of the workloads; memory does not depend on it.
_DATASET = "digits"
#: Seed of the workloads; memory does not depend on it.
_SEED = 1

#: Largest memory for which a batch is tried on a CPU: more takes a minute.
MAX_TRIED_BYTES = 4 * 2**30

#: The largest batch size that is tried.
MAX_SAMPLES = 2**31 - 1

#: Operations that only allocate; the operation that calls them is of interest.
_ALLOCATE = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_strided",
        "resize_",
        "new_empty",
        "to",
        "_to_copy",
        "zeros",
        "zeros_like",
    )
)


def study(settings: Settings, progress: Callable[[str], None] = lambda _: None) -> MemoryStudy:
    """Predict and measure the peak of each model, phase and batch size.

    Without a memory, the largest batch sizes are those of a CUDA device's memory, and are not
    searched on a CPU.
    """
    [device] = resolve_devices([settings.device])
    if torch.device(device).type not in ("cpu", "cuda"):
        raise UsageError(f"--device: {device!r} has no statistics of allocations; give cpu or cuda")
    memory = settings.memory
    if device != "cpu":
        total = int(torch.cuda.get_device_properties(device).total_memory)
        memory = min(memory or total, total)
    known = {workload.name: workload for workload in builtin_workloads(_DATASET, None)}
    with thread_count(settings.threads), fork_random(torch.device(device)):
        pairs = [
            _Pair(known[name], phase, device, settings.threads, progress)
            for name, phase in itertools.product(settings.models, settings.phases)
        ]
        predictions = [
            (pair, size, *pair.predict(size))
            for pair, size in itertools.product(pairs, settings.batch_sizes)
        ]
        available = available_bytes()
        for _, size, peak, _ in predictions:
            if device == "cpu" and peak.n_bytes > available:
                needed = (
                    f"needs {units.size(peak.n_bytes)}, and {units.size(available)} are available"
                )
                raise UsageError(f"--batch-size: {size} {needed}; give a smaller one")
        cases = [pair.case(size, peak, layers) for pair, size, peak, layers in predictions]
        largest = [pair.largest(memory) for pair in pairs] if memory else []
    return MemoryStudy(
        replace(settings, device=device), torch.__version__, tuple(cases), tuple(largest)
    )


@dataclass(frozen=True)
class _Pair:
    """A workload and a phase on a device."""

    workload: Workload
    phase: str
    device: str
    threads: int
    progress: Callable[[str], None]

    def predict(self, batch_size: int) -> tuple[Peak, tuple[LayerMemory, ...]]:
        """Return the predicted peak and the layers."""
        return predicted_peak(self.workload, self.phase, batch_size, self.device)

    def measure(self, batch_size: int) -> tuple[Peak, Mapping[str, int]]:
        """Return the measured peak, and that of each layer.

        A batch that is too large raises UsageError.
        """
        self.progress(f"{self.phase} {self.workload.name}-b{batch_size}")
        params = params_of(
            self.workload, self.phase, batch_size, self.device, threads=self.threads, seed=_SEED
        )
        with memory_suffices(too_large(self.device, batch_size)):
            return measured_peak(params, self.workload)

    def case(self, batch_size: int, predicted: Peak, layers: tuple[LayerMemory, ...]) -> MemoryCase:
        """Measure a case that is predicted."""
        measured, peaks = self.measure(batch_size)
        names = {layer.name for layer in layers}
        every = [*layers, *(LayerMemory(name) for name in peaks if name not in names)]
        with_both = tuple(replace(layer, measured_peak=peaks.get(layer.name)) for layer in every)
        return MemoryCase(
            self.workload.name, self.phase, batch_size, predicted, measured, with_both
        )

    def largest(self, memory: int) -> LargestBatch:
        """Search for the largest batch size by predictions, and try it."""
        self.progress(f"{self.phase} {self.workload.name}: largest batch")
        size = largest_batch(lambda samples: self.predict(samples)[0].n_bytes, memory)
        result = LargestBatch(
            self.workload.name, self.phase, memory, size, self.predict(max(1, size))[0].n_bytes
        )
        if size == 0:
            return replace(result, reason="one sample needs more")
        if self.device != "cpu":
            return replace(result, tried=size, measured=self._measured_on_cuda(memory, size))
        available = available_bytes()
        if size >= MAX_SAMPLES:
            return replace(result, reason="no larger batch was searched")
        if memory > available:
            return replace(result, reason=f"{units.size(available)} are available")
        if memory > MAX_TRIED_BYTES:
            return replace(
                result, reason=f"above {units.size(MAX_TRIED_BYTES)} a CPU takes too long"
            )
        return replace(result, tried=size, measured=self.measure(size)[0].n_bytes)

    def _measured_on_cuda(self, memory: int, batch_size: int) -> int | None:
        try:
            with limited(memory, self.device):
                return self.measure(batch_size)[0].n_bytes
        except UsageError:  # out of memory
            return None


def largest_batch(bytes_of: Callable[[int], int], memory: int, most: int = MAX_SAMPLES) -> int:
    """Return the largest batch size whose bytes are at most ``memory``, by doubling and bisection.

    0 if even one sample needs more. ``bytes_of`` a larger batch size are never fewer; ``most`` is
    the largest size to return.
    """
    fits = 0
    too_large = 1
    while bytes_of(too_large) <= memory:
        if too_large == most:
            return most
        fits = too_large
        too_large = min(most, 2 * too_large)
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if bytes_of(middle) <= memory:
            fits = middle
        else:
            too_large = middle
    return fits


def measured_peak(params: Params, workload: Workload) -> tuple[Peak, Mapping[str, int]]:
    """Build a case.

    Return the peak of an iteration that is not the first, and of each layer while it allocates.

    On CUDA, the backward pass is one layer. Seeds torch's global generators, as
    :func:`measuring.case.build` does. The phase is ``forward`` or ``step``, the device a CPU or
    CUDA.
    """
    case = build(params, workload)
    return _by_profiler(case) if params.device == "cpu" else _by_allocator(case)


def held(case: Case) -> int:
    """Return the bytes of a case's parameters, gradients, optimizer state and batch."""
    assert case.runner is not None, "forward or step"
    device = torch.device(case.params.device)
    batch = case.workload.make_batch(
        case.params.batch_size, device, torch.Generator().manual_seed(case.params.seed)
    )
    return Iteration(case.model, case.runner, batch, device).held_bytes()


def _by_profiler(case: Case) -> tuple[Peak, Mapping[str, int]]:
    trace = trace_of(profile_warm(case, iterations=1).profiler)
    before = held(case)
    ledger = Ledger(before)
    [iteration] = [event for event in trace.host if event.name == ITERATION]
    for record, event in allocations(trace):
        if iteration.start <= record.ns <= iteration.end and event is not None:
            place = event.scope
            operation: ThreadEvent | None = event
            while operation is not None and (
                operation.name in _ALLOCATE or "::" not in operation.name
            ):
                # The innermost one that does more than to allocate.
                operation = operation.caller
            site = Site(
                place.module or f"({place.phase})",
                place.phase,
                operation.name if operation is not None else "",
            )
            ledger.change(record.n_bytes, site)
    return Peak(ledger.peak, before, ledger.site), ledger.peaks


def allocations(trace: Trace) -> Iterator[tuple[MemoryRecord, ThreadEvent | None]]:
    """Yield each allocation and free of host memory, with the innermost event of its thread.

    Frees of what was allocated before the profile are missing.
    """
    waiting = deque(trace.kept_host)
    around: list[ThreadEvent] = []
    for record in trace.memory:
        if not record.of_host:
            continue
        while waiting and waiting[0].start <= record.ns:
            around.append(waiting.popleft())
        around = [event for event in around if event.end >= record.ns]
        events_of_thread = [event for event in around if event.thread == record.thread]
        yield record, events_of_thread[-1] if events_of_thread else None


def _by_allocator(case: Case) -> tuple[Peak, Mapping[str, int]]:
    device = torch.device(case.params.device)
    assert case.runner is not None, "forward or step"
    wait = synchronizer(device)
    case.reset()
    for _ in range(WARMUP_ITERATIONS):
        case()
    before = held(case)
    wait()
    readings = _Readings(device, before)
    with in_ranges(case.runner, case.model, readings.within):
        case()
    readings.read()
    return Peak(readings.ledger.peak, before, readings.ledger.site), readings.ledger.peaks


class _Readings:
    """Reads the allocator's peak wherever a layer begins or ends.

    It counts on the host, so nothing waits for the device.
    """

    def __init__(self, device: torch.device, before: int) -> None:
        self.ledger = Ledger(before)
        self._device = device
        # Copies of the initial weights, workspaces of libraries.
        self._others = torch.cuda.memory_allocated(device) - before
        self._places = Places(splits_backward=False)
        torch.cuda.reset_peak_memory_stats(device)

    def read(self) -> None:
        """Enter the largest number of bytes since the last reading into the ledger.

        The number of now is entered, too.
        """
        peak, now = (
            read(self._device) - self._others
            for read in (torch.cuda.max_memory_allocated, torch.cuda.memory_allocated)
        )
        site = self._places.site()
        self.ledger.change(peak - self.ledger.live, site)
        self.ledger.change(min(0, now - self.ledger.live), site)
        torch.cuda.reset_peak_memory_stats(self._device)

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Be in the range of this name while the body runs."""
        self.read()
        with self._places.within(name):
            yield
            self.read()


@contextmanager
def limited(memory: int, device: str) -> Iterator[None]:
    """Limit what this process may allocate on a CUDA device while the body runs.

    The limit is a number of bytes.
    """
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()  # what the allocator keeps counts, too
    torch.cuda.set_per_process_memory_fraction(memory / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
