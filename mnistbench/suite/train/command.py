"""``mnistbench train``: what the options mean on this machine and for this rank; train.

Show progress and list the files.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnistbench.core import units
from mnistbench.core.child import leave_closed_terminal, terminations
from mnistbench.core.errors import UsageError
from mnistbench.core.extras import install
from mnistbench.core.files import why_not_writable
from mnistbench.core.machine import shorten_waits, usable_cpus
from mnistbench.core.params import FAST
from mnistbench.showing.output import EXIT_STOPPED, print_error
from mnistbench.suite.measuring.torch_import import import_torch
from mnistbench.suite.train.recipe import RECIPES, with_recipe
from mnistbench.suite.train.report import TrainingProgress, ending, title
from mnistbench.suite.train.result import AUTO, CHECKPOINT, RESULT, Settings
from mnistbench.suite.workloads.builtin import default_step
from mnistbench.suite.workloads.torchrun import Rank, own_rank

if TYPE_CHECKING:
    from mnistbench.suite.train.checkpoint import Checkpoint
    from mnistbench.suite.workloads.ranks import Ranks

__all__ = ["Settings", "run"]

#: Parent directory of runs without ``--output``, one directory each: TensorBoard overlays their
#: curves.
RUNS = Path("runs")

#: Settings that a run which is continued keeps: with others it would be another run.
_KEPT = (
    "recipe",
    "model",
    "dataset",
    "batch_size",
    "test_batch_size",
    "lr",
    "gamma",
    "seed",
    "step",
    "dtype",
    "log_interval",
    "dry_run",
)


def run(settings: Settings) -> int:
    """Train, report, and return 0; return 130 if Ctrl-C interrupted it.

    Raises:
        MnistbenchError: an option cannot be used, the dataset is missing or damaged, or memory does
            not suffice.
        OSError: a file cannot be written.
    """
    try:
        return _trained(settings, own_rank(os.environ))
    except KeyboardInterrupt:  # before training began, or the second Ctrl-C
        print("mnistbench: interrupted", file=sys.stderr)
        return EXIT_STOPPED


def _trained(settings: Settings, rank: Rank) -> int:
    begun = settings.resume
    if not begun and rank.restarts and settings.output and (settings.output / CHECKPOINT).is_file():
        begun = settings.output
    if rank.rank == 0 and not begun:
        check_output(settings.output, again=rank.restarts > 0)
    shorten_waits()
    import_torch(quiet=settings.profile)
    import torch

    from mnistbench.suite.workloads.ranks import run_as_rank

    checkpoint = None
    if settings.batch_size_per_rank:
        size = settings.batch_size_per_rank * rank.world_size
        given_options = settings.given_fields - {"batch_size_per_rank"} | {"batch_size"}
        settings = replace(
            settings, batch_size=size, batch_size_per_rank=None, given_fields=given_options
        )
    if begun:
        from mnistbench.suite.train.checkpoint import load

        checkpoint = load(begun)
        settings = continued(settings, checkpoint, rank, begun)
    else:
        settings = with_recipe(settings)
    settings = resolved(settings, rank, checkpoint.settings.device if checkpoint else None)
    work = partial(_train, settings, begun, checkpoint)
    return run_as_rank(rank, torch.device(settings.device), work, print_error)


def _train(
    settings: Settings, begun: Path | None, checkpoint: Checkpoint | None, ranks: Ranks
) -> int:
    """Train as one of the ranks. Rank 0 alone prints and writes."""
    import torch

    from mnistbench.suite.train import run as train
    from mnistbench.suite.workloads import compiled
    from mnistbench.suite.workloads.data import data_root, mnist_is_to_be_downloaded
    from mnistbench.suite.workloads.workload import workload_of_ranks

    reports = ranks.rank == 0
    if reports and settings.dataset == "mnist" and mnist_is_to_be_downloaded(settings.data_dir):
        print(
            (
                f"MNIST is not in {units.printable(str(data_root(settings.data_dir)))} yet: "
                "downloading 11 MiB"
            ),
            flush=True,
        )
    workload = workload_of_ranks(
        settings.model, settings.dataset, settings.data_dir, ranks.world_size
    )
    assert workload.load is not None, "models of ours have a whole set"
    with ranks.rank_0_first():
        # Errors of the dataset come before the directory is created.
        workload.load(torch.device(settings.device))
    output = None
    done = len(checkpoint.epochs) if checkpoint else 0
    if reports:
        output = begun or make_output(settings)
        training = title(settings, settings.threads or torch.get_num_threads(), ranks.world_size)
        print(f"{training}, into {units.printable(os.fspath(output))}", flush=True)
        if checkpoint:
            print(f"continuing after epoch {done}", flush=True)
        if settings.step == FAST and not compiled.loops():
            print(
                (
                    "numba is not installed: a step of convnet takes 1.8 times as long; "
                    f"{install('numba')}"
                ),
                flush=True,
            )
    with interruptible(again=ranks.world_size == 1) as interrupted:
        out, terminal = (sys.stdout, sys.stderr) if reports else (None, None)
        with closing(TrainingProgress(settings, interrupted, out, terminal, done)) as shown:
            result = train.run(
                settings, output, shown, workload, ranks=ranks, checkpoint=checkpoint
            )
        if output:
            print(
                "\n".join(
                    ending(result, output, logdir=output if settings.output or begun else RUNS)
                )
            )
    return EXIT_STOPPED if interrupted else 0


@contextmanager
def interruptible(*, again: bool) -> Iterator[list[int]]:
    """Yield a list that the first Ctrl-C or SIGTERM fills, so that training ends after its step.

    With ``again``, the second one raises. Ranks of torchrun get Ctrl-C from the terminal and from
    torchrun, which ends them 30 seconds later; SIGTERM ends them at once.
    """
    received: list[int] = []
    numbers = (signal.SIGINT, *terminations()) if again else (signal.SIGINT,)

    def note(noted: int, _: Any) -> None:
        leave_closed_terminal(noted)
        received.append(noted)
        if again:
            for number in numbers:
                signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- What the options mean here ------------------------------------------------------------------


def continued(settings: Settings, checkpoint: Checkpoint, rank: Rank, directory: Path) -> Settings:
    """Return the settings of a run that is continued.

    Its own, and those given options that do not change the training.
    """
    before = checkpoint.settings
    for name in _KEPT:
        kept = getattr(before, name)
        wanted = getattr(settings, name)
        if name in settings.given_fields and wanted not in (kept, AUTO):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{flag}: {wanted} cannot continue {directory}, which was trained with {kept}; "
                f"leave {flag} out"
            )
    changed = {name: getattr(settings, name) for name in settings.given_fields.difference(_KEPT)}
    # Each rank has a device of its own.
    device = kind_of(before.device) if rank.world_size > 1 else before.device
    device = "cpu" if settings.no_accel else changed.get("device", device)
    after = replace(before, **{**changed, "device": device})
    if RECIPES[after.recipe].warm_up and after.epochs != before.epochs:
        kept = (
            f"{before.epochs}, because the learning rates of recipe {after.recipe} follow from it"
        )
        raise UsageError(
            f"--epochs: {after.epochs} cannot continue {directory}, which has {kept}; leave "
            "--epochs out"
        )
    reached_epochs = len(checkpoint.epochs)
    # A run that was killed after its last epoch has no result yet.
    has_result = (directory / RESULT).is_file()
    if after.epochs < reached_epochs or (after.epochs == reached_epochs and has_result):
        reached = units.counted(reached_epochs, "epoch")
        raise UsageError(f"--resume: {directory} has {reached} already; give more with --epochs")
    return after


def resolved(settings: Settings, rank: Rank, before: str | None = None) -> Settings:
    """Return the settings for this machine and rank.

    They have a device, a step, a precision and a number of threads.

    ``before`` is the device of the run that is continued; None for a new run.
    """
    from mnistbench.suite.measuring.environment import (
        device_of_rank,
        multiplies_bfloat16,
        resolve_devices,
    )

    device = "cpu" if settings.no_accel else settings.device
    if rank.world_size > 1:
        device = device_of_rank([device], rank)
    else:
        try:
            device = resolve_devices([device])[-1]  # as upstream, the accelerator if there is one
        except UsageError as error:
            raise UsageError(f"--device: {error}") from None
    if before and kind_of(device) != kind_of(before):
        raise UsageError(
            f"--resume: the run was trained on {before}, and this is {device}; give --device "
            f"{kind_of(before)}"
        )
    if settings.step == FAST and device != "cpu":
        raise UsageError(
            f"--step: the fast step is for the CPU, not for {device}; give --step reference"
        )
    dtype = settings.dtype
    threads = settings.threads
    if dtype == AUTO:
        dtype = "bfloat16" if multiplies_bfloat16(device) else "float32"
    # torchrun sets one for each rank where several are on a node.
    if threads is None and rank.world_size > 1:
        threads = max(1, usable_cpus() // rank.local_world_size)
    step = default_step(device) if settings.step == AUTO else settings.step
    return replace(settings, device=device, step=step, dtype=dtype, threads=threads)


def kind_of(device: str) -> str:
    """Return a device's name without its number."""
    return device.partition(":")[0]


def check_output(named: Path | None, *, again: bool) -> None:
    """Refuse a directory that cannot be written or is not empty.

    So runs never overwrite each other.

    With ``again`` the launcher has restarted the ranks, which began the directory.
    """
    output = named or RUNS
    try:
        if problem := why_not_writable(output):
            raise UsageError(f"--output: {problem}; name another directory")
        if named and not again and output.exists() and any(output.iterdir()):
            raise UsageError(
                f"--output: {output} is not empty; name a new one, or leave --output out"
            )
    except OSError as error:
        raise UsageError(
            f"--output: {output} cannot be used ({error.strerror}); name another directory"
        ) from None


def make_output(settings: Settings) -> Path:
    """Make the directory of the run and return it; without a name, a new one below ``RUNS``."""
    from mnistbench.suite.measuring.tensorboard import new_directory

    try:
        if not settings.output:
            return new_directory(RUNS, settings.label)
        settings.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        named = settings.output or RUNS
        raise UsageError(
            f"--output: {named} cannot be made ({error.strerror}); name another directory"
        ) from None
    return settings.output
