"""FLOPs and bytes of matrix products, convolutions and attention.

The FLOPs are those of torch/utils/flop_counter.py: a multiplication and an addition count as two,
bias and softmax as none, and a mask saves nothing. Two of its formulas are not used: its gradient
of a grouped convolution's weight counts each group as often as there are groups, and its
``_efficient_attention_forward`` exchanges heads and positions. The bytes are all tensors that an
operation reads and writes, each once. Their sizes follow from its definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mnistbench.events.work.arguments import (
    NO_RULE,
    NOT_RECORDED,
    Arguments,
    Tensor,
    UncountedError,
)
from mnistbench.events.work.roofline import Cost


@dataclass
class Work:
    """FLOPs and bytes of one call, or of all calls of a row."""

    # By the number format of the multiplication: bfloat16, tf32.
    flops: dict[str, int] = field(default_factory=dict)
    n_bytes: int = 0
    # The FLOPs are an upper bound: those that a causal mask leaves out count.
    is_bound: bool = False

    def add(self, other: Work) -> None:
        """Add the work of other calls."""
        for dtype, number in other.flops.items():
            self.flops[dtype] = self.flops.get(dtype, 0) + number
        self.n_bytes += other.n_bytes
        self.is_bound |= other.is_bound

    @property
    def cost(self) -> Cost:
        """The work in all number formats; no FLOPs where no operation has a formula."""
        return Cost(
            sum(self.flops.values()) if self.flops else None,
            self.n_bytes,
            " and ".join(sorted(self.flops)),
        )


Rule = Callable[[Arguments], Work]


def n_bytes(*tensors: Tensor) -> int:
    """Return the size of all tensors."""
    return sum(tensor.n_bytes for tensor in tensors)


# ---- Matrix products -----------------------------------------------------------------------------


def _matrix_product(first: int) -> Rule:
    """Return the rule of ``first`` added tensors and two factors [..., m, k] and [..., k, n]."""

    def count(arguments: Arguments) -> Work:
        left = arguments.tensor(first)
        right = arguments.tensor(first + 1)
        batch = left.shape[:-2]
        if (
            len(left.shape) < 2
            or right.shape[:-2] != batch
            or right.shape[-2:-1] != left.shape[-1:]
        ):
            raise UncountedError(NOT_RECORDED)
        if not first and arguments.kind(2) == "Scalar":  # the number format of the result
            raise UncountedError(NO_RULE)
        out = Tensor((*left.shape[:-1], right.shape[-1]), left.dtype)
        read = arguments.tensors(range(first + 2))
        return Work({left.dtype: 2 * math.prod(out.shape) * left.shape[-1]}, n_bytes(*read, out))

    return count


_MATRIX_PRODUCTS = {
    "aten::mm": _matrix_product(0),
    "aten::bmm": _matrix_product(0),
    "aten::addmm": _matrix_product(1),
    "aten::_addmm_activation": _matrix_product(1),
    "aten::baddbmm": _matrix_product(1),
}


# ---- Convolutions --------------------------------------------------------------------------------

_GENERAL = (
    "input",
    "weight",
    "bias",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
)

#: Operation -> the names of its arguments.
CONVOLUTIONS = {
    "aten::convolution": _GENERAL,
    "aten::_convolution": _GENERAL,
    "aten::cudnn_convolution": ("input", "weight", "padding", "stride", "dilation", "groups"),
    "aten::cudnn_convolution_relu": (
        "input",
        "weight",
        "bias",
        "stride",
        "padding",
        "dilation",
        "groups",
    ),
    "aten::cudnn_convolution_transpose": (
        "input",
        "weight",
        "padding",
        "output_padding",
        "stride",
        "dilation",
        "groups",
    ),
    "aten::miopen_convolution": (
        "input",
        "weight",
        "bias",
        "padding",
        "stride",
        "dilation",
        "groups",
    ),
    "aten::miopen_convolution_transpose": (
        "input",
        "weight",
        "bias",
        "padding",
        "output_padding",
        "stride",
        "dilation",
        "groups",
    ),
    "aten::miopen_depthwise_convolution": (
        "input",
        "weight",
        "bias",
        "padding",
        "stride",
        "dilation",
        "groups",
    ),
    "aten::mkldnn_convolution": (
        "input",
        "weight",
        "bias",
        "padding",
        "stride",
        "dilation",
        "groups",
    ),
    "aten::_conv_depthwise2d": (
        "input",
        "weight",
        "kernel_size",
        "bias",
        "stride",
        "padding",
        "dilation",
    ),
    "aten::_slow_conv2d_forward": ("input", "weight", "kernel_size", "bias", "stride", "padding"),
}

CONVOLUTION_BACKWARD = (
    "grad_output",
    "input",
    "weight",
    "bias_sizes",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
    "output_mask",
)


def _convolution(name: str) -> Rule:
    positions = {argument: position for position, argument in enumerate(CONVOLUTIONS[name])}

    def count(arguments: Arguments) -> Work:
        images = arguments.tensor(0)
        weight = arguments.tensor(1)
        dims = len(images.shape) - 2
        if dims < 1 or len(weight.shape) != dims + 2:
            raise UncountedError(NOT_RECORDED)

        def sizes(argument: str, otherwise: int) -> tuple[int, ...]:
            argument_sizes = (
                arguments.numbers(positions[argument], dims)
                if argument in positions
                else (otherwise,) * dims
            )
            if len(argument_sizes) != dims:
                raise UncountedError(NOT_RECORDED)
            return argument_sizes

        kernel = weight.shape[2:]
        stride = sizes("stride", 1)
        padding = sizes("padding", 0)
        dilation = sizes("dilation", 1)
        at = positions.get("transposed")
        is_transposed = name.endswith("transpose") if at is None else arguments.flag(at)
        if is_transposed:
            groups = arguments.number(positions["groups"])
            added = sizes("output_padding", 0)
            area = transposed_area(images.shape[2:], kernel, stride, padding, dilation, added)
            channels = weight.shape[1] * groups
        else:
            area = window_area(images.shape[2:], kernel, stride, padding, dilation)
            channels = weight.shape[0]
        out = Tensor((images.shape[0], channels, *area), images.dtype)
        bias = arguments.tensors([positions["bias"]] if "bias" in positions else [])
        windows = images.shape[2:] if is_transposed else area
        flops = _convolution_flops(images.shape[0], windows, weight.shape)
        return Work({images.dtype: flops}, n_bytes(images, weight, *bias, out))

    return count


def _convolution_flops(batch: int, windows: Iterable[int], weight: Iterable[int]) -> int:
    """Return the FLOPs of a convolution: the size of the weight for each window of each image."""
    return 2 * batch * math.prod(windows) * math.prod(weight)


def window_area(
    area: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the size of a convolution's output, as torch.nn.Conv2d documents it."""
    dims = zip(area, kernel, stride, padding, dilation, strict=True)
    sizes = tuple((size + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1 for size, k, s, p, d in dims)
    return _checked(sizes)


def transposed_area(
    area: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    added: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the size of a transposed convolution's output, as its documentation does."""
    dims = zip(area, kernel, stride, padding, dilation, added, strict=True)
    return _checked(
        tuple((size - 1) * s - 2 * p + d * (k - 1) + a + 1 for size, k, s, p, d, a in dims)
    )


def _checked(area: tuple[int, ...]) -> tuple[int, ...]:
    if min(area, default=0) < 0:
        raise UncountedError(NOT_RECORDED)
    return area


def _convolution_backward(arguments: Arguments) -> Work:
    """Count the FLOPs of forward for each gradient: of the input and of the weight."""
    gradient, images, weight = (arguments.tensor(position) for position in range(3))
    mask = arguments.flags(CONVOLUTION_BACKWARD.index("output_mask"))
    if len(mask) != 3 or len(gradient.shape) < 3:
        raise UncountedError(NOT_RECORDED)
    windows = (
        images.shape[2:]
        if arguments.flag(CONVOLUTION_BACKWARD.index("transposed"))
        else gradient.shape[2:]
    )
    flops = sum(mask[:2]) * _convolution_flops(images.shape[0], windows, weight.shape)
    outputs = (images, weight, Tensor((gradient.shape[1],), gradient.dtype))
    written = [
        Tensor(out.shape, out.dtype)
        for out, is_wanted in zip(outputs, mask, strict=True)
        if is_wanted
    ]
    return Work({images.dtype: flops}, n_bytes(gradient, images, weight, *written))


# ---- Attention -----------------------------------------------------------------------------------

#: Positions of heads and sequence among [batch, heads, sequence, features] of query, key and value.
_HEADS_FIRST = (1, 2)
#: Positions of heads and sequence among [batch, sequence, heads, features] of query, key and value.
_SEQUENCE_FIRST = (2, 1)

#: Operation -> layout, and the names of its arguments up to the last one that matters here.
ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": (
        _HEADS_FIRST,
        ("query", "key", "value", "dropout_p", "is_causal"),
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (
        _HEADS_FIRST,
        ("query", "key", "value", "dropout_p", "is_causal", "attn_mask"),
    ),
    "aten::_scaled_dot_product_efficient_attention": (
        _HEADS_FIRST,
        ("query", "key", "value", "attn_bias", "compute_log_sumexp", "dropout_p", "is_causal"),
    ),
    "aten::_scaled_dot_product_cudnn_attention": (
        _HEADS_FIRST,
        ("query", "key", "value", "attn_bias", "compute_log_sumexp", "dropout_p", "is_causal"),
    ),
    "aten::_flash_attention_forward": (
        _SEQUENCE_FIRST,
        (
            "query",
            "key",
            "value",
            "cum_seq_q",
            "cum_seq_k",
            "max_q",
            "max_k",
            "dropout_p",
            "is_causal",
        ),
    ),
    "aten::_efficient_attention_forward": (
        _SEQUENCE_FIRST,
        (
            "query",
            "key",
            "value",
            "bias",
            "cu_seqlens_q",
            "cu_seqlens_k",
            "max_seqlen_q",
            "max_seqlen_k",
            "dropout_p",
            "custom_mask_type",
            "compute_log_sumexp",
        ),
    ),
}

_FLASH_BACKWARD = (
    "grad_out",
    "query",
    "key",
    "value",
    "out",
    "logsumexp",
    "cum_seq_q",
    "cum_seq_k",
    "max_q",
    "max_k",
    "dropout_p",
    "is_causal",
)

ATTENTION_BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": (_HEADS_FIRST, _FLASH_BACKWARD),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        _HEADS_FIRST,
        (
            "grad_out",
            "query",
            "key",
            "value",
            "out",
            "logsumexp",
            "dropout_p",
            "is_causal",
            "attn_mask",
        ),
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        _HEADS_FIRST,
        (
            "grad_out_",
            "query",
            "key",
            "value",
            "attn_bias",
            "out",
            "logsumexp",
            "philox_seed",
            "philox_offset",
            "dropout_p",
            "grad_input_mask",
            "is_causal",
        ),
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": (
        _HEADS_FIRST,
        (
            "grad_out",
            "query",
            "key",
            "value",
            "out",
            "logsumexp",
            "philox_seed",
            "philox_offset",
            "attn_bias",
            "cum_seq_q",
            "cum_seq_k",
            "max_q",
            "max_k",
            "dropout_p",
            "is_causal",
        ),
    ),
    "aten::_flash_attention_backward": (_SEQUENCE_FIRST, _FLASH_BACKWARD),
    "aten::_efficient_attention_backward": (
        _SEQUENCE_FIRST,
        (
            "grad_out_",
            "query",
            "key",
            "value",
            "bias",
            "out",
            "cu_seqlens_q",
            "cu_seqlens_k",
            "max_seqlen_q",
            "max_seqlen_k",
            "logsumexp",
            "dropout_p",
            "philox_seed",
            "philox_offset",
            "custom_mask_type",
        ),
    ),
}

#: Arguments with the lengths of sequences that are packed into one tensor. The lengths are data,
#: which no trace has.
_LENGTHS = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k")


class _AttentionSizes(NamedTuple):
    """Sizes of one call of attention."""

    batch: int
    heads: int  # of the query; key and value may have fewer
    queries: int
    keys: int
    features: int  # of query and key
    value_features: int

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key."""
        return self.batch * self.heads * self.queries * self.keys


def _sizes(
    arguments: Arguments, layout: tuple[int, int], names: tuple[str, ...]
) -> _AttentionSizes:
    if any(arguments.kind(names.index(name)) for name in _LENGTHS if name in names):
        raise UncountedError(NOT_RECORDED)
    query, key, value = (
        arguments.tensor(names.index(name)).shape for name in ("query", "key", "value")
    )
    if {len(query), len(key), len(value)} != {4}:
        raise UncountedError(NOT_RECORDED)
    heads, sequence = layout
    sizes = _AttentionSizes(
        query[0], query[heads], query[sequence], key[sequence], query[3], value[3]
    )
    if (key[0], key[3], value[0], value[sequence]) != (
        sizes.batch,
        sizes.features,
        sizes.batch,
        sizes.keys,
    ):
        raise UncountedError(NOT_RECORDED)
    return sizes


def _is_causal(arguments: Arguments, names: tuple[str, ...]) -> bool:
    return any(
        arguments.is_set(names.index(name))
        for name in ("is_causal", "custom_mask_type")
        if name in names
    )


def _attention(name: str) -> Rule:
    layout, names = ATTENTION[name]

    def count(arguments: Arguments) -> Work:
        """Count two products: of queries and keys, and of their scores and the values."""
        sizes = _sizes(arguments, layout, names)
        query = arguments.tensor(0)
        written = [Tensor((*query.shape[:3], sizes.value_features), query.dtype)]
        if "compute_log_sumexp" not in names or arguments.flag(names.index("compute_log_sumexp")):
            written.append(Tensor((sizes.batch, sizes.heads, sizes.queries), "float32"))
        flops = 2 * sizes.pairs * (sizes.features + sizes.value_features)
        read = arguments.tensors(range(len(names)))
        return Work({query.dtype: flops}, n_bytes(*read, *written), _is_causal(arguments, names))

    return count


def _attention_backward(name: str) -> Rule:
    layout, names = ATTENTION_BACKWARD[name]

    def count(arguments: Arguments) -> Work:
        """Count five products: scores again, and gradients of scores, query, key and value."""
        sizes = _sizes(arguments, layout, names)
        written = [
            arguments.tensor(names.index(argument)) for argument in ("query", "key", "value")
        ]
        flops = 2 * sizes.pairs * (3 * sizes.features + 2 * sizes.value_features)
        read = arguments.tensors(range(len(names)))
        return Work(
            {written[0].dtype: flops}, n_bytes(*read, *written), _is_causal(arguments, names)
        )

    return count


#: Operation -> its rule.
PRODUCTS: dict[str, Rule] = {
    **_MATRIX_PRODUCTS,
    **{name: _convolution(name) for name in CONVOLUTIONS},
    "aten::convolution_backward": _convolution_backward,
    **{name: _attention(name) for name in ATTENTION},
    **{name: _attention_backward(name) for name in ATTENTION_BACKWARD},
}
