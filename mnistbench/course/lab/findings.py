"""The measurements of a lab report, one file per machine: ``lab.json``.

Times are integer nanoseconds, sizes are bytes, rates are per second. A value that could not be measured is None, never 0.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from mnistbench.core.document import OPTIONAL, Members, Nanoseconds, Positive, Reader
from mnistbench.core.errors import RecordError
from mnistbench.core.record import Environment
from mnistbench.profile.result import Layer

#: Version of the file.
#:
#: 1: the first.
SCHEMA = 1

FILE = "lab.json"

#: Weights of the model in the first iteration of a process.
UNTRAINED, TRAINED = "untrained", "trained"


@dataclass(frozen=True)
class Settings:
    """Settings of a lab. Labs with different settings are different labs."""

    dataset: str
    batch_sizes: Annotated[tuple[Positive, ...], Members("at least one")]  # ascending
    devices: Annotated[tuple[str, ...], Members("at least one")]  # names in torch, the CPU first
    epochs: int
    model: str
    seed: int

    @property
    def accelerator(self) -> str:
        """The first device that is not the CPU; empty if there is none."""
        return next((device for device in self.devices if device != "cpu"), "")


@dataclass(frozen=True)
class Model:
    """The network that was measured."""

    name: str
    parameters: int
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Ceiling:
    """Peak rates of the machine, measured with a matrix product, a convolution and a copy."""

    device: str
    flops_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True)
class CallTime:
    """Untraced wall time of one warm iteration on one batch."""

    device: str
    threads: Positive
    phase: str  # forward or step
    batch_size: Positive
    median_ns: Nanoseconds
    iqr_ns: Nanoseconds | None  # None: a single iteration was timed
    calls: int  # number of timed iterations


@dataclass(frozen=True)
class EpochTime:
    """Untraced wall time of one pass over the training set (train) or the test set (eval)."""

    device: str
    threads: Positive
    phase: str  # train or eval
    batch_size: Positive
    median_ns: Nanoseconds
    iqr_ns: Nanoseconds | None  # None: a single iteration was timed
    calls: int
    samples: Positive  # in one timed pass, which may cover a part of the set
    whole_set: Positive  # samples of the whole set

    @property
    def epoch_ns(self) -> int:
        """Time of a pass over the whole set, extrapolated by the number of samples if a part was timed."""
        return round(self.median_ns * self.whole_set / self.samples)

    @property
    def epoch_iqr_ns(self) -> int | None:
        """Interquartile range of ``epoch_ns``."""
        return None if self.iqr_ns is None else round(self.iqr_ns * self.whole_set / self.samples)


@dataclass(frozen=True)
class Operation:
    """One operation of one phase and module, per iteration."""

    name: str  # as PyTorch names it: aten::addmm
    phase: str
    module: str
    calls: float
    self_ns: Nanoseconds  # median, by the clock of the table
    spread_ns: Nanoseconds  # interquartile range over the iterations
    total_ns: Nanoseconds  # host time with the operations it calls
    memory_bytes: int  # allocated minus freed
    flops: int | None
    moved_bytes: int | None  # read and written, derived from the shapes


@dataclass(frozen=True)
class Operations:
    """The operation table of a warm case."""

    device: str
    view: str  # host or device
    phase: str  # forward or step
    batch_size: Positive
    threads: Positive
    iterations: int  # profiled
    iteration_ns: Nanoseconds  # median wall time of a profiled iteration
    profiler_ns: Nanoseconds | None  # profiler overhead per operation call
    busy_ns: Nanoseconds | None  # median time per iteration in which the accelerator ran kernels; None on a CPU
    rows: tuple[Operation, ...]

    @property
    def clock(self) -> str:
        """The clock of ``self_ns``: cpu or device."""
        return "device" if self.view == "device" else "cpu"


@dataclass(frozen=True)
class ProfiledCase:
    """Profile of one case."""

    operations: tuple[Operations, ...]  # one table per view
    parameters: int  # of the model, trainable
    layers: tuple[Layer, ...]
    ceiling: Ceiling | None


@dataclass(frozen=True)
class FirstOperation:
    """Time of one operation in a first iteration, and in a warm iteration of the same process."""

    name: str
    phase: str
    module: str
    first_ns: Nanoseconds
    warm_ns: Nanoseconds | None


@dataclass(frozen=True)
class FirstCall:
    """The first iteration of a case in a new process, profiled with host activities only."""

    device: str
    phase: str
    batch_size: Positive
    weights: str  # UNTRAINED or TRAINED
    first_ns: Nanoseconds
    warm_ns: Nanoseconds | None  # a later profiled iteration of the same process
    rows: tuple[FirstOperation, ...]


@dataclass(frozen=True)
class EpochResult:
    """Result of a training run after an epoch. Losses are means over the samples, accuracies are in percent."""

    epoch: int  # from 1
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None


@dataclass(frozen=True)
class Point:
    """A point of a training curve: means over the batches since the previous point."""

    samples: Positive  # seen so far
    loss: float | None  # None if it was not finite
    accuracy: float | None


@dataclass(frozen=True)
class Training:
    """A training run on one device and batch size."""

    device: str
    batch_size: Positive
    epochs: tuple[EpochResult, ...]
    curve: tuple[Point, ...]
    directory: str  # of the TensorBoard run, relative to the report; empty if there is none


@dataclass(frozen=True)
class Study:
    """The table of an operator study, as ``mnistbench study NAME --format csv`` writes it."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Findings:
    """The lab of one machine."""

    settings: Settings
    environment: Environment
    model: Model
    train_samples: int
    test_samples: int
    ceilings: tuple[Ceiling, ...]
    call_times: tuple[CallTime, ...]
    epoch_times: tuple[EpochTime, ...]
    operations: tuple[Operations, ...]
    first_calls: tuple[FirstCall, ...]
    trainings: tuple[Training, ...]
    traces: tuple[str, ...] = ()  # files, relative to the report
    notes: tuple[str, ...] = ()  # what could not be measured, and why
    studies: Annotated[tuple[Study, ...], OPTIONAL] = ()  # of the appendix

    def to_json(self) -> str:
        """Return the text of ``lab.json``."""
        return dump({"schema": SCHEMA, **asdict(self)})

    @classmethod
    def from_file(cls, path: Path) -> Findings:
        """Read ``lab.json``.

        Raises:
            RecordError: the file is missing or damaged, or has an unknown schema; names the file and the field.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RecordError(f"{path}: cannot be read ({error.strerror}); run mnistbench lab -o {path.parent} first") from None
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}: is not JSON ({error}); run mnistbench lab -o {path.parent} again") from None
        try:
            schema = Reader(data)["schema"]
            if schema.whole() != SCHEMA:
                raise schema.wrong(f"{SCHEMA}, which this mnistbench reads")
            return Reader(data).read(cls)
        except RecordError as error:
            raise RecordError(f"{path}: {error}; run mnistbench lab -o {path.parent} again") from None


# ---- JSON ------------------------------------------------------------------------------------------------------------


def dump(data: object) -> str:
    """Return readable JSON without NaN."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
