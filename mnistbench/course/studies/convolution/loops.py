"""A convolution as seven loops, and the same loops replaced by tensors one after the other, from the inside out.

The order of the loops is that of a textbook: batch, filter, channel, row, column, row of the kernel, column of the kernel. Each
function replaces more loops than the one before, so fewer operations do more work each.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mnistbench.course.studies.convolution.sizes import Sizes


def seven_loops(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the convolution, computed by Python's numbers, which are in double precision.

    Args:
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C / groups, KH, KW].
        sizes: of both.

    Returns:
        [B, F, OH, OW], in the inputs' dtype.
    """
    image, kernel = _padded(inputs, sizes).tolist(), weights.tolist()
    output = torch.zeros(sizes.output_shape, dtype=torch.float64).tolist()
    stride, filters_of_group = sizes.stride, sizes.filters // sizes.groups
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


def six_loops(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Add a row of the output at a time: the loop over its columns is a tensor [OW]. As ``seven_loops`` otherwise."""
    image, output = _padded(inputs, sizes), inputs.new_zeros(sizes.output_shape)
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


def five_loops(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Add a whole image of the output at a time, [OH, OW]. As ``seven_loops`` otherwise."""
    image, output = _padded(inputs, sizes), inputs.new_zeros(sizes.output_shape)
    filters_of_group = sizes.filters // sizes.groups
    for b in range(sizes.batch):
        for f in range(sizes.filters):
            first = f // filters_of_group * sizes.channels_of_group
            for c in range(sizes.channels_of_group):
                for kh in range(sizes.kernel_height):
                    for kw in range(sizes.kernel_width):
                        output[b, f] += image[b, first + c, _rows(sizes, kh), _columns(sizes, kw)] * weights[f, c, kh, kw]
    return output


def four_loops(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Add the images of all filters of a group at a time, [F / groups, OH, OW]. As ``seven_loops`` otherwise."""
    image, output = _padded(inputs, sizes), inputs.new_zeros(sizes.output_shape)
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


def three_loops(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Add all channels at a time: a matrix product [F / groups, C / groups] x [C / groups, OH * OW]. As ``seven_loops``."""
    image, output = _padded(inputs, sizes), inputs.new_zeros(sizes.output_shape)
    groups, channels = sizes.groups, sizes.channels_of_group
    kernel = weights.reshape(groups, -1, *weights.shape[1:])  # [groups, F / groups, C / groups, KH, KW]
    of_groups = output.view(sizes.batch, groups, sizes.filters // groups, -1)  # [B, groups, F / groups, OH * OW]
    for b in range(sizes.batch):
        for kh in range(sizes.kernel_height):
            for kw in range(sizes.kernel_width):
                pixels = image[b, :, _rows(sizes, kh), _columns(sizes, kw)].reshape(groups, channels, -1)
                of_groups[b] += kernel[..., kh, kw] @ pixels
    return output


def two_loops(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Add all images of the batch at a time: one product for each position in the kernel. As ``seven_loops`` otherwise."""
    image, output = _padded(inputs, sizes), inputs.new_zeros(sizes.output_shape)
    groups, channels = sizes.groups, sizes.channels_of_group
    kernel = weights.reshape(groups, -1, *weights.shape[1:])
    of_groups = output.view(sizes.batch, groups, sizes.filters // groups, -1)
    for kh in range(sizes.kernel_height):
        for kw in range(sizes.kernel_width):
            pixels = image[:, :, _rows(sizes, kh), _columns(sizes, kw)].reshape(sizes.batch, groups, channels, -1)
            of_groups += kernel[..., kh, kw] @ pixels
    return output


def _padded(inputs: Tensor, sizes: Sizes) -> Tensor:
    return functional.pad(inputs, [sizes.padding] * 4)


def _rows(sizes: Sizes, kh: int) -> slice:
    """Return the rows of the image under row ``kh`` of the kernel."""
    return slice(kh, kh + sizes.stride * (sizes.out_height - 1) + 1, sizes.stride)


def _columns(sizes: Sizes, kw: int) -> slice:
    """Return the columns of the image under column ``kw`` of the kernel."""
    return slice(kw, kw + sizes.stride * (sizes.out_width - 1) + 1, sizes.stride)
