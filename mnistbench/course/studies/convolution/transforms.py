"""A convolution as an elementwise product: images and kernels are transformed, multiplied and transformed back.

The Fourier transform turns shifting and adding into multiplying, by the convolution theorem. A network's convolution is a
cross-correlation, so the spectrum of the kernel is conjugated. Source: Mathieu, Henaff, LeCun, "Fast Training of Convolutional
Networks through FFTs" (2014).

Winograd's F(2 x 2, 3 x 3) needs fewer multiplications: four outputs of a 3 x 3 kernel need 36 products by the definition. Here
a tile of 4 x 4 pixels and the kernel are transformed, multiplied elementwise, which are 16 products, and transformed back.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnistbench.course.studies.convolution.sizes import ConvolutionSizes

#: The transforms of the tile, of the kernel and of the result, from section 4.1 of Lavin and Gray.
TILE = ((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, -1.0, 1.0, 0.0), (0.0, 1.0, 0.0, -1.0))
KERNEL = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
RESULT = ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, -1.0))

#: Sides of a tile and of its part of the output.
_TILE, _OUT = 4, 2


def fourier(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution. The stride is 1, and there is one group.

    Args:
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C, KH, KW].
        sizes: of both.

    Returns:
        [B, F, OH, OW].
    """
    image = torch.nn.functional.pad(inputs, [sizes.padding] * 4)
    size = (image.shape[2], image.shape[3])
    spectrum = torch.fft.rfft2(image)  # [B, C, H', W' / 2 + 1]
    kernel = torch.fft.rfft2(weights, s=size).conj()  # the kernel, with zeros up to the size of the image
    product = torch.einsum("bchw,fchw->bfhw", spectrum, kernel)
    # The correlation is circular: positions where the kernel would leave the image have sums of both edges.
    output: Tensor = torch.fft.irfft2(product, s=size)
    return output[..., : sizes.out_height, : sizes.out_width]


def fourier_flops(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs: three transforms, and a complex product of each filter with each channel of each image.

    A transform of M real numbers is counted as 2.5 M log2 M, half of Cooley and Tukey's 5 M log2 M for complex numbers; a
    complex multiply-add as 8.
    """
    height, width = sizes.height + 2 * sizes.padding, sizes.width + 2 * sizes.padding
    images = sizes.batch * sizes.channels + sizes.filters * sizes.channels + sizes.batch * sizes.filters
    transforms = images * 2.5 * height * width * math.log2(height * width)
    products = 8 * sizes.batch * sizes.filters * sizes.channels * height * (width // 2 + 1)
    return round(transforms) + products


def winograd(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes, *, absolute: bool = False) -> Tensor:
    """Return the convolution. Kernels are 3 x 3, the stride is 1, and there is one group.

    Args:
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C, 3, 3].
        sizes: of both.
        absolute: use the absolute values of the transforms, which bounds the rounding error.

    Returns:
        [B, F, OH, OW].
    """
    tile, kernel, result = (inputs.new_tensor(found) for found in (TILE, KERNEL, RESULT))
    if absolute:
        tile, kernel, result = tile.abs(), kernel.abs(), result.abs()
    tiles = _tiles(inputs, sizes)  # [B, C, rows, columns, 4, 4]
    transformed = tile @ tiles @ tile.mT
    kernels = kernel @ weights @ kernel.mT  # [F, C, 4, 4]
    batch, channels, rows, columns = tiles.shape[:4]
    # For each of the 16 positions in a tile, a matrix product over the channels: [16, F, C] x [16, C, B * rows * columns].
    left = kernels.permute(2, 3, 0, 1).flatten(0, 1)
    right = transformed.permute(4, 5, 1, 0, 2, 3).reshape(_TILE**2, channels, -1)
    product = (left @ right).reshape(_TILE, _TILE, sizes.filters, batch, rows, columns)
    parts = result @ product.permute(3, 2, 4, 5, 0, 1) @ result.mT  # [B, F, rows, columns, 2, 2]
    output = parts.transpose(3, 4).reshape(batch, sizes.filters, _OUT * rows, _OUT * columns)
    return output[..., : sizes.out_height, : sizes.out_width]


def winograd_flops(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs: 32 for the transform of a tile, 28 of a kernel and 24 of a result (Lavin and Gray, section 4.1)."""
    tiles = sizes.batch * -(-sizes.out_height // _OUT) * -(-sizes.out_width // _OUT)
    products = 2 * _TILE**2 * tiles * sizes.filters * sizes.channels
    return products + 32 * tiles * sizes.channels + 28 * sizes.filters * sizes.channels + 24 * tiles * sizes.filters


def _tiles(inputs: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return overlapping tiles of the padded images, which have more zeros where the output is odd."""
    bottom, right = sizes.padding + sizes.out_height % _OUT, sizes.padding + sizes.out_width % _OUT
    image = torch.nn.functional.pad(inputs, [sizes.padding, right, sizes.padding, bottom])
    return image.unfold(2, _TILE, _OUT).unfold(3, _TILE, _OUT)
