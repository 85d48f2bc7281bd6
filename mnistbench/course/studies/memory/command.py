"""``mnistbench study memory``: the memory of a network, predicted and measured."""

from __future__ import annotations

import argparse
import os
import re

from mnistbench.core.errors import UsageError
from mnistbench.core.params import MODELS
from mnistbench.course.studies.memory.report import blocks
from mnistbench.course.studies.memory.result import BATCH_SIZES, COLUMNS, PHASES, Study, csv_rows, dumps
from mnistbench.measuring import import_torch
from mnistbench.showing.arguments import MOST_THREADS, add_format, add_output, one_of, parts, whole, wholes
from mnistbench.showing.output import deliver_tables, output_file, progress_bar

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    models, phases, sizes = (",".join(map(str, each)) for each in (MODELS, PHASES, BATCH_SIZES))
    add("--model", default=models, metavar="NAMES", help=f"comma list of convnet and lenet5 (default: {models})")
    add("--batch-size", default=sizes, metavar="SIZES", help=f"comma list of numbers of samples (default: {sizes})")
    add("--phase", default=phases, metavar="NAMES", help=f"comma list of forward and step (default: {phases})")
    add("--device", default="cpu", metavar="NAME", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--memory", metavar="SIZE", help="find the largest batch that fits: 512M or 2G (default: a CUDA device's memory)")
    add("--threads", default="1", metavar="N", help="intra-op threads of torch on the CPU (default: 1)")
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Predict, measure, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    models = tuple(one_of("--model", name, MODELS) for name in parts("--model", parsed.model))
    phases = tuple(one_of("--phase", name, PHASES) for name in parts("--phase", parsed.phase))
    batch_sizes = wholes("--batch-size", parsed.batch_size, 1)
    threads = whole("--threads", parsed.threads, 1, MOST_THREADS)
    memory = _memory(parsed.memory) if parsed.memory is not None else None
    output = output_file(parsed)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of memory allocated before the profile began
    import_torch()
    found = _measured(models, phases, batch_sizes, parsed.device, threads, memory)
    deliver_tables(
        parsed.format, output, blocks=blocks(found), heading="memory of a network", json=dumps(found), columns=COLUMNS,
        rows=csv_rows(found),
    )  # fmt: skip
    return 0


def _measured(
    models: tuple[str, ...],
    phases: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    device: str,
    threads: int,
    memory: int | None,
) -> Study:
    from mnistbench.course.studies.memory.run import measured
    from mnistbench.measuring.environment import resolve_devices

    if device == "auto" or "," in device:
        raise UsageError(f"--device: {device!r} is not one device; give cpu or cuda")
    [resolved] = resolve_devices([device])
    with progress_bar("case") as progress:
        return measured(models, phases, batch_sizes, device=resolved, threads=threads, memory=memory, progress=progress)


def _memory(text: str) -> int:
    """Return bytes; the units are binary, as in the report."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) ?([KMGT])(?:i?B)?", text, re.IGNORECASE)
    n_bytes = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if n_bytes < 1:
        raise UsageError(f"--memory: {text!r} is not a size; give a number with its unit, such as 512M or 2G")
    return n_bytes
