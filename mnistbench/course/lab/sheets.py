"""Build the CSV tables of a report from the findings, and the numbers that the report cites from them.

A number in a sentence is a :class:`Quantity`: the sum of some cells, or such a sum divided by another. It refers to its
cells, so that each number of a report can be computed again from the CSV files.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mnistbench.core.units import listed
from mnistbench.course.lab.findings import Findings, Operations, Study

Cell = str | int | float | None

#: What a number is, which decides how it is written: a time in nanoseconds or in seconds, bytes, FLOPs, their rates per
#: second, a count, a label that is a number, a ratio ("4.2 times"), a share of 1, a percentage, or a loss.
KINDS = (
    "time", "seconds", "bytes", "flops", "bytes_per_s", "flops_per_s", "count", "label", "ratio", "share", "percentage", "loss",
)  # fmt: skip

#: Ending of a column's name -> kind of its numbers; the first match counts.
_KIND_OF_COLUMN = (
    ("batch_size", "label"),
    ("epoch", "label"),
    ("flops_per_s", "flops_per_s"),
    ("bytes_per_s", "bytes_per_s"),
    ("_ns", "time"),
    ("seconds", "seconds"),
    ("ns_per_multiply_add", "time"),
    ("ns_per_multiply_add_in_l1", "time"),
    ("bytes", "bytes"),
    ("flops", "flops"),
    ("accuracy", "percentage"),
    ("loss", "loss"),
    ("times", "ratio"),
    ("ratio", "ratio"),
    ("of_ceiling", "share"),
    ("share", "share"),
)


@dataclass(frozen=True)
class Cells:
    """Cells of one column of one file, in the rows where other columns have one of the given values."""

    file: str  # below the report's directory
    column: str
    where: tuple[tuple[str, tuple[Cell, ...]], ...]

    def __str__(self) -> str:
        """Return the cells as a readable condition: ``self_ns where operation = aten::addmm``."""
        conditions = " and ".join(f"{column} = {' or '.join(map(str, values))}" for column, values in self.where)
        return f"{self.column} where {conditions}" if conditions else self.column


@dataclass(frozen=True)
class Quantity:
    """A cited number: the sum of the cells ``over``, divided by the sum of the cells ``under`` if there are any.

    An amount divided by a time is a rate per second.
    """

    value: float
    kind: str  # one of KINDS
    over: Cells
    under: Cells | None = None

    def __truediv__(self, other: Quantity) -> Quantity | None:
        """Return the ratio of two sums; None if the second is 0."""
        assert self.under is None
        assert other.under is None
        return Quantity(self.value / other.value, "ratio", self.over, other.over) if other.value else None

    def share_of(self, whole: Quantity) -> Quantity | None:
        """Return the share of the whole; None if the whole is 0."""
        ratio = self / whole
        return replace(ratio, kind="share") if ratio else None


def ratio(over: Quantity | None, under: Quantity | None) -> Quantity | None:
    """Return the ratio; None if a number is missing or the second is 0."""
    return over / under if over and under else None


def rate(amount: Quantity | None, time: Quantity | None) -> Quantity | None:
    """Return FLOPs or bytes per second; None if a number is missing or the time is 0."""
    per_ns = ratio(amount, time)
    return replace(per_ns, value=per_ns.value * 1e9, kind=f"{amount.kind}_per_s") if amount and per_ns else None


def share(part: Quantity | None, whole: Quantity | None) -> Quantity | None:
    """Return the share; None if a number is missing or the whole is 0."""
    return part.share_of(whole) if part and whole else None


def kind_of(column: str) -> str:
    """Return the kind of a column's numbers, one of KINDS."""
    return next((kind for ending, kind in _KIND_OF_COLUMN if column.endswith(ending)), "count")


@dataclass(frozen=True)
class Sheet:
    """A table of raw numbers. A missing cell is None, and empty in the file."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        """Return the file's text."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return stream.getvalue()

    def total(self, column: str, **where: Cell | Collection[Cell]) -> Quantity | None:
        """Return the sum of a column over the rows where other columns have one of the values; None if there is no number."""
        conditions = tuple(
            (name, tuple(value) if isinstance(value, Collection) and not isinstance(value, str) else (value,))
            for name, value in where.items()
        )
        numbers = [row[self.columns.index(column)] for row in self._matching(conditions)]
        present = [number for number in numbers if isinstance(number, int | float)]
        if not present:
            return None
        return Quantity(sum(present), kind_of(column), Cells(self.file, column, conditions))

    def values(self, column: str, **where: Cell) -> list[Cell]:
        """Return the cells of a column, in row order, in the rows where other columns have the values."""
        conditions = tuple((name, (value,)) for name, value in where.items())
        return [row[self.columns.index(column)] for row in self._matching(conditions)]

    def _matching(self, conditions: Iterable[tuple[str, tuple[Cell, ...]]]) -> list[tuple[Cell, ...]]:
        tests = [(self.columns.index(name), values) for name, values in conditions]
        return [row for row in self.rows if all(row[position] in values for position, values in tests)]


@dataclass(frozen=True)
class Sheets:
    """All tables of one machine."""

    environment: Sheet
    layers: Sheet
    ceilings: Sheet
    calls: Sheet
    epochs: Sheet
    profiler: Sheet
    first_calls: Sheet
    training: Sheet
    curves: Sheet
    operations: dict[tuple[str, str, str, int], Sheet]  # (phase, device, view, batch size)
    first_operations: dict[tuple[str, str, int, str], Sheet]  # (phase, device, batch size, weights)
    studies: dict[str, Sheet]  # by name

    def all(self) -> list[Sheet]:
        """Return every table, in the order of the report."""
        return [
            self.environment, self.layers, self.ceilings, self.training, self.curves, *self.operations.values(),
            self.calls, self.epochs, self.first_calls, *self.first_operations.values(), self.profiler,
            *self.studies.values(),
        ]  # fmt: skip


def sheets_of(findings: Findings) -> Sheets:
    """Return the tables of one machine's findings."""
    return Sheets(
        environment=Sheet("tables/environment.csv", ("field", "value"), tuple(environment_fields(findings).items())),
        layers=Sheet(
            "tables/layers.csv",
            ("module", "kind", "output_shape", "parameters", "flops", "output_bytes"),
            tuple(
                (layer.name, layer.kind, shape(layer.output_shape), layer.parameters, layer.flops, layer.output_bytes)
                for layer in findings.model.layers
            ),
        ),
        ceilings=Sheet(
            "tables/ceilings.csv",
            ("device", "flops_per_s", "bytes_per_s"),
            tuple((ceiling.device, ceiling.flops_per_s, ceiling.bytes_per_s) for ceiling in findings.ceilings),
        ),
        calls=_calls(findings),
        epochs=_epochs(findings),
        profiler=_profiler(findings),
        first_calls=_first_calls(findings),
        training=Sheet(
            "tables/training.csv",
            ("device", "batch_size", "epoch", "updates", "train_loss", "train_accuracy", "test_loss", "test_accuracy"),
            tuple(
                (run.device, run.batch_size, epoch.epoch, epoch.epoch * math.ceil(findings.train_samples / run.batch_size),
                 epoch.train_loss, epoch.train_accuracy, epoch.test_loss, epoch.test_accuracy)
                for run in findings.trainings
                for epoch in run.epochs
            ),
        ),
        curves=Sheet(
            "tables/training-curves.csv",
            ("device", "batch_size", "samples", "loss", "accuracy"),
            tuple(
                (run.device, run.batch_size, point.samples, point.loss, point.accuracy)
                for run in findings.trainings
                for point in run.curve
            ),
        ),
        operations={
            (table.phase, table.device, table.view, table.batch_size): _operations(table) for table in findings.operations
        },
        first_operations={
            (call.phase, call.device, call.batch_size, call.weights): Sheet(
                f"tables/first-call-{call.phase}-{in_a_name(call.device)}-b{call.batch_size}-{call.weights}.csv",
                ("operation", "phase", "module", "first_self_ns", "warm_self_ns", "extra_ns"),
                tuple(
                    (row.name, row.phase, row.module, row.first_ns, row.warm_ns, _less(row.first_ns, row.warm_ns))
                    for row in sorted(call.rows, key=lambda row: (-row.first_ns, row.name))
                ),
            )
            for call in findings.first_calls
        },
        studies={study.name: _study(study) for study in findings.studies},
    )  # fmt: skip


def environment_fields(findings: Findings) -> dict[str, str]:
    """Return machine, software and settings as field -> text, with separate fields for each accelerator."""
    environment = findings.environment
    fields = {
        "cpu_model": environment.cpu_model,
        "cpu_count": str(environment.cpu_count),
        "threads": str(environment.threads),
        "accelerator_count": str(len(environment.devices)),
    }
    for number, device in enumerate(environment.devices):
        for name, value in device.items():
            fields[f"accelerator{number or ''}_{name}"] = value
    return fields | {
        "platform": environment.platform,
        "python": environment.python,
        "torch": environment.torch,
        "torchvision": environment.torchvision,
        "blas": environment.blas,
        "allocator": listed(dict(environment.allocator)),
        "mnistbench": environment.mnistbench,
        "dataset": findings.settings.dataset,
        "train_samples": str(findings.train_samples),
        "test_samples": str(findings.test_samples),
        "model": findings.model.name,
        "parameters": str(findings.model.parameters),
        "batch_sizes": ", ".join(map(str, findings.settings.batch_sizes)),
        "devices": ", ".join(findings.settings.devices),
        "epochs": str(findings.settings.epochs),
        "seed": str(findings.settings.seed),
    }


def shape(sizes: Sequence[int]) -> str:
    """Return a shape as text: ``64 x 12 x 12``."""
    return " x ".join(map(str, sizes))


def in_a_name(device: str) -> str:
    """Return a device as a part of a file name."""
    return device.replace(":", "")


def _calls(findings: Findings) -> Sheet:
    return Sheet(
        "tables/calls.csv",
        ("device", "threads", "phase", "batch_size", "median_ns", "iqr_ns", "calls", "sample_ns"),
        tuple(
            (time.device, time.threads, time.phase, time.batch_size, time.median_ns, time.iqr_ns, time.calls,
             round(time.median_ns / time.batch_size))
            for time in findings.call_times
        ),
    )  # fmt: skip


def _epochs(findings: Findings) -> Sheet:
    return Sheet(
        "tables/epochs.csv",
        ("device", "threads", "phase", "batch_size", "epoch_ns", "epoch_iqr_ns", "timed_median_ns", "timed_iqr_ns",
         "timed_calls", "timed_samples", "whole_set", "timed_share"),
        tuple(
            (time.device, time.threads, time.phase, time.batch_size, time.epoch_ns, time.epoch_iqr_ns, time.median_ns,
             time.iqr_ns, time.calls, time.samples, time.whole_set, time.samples / time.whole_set)
            for time in findings.epoch_times
        ),
    )  # fmt: skip


def _operations(table: Operations) -> Sheet:
    """Return an operation table with shares of the summed self time, and rates of FLOPs and bytes over self time.

    The host of an accelerator only launches kernels, so its tables have no rates.
    """
    whole = sum(row.self_ns for row in table.rows)
    works = table.view == "device" or table.device == "cpu"
    return Sheet(
        f"tables/operations-{table.phase}-{in_a_name(table.device)}-{table.view}-b{table.batch_size}.csv",
        ("operation", "phase", "module", "calls", "self_ns", "iqr_ns", "total_ns", "share", "memory_bytes", "flops",
         "moved_bytes", "flops_per_s", "bytes_per_s"),
        tuple(
            (row.name, row.phase, row.module, row.calls, row.self_ns, row.spread_ns, row.total_ns,
             round(row.self_ns / whole, 6) if whole else None, row.memory_bytes, row.flops, row.moved_bytes,
             _rate(row.flops, row.self_ns) if works else None, _rate(row.moved_bytes, row.self_ns) if works else None)
            for row in sorted(table.rows, key=lambda row: (-row.self_ns, row.name, row.phase, row.module))
        ),
    )  # fmt: skip


def _profiler(findings: Findings) -> Sheet:
    """Return profiled and untraced times per iteration; operation calls are per iteration, too."""
    untraced = {(time.device, time.threads, time.phase, time.batch_size): time.median_ns for time in findings.call_times}
    rows = []
    for table in findings.operations:
        plain = untraced.get((table.device, table.threads, table.phase, table.batch_size))
        calls = sum(row.calls for row in table.rows)
        to_calls = None if table.profiler_ns is None else round(calls * table.profiler_ns)
        rows.append(
            (table.phase, table.device, table.view, table.batch_size, table.iterations, table.iteration_ns, plain, calls,
             table.profiler_ns, _less(table.iteration_ns, plain), to_calls, table.busy_ns,
             table.iteration_ns / plain if plain else None)
        )  # fmt: skip
    columns = ("phase", "device", "view", "batch_size", "iterations", "profiled_ns", "untraced_ns", "operation_calls",
               "added_per_call_ns", "added_ns", "added_to_calls_ns", "busy_ns", "times")  # fmt: skip
    return Sheet("tables/profiler.csv", columns, tuple(rows))


def _first_calls(findings: Findings) -> Sheet:
    return Sheet(
        "tables/first-calls.csv",
        ("device", "phase", "batch_size", "weights", "first_ns", "warm_ns", "extra_ns", "first_sample_ns", "times"),
        tuple(
            (call.device, call.phase, call.batch_size, call.weights, call.first_ns, call.warm_ns,
             _less(call.first_ns, call.warm_ns), round(call.first_ns / call.batch_size),
             call.first_ns / call.warm_ns if call.warm_ns else None)
            for call in findings.first_calls
        ),
    )  # fmt: skip


def _study(study: Study) -> Sheet:
    rows = tuple(tuple(map(_number, row)) for row in study.rows)
    return Sheet(f"tables/study-{study.name}.csv", study.columns, rows)


def _number(text: str) -> Cell:
    """Return a cell of a CSV file as a number if it is one, and None if it is empty."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text or None


def _less(first: int, warm: int | None) -> int | None:
    return None if warm is None else first - warm


def _rate(amount: int | None, nanoseconds: int) -> int | None:
    return None if amount is None or not nanoseconds else round(amount * 1e9 / nanoseconds)
