"""The peak of an iteration, measured: by the profiler's allocations on a CPU, by the allocator's statistics on CUDA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from mnistbench.core.operation import ITERATION
from mnistbench.core.params import Params
from mnistbench.course.studies.memory.layers import Iteration, Places
from mnistbench.course.studies.memory.ledger import Ledger
from mnistbench.course.studies.memory.result import Peak, Place
from mnistbench.measuring.case import Case, build, synchronizer
from mnistbench.measuring.events_to_table import Event, placed
from mnistbench.measuring.host_events import allocations, host_events
from mnistbench.measuring.marks import in_ranges
from mnistbench.measuring.profiling import WARMUP_ITERATIONS, record_warm
from mnistbench.workloads.workload import Workload

#: Operations that only allocate; the operation that calls them is of interest.
_ALLOCATE = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "resize_", "new_empty", "to", "_to_copy", "zeros", "zeros_like")
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The peak of an iteration, and of each layer while it allocates."""

    peak: Peak
    layers: Mapping[str, int] = field(default_factory=dict)  # on CUDA, the backward pass is one layer


def measured_peak(params: Params, workload: Workload) -> Measured:
    """Build a case and measure an iteration that is not the first.

    Seeds torch's global generators, as :func:`measuring.case.build` does.

    Args:
        params: of the case; the phase is ``forward`` or ``step``, the device a CPU or CUDA.
        workload: of the case.
    """
    case = build(params, workload)
    return _by_profiler(case) if params.device == "cpu" else _by_allocator(case)


def held(case: Case) -> int:
    """Return the bytes of a case's parameters, gradients, optimizer state and batch."""
    assert case.runner is not None, "forward or step"
    device = torch.device(case.params.device)
    batch = case.workload.make_batch(case.params.batch_size, device, torch.Generator().manual_seed(case.params.seed))
    return Iteration(case.model, case.runner, batch, device).held_bytes()


def _by_profiler(case: Case) -> Measured:
    recorded = record_warm(case, iterations=1)
    before = held(case)
    ledger = Ledger(before)
    for n_bytes, place in _placed_allocations(recorded):
        ledger.change(n_bytes, place)
    return Measured(Peak(ledger.peak, before, ledger.place), ledger.peaks)


def _placed_allocations(recorded: torch.profiler.profile) -> Iterator[tuple[int, Place]]:
    """Yield the bytes and the place of each allocation of the marked iteration, frees below 0."""
    events = host_events(recorded)
    places = {id(event): Place(place.module or f"({place.phase})", place.phase) for event, place in placed(events)}
    [iteration] = [event.time_range for event in events if event.name == ITERATION]
    for at, n_bytes, event in allocations(recorded, events):
        if iteration.start <= at <= iteration.end and event is not None:
            place = places[id(event)]
            yield n_bytes, Place(place.layer, place.phase, _operation(event))


def _operation(event: Any) -> str:
    """Return the innermost operation around an event that does more than to allocate."""
    around: Event | None = event
    while around is not None and (around.name in _ALLOCATE or "::" not in around.name):
        around = around.cpu_parent
    return around.name if around is not None else ""


def _by_allocator(case: Case) -> Measured:
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
    return Measured(Peak(readings.ledger.peak, before, readings.ledger.place), readings.ledger.peaks)


class _Readings:
    """Reads the allocator's peak wherever a layer begins or ends. It counts on the host, so nothing waits for the device."""

    def __init__(self, device: torch.device, before: int) -> None:
        self.ledger = Ledger(before)
        self._device = device
        self._others = torch.cuda.memory_allocated(device) - before  # copies of the initial weights, workspaces of libraries
        self._places = Places(splits_backward=False)
        torch.cuda.reset_peak_memory_stats(device)

    def read(self) -> None:
        """Enter the largest number of bytes since the last reading into the ledger, and the number now."""
        peak, now = (
            read(self._device) - self._others for read in (torch.cuda.max_memory_allocated, torch.cuda.memory_allocated)
        )
        place = self._places.place()
        self.ledger.change(peak - self.ledger.live, place)
        self.ledger.change(min(0, now - self.ledger.live), place)
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
    """Let this process allocate no more than a number of bytes on a CUDA device while the body runs."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()  # what the allocator keeps counts, too
    torch.cuda.set_per_process_memory_fraction(memory / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
