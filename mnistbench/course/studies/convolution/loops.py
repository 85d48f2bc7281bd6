"""A convolution as seven loops, and the same loops replaced by tensors.

They are replaced one after the other, from the inside out.

The order of the loops is that of a textbook: batch, filter, channel, row, column, row of the
kernel, column of the kernel. Each function replaces more loops than the one before, so fewer
operations do more work each. ``im2col`` has none left. All are for one group.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mnistbench.course.studies.convolution.sizes import ConvolutionSizes


def seven_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution, [B, F, OH, OW], of images and kernels.

    Images are [B, C, H, W], kernels [F, C, KH, KW].

    It is computed by Python's numbers, which are in double precision, and has the inputs' dtype.
    """
    image = _padded(inputs, sizes).tolist()
    kernel = weights.tolist()
    output = torch.zeros(sizes.output_shape, dtype=torch.float64).tolist()
    stride = sizes.stride
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            for c in range(sizes.channels):
                for h in range(sizes.out_height):
                    for w in range(sizes.out_width):
                        for kh in range(sizes.kernel_height):
                            for kw in range(sizes.kernel_width):
                                pixel = image[b][c][stride * h + kh][stride * w + kw]
                                output[b][f][h][w] += pixel * kernel[f][c][kh][kw]
    return inputs.new_tensor(output)


def six_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add a row of the output at a time: the loop over its columns is a tensor [OW].

    Arguments and result are those of ``seven_loops``.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            for c in range(sizes.channels):
                for h in range(sizes.out_height):
                    for kh in range(sizes.kernel_height):
                        for kw in range(sizes.kernel_width):
                            row = image[b, c, sizes.stride * h + kh, _columns(sizes, kw)]
                            output[b, f, h] += row * weights[f, c, kh, kw]
    return output


def five_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add a whole image of the output at a time, [OH, OW]. As ``seven_loops`` otherwise."""
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            for c in range(sizes.channels):
                for kh in range(sizes.kernel_height):
                    for kw in range(sizes.kernel_width):
                        output[b, f] += (
                            image[b, c, _rows(sizes, kh), _columns(sizes, kw)]
                            * weights[f, c, kh, kw]
                        )
    return output


def four_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add the images of all filters at a time, [F, OH, OW]. As ``seven_loops`` otherwise."""
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape)
    for b in range(sizes.batch):
        for c in range(sizes.channels):
            for kh in range(sizes.kernel_height):
                for kw in range(sizes.kernel_width):
                    pixels = image[b, c, _rows(sizes, kh), _columns(sizes, kw)]
                    output[b] += weights[:, c, kh, kw, None, None] * pixels
    return output


def three_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add all channels at a time: a matrix product [F, C] x [C, OH * OW].

    Arguments and result are those of ``seven_loops``.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape).flatten(2)  # [B, F, OH * OW]
    for b in range(sizes.batch):
        for kh in range(sizes.kernel_height):
            for kw in range(sizes.kernel_width):
                pixels = image[b, :, _rows(sizes, kh), _columns(sizes, kw)].flatten(1)
                output[b] += weights[:, :, kh, kw] @ pixels
    return output.reshape(sizes.output_shape)


def two_loops(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Add all images of the batch at a time: one product for each position in the kernel.

    Arguments and result are those of ``seven_loops``.
    """
    image = _padded(inputs, sizes)
    output = inputs.new_zeros(sizes.output_shape).flatten(2)  # [B, F, OH * OW]
    for kh in range(sizes.kernel_height):
        for kw in range(sizes.kernel_width):
            pixels = image[:, :, _rows(sizes, kh), _columns(sizes, kw)].flatten(2)
            output += weights[:, :, kh, kw] @ pixels
    return output.reshape(sizes.output_shape)


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

    Images are [B, C, H, W], kernels [F, C, KH, KW].
    """
    return (weights.flatten(1) @ _matrix(inputs, sizes)).reshape(sizes.output_shape)


def im2col_backward(
    gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to the inputs and the weights.

    They are [B, C, H, W] and [F, C, KH, KW].

    ``gradient`` is that of the output, [B, F, OH, OW].
    """
    gradient = gradient.flatten(2)  # [B, F, OH * OW]
    weight_gradient = (gradient @ _matrix(inputs, sizes).mT).sum(0)
    input_gradient = functional.fold(
        weights.flatten(1).mT @ gradient,
        (sizes.height, sizes.width),
        (sizes.kernel_height, sizes.kernel_width),
        padding=sizes.padding,
        stride=sizes.stride,
    )
    return input_gradient, weight_gradient.reshape(sizes.weight_shape)


def _matrix(inputs: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the pixels under the kernel for each position, [B, C * KH * KW, OH * OW]."""
    kernel = (sizes.kernel_height, sizes.kernel_width)
    return functional.unfold(inputs, kernel, padding=sizes.padding, stride=sizes.stride)
