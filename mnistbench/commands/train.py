"""``mnistbench train``: train a built-in model; show progress and list the files."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mnistbench.commands.arguments import MOST_THREADS, add_dataset, given, one_of, whole
from mnistbench.commands.output import STOPPED
from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.params import DATASETS, DTYPES, FAST, STEPS, default_step
from mnistbench.report.rows import operation_tables
from mnistbench.report.terminal import draw
from mnistbench.train.result import INTERRUPTED, METRICS, RESULT, TRACE, WEIGHTS, EpochResult, Listener, Point, Result, Settings

if TYPE_CHECKING:
    from tqdm import tqdm

#: Parent directory of runs without ``--output``, one directory each: TensorBoard overlays their curves.
RUNS = Path("runs")

_MODELS = ("convnet", "lenet5")
_TOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--batch-size", default="64", metavar="N", help="samples per training step (default: 64)")
    add("--test-batch-size", default="1000", metavar="N", help="samples per test batch (default: 1000)")
    add("--epochs", default="14", metavar="N", help="passes over the training set (default: 14)")
    add("--lr", default="1.0", metavar="LR", help="learning rate of Adadelta (default: 1.0)")
    add("--gamma", default="0.7", metavar="M", help="factor of the learning rate after each epoch (default: 0.7)")
    add("--no-accel", "--no-cuda", action="store_true", help="train on the CPU even if there is an accelerator")
    add("--dry-run", action="store_true", help="train on one batch and test on one batch")
    add("--seed", default="1", metavar="N", help="seed of weights, order and dropout (default: 1)")
    add("--log-interval", default="10", metavar="N", help="batches per point of the curves (default: 10)")
    add("--save-model", action="store_true", help="write the weights to mnist_cnn.pt")
    add("--device", metavar="NAME", help="cpu, cuda, cuda:1 or mps (default: the accelerator if there is one)")
    add("--model", default="convnet", metavar="NAME", help="convnet or lenet5 (default: convnet)")
    add_dataset(parser, "mnist")
    add(
        "--step",
        metavar="NAME",
        help="reference, or fast: the same in less time, on cpu and cuda (default: fast on cpu, reference elsewhere)",
    )
    add(
        "--dtype",
        default="float32",
        metavar="NAME",
        help="float32; bfloat16 by autocast; auto: bfloat16 where the hardware multiplies it (default: float32)",
    )
    add("--threads", metavar="N", help="intra-op threads of torch on the CPU (default: torch's own, all cores)")
    add("-o", "--output", metavar="DIR", help="new directory for all files (default: runs/TIME-MODEL-BATCH-DEVICE-DATASET)")
    add(
        "--tensorboard",
        action=argparse.BooleanOptionalAction,
        default=True,
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
    try:
        return _trained(parsed)
    except KeyboardInterrupt:  # before training began, or the second Ctrl-C
        print("mnistbench: interrupted", file=sys.stderr)
        return STOPPED


def _trained(parsed: argparse.Namespace) -> int:
    settings, named = _settings(parsed), given("--output", parsed.output)
    _check_output(named)
    from mnistbench.measuring.torch_import import import_torch

    if settings.profile:  # torch warns of memory allocated before the profile began
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import_torch()
    from mnistbench.train import run as train
    from mnistbench.workloads.data import data_root, mnist_is_to_be_downloaded

    device = _device(settings.device, no_accelerator=parsed.no_accel)
    settings = replace(settings, device=device, step=_step(parsed.step, device), dtype=_dtype(settings.dtype, device))
    if settings.dataset == "mnist" and mnist_is_to_be_downloaded(settings.data_dir):
        print(f"MNIST is not in {units.printable(str(data_root(settings.data_dir)))} yet: downloading 11 MiB", flush=True)
    workload = train.workload_of(settings)
    assert workload.load is not None, "models of ours have a whole set"
    import torch

    workload.load(torch.device(settings.device))  # errors of the dataset come before the directory is created
    output = _make_output(named, settings)
    print(f"{_title(settings, torch.get_num_threads())}, into {units.printable(os.fspath(output))}", flush=True)
    with _interruptible() as interrupted, _Shown(settings, sys.stdout, sys.stderr, interrupted) as shown:
        result = train.run(settings, output, shown, workload)
    _report(result, output, logdir=output if named else RUNS)
    return STOPPED if interrupted else 0


def _title(settings: Settings, threads: int) -> str:
    threads = settings.threads or threads
    device = f"{settings.device}, {threads} thread{'s' if threads > 1 else ''}"
    epochs = "dry run: one batch" if settings.dry_run else f"{settings.epochs} epoch{'s' if settings.epochs > 1 else ''}"
    work = f"{settings.dtype}, {settings.step} step, batch {settings.batch_size}, {epochs}"
    return f"{settings.model} on {settings.dataset}, {device}, {work}"


# ---- While it trains -------------------------------------------------------------------------------------------------


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Yield a list that the first Ctrl-C fills, so that training ends after its step; the second one raises."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


class _Shown(Listener):
    """Progress of training: on a terminal a bar and a line per epoch; elsewhere also a line per log interval."""

    def __init__(self, settings: Settings, out: Any, terminal: Any, interrupted: list[int]) -> None:
        self._settings, self._out, self._terminal, self._interrupted = settings, out, terminal, interrupted
        self._epochs = 1 if settings.dry_run else settings.epochs
        self._bar: tqdm[Any] | None = None
        self._epoch, self._seen, self._train_samples = 1, 0, 0

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
            desc=f"epoch 1/{self._epochs}",
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
    for note in result.notes:
        print(units.printable(note))
    if any(epoch.train_loss is None for epoch in result.epochs):
        print(f"the loss is not a number: training diverged; a smaller --lr than {settings.lr:g} may not")
    files = [RESULT, METRICS, *([WEIGHTS] if settings.save_model else []), *([TRACE] if result.profiled else [])]
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


def _settings(parsed: argparse.Namespace) -> Settings:
    """Read the options; the device is not checked yet, and is ``auto`` if none was given."""
    return Settings(
        model=one_of("--model", parsed.model, _MODELS),
        dataset=one_of("--dataset", parsed.dataset, DATASETS),
        data_dir=given("--data-dir", parsed.data_dir) or None,
        device=given("--device", parsed.device) or "auto",
        step=FAST if parsed.step is None else one_of("--step", parsed.step, STEPS),
        dtype=one_of("--dtype", parsed.dtype, (*DTYPES, "auto")),
        threads=None if parsed.threads is None else whole("--threads", parsed.threads, 1, MOST_THREADS),
        batch_size=whole("--batch-size", parsed.batch_size, 1),
        test_batch_size=whole("--test-batch-size", parsed.test_batch_size, 1),
        epochs=whole("--epochs", parsed.epochs, 1),
        lr=_number("--lr", parsed.lr),
        gamma=_number("--gamma", parsed.gamma),
        seed=whole("--seed", parsed.seed, 0, 2**63 - 1),
        log_interval=whole("--log-interval", parsed.log_interval, 1),
        dry_run=parsed.dry_run,
        save_model=parsed.save_model,
        save_scalars=parsed.tensorboard or parsed.save_scalar,
        save_images=parsed.tensorboard,
        save_graph=parsed.tensorboard or parsed.save_graph,
        profile=parsed.profile,
    )


def _number(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise UsageError(f"{flag}: {text!r} cannot be used; give a number above 0")
    return number


def _device(name: str, *, no_accelerator: bool) -> str:
    """Return the device to train on: by default, as upstream, the accelerator if there is one."""
    from mnistbench.measuring.environment import resolve_devices

    if no_accelerator and name not in ("auto", "cpu"):
        raise UsageError(f"--device: {name!r} and --no-accel (or --no-cuda) contradict each other; give one of them")
    try:
        return resolve_devices(["cpu" if no_accelerator else name])[-1]
    except UsageError as error:
        raise UsageError(f"--device: {error}") from None


def _step(given: str | None, device: str) -> str:
    """Return the step for a device.

    Raises:
        UsageError: the device has no fast step.
    """
    if given == FAST and device.startswith("mps"):
        raise UsageError(f"--step: there is no fast step for {device}; leave --step out")
    return given or default_step(device)


def _dtype(given: str, device: str) -> str:
    """Return the precision for a device; ``auto`` means bfloat16 where the hardware multiplies it."""
    from mnistbench.measuring.environment import multiplies_bfloat16

    if given != "auto":
        return given
    return "bfloat16" if multiplies_bfloat16(device) else "float32"


def _check_output(named: str) -> None:
    """Refuse a directory that cannot be written or is not empty, so that runs never overwrite each other."""
    output = Path(named) if named else RUNS
    try:
        if problem := why_not_writable(output):
            raise UsageError(f"--output: {problem}; name another directory")
        if named and output.exists() and any(output.iterdir()):
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
