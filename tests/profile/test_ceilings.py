"""What a machine reaches at best: arithmetic on a fake clock, and what is kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from builders import params

from mnistbench.profile import ceilings as module
from mnistbench.profile.ceilings import ceilings
from mnistbench.profile.result import Ceilings

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is a millisecond later."""
    now = iter(range(1_000_000))
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(now) / 1_000)


@pytest.fixture
def measured(monkeypatch):
    """What the next measurement finds."""
    found = {"now": Ceilings(100.0, 10.0, "float32"), "times": 0}

    def measure(device, precision, threads):
        found["times"] += 1
        return found["now"]

    monkeypatch.setattr(module, "_measured", measure)
    return found


def test_rates_are_work_by_the_time_of_the_best_call(clock, monkeypatch):
    monkeypatch.setitem(module._SIZES, "cpu", (8, 1_000))
    monkeypatch.setitem(module._CONVOLUTIONS, "cpu", (2, 4))
    assert module._matmul_flops_per_s(CPU, "float32") == pytest.approx(2 * 8**3 / 1e-3)
    assert module._convolution_flops_per_s(CPU, "float32") == pytest.approx(2 * (2 * 54 * 54 * 4 * 4 * 9) / 1e-3)
    assert module._copy_bytes_per_s(CPU) == pytest.approx(2 * 1_000 / 1e-3)  # read and written


def test_the_best_that_was_ever_measured_is_kept(tmp_path, measured):
    cache = tmp_path / "new" / "ceilings.json"
    assert ceilings(params(), cache) == Ceilings(100.0, 10.0, "float32")
    measured["now"] = Ceilings(50.0, 20.0, "float32")  # beside a busy neighbour, but memory was free
    assert ceilings(params(), cache) == Ceilings(100.0, 20.0, "float32")
    measured["now"] = Ceilings(1.0, 1.0, "float32")
    assert ceilings(params(), cache) == Ceilings(100.0, 20.0, "float32")


def test_other_threads_and_other_numbers_are_another_ceiling(tmp_path, measured):
    cache = tmp_path / "ceilings.json"
    ceilings(params(), cache)
    ceilings(params(threads=2), cache)
    measured["now"] = Ceilings(300.0, 10.0, "bfloat16")
    assert ceilings(params(dtype="bfloat16"), cache).precision == "bfloat16"
    assert len(json.loads(cache.read_text())) == 3


NO_RATE = {"a": {**asdict(Ceilings(1, 1, "float32")), "flops_per_s": 0}}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', json.dumps(NO_RATE)])
def test_a_spoiled_cache_is_made_anew(tmp_path, measured, text):
    cache = tmp_path / "ceilings.json"
    cache.write_text(text)
    assert ceilings(params(), cache) == measured["now"]
    assert len(json.loads(cache.read_text())) == 1


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path, measured):
    (tmp_path / "file").write_text("")
    assert ceilings(params(), tmp_path / "file" / "ceilings.json") == measured["now"]


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
