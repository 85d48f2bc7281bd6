"""Every measured figure that a lab report rests on, as one file per machine: ``lab.json``.

Times are integer nanoseconds, sizes bytes, rates per second. What could not be had is None and never 0.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from mnistbench.core.errors import RecordError
from mnistbench.core.json_reader import Reader
from mnistbench.core.record import Environment
from mnistbench.profile.result import Layer

_T = TypeVar("_T")

#: Version of what is written.
#:
#: 1: the first.
SCHEMA = 1

FILE = "lab.json"

#: Weights of the model when a fresh process called it for the first time.
UNTRAINED, TRAINED = "untrained", "trained"


@dataclass(frozen=True)
class Settings:
    """What was asked for: what makes two labs two different ones."""

    dataset: str
    batch_sizes: tuple[int, ...]  # ascending
    devices: tuple[str, ...]  # as torch writes them, the CPU first
    epochs: int
    model: str
    seed: int

    @property
    def accelerator(self) -> str:
        """The first device that is no CPU; empty where there is none."""
        return next((device for device in self.devices if device != "cpu"), "")


@dataclass(frozen=True)
class Model:
    """The network that was measured."""

    name: str
    parameters: int
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Ceiling:
    """What this machine reaches at best, measured by a matrix product, a convolution and a copy."""

    device: str
    flops_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True)
class CallTime:
    """Untraced wall time of one warm call on one batch."""

    device: str
    threads: int
    phase: str  # forward or step
    batch_size: int
    median_ns: int
    iqr_ns: int | None  # None: one call has no spread
    calls: int  # how many were timed


@dataclass(frozen=True)
class EpochTime:
    """Untraced wall time of one pass over the training set (train) or the test set (eval)."""

    device: str
    threads: int
    phase: str  # train or eval
    batch_size: int
    median_ns: int
    iqr_ns: int | None  # None: one call has no spread
    calls: int
    samples: int  # that one timed pass went over
    whole_set: int  # samples of the whole set

    @property
    def epoch_ns(self) -> int:
        """Time of a pass over the whole set, where only a part of it was timed by the share of samples."""
        return round(self.median_ns * self.whole_set / self.samples)

    @property
    def epoch_iqr_ns(self) -> int | None:
        """Spread of that time."""
        return None if self.iqr_ns is None else round(self.iqr_ns * self.whole_set / self.samples)


@dataclass(frozen=True)
class Operation:
    """One operation of one phase and module, per iteration."""

    name: str  # as PyTorch names it: aten::addmm
    phase: str
    module: str
    calls: float
    self_ns: int  # median, by the table's clock
    spread_ns: int  # interquartile range over the iterations
    total_ns: int  # host time, the operations it calls included
    memory_bytes: int  # allocated less freed
    flops: int | None
    moved_bytes: int | None  # read and written, by the shapes


@dataclass(frozen=True)
class Operations:
    """The operation table of a warm case."""

    device: str
    view: str  # host or device
    phase: str  # forward or step
    batch_size: int
    threads: int
    iterations: int  # profiled
    iteration_ns: int  # median wall time of a profiled iteration
    profiler_ns: int | None  # what the profiler adds per call of an operation
    busy_ns: int | None  # of an iteration, median time in which the accelerator ran kernels; None of a CPU
    rows: tuple[Operation, ...]

    @property
    def clock(self) -> str:
        """The clock of ``self_ns``: cpu or device."""
        return "device" if self.view == "device" else "cpu"


@dataclass(frozen=True)
class ProfiledCase:
    """What profiling one case gave."""

    operations: tuple[Operations, ...]  # a table per view
    parameters: int  # of the model, trainable
    layers: tuple[Layer, ...]
    ceiling: Ceiling | None


@dataclass(frozen=True)
class FirstOperation:
    """What one operation took in a first call, and in a warm one of the same process."""

    name: str
    phase: str
    module: str
    first_ns: int
    warm_ns: int | None


@dataclass(frozen=True)
class FirstCall:
    """The first call of a case in a fresh process: profiled, host activities only."""

    device: str
    phase: str
    batch_size: int
    weights: str  # UNTRAINED or TRAINED
    first_ns: int
    warm_ns: int | None  # a later profiled call of the same process
    rows: tuple[FirstOperation, ...]


@dataclass(frozen=True)
class EpochResult:
    """Where a training run stood after an epoch. Losses are means over the samples, accuracies percent."""

    epoch: int  # from 1
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None


@dataclass(frozen=True)
class Point:
    """A point of a training curve: the mean over the batches since the point before."""

    samples: int  # seen so far
    loss: float | None  # None where it was not finite
    accuracy: float | None


@dataclass(frozen=True)
class Training:
    """A training run on one device and batch size."""

    device: str
    batch_size: int
    epochs: tuple[EpochResult, ...]
    curve: tuple[Point, ...]
    directory: str  # of the TensorBoard run, below the report's directory; empty where there is none


@dataclass(frozen=True)
class Findings:
    """One machine's lab."""

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
    traces: tuple[str, ...] = ()  # files below the report's directory
    notes: tuple[str, ...] = ()  # what could not be had, and why

    def to_json(self) -> str:
        """Return what ``lab.json`` holds."""
        return dump({"schema": SCHEMA, **asdict(self)})

    @classmethod
    def from_file(cls, path: Path) -> Findings:
        """Read ``lab.json``.

        Raises:
            RecordError: it is missing or damaged, or of a schema that this version does not know; names the file and the field.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RecordError(f"{path}: cannot be read ({error.strerror}); run mnistbench lab -o {path.parent} first") from None
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}: is not JSON ({error}); run mnistbench lab -o {path.parent} again") from None
        try:
            _check_schema(Reader(data)["schema"])
            for name in ("batch_sizes", "devices"):
                _check_any(Reader(data)["settings"][name])
            return read(cls, Reader(data))
        except RecordError as error:
            raise RecordError(f"{path}: {error}; run mnistbench lab -o {path.parent} again") from None


# ---- JSON ------------------------------------------------------------------------------------------------------------


def dump(data: object) -> str:
    """Return JSON that a person can read and that has no NaN."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read(cls: type[_T], reader: Reader) -> _T:
    """Read a frozen dataclass from the JSON of its ``asdict``, every field by its type.

    Raises:
        RecordError: a field is missing or of another type.
    """
    hints = typing.get_type_hints(cls)
    values = {
        field.name: _value(hints[field.name], reader[field.name], field.name)
        for field in dataclasses.fields(typing.cast("Any", cls))
    }
    return cls(**values)


def _check_schema(schema: Reader) -> None:
    if schema.whole() != SCHEMA:
        raise schema.wrong(f"{SCHEMA}, which this mnistbench reads")


def _check_any(listed: Reader) -> None:
    if not listed.items():
        raise listed.wrong("at least one")


def _value(hint: Any, reader: Reader, name: str) -> Any:
    if isinstance(hint, types.UnionType):  # only X | None occurs
        return None if reader.value is None else _value(typing.get_args(hint)[0], reader, name)
    if typing.get_origin(hint) is tuple:
        return tuple(_value(typing.get_args(hint)[0], item, name) for item in reader.items())
    if typing.get_origin(hint) is Mapping:
        return {key: item.text() for key, item in reader.mapping().items()}
    if dataclasses.is_dataclass(hint):
        return read(typing.cast("type", hint), reader)
    if hint is int:
        return _whole(reader, name)
    return {str: reader.text, float: reader.number, bool: reader.flag}[hint]()


def _whole(reader: Reader, name: str) -> int:
    if name.endswith("_ns"):
        return reader.nanoseconds()
    if name in ("batch_size", "batch_sizes", "threads", "samples", "whole_set") and reader.whole() < 1:
        raise reader.wrong("at least 1")
    return reader.whole()
