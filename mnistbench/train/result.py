"""Settings and result of a training run. This module does not import torch, so that options can be parsed without it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from mnistbench.core.params import REFERENCE, device_label
from mnistbench.core.record import CaseRecord, Environment, Scalars

#: Version of ``result.json``.
#:
#: 1 (0.1.0): the first.
#: 2: ``world_size``.
SCHEMA = 2

#: Files in the directory of a run, beside the event file of TensorBoard.
RESULT, METRICS, WEIGHTS, TRACE = "result.json", "metrics.csv", "mnist_cnn.pt", "trace.json.gz"
CHECKPOINT = "checkpoint.pt"

DONE, INTERRUPTED = "done", "interrupted"


@dataclass(frozen=True)
class Settings:
    """Settings of a run. The defaults are those of pytorch/examples ``mnist/main.py`` (77f55b9)."""

    model: str = "convnet"
    dataset: str = "mnist"
    data_dir: str | None = None  # torchvision root; None: MNISTBENCH_DATA, or else the user's cache
    device: str = "cpu"  # name in torch
    step: str = REFERENCE  # one of params.STEPS
    dtype: str = "float32"  # or bfloat16, by autocast
    threads: int | None = None  # intra-op; None: the default of torch
    batch_size: int = 64  # of all ranks together
    test_batch_size: int = 1000
    epochs: int = 14
    lr: float = 1.0
    gamma: float = 0.7  # factor of the learning rate after each epoch
    seed: int = 1
    log_interval: int = 10  # training batches per point of the curves
    dry_run: bool = False  # train on one batch and test on one batch
    save_model: bool = False
    save_checkpoint: bool = False  # after each epoch, to continue the run
    save_scalars: bool = True  # curves, to TensorBoard
    save_images: bool = True  # images and misclassified digits, to TensorBoard
    save_graph: bool = True  # model graph, to TensorBoard
    profile: bool = False  # save a trace and the operations of a few steps after training

    @property
    def label(self) -> str:
        """Name of the run in a folder: ``convnet-b64-cpu-mnist``."""
        device = self.device.replace(":", "")
        return f"{self.model}-b{self.batch_size}-{device_label(device, self.dtype, False, self.step)}-{self.dataset}"


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
        """Training speed of these batches."""
        return self.samples * 1e9 / self.train_ns


@dataclass(frozen=True)
class EpochResult:
    """One pass over the training set, and the test after it."""

    number: int  # from 1
    step: int  # training batches from the start of the run to the end of the epoch
    learning_rate: float
    train_samples: int
    train_loss: float | None  # mean over the samples, computed during training; None if it is not finite
    train_accuracy: float | None  # percent of the samples
    train_ns: int  # wall time of the steps, without testing and writing of curves
    test_samples: int = 0  # 0: the run was interrupted before or during the test
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_ns: int = 0

    def tested(self, samples: int, loss: float | None, accuracy: float | None, ns: int) -> EpochResult:
        """Return the epoch with the result of its test."""
        return replace(self, test_samples=samples, test_loss=loss, test_accuracy=accuracy, test_ns=ns)

    @property
    def samples_per_second(self) -> float:
        """Training speed of the epoch."""
        return self.train_samples * 1e9 / self.train_ns


class Listener:
    """Callbacks of a run. The default implementation ignores all events and never stops the run."""

    def begin(self, train_samples: int, test_samples: int) -> None:
        """Handle the start of training; numbers of samples of an epoch and of a test."""

    def batch(self, samples: int) -> None:
        """Handle a batch whose training step was launched; an accelerator may not have finished it."""

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
    scalars: Scalars  # curves as in TensorBoard: train/... over steps, test/... over epochs
    wall_ns: int  # from the creation of the optimizer to the end of the last test, including writing; of all its parts
    world_size: int = 1  # number of ranks
    profiled: CaseRecord | None = None  # operations of one training step
    notes: tuple[str, ...] = ()  # what failed, and why

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``result.json``."""
        return {
            "schema": SCHEMA,
            "outcome": self.outcome,
            "settings": asdict(self.settings),
            "environment": asdict(self.environment),
            "world_size": self.world_size,
            "parameter_count": self.parameter_count,
            "wall_ns": self.wall_ns,
            "epochs": [{**asdict(epoch), "samples_per_second": round(epoch.samples_per_second, 1)} for epoch in self.epochs],
            "scalars": asdict(self.scalars),
            "profiled": self.profiled.to_json() if self.profiled else None,
            "notes": list(self.notes),
        }
