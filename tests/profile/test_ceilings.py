"""Ceilings of the machine: arithmetic on a fake clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from builders import params

from mnistbench.profile import ceilings as module
from mnistbench.profile.ceilings import ceilings

pytestmark = pytest.mark.versions

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """Advance the clock by a millisecond at each reading."""
    now = iter(range(0, 10**12, 10**6))
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: next(now))


def test_rates_are_work_divided_by_time(clock, monkeypatch):
    monkeypatch.setitem(module._SIZES, "cpu", (8, 1_000))
    monkeypatch.setitem(module._CONVOLUTIONS, "cpu", (2, 4))
    assert module._matmul_flops_per_s(CPU, "float32") == pytest.approx(2 * 8**3 / 1e-3)
    assert module._convolution_flops_per_s(CPU, "float32") == pytest.approx(2 * (2 * 54 * 54 * 4 * 4 * 9) / 1e-3)
    assert module._copy_bytes_per_s(CPU) == pytest.approx(2 * 1_000 / 1e-3)  # read and written


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

    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: now[0])
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


def test_convolutions_of_cuda_in_tf32_are_held_against_a_product_in_tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "conv", SimpleNamespace(fp32_precision="tf32"))
    assert module._precision(torch.device("cuda"), "float32") == "tf32"
    assert module._precision(torch.device("cuda"), "bfloat16") == "bfloat16"
    assert module._precision(CPU, "float32") == "float32"
