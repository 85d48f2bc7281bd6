"""Bytes of operations without a FLOP formula, which are limited by memory.

An operation is here if the sizes of all that it reads and writes follow from its recorded inputs by
its definition. Each tensor counts once where it is read and once where it is written; of a table
that is looked up, the chosen rows count.
"""

from __future__ import annotations

from collections.abc import Sequence

from mnistbench.events.work.arguments import (
    NO_RULE,
    NOT_RECORDED,
    SIZES,
    Arguments,
    Tensor,
    UncountedError,
)
from mnistbench.events.work.flops import Rule, Work, n_bytes, window_area

#: Operations that move no data: they make a view, allocate memory, or look at a tensor's
#: properties.
VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "_reshape_alias",
        "_unsafe_view",
        "alias",
        "as_strided",
        "chunk",
        "detach",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "narrow",
        "new_empty",
        "numel",
        "permute",
        "resolve_conj",
        "resolve_neg",
        "result_type",
        "select",
        "size",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "stride",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
    )
)


def _moved(*tensors: Tensor) -> Work:
    return Work({}, n_bytes(*tensors))


def _like(tensor: Tensor, dtype: str = "") -> Tensor:
    """Return a dense tensor of the same shape."""
    return Tensor(tensor.shape, dtype or tensor.dtype)


# ---- Elementwise ---------------------------------------------------------------------------------

#: Leading arguments that are read -> operations. The elements of the result are as wide as those of
#: the widest argument: exact except where whole numbers become floating-point numbers.
_ARITHMETIC = {
    1: (
        "abs neg positive clone relu sgn sign square ceil floor round trunc bitwise_not hardtanh "
        "relu6 nan_to_num silu gelu tanh sigmoid exp exp2 expm1 log log2 log1p sqrt rsqrt "
        "reciprocal sin cos tan erf erfc elu leaky_relu softplus hardswish hardsigmoid mish"
    ),
    2: (
        "add sub rsub mul maximum minimum pow fmod remainder clamp_min clamp_max bitwise_and "
        "bitwise_or bitwise_xor threshold_backward div true_divide atan2 silu_backward "
        "gelu_backward tanh_backward sigmoid_backward leaky_relu_backward hardtanh_backward "
        "masked_fill native_dropout_backward"
    ),
    3: "clamp addcmul lerp addcdiv where",
}

#: Leading arguments that are read -> operations whose results are truth values.
_COMPARISONS = {
    1: "isnan isinf isfinite logical_not",
    2: "eq ne lt le gt ge logical_and logical_or logical_xor",
}


def _elementwise(name: str, read: int, *, compares: bool) -> Rule:
    in_place = name.endswith("_")

    def count(arguments: Arguments) -> Work:
        inputs = arguments.tensors(range(read))
        if not inputs:
            raise UncountedError(NOT_RECORDED)
        if in_place:
            return _moved(*inputs, _like(arguments.tensor(0)))
        shape = _broadcast([tensor.shape for tensor in inputs])
        last = len(arguments) - 1
        if last >= read and arguments.is_tensor(last):  # the argument out
            return _moved(*inputs, Tensor(shape, arguments.tensor(last).dtype))
        return _moved(*inputs, Tensor(shape, "bool" if compares else _widest(inputs)))

    return count


def _widest(inputs: Sequence[Tensor]) -> str:
    """Return the widest number format of the inputs.

    A tensor without dimensions does not widen the others: most are numbers of Python.
    """
    with_dims = [tensor for tensor in inputs if tensor.shape] or inputs
    return max((tensor.dtype for tensor in with_dims), key=lambda dtype: SIZES[dtype])


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    sizes_from_last: list[int] = []
    for back in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-back] for shape in shapes if len(shape) >= back} - {1}
        if len(sizes) > 1:
            raise UncountedError(NOT_RECORDED)
        sizes_from_last.append(sizes.pop() if sizes else 1)
    return tuple(reversed(sizes_from_last))


# ---- Copies, sums, lookups -----------------------------------------------------------------------


def _copy(arguments: Arguments) -> Work:
    """Count the source and the target, which is not read."""
    return _moved(arguments.tensor(1), arguments.tensor(0))


def _fill(arguments: Arguments) -> Work:
    return _moved(arguments.tensor(0))


def _reduction(arguments: Arguments) -> Work:
    """Count ``sum(self, dtype)`` and ``sum(self, dim, keepdim, dtype)``, and the like."""
    source = arguments.tensor(0)
    reduces_all = len(arguments) <= 2
    last = len(arguments) - 1
    kept = _without(source, () if reduces_all else arguments.numbers(1))
    if last and arguments.is_tensor(last):  # the argument out
        return _moved(source, Tensor(kept, arguments.tensor(last).dtype))
    named = 1 if reduces_all else 3
    otherwise = source.dtype if source.is_floating else "int64"
    return _moved(
        source,
        Tensor(kept, arguments.dtype(named, otherwise) if len(arguments) > named else otherwise),
    )


def _extremum(arguments: Arguments) -> Work:
    """Count ``amax(self, dim, keepdim)``: its results have the number format of the input."""
    source = arguments.tensor(0)
    return _moved(source, Tensor(_without(source, arguments.numbers(1)), source.dtype))


def _without(source: Tensor, dims: Sequence[int]) -> tuple[int, ...]:
    """Return the shape without some dimensions; without all if none is named."""
    rank = len(source.shape)
    reduced = {_checked(dim, rank) for dim in dims} or set(range(rank))
    return tuple(size for position, size in enumerate(source.shape) if position not in reduced)


def _checked(dim: int, rank: int) -> int:
    """Return a dimension, which may count from the end, as it counts from the start."""
    if not -rank <= dim < rank:
        raise UncountedError(NOT_RECORDED)
    return dim % rank


def _index_select(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    index = arguments.tensor(2)
    chosen = list(source.shape)
    chosen[_checked(arguments.number(1), len(chosen))] = index.shape[0] if index.shape else 1
    rows = Tensor(tuple(chosen), source.dtype)
    return _moved(rows, index, rows)


def _embedding(arguments: Arguments) -> Work:
    table = arguments.tensor(0)
    index = arguments.tensor(1)
    rows = Tensor((*index.shape, *table.shape[1:]), table.dtype)
    return _moved(rows, index, rows)


def _gather(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    index = arguments.tensor(2)
    chosen = Tensor(index.shape, source.dtype)
    return _moved(chosen, index, chosen)


# ---- Layers --------------------------------------------------------------------------------------


def _softmax(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    return _moved(source, _like(source, "float32" if arguments.flag(2) else ""))


def _softmax_backward(arguments: Arguments) -> Work:
    gradient = arguments.tensor(0)
    output = arguments.tensor(1)
    return _moved(gradient, output, _like(gradient, arguments.dtype(3, gradient.dtype)))


def _dropout(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    return _moved(source, _like(source), _like(source, "bool"))


def _statistics(source: Tensor) -> str:
    """Return the number format of means and deviations on an accelerator: at::acc_type."""
    return "float64" if source.dtype == "float64" else "float32"


def _layer_norm(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    normalized = len(arguments.numbers(1))
    statistic = Tensor(source.shape[: len(source.shape) - normalized], _statistics(source))
    return _moved(source, *arguments.tensors((2, 3)), _like(source), statistic, statistic)


def _layer_norm_backward(arguments: Arguments) -> Work:
    gradient = arguments.tensor(0)
    source = arguments.tensor(1)
    parameters = arguments.tensors((5, 6))
    outputs = zip((source, *parameters), arguments.flags(7), strict=False)
    written = [_like(tensor) for tensor, is_wanted in outputs if is_wanted]
    return _moved(gradient, source, *arguments.tensors((3, 4, 5)), *written)


def _batch_norm(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    if len(source.shape) < 2:
        raise UncountedError(NOT_RECORDED)
    running = arguments.tensors((3, 4))
    written = [_like(source)]
    if arguments.flag(5):
        statistic = Tensor(source.shape[1:2], _statistics(source))
        written += [statistic, statistic, *running]
    return _moved(source, *arguments.tensors((1, 2)), *running, *written)


def _batch_norm_backward(arguments: Arguments) -> Work:
    source = arguments.tensor(1)
    weight = arguments.tensors((2,))
    outputs = zip((source, *weight, *weight), arguments.flags(9), strict=False)
    written = [_like(tensor) for tensor, is_wanted in outputs if is_wanted]
    return _moved(*arguments.tensors(range(7)), *written)


def _max_pool(arguments: Arguments) -> Work:
    source = arguments.tensor(0)
    if len(source.shape) != 4 or arguments.flag(5):  # with ceil_mode, a last window may be left out
        raise UncountedError(NO_RULE)
    kernel, stride, padding, dilation = (arguments.numbers(position, 2) for position in range(1, 5))
    if {len(kernel), len(stride or kernel), len(padding), len(dilation)} != {2}:
        raise UncountedError(NOT_RECORDED)
    area = window_area(source.shape[2:], kernel, stride or kernel, padding, dilation)
    out = Tensor((*source.shape[:2], *area), source.dtype)
    return _moved(source, out, _like(out, "int64"))


def _max_pool_backward(arguments: Arguments) -> Work:
    return _moved(arguments.tensor(0), arguments.tensor(7), _like(arguments.tensor(1)))


_SINGLE: dict[str, Rule] = {
    "copy_": _copy,
    "fill_": _fill,
    "zero_": _fill,
    "sum": _reduction,
    "mean": _reduction,
    "amax": _extremum,
    "amin": _extremum,
    "index_select": _index_select,
    "embedding": _embedding,
    "gather": _gather,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    "native_dropout": _dropout,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_batch_norm": _batch_norm,
    "miopen_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d_with_indices_backward": _max_pool_backward,
}

#: Operation -> its rule.
MOVES: dict[str, Rule] = {
    **{
        f"aten::{name}": _elementwise(name, read, compares=table is _COMPARISONS)
        for table in (_ARITHMETIC, _COMPARISONS)
        for read, names in table.items()
        for base in names.split()
        for name in (base, f"{base}_")
    },
    **{f"aten::{name}": rule for name, rule in _SINGLE.items()},
}
