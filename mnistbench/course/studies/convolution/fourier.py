"""A convolution as a product of spectra: by the convolution theorem, shifting and adding becomes multiplying.

A network's convolution is a cross-correlation, so the spectrum of the kernel is conjugated. Source: Mathieu, Henaff, LeCun,
"Fast Training of Convolutional Networks through FFTs" (2014).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnistbench.course.studies.convolution.sizes import Sizes


def fourier(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
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


def fourier_flops(sizes: Sizes) -> int:
    """Return the FLOPs: three transforms, and a complex product of each filter with each channel of each image.

    A transform of M real numbers is counted as 2.5 M log2 M, half of Cooley and Tukey's 5 M log2 M for complex numbers; a
    complex multiply-add as 8.
    """
    height, width = sizes.height + 2 * sizes.padding, sizes.width + 2 * sizes.padding
    images = sizes.batch * sizes.channels + sizes.filters * sizes.channels + sizes.batch * sizes.filters
    transforms = images * 2.5 * height * width * math.log2(height * width)
    products = 8 * sizes.batch * sizes.filters * sizes.channels * height * (width // 2 + 1)
    return round(transforms) + products
