"""Predict and measure the memory of some cases, and search for the largest batch sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.machine import available_bytes
from mnistbench.core.params import MODELS, Params
from mnistbench.course.studies.memory.largest import MOST_SAMPLES, largest_batch
from mnistbench.course.studies.memory.measurement import Measured, limited, measured_peak
from mnistbench.course.studies.memory.prediction import predicted_peak
from mnistbench.course.studies.memory.result import BATCH_SIZES, PHASES, Case, Largest, Layer, Peak, Study, Tried
from mnistbench.measuring.case import fork_random, memory_suffices, thread_count
from mnistbench.profile.run import too_large
from mnistbench.workloads.workload import Workload, builtin_workloads

_DATASET, _SEED = "digits", 1  # memory depends on neither

#: Largest memory for which a batch is tried on a CPU: more takes a minute.
MOST_TRIED_BYTES = 4 * 2**30

#: On CUDA, a batch that is larger by this share is tried, too, and should not fit.
_BEYOND = 0.05


def measured(
    models: Sequence[str] = MODELS,
    phases: Sequence[str] = PHASES,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    device: str = "cpu",
    threads: int = 1,
    memory: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Study:
    """Predict and measure the peak of each model, phase and batch size.

    Args:
        models: names of built-in workloads.
        phases: of ``forward`` and ``step``.
        batch_sizes: samples.
        device: ``cpu`` or a CUDA device.
        threads: intra-op threads on a CPU.
        memory: bytes for which the largest batch sizes are searched; None: those of a CUDA device, and no search on a CPU.
        progress: receives what is predicted or measured next.

    Raises:
        UsageError: the device has no statistics, or its memory does not suffice.
    """
    known = {workload.name: workload for workload in builtin_workloads(_DATASET, None)}
    workloads = [known[name] for name in models]
    if torch.device(device).type not in ("cpu", "cuda"):
        raise UsageError(f"--device: {device!r} has no statistics of allocations; give cpu or cuda")
    if device != "cpu":
        total = int(torch.cuda.get_device_properties(device).total_memory)
        memory = min(memory or total, total)
    with thread_count(threads), fork_random(torch.device(device)):
        pairs = [_Pair(workload, phase, device, threads, progress) for workload in workloads for phase in phases]
        predictions = [(pair, size, *pair.predict(size)) for pair, size in itertools.product(pairs, batch_sizes)]
        _check_memory(device, {size: peak.n_bytes for _, size, peak, _ in predictions})
        cases = [pair.case(size, peak, layers) for pair, size, peak, layers in predictions]
        largest = [pair.largest(memory) for pair in pairs] if memory else []
    return Study(device, threads, torch.__version__, tuple(cases), tuple(largest))


def _check_memory(device: str, predictions: dict[int, int]) -> None:
    if device != "cpu":
        return
    available = available_bytes()
    for batch_size, n_bytes in predictions.items():
        if n_bytes > available:
            needed = f"needs {units.size(n_bytes)}, and {units.size(available)} are available"
            raise UsageError(f"--batch-size: {batch_size} {needed}; give a smaller one")


@dataclass(frozen=True)
class _Pair:
    """A workload and a phase on a device."""

    workload: Workload
    phase: str
    device: str
    threads: int
    progress: Callable[[str], None]

    def predict(self, batch_size: int) -> tuple[Peak, tuple[Layer, ...]]:
        """Return the predicted peak and the layers."""
        sample = self.workload.make_batch(1, torch.device("cpu"), torch.Generator())
        return predicted_peak(self.workload, self.phase, batch_size, self.device, sample)

    def measure(self, batch_size: int) -> Measured:
        """Return the measured peak.

        Raises:
            UsageError: memory does not suffice.
        """
        self.progress(f"{self.phase} {self.workload.name}-b{batch_size}")
        params = Params(
            workload=self.workload.name, phase=self.phase, batch_size=batch_size, device=self.device, dtype="float32",
            threads=self.threads, compile=False, seed=_SEED, dataset=_DATASET,
        )  # fmt: skip
        with memory_suffices(too_large(self.device, batch_size)):
            return measured_peak(params, self.workload)

    def case(self, batch_size: int, peak: Peak, layers: Sequence[Layer]) -> Case:
        """Measure a case that is predicted."""
        found = self.measure(batch_size)
        names = {layer.name for layer in layers}
        every = [*layers, *(Layer(name, "") for name in found.layers if name not in names)]
        with_both = tuple(replace(layer, measured_peak=found.layers.get(layer.name)) for layer in every)
        return Case(self.workload.name, self.phase, batch_size, peak, found.peak, with_both)

    def largest(self, memory: int) -> Largest:
        """Search for the largest batch size, and try it."""
        self.progress(f"{self.phase} {self.workload.name}: largest batch")

        def bytes_of(batch_size: int) -> int:
            return self.predict(batch_size)[0].n_bytes

        size = largest_batch(bytes_of, memory)
        found = Largest(self.workload.name, self.phase, memory, size, bytes_of(max(1, size)))
        if size == 0:
            return replace(found, reason="one sample needs more")
        if self.device != "cpu":
            sizes = (size, math.ceil(size * (1 + _BEYOND)))
            return replace(found, tried=tuple(self._tried_on_cuda(memory, each) for each in sizes))
        if reason := _why_not_tried(memory, size):
            return replace(found, reason=reason)
        n_bytes = self.measure(size).peak.n_bytes
        return replace(found, tried=(Tried(size, n_bytes <= memory, n_bytes),))

    def _tried_on_cuda(self, memory: int, batch_size: int) -> Tried:
        try:
            with limited(memory, self.device):
                return Tried(batch_size, fits=True, n_bytes=self.measure(batch_size).peak.n_bytes)
        except UsageError:  # out of memory
            return Tried(batch_size, fits=False, n_bytes=None)


def _why_not_tried(memory: int, batch_size: int) -> str:
    available = available_bytes()
    if batch_size >= MOST_SAMPLES:
        return "no larger batch was searched"
    if memory > available:
        return f"{units.size(available)} are available"
    if memory > MOST_TRIED_BYTES:
        return f"above {units.size(MOST_TRIED_BYTES)} a CPU takes too long"
    return ""
