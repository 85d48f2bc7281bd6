"""Which algorithm the library took is read from oneDNN's own report, and on an accelerator from the names of its kernels."""

from dataclasses import replace

import pytest
import torch
from builders import op_row, op_table

from mnistbench.core.child import ChildError
from mnistbench.core.roofline import Ceilings
from mnistbench.course.studies.convolution import measurement
from mnistbench.course.studies.convolution.measurement import kernels, onednn_algorithms, study, summary
from mnistbench.course.studies.convolution.result import Settings, WayCase
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes

HEAD = "onednn_verbose,v1,primitive,exec,cpu"
CONVOLUTION = (
    f"{HEAD},convolution,brgconv:avx512_core,forward_training,src:f32::blocked:acdb::f0,,alg:convolution_direct,mb1_ic3,0.02"
)
REORDER = f"{HEAD},reorder,jit:uni,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,1x3x32x32,0.01"
WEIGHTS = f"{HEAD},convolution,jit:avx512_core,backward_weights,src:f32::blocked:acdb::f0,,alg:convolution_direct,mb1_ic3,0.02"
OLDER = (
    "onednn_verbose,exec,cpu,convolution,jit:avx2,forward_training,src_f32::blocked:acdb:f0,,alg:convolution_direct,mb1,0.02"
)
INFO = "onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:1"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        ([INFO, REORDER], ""),
        ([INFO, CONVOLUTION], "brgconv:avx512_core"),
        ([REORDER, CONVOLUTION, REORDER], "brgconv:avx512_core, 2 reorders"),
        ([WEIGHTS, CONVOLUTION, CONVOLUTION, REORDER], "jit:avx512_core + brgconv:avx512_core, 1 reorder"),
        ([OLDER], "jit:avx2"),
    ],
)
def test_a_report_is_one_line(lines, said):
    assert summary(lines) == said


def case(way, sizes, dtype="float32"):
    return WayCase("one", sizes, way, dtype)


@pytest.mark.versions
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")
def test_onednn_names_the_algorithms_of_the_library_alone():
    sizes = ConvolutionSizes(1, 32, 26, 26, 64, 3, 3)  # PyTorch computes small ones itself
    forward, im2col, backward = onednn_algorithms([case(way, sizes) for way in ("library", "im2col", "library_backward")], 1)
    assert forward
    assert backward
    assert "brgconv" not in im2col


def test_a_child_that_fails_is_one_line():
    said = r"^the process that asks oneDNN for its algorithms ended with exit code 1: \w+Error: .*float31"
    with pytest.raises(ChildError, match=said):
        onednn_algorithms([case("library", SMALL, "float31")], 1)


# ---- On an accelerator -----------------------------------------------------------------------------------------------

SMALL = ConvolutionSizes(1, 1, 4, 4, 1, 3, 3)


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

    monkeypatch.setattr(measurement, "profile_call", profile_call)
    return asked


def test_kernels_are_named_once_each_in_the_order_of_the_operations(on_accelerator):
    assert kernels(case("library", SMALL), "cpu") == ("nchwToNhwcKernel", "sm90_xmma_fprop")
    assert on_accelerator == ["cpu"]


def test_the_kernels_are_the_algorithm_of_the_library_alone(on_accelerator, monkeypatch):
    monkeypatch.setattr(measurement, "has_device_view", lambda _: True)
    monkeypatch.setattr(measurement, "ceilings_of", lambda *_: Ceilings(1e9, 1e9, "float32"))
    ways, dtypes = ("im2col", "library", "winograd"), ("float32", "float64")
    found = study(Settings(images=(1, 1, 4, 4), filters=(1, 3, 3), stride=2, ways=ways, dtypes=dtypes))
    algorithms = {"im2col": "", "library": "nchwToNhwcKernel, sm90_xmma_fprop"}
    measured = [(cost.case.way, cost.case.dtype, cost.algorithm) for cost in found.costs]
    assert measured == [(way, dtype, algorithm) for way, algorithm in algorithms.items() for dtype in dtypes]
    assert found.refused == ("own: winograd: cannot compute 1x1x4x4 with 1 filters of 3x3 stride 2; it needs stride 1",)
