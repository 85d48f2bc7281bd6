"""What a training run was asked for and what it reached. Needs no torch, so that options can be read without it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from mnistbench.core.record import CaseRecord, Environment, Scalars

#: Version of ``result.json``.
#:
#: 1 (0.1.0): the first.
SCHEMA = 1

#: Files that a run leaves in its directory, beside TensorBoard's event file.
RESULT, METRICS, WEIGHTS, TRACE = "result.json", "metrics.csv", "mnist_cnn.pt", "trace.json.gz"

DONE, INTERRUPTED = "done", "interrupted"


@dataclass(frozen=True)
class Settings:
    """What a run is asked for. Defaults are those of pytorch/examples ``mnist/main.py`` (77f55b9)."""

    model: str = "convnet"
    dataset: str = "mnist"
    data_dir: str | None = None  # torchvision root; None: MNISTBENCH_DATA, else the user's cache
    device: str = "cpu"  # as torch writes it
    dtype: str = "float32"  # or bfloat16, by autocast
    threads: int | None = None  # intra-op; None: as many as torch takes by itself
    batch_size: int = 64
    test_batch_size: int = 1000
    epochs: int = 14
    lr: float = 1.0
    gamma: float = 0.7  # the learning rate after an epoch, as a share of that before
    seed: int = 1
    log_interval: int = 10  # training batches per point of the curves
    dry_run: bool = False  # one epoch of one batch, tested on one batch
    save_model: bool = False
    save_scalars: bool = True  # to TensorBoard: curves,
    save_images: bool = True  # images and misclassified digits,
    save_graph: bool = True  # the model graph
    profile: bool = False  # a trace and the operations of a few steps, after training

    @property
    def label(self) -> str:
        """What tells runs apart in a folder: ``convnet-b64-cpu-mnist``."""
        device = self.device.replace(":", "")
        return "-".join([self.model, f"b{self.batch_size}", device, *([self.dtype] * (self.dtype != "float32")), self.dataset])


@dataclass(frozen=True)
class Point:
    """One log interval of training."""

    epoch: int  # from 1
    step: int  # training batches seen since the run began, these included
    samples: int  # of these batches
    loss: float | None  # mean over these samples; None where it is no finite number
    accuracy: float | None  # percent of them
    learning_rate: float
    train_ns: int  # wall time of these batches

    @property
    def samples_per_second(self) -> float:
        """How fast these batches were trained on."""
        return self.samples * 1e9 / self.train_ns


@dataclass(frozen=True)
class EpochResult:
    """One pass over the training set, and the test after it."""

    number: int  # from 1
    step: int  # training batches seen by its end, since the run began
    learning_rate: float
    train_samples: int
    train_loss: float | None  # mean over them, each as it was when it was trained on; None: no finite number
    train_accuracy: float | None  # percent of them
    train_ns: int  # wall time of its steps; without testing, and without writing curves
    test_samples: int = 0  # 0: interrupted before or during the test
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_ns: int = 0

    def tested(self, samples: int, loss: float | None, accuracy: float | None, ns: int) -> EpochResult:
        """Return the same epoch with its test."""
        return replace(self, test_samples=samples, test_loss=loss, test_accuracy=accuracy, test_ns=ns)

    @property
    def samples_per_second(self) -> float:
        """How fast it trained."""
        return self.train_samples * 1e9 / self.train_ns


class Listener:
    """Is told how a run goes, and may stop it. This one does neither."""

    def begin(self, train_samples: int, test_samples: int) -> None:
        """Hear that training begins: samples of an epoch and of a test."""

    def batch(self, samples: int) -> None:
        """Hear of a batch that was trained on, as far as the host knows: an accelerator may still be at it."""

    def point(self, point: Point) -> None:
        """Hear that a log interval is over."""

    def epoch(self, epoch: EpochResult) -> None:
        """Hear that an epoch is over, and tested unless the run was stopped."""

    def stop(self) -> bool:
        """Say whether to stop; asked after every batch, in training and in testing."""
        return False


@dataclass(frozen=True)
class Result:
    """What a run reached. ``metrics.csv`` beside it has every point; here curves are thinned, as in a record."""

    settings: Settings
    environment: Environment
    outcome: str  # DONE or INTERRUPTED
    parameter_count: int  # trainable
    epochs: tuple[EpochResult, ...]  # the last one may be cut short
    scalars: Scalars  # curves as TensorBoard has them: train/... over steps, test/... over epochs
    wall_ns: int  # from making the optimizer to the last test; what was written meanwhile included
    profiled: CaseRecord | None = None  # one training step: its operations
    notes: tuple[str, ...] = ()  # what could not be done, and why

    def to_json(self) -> dict[str, Any]:
        """Return what ``result.json`` holds."""
        return {
            "schema": SCHEMA,
            "outcome": self.outcome,
            "settings": asdict(self.settings),
            "environment": asdict(self.environment),
            "parameter_count": self.parameter_count,
            "wall_ns": self.wall_ns,
            "epochs": [{**asdict(epoch), "samples_per_second": round(epoch.samples_per_second, 1)} for epoch in self.epochs],
            "scalars": asdict(self.scalars),
            "profiled": self.profiled.to_json() if self.profiled else None,
            "notes": list(self.notes),
        }
