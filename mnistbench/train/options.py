"""The options of ``mnistbench train``, and what they mean on this machine and for this rank."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.machine import usable_cpus
from mnistbench.core.params import DATASETS, DTYPES, FAST, MODELS, STEPS, default_step
from mnistbench.core.ranks import Rank
from mnistbench.showing.arguments import LARGEST, MOST_THREADS, add_dataset, given, one_of, positive, whole
from mnistbench.train.result import CHECKPOINT, Settings

if TYPE_CHECKING:
    from mnistbench.train.checkpoint import Checkpoint

#: Parent directory of runs without ``--output``, one directory each: TensorBoard overlays their curves.
RUNS = Path("runs")

#: Settings that a run which is continued keeps: with others it would be another run.
_KEPT = (
    "model", "dataset", "batch_size", "test_batch_size", "lr", "gamma", "seed", "step", "dtype", "log_interval", "dry_run",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--batch-size", metavar="N", help="samples per training step, of all ranks (default: 64)")
    add("--batch-size-per-rank", metavar="N", help="the same, of each rank of torchrun")
    add("--test-batch-size", metavar="N", help="samples per test batch (default: 1000)")
    add("--epochs", metavar="N", help="passes over the training set (default: 14)")
    add("--lr", metavar="LR", help="learning rate of Adadelta (default: 1.0)")
    add("--gamma", metavar="M", help="factor of the learning rate after each epoch (default: 0.7)")
    add("--no-accel", "--no-cuda", action="store_true", help="train on the CPU even if there is an accelerator")
    add("--dry-run", action="store_true", help="train on one batch and test on one batch")
    add("--seed", metavar="N", help="seed of weights, order and dropout (default: 1)")
    add("--log-interval", metavar="N", help="batches per point of the curves (default: 10)")
    add("--save-model", action="store_true", help="write the weights to mnist_cnn.pt")
    add("--device", metavar="NAME", help="cpu, cuda, cuda:1 or mps (default: the accelerator if there is one)")
    add("--model", metavar="NAME", help="convnet or lenet5 (default: convnet)")
    add_dataset(parser, "mnist")
    parser.set_defaults(dataset=None)  # --resume takes what is not given from the run
    add(
        "--step",
        metavar="NAME",
        help="reference, or fast: the same in less time, on cpu and cuda (default: fast on cpu, reference elsewhere)",
    )
    add(
        "--dtype",
        metavar="NAME",
        help="float32; bfloat16 by autocast; auto: bfloat16 where the hardware multiplies it (default: float32)",
    )
    add("--threads", metavar="N", help="intra-op threads of torch on the CPU (default: torch's own, all cores)")
    add("--resume", metavar="DIR", help="continue the run of this directory after its last whole epoch, with its options")
    add("-o", "--output", metavar="DIR", help="new directory for all files (default: runs/TIME-MODEL-BATCH-DEVICE-DATASET)")
    add(
        "--tensorboard",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write curves, images and graph; on by default",
    )
    add("--save-scalar", action="store_true", help="write the curves even with --no-tensorboard")
    add("--save-graph", action="store_true", help="write the model graph even with --no-tensorboard")
    add("--profile", action="store_true", help="profile a few steps after training: table and trace.json.gz")


def settings_of(parsed: argparse.Namespace, base: Settings, place: Rank) -> Settings:
    """Return the settings of ``base`` with the given options in their place; the device is not checked yet."""

    def size(name: str, otherwise: int, least: int = 1, most: int = LARGEST) -> int:
        text = getattr(parsed, name)
        return otherwise if text is None else whole(f"--{name.replace('_', '-')}", text, least, most)

    def choice(name: str, otherwise: str, choices: Iterable[str]) -> str:
        text = getattr(parsed, name)
        return otherwise if text is None else one_of(f"--{name}", text, choices)

    def on(flag: bool | None, otherwise: bool) -> bool:
        return otherwise if flag is None else flag

    batch_size = size("batch_size", base.batch_size)
    if parsed.batch_size_per_rank is not None:
        if parsed.batch_size is not None:
            raise UsageError("--batch-size and --batch-size-per-rank exclude each other; give one of them")
        batch_size = whole("--batch-size-per-rank", parsed.batch_size_per_rank, 1) * place.world_size
    return replace(
        base,
        model=choice("model", base.model, MODELS),
        dataset=choice("dataset", base.dataset, DATASETS),
        data_dir=given("--data-dir", parsed.data_dir) or base.data_dir,
        device=given("--device", parsed.device) or base.device,
        step=choice("step", base.step, STEPS),
        dtype=choice("dtype", base.dtype, (*DTYPES, "auto")),
        threads=base.threads if parsed.threads is None else whole("--threads", parsed.threads, 1, MOST_THREADS),
        batch_size=batch_size,
        test_batch_size=size("test_batch_size", base.test_batch_size),
        epochs=size("epochs", base.epochs),
        lr=base.lr if parsed.lr is None else positive("--lr", parsed.lr),
        gamma=base.gamma if parsed.gamma is None else positive("--gamma", parsed.gamma),
        seed=size("seed", base.seed, 0, 2**63 - 1),
        log_interval=size("log_interval", base.log_interval),
        dry_run=parsed.dry_run or base.dry_run,
        save_model=parsed.save_model or base.save_model,
        save_checkpoint=base.save_checkpoint and not parsed.dry_run,
        save_scalars=on(parsed.tensorboard, base.save_scalars) or parsed.save_scalar,
        save_images=on(parsed.tensorboard, base.save_images),
        save_graph=on(parsed.tensorboard, base.save_graph) or parsed.save_graph,
        profile=parsed.profile or base.profile,
    )


def directory_to_resume(parsed: argparse.Namespace, place: Rank) -> Path | None:
    """Return the directory of the run to continue: that of --resume, or of the run that the launcher restarted.

    Raises:
        UsageError: --output names another directory than --resume.
    """
    named, output = given("--resume", parsed.resume), given("--output", parsed.output)
    if named and output and Path(named) != Path(output):
        raise UsageError(f"--output: {output!r} is not the directory of --resume; leave --output out")
    if not named and place.restarts and output and (Path(output) / CHECKPOINT).is_file():
        named = output
    return Path(named) if named else None


def settings_to_resume(parsed: argparse.Namespace, checkpoint: Checkpoint, place: Rank, directory: Path) -> Settings:
    """Return the settings of a run that is continued.

    Raises:
        UsageError: an option would change the run, or the run has all its epochs.
    """
    base = checkpoint.settings
    if place.world_size > 1:
        base = replace(base, device=kind_of(base.device))  # each rank has a device of its own
    settings = settings_of(parsed, base, place)
    for name in _KEPT:
        before, now = getattr(base, name), getattr(settings, name)
        if before != now and not (name == "dtype" and now == "auto"):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag}: {now} cannot continue {directory}, which was trained with {before}; leave {flag} out")
    if settings.epochs <= len(checkpoint.epochs):
        reached = f"{len(checkpoint.epochs)} epoch{'s' if len(checkpoint.epochs) > 1 else ''}"
        raise UsageError(f"--resume: {directory} has {reached} already; give more with --epochs")
    return replace(settings, dtype=base.dtype)


def device_of(name: str, place: Rank, *, no_accelerator: bool) -> str:
    """Return the device to train on: by default, as upstream, the accelerator if there is one; each rank has its own.

    Raises:
        UsageError: the device is unknown or not present, contradicts --no-accel, or cannot be used by ranks.
    """
    from mnistbench.measuring.environment import device_of_rank, resolve_devices

    if no_accelerator and name not in ("auto", "cpu"):
        raise UsageError(f"--device: {name!r} and --no-accel (or --no-cuda) contradict each other; give one of them")
    name = "cpu" if no_accelerator else name
    if place.world_size > 1:
        return device_of_rank([name], place)
    try:
        return resolve_devices([name])[-1]
    except UsageError as error:
        raise UsageError(f"--device: {error}") from None


def kind_of(device: str) -> str:
    """Return a device's name without its number."""
    return device.partition(":")[0]


def step_of(given: str | None, device: str, place: Rank) -> str:
    """Return the step for a device.

    Raises:
        UsageError: the device has no fast step.
    """
    if given == FAST and device.startswith("mps"):
        raise UsageError(f"--step: there is no fast step for {device}; leave --step out")
    if given == FAST and device.startswith("cuda") and place.world_size > 1:
        raise UsageError(f"--step: the fast step of {device} is for one process, not for ranks; leave --step out")
    return given or default_step(device)


def threads_of(given: int | None, place: Rank) -> int | None:
    """Return the threads of a rank: its share of the cores. torchrun sets one for each rank where several are on a node."""
    if given or place.world_size == 1:
        return given
    return max(1, usable_cpus() // place.local_world_size)


def dtype_of(given: str, device: str) -> str:
    """Return the precision for a device; ``auto`` means bfloat16 where the hardware multiplies it."""
    from mnistbench.measuring.environment import multiplies_bfloat16

    if given != "auto":
        return given
    return "bfloat16" if multiplies_bfloat16(device) else "float32"


def check_output(named: str, *, again: bool) -> None:
    """Refuse a directory that cannot be written or is not empty, so that runs never overwrite each other.

    With ``again`` the launcher has restarted the ranks, which began the directory.
    """
    output = Path(named) if named else RUNS
    try:
        if problem := why_not_writable(output):
            raise UsageError(f"--output: {problem}; name another directory")
        if named and not again and output.exists() and any(output.iterdir()):
            raise UsageError(f"--output: {output} is not empty; name a new one, or leave --output out")
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be used ({error.strerror}); name another directory") from None


def make_output(named: str, settings: Settings) -> Path:
    """Make the directory of the run and return it; without a name, a new one below ``RUNS``.

    Raises:
        UsageError: it cannot be made.
    """
    from mnistbench.measuring.tensorboard import new_directory

    output = Path(named) if named else RUNS
    try:
        if not named:
            return new_directory(RUNS, settings.label)
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be made ({error.strerror}); name another directory") from None
    return output
