"""The names of operations as tables and messages show them."""

import pytest

from mnistbench.core.operation import is_runtime_call, operation_name, place_name
from mnistbench.core.record import OUTSIDE, RUNTIME, UNATTRIBUTED


@pytest.mark.parametrize(
    ("name", "phase", "module", "expected"),
    [
        ("aten::mm", "backward", "fc1", "aten::mm, backward fc1"),
        ("aten::mm", "optimizer", "", "aten::mm, optimizer"),
        ("aten::mm", "", "", "aten::mm"),
        ("autograd::engine::evaluate_function: X", "backward", "fc1", "evaluate_function: X, backward fc1"),
        ("", "backward", "conv2", "conv2 backward"),
        ("", "optimizer", "", "no module optimizer"),
        ("", "", "", "no module"),
        (OUTSIDE, "forward", "", "outside operations (forward)"),
        (OUTSIDE, "", "", "outside operations"),
        (RUNTIME, "", "", "runtime calls"),
        (UNATTRIBUTED, "", "", "unattributed kernels"),
    ],
)
def test_an_operation_has_one_name(name, phase, module, expected):
    assert operation_name(name, phase, module) == expected


def test_a_place_is_a_phase_and_a_module():
    assert (place_name("backward", "fc1"), place_name("optimizer", ""), place_name("", "")) == ("backward fc1", "optimizer", "")


@pytest.mark.parametrize(
    ("name", "is_call"),
    [
        ("cudaLaunchKernel", True),
        ("cudaStreamGetCaptureInfo_v2", True),
        ("cuLaunchKernelEx", True),
        ("hipGetDevicePropertiesR0600", True),
        ("urEnqueueKernelLaunch", True),
        ("zeCommandListAppendLaunchKernel", True),
        ("aten::cudnn_convolution", False),
        ("cumsum", False),
        ("zero_grad", False),
        ("CudnnRnnBackward0", False),
        ("cuda_step", False),
        ("url::get", False),
    ],
)
def test_calls_of_a_runtime_are_told_by_their_names(name, is_call):
    assert is_runtime_call(name) is is_call
