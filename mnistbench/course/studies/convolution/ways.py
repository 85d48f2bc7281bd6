"""All ways to compute a convolution and its gradients: what each can compute, how much work it does and how exact it is.

PyTorch's own ways call a library: oneDNN or its own code on a CPU, cuDNN on CUDA.

The bounds of rounding errors come from the numbers that a way computes with. ``u`` is the unit roundoff, half of the distance
from 1 to the next number. A number that is the result of ``n`` rounded operations has a relative error of at most
gamma(n) = n u / (1 - n u). Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), lemma 3.1; for
Fourier transforms theorem 24.2.
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

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution import loops
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes
from mnistbench.course.studies.convolution.transforms import fourier, fourier_flops, winograd, winograd_flops

#: Dtypes of all ways but those of PyTorch, which compute in any.
DTYPES = ("float32", "float64")

#: Most passes of a way's innermost loop in Python: a few tenths of a second.
MOST_PASSES = 200_000

#: Roundings of Winograd's F(2 x 2, 3 x 3) beside the sum over channels, two transforms of each: 2 of a tile, whose sums have
#: two terms, 4 of a kernel and 4 of a result, whose sums have three.
_OF_TRANSFORMS = 10


# ---- PyTorch's own ---------------------------------------------------------------------------------------------------


def library(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution.

    Args:
        inputs: images, [B, C, H, W].
        weights: kernels, [F, C / groups, KH, KW].
        sizes: of both.

    Returns:
        [B, F, OH, OW].
    """
    return functional.conv2d(inputs, weights, stride=sizes.stride, padding=sizes.padding, groups=sizes.groups)


def library_channels_last(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution of tensors whose channels are neighbors in memory (NHWC). As ``library`` otherwise."""
    layout = torch.channels_last
    return library(inputs.contiguous(memory_format=layout), weights.contiguous(memory_format=layout), sizes)


def library_backward(gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> tuple[Tensor, Tensor]:
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


def exchanged_weight_gradient(gradient: Tensor, inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
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


# ---- Bounds of rounding errors ---------------------------------------------------------------------------------------


def reference(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the convolution in double precision, [B, F, OH, OW]."""
    return library(inputs.double(), weights.double(), sizes)


def bound_of_sum(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the largest error of each output if its products are added in any order, [B, F, OH, OW]."""
    return gamma(sizes.terms, inputs.dtype) * reference(inputs.abs(), weights.abs(), sizes)


def bound_of_winograd(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the largest error of each output of ``winograd``, [B, F, OH, OW].

    The transforms add numbers that cancel in exact arithmetic, so the sum of absolute values to which the error is proportional
    is larger than that of the convolution itself. In return, fewer numbers are added: one for each channel, not for each term.
    """
    largest = winograd(inputs.abs().double(), weights.abs().double(), sizes, absolute=True)
    return gamma(sizes.channels + _OF_TRANSFORMS, inputs.dtype) * largest


def bound_of_fourier(inputs: Tensor, weights: Tensor, sizes: ConvolutionSizes) -> Tensor:
    """Return the largest error of each output of ``fourier``, [B, F, 1, 1].

    The error of a transform is proportional to the norm of all its numbers, not to each of them: a small output beside large
    ones has the error of the large ones. With delta = 6.66 u log2 M, the error of a transform of M numbers, that of an output
    is at most (2 delta + (C + 3) u) sum |x_c| |w_c| for the spectra and their products, where | | is the Euclidean norm, and
    delta times the norm of the output, at most sum |x_c| |w_c|_1, for the transform back.
    """
    u = unit_roundoff(inputs.dtype)
    area = (sizes.height + 2 * sizes.padding) * (sizes.width + 2 * sizes.padding)
    delta = 6.66 * u * math.log2(area)
    images = inputs.double().flatten(2).norm(dim=2)  # [B, C]
    kernels = weights.double().flatten(2)
    of_product = images @ kernels.norm(dim=2).mT
    of_output = images @ kernels.norm(p=1, dim=2).mT
    bound: Tensor = (2 * delta + (sizes.channels + 3) * u) * of_product + delta * of_output
    return bound[..., None, None]


def gamma(roundings: int, dtype: torch.dtype) -> float:
    """Return the relative error of a number after so many rounded operations."""
    u = unit_roundoff(dtype)
    return roundings * u / (1 - roundings * u) if roundings * u < 1 else math.inf


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding."""
    return torch.finfo(dtype).eps / 2


# ---- Ways ------------------------------------------------------------------------------------------------------------


def by_definition(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs of a convolution; a multiply-add counts as two."""
    return 2 * sizes.multiply_adds


def twice(sizes: ConvolutionSizes) -> int:
    """Return the FLOPs of both gradients, each as many as those of the convolution."""
    return 2 * by_definition(sizes)


def once(_: ConvolutionSizes) -> int:
    """Return the passes of a way without a loop in Python."""
    return 1


@dataclass(frozen=True)
class Way:
    """A way to compute a convolution, or its gradients."""

    name: str
    compute: Callable[..., Any]  # of inputs, weights and sizes; for gradients of the output's gradient before them
    flops: Callable[[ConvolutionSizes], int] = by_definition  # that it does
    passes: Callable[[ConvolutionSizes], int] = once  # of its innermost loop in Python
    kernel: int = 0  # side of the only kernel that it can compute; 0: any
    strides: bool = True  # whether it can compute strides above 1
    groups: bool = True  # whether it can compute several groups
    bound: Callable[[Tensor, Tensor, ConvolutionSizes], Tensor] = bound_of_sum  # of the error of each output
    backward: bool = False
    is_library: bool = False  # computes in any dtype; the library chooses the algorithm

    def check(self, sizes: ConvolutionSizes, dtype: str = "float32") -> None:
        """Check that it can compute a convolution.

        Raises:
            UsageError: it cannot, or its loops in Python would take too long.
        """
        passes = self.passes(sizes)
        needs = ""
        if self.kernel and (sizes.kernel_height, sizes.kernel_width) != (self.kernel, self.kernel):
            needs = f"kernels of {self.kernel}x{self.kernel}"
        elif sizes.stride != 1 and not self.strides:
            needs = "stride 1"
        elif sizes.groups != 1 and not self.groups:
            needs = "one group"
        elif passes > MOST_PASSES:
            needs = f"at most {MOST_PASSES:,} passes of its loops, and this has {passes:,}"
        if needs:
            raise UsageError(f"{self.name}: cannot compute {sizes}; it needs {needs}")
        if not self.is_library and dtype not in DTYPES:
            raise UsageError(f"{self.name}: cannot compute in {dtype}; it needs {' or '.join(DTYPES)}")

    def can(self, sizes: ConvolutionSizes) -> bool:
        """Whether it can compute a convolution."""
        try:
            self.check(sizes)
        except UsageError:
            return False
        return True


def _over(*lengths: str) -> Callable[[ConvolutionSizes], int]:
    """Return the function that counts the passes of loops over attributes of the sizes."""
    return lambda sizes: math.prod(getattr(sizes, length) for length in lengths)


_KERNEL = ("kernel_height", "kernel_width")

#: Name -> way.
WAYS: Mapping[str, Way] = MappingProxyType({
    way.name: way
    for way in (
        Way("seven_loops", loops.seven_loops, passes=lambda sizes: sizes.multiply_adds),
        Way("six_loops", loops.six_loops, passes=_over("batch", "filters", "channels_of_group", "out_height", *_KERNEL)),
        Way("five_loops", loops.five_loops, passes=_over("batch", "filters", "channels_of_group", *_KERNEL)),
        Way("four_loops", loops.four_loops, passes=_over("batch", "channels", *_KERNEL)),
        Way("three_loops", loops.three_loops, passes=_over("batch", *_KERNEL)),
        Way("two_loops", loops.two_loops, passes=_over(*_KERNEL)),
        Way("im2col", loops.im2col),
        Way("fourier", fourier, fourier_flops, strides=False, groups=False, bound=bound_of_fourier),
        Way("winograd", winograd, winograd_flops, kernel=3, strides=False, groups=False, bound=bound_of_winograd),
        Way("library", library, is_library=True),
        Way("library_channels_last", library_channels_last, is_library=True),
        Way("im2col_backward", loops.im2col_backward, twice, backward=True),
        Way("library_backward", library_backward, twice, backward=True, is_library=True),
        Way("exchanged_weight_gradient", exchanged_weight_gradient, groups=False, backward=True),
    )
})  # fmt: skip
