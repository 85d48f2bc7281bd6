"""``mnistbench study convolution``: measure one convolution, computed in many ways."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution.report import blocks
from mnistbench.course.studies.convolution.result import COLUMNS, Study, csv_rows, dumps
from mnistbench.measuring.torch_import import import_torch
from mnistbench.showing.arguments import MOST_THREADS, add_format, add_output, given, one_of, parts, whole
from mnistbench.showing.output import deliver_tables, output_file, progress_bar

if TYPE_CHECKING:
    from mnistbench.course.studies.convolution.sizes import Sizes

_DTYPES = ("float32", "bfloat16", "float64")
_ON_OFF = ("on", "off")
_PRECISIONS = ("ieee", "tf32", "bf16")

#: Name of the convolution of --images and --filters.
_OWN = "own"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--size", metavar="NAMES", help="comma list of default sizes: chapter, conv1-b1, conv2-b16, ... (default: all)")
    add("--images", metavar="BxCxHxW", help="images of a convolution of your own, such as 1x3x32x32")
    add("--filters", metavar="FxHxW", help="its filters, such as 2x5x5")
    add("--stride", metavar="N", help="its stride (default: 1)")
    add("--padding", metavar="N", help="its padding (default: 0)")
    add("--groups", metavar="N", help="its groups (default: 1)")
    add("--way", metavar="NAMES", help="comma list of ways: seven_loops, im2col, winograd, library, ... (default: all)")
    add("--dtype", default="float32", metavar="NAMES", help="comma list of float32, bfloat16 and float64 (default: float32)")
    add("--device", default="cpu", metavar="NAME", help="auto, cpu, cuda, cuda:1, mps (default: cpu)")
    add("--threads", default="1", metavar="N", help="intra-op threads of torch on the CPU (default: 1)")
    add("--mkldnn", metavar="on|off", help="whether PyTorch calls oneDNN (default: PyTorch's setting)")
    add("--cudnn-benchmark", metavar="on|off", help="whether cuDNN times its algorithms and takes the fastest (default: off)")
    add("--deterministic", metavar="on|off", help="whether cuDNN takes deterministic algorithms only (default: off)")
    add("--fp32-precision", metavar="NAME", help="of float32 convolutions: ieee, tf32 or bf16 (default: PyTorch's setting)")
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Measure, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    settings = _settings(parsed)
    dtypes = tuple(one_of("--dtype", name, _DTYPES) for name in parts("--dtype", parsed.dtype))
    threads = whole("--threads", parsed.threads, 1, MOST_THREADS)
    output = output_file(parsed)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import_torch()
    found = _measured(parsed, dtypes, threads, settings)
    deliver_tables(
        parsed.format, output, blocks=blocks(found), heading="one convolution, many ways", json=dumps(found), columns=COLUMNS,
        rows=csv_rows(found),
    )  # fmt: skip
    return 0


def _settings(parsed: argparse.Namespace) -> dict[str, str]:
    found = {
        name: one_of(f"--{name.replace('_', '-')}", getattr(parsed, name), _ON_OFF)
        for name in ("mkldnn", "cudnn_benchmark", "deterministic")
        if getattr(parsed, name) is not None
    }
    if parsed.fp32_precision is not None:
        found["fp32_precision"] = one_of("--fp32-precision", parsed.fp32_precision, _PRECISIONS)
    return found


def _measured(parsed: argparse.Namespace, dtypes: tuple[str, ...], threads: int, settings: Mapping[str, str]) -> Study:
    from mnistbench.course.studies.convolution.run import study
    from mnistbench.course.studies.convolution.ways import WAYS
    from mnistbench.measuring.environment import resolve_devices

    ways = [one_of("--way", name, WAYS) for name in parts("--way", parsed.way)] if parsed.way is not None else list(WAYS)
    convolutions = _convolutions(parsed)
    [device] = resolve_devices([parsed.device])
    with progress_bar("way") as progress:
        return study(convolutions, ways, dtypes, device=device, threads=threads, settings=settings, progress=progress)


def _convolutions(parsed: argparse.Namespace) -> dict[str, Sizes]:
    from mnistbench.course.studies.convolution.sizes import Sizes
    from mnistbench.course.studies.convolution.ways import GRID

    if (parsed.images is None) != (parsed.filters is None):
        missing = "--filters" if parsed.filters is None else "--images"
        raise UsageError(f"{missing} is missing; give --images and --filters together")
    if parsed.images is None:
        for name in ("stride", "padding", "groups"):
            if getattr(parsed, name) is not None:
                raise UsageError(f"--{name}: {getattr(parsed, name)!r} needs a convolution; give --images and --filters, too")
        names = (
            [one_of("--size", name, GRID) for name in parts("--size", parsed.size)] if parsed.size is not None else list(GRID)
        )
        return {name: GRID[name] for name in names}
    if parsed.size is not None:
        raise UsageError(f"--size: {parsed.size!r} cannot be used with --images; give one of them")
    batch, channels, height, width = _product("--images", parsed.images, "BxCxHxW", "1x3x32x32")
    filters, kernel_height, kernel_width = _product("--filters", parsed.filters, "FxHxW", "2x5x5")
    found = Sizes(
        batch, channels, height, width, filters, kernel_height, kernel_width,
        stride=whole("--stride", given("--stride", parsed.stride, "1"), 1),
        padding=whole("--padding", given("--padding", parsed.padding, "0"), 0),
        groups=whole("--groups", given("--groups", parsed.groups, "1"), 1),
    )  # fmt: skip
    return {_OWN: found}


def _product(flag: str, text: str, form: str, example: str) -> list[int]:
    if not re.fullmatch(r"\d{1,9}" + r"x\d{1,9}" * form.count("x"), text):
        raise UsageError(f"{flag}: {text!r} is not of the form {form}; give {example}, for example")
    return [int(part) for part in text.split("x")]
