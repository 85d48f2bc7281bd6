"""FLOPs and bytes from recorded arguments, against torch's own formulas.

And against the tensors that the operations return.
"""

from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import ANY_SPEED
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from trace_builders import Of, recorded

from mnistbench.events.work.arguments import Arguments, UncountedError
from mnistbench.events.work.bytes_moved import MOVES
from mnistbench.events.work.flops import (
    ATTENTION,
    ATTENTION_BACKWARD,
    CONVOLUTION_BACKWARD,
    CONVOLUTIONS,
    PRODUCTS,
    Work,
)
from mnistbench.suite.profile.counting import moved_bytes

aten = torch.ops.aten


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def count(name, *arguments):
    return (PRODUCTS.get(name) or MOVES[name])(Arguments(recorded(*arguments)))


def counted_by_torch(name, *arguments):
    """Return FLOPs of torch's counter, and the bytes of all tensors among arguments and results."""
    with FlopCounterMode(display=False) as counter:
        out = getattr(aten, name.removeprefix("aten::"))(*arguments)
    outs = out if isinstance(out, list | tuple) else [out]
    tensors = [value for value in (*arguments, *outs) if isinstance(value, torch.Tensor)]
    return counter.get_total_flops(), sum(tensor.nbytes for tensor in tensors)


def test_the_arguments_are_where_torch_has_them():
    with_arguments = {
        **CONVOLUTIONS,
        "aten::convolution_backward": CONVOLUTION_BACKWARD,
        **{name: names for name, (_, names) in {**ATTENTION, **ATTENTION_BACKWARD}.items()},
    }
    for name, names in with_arguments.items():
        schema = getattr(aten, name.removeprefix("aten::")).default._schema
        schema_names = [argument.name for argument in schema.arguments][: len(names)]
        assert [name.replace("self", "input") for name in schema_names] == list(names), name


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::mm", [(3, 5), (5, 7)]),
        ("aten::bmm", [(2, 3, 5), (2, 5, 7)]),
        ("aten::addmm", [(7,), (3, 5), (5, 7)]),
        ("aten::addmm", [(3, 7), (3, 5), (5, 7)]),
        ("aten::baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7)]),
    ],
)
def test_matrix_products(name, shapes):
    arguments = [meta(*shape) for shape in shapes]
    flops, n_bytes = counted_by_torch(name, *arguments)
    assert count(name, *arguments) == Work({"bfloat16": flops}, n_bytes)


def test_a_result_in_an_argument_of_its_own_is_not_read():
    left = meta(3, 5)
    right = meta(5, 7)
    out = meta(3, 7)
    assert count("aten::mm", left, right, out) == count("aten::mm", left, right)


CONVOLUTION_CASES = [
    # input, weight, stride, padding, dilation, transposed, output padding, groups
    ((2, 6, 12, 10), (8, 6, 3, 3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ((2, 6, 12, 10), (8, 6, 3, 5), [2, 3], [1, 2], [1, 1], False, [0, 0], 1),
    ((2, 6, 13, 13), (8, 6, 3, 3), [1], [2], [2], False, [0], 1),
    ((2, 6, 12, 10), (8, 3, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 2),
    ((2, 6, 12, 10), (6, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 6),
    ((2, 6, 20), (8, 6, 5), [2], [1], [1], False, [0], 1),
    ((2, 6, 5, 8, 8), (8, 6, 2, 3, 3), [1, 2, 2], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
    ((2, 6, 7, 5), (6, 8, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    ((2, 6, 7, 5), (6, 4, 4, 4), [2, 2], [1, 1], [1, 1], True, [0, 0], 2),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTION_CASES)
def test_convolutions(case, with_bias):
    images, weight, *rest = case
    transposed = rest[3]
    groups = rest[5]
    bias = meta(weight[1] * groups if transposed else weight[0]) if with_bias else None
    arguments = (meta(*images), meta(*weight), bias, *rest)
    flops, n_bytes = counted_by_torch("aten::convolution", *arguments)
    assert count("aten::convolution", *arguments) == Work({"bfloat16": flops}, n_bytes)


@pytest.mark.parametrize("mask", [[True, True, True], [False, True, False], [True, False, False]])
@pytest.mark.parametrize("case", CONVOLUTION_CASES)
def test_gradients_of_convolutions(case, mask):
    images, weight, *rest = case
    forward = aten.convolution(meta(*images), meta(*weight), None, *rest)
    arguments = (
        meta(*forward.shape),
        meta(*images),
        meta(*weight),
        [forward.shape[1]],
        *rest,
        mask,
    )
    flops, n_bytes = counted_by_torch("aten::convolution_backward", *arguments)
    # torch counts the gradient of the weight without regard to groups; each gradient takes as much
    # as forward.
    if rest[5] > 1:
        flops = (
            sum(mask[:2])
            * counted_by_torch("aten::convolution", meta(*images), meta(*weight), None, *rest)[0]
        )
    assert count("aten::convolution_backward", *arguments) == Work({"bfloat16": flops}, n_bytes)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("cudnn_convolution", "padding stride dilation groups"),
        ("miopen_convolution", "bias padding stride dilation groups"),
        ("mkldnn_convolution", "bias padding stride dilation groups"),
        ("cudnn_convolution_relu", "bias stride padding dilation groups"),
        ("cudnn_convolution_transpose", "padding output_padding stride dilation groups"),
        ("miopen_convolution_transpose", "bias padding output_padding stride dilation groups"),
    ],
)
def test_a_library_s_convolution_counts_as_the_general_one(name, order):
    transposed = name.endswith("transpose")
    argument_values = {
        "bias": None,
        "stride": [2, 2],
        "padding": [1, 1],
        "dilation": [1, 1],
        "output_padding": [0, 0],
        "groups": 2,
    }
    images = meta(2, 6, 12, 10)
    weight = meta(6, 4, 3, 3) if transposed else meta(8, 3, 3, 3)
    general = (None, [2, 2], [1, 1], [1, 1], transposed, [0, 0], 2)
    work = count(
        f"aten::{name}", images, weight, *(argument_values[argument] for argument in order.split())
    )
    assert work == count("aten::convolution", images, weight, *general)


#: batch, heads, heads of key and value, queries, keys, features, features of the value
SIZES = [(2, 4, 4, 16, 16, 8, 8), (2, 4, 4, 16, 24, 8, 16), (2, 4, 2, 16, 24, 8, 8)]


def of_attention(sizes, *, heads_first):
    batch, heads, fewer, queries, keys, features, of_value = sizes
    shapes = [
        (batch, heads, queries, features),
        (batch, fewer, keys, features),
        (batch, fewer, keys, of_value),
        (batch, heads, queries, of_value),
    ]
    order = (0, 1, 2, 3) if heads_first else (0, 2, 1, 3)
    return [Of([shape[at] for at in order]) for shape in shapes]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", sorted(ATTENTION))
def test_attention(name, sizes):
    layout, names = ATTENTION[name]
    query, key, value, out = of_attention(sizes, heads_first=layout == (1, 2))
    argument_values = {
        "query": query,
        "key": key,
        "value": value,
        "compute_log_sumexp": False,
        "is_causal": True,
    }
    sum_bytes = 0 if "compute_log_sumexp" in names else 4 * prod(sizes[:2]) * sizes[3]
    n_bytes = 2 * sum(prod(tensor.shape) for tensor in (query, key, value, out)) + sum_bytes
    flops = sdpa_flop_count(*(tensor.shape for tensor in of_attention(sizes, heads_first=True)[:3]))
    work = count(name, *(argument_values.get(argument) for argument in names))
    assert work == Work({"bfloat16": flops}, n_bytes, "is_causal" in names)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", sorted(ATTENTION_BACKWARD))
def test_gradients_of_attention(name, sizes):
    layout, names = ATTENTION_BACKWARD[name]
    query, key, value, out = of_attention(sizes, heads_first=layout == (1, 2))
    argument_values = {
        "grad_out": out,
        "grad_out_": out,
        "query": query,
        "key": key,
        "value": value,
        "out": out,
    }
    n_bytes = 2 * sum(
        prod(tensor.shape) for tensor in (out, out, query, key, value, query, key, value)
    )
    query, key, value, out = (tensor.shape for tensor in of_attention(sizes, heads_first=True))
    work = count(name, *(argument_values.get(argument) for argument in names))
    assert work == Work({"bfloat16": sdpa_backward_flop_count(out, query, key, value)}, n_bytes)


# ---- Bytes alone ---------------------------------------------------------------------------------


def ones(dtype):
    return lambda *shape: torch.ones(shape, dtype=dtype)


floats, halves, wholes, truths = map(ones, (torch.float32, torch.bfloat16, torch.int64, torch.bool))

MOVED = {
    "add": (floats(4, 1, 6), floats(5, 1)),
    "add_": (floats(4, 6), floats(6)),
    "sub": (halves(4, 6), floats(4, 6)),
    "mul": (wholes(4, 6), wholes(6)),
    "div": (halves(4, 6), halves(4, 6)),
    "eq": (wholes(4, 6), 1),
    "gt": (floats(4, 6), floats(6)),
    "neg": (halves(4, 6),),
    "clone": (wholes(4, 6),),
    "silu": (halves(4, 6),),
    "gelu": (floats(4, 6),),
    "clamp_min": (wholes(4, 6), 0),
    "pow": (floats(4, 6), 2),
    "threshold_backward": (floats(4, 6), floats(4, 6), 0),
    "where": (truths(4, 6), floats(4, 6), floats(6)),
    "masked_fill": (halves(4, 6), truths(4, 1), 0.5),
    "copy_": (halves(4, 6), floats(6)),
    "fill_": (halves(4, 6), 0),
    "zero_": (floats(4, 6),),
    "sum": (floats(4, 6), [0], True),
    "mean": (halves(4, 6, 3), [-1, 0], False),
    "amax": (floats(4, 6), [1], False),
    "_softmax": (floats(4, 6), 1, False),
    "_log_softmax": (halves(4, 6), 1, False),
    "_softmax_backward_data": (floats(4, 6), floats(4, 6), 1, 6),
    "max_pool2d_with_indices": (floats(2, 3, 9, 9), [3, 3], [2, 2], [1, 1], [1, 1], False),
    "max_pool2d_with_indices_backward": (
        floats(2, 3, 4, 4),
        floats(2, 3, 8, 8),
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        wholes(2, 3, 4, 4) * 0,
    ),
    "native_layer_norm": (floats(4, 6), [6], floats(6), floats(6), 1e-5),
}


@pytest.mark.parametrize("name", MOVED)
def test_bytes_are_those_that_a_profiled_case_counts(name):
    arguments = MOVED[name]
    typed = [
        torch.float32 if (name, at) == ("_softmax_backward_data", 3) else argument
        for at, argument in enumerate(arguments)
    ]
    expected = moved_bytes(lambda: getattr(aten, name)(*typed))
    if name == "max_pool2d_with_indices_backward":
        expected -= 4 * 2 * 3 * 8 * 8  # of the input, only the shape is used
    assert count(f"aten::{name}", *arguments) == Work({}, expected)


def test_an_expanded_dimension_is_the_same_memory_throughout():
    expanded = floats(4, 1).expand(4, 6)
    assert count("aten::add", floats(4, 6), expanded, 1).n_bytes == 4 * (24 + 4 + 24)


def test_a_lookup_reads_the_chosen_rows_alone():
    table = Of((1000, 8))
    index = Of((5,), "int64")
    moved = 5 * 8 + 2 * 2 * 5 * 8  # the index; rows read and written
    assert count("aten::index_select", table, 0, index).n_bytes == moved
    assert count("aten::embedding", table, index, -1, False, False).n_bytes == moved


def test_batch_norm_writes_its_statistics_in_training_alone():
    images = Of((2, 3, 4, 4))
    statistic = Of((3,), "float32")
    image_bytes = 2 * 2 * 3 * 4 * 4
    training = count(
        "aten::native_batch_norm",
        images,
        statistic,
        statistic,
        statistic,
        statistic,
        True,
        0.1,
        1e-5,
    )
    inference = count(
        "aten::native_batch_norm",
        images,
        statistic,
        statistic,
        statistic,
        statistic,
        False,
        0.1,
        1e-5,
    )
    assert (training.n_bytes, inference.n_bytes) == (
        2 * image_bytes + 8 * 12,
        2 * image_bytes + 4 * 12,
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::mm", (Of((3, 5)), Of((6, 7)))),
        # sequences packed into one tensor: their lengths are not recorded
        (
            "aten::_flash_attention_forward",
            (*[Of((64, 4, 8))] * 3, *[Of((5,), "int32")] * 2, 16, 16, 0.0, False),
        ),
        ("aten::add", (Of((4,)), Of((5,)), 1)),
        ("aten::add", ([Of((4,))], Of((4,)), 1)),
        ("aten::max_pool2d_with_indices", (Of((2, 3, 9, 9)), [2, 2], [2, 2], [0, 0], [1, 1], True)),
        ("aten::sum", (Of((4, 6)), [2], False)),
    ],
)
def test_what_cannot_be_derived_is_not_guessed(name, arguments):
    with pytest.raises(UncountedError):
        count(name, *arguments)


def test_a_result_is_as_wide_as_the_widest_input():
    """Also of a division of whole numbers, whose number format is not recorded."""
    assert count("aten::add", Of((4,), "bfloat16"), Of((4,), "float32"), 1).n_bytes == 8 + 2 * 16
    assert count("aten::div", Of((4,), "int64"), Of((4,), "int64")).n_bytes == 3 * 32
    assert count("aten::eq", Of((4,), "int64"), Of((4,), "int64")).n_bytes == 2 * 32 + 4


def test_the_result_of_a_number_and_a_tensor_has_the_number_format_of_the_tensor():
    assert count("aten::add", Of((16, 1), "float32"), Of((), "float64"), 1).n_bytes == 2 * 64 + 8
    assert count("aten::mul", Of((), "float32"), Of((16,)), None).n_bytes == 2 * 32 + 4


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(
        ["float", "Scalar", "ScalarList", "TensorList", "[1, 1]", "[", "True", "9" * 5000]
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=12,
)


@ANY_SPEED
@given(st.data())
def test_damaged_arguments_are_not_counted_or_harmless(data):
    name = data.draw(st.sampled_from(sorted({**PRODUCTS, **MOVES})))
    images = Of((2, 4, 8, 8))
    weight = Of((4, 4, 3, 3))
    operation = recorded(
        images, weight, images, *[[1, 1]] * 3, False, [0, 0], 1, [True, True, True], 0
    )
    for field in data.draw(st.lists(st.sampled_from(sorted(operation)), max_size=2)):
        column = operation[field]
        if isinstance(column, list) and column and data.draw(st.booleans()):
            column[data.draw(st.integers(0, len(column) - 1))] = data.draw(JUNK)
        else:
            operation[field] = data.draw(JUNK)
    rule = PRODUCTS.get(name) or MOVES[name]
    try:
        work = rule(Arguments(operation))
    except UncountedError:
        return
    assert min(work.n_bytes, *work.flops.values(), 0) == 0
