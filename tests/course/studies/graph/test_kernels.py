"""Kernels and their operations are read from code that Inductor generated.

The bodies of the kernels in data/ are cut.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.course.studies.graph.compiled import kernels, operations

DATA = Path(__file__).parent / "data"

#: Words of the vocabulary, some of which begin with another one.
WORDS = (
    "_log_softmax",
    "_log_softmax_backward_data",
    "add",
    "arange",
    "eq",
    "expand",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "mul",
    "native_dropout",
    "native_dropout_backward",
    "nll_loss_backward",
    "nll_loss_forward",
    "relu",
    "scalar_tensor",
    "sum",
    "threshold_backward",
    "view",
)

#: In the form of Inductor's code for CUDA.
TRITON = """
triton_poi_fused_add_mul_0 = async_compile.triton('triton_poi_fused_add_mul_0', '''
import triton
def triton_poi_fused_add_mul_0(in_ptr0, in_ptr1, in_ptr2, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')

async_compile.wait(globals())
del async_compile

def call(args):
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
        triton_poi_fused_add_mul_0.run(arg0_1, arg1_1, arg2_1, buf0, 64, stream=stream0)
        buf1 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
        extern_kernels.mm(buf0, arg0_1, out=buf1)
    return (buf1, )

def benchmark_compiled_module(times=10, repeat=10):
    extern_kernels.mm(buf0, arg0_1, out=buf1)
"""


def called(code, part="forward"):
    return [
        (kernel.name, kernel.launches, kernel.operations, kernel.generated)
        for kernel in kernels(code, part, WORDS.__contains__)
    ]


def test_the_expression_is_one_kernel_with_its_source():
    [kernel] = kernels(
        (DATA / "expression_forward_2.15.txt").read_text(encoding="utf-8"),
        "forward",
        WORDS.__contains__,
    )
    assert (kernel.part, kernel.name, kernel.launches, kernel.generated) == (
        "forward",
        "cpp_fused_add_mul_0",
        1,
        True,
    )
    assert kernel.operations == ("add", "mul")
    assert kernel.code.startswith("#include")
    assert "kernel(const float* in_ptr0" in kernel.code


def test_the_forward_pass_of_convnet_in_torch_2_11():
    assert called((DATA / "convnet_forward_2.11.txt").read_text(encoding="utf-8")) == [
        ("cpp_fused_0", 1, (), True),
        ("convolution", 2, ("convolution",), False),
        ("cpp_fused_relu_1", 1, ("relu",), True),
        ("cpp_fused_relu_2", 1, ("relu",), True),
        ("randint", 1, ("randint",), False),
        (
            "cpp_fused_max_pool2d_with_indices_native_dropout_3",
            1,
            ("max_pool2d_with_indices", "native_dropout"),
            True,
        ),
        ("addmm", 2, ("addmm",), False),
        (
            "cpp_fused_native_dropout_relu_threshold_backward_4",
            1,
            ("native_dropout", "relu", "threshold_backward"),
            True,
        ),
        (
            "cpp_fused__log_softmax_nll_loss_forward_5",
            1,
            ("_log_softmax", "nll_loss_forward"),
            True,
        ),
    ]


def test_the_backward_pass_of_convnet_in_torch_2_15():
    rows = called((DATA / "convnet_backward_2.15.txt").read_text(encoding="utf-8"))
    assert [(launches, generated) for _, launches, _, generated in rows].count((1, True)) == 5
    assert {name: launches for name, launches, _, generated in rows if not generated} == {
        "mm": 4,
        "convolution_backward": 2,
    }
    assert rows[0][2] == (
        "_log_softmax",
        "_log_softmax_backward_data",
        "arange",
        "eq",
        "expand",
        "max_pool2d_with_indices",
        "max_pool2d_with_indices_backward",
        "native_dropout_backward",
        "nll_loss_backward",
        "scalar_tensor",
        "view",
    )


def test_kernels_of_triton():
    assert called(TRITON) == [
        ("triton_poi_fused_add_mul_0", 1, ("add", "mul"), True),
        ("mm", 1, ("mm",), False),
    ]
    assert kernels(TRITON, "forward", WORDS.__contains__)[0].code.startswith("import triton")


def test_code_without_kernels():
    assert called("") == []
    assert called("async_compile.wait(globals())\n    return (primals_1, )\n") == []


@pytest.mark.parametrize("name", ["cpp_fused_unheard_of_add_0", "cpp_fused_add_unheard_1"])
def test_a_name_with_an_unknown_operation_stays_whole(name):
    assert operations(name, WORDS.__contains__) == (
        name.removeprefix("cpp_fused_").rpartition("_")[0],
    )


@given(st.sets(st.sampled_from(WORDS)), st.integers(0, 99))
def test_a_name_lists_the_operations_that_it_was_made_of(words, number):
    name = "_".join(["cpp_fused", *sorted(words), str(number)])
    assert operations(name, WORDS.__contains__) == tuple(sorted(words))
