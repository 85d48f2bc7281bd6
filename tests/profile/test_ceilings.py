"""Ceilings of the machine: arithmetic on a fake clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mnistbench.measuring import timing
from mnistbench.profile import ceilings as module
from mnistbench.profile.ceilings import Sizes

pytestmark = pytest.mark.versions

CPU = torch.device("cpu")


def test_rates_are_work_divided_by_time(monkeypatch):
    now = iter(range(0, 10**12, 10**6))  # a millisecond passes at each reading
    monkeypatch.setattr(timing.Clock, "wall_ns", lambda: next(now))
    sizes = Sizes(side=8, copied_bytes=1_000, batch=2, channels=4)
    assert module._matmul_flops_per_s(sizes, CPU, "float32") == pytest.approx(2 * 8**3 / 1e-3)
    assert module._convolution_flops_per_s(sizes, CPU, "float32") == pytest.approx(
        2 * (2 * 54 * 54 * 4 * 4 * 9) / 1e-3
    )
    # Read and written.
    assert module._copy_bytes_per_s(sizes, CPU) == pytest.approx(2 * 1_000 / 1e-3)


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
        return module._sizes(torch.device(device))

    return sizes


@pytest.mark.parametrize("free", [GIB // 2, GIB, 2 * GIB, 4 * GIB, 8 * GIB, 80 * GIB])
def test_the_kernels_fit_into_half_of_the_free_memory_of_an_accelerator(sizes_of, free):
    sizes = sizes_of(free)
    matrices = 3 * 4 * sizes.side**2
    copies = 2 * sizes.copied_bytes
    images = 4 * sizes.batch * sizes.channels * (56**2 + 54**2)
    assert max(matrices, copies, images) <= free / 2
    assert (sizes == Sizes(8192, GIB, 256, 256)) == (free >= 8 * GIB)


def test_memory_that_is_free(sizes_of):
    assert sizes_of(GIB) != sizes_of(5 * GIB)
    # The allocator keeps 4 GiB unused.
    assert sizes_of(GIB, reserved=6 * GIB, allocated=2 * GIB) == sizes_of(5 * GIB)
    assert sizes_of(2 * GIB, allocated=GIB, device="mps") == sizes_of(GIB)


def test_the_smallest_sizes_are_used_if_less_is_free(sizes_of):
    assert sizes_of(1) == module._LEAST


def test_where_the_free_memory_is_unknown_the_sizes_are_the_usual_ones(monkeypatch):
    def cannot_tell(_):
        raise RuntimeError("not supported")

    monkeypatch.setattr(
        torch, "get_device_module", lambda _: SimpleNamespace(mem_get_info=cannot_tell)
    )
    assert module._sizes(torch.device("xpu")) == module._ON_ACCELERATOR


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
    monkeypatch.setattr(module, "MEASURED_S", 0)
    assert module._typical_s(call, CPU) == typical / 1e3


def test_a_process_measures_once(monkeypatch):
    times = []
    monkeypatch.setattr(module, "_matmul_flops_per_s", lambda *_: times.append("matmul") or 1.0)
    monkeypatch.setattr(
        module, "_convolution_flops_per_s", lambda *_: times.append("convolution") or 3.0
    )
    monkeypatch.setattr(module, "_copy_bytes_per_s", lambda *_: times.append("copy") or 1.0)
    module._measured.cache_clear()
    try:
        for _ in range(3):
            found = module._measured(CPU, "float32", 1)
        assert times == ["matmul", "convolution", "copy"]
        assert found.flops_per_s == 3.0  # the better of the two
    finally:
        module._measured.cache_clear()


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
    monkeypatch.setattr(module, "_measured", lambda *of: of)
    assert module.ceilings_of(device, dtype, 2) == (torch.device(device), precision, threads)
