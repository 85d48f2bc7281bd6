"""A convolution as seven loops, and the same loops replaced by tensors.

They are replaced one after the other, from the inside out.

The order of the loops is that of a textbook: batch, filter, channel, row, column, row of the
kernel, column of the kernel. Each function replaces more loops than the one before, so fewer
operations do more work each. ``im2col`` has none left.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mnistbench.course.studies.convolution.sizes import ConvolutionSizes


def seven_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution, [B, F, OH, OW], of images and kernels.

    Images are [B, C, H, W], kernels [F, C / groups, KH, KW].

    It is computed by Python's numbers, which are in double precision, and has the inputs' dtype.
    """
    image = _padded(inputs, sizes).tolist()
    kernel = weights.tolist()
    output = torch.zeros(sizes.output_shape, dtype=torch.float64).tolist()
    stride = sizes.stride
    filters_of_group = sizes.filters // sizes.groups
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            first = f // filters_of_group * sizes.channels_of_group
            for c in range(sizes.channels_of_group):
                for h in range(sizes.out_height):
                    for w in range(sizes.out_width):
                        for kh in range(sizes.kernel_height):
                            for kw in range(sizes.kernel_width):
                                pixel = image[b][first + c][stride * h + kh][stride * w + kw]
                                output[b][f][h][w] += pixel * kernel[f][c][kh][kw]
    return inputs.new_tensor(output)


def six_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add a row of the output at a time: the loop over its columns is a tensor [OW].

    As ``seven_loops`` otherwise.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    filters_of_group = sizes.filters // sizes.groups
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            first = f // filters_of_group * sizes.channels_of_group
            for c in range(sizes.channels_of_group):
                for h in range(sizes.out_height):
                    for kh in range(sizes.kernel_height):
                        for kw in range(sizes.kernel_width):
                            row = image[b, first + c, sizes.stride * h + kh, _columns(sizes, kw)]
                            output[b, f, h] += row * weights[f, c, kh, kw]
    return output


def five_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add a whole image of the output at a time, [OH, OW]. As ``seven_loops`` otherwise."""
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    filters_of_group = sizes.filters // sizes.groups
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            first = f // filters_of_group * sizes.channels_of_group
            for c in range(sizes.channels_of_group):
                for kh in range(sizes.kernel_height):
                    for kw in range(sizes.kernel_width):
                        output[b, f] += (
                            image[b, first + c, _rows(sizes, kh), _columns(sizes, kw)]
                            * weights[f, c, kh, kw]
                        )
    return output


def four_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add the images of all filters of a group at a time, [F / groups, OH, OW].

    As ``seven_loops`` otherwise.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    filters_of_group = sizes.filters // sizes.groups
    for b in range(sizes.batch):
        for channel in range(sizes.channels):
            group, c = divmod(channel, sizes.channels_of_group)
            filters = slice(group * filters_of_group, (group + 1) * filters_of_group)
            for kh in range(sizes.kernel_height):
                for kw in range(sizes.kernel_width):
                    pixels = image[b, channel, _rows(sizes, kh), _columns(sizes, kw)]
                    output[b, filters] += weights[filters, c, kh, kw, None, None] * pixels
    return output


def three_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add all channels at a time.

    A matrix product [F / groups, C / groups] x [C / groups, OH * OW]. As ``seven_loops``.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    groups = sizes.groups
    channels = sizes.channels_of_group
    # [groups, F / groups, C / groups, KH, KW].
    kernel = weights.reshape(groups, -1, *weights.shape[1:])
    # [B, groups, F / groups, OH * OW].
    of_groups = output.view(sizes.batch, groups, sizes.filters // groups, -1)
    for b in range(sizes.batch):
        for kh in range(sizes.kernel_height):
            for kw in range(sizes.kernel_width):
                pixels = image[b, :, _rows(sizes, kh), _columns(sizes, kw)].reshape(
                    groups, channels, -1
                )
                of_groups[b] += kernel[..., kh, kw] @ pixels
    return output


def two_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add all images of the batch at a time: one product for each position in the kernel.

    As ``seven_loops`` otherwise.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    groups = sizes.groups
    channels = sizes.channels_of_group
    kernel = weights.reshape(groups, -1, *weights.shape[1:])
    of_groups = output.view(sizes.batch, groups, sizes.filters // groups, -1)
    for kh in range(sizes.kernel_height):
        for kw in range(sizes.kernel_width):
            pixels = image[:, :, _rows(sizes, kh), _columns(sizes, kw)].reshape(
                sizes.batch, groups, channels, -1
            )
            of_groups += kernel[..., kh, kw] @ pixels
    return output


def _padded(inputs: Tensor, sizes: ConvolutionSizes) -> Tensor:
    return functional.pad(inputs, [sizes.padding] * 4)


def _rows(sizes: ConvolutionSizes, kh: int) -> slice:
    """Return the rows of the image under row ``kh`` of the kernel."""
    return slice(kh, kh + sizes.stride * (sizes.out_height - 1) + 1, sizes.stride)


def _columns(sizes: ConvolutionSizes, kw: int) -> slice:
    """Return the columns of the image under column ``kw`` of the kernel."""
    return slice(kw, kw + sizes.stride * (sizes.out_width - 1) + 1, sizes.stride)


# ---- No loop: a matrix product -------------------------------------------------------------------

# The pixels under the kernel, for each position in the output, are a column of a matrix, which has
# KH * KW times as many numbers as the image. Source: Chellapilla, Puri, Simard, "High Performance
# Convolutional Neural Networks for Document Processing" (2006).


def im2col(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution, [B, F, OH, OW], of images and kernels.

    Images are [B, C, H, W], kernels [F, C / groups, KH, KW].
    """
    return (_kernels(weights, sizes) @ _matrix(inputs, sizes)).reshape(sizes.output_shape)


def im2col_backward(
    gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to the inputs and the weights.

    They are [B, C, H, W] and [F, C / groups, KH, KW].

    ``gradient`` is that of the output, [B, F, OH, OW].
    """
    of_columns = gradient.reshape(sizes.batch, sizes.groups, sizes.filters // sizes.groups, -1)
    of_weights = (of_columns @ _matrix(inputs, sizes).mT).sum(0)
    columns = (_kernels(weights, sizes).mT @ of_columns).flatten(1, 2)
    of_inputs = functional.fold(
        columns,
        (sizes.height, sizes.width),
        (sizes.kernel_height, sizes.kernel_width),
        padding=sizes.padding,
        stride=sizes.stride,
    )
    return of_inputs, of_weights.reshape(sizes.weight_shape)


def _matrix(inputs: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the matrix of each group, [B, groups, C / groups * KH * KW, OH * OW]."""
    kernel = (sizes.kernel_height, sizes.kernel_width)
    columns = functional.unfold(inputs, kernel, padding=sizes.padding, stride=sizes.stride)
    return columns.reshape(sizes.batch, sizes.groups, sizes.terms, -1)


def _kernels(weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the kernels as rows, [groups, F / groups, C / groups * KH * KW]."""
    return weights.reshape(sizes.groups, sizes.filters // sizes.groups, sizes.terms)
