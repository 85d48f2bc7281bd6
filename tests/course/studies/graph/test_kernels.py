"""The kernels that generated code calls, with their operations and their source."""

from __future__ import annotations

from collections.abc import Sequence

from mnistbench.core.compiled.compilation import BACKWARD_PART, FORWARD_PART
from mnistbench.course.studies.graph.compiled import kernels, source
from mnistbench.suite.measuring.compiled_graphs import InductorGraph, Node

#: In the form of Inductor's code for a CPU.
CPP = """
cpp_fused_add_mul_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
''')


cpp_fused_mul_1 = async_compile.cpp_pybinding(['float*'], r'''
second kernel
''')


async_compile.wait(globals())
"""

#: In the form of Inductor's code for CUDA.
TRITON = """
triton_poi_fused_add_mul_0 = async_compile.triton('triton_poi_fused_add_mul_0', '''
import triton
def triton_poi_fused_add_mul_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')

async_compile.wait(globals())
"""


def graph(*calls: tuple[str, Sequence[str]], part: str = FORWARD_PART) -> InductorGraph:
    """Return a graph whose nodes are named by their operations, with a number."""
    nodes = {
        name: Node(name.partition("_")[0], None, makes_seeds=False)
        for _, names in calls
        for name in names
    }
    return InductorGraph("0/0", part, nodes, False, False, list(calls))


def test_kernels_are_in_the_order_of_their_first_calls_with_their_number() -> None:
    called = kernels(
        graph(
            ("cpp_fused_mul_1:1", ["mul"]),
            ("extern_kernels.mm:2", ["mm"]),
            ("cpp_fused_add_mul_0:3", ["mul_1", "add"]),
            ("cpp_fused_mul_1:4", ["mul_2"]),
            ("torch.ops.aten.convolution_backward.default:5", ["convolution"]),
            ("extern_kernels.mm:6", ["mm_1"]),
            part=BACKWARD_PART,
        ),
        CPP,
    )
    assert {kernel.part for kernel in called} == {BACKWARD_PART}
    assert [
        (kernel.name, kernel.launches, kernel.operations, kernel.generated) for kernel in called
    ] == [
        ("cpp_fused_mul_1", 2, ("mul",), True),
        ("mm", 2, ("mm",), False),
        ("cpp_fused_add_mul_0", 1, ("add", "mul"), True),
        ("convolution_backward", 1, ("convolution",), False),
    ]
    assert [kernel.code.strip() for kernel in called[:2]] == ["second kernel", ""]


def test_the_source_of_a_kernel() -> None:
    assert source(CPP, "cpp_fused_add_mul_0").startswith("#include")
    assert "kernel(const float* in_ptr0" in source(CPP, "cpp_fused_add_mul_0")
    assert source(TRITON, "triton_poi_fused_add_mul_0").startswith("import triton")
    assert source(CPP, "cpp_fused_add_0") == ""


def test_a_graph_without_kernels() -> None:
    assert kernels(graph(), "async_compile.wait(globals())") == []
