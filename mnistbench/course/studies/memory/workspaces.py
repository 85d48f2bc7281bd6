"""Buffers that a convolution allocates and frees inside one operation.

The dispatcher sees only its result.

PyTorch decides which library computes a convolution (``select_conv_backend`` in
``aten/src/ATen/native/Convolution.cpp``), and returns the decision for given shapes. On a CPU there
are two kinds of buffers:

- PyTorch's own code (``ConvolutionMM2d.cpp``) copies the pixels under the kernel into a matrix for
  the whole batch.
- oneDNN computes in a layout whose channels come in blocks of one vector: channels are padded to
  whole blocks, and inputs, kernels and results are copied into this layout and back (oneDNN's
  developer guide, "Understanding Memory Formats"). Images with fewer channels than a block are read
  as they are (``is_1stconv`` in ``jit_avx512_common_conv_kernel.cpp``, ``flat`` in
  ``jit_avx2_conv_kernel_f32.cpp``). The gradient of the kernels reads images as they are with
  AVX-512 up to 3 channels, with AVX2 of 3 channels only; from 4 to 15 channels, oneDNN takes its
  code for AVX2 on both. The order of copies is that of the profiler's allocations; the calls are in
  ``ideep/operators/conv.hpp``.

Not predicted: the buffers in which oneDNN's threads add their gradients, buffers of some hundred
bytes, and those of other algorithms that oneDNN takes for some sizes, such as the gradient of
images with stride 2 and AVX2. On CUDA, cuDNN chooses an algorithm by a heuristic, and no formula
gives the size of its workspace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: Numbers of float32 in a vector. oneDNN has no such code for other processors.
_VECTORS = {"AVX512": 16, "AVX2": 8}

#: Channels of images that the gradient of the kernels reads as they are, by numbers of float32 in a
#: vector.
_PLAIN_CHANNELS = {16: (1, 2, 3), 8: (3,)}

_FORWARD = "aten::convolution"
_BACKWARD = "aten::convolution_backward"


def changes(name: str, args: Sequence[Any], out: Any) -> list[int] | None:
    """Return the allocations and frees of an operation in their order, frees below 0.

    Their sum is the size of its result.

    None if the operation allocates nothing but its result, or is not known.
    """
    if name == _FORWARD:
        inputs, weight, bias, *options = args
        biases = None
        found = [out]
    elif name == _BACKWARD:
        gradient, inputs, weight, biases, *options, _ = args
        bias = None
        found = list(out)
    else:
        return None
    if inputs.device.type != "cpu" or inputs.dim() != 4:
        return None
    # Nothing public tells it.
    backend = torch._C._select_conv_backend(inputs, weight, bias, *options, biases)  # noqa: SLF001
    if backend == torch._C._ConvBackend.Slow2d:  # type: ignore[attr-defined]  # noqa: SLF001
        if name == _FORWARD:
            columns = _columns(weight, out)
            return [columns, _size(out), -columns]
        return _own_backward(weight, gradient, *found)
    if backend == torch._C._ConvBackend.Mkldnn and options[-1] == 1:  # type: ignore[attr-defined]  # noqa: SLF001
        vector = _VECTORS.get(torch.backends.cpu.get_cpu_capability(), 0)
        if vector and inputs.dtype == torch.float32:
            if name == _FORWARD:
                return _blocked_forward(inputs, weight, out, vector)
            return _blocked_backward(inputs, weight, gradient, found, vector)
    return None


# ---- PyTorch's own code --------------------------------------------------------------------------


def _own_backward(
    weight: Tensor, gradient: Tensor, of_inputs: Tensor | None, *of_parameters: Tensor | None
) -> list[int]:
    columns = _columns(weight, gradient)
    of_weight, of_bias = of_parameters
    found = []
    if of_inputs is not None:
        found += [_size(of_inputs), columns, -columns]
    found += [_size(of_bias), _size(of_weight)]
    return [*found, columns, -columns] if of_weight is not None else found


def _columns(weight: Tensor, out: Tensor) -> int:
    """Return the bytes of the pixels under the kernel, for each position.

    [B, C * KH * KW, OH * OW].
    """
    _, channels, height, width = weight.shape
    if height == width == 1:  # the image itself is the matrix
        return 0
    return (
        channels * height * width * out.shape[0] * out.shape[2] * out.shape[3] * out.element_size()
    )


# ---- oneDNN --------------------------------------------------------------------------------------


def _blocked_forward(inputs: Tensor, weight: Tensor, out: Tensor, vector: int) -> list[int]:
    plain = inputs.shape[1] < vector
    of_inputs = 0 if plain else _images(inputs, vector)
    of_weight = _kernels(weight, vector, 1 if plain else vector)
    of_out = _images(out, vector)
    return [of_inputs, of_weight, of_out, -of_weight, -of_inputs, _size(out), -of_out]


def _blocked_backward(
    inputs: Tensor, weight: Tensor, gradient: Tensor, found: Sequence[Tensor | None], vector: int
) -> list[int]:
    of_inputs, of_weight, of_bias = found
    changes = []
    if of_inputs is not None:
        blocked_gradient = _images(gradient, vector)
        blocked_weight = _kernels(weight, vector, vector)
        blocked = _images(inputs, vector)
        changes += [
            blocked_gradient,
            blocked_weight,
            blocked,
            -blocked_weight,
            -blocked_gradient,
            _size(of_inputs),
            -blocked,
        ]
    if of_weight is not None:
        channels = inputs.shape[1]
        plain = channels in _PLAIN_CHANNELS[vector]
        block = vector if plain or channels >= vector else _VECTORS["AVX2"]
        blocked_gradient = _images(gradient, block)
        blocked_inputs = 0 if plain else _images(inputs, block)
        blocked = _kernels(weight, block, 1 if plain else block)
        changes += [
            blocked_gradient,
            blocked_inputs,
            blocked,
            _size(of_bias),
            -blocked_inputs,
            -blocked_gradient,
        ]
        changes += [_size(of_bias), _size(of_weight), -blocked, -_size(of_bias)]
    return changes


def _images(images: Tensor, block: int) -> int:
    """Return the bytes of images [B, C, H, W] with whole blocks of channels."""
    batch, channels, height, width = images.shape
    return batch * _whole(channels, block) * height * width * images.element_size()


def _kernels(weight: Tensor, of_filters: int, of_channels: int) -> int:
    """Return the bytes of kernels [F, C, KH, KW] with whole blocks of filters and channels."""
    filters, channels, *area = weight.shape
    return (
        _whole(filters, of_filters)
        * _whole(channels, of_channels)
        * math.prod(area)
        * weight.element_size()
    )


def _whole(channels: int, block: int) -> int:
    return math.ceil(channels / block) * block


def _size(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()
