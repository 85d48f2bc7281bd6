"""The table of operations in bench/ops.toml."""

import importlib.util
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")


@pytest.fixture(scope="module")
def ops():
    path = Path(__file__).parents[2] / "bench" / "test_ops.py"
    spec = importlib.util.spec_from_file_location("ops", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(ops, *, dtypes, threads):
    """Compute each case with these dtypes.

    Return the names of those whose dtype torch does not have for the operation.
    """
    missing = []
    for case in ops.cases():
        call, tensors, dtype, layout, count, direction, _ = case.values
        if dtype in dtypes and count in threads:
            try:
                function, args = ops.prepared(call, tensors, dtype, layout, direction)
                results = function(*args)
            except RuntimeError as error:
                if "not implemented for" not in str(error):
                    raise AssertionError(case.id) from error
                missing.append(case.id)
            else:
                assert results is not None or call.startswith("torch._f"), case.id
    return missing


def test_each_operation_has_cases_that_torch_computes(ops):
    assert run(ops, dtypes=("float32", "int64"), threads=(1,)) == []


@pytest.mark.thorough
def test_each_case_can_be_computed(ops):
    assert run(ops, dtypes=("bfloat16", "float16"), threads=(1,)) == []


def test_the_table_has_150_operations_and_no_case_twice(ops):
    names = [case.id for case in ops.cases()]
    assert len({name.partition("-")[0] for name in names}) >= 150
    assert len(set(names)) == len(names)


def test_a_gradient_is_that_of_the_sum_of_results(ops):
    torch.manual_seed(0)
    function, args = ops.prepared(
        "a * b", {"a": "2x3", "b": "2x3 constant"}, "float32", "transposed", "backward"
    )
    [output] = function(*args)
    torch.manual_seed(0)
    _ = ops.tensor("2x3", "float32", "transposed")
    constant = ops.tensor("2x3 constant", "float32", "transposed")
    assert torch.equal(output, constant)


@pytest.mark.parametrize(
    ("content", "dtype", "layout", "expected"),
    [
        ("4x3", "bfloat16", "contiguous", (torch.bfloat16, (3, 1))),
        ("4x3", "float32", "transposed", (torch.float32, (1, 4))),
        ("2x3x4x5", "float32", "channels_last", (torch.float32, (60, 1, 15, 3))),
        ("4x3 int32", "float32", "contiguous", (torch.int32, (3, 1))),
        ("7 of 3", "float32", "transposed", (torch.int64, (1,))),
        ("4x3 bool", "float32", "contiguous", (torch.bool, (3, 1))),
    ],
)
def test_a_content_decides_dtype_and_layout(ops, content, dtype, layout, expected):
    tensor = ops.tensor(content, dtype, layout)
    assert (tensor.dtype, tensor.stride()) == expected
