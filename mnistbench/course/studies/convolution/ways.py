"""All ways to compute a convolution and its gradients.

What each can compute, how much work it does and how exact it is.

PyTorch's own ways call a library: oneDNN or its own code on a CPU, cuDNN on CUDA.

The bound of the rounding error of a sum comes from the numbers that are added. ``u`` is the unit
roundoff, half of the distance from 1 to the next number. A number that is the result of ``n``
rounded operations has a relative error of at most gamma(n) = n u / (1 - n u). Source: Higham,
"Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), lemma 3.1. Ways that multiply
transforms have no bound here: theirs depends on numbers that cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mnistbench.course.studies.convolution import loops
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes

#: Dtypes of all ways but those of PyTorch, which compute in any.
DTYPES = ("float32", "float64")

#: Most passes of a way's innermost loop in Python: a few tenths of a second.
MAX_PASSES = 200_000


# ---- PyTorch's own -------------------------------------------------------------------------------


def library(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution, [B, F, OH, OW], of images and kernels.

    Images are [B, C, H, W], kernels [F, C / groups, KH, KW].
    """
    return functional.conv2d(
        inputs, weights, stride=sizes.stride, padding=sizes.padding, groups=sizes.groups
    )


def library_channels_last(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution of tensors whose channels are neighbors in memory (NHWC).

    Arguments and result are those of ``library``.
    """
    layout = torch.channels_last
    return library(
        inputs.contiguous(memory_format=layout), weights.contiguous(memory_format=layout), sizes
    )


def library_backward(
    gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to the inputs and the weights.

    They are [B, C, H, W] and [F, C / groups, KH, KW].

    ``gradient`` is that of the output, [B, F, OH, OW].
    """
    input_gradient, weight_gradient, _ = torch.ops.aten.convolution_backward(
        gradient,
        inputs,
        weights,
        None,
        [sizes.stride] * 2,
        [sizes.padding] * 2,
        [1, 1],
        False,
        [0, 0],
        sizes.groups,
        [True, True, False],
    )
    return input_gradient, weight_gradient


def exchanged_weight_gradient(
    gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes
) -> Tensor:
    """Return the gradient with respect to the weights, for one group.

    It is a convolution with batch and channels exchanged.

    The weight at (kh, kw) meets the pixel (h + kh, w + kw) at each output (h, w), so its gradient
    is the sum of the image, shifted by (kh, kw), times the gradient of the output: a convolution
    whose kernel is that gradient. A stride of the convolution is a dilation of this one.
    ``weights`` are not used; the result is [F, C, KH, KW].
    """
    del weights
    exchanged = functional.conv2d(
        inputs.transpose(0, 1),
        gradient.transpose(0, 1),
        padding=sizes.padding,
        dilation=sizes.stride,
    )  # [C, F, KH, KW], and more if the stride leaves pixels over
    return exchanged.transpose(0, 1)[..., : sizes.kernel_height, : sizes.kernel_width]


# ---- An elementwise product of transforms --------------------------------------------------------

# The Fourier transform turns shifting and adding into multiplying, by the convolution theorem. A
# network's convolution is a cross-correlation, so the spectrum of the kernel is conjugated. Source:
# Mathieu, Henaff, LeCun, "Fast Training of Convolutional Networks through FFTs" (2014).
#
# Winograd's F(2 x 2, 3 x 3) needs fewer multiplications: four outputs of a 3 x 3 kernel need 36
# products by the definition. Here a tile of 4 x 4 pixels and the kernel are transformed, multiplied
# elementwise, which are 16 products, and transformed back. Source: Lavin and Gray, "Fast Algorithms
# for Convolutional Neural Networks" (2015).

#: The transforms of the tile, of the kernel and of the result, from section 4.1 of Lavin and Gray.
TILE = ((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, -1.0, 1.0, 0.0), (0.0, 1.0, 0.0, -1.0))
KERNEL = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
RESULT = ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, -1.0))

#: Side of a tile, in elements.
_TILE = 4
#: Side of the part of the output that a tile gives, in elements.
_OUT = 2


def fourier(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution, [B, F, OH, OW], of images [B, C, H, W] and kernels [F, C, KH, KW].

    The stride is 1.
    """
    image = functional.pad(inputs, [sizes.padding] * 4)
    size = (image.shape[2], image.shape[3])
    spectrum = torch.fft.rfft2(image)  # [B, C, H', W' / 2 + 1]
    # The kernel, with zeros up to the size of the image.
    kernel = torch.fft.rfft2(weights, s=size).conj()
    product = torch.einsum("bchw,fchw->bfhw", spectrum, kernel)
    # The correlation is circular: positions where the kernel would leave the image have sums of
    # both edges.
    output: Tensor = torch.fft.irfft2(product, s=size)
    return output[..., : sizes.out_height, : sizes.out_width]


def fourier_flops(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs.

    Three transforms, and a complex product of each filter with each channel of each image.

    A transform of M real numbers is counted as 2.5 M log2 M, half of Cooley and Tukey's 5 M log2 M
    for complex numbers; a complex multiply-add as 8.
    """
    height = sizes.height + 2 * sizes.padding
    width = sizes.width + 2 * sizes.padding
    images = (
        sizes.batch * sizes.channels + sizes.filters * sizes.channels + sizes.batch * sizes.filters
    )
    transforms = images * 2.5 * height * width * math.log2(height * width)
    products = 8 * sizes.batch * sizes.filters * sizes.channels * height * (width // 2 + 1)
    return round(transforms) + products


def winograd(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution, [B, F, OH, OW], of images [B, C, H, W] and kernels [F, C, 3, 3].

    The stride is 1.
    """
    tile, kernel, result = map(inputs.new_tensor, (TILE, KERNEL, RESULT))
    # Overlapping tiles of the padded images, which have more zeros where the output is odd.
    below = sizes.padding + sizes.out_height % _OUT
    beside = sizes.padding + sizes.out_width % _OUT
    image = functional.pad(inputs, [sizes.padding, beside, sizes.padding, below])
    tiles = image.unfold(2, _TILE, _OUT).unfold(3, _TILE, _OUT)  # [B, C, rows, columns, 4, 4]
    transformed = tile @ tiles @ tile.mT
    kernels = kernel @ weights @ kernel.mT  # [F, C, 4, 4]
    batch, channels, rows, columns = tiles.shape[:4]
    # For each of the 16 positions in a tile, a matrix product over the channels: [16, F, C] x [16,
    # C, B * rows * columns].
    left = kernels.permute(2, 3, 0, 1).flatten(0, 1)
    right = transformed.permute(4, 5, 1, 0, 2, 3).reshape(_TILE**2, channels, -1)
    product = (left @ right).reshape(_TILE, _TILE, sizes.filters, batch, rows, columns)
    parts = result @ product.permute(3, 2, 4, 5, 0, 1) @ result.mT  # [B, F, rows, columns, 2, 2]
    output = parts.transpose(3, 4).reshape(batch, sizes.filters, _OUT * rows, _OUT * columns)
    return output[..., : sizes.out_height, : sizes.out_width]


def winograd_flops(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs.

    32 for the transform of a tile, 28 of a kernel and 24 of a result (Lavin and Gray, section 4.1).
    """
    tiles = sizes.batch * -(-sizes.out_height // _OUT) * -(-sizes.out_width // _OUT)
    products = 2 * _TILE**2 * tiles * sizes.filters * sizes.channels
    return (
        products
        + 32 * tiles * sizes.channels
        + 28 * sizes.filters * sizes.channels
        + 24 * tiles * sizes.filters
    )


# ---- Rounding errors -----------------------------------------------------------------------------


def reference(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution in double precision, [B, F, OH, OW]."""
    return library(inputs.double(), weights.double(), sizes)


def bound_of_sum(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the largest error of each output, [B, F, OH, OW].

    Its products may be added in any order.
    """
    return gamma(sizes.terms, inputs.dtype) * reference(inputs.abs(), weights.abs(), sizes)


def gamma(roundings: int, dtype: torch.dtype) -> float:
    """Return the relative error of a number after so many rounded operations."""
    u = unit_roundoff(dtype)
    return roundings * u / (1 - roundings * u) if roundings * u < 1 else math.inf


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding."""
    return torch.finfo(dtype).eps / 2


# ---- Ways ----------------------------------------------------------------------------------------


def by_definition(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs of a convolution; a multiply-add counts as two."""
    return 2 * sizes.multiply_adds


def twice(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs of both gradients, each as many as those of the convolution."""
    return 2 * by_definition(sizes)


@dataclass(frozen=True)
class Way:
    """A way to compute a convolution, or its gradients."""

    name: str
    # Of inputs, weights and sizes; for gradients of the output's gradient before them.
    compute: Callable[..., Any]
    flops: Callable[[ConvolutionSizes], int] = by_definition  # that it does
    passes: Callable[[ConvolutionSizes], int] = lambda _: 1  # of its innermost loop in Python
    kernel: int = 0  # side of the only kernel that it can compute; 0: any
    strides: bool = True  # whether it can compute strides above 1
    groups: bool = False  # whether it can compute several groups
    adds_products: bool = True  # so that its error has the bound of a sum
    backward: bool = False
    is_library: bool = False  # computes in any dtype; the library chooses the algorithm

    def refusal(self, sizes: ConvolutionSizes, dtype: str = "float32") -> str:
        """Return why it cannot compute a convolution, or its loops in Python would take too long.

        Empty if it can.
        """
        passes = self.passes(sizes)
        needs = ""
        if self.kernel and (sizes.kernel_height, sizes.kernel_width) != (self.kernel, self.kernel):
            needs = f"kernels of {self.kernel}x{self.kernel}"
        elif sizes.stride != 1 and not self.strides:
            needs = "stride 1"
        elif sizes.groups != 1 and not self.groups:
            needs = "one group"
        elif passes > MAX_PASSES:
            needs = f"at most {MAX_PASSES:,} passes of its loops, and this has {passes:,}"
        if needs:
            return f"{self.name}: cannot compute {sizes}; it needs {needs}"
        can_dtype = self.is_library or dtype in DTYPES
        return (
            ""
            if can_dtype
            else f"{self.name}: cannot compute in {dtype}; it needs {' or '.join(DTYPES)}"
        )


def _over(*lengths: str) -> Callable[[ConvolutionSizes], int]:
    """Return the function that counts the passes of loops over attributes of the sizes."""
    return lambda sizes: math.prod(getattr(sizes, length) for length in lengths)


_KERNEL = ("kernel_height", "kernel_width")

#: Name -> way.
WAYS: Mapping[str, Way] = MappingProxyType(
    {
        way.name: way
        for way in (
            Way("seven_loops", loops.seven_loops, passes=lambda sizes: sizes.multiply_adds),
            Way(
                "six_loops",
                loops.six_loops,
                passes=_over("batch", "filters", "channels", "out_height", *_KERNEL),
            ),
            Way(
                "five_loops",
                loops.five_loops,
                passes=_over("batch", "filters", "channels", *_KERNEL),
            ),
            Way("four_loops", loops.four_loops, passes=_over("batch", "channels", *_KERNEL)),
            Way("three_loops", loops.three_loops, passes=_over("batch", *_KERNEL)),
            Way("two_loops", loops.two_loops, passes=_over(*_KERNEL)),
            Way("im2col", loops.im2col),
            Way(
                "fourier",
                fourier,
                fourier_flops,
                strides=False,
                adds_products=False,
            ),
            Way(
                "winograd",
                winograd,
                winograd_flops,
                kernel=3,
                strides=False,
                adds_products=False,
            ),
            Way("library", library, groups=True, is_library=True),
            Way("library_channels_last", library_channels_last, groups=True, is_library=True),
            Way("im2col_backward", loops.im2col_backward, twice, backward=True),
            Way(
                "library_backward",
                library_backward,
                twice,
                groups=True,
                backward=True,
                is_library=True,
            ),
            Way("exchanged_weight_gradient", exchanged_weight_gradient, backward=True),
        )
    }
)
