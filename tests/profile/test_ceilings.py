"""Ceilings of the machine: arithmetic on a fake clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from builders import params

from mnistbench.measuring import timing
from mnistbench.profile import ceilings as module
from mnistbench.profile.ceilings import Sizes, ceilings

pytestmark = pytest.mark.versions

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """Advance the clock by a millisecond at each reading."""
    now = iter(range(0, 10**12, 10**6))
    monkeypatch.setattr(timing.Clock, "wall_ns", lambda: next(now))


@pytest.mark.usefixtures("clock")
def test_rates_are_work_divided_by_time():
    sizes = Sizes(side=8, copied_bytes=1_000, batch=2, channels=4)
    assert module._matmul_flops_per_s(sizes, CPU, "float32") == pytest.approx(2 * 8**3 / 1e-3)
    assert module._convolution_flops_per_s(sizes, CPU, "float32") == pytest.approx(2 * (2 * 54 * 54 * 4 * 4 * 9) / 1e-3)
    assert module._copy_bytes_per_s(sizes, CPU) == pytest.approx(2 * 1_000 / 1e-3)  # read and written


GIB = 2**30


def accelerator(free, *, reserved=0, allocated=0):
    """An accelerator as its torch module describes it."""
    return SimpleNamespace(
        mem_get_info=lambda _: (free, 80 * GIB), memory_reserved=lambda _: reserved, memory_allocated=lambda _: allocated
    )


@pytest.mark.parametrize("free", [GIB // 2, GIB, 2 * GIB, 4 * GIB, 8 * GIB, 80 * GIB])
def test_the_kernels_fit_into_half_of_the_free_memory_of_an_accelerator(monkeypatch, free):
    monkeypatch.setattr(torch, "get_device_module", lambda _: accelerator(free))
    sizes = module._sizes(torch.device("cuda:1"))
    matrices, copies = 3 * 4 * sizes.side**2, 2 * sizes.copied_bytes
    images = 4 * sizes.batch * sizes.channels * (56**2 + 54**2)
    assert max(matrices, copies, images) <= free / 2
    assert (sizes == Sizes(8192, GIB, 256, 256)) == (free >= 8 * GIB)


def test_memory_that_the_allocator_keeps_unused_is_free(monkeypatch):
    monkeypatch.setattr(torch, "get_device_module", lambda _: accelerator(GIB, reserved=6 * GIB, allocated=2 * GIB))
    assert module._free_bytes(torch.device("cuda")) == 5 * GIB


def test_the_smallest_sizes_are_used_and_ceilings_are_unknown_if_they_do_not_fit(monkeypatch):
    monkeypatch.setattr(torch, "get_device_module", lambda _: accelerator(1))
    assert module._sizes(torch.device("cuda")) == module._LEAST

    def fails(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(module, "_measured", fails)
    assert ceilings(params()) is None


def test_where_the_free_memory_is_unknown_the_sizes_are_the_usual_ones(monkeypatch):
    def cannot_tell(_):
        raise RuntimeError("not supported")

    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace(mem_get_info=cannot_tell))
    assert module._sizes(torch.device("xpu")) == module._ON_ACCELERATOR
    mps = SimpleNamespace(recommended_max_memory=lambda: 2 * GIB, current_allocated_memory=lambda: GIB)
    monkeypatch.setattr(torch, "get_device_module", lambda _: mps)
    assert module._free_bytes(torch.device("mps")) == GIB


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


def test_ceilings_are_those_of_the_number_type_and_the_threads_of_a_case(monkeypatch):
    monkeypatch.setattr(module, "_measured", lambda device, precision, threads: (device, precision, threads))
    assert ceilings(params(threads=2, dtype="bfloat16")) == (CPU, "bfloat16", 2)
    assert ceilings(params(device="mps", threads=2)) == (torch.device("mps"), "float32", 1)


def test_a_process_measures_once(monkeypatch):
    times = []
    monkeypatch.setattr(module, "_matmul_flops_per_s", lambda *_: times.append("matmul") or 1.0)
    monkeypatch.setattr(module, "_convolution_flops_per_s", lambda *_: times.append("convolution") or 3.0)
    monkeypatch.setattr(module, "_copy_bytes_per_s", lambda *_: times.append("copy") or 1.0)
    module._measured.cache_clear()
    try:
        for _ in range(3):
            found = module._measured(CPU, "float32", 1)
        assert times == ["matmul", "convolution", "copy"]
        assert found.flops_per_s == 3.0  # the better of the two
    finally:
        module._measured.cache_clear()


def test_the_ceiling_of_convolutions_in_tf32_is_that_of_tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "conv", SimpleNamespace(fp32_precision="tf32"))
    assert module._precision(torch.device("cuda"), "float32") == "tf32"
    assert module._precision(torch.device("cuda"), "bfloat16") == "bfloat16"
    assert module._precision(CPU, "float32") == "float32"
