"""``mnistbench study convolution``: its settings, its result and its tables.

Does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mnistbench.core import options, units
from mnistbench.core.errors import UsageError
from mnistbench.core.options import option, some_of, whole
from mnistbench.course.studies.convolution.sizes import GRID, ConvolutionSizes
from mnistbench.course.studies.study import machine, run_study
from mnistbench.events.work.roofline import Ceilings
from mnistbench.showing.output import CommandResult
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table
from mnistbench.suite import case_options
from mnistbench.suite.measuring.torch_import import import_torch

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
    device: str = case_options.device()
    threads: int = case_options.threads()
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


# ---- Report --------------------------------------------------------------------------------------


def _decimals(scale: float) -> Callable[[float], str]:
    """Return a format with two decimals, and none from 1,000 on."""
    return lambda value: f"{value / scale:,.{2 if abs(value) < 1_000 * scale else 0}f}"


COSTS: tuple[Column[WayCost], ...] = (
    Column(None, lambda cost: cost.case.convolution, key="convolution"),
    Column(None, lambda cost: str(cost.case.sizes), key="sizes"),
    Column("way", lambda cost: cost.case.way, key="way"),
    Column("dtype", lambda cost: cost.case.dtype, key="dtype"),
    Column(
        "time", lambda cost: cost.seconds, lambda seconds: units.duration(1e9 * seconds), "seconds"
    ),
    Column("MFLOP", lambda cost: cost.flops, _decimals(1e6), "flops"),
    Column(None, lambda cost: cost.flops_by_definition, key="flops_by_definition"),
    Column(
        "share of definition",
        lambda cost: cost.flops / cost.flops_by_definition,
        units.percent,
        "of_definition",
    ),
    Column("GFLOP/s", lambda cost: cost.flops_per_s, _decimals(1e9), "flops_per_s"),
    Column("MB moved", lambda cost: cost.n_bytes, _decimals(1e6), "n_bytes"),
    Column("FLOP/byte", lambda cost: cost.flops / cost.n_bytes, _decimals(1), "intensity"),
    Column("share of ceiling", lambda cost: cost.of_ceiling, units.percent, "of_ceiling"),
    Column("error", lambda cost: cost.error, "{:.1e}".format, "error"),
    Column("bound", lambda cost: cost.bound, "{:.1e}".format, "bound"),
    Column("algorithm", lambda cost: cost.algorithm or None, key="algorithm"),
)


def report_of(study: ConvolutionStudy) -> Report:
    """Return a table for each convolution, the fastest way first, and what was refused."""
    every = Table("", COSTS, study.costs)
    ceilings = {cost.case.dtype: cost.ceilings for cost in study.costs}
    device = study.settings.device
    threads = study.settings.threads
    costs_of_convolution: dict[str, list[WayCost]] = {
        cost.case.convolution: [] for cost in study.costs
    }
    for cost in sorted(study.costs, key=lambda cost: cost.seconds):
        costs_of_convolution[cost.case.convolution].append(cost)
    blocks = [
        Block("", tables=(_table(costs, machine(device, threads)),))
        for costs in costs_of_convolution.values()
    ]
    if study.refused:
        blocks.append(Block("Left out", lines=study.refused))
    data = document(
        "convolution",
        device=device,
        threads=threads,
        torch=study.torch,
        ceilings={dtype: asdict(limits) for dtype, limits in ceilings.items()},
        costs=every.records(),
        refused=study.refused,
    )
    return Report("one convolution, many ways", blocks, data, every)


def _table(costs: Sequence[WayCost], where: str) -> Table:
    case = costs[0].case
    lines = [
        f"Ceilings in {limits.precision}: {units.flops_per_s(limits.flops_per_s)} (a large matrix "
        f"product or convolution), {units.bytes_per_s(limits.bytes_per_s)} (a large copy)."
        for limits in {cost.case.dtype: cost.ceilings for cost in costs}.values()
    ]
    return Table(f"{case.convolution}: {case.sizes}, {where}", COSTS, costs, lines=tuple(lines))


# ---- Command -------------------------------------------------------------------------------------


def run(settings: Settings) -> CommandResult:
    """Measure each way of each convolution, and return the report.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    import_torch(quiet=True)
    return run_study("convolution", settings, report_of)
