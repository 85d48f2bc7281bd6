"""The sizes of a convolution. Does not import torch until numbers are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ConvolutionSizes:
    """Sizes of a convolution of images with square strides and paddings."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int  # output channels
    kernel_height: int
    kernel_width: int
    stride: int = 1
    padding: int = 0  # zeros on each side
    groups: int = 1

    def __post_init__(self) -> None:
        if (
            min(
                self.batch,
                self.channels,
                self.filters,
                self.kernel_height,
                self.kernel_width,
                self.stride,
                self.groups,
            )
            < 1
        ):
            raise UsageError(f"{self}: a size is below 1")
        if self.padding < 0 or min(self.out_height, self.out_width) < 1:
            raise UsageError(
                f"{self}: the kernel is larger than the padded image; give a smaller kernel or a "
                "larger image"
            )
        if self.channels % self.groups or self.filters % self.groups:
            raise UsageError(
                f"{self}: {self.groups} groups do not divide the channels and the filters"
            )

    @property
    def out_height(self) -> int:
        return (self.height + 2 * self.padding - self.kernel_height) // self.stride + 1

    @property
    def out_width(self) -> int:
        return (self.width + 2 * self.padding - self.kernel_width) // self.stride + 1

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """Shape of the images, [B, C, H, W]."""
        return self.batch, self.channels, self.height, self.width

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Shape of the kernels, [F, C / groups, KH, KW]."""
        return self.filters, self.channels_of_group, self.kernel_height, self.kernel_width

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """Shape of the result, [B, F, OH, OW]."""
        return self.batch, self.filters, self.out_height, self.out_width

    @property
    def channels_of_group(self) -> int:
        """Input channels that each filter reads."""
        return self.channels // self.groups

    @property
    def terms(self) -> int:
        """Products that are added to one number of the output."""
        return self.channels_of_group * self.kernel_height * self.kernel_width

    @property
    def multiply_adds(self) -> int:
        """Products by the definition."""
        return math.prod(self.output_shape) * self.terms

    def tensors(
        self, dtype: torch.dtype | None = None, *, seed: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return normally distributed images and kernels, by default float32.

        They are [B, C, H, W] and [F, C / groups, KH, KW].
        """
        import torch

        generator = torch.Generator().manual_seed(seed)
        inputs, weights = (
            torch.randn(shape, generator=generator)
            for shape in (self.input_shape, self.weight_shape)
        )
        return inputs.to(dtype), weights.to(dtype)

    def __str__(self) -> str:
        extra = "".join(
            f" {name} {value}"
            for name, value, usual in (
                ("stride", self.stride, 1),
                ("padding", self.padding, 0),
                ("groups", self.groups, 1),
            )
            if value != usual
        )
        images = "x".join(map(str, self.input_shape))
        return (
            f"{images} with {self.filters} filters of "
            f"{self.kernel_height}x{self.kernel_width}{extra}"
        )


#: The chapter's example, and the layers of ConvNet, whose linear layers are convolutions of one
#: pixel.
GRID: Mapping[str, ConvolutionSizes] = MappingProxyType(
    {
        "chapter": ConvolutionSizes(1, 3, 32, 32, 2, 5, 5),
        **{
            f"{layer}-b{batch}": ConvolutionSizes(batch, *layer_sizes)
            for batch in (1, 16)
            for layer, layer_sizes in {
                "conv1": (1, 28, 28, 32, 3, 3),
                "conv2": (32, 26, 26, 64, 3, 3),
                "fc1": (9216, 1, 1, 128, 1, 1),
                "fc2": (128, 1, 1, 10, 1, 1),
            }.items()
        },
    }
)
