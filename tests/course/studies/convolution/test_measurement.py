"""Which algorithm the library took is read from oneDNN's own report.

On an accelerator, from the names of its kernels.
"""

from dataclasses import replace

import pytest
import torch
from builders import op_row, op_table

from mnistbench.course.studies.convolution import measurement
from mnistbench.course.studies.convolution.measurement import kernels, study, summary
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes
from mnistbench.course.studies.convolution.study import Settings, WayCase
from mnistbench.events.work.roofline import Ceilings
from mnistbench.measuring.provider import CallProfile

BRGCONV = "convolution brgconv:avx512_core"
JIT = "convolution jit:avx512_core"


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ({}, ""),
        ({"reorder": 1}, ""),
        ({BRGCONV: 1}, "brgconv:avx512_core"),
        ({"reorder": 2, BRGCONV: 1}, "brgconv:avx512_core, 2 reorders"),
        ({JIT: 1, BRGCONV: 2, "reorder": 1}, "jit:avx512_core + brgconv:avx512_core, 1 reorder"),
    ],
)
def test_a_report_is_one_line(runs, message):
    assert summary(runs) == message


def case(way, sizes, dtype="float32"):
    return WayCase("one", sizes, way, dtype)


@pytest.mark.versions
@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN"
)
def test_onednn_names_the_algorithms_of_the_library_alone(monkeypatch, capfd):
    monkeypatch.setattr(measurement, "ceilings_of", lambda *_: Ceilings(1e9, 1e9, "float32"))
    ways = ("library", "im2col", "library_backward")
    # PyTorch computes small ones itself.
    result = study(Settings(images=(1, 32, 26, 26), filters=(64, 3, 3), ways=ways))
    forward, im2col, backward = (cost.algorithm for cost in result.costs)
    assert ":" in forward
    assert im2col == ""
    assert ":" in backward
    assert capfd.readouterr().out == ""


# ---- On an accelerator ---------------------------------------------------------------------------

SMALL = ConvolutionSizes(1, 1, 4, 4, 1, 3, 3)


@pytest.fixture
def on_accelerator(monkeypatch):
    """Let the profiler find kernels, as on CUDA; return what it was asked to profile."""
    asked = []

    def profile_call(call, *, iterations, duration_ns, device):
        asked.append(device)
        host = op_table(op_row("aten::cudnn_convolution", 900))
        kernels = ("nchwToNhwcKernel", "sm90_xmma_fprop")
        kernels_of = {"aten::cudnn_convolution": kernels, "aten::add_": kernels[:1]}
        rows = (
            replace(op_row(name, 900, self_device_ns=900), kernels=names)
            for name, names in kernels_of.items()
        )
        return CallProfile((host, op_table(*rows, view="device")), None)

    monkeypatch.setattr(measurement, "profile_call", profile_call)
    return asked


def test_kernels_are_named_once_each_in_the_order_of_the_operations(on_accelerator):
    assert kernels(case("library", SMALL), "cpu") == ("nchwToNhwcKernel", "sm90_xmma_fprop")
    assert on_accelerator == ["cpu"]


def test_the_kernels_are_the_algorithm_of_the_library_alone(on_accelerator, monkeypatch):
    monkeypatch.setattr(measurement, "has_device_view", lambda _: True)
    monkeypatch.setattr(measurement, "ceilings_of", lambda *_: Ceilings(1e9, 1e9, "float32"))
    ways = ("im2col", "library", "winograd")
    dtypes = ("float32", "float64")
    result = study(
        Settings(images=(1, 1, 4, 4), filters=(1, 3, 3), stride=2, ways=ways, dtypes=dtypes)
    )
    algorithms = {"im2col": "", "library": "nchwToNhwcKernel, sm90_xmma_fprop"}
    measured = [(cost.case.way, cost.case.dtype, cost.algorithm) for cost in result.costs]
    assert measured == [
        (way, dtype, algorithm) for way, algorithm in algorithms.items() for dtype in dtypes
    ]
    assert result.refused == (
        "own: winograd: cannot compute 1x1x4x4 with 1 filters of 3x3 stride 2; it needs stride 1",
    )
