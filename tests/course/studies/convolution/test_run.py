"""On an accelerator, the algorithm of the library is the names of its kernels."""

from dataclasses import replace

import pytest
import torch
from builders import op_row, op_table

from mnistbench.course.studies.convolution import calls, run
from mnistbench.course.studies.convolution.sizes import Sizes
from mnistbench.course.studies.convolution.ways import WAYS

SIZES = Sizes(1, 1, 4, 4, 1, 3, 3)


@pytest.fixture
def on_accelerator(monkeypatch):
    """Let the profiler find kernels, as on CUDA; return what it was asked to profile."""
    asked = []

    def profile_call(call, *, iterations, duration_ns, device):
        asked.append(device)
        host = op_table(op_row("aten::cudnn_convolution", 900))
        kernels = ("nchwToNhwcKernel", "sm90_xmma_fprop")
        names = {"aten::cudnn_convolution": kernels, "aten::add_": kernels[:1]}
        rows = (replace(op_row(name, 900, self_device_ns=900), kernels=found) for name, found in names.items())
        return [host, op_table(*rows, view="device")]

    monkeypatch.setattr(calls, "profile_call", profile_call)
    return asked


def test_kernels_are_named_once_each_in_the_order_of_the_operations(on_accelerator):
    assert calls.kernels(WAYS["library"], SIZES, torch.float32, "cpu") == ("nchwToNhwcKernel", "sm90_xmma_fprop")
    assert on_accelerator == ["cpu"]


def test_the_kernels_are_the_algorithm_of_the_library_alone(on_accelerator, monkeypatch):
    monkeypatch.setattr(run, "has_device_view", lambda _: True)
    found = run.study({"one": SIZES}, ["im2col", "library"], ["float32"], device="cpu", threads=1, settings={})
    assert [cost.algorithm for cost in found.costs] == ["", "nchwToNhwcKernel, sm90_xmma_fprop"]
