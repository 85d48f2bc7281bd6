"""What a training run was asked for and what it reached; JSON both ways. Needs no torch, so that a report can read it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from mnistbench.errors import RecordError
from mnistbench.reader import in_path
from mnistbench.record import CaseRecord, Environment, RecordReader, Scalars, check_schema, scalars_to_json

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
            **scalars_to_json(self.scalars),
            "profiled": self.profiled.to_json() if self.profiled else None,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: object) -> Result:
        """Read what :meth:`to_json` wrote.

        Raises:
            RecordError: names the field that is missing or wrong, or a schema this version does not know.
        """
        check_schema(data, SCHEMA)
        return _ResultReader(data).result()


class _ResultReader(RecordReader):
    def result(self) -> Result:
        profiled = self["profiled"]
        if profiled.value is not None:
            in_path(profiled, check_schema)
        return Result(
            settings=self["settings"].settings(),
            environment=self["environment"].environment(),
            outcome=self["outcome"].one_of(DONE, INTERRUPTED),
            parameter_count=self["parameter_count"].whole(),
            epochs=tuple(item.epoch() for item in self["epochs"].items()),
            scalars=self["scalars"].parsed().scalars(self["curves"].parsed()),
            wall_ns=self["wall_ns"].nanoseconds(),
            profiled=None if profiled.value is None else profiled.case(None),
            notes=self["notes"].texts(),
        )

    def settings(self) -> Settings:
        values: dict[str, Any] = {}
        for field in fields(Settings):
            item = self[field.name]
            match field.type:
                case "str":
                    values[field.name] = item.text()
                case "int":
                    values[field.name] = item.whole()
                case "float":
                    values[field.name] = item.number()
                case "bool":
                    values[field.name] = item.flag()
                case "str | None":
                    values[field.name] = None if item.value is None else item.text()
                case _:
                    values[field.name] = None if item.value is None else item.whole()
        return Settings(**values)

    def epoch(self) -> EpochResult:
        return EpochResult(
            number=self["number"].whole(),
            step=self["step"].whole(),
            learning_rate=self["learning_rate"].number(),
            train_samples=self["train_samples"].whole(),
            train_loss=self["train_loss"].number_or_none(),
            train_accuracy=self["train_accuracy"].number_or_none(),
            train_ns=self["train_ns"].nanoseconds(),
            test_samples=self["test_samples"].whole(),
            test_loss=self["test_loss"].number_or_none(),
            test_accuracy=self["test_accuracy"].number_or_none(),
            test_ns=self["test_ns"].nanoseconds(),
        )


def read_result(text: str, source: str) -> Result:
    """Read the text of a ``result.json``.

    Raises:
        RecordError: names ``source`` and what is wrong with it.
    """
    try:
        return Result.from_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{source}: is not JSON ({error})") from None
    except RecordError as error:
        raise RecordError(f"{source}: {error}") from None
