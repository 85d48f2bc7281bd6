"""Bounds of the rounding errors of a convolution, from the numbers that it computes with.

``u`` is the unit roundoff, half of the distance from 1 to the next number. A number that is the result of ``n`` rounded
operations has a relative error of at most gamma(n) = n u / (1 - n u). Source: Higham, "Accuracy and Stability of Numerical
Algorithms", 2nd edition (2002), lemma 3.1; for Fourier transforms theorem 24.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnistbench.course.studies.convolution.pytorch import library
from mnistbench.course.studies.convolution.sizes import Sizes
from mnistbench.course.studies.convolution.winograd import winograd

#: Roundings of Winograd's F(2 x 2, 3 x 3) beside the sum over channels, two transforms of each: 2 of a tile, whose sums have
#: two terms, 4 of a kernel and 4 of a result, whose sums have three.
_OF_TRANSFORMS = 10


def reference(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the convolution in double precision, [B, F, OH, OW]."""
    return library(inputs.double(), weights.double(), sizes)


def bound_of_sum(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the largest error of each output if its products are added in any order, [B, F, OH, OW]."""
    return gamma(sizes.terms, inputs.dtype) * reference(inputs.abs(), weights.abs(), sizes)


def bound_of_winograd(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
    """Return the largest error of each output of ``winograd``, [B, F, OH, OW].

    The transforms add numbers that cancel in exact arithmetic, so the sum of absolute values to which the error is proportional
    is larger than that of the convolution itself. In return, fewer numbers are added: one for each channel, not for each term.
    """
    largest = winograd(inputs.abs().double(), weights.abs().double(), sizes, absolute=True)
    return gamma(sizes.channels + _OF_TRANSFORMS, inputs.dtype) * largest


def bound_of_fourier(inputs: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
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
