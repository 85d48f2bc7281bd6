"""All ways to compute a convolution and its gradients: what each can compute, how much work it does and how exact it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution import loops
from mnistbench.course.studies.convolution.errors import bound_of_fourier, bound_of_sum, bound_of_winograd
from mnistbench.course.studies.convolution.fourier import fourier, fourier_flops
from mnistbench.course.studies.convolution.im2col import im2col, im2col_backward
from mnistbench.course.studies.convolution.pytorch import (
    exchanged_weight_gradient,
    library,
    library_backward,
    library_channels_last,
)
from mnistbench.course.studies.convolution.sizes import Sizes
from mnistbench.course.studies.convolution.winograd import winograd, winograd_flops

#: Dtypes of all ways but those of PyTorch, which compute in any.
DTYPES = ("float32", "float64")

#: Most passes of a way's innermost loop in Python: a few tenths of a second.
MOST_PASSES = 200_000


def by_definition(sizes: Sizes) -> int:
    """Return the FLOPs of a convolution; a multiply-add counts as two."""
    return 2 * sizes.multiply_adds


def twice(sizes: Sizes) -> int:
    """Return the FLOPs of both gradients, each as many as those of the convolution."""
    return 2 * by_definition(sizes)


def once(_: Sizes) -> int:
    """Return the passes of a way without a loop in Python."""
    return 1


@dataclass(frozen=True)
class Way:
    """A way to compute a convolution, or its gradients."""

    name: str
    compute: Callable[..., Any]  # of inputs, weights and sizes; for gradients of the output's gradient before them
    flops: Callable[[Sizes], int] = by_definition  # that it does
    passes: Callable[[Sizes], int] = once  # of its innermost loop in Python
    kernel: int = 0  # side of the only kernel that it can compute; 0: any
    strides: bool = True  # whether it can compute strides above 1
    groups: bool = True  # whether it can compute several groups
    bound: Callable[[Tensor, Tensor, Sizes], Tensor] = bound_of_sum  # of the error of each output
    backward: bool = False
    is_library: bool = False  # computes in any dtype; the library chooses the algorithm

    def check(self, sizes: Sizes) -> None:
        """Check that it can compute a convolution.

        Raises:
            UsageError: it cannot, or its loops in Python would take too long.
        """
        if self.kernel and (sizes.kernel_height, sizes.kernel_width) != (self.kernel, self.kernel):
            raise self._refusal(sizes, f"kernels of {self.kernel}x{self.kernel}")
        if sizes.stride != 1 and not self.strides:
            raise self._refusal(sizes, "stride 1")
        if sizes.groups != 1 and not self.groups:
            raise self._refusal(sizes, "one group")
        if self.passes(sizes) > MOST_PASSES:
            raise self._refusal(sizes, f"at most {MOST_PASSES:,} passes of its loops, and this has {self.passes(sizes):,}")

    def check_dtype(self, dtype: str) -> None:
        """Check that it can compute in a dtype.

        Raises:
            UsageError: it cannot.
        """
        if not self.is_library and dtype not in DTYPES:
            raise UsageError(f"{self.name}: cannot compute in {dtype}; it needs {' or '.join(DTYPES)}")

    def can(self, sizes: Sizes) -> bool:
        """Whether it can compute a convolution."""
        try:
            self.check(sizes)
        except UsageError:
            return False
        return True

    def _refusal(self, sizes: Sizes, needs: str) -> UsageError:
        return UsageError(f"{self.name}: cannot compute {sizes}; it needs {needs}")


def _over(*lengths: str) -> Callable[[Sizes], int]:
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
        Way("im2col", im2col),
        Way("fourier", fourier, fourier_flops, strides=False, groups=False, bound=bound_of_fourier),
        Way("winograd", winograd, winograd_flops, kernel=3, strides=False, groups=False, bound=bound_of_winograd),
        Way("library", library, is_library=True),
        Way("library_channels_last", library_channels_last, is_library=True),
        Way("im2col_backward", im2col_backward, twice, backward=True),
        Way("library_backward", library_backward, twice, backward=True, is_library=True),
        Way("exchanged_weight_gradient", exchanged_weight_gradient, groups=False, backward=True),
    )
})  # fmt: skip

#: The chapter's example, and the layers of ConvNet, whose linear layers are convolutions of one pixel.
GRID: Mapping[str, Sizes] = MappingProxyType({
    "chapter": Sizes(1, 3, 32, 32, 2, 5, 5),
    **{
        f"{layer}-b{batch}": Sizes(batch, *of_layer)
        for batch in (1, 16)
        for layer, of_layer in {
            "conv1": (1, 28, 28, 32, 3, 3),
            "conv2": (32, 26, 26, 64, 3, 3),
            "fc1": (9216, 1, 1, 128, 1, 1),
            "fc2": (128, 1, 1, 10, 1, 1),
        }.items()
    },
})  # fmt: skip
