"""Gradients of a pooled convolution and of the linear layer after it, without the zeros.

**Idea.** Max-pooling passes a gradient to one value of each window, ReLU to none that is not
positive, and dropout to a share of them. Of the outputs of ConvNet's second convolution, 3 % have a
gradient that is not zero. The gradients of the convolution's weights and inputs are sums over its
outputs, so only those 3 % have to be added. :class:`Pooling` returns a sparse gradient, and
:class:`Convolution` takes it. Of one image, only 2 to 4 % of the values that reach the linear layer
are not zero (on MNIST, after the first hundred steps), so :class:`ProductOfNonzeros` reads only
their weights, and returns a sparse gradient of them, which :class:`~.adadelta.Adadelta` takes.

**Measured** (milliseconds per step of ConvNet, batch 64, float32, two threads;
``docs/evidence/training.md``). As a dense convolution, the gradient of the inputs takes 7.5 ms, and
1 to 2 ms to fill its argument; both sparse gradients together take 1.75 ms. Max-pooling, ReLU and
dropout take 1.7 ms in one loop, which also finds the places of the gradients; to find them
afterwards took 1.15 ms. Sparse matrix products of PyTorch (CSR) took 6 to 7.5 ms for the weights
alone. At batch size 1, an epoch of MNIST takes 0.24 times as long as in pytorch/examples.

**Exact.** Each term that is left out is zero. ReLU and max-pooling commute because both are
monotonic.

**Not exact.** Sums are rounded in another order. A zero times infinity or NaN is left out: what
dropout drops is 0. Dropout draws from another random stream: it compares a random byte with 256 p,
where PyTorch draws 32 bits for each value, so p must be a multiple of 1/256. With autocast, the
linear layer of a single image computes in the format of its weights, float32.

A gradient of these gradients does not exist; autograd refuses it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mnistbench.suite.workloads import compiled
from mnistbench.suite.workloads.compiled import as_array, call_all, halves

#: Values of a random byte.
BYTE_VALUES = 256

#: Pooled values from which on two threads take less time.
POOL_IN_TWO_THREADS_FROM = 2**15
#: Elements of a convolution's gradient from which on two threads take less time.
SUM_IN_TWO_THREADS_FROM = 2**13

#: Bytes of a number -> integers of as many bytes: numbers that are not negative have their order.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Convolution(torch.autograd.Function):
    """``conv2d`` of stride 1 with a channels-last result, whose gradient may be sparse."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]
    ) -> Tensor:
        """Shapes: [B, C, H, W], [O, C, k, l], [O] -> [B, O, h, w]."""
        # A tensor of one channel is contiguous in both formats: only a copy has the strides of the
        # wanted one.
        channels_last = Tensor.clone if inputs.shape[1] == 1 else Tensor.contiguous
        inputs = channels_last(inputs, memory_format=torch.channels_last)
        weight = weight.to(inputs.dtype)
        bias = None if bias is None else bias.to(inputs.dtype)
        ctx.save_for_backward(inputs, weight)
        ctx.padding = padding
        return functional.conv2d(inputs, weight, bias, padding=padding)

    @staticmethod
    @once_differentiable  # its sums are not known to autograd
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments of ``forward``."""
        inputs, weight = ctx.saved_tensors
        sums = _sums_of_nonzeros if gradient.is_sparse else _dense_sums
        return *sums(gradient, inputs, weight, ctx.padding, ctx.needs_input_grad), None


def _dense_sums(
    gradient: Tensor,
    inputs: Tensor,
    weight: Tensor,
    padding: tuple[int, int],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of inputs, weight and bias by PyTorch's convolution."""
    input_gradient, weight_gradient, _ = torch.ops.aten.convolution_backward(
        gradient,
        inputs,
        weight,
        bias_sizes=None,
        stride=[1, 1],
        padding=[*padding],
        dilation=[1, 1],
        transposed=False,
        output_padding=[0, 0],
        groups=1,
        output_mask=[needed[0], True, False],
    )
    return input_gradient, weight_gradient, gradient.sum((0, 2, 3)) if needed[2] else None


def _sums_of_nonzeros(
    gradient: Tensor,
    inputs: Tensor,
    weight: Tensor,
    padding: tuple[int, int],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of inputs, weight and bias, summed over the elements of a sparse one."""
    # The elements are not coalesced.
    indices = as_array(gradient._indices())  # noqa: SLF001  # int64 [4, N]: image, channel, y, x
    values = as_array(gradient._values())  # noqa: SLF001  # [N]
    height, width = padding
    padded = functional.pad(inputs, (width, width, height, height)) if any(padding) else inputs
    pixels_last = padded.permute(0, 2, 3, 1)  # [B, H, W, C]
    weights_last = weight.permute(0, 2, 3, 1)  # [O, k, l, C]
    pixels = as_array(pixels_last.flatten(2))
    weights = as_array(weights_last.flatten(2))
    pixel_sums = as_array(inputs.new_zeros(pixels.shape))
    weight_sums = as_array(inputs.new_zeros(weights.shape))
    bias_sums = as_array(inputs.new_zeros(len(weight)))

    add = functools.partial(compiled.loops().add_products, indices, values, inputs.shape[1])
    calls = [functools.partial(add, pixels, weight_sums, bias_sums, False)]
    if needed[0]:
        calls.append(functools.partial(add, pixel_sums, weights, bias_sums, True))
    call_all(calls, in_two_threads=len(values) >= SUM_IN_TWO_THREADS_FROM)

    def channels_second(sums: Any, like: Tensor) -> Tensor:
        return torch.from_numpy(sums).view(like.shape).permute(0, 3, 1, 2).to(inputs.dtype)

    input_gradient = None
    if needed[0]:
        input_gradient = channels_second(pixel_sums, pixels_last)[
            :, :, height : padded.shape[2] - height, width : padded.shape[3] - width
        ]
    bias_gradient = torch.from_numpy(bias_sums).to(inputs.dtype) if needed[2] else None
    return input_gradient, channels_second(weight_sums, weights_last), bias_gradient


class Pooling(torch.autograd.Function):
    """Max-pooling, ReLU and dropout of a convolution's result; its gradient is sparse."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, size: tuple[int, int], p: float, is_flat: bool) -> Tensor:
        """Shapes: [B, O, h, w] -> [B, O, y, x] for windows of ``size``, or flat [B, O y x]."""
        pixels = inputs.permute(0, 2, 3, 1).contiguous().view(_INTEGERS[inputs.element_size()])
        n_images, height, width, n_channels = pixels.shape
        grid = height // size[0], width // size[1]
        n_windows = math.prod(grid)
        output = pixels.new_zeros(n_images, n_windows * n_channels)
        random_words = torch.zeros(-(-output.numel() // 8), dtype=torch.int64)
        if p:
            random_words.random_(-(2**63), None)
        random_bytes = random_words.view(torch.uint8)[: output.numel()].view(output.shape)
        arrays = (pixels.numpy(), random_bytes.numpy(), output.numpy())
        strides = (1, n_windows) if is_flat else (n_channels, 1)  # of a window and a channel
        limits = torch.tensor([-math.inf, math.nan], dtype=inputs.dtype).view(pixels.dtype).numpy()
        constants = (size, grid, strides, int(BYTE_VALUES * p), limits)
        pool = compiled.loops().pool
        calls = [
            functools.partial(pool, *(array[half] for array in arrays), half.start, *constants)
            for half in halves(n_images)
        ]
        places = call_all(calls, in_two_threads=output.numel() >= POOL_IN_TWO_THREADS_FROM)
        ctx.save_for_backward(torch.cat([torch.from_numpy(half) for half in places], dim=1))
        ctx.shape = inputs.shape
        ctx.scale = 1 / (1 - p)
        ctx.is_flat = is_flat
        in_shape = (
            output if is_flat else output.view(n_images, *grid, n_channels).permute(0, 3, 1, 2)
        )
        # Last, so that it is no view for autograd, which modules after it may change.
        result = in_shape.view(inputs.dtype)
        return result.mul_(ctx.scale) if p else result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the sparse gradient of the inputs, [B, O, h, w]."""
        [places] = ctx.saved_tensors  # int64 [5, N]: image, channel, y, x, and place in the output
        gradient_by_place = gradient if ctx.is_flat else gradient.permute(0, 2, 3, 1)
        values = gradient_by_place.flatten().index_select(0, places[4]).mul_(ctx.scale)
        return (
            torch.sparse_coo_tensor(places[:4], values, ctx.shape, check_invariants=False),
            None,
            None,
            None,
        )


class ProductOfNonzeros(torch.autograd.Function):
    """``linear`` of one sample that reads only the weights of inputs that are not zero.

    The gradient of the weights is sparse: it has elements of those inputs and of those outputs that
    have a gradient. The other inputs get no gradient, so it must not be needed, as after ReLU and
    dropout, whose zeros pass none on.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Shapes: [1, I], [M, I], [M] -> [1, M]."""
        ctx.save_for_backward(inputs, weight)
        ctx.nonzero, sums = compiled.loops().sum_of_columns(
            as_array(inputs[0].to(weight.dtype)), as_array(weight.t())
        )
        output = torch.from_numpy(sums)
        return (output if bias is None else output.add_(bias)).to(inputs.dtype).unsqueeze(0)

    @staticmethod
    @once_differentiable  # its sums are not known to autograd
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments of ``forward``."""
        inputs, weight = ctx.saved_tensors
        output_gradient = gradient[0].to(weight.dtype)
        input_gradient = torch.zeros(weight.shape[1], dtype=weight.dtype)
        indices, values = compiled.loops().gradients_of_columns(
            ctx.nonzero,
            as_array(inputs[0].to(weight.dtype)),
            as_array(weight.t()),
            as_array(output_gradient),
            input_gradient.numpy(),
        )
        weight_gradient = torch.sparse_coo_tensor(
            torch.from_numpy(indices),
            torch.from_numpy(values),
            weight.shape,
            check_invariants=False,
        )
        return (
            input_gradient.to(inputs.dtype).unsqueeze(0),
            weight_gradient,
            output_gradient.clone() if ctx.needs_input_grad[2] else None,
        )
