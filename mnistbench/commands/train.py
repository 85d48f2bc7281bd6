"""``mnistbench train``: train a built-in model; show progress and list the files."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mnistbench.commands.arguments import LARGEST, MOST_THREADS, add_dataset, given, one_of, whole
from mnistbench.commands.output import STOPPED, print_error, rank_0_reports
from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.launch import Launch, launch
from mnistbench.core.params import DATASETS, DTYPES, FAST, STEPS, default_step
from mnistbench.report.rows import operation_tables
from mnistbench.report.terminal import draw
from mnistbench.train.result import (
    CHECKPOINT,
    INTERRUPTED,
    METRICS,
    RESULT,
    TRACE,
    WEIGHTS,
    EpochResult,
    Listener,
    Point,
    Result,
    Settings,
)

if TYPE_CHECKING:
    from tqdm import tqdm

    from mnistbench.train.checkpoint import Checkpoint
    from mnistbench.workloads.ranks import Alone

#: Parent directory of runs without ``--output``, one directory each: TensorBoard overlays their curves.
RUNS = Path("runs")

_MODELS = ("convnet", "lenet5")
_TOP = 10

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


def run(parsed: argparse.Namespace) -> int:
    """Train, report, and return 0; return 130 if Ctrl-C interrupted it.

    Raises:
        MnistbenchError: an option cannot be used, the dataset is missing or damaged, or memory does not suffice.
        OSError: a file cannot be written.
    """
    place = launch(os.environ)
    try:
        with rank_0_reports(place):
            return _trained(parsed, place)
    except KeyboardInterrupt:  # before training began, or the second Ctrl-C
        print("mnistbench: interrupted", file=sys.stderr)
        return STOPPED


def _trained(parsed: argparse.Namespace, place: Launch) -> int:
    named, resumed = given("--output", parsed.output), _resumed(parsed, place)
    settings = _settings(parsed, Settings(device="auto", save_checkpoint=True), place)
    if place.rank == 0 and not resumed:
        _check_output(named, again=place.restarts > 0)
    from mnistbench.measuring.torch_import import import_torch

    if settings.profile:  # torch warns of memory allocated before the profile began
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import_torch()
    checkpoint = None
    if resumed:
        from mnistbench.train.checkpoint import load

        checkpoint = load(resumed)
        settings = _continued(parsed, checkpoint, place, resumed)
    device = _device(settings.device, place, no_accelerator=parsed.no_accel)
    if checkpoint and _kind(device) != _kind(checkpoint.settings.device):
        before = checkpoint.settings.device
        raise UsageError(f"--resume: {resumed} was trained on {before}, and this is {device}; give --device {_kind(before)}")
    step = checkpoint.settings.step if checkpoint else parsed.step
    settings = replace(
        settings,
        device=device,
        step=_step(step, device, place),
        dtype=_dtype(settings.dtype, device),
        threads=_threads(settings.threads, place),
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
        output = resumed or _make_output(named, settings)
        title = _title(settings, torch.get_num_threads(), ranks.world_size)
        print(f"{title}, into {units.printable(os.fspath(output))}", flush=True)
        if checkpoint:
            print(f"continuing after epoch {len(checkpoint.epochs)}", flush=True)
    with _interruptible(again=ranks.world_size == 1) as interrupted:
        if output is None:
            train.run(settings, None, _Silent(interrupted), workload, ranks=ranks, checkpoint=checkpoint)
        else:
            done = len(checkpoint.epochs) if checkpoint else 0
            with _Shown(settings, sys.stdout, sys.stderr, interrupted, done) as shown:
                result = train.run(settings, output, shown, workload, ranks=ranks, checkpoint=checkpoint)
            _report(result, output, logdir=output if named or resumed else RUNS)
    return STOPPED if interrupted else 0


def _title(settings: Settings, threads: int, world_size: int) -> str:
    threads = settings.threads or threads
    device = f"{settings.device}, {threads} thread{'s' if threads > 1 else ''}"
    if world_size > 1:
        device = f"{world_size} ranks, each on {device}"
    epochs = "dry run: one batch" if settings.dry_run else f"{settings.epochs} epoch{'s' if settings.epochs > 1 else ''}"
    work = f"{settings.dtype}, {settings.step} step, batch {settings.batch_size}, {epochs}"
    return f"{settings.model} on {settings.dataset}, {device}, {work}"


# ---- While it trains -------------------------------------------------------------------------------------------------


@contextmanager
def _interruptible(*, again: bool) -> Iterator[list[int]]:
    """Yield a list that the first Ctrl-C fills, so that training ends after its step.

    With ``again``, the second one raises. Ranks of torchrun get Ctrl-C from the terminal and from torchrun, which ends them
    30 seconds later.
    """
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        received.append(number)
        if again:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


class _Silent(Listener):
    """A rank that shows nothing; Ctrl-C stops it."""

    def __init__(self, interrupted: list[int]) -> None:
        self._interrupted = interrupted

    def stop(self) -> bool:
        return bool(self._interrupted)


class _Shown(Listener):
    """Progress of training: on a terminal a bar and a line per epoch; elsewhere also a line per log interval."""

    def __init__(self, settings: Settings, out: Any, terminal: Any, interrupted: list[int], done: int = 0) -> None:
        """Show the epochs after the first ``done`` ones."""
        self._settings, self._done = settings, done
        self._out, self._terminal, self._interrupted = out, terminal, interrupted
        self._epochs = 1 if settings.dry_run else settings.epochs
        self._bar: tqdm[Any] | None = None
        self._epoch, self._seen, self._train_samples = 1 + done, 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, train_samples: int, test_samples: int) -> None:  # noqa: ARG002  # Listener's
        self._train_samples = train_samples
        if not self._terminal.isatty():
            return
        from tqdm import tqdm

        self._bar = tqdm(
            total=train_samples * self._epochs,
            initial=train_samples * self._done,
            desc=f"epoch {self._epoch}/{self._epochs}",
            unit=" samples",
            unit_scale=True,
            bar_format="{desc} {percentage:3.0f} %|{bar}| {rate_noinv_fmt}{postfix}, {remaining} left",
            file=self._terminal,
            dynamic_ncols=True,
            leave=False,
        )

    def batch(self, samples: int) -> None:
        if self._bar is not None:
            self._bar.update(samples)

    def point(self, point: Point) -> None:
        self._seen = self._seen + point.samples if point.epoch == self._epoch else point.samples
        self._epoch = point.epoch
        if self._bar is not None:
            self._bar.set_description_str(f"epoch {point.epoch}/{self._epochs}", refresh=False)
            self._bar.set_postfix_str(f"loss {_loss(point.loss)}, accuracy {_percent(point.accuracy)}", refresh=False)
            return
        share = f"{100 * self._seen / self._train_samples:.0f} %"
        self._say(
            f"train epoch {point.epoch} [{self._seen}/{self._train_samples} ({share})] loss {_loss(point.loss)}, "
            f"accuracy {_percent(point.accuracy)}, {_rate(point.samples_per_second)}"
        )

    def epoch(self, epoch: EpochResult) -> None:
        trained = f"train loss {_loss(epoch.train_loss)}, accuracy {_percent(epoch.train_accuracy)}"
        tested = f"test loss {_loss(epoch.test_loss)}, accuracy {_percent(epoch.test_accuracy)}"
        times = f"{units.duration(epoch.train_ns + epoch.test_ns)}, {_rate(epoch.samples_per_second)}"
        if epoch.test_samples:
            self._say(f"epoch {epoch.number}/{self._epochs}: {trained}; {tested}; {times}")
        else:
            self._say(f"epoch {epoch.number}/{self._epochs}, stopped after {epoch.train_samples:,} samples: {trained}; {times}")

    def stop(self) -> bool:
        return bool(self._interrupted)

    def _say(self, text: str) -> None:
        if self._bar is None:
            print(text, file=self._out, flush=True)
        else:
            self._bar.write(text, file=self._out)


def _loss(loss: float | None) -> str:
    return "not a number" if loss is None else f"{loss:.4f}"


def _percent(accuracy: float | None) -> str:
    """Return an accuracy with two decimals: one image of MNIST's test set is 0.01 %."""
    return units.MISSING if accuracy is None else f"{accuracy:.2f} %"


def _rate(samples_per_second: float) -> str:
    return f"{units.count(round(samples_per_second))} samples/s"


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


# ---- Options ---------------------------------------------------------------------------------------------------------


def _settings(parsed: argparse.Namespace, base: Settings, place: Launch) -> Settings:
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
        model=choice("model", base.model, _MODELS),
        dataset=choice("dataset", base.dataset, DATASETS),
        data_dir=given("--data-dir", parsed.data_dir) or base.data_dir,
        device=given("--device", parsed.device) or base.device,
        step=choice("step", base.step, STEPS),
        dtype=choice("dtype", base.dtype, (*DTYPES, "auto")),
        threads=base.threads if parsed.threads is None else whole("--threads", parsed.threads, 1, MOST_THREADS),
        batch_size=batch_size,
        test_batch_size=size("test_batch_size", base.test_batch_size),
        epochs=size("epochs", base.epochs),
        lr=base.lr if parsed.lr is None else _number("--lr", parsed.lr),
        gamma=base.gamma if parsed.gamma is None else _number("--gamma", parsed.gamma),
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


def _resumed(parsed: argparse.Namespace, place: Launch) -> Path | None:
    """Return the directory of the run to continue: a launcher's restart continues the run that it had started."""
    named, output = given("--resume", parsed.resume), given("--output", parsed.output)
    if named and output and Path(named) != Path(output):
        raise UsageError(f"--output: {output!r} is not the directory of --resume; leave --output out")
    if not named and place.restarts and output and (Path(output) / CHECKPOINT).is_file():
        named = output
    return Path(named) if named else None


def _continued(parsed: argparse.Namespace, checkpoint: Checkpoint, place: Launch, directory: Path) -> Settings:
    """Return the settings of a run that is continued.

    Raises:
        UsageError: an option would change the run, or the run has all its epochs.
    """
    base = checkpoint.settings
    if base.device not in ("cpu", "mps"):
        base = replace(base, device=_kind(base.device) if place.world_size > 1 else base.device)
    settings = _settings(parsed, base, place)
    for name in _KEPT:
        before, now = getattr(base, name), getattr(settings, name)
        if before != now and not (name == "dtype" and now == "auto"):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag}: {now} cannot continue {directory}, which was trained with {before}; leave {flag} out")
    if settings.epochs <= len(checkpoint.epochs):
        reached = f"{len(checkpoint.epochs)} epoch{'s' if len(checkpoint.epochs) > 1 else ''}"
        raise UsageError(f"--resume: {directory} has {reached} already; give more with --epochs")
    return replace(settings, dtype=base.dtype)


def _number(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise UsageError(f"{flag}: {text!r} cannot be used; give a number above 0")
    return number


def _device(name: str, place: Launch, *, no_accelerator: bool) -> str:
    """Return the device to train on: by default, as upstream, the accelerator if there is one; each rank has its own."""
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


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _step(given: str | None, device: str, place: Launch) -> str:
    """Return the step for a device.

    Raises:
        UsageError: the device has no fast step.
    """
    if given == FAST and device.startswith("mps"):
        raise UsageError(f"--step: there is no fast step for {device}; leave --step out")
    if given == FAST and device.startswith("cuda") and place.world_size > 1:
        raise UsageError(f"--step: the fast step of {device} is for one process, not for ranks; leave --step out")
    return given or default_step(device)


def _threads(given: int | None, place: Launch) -> int | None:
    """Return the threads of a rank: its share of the cores. torchrun sets one for each rank where several are on a node."""
    from mnistbench.measuring.environment import usable_cpus

    if given or place.world_size == 1:
        return given
    return max(1, usable_cpus() // place.local_world_size)


def _dtype(given: str, device: str) -> str:
    """Return the precision for a device; ``auto`` means bfloat16 where the hardware multiplies it."""
    from mnistbench.measuring.environment import multiplies_bfloat16

    if given != "auto":
        return given
    return "bfloat16" if multiplies_bfloat16(device) else "float32"


def _check_output(named: str, *, again: bool) -> None:
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


def _make_output(named: str, settings: Settings) -> Path:
    from mnistbench.measuring.tensorboard import new_directory

    output = Path(named) if named else RUNS
    try:
        if not named:
            return new_directory(RUNS, settings.label)
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be made ({error.strerror}); name another directory") from None
    return output
