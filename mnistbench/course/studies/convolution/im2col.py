"""A convolution as a matrix product: the pixels under the kernel, for each position in the output, are a column of a matrix.

The matrix has KH * KW times as many numbers as the image. Source: Chellapilla, Puri, Simard, "High Performance Convolutional
Neural Networks for Document Processing" (2006).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from mnistbench.course.studies.convolution.sizes import Sizes


def im2col(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the convolution.

    Args:
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C / groups, KH, KW].
        sizes: of both.

    Returns:
        [B, F, OH, OW].
    """
    return (_rows(weights, sizes) @ _columns(inputs, sizes)).reshape(sizes.output_shape)


def im2col_backward(gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to the inputs, [B, C, H, W], and the weights, [F, C / groups, KH, KW].

    Args:
        gradient: with respect to the output, [B, F, OH, OW].
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C / groups, KH, KW].
        sizes: of the convolution.
    """
    of_columns = gradient.reshape(sizes.batch, sizes.groups, sizes.filters // sizes.groups, -1)
    of_weights = (of_columns @ _columns(inputs, sizes).mT).sum(0)
    columns = (_rows(weights, sizes).mT @ of_columns).flatten(1, 2)
    of_inputs = functional.fold(
        columns, (sizes.height, sizes.width), (sizes.kernel_height, sizes.kernel_width),
        padding=sizes.padding, stride=sizes.stride,
    )  # fmt: skip
    return of_inputs, of_weights.reshape(sizes.weight_shape)


def _columns(inputs: Tensor, sizes: Sizes) -> Tensor:
    """Return the matrix of each group, [B, groups, C / groups * KH * KW, OH * OW]."""
    kernel = (sizes.kernel_height, sizes.kernel_width)
    columns = functional.unfold(inputs, kernel, padding=sizes.padding, stride=sizes.stride)
    return columns.reshape(sizes.batch, sizes.groups, sizes.terms, -1)


def _rows(weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the kernels as rows, [groups, F / groups, C / groups * KH * KW]."""
    return weights.reshape(sizes.groups, sizes.filters // sizes.groups, sizes.terms)
