"""The largest sum of allocations, from the profiler or from the statistics of CUDA's allocator."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.memory import measurement
from mnistbench.course.studies.memory.layers import Ledger
from mnistbench.course.studies.memory.measurement import largest_batch, limited, study
from mnistbench.course.studies.memory.study import LayerMemory, Peak, Settings, Site
from mnistbench.events.from_profiler import trace_of
from mnistbench.suite.workloads.step import Inference


def test_the_peak_is_the_largest_sum_and_belongs_to_the_allocation_that_reaches_it():
    first = Site("conv1", "forward", "aten::conv2d")
    second = Site("fc1", "forward", "aten::addmm")
    ledger = Ledger(100)
    for n_bytes, site in [
        (10, first),
        (-10, second),
        (30, second),
        (-30, second),
        (20, first),
        (-120, first),
        (119, second),
    ]:
        ledger.change(n_bytes, site)
    assert (ledger.peak, ledger.site, ledger.live) == (130, second, 119)
    assert ledger.peaks == {"conv1": 120, "fc1": 130}


def test_without_an_allocation_the_peak_is_what_is_held():
    ledger = Ledger(100)
    ledger.change(-50, Site("fc1"))
    assert (ledger.peak, ledger.site, ledger.peaks) == (100, Site(), {})


class Allocator:
    """Statistics of an allocator of 8,000 bytes."""

    def __init__(self, monkeypatch):
        self.allocated = 1_500
        self.peak = 9_999
        self.fractions = []
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
        self.allocator = allocator
        self.n_bytes = n_bytes
        self.freed = freed

    def forward(self, inputs):
        self.allocator.allocate(self.n_bytes)
        self.allocator.allocate(-self.freed)
        return inputs


class FakeCase:
    """A case on CUDA whose network holds 500 of the 1,500 allocated bytes.

    Its first two iterations allocate more.
    """

    def __init__(self, allocator):
        self.params = SimpleNamespace(device="cuda")
        self._allocator = allocator
        self._iterations = 0
        self.model = nn.Sequential(
            Allocating(allocator, 300, 100), nn.Identity(), Allocating(allocator, 250, 250)
        )
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
    peak, layers = measurement.measured_peak(case.params, None)
    assert peak == Peak(500 + 200 + 250, 500, Site("2", "forward"))
    assert layers == {"0": 800, "2": 950}


def test_a_limit_ends_with_its_body(monkeypatch):
    allocator = Allocator(monkeypatch)
    with pytest.raises(RuntimeError), limited(2_000, "cuda"):
        raise RuntimeError
    assert allocator.fractions == [0.25, 1.0]


def settings(phase, *batch_sizes, **changes):
    return Settings(models=("lenet5",), phases=(phase,), batch_sizes=batch_sizes, **changes)


def on_cuda(monkeypatch, needs):
    """A device of 8,000 bytes, and a model whose prediction is wrong.

    It is predicted to need 10 bytes for each sample, but needs others.
    """
    Allocator(monkeypatch)
    monkeypatch.setattr(measurement, "resolve_devices", list)
    monkeypatch.setattr(measurement, "fork_random", lambda _: nullcontext())
    layers = (LayerMemory("fc1", "Linear", weight=7, peak=10),)
    monkeypatch.setattr(
        measurement,
        "predicted_peak",
        lambda model, phase, size, *_: (Peak(10 * size, 7, Site()), layers),
    )
    limits = []

    @contextmanager
    def limit(memory, device):
        limits.append(memory)
        yield
        limits.pop()

    def measure(params, workload):
        if limits and needs * params.batch_size > limits[-1]:
            raise torch.OutOfMemoryError
        return Peak(needs * params.batch_size, 7, Site()), {}

    monkeypatch.setattr(measurement, "limited", limit)
    monkeypatch.setattr(measurement, "measured_peak", measure)


@pytest.mark.parametrize(
    ("needs", "memory", "tried"),
    [
        (10, None, (800, 8_000, "fits")),
        (10, 4_000, (400, 4_000, "fits")),
        (10, 99_999, (800, 8_000, "fits")),
        (11, None, (800, None, "does not fit")),
        (9, None, (800, 7_200, "fits")),
    ],
)
def test_the_largest_batch_is_tried_with_its_memory(monkeypatch, needs, memory, tried):
    on_cuda(monkeypatch, needs)
    result = study(settings("step", 1, 2, device="cuda", memory=memory))
    assert [case.measured.n_bytes for case in result.cases] == [needs, 2 * needs]
    assert [layer.measured_peak for layer in result.cases[0].layers] == [None]
    [largest] = result.largest
    assert (largest.tried, largest.measured, largest.result) == tried


def test_no_sample_may_fit(monkeypatch):
    on_cuda(monkeypatch, 10)
    [largest] = study(settings("step", 1, device="cuda", memory=9)).largest
    assert (largest.batch_size, largest.predicted, largest.result) == (
        0,
        10,
        "not tried: one sample needs more",
    )


def on_cpu(monkeypatch, available, needs=10):
    on_cuda(monkeypatch, needs)
    monkeypatch.setattr(measurement, "available_bytes", lambda: available)


@pytest.mark.parametrize(
    ("available", "needs", "tried"),
    [
        (1e6, 10, (100, 1_000, "fits")),
        (1e6, 11, (100, 1_100, "does not fit")),
        (999, 10, (None, None, "not tried: 999 B are available")),
    ],
)
def test_on_a_cpu_the_largest_batch_is_measured_if_there_is_the_memory(
    monkeypatch, available, needs, tried
):
    on_cpu(monkeypatch, available, needs)
    [largest] = study(settings("forward", 1, memory=1_000)).largest
    assert (largest.batch_size, largest.predicted) == (100, 1_000)
    assert (largest.tried, largest.measured, largest.result) == tried


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_measured(monkeypatch):
    on_cpu(monkeypatch, 999)
    monkeypatch.setattr(measurement, "measured_peak", None)
    with pytest.raises(
        UsageError,
        match=r"^--batch-size: 100 needs 1,000 B, and 999 B are available; give a smaller one$",
    ):
        study(settings("forward", 1, 100))


def test_a_device_without_statistics_is_refused(monkeypatch):
    monkeypatch.setattr(measurement, "resolve_devices", list)
    with pytest.raises(UsageError, match=r"^--device: 'mps' has no statistics of allocations"):
        study(Settings(device="mps"))


# ---- The search ----------------------------------------------------------------------------------

MOST = 60


@given(
    st.lists(st.integers(0, 50), min_size=MOST, max_size=MOST),
    st.integers(0, 3_000),
    st.integers(1, MOST),
)
def test_the_search_finds_the_same_batch_size_as_trying_all(growth, memory, most):
    sums = [sum(growth[: size + 1]) for size in range(MOST)]

    def bytes_of(size):
        assert 1 <= size <= most
        return sums[size - 1]

    fitting = [size for size in range(1, most + 1) if bytes_of(size) <= memory]
    assert largest_batch(bytes_of, memory, most) == max(fitting, default=0)


def test_a_size_in_millions_takes_few_predictions():
    sizes = []

    def bytes_of(size):
        sizes.append(size)
        return 4_800_000 + 394_240 * size

    assert largest_batch(bytes_of, 10**12) == (10**12 - 4_800_000) // 394_240
    assert len(sizes) <= 2 * 22  # 22 doublings, and as many halvings


def test_allocations_belong_to_the_innermost_event():
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        with record_function("range"):
            kept = torch.ones(1000)
        with record_function("later"):
            del kept
    changes = [
        (record.n_bytes, event.name, event.caller and event.caller.name)
        for record, event in measurement.allocations(trace_of(recorded))
        if event
    ]
    assert changes == [(4000, "aten::empty", "aten::ones"), (-4000, "later", None)]
