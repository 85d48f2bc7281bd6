"""The largest sum of allocations, from the profiler or from the statistics of CUDA's allocator."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.memory import measurement, run
from mnistbench.course.studies.memory.ledger import Ledger
from mnistbench.course.studies.memory.measurement import Measured, limited
from mnistbench.course.studies.memory.result import Layer, Peak, Place, Tried
from mnistbench.workloads.step import Inference


def test_the_peak_is_the_largest_sum_and_belongs_to_the_allocation_that_reaches_it():
    first, second = Place("conv1", "forward", "aten::conv2d"), Place("fc1", "forward", "aten::addmm")
    ledger = Ledger(100)
    for n_bytes, place in [(10, first), (-10, second), (30, second), (-30, second), (20, first), (-120, first), (119, second)]:
        ledger.change(n_bytes, place)
    assert (ledger.peak, ledger.place, ledger.live) == (130, second, 119)
    assert ledger.peaks == {"conv1": 120, "fc1": 130}


def test_without_an_allocation_the_peak_is_what_is_held():
    ledger = Ledger(100)
    ledger.change(-50, Place("fc1"))
    assert (ledger.peak, ledger.place, ledger.peaks) == (100, Place(), {})


class Allocator:
    """Statistics of an allocator of 8,000 bytes."""

    def __init__(self, monkeypatch):
        self.allocated, self.peak, self.fractions = 1_500, 9_999, []
        functions = {
            "memory_allocated": lambda _: self.allocated,
            "max_memory_allocated": lambda _: self.peak,
            "reset_peak_memory_stats": lambda _: setattr(self, "peak", self.allocated),
            "get_device_properties": lambda _: SimpleNamespace(total_memory=8_000),
            "set_per_process_memory_fraction": lambda fraction, _: self.fractions.append(fraction),
            "empty_cache": lambda: None,
        }
        for name, function in functions.items():
            monkeypatch.setattr(torch.cuda, name, function)

    def allocate(self, n_bytes):
        self.allocated += n_bytes
        self.peak = max(self.peak, self.allocated)


class Allocating(nn.Module):
    """Allocates bytes, frees some of them, and keeps the rest until the end of the forward pass."""

    def __init__(self, allocator, n_bytes, freed):
        super().__init__()
        self.allocator, self.n_bytes, self.freed = allocator, n_bytes, freed

    def forward(self, inputs):
        self.allocator.allocate(self.n_bytes)
        self.allocator.allocate(-self.freed)
        return inputs


class FakeCase:
    """A case on CUDA whose network holds 500 of the 1,500 allocated bytes; its first two iterations allocate more."""

    def __init__(self, allocator):
        self.params, self._allocator, self._iterations = SimpleNamespace(device="cuda"), allocator, 0
        self.model = nn.Sequential(Allocating(allocator, 300, 100), nn.Identity(), Allocating(allocator, 250, 250))
        self.runner = Inference(self.model)

    def reset(self):
        self._iterations = 0

    def __call__(self):
        self._iterations += 1
        if self._iterations <= 2:
            self._allocator.allocate(5_000)
            self._allocator.allocate(-5_000)
        self.runner(torch.zeros(1))
        self._allocator.allocate(-200)


def test_on_cuda_the_peak_is_what_an_iteration_adds_to_what_is_held(monkeypatch):
    allocator = Allocator(monkeypatch)
    monkeypatch.setattr(measurement, "synchronizer", lambda _: lambda: None)
    monkeypatch.setattr(measurement, "held", lambda _: 500)
    case = FakeCase(allocator)
    monkeypatch.setattr(measurement, "build", lambda params, workload: case)
    found = measurement.measured_peak(case.params, None)
    assert found.peak == Peak(500 + 200 + 250, 500, Place("2", "forward"))
    assert found.layers == {"0": 800, "2": 950}


def test_a_limit_ends_with_its_body(monkeypatch):
    allocator = Allocator(monkeypatch)
    with pytest.raises(RuntimeError), limited(2_000, "cuda"):
        raise RuntimeError
    assert allocator.fractions == [0.25, 1.0]


def on_cuda(monkeypatch, needs):
    """A device of 8,000 bytes, and a model that is predicted to need 10 bytes for each sample, but needs others."""
    Allocator(monkeypatch)
    monkeypatch.setattr(run, "fork_random", lambda _: nullcontext())
    layers = (Layer("fc1", "Linear", weight=7, peak=10),)
    monkeypatch.setattr(run, "predicted_peak", lambda made, phase, size, *_: (Peak(10 * size, 7, Place()), layers))
    limits = []

    @contextmanager
    def limit(memory, device):
        limits.append(memory)
        yield
        limits.pop()

    def measure(params, workload):
        if limits and needs * params.batch_size > limits[-1]:
            raise torch.OutOfMemoryError
        return Measured(Peak(needs * params.batch_size, 7, Place()))

    monkeypatch.setattr(run, "limited", limit)
    monkeypatch.setattr(run, "measured_peak", measure)


@pytest.mark.parametrize(
    ("needs", "memory", "tried"),
    [
        (10, None, (Tried(800, fits=True, n_bytes=8_000), Tried(840, fits=False, n_bytes=None))),
        (10, 4_000, (Tried(400, fits=True, n_bytes=4_000), Tried(420, fits=False, n_bytes=None))),
        (10, 99_999, (Tried(800, fits=True, n_bytes=8_000), Tried(840, fits=False, n_bytes=None))),
        (11, None, (Tried(800, fits=False, n_bytes=None), Tried(840, fits=False, n_bytes=None))),
        (9, None, (Tried(800, fits=True, n_bytes=7_200), Tried(840, fits=True, n_bytes=7_560))),
    ],
)
def test_the_largest_batch_is_tried_with_its_memory_and_a_larger_one_too(monkeypatch, needs, memory, tried):
    on_cuda(monkeypatch, needs)
    found = run.measured(("lenet5",), ("step",), (1, 2), device="cuda", memory=memory)
    assert [case.measured.n_bytes for case in found.cases] == [needs, 2 * needs]
    assert [layer.measured_peak for layer in found.cases[0].layers] == [None]
    [largest] = found.largest
    assert largest.tried == tried


def test_no_sample_may_fit(monkeypatch):
    on_cuda(monkeypatch, 10)
    [largest] = run.measured(("lenet5",), ("step",), (1,), device="cuda", memory=9).largest
    assert (largest.batch_size, largest.predicted, largest.tried) == (0, 10, ())


def on_cpu(monkeypatch, available, needs=10):
    on_cuda(monkeypatch, needs)
    monkeypatch.setattr(run, "available_bytes", lambda: available)


@pytest.mark.parametrize(
    ("available", "needs", "tried"),
    [
        (1e6, 10, (Tried(100, fits=True, n_bytes=1_000),)),
        (1e6, 11, (Tried(100, fits=False, n_bytes=1_100),)),
        (999, 10, ()),
    ],
)
def test_on_a_cpu_the_largest_batch_is_measured_if_there_is_the_memory(monkeypatch, available, needs, tried):
    on_cpu(monkeypatch, available, needs)
    [largest] = run.measured(("lenet5",), ("forward",), (1,), memory=1_000).largest
    assert (largest.batch_size, largest.predicted, largest.tried) == (100, 1_000, tried)
    assert bool(largest.reason) == (not tried)


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_measured(monkeypatch):
    on_cpu(monkeypatch, 999)
    monkeypatch.setattr(run, "measured_peak", None)
    with pytest.raises(UsageError, match=r"^--batch-size: 100 needs 1,000 B, and 999 B are available; give a smaller one$"):
        run.measured(("lenet5",), ("forward",), (1, 100))


def test_a_device_without_statistics_is_refused():
    with pytest.raises(UsageError, match=r"^--device: 'mps' has no statistics of allocations"):
        run.measured(device="mps")
