"""A convolution by PyTorch, which calls a library: oneDNN or its own code on a CPU, cuDNN on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mnistbench.course.studies.convolution.sizes import Sizes


def library(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the convolution.

    Args:
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C / groups, KH, KW].
        sizes: of both.

    Returns:
        [B, F, OH, OW].
    """
    return functional.conv2d(inputs, weights, stride=sizes.stride, padding=sizes.padding, groups=sizes.groups)


def library_channels_last(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the convolution of tensors whose channels are neighbors in memory (NHWC). As ``library`` otherwise."""
    layout = torch.channels_last
    return library(inputs.contiguous(memory_format=layout), weights.contiguous(memory_format=layout), sizes)


def library_backward(gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to the inputs, [B, C, H, W], and the weights, [F, C / groups, KH, KW].

    Args:
        gradient: with respect to the output, [B, F, OH, OW].
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C / groups, KH, KW].
        sizes: of the convolution.
    """
    of_inputs, of_weights, _ = torch.ops.aten.convolution_backward(
        gradient, inputs, weights, None, [sizes.stride] * 2, [sizes.padding] * 2, [1, 1], False, [0, 0], sizes.groups,
        [True, True, False],
    )  # fmt: skip
    return of_inputs, of_weights


def exchanged_weight_gradient(gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the gradient with respect to the weights, as a convolution with batch and channels exchanged. One group.

    The weight at (kh, kw) meets the pixel (h + kh, w + kw) at each output (h, w), so its gradient is the sum of the image,
    shifted by (kh, kw), times the gradient of the output: a convolution whose kernel is that gradient. A stride of the
    convolution is a dilation of this one.

    Args:
        gradient: with respect to the output, [B, F, OH, OW].
        inputs: images, [B, C, H, W].
        weights: kernels; not used.
        sizes: of the convolution.

    Returns:
        [F, C, KH, KW].
    """
    del weights
    found = functional.conv2d(
        inputs.transpose(0, 1), gradient.transpose(0, 1), padding=sizes.padding, dilation=sizes.stride
    )  # [C, F, KH, KW], and more if the stride leaves pixels over
    return found.transpose(0, 1)[..., : sizes.kernel_height, : sizes.kernel_width]
