"""``mnistbench train``: train a built-in model; show progress and list the files."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.ranks import Rank, own_rank
from mnistbench.saved_runs.operation_tables import operation_tables
from mnistbench.showing.arguments import given
from mnistbench.showing.output import STOPPED, print_error, rank_0_reports
from mnistbench.showing.terminal import draw
from mnistbench.train.options import (
    RUNS,
    add_arguments,
    check_output,
    device_of,
    directory_to_resume,
    dtype_of,
    kind_of,
    make_output,
    settings_of,
    settings_to_resume,
    step_of,
    threads_of,
)
from mnistbench.train.progress import NoProgress, Progress, interruptible
from mnistbench.train.result import CHECKPOINT, INTERRUPTED, METRICS, RESULT, TRACE, WEIGHTS, Result, Settings

if TYPE_CHECKING:
    from mnistbench.train.checkpoint import Checkpoint
    from mnistbench.workloads.ranks import Alone

__all__ = ["add_arguments", "run"]

#: Operations in the table of --profile.
_TOP = 10


def run(parsed: argparse.Namespace) -> int:
    """Train, report, and return 0; return 130 if Ctrl-C interrupted it.

    Raises:
        MnistbenchError: an option cannot be used, the dataset is missing or damaged, or memory does not suffice.
        OSError: a file cannot be written.
    """
    place = own_rank(os.environ)
    try:
        with rank_0_reports(place):
            return _trained(parsed, place)
    except KeyboardInterrupt:  # before training began, or the second Ctrl-C
        print("mnistbench: interrupted", file=sys.stderr)
        return STOPPED


def _trained(parsed: argparse.Namespace, place: Rank) -> int:
    named, resumed = given("--output", parsed.output), directory_to_resume(parsed, place)
    settings = settings_of(parsed, Settings(device="auto", save_checkpoint=True), place)
    if place.rank == 0 and not resumed:
        check_output(named, again=place.restarts > 0)
    from mnistbench.measuring.torch_import import import_torch

    if settings.profile:  # torch warns of memory allocated before the profile began
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import_torch()
    checkpoint = None
    if resumed:
        from mnistbench.train.checkpoint import load

        checkpoint = load(resumed)
        settings = settings_to_resume(parsed, checkpoint, place, resumed)
    device = device_of(settings.device, place, no_accelerator=parsed.no_accel)
    if checkpoint and kind_of(device) != kind_of(checkpoint.settings.device):
        before = checkpoint.settings.device
        raise UsageError(f"--resume: {resumed} was trained on {before}, and this is {device}; give --device {kind_of(before)}")
    step = checkpoint.settings.step if checkpoint else parsed.step
    settings = replace(
        settings,
        device=device,
        step=step_of(step, device, place),
        dtype=dtype_of(settings.dtype, device),
        threads=threads_of(settings.threads, place),
    )
    from mnistbench.workloads.ranks import Alone, Group

    if place.world_size == 1:
        return _train(settings, named, resumed, checkpoint, Alone())
    import torch

    ranks = Group(place, torch.device(device))
    with ranks.failing_together(print_error):
        code = _train(settings, named, resumed, checkpoint, ranks)
        ranks.end()
    return code


def _train(settings: Settings, named: str, resumed: Path | None, checkpoint: Checkpoint | None, ranks: Alone) -> int:
    """Train as one of the ranks. Rank 0 alone prints and writes."""
    import torch

    from mnistbench.train import run as train
    from mnistbench.workloads.data import data_root, mnist_is_to_be_downloaded

    reports = ranks.rank == 0
    if reports and settings.dataset == "mnist" and mnist_is_to_be_downloaded(settings.data_dir):
        print(f"MNIST is not in {units.printable(str(data_root(settings.data_dir)))} yet: downloading 11 MiB", flush=True)
    workload = train.workload_of(settings, ranks.world_size)
    assert workload.load is not None, "models of ours have a whole set"
    with ranks.rank_0_first():
        workload.load(torch.device(settings.device))  # errors of the dataset come before the directory is created
    output = None
    if reports:
        output = resumed or make_output(named, settings)
        title = _title(settings, torch.get_num_threads(), ranks.world_size)
        print(f"{title}, into {units.printable(os.fspath(output))}", flush=True)
        if checkpoint:
            print(f"continuing after epoch {len(checkpoint.epochs)}", flush=True)
    with interruptible(again=ranks.world_size == 1) as interrupted:
        if output is None:
            train.run(settings, None, NoProgress(interrupted), workload, ranks=ranks, checkpoint=checkpoint)
        else:
            done = len(checkpoint.epochs) if checkpoint else 0
            with Progress(settings, sys.stdout, sys.stderr, interrupted, done) as shown:
                result = train.run(settings, output, shown, workload, ranks=ranks, checkpoint=checkpoint)
            _report(result, output, logdir=output if named or resumed else RUNS)
    return STOPPED if interrupted else 0


def _title(settings: Settings, threads: int, world_size: int) -> str:
    threads = settings.threads or threads
    device = f"{settings.device}, {units.threads(threads)}"
    if world_size > 1:
        device = f"{world_size} ranks, each on {device}"
    epochs = "dry run: one batch" if settings.dry_run else f"{settings.epochs} epoch{'s' if settings.epochs > 1 else ''}"
    work = f"{settings.dtype}, {settings.step} step, batch {settings.batch_size}, {epochs}"
    return f"{settings.model} on {settings.dataset}, {device}, {work}"


# ---- When it is over -------------------------------------------------------------------------------------------------


def _report(result: Result, output: Path, *, logdir: Path) -> None:
    settings = result.settings
    if result.profiled:
        for table in operation_tables([result.profiled], _TOP):
            print(f"\n{draw(table)}\n")
    if result.outcome == INTERRUPTED:
        print("interrupted; the files have the steps before the interruption")
        if settings.save_checkpoint and any(epoch.test_samples for epoch in result.epochs):
            print(f"mnistbench train --resume {_path(output)} continues after the last whole epoch")
    for note in result.notes:
        print(units.printable(note))
    if any(epoch.train_loss is None for epoch in result.epochs):
        print(f"the loss is not a number: training diverged; a smaller --lr than {settings.lr:g} may not")
    files = [
        RESULT,
        METRICS,
        *([CHECKPOINT] if settings.save_checkpoint else []),
        *([WEIGHTS] if settings.save_model else []),
        *([TRACE] if result.profiled else []),
    ]
    print(f"written to {_path(output)}: {', '.join(files)}")
    if result.profiled:
        print(f"{TRACE} opens in https://ui.perfetto.dev or chrome://tracing")
    if result.scalars.directory:
        print(f"TensorBoard: tensorboard --logdir {_path(logdir)}")
        print("  on a remote server: ssh -L 6006:localhost:6006 SERVER forwards its page to your machine only;")
        print("  --host 0.0.0.0 (or --bind_all) shows it to everybody who can reach that server")


def _path(path: Path) -> str:
    return units.printable(shlex.quote(os.fspath(path)))
