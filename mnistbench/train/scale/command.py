"""``mnistbench scale``: time training steps for several numbers of ranks and show how they scale."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from mnistbench.core.errors import UsageError
from mnistbench.core.params import DATASETS, DTYPES, FAST, MODELS, STEPS
from mnistbench.showing.arguments import (
    MOST_THREADS,
    add_dataset,
    add_dtype,
    add_format,
    add_model,
    add_output,
    given,
    one_of,
    whole,
    wholes,
)
from mnistbench.showing.output import STOPPED, deliver_tables, output_file
from mnistbench.train.scale import run as scale
from mnistbench.train.scale.report import blocks
from mnistbench.train.scale.result import COLUMNS, STRONG, WEAK, Scaling, Settings, csv_rows, dumps

_DEVICES = ("cpu", "cuda")

#: The largest number of ranks on one machine.
_MOST_RANKS = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--ranks", default="1,2", metavar="NUMBERS", help="comma list of numbers of ranks (default: 1,2)")
    add("--strong", action="store_true", help="strong scaling: the batch of all ranks stays the same (--batch-size)")
    add("--weak", action="store_true", help="weak scaling: the batch of each rank stays the same (--batch-size-per-rank)")
    add("--batch-size", metavar="N", help="with --strong: samples per step, of all ranks (default: 64)")
    add("--batch-size-per-rank", metavar="N", help="with --weak: samples per step, of each rank (default: 64)")
    add_model(parser)
    add("--device", default="cpu", metavar="NAME", help="cpu, or cuda: a GPU for each rank (default: cpu)")
    add("--threads", default="1", metavar="N", help="intra-op threads of torch on the CPU, of each rank (default: 1)")
    add_dataset(parser, "digits")
    add("--step", default="reference", metavar="NAME", help="reference, or fast, on cpu (default: reference)")
    add_dtype(parser)
    add("--seed", default="1", metavar="N", help="seed of weights, batches and dropout (default: 1)")
    add("--iterations", default="50", metavar="N", help="timed steps with and without communication (default: 50)")
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Measure every number of ranks, report, and return 0; return 130 if Ctrl-C interrupted it.

    Raises:
        MnistbenchError: an option cannot be used, or a launch failed.
    """
    settings = _settings(parsed)
    output = output_file(parsed)
    scale.check(settings, os.environ)
    try:
        scaling = _measured(settings)
    except KeyboardInterrupt:
        print("mnistbench: interrupted", file=sys.stderr)
        return STOPPED
    deliver_tables(
        parsed.format, output, blocks=blocks(scaling), heading=f"{settings.scaling} scaling over ranks", json=dumps(scaling),
        columns=COLUMNS, rows=csv_rows(scaling),
    )  # fmt: skip
    return 0


def _measured(settings: Settings) -> Scaling:
    from tqdm import tqdm

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends the ranks, too
    try:
        with tqdm(total=len(settings.ranks), unit="launch", file=sys.stderr, disable=None, leave=False) as bar:
            return scale.run(settings, bar.update)
    finally:
        signal.signal(signal.SIGTERM, before)


def _settings(parsed: argparse.Namespace) -> Settings:
    if parsed.strong == parsed.weak:
        fault = "exclude each other" if parsed.strong else "are both missing"
        raise UsageError(f"--strong and --weak {fault}; give one of them")
    flag, other = ("--batch-size", "--batch-size-per-rank") if parsed.strong else ("--batch-size-per-rank", "--batch-size")
    sizes = {"--batch-size": parsed.batch_size, "--batch-size-per-rank": parsed.batch_size_per_rank}
    if sizes[other] is not None:
        scaling = STRONG if parsed.strong else WEAK
        raise UsageError(f"{other}: {sizes[other]!r} cannot be used with --{scaling}; give {flag}")
    step, device = one_of("--step", parsed.step, STEPS), one_of("--device", parsed.device, _DEVICES)
    if step == FAST and device != "cpu":
        raise UsageError(f"--step: the fast step is for the CPU here, not for {device}; leave --step out")
    return Settings(
        scaling=STRONG if parsed.strong else WEAK,
        ranks=tuple(sorted(wholes("--ranks", parsed.ranks, 1, _MOST_RANKS))),
        batch_size=whole(flag, given(flag, sizes[flag], "64"), 1),
        model=one_of("--model", parsed.model, MODELS),
        device=device,
        threads=whole("--threads", parsed.threads, 1, MOST_THREADS),
        dataset=one_of("--dataset", parsed.dataset, DATASETS),
        data_dir=given("--data-dir", parsed.data_dir) or None,
        step=step,
        dtype=one_of("--dtype", parsed.dtype, DTYPES),
        seed=whole("--seed", parsed.seed, 0, 2**63 - 1),
        steps=whole("--iterations", parsed.iterations, 1),
    )
