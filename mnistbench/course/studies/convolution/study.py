"""What ``mnistbench study convolution`` measures, and its result. Does not import torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.core.options import option, some_of, whole
from mnistbench.core.roofline import Ceilings
from mnistbench.course.studies.convolution.sizes import GRID, ConvolutionSizes

#: Name of the convolution of --images and --filters.
_OWN = "own"

#: What --images gives, in this order.
_IMAGES = ("batch", "channels", "height", "width")
#: What --filters gives, in this order.
_FILTERS = ("filters", "kernel_height", "kernel_width")


def product(form: str, example: str) -> Callable[[str], tuple[int, ...]]:
    """Return a kind for sizes such as ``1x3x32x32``."""

    def read(text: str) -> tuple[int, ...]:
        if not re.fullmatch(r"\d{1,9}" + r"x\d{1,9}" * form.count("x"), text):
            raise ValueError(f"is not of the form {form}; give {example}, for example")
        return tuple(map(int, text.split("x")))

    return read


def ways(text: str) -> tuple[str, ...]:
    """Return names of ways."""
    from mnistbench.course.studies.convolution.ways import WAYS  # it imports torch

    return some_of(*WAYS)(text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of the command."""

    names: tuple[str, ...] | None = option(
        "--size",
        some_of(*GRID),
        None,
        "comma list of default sizes: chapter, conv1-b1, conv2-b16, ... (default: all)",
        "NAMES",
    )
    images: tuple[int, ...] | None = option(
        "--images",
        product("BxCxHxW", "1x3x32x32"),
        None,
        "images of a convolution of your own, such as 1x3x32x32",
        "BxCxHxW",
    )
    filters: tuple[int, ...] | None = option(
        "--filters", product("FxHxW", "2x5x5"), None, "its filters, such as 2x5x5", "FxHxW"
    )
    stride: int | None = option("--stride", whole(1), None, "its stride (default: 1)", "N")
    padding: int | None = option("--padding", whole(0), None, "its padding (default: 0)", "N")
    groups: int | None = option("--groups", whole(1), None, "its groups (default: 1)", "N")
    ways: tuple[str, ...] | None = option(
        "--way",
        ways,
        None,
        "comma list of ways: seven_loops, im2col, winograd, library, ... (default: all)",
        "NAMES",
    )
    dtypes: tuple[str, ...] = option(
        "--dtype",
        some_of("float32", "bfloat16", "float64"),
        "float32",
        "comma list of float32, bfloat16 and float64",
        "NAMES",
    )
    device: str = options.device()
    threads: int = options.threads()
    format: str = options.output_format(["csv"])
    output: Path | None = options.output()

    def __post_init__(self) -> None:
        if (self.images is None) != (self.filters is None):
            missing = "--filters" if self.filters is None else "--images"
            raise UsageError(f"{missing} is missing; give --images and --filters together")
        for name, value in (
            ("stride", self.stride),
            ("padding", self.padding),
            ("groups", self.groups),
        ):
            if self.images is None and value is not None:
                raise UsageError(
                    f"--{name}: '{value}' needs a convolution; give --images and --filters, too"
                )
        if self.images and self.names:
            raise UsageError(
                f"--size: {','.join(self.names)!r} cannot be used with --images; give one of them"
            )

    @property
    def convolutions(self) -> dict[str, ConvolutionSizes]:
        """The sizes of each convolution."""
        if self.images and self.filters:
            images = dict(zip(_IMAGES, self.images, strict=True))
            filters = dict(zip(_FILTERS, self.filters, strict=True))
            more = {
                "stride": self.stride or 1,
                "padding": self.padding or 0,
                "groups": self.groups or 1,
            }
            return {_OWN: ConvolutionSizes(**images, **filters, **more)}
        return {name: GRID[name] for name in self.names or GRID}


@dataclass(frozen=True)
class WayCase:
    """A way of a convolution in one dtype."""

    convolution: str  # name of its sizes
    sizes: ConvolutionSizes
    way: str
    dtype: str


@dataclass(frozen=True)
class WayCost:
    """The work of one call, its time and its error."""

    case: WayCase
    ceilings: Ceilings  # of the device in this dtype
    flops: int  # done; a multiply-add counts as two
    flops_by_definition: int
    # Read and written by operations, ignoring caches; at least inputs, weights and output, each
    # once.
    n_bytes: int
    seconds: float  # median
    # Largest difference from the result in double precision; None for gradients.
    error: float | None = None
    bound: float | None = None  # of the error; None where no sum of products is added
    algorithm: str = ""  # that the library took; empty if it does not say

    @property
    def flops_per_s(self) -> float:
        """Rate of the FLOPs that are done."""
        return self.flops / self.seconds

    @property
    def of_ceiling(self) -> float:
        """The rate as a share of the roofline limit at this intensity."""
        return self.flops_per_s / self.ceilings.attainable(self.flops, self.n_bytes)


@dataclass(frozen=True)
class ConvolutionStudy:
    """All ways of all sizes, and what could not be computed."""

    settings: Settings
    torch: str  # version
    costs: tuple[WayCost, ...]
    refused: tuple[str, ...]  # a sentence for each way that cannot compute a size
