"""Ceilings of the machine: arithmetic on a fake clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mnistbench.measuring import timing
from mnistbench.suite.profile import ceilings
from mnistbench.suite.profile.ceilings import ACCELERATOR_SIZES, MIN_SIZES, Sizes

pytestmark = pytest.mark.versions

CPU = torch.device("cpu")


@pytest.fixture
def measured_ceilings():
    """Measure in this test, whatever the process has measured before."""
    ceilings.measured_ceilings.cache_clear()
    yield ceilings.measured_ceilings
    ceilings.measured_ceilings.cache_clear()


@pytest.mark.parametrize(
    ("sizes", "flops"),
    [
        pytest.param(Sizes(64, 1_000, 1, 1), 2 * 64**3, id="matrix product"),
        pytest.param(Sizes(8, 1_000, 2, 4), 2 * (2 * 54 * 54 * 4 * 4 * 9), id="convolution"),
    ],
)
def test_rates_are_work_divided_by_time_and_the_higher_one_of_two_libraries_counts(
    monkeypatch, measured_ceilings, sizes, flops
):
    now = iter(range(0, 10**12, 10**6))  # a millisecond passes at each reading
    monkeypatch.setattr(timing.Clock, "wall_ns", lambda: next(now))
    monkeypatch.setattr(ceilings, "CPU_SIZES", sizes)
    rates = measured_ceilings(CPU, "float32", 1)
    assert rates.flops_per_s == pytest.approx(flops / 1e-3)
    # Read and written.
    assert rates.bytes_per_s == pytest.approx(2 * 1_000 / 1e-3)


GIB = 2**30


@pytest.fixture
def sizes_of(monkeypatch):
    """Return the sizes for an accelerator with this much free memory.

    Its torch module describes it.
    """

    def sizes(free, *, reserved=0, allocated=0, device="cuda:1"):
        module_of_device = SimpleNamespace(
            mem_get_info=lambda _: (free, 80 * GIB),
            memory_reserved=lambda _: reserved,
            memory_allocated=lambda _: allocated,
            recommended_max_memory=lambda: free,
            current_allocated_memory=lambda: allocated,
        )
        monkeypatch.setattr(torch, "get_device_module", lambda _: module_of_device)
        return ceilings.kernel_sizes(torch.device(device))

    return sizes


@pytest.mark.parametrize("free", [GIB // 2, GIB, 2 * GIB, 4 * GIB, 8 * GIB, 80 * GIB])
def test_the_kernels_fit_into_half_of_the_free_memory_of_an_accelerator(sizes_of, free):
    sizes = sizes_of(free)
    matrices = 3 * 4 * sizes.side**2
    copies = 2 * sizes.copied_bytes
    images = 4 * sizes.batch * sizes.channels * (56**2 + 54**2)
    assert max(matrices, copies, images) <= free / 2
    assert (sizes == ACCELERATOR_SIZES) == (free >= 8 * GIB)


def test_memory_that_is_free(sizes_of):
    assert sizes_of(GIB) != sizes_of(5 * GIB)
    # The allocator keeps 4 GiB unused.
    assert sizes_of(GIB, reserved=6 * GIB, allocated=2 * GIB) == sizes_of(5 * GIB)
    assert sizes_of(2 * GIB, allocated=GIB, device="mps") == sizes_of(GIB)


def test_the_smallest_sizes_are_used_if_less_is_free(sizes_of):
    assert sizes_of(1) == MIN_SIZES


def test_where_the_free_memory_is_unknown_the_sizes_are_the_usual_ones(monkeypatch):
    def cannot_tell(_):
        raise RuntimeError("not supported")

    monkeypatch.setattr(
        torch, "get_device_module", lambda _: SimpleNamespace(mem_get_info=cannot_tell)
    )
    assert ceilings.kernel_sizes(torch.device("xpu")) == ACCELERATOR_SIZES


@pytest.mark.parametrize(
    ("milliseconds", "typical"),
    [
        ((9, 10, 10, 10, 10, 1), 10),  # the first is not timed; one lucky iteration does not count
        ((9, 10, 90, 10, 90, 90), 10),  # disturbed iterations do not count
    ],
)
def test_a_ceiling_does_not_depend_on_single_iterations(monkeypatch, milliseconds, typical):
    now = [0]
    durations = iter(milliseconds)

    def call():
        now[0] += next(durations) * 1_000_000

    monkeypatch.setattr(timing.Clock, "wall_ns", lambda: now[0])
    monkeypatch.setattr(ceilings, "MEASURED_S", 0)
    assert ceilings.typical_s(call, CPU) == typical / 1e3


def test_a_process_measures_each_kernel_once(monkeypatch, measured_ceilings):
    kernels = []

    def times_ns(work, **_):
        kernels.append(work)
        return [1_000_000] * 5

    monkeypatch.setattr(ceilings, "times_ns", times_ns)
    first = measured_ceilings(CPU, "float32", 1)
    assert len(kernels) == 3  # the product, the convolution, the copy
    assert measured_ceilings(CPU, "float32", 1) == first
    assert len(kernels) == 3


@pytest.mark.parametrize(
    ("device", "dtype", "precision", "threads"),
    [
        ("cpu", "float32", "float32", 2),
        ("cpu", "bfloat16", "bfloat16", 2),
        ("mps", "float32", "float32", 1),
        ("cuda", "float32", "tf32", 1),  # as convolutions compute there
        ("cuda", "bfloat16", "bfloat16", 1),
    ],
)
def test_ceilings_are_those_of_the_precision_and_the_threads_of_a_case(
    monkeypatch, device, dtype, precision, threads
):
    monkeypatch.setattr(torch.backends.cudnn, "conv", SimpleNamespace(fp32_precision="tf32"))
    monkeypatch.setattr(ceilings, "measured_ceilings", lambda *conditions: conditions)
    assert ceilings.ceilings_of(device, dtype, 2) == (torch.device(device), precision, threads)
