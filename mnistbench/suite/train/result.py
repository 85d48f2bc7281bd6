"""Settings and result of a training run.

This module does not import torch, so that options can be parsed without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.core.options import number, one_of, option, path, plain, switch, whole
from mnistbench.core.params import device_label
from mnistbench.core.record import CaseRecord, Environment, Scalars, finite
from mnistbench.showing.report import document
from mnistbench.suite import case_options

#: File in the directory of a run, beside the event file of TensorBoard: the result.
RESULT = "result.json"
#: File in the directory of a run: the numbers of each log interval.
METRICS = "metrics.csv"
#: File in the directory of a run: the weights.
WEIGHTS = "mnist_cnn.pt"
#: File in the directory of a run: the trace of profiled steps.
TRACE = "trace.json.gz"
CHECKPOINT = "checkpoint.pt"

DONE = "done"
INTERRUPTED = "interrupted"

#: Value of device, step and dtype: what suits the machine. ``command.resolved`` replaces it.
AUTO = "auto"

#: Options that do not determine a run: where it is written, and those whose values are in other
#: ones.
_NOT_SAVED = frozenset({"output", "resume", "no_accel", "batch_size_per_rank"})


#: Recipe with the values of pytorch/examples.
EXAMPLES = "examples"
#: Recipe that reaches 99 % on MNIST in the least time.
FASTEST = "fastest"
#: Values of ``--recipe``.
RECIPE_NAMES = (EXAMPLES, FASTEST)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run. The defaults are those of pytorch/examples ``mnist/main.py`` (77f55b9)."""

    recipe: str = option(
        "--recipe",
        one_of(*RECIPE_NAMES),
        EXAMPLES,
        (
            "examples: as pytorch/examples; fastest: 99 % on MNIST in seconds, by other defaults "
            "and learning rates"
        ),
        "NAME",
    )
    batch_size: int = case_options.batch_size("samples per training step, of all ranks")
    batch_size_per_rank: int | None = case_options.batch_size_per_rank(
        "the same, of each rank of torchrun"
    )
    test_batch_size: int = option(
        "--test-batch-size", whole(1), "1000", "samples per test batch", "N"
    )
    epochs: int = option("--epochs", whole(1), "14", "passes over the training set", "N")
    lr: float = option(
        "--lr", number(), "1.0", "learning rate; with a recipe that changes it, the largest", "LR"
    )
    gamma: float = option(
        "--gamma", number(), "0.7", "factor of the learning rate after each epoch", "M"
    )
    no_accel: bool = switch(
        "--no-accel --no-cuda", "train on the CPU even if there is an accelerator"
    )
    dry_run: bool = switch("--dry-run", "train on one batch and test on one batch")
    seed: int = case_options.seed("seed of weights, order and dropout")
    log_interval: int = option(
        "--log-interval", whole(1), "10", "batches per point of the curves", "N"
    )
    save_model: bool = switch("--save-model", "write the weights to mnist_cnn.pt")
    device: str = case_options.device(
        "cpu, cuda, cuda:1 or mps; auto: the accelerator if there is one", AUTO
    )
    model: str = case_options.model()
    dataset: str = case_options.dataset(text="digits or mnist", default="mnist")
    data_dir: Path | str | None = case_options.data_dir()
    step: str = case_options.step(
        "reference, or fast: the same in less time, on cpu; auto: fast on cpu, reference elsewhere",
        AUTO,
        more=[AUTO],
    )
    dtype: str = case_options.dtype(
        text="float32; bfloat16 by autocast; auto: bfloat16 where the hardware multiplies it",
        more=[AUTO],
    )
    threads: int | None = case_options.threads(
        text="intra-op threads of torch on the CPU (default: torch's own, all cores)", default=None
    )
    resume: Path | None = option(
        "--resume",
        path,
        None,
        "continue the run of this directory after its last whole epoch, with its options",
        "DIR",
    )
    output: Path | None = options.output_directory(
        "new directory for all files (default: runs/TIME-MODEL-BATCH-DEVICE-DATASET)"
    )
    profile: bool = switch(
        "--profile", "profile a few steps after training: table and trace.json.gz"
    )
    # Fields whose options were given; a run that is continued keeps the others.
    given_fields: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if {"batch_size", "batch_size_per_rank"} <= self.given_fields:
            raise UsageError(
                "--batch-size and --batch-size-per-rank exclude each other; give one of them"
            )
        if self.no_accel and self.device not in (AUTO, "cpu"):
            raise UsageError(
                f"--device: {self.device!r} and --no-accel (or --no-cuda) contradict each other; "
                "give one of them"
            )
        if self.resume and self.output and self.resume != self.output:
            raise UsageError(
                f"--output: {str(self.output)!r} is not the directory of --resume; leave --output "
                "out"
            )

    @property
    def epochs_to_train(self) -> int:
        """Number of epochs of the run: 1 in a dry run."""
        return 1 if self.dry_run else self.epochs

    @property
    def label(self) -> str:
        """Name of the run in a folder: ``convnet-b64-cpu-mnist``."""
        device = self.device.replace(":", "")
        return (
            f"{self.model}-b{self.batch_size}-"
            f"{device_label(device, self.dtype, False, self.step)}-{self.dataset}"
        )

    @property
    def saved(self) -> dict[str, Any]:
        """What determines the run, for files."""
        return plain(self, leave_out=_NOT_SAVED)


@dataclass(frozen=True)
class Point:
    """One log interval of training."""

    epoch: int  # from 1
    step: int  # training batches since the start of the run, including these
    samples: int  # of these batches
    loss: float | None  # mean over these samples; None if it is not finite
    accuracy: float | None  # percent of these samples
    learning_rate: float
    train_ns: int  # wall time of these batches

    @property
    def samples_per_second(self) -> float:
        return self.samples * 1e9 / self.train_ns


@dataclass(frozen=True)
class EpochResult:
    """One pass over the training set, and the test after it."""

    number: int  # from 1
    step: int  # training batches from the start of the run to the end of the epoch
    learning_rate: float
    train_samples: int
    # Mean over the samples, computed during training; None if it is not finite.
    train_loss: float | None
    train_accuracy: float | None  # percent of the samples
    train_ns: int  # wall time of the steps, without testing and writing of curves
    test_samples: int = 0  # 0: the run was interrupted before or during the test
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_ns: int = 0

    @classmethod
    def of(cls, points: Sequence[Point]) -> EpochResult:
        """Return the result of the training of an epoch, by all its log intervals."""
        samples = sum(point.samples for point in points)
        losses = [point.loss * point.samples for point in points if point.loss is not None]
        correct = [point.accuracy * point.samples for point in points if point.accuracy is not None]
        return cls(
            number=points[-1].epoch,
            step=points[-1].step,
            learning_rate=points[-1].learning_rate,
            train_samples=samples,
            train_loss=finite(sum(losses) / samples) if len(losses) == len(points) else None,
            train_accuracy=sum(correct) / samples if correct else None,
            train_ns=sum(point.train_ns for point in points),
        )

    def tested(
        self, samples: int, loss: float | None, accuracy: float | None, ns: int
    ) -> EpochResult:
        """Return the epoch with the result of its test."""
        return replace(
            self, test_samples=samples, test_loss=loss, test_accuracy=accuracy, test_ns=ns
        )

    @property
    def samples_per_second(self) -> float:
        return self.train_samples * 1e9 / self.train_ns


class Listener:
    """Callbacks of a run. The default implementation ignores all events and never stops the run.

    They are no iterator over log intervals and epochs, because progress advances by batches within
    a log interval, and because a run that stops goes on: ranks agree to stop before the next batch,
    in training and in a test, the interrupted log interval counts, and the files are written.
    """

    def begin(self, train_samples: int) -> None:
        """Handle the start of training; the number of samples of an epoch."""

    def batch(self, samples: int) -> None:
        """Handle a batch whose training step was launched.

        An accelerator may not have finished it.
        """

    def point(self, point: Point) -> None:
        """Handle the end of a log interval."""

    def epoch(self, epoch: EpochResult) -> None:
        """Handle the end of an epoch, after its test unless the run was stopped."""

    def stop(self) -> bool:
        """Return whether to stop the run. Called after every batch, in training and in testing."""
        return False


@dataclass(frozen=True)
class Result:
    """Result of a run. Its curves are thinned as in a record; ``metrics.csv`` has all points."""

    settings: Settings
    environment: Environment
    outcome: str  # DONE or INTERRUPTED
    parameter_count: int  # trainable
    epochs: tuple[EpochResult, ...]  # the last one may be incomplete
    scalars: Scalars  # curves: train/... over steps, test/... over epochs
    # From the creation of the optimizer to the end of the last test, including writing; of all its
    # parts.
    wall_ns: int
    world_size: int = 1  # number of ranks
    profiled: CaseRecord | None = None  # operations of one training step
    notes: tuple[str, ...] = ()  # what failed, and why

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``result.json``."""
        values = {
            **vars(self),
            "settings": self.settings.saved,
            "profiled": self.profiled and self.profiled.to_json(),
        }
        values["environment"] = asdict(self.environment)
        values["scalars"] = asdict(self.scalars)
        values["epochs"] = [
            {**asdict(epoch), "samples_per_second": round(epoch.samples_per_second, 1)}
            for epoch in self.epochs
        ]
        return document("train", **values)
