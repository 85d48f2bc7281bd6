"""The measurements of a lab, one file per machine: ``lab.json``.

The other files of a lab are read and written here, too.

Times are integer nanoseconds, sizes are bytes, rates are per second. A value that could not be
measured is None, never 0.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from mnistbench.core.errors import RecordError
from mnistbench.core.files import replace_file
from mnistbench.core.options import option, whole
from mnistbench.core.reading import (
    FieldError,
    Nanoseconds,
    Positive,
    member,
    parsed,
    place,
    read,
    wrong,
)
from mnistbench.core.record import Environment, OpTable, median_ns, quartiles_ns
from mnistbench.course.lab.predict.predictions import PREDICTIONS, Predictions, TextFile, text_of
from mnistbench.events.work.roofline import Ceilings
from mnistbench.suite import case_options
from mnistbench.suite.profile.result import ColdCall, Layer, Profiled
from mnistbench.suite.train.result import EpochResult, Point

#: Version of the files of a lab: ``lab.json``, those of its steps, and the list of the labs that a
#: report shows.
#:
#: 1: the first.
SCHEMA = 1

#: File of a lab: findings.
FILE = "lab.json"
#: File of a lab: a score.
SCORE = "score.json"
#: File of a lab: a self-test of the machine.
QUIET = "quiet.json"
#: File of a lab: what a student hands in.
SUBMISSION = "submission.json"
#: Files that may be there before a lab begins.
BEFORE = {PREDICTIONS, SCORE, QUIET, SUBMISSION}

#: The default directory of a lab.
DIRECTORY = "mnistbench-lab"

#: An interquartile range of at least this share of the median is unusually wide: on quiet machines
#: it is 2 to 15 %.
NOISY_IQR = 0.5
#: A machine on which other programs had the core for at least this share of the time is disturbed.
NOISY_QUEUE = 0.1

#: Weights of the model in the first iteration of a process: as initialised.
UNTRAINED = "untrained"
#: Weights of the model in the first iteration of a process: after training.
TRAINED = "trained"


@dataclass(frozen=True)
class LabSettings:
    """What a lab measures. Labs with different settings are different labs."""

    dataset: str = case_options.dataset()
    # Ascending.
    batch_sizes: Annotated[tuple[Positive, ...], Meta(min_length=1)] = case_options.batch_sizes()
    # Of a lab: names in torch, the CPU first.
    devices: Annotated[tuple[str, ...], Meta(min_length=1)] = case_options.devices()
    epochs: int = option(
        "--epochs", whole(1), None, "epochs of training (default: 3 on digits, 1 on mnist)", "N"
    )
    model: str = "convnet"
    seed: int = 1

    @property
    def accelerator(self) -> str:
        """The first device that is not the CPU; empty if there is none."""
        return next((device for device in self.devices if device != "cpu"), "")


@dataclass(frozen=True)
class DevicePlace:
    """A device and its number of threads."""

    device: str
    threads: int


@dataclass(frozen=True)
class WarmTime:
    """Untraced wall time of one warm iteration.

    It is the time of one batch (forward, step), or of one pass over a set (train, eval).
    """

    device: str
    threads: Positive
    phase: str
    batch_size: Positive
    times_ns: Annotated[tuple[Nanoseconds, ...], Meta(min_length=1)]  # of each timed iteration
    samples: Positive  # in one timed iteration; a timed pass may cover a part of the set
    whole_set: Positive  # samples of the whole set, or of the batch
    # Part of the time in which another program had the core of the main thread; 0 if not known.
    queued_share: Annotated[float, Meta(ge=0, le=1)] = 0.0

    @property
    def place(self) -> DevicePlace:
        return DevicePlace(self.device, self.threads)

    @property
    def median_ns(self) -> int:
        return median_ns(self.times_ns)

    @property
    def iqr_ns(self) -> int | None:
        """Interquartile range of the times; None if a single iteration was timed."""
        first, third = quartiles_ns(self.times_ns)
        return third - first if len(self.times_ns) > 1 else None

    @property
    def disturbance(self) -> float:
        """How much the times show that other programs ran: 1 or more if they did."""
        spread = (self.iqr_ns or 0) / self.median_ns if self.median_ns else 0.0
        return max(spread / NOISY_IQR, self.queued_share / NOISY_QUEUE)

    @property
    def whole_ns(self) -> int:
        """Time of the whole set, extrapolated by the number of samples if a part was timed."""
        return round(self.median_ns * self.whole_set / self.samples)

    @property
    def whole_iqr_ns(self) -> int | None:
        """Interquartile range of ``whole_ns``."""
        return None if self.iqr_ns is None else round(self.iqr_ns * self.whole_set / self.samples)


@dataclass(frozen=True)
class FirstIteration:
    """The first iteration of a case in a new process, and later ones.

    Only activities of the host were profiled.
    """

    device: str
    phase: str
    batch_size: Positive
    cold: ColdCall
    warm: ColdCall | None  # None: the process ended after the first one

    @property
    def weights(self) -> str:
        """UNTRAINED or TRAINED."""
        return TRAINED if self.cold.trained else UNTRAINED

    @property
    def warm_ns(self) -> int | None:
        """Wall time of a later iteration."""
        return self.warm.ns if self.warm else None


@dataclass(frozen=True)
class Training:
    """A training run on one device and batch size."""

    device: str
    batch_size: Positive
    epochs: tuple[EpochResult, ...]
    curve: tuple[Point, ...]
    directory: str  # of the TensorBoard run, relative to the report; empty if there is none


@dataclass(frozen=True)
class StudyTable:
    """The table of an operator study, as ``mnistbench study NAME --format csv`` prints it."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


#: The fields of :class:`Findings` that the steps of a lab measure, each a tuple of items.
MeasuredField = Literal[
    "cases", "iteration_times", "epoch_times", "first_iterations", "trainings", "studies"
]


@dataclass(frozen=True)
class Findings:
    """The lab of one machine."""

    settings: LabSettings
    environment: Environment
    train_samples: Positive
    test_samples: Positive
    cases: Annotated[tuple[Profiled, ...], Meta(min_length=1)]
    iteration_times: tuple[WarmTime, ...]  # of forward and step
    epoch_times: tuple[WarmTime, ...]  # of train and eval
    first_iterations: tuple[FirstIteration, ...]
    trainings: tuple[Training, ...]
    studies: tuple[StudyTable, ...]  # of the appendix
    traces: tuple[str, ...] = ()  # files, relative to the report
    notes: tuple[str, ...] = ()  # what could not be measured, and why
    predictions: Predictions | None = None  # made before the lab began

    def __post_init__(self) -> None:
        # Its default depends on the dataset: the option alone has none.
        if self.settings.epochs is None:
            raise FieldError("is missing", "settings.epochs")

    @property
    def disturbed(self) -> WarmTime | None:
        """The times that show best that other programs ran; None if the machine was quiet."""
        worst = max(self.iteration_times, key=lambda time: time.disturbance, default=None)
        return worst if worst and worst.disturbance >= 1 else None

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.cases[0].layers

    @property
    def tables(self) -> list[tuple[Profiled, OpTable]]:
        """The operation tables of all cases."""
        return [(case, table) for case in self.cases for table in case.tables]

    @property
    def ceilings(self) -> dict[str, Ceilings]:
        """The ceilings of each device: the medians of those measured with its cases.

        All cases of one process share one measurement; a lab that was resumed has several.
        """
        measured: dict[str, list[Ceilings]] = {}
        for case in self.cases:
            if case.ceilings:
                measured.setdefault(case.params.device, []).append(case.ceilings)
        return {
            device: Ceilings(
                statistics.median(ceilings.flops_per_s for ceilings in repetitions),
                statistics.median(ceilings.bytes_per_s for ceilings in repetitions),
                repetitions[0].precision,
            )
            for device, repetitions in measured.items()
        }

    @classmethod
    def from_directory(cls, directory: Path) -> Findings:
        """Read ``lab.json``.

        Raises:
            RecordError: the file is missing or damaged, or has an unknown schema; names the file
                and the field.
        """
        path = directory / FILE
        when = "again" if path.exists() else "first"
        try:
            return read(read_file(path), cls)
        except RecordError as error:
            raise RecordError(
                f"{path}: {error}; run mnistbench lab -o {directory} {when}"
            ) from None


def write_file(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of a lab.

    Raises:
        OSError: it cannot be written; a previous file is unchanged.
    """
    data = {"schema": SCHEMA, **content}
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False, default=stored) + "\n"
    replace_file(path, text.encode())


def read_file(path: TextFile) -> dict[str, Any]:
    """Return the content of a file of a lab: parsed JSON, and operation tables.

    Raises:
        RecordError: it cannot be read, is damaged, or has an unknown schema; names the field.
    """
    try:
        text = text_of(path, "utf-8")
    except ValueError as error:
        raise FieldError(f"is not JSON ({error})") from None
    content: dict[str, Any] = read(parsed(text, object_pairs_hook=_once), dict[str, Any])
    if (schema := member(content, "schema", int)) != SCHEMA:
        raise wrong(schema, f"{SCHEMA}, which this mnistbench reads", "schema")
    try:
        return {name: _with_tables(value, name) for name, value in content.items()}
    except RecursionError:
        raise FieldError("is nested too deeply") from None


def _with_tables(value: Any, path: str) -> Any:
    """Return a value of a file with the operation tables in it, which are saved in columns."""
    if isinstance(value, list):
        with place(path):
            return [_with_tables(part, f"[{position}]") for position, part in enumerate(value)]
    if isinstance(value, dict):
        with place(path):
            if "temperature" in value and "view" in value:
                return OpTable.from_json(value)
            return {name: _with_tables(part, name) for name, part in value.items()}
    return value


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(fields_by_name := dict(members)) < len(members):
        raise ValueError("a name occurs twice in an object")
    return fields_by_name


def stored(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for JSON.

    Operation tables and cases have the form that their classes read.
    """
    if isinstance(record, OpTable):
        return dict(record.to_json())
    if isinstance(record, Profiled):
        return record.to_json()
    return {field.name: getattr(record, field.name) for field in fields(record)}
