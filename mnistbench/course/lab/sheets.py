"""The CSV tables of a report, and the numbers that the report cites from them.

A sheet is declared once by its columns: those with a key are in the CSV file, those with a heading,
which is a key of the wording's section ``column``, are in the report. A number in a sentence is a
:class:`CitedNumber`: the sum of some cells, or such a sum divided by another. It refers to its
cells, so that each number of a report can be computed again from the CSV files.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any

from mnistbench.core import units
from mnistbench.core.operation import NOT_OPERATIONS, OpKey
from mnistbench.core.record import OpTable, median_ns
from mnistbench.course.lab.lab_file import Findings, FirstIteration, StudyTable, WarmTime
from mnistbench.showing.side_by_side import OperationColumn
from mnistbench.showing.table import Column, Table
from mnistbench.showing.text import Cited, Code
from mnistbench.suite.profile.result import Profiled

Cell = str | int | float | None

#: What a number is -> how it is written: a time in nanoseconds or in seconds, bytes, FLOPs, their
#: rates per second, a count, a label that is a number, a ratio ("4.2 times"), a share of 1, a
#: percentage, or a loss.
KINDS: Mapping[str, Callable[[Any], str]] = {
    "time": units.duration,
    "seconds": lambda seconds: units.duration(1e9 * seconds),
    "bytes": units.size,
    "flops": units.flops,
    "flops_per_s": units.flops_per_s,
    "bytes_per_s": units.bytes_per_s,
    "count": units.count,
    "label": str,
    "ratio": units.factor,
    "share": units.percent,
    "percentage": lambda value: units.percent(value / 100),
    "loss": "{:.4f}".format,
}


class Word(str):
    """A word that is translated: a key of a section of the wording."""

    __slots__ = ()
    section = "noun"


class Label(Word):
    """A word on its own, in a table or a figure."""

    __slots__ = ()
    section = "label"


@dataclass(frozen=True)
class Cells:
    """Cells of one column of one file, in rows that other columns select.

    Those have one of the given values.
    """

    file: str  # below the report's directory
    column: str
    where: tuple[tuple[str, tuple[Cell, ...]], ...]

    def __str__(self) -> str:
        """Return the cells as a readable condition: ``self_ns where operation = aten::addmm``."""
        conditions = " and ".join(
            f"{column} = {' or '.join(map(str, values))}" for column, values in self.where
        )
        return f"{self.column} where {conditions}" if conditions else self.column


@dataclass(frozen=True)
class CitedNumber(Cited):
    """The sum of the cells ``over``, divided by the sum of the cells ``under`` if there are any.

    An amount divided by a time is a rate per second.
    """

    value: float
    kind: str  # one of KINDS
    over: Cells
    under: Cells | None = None

    def __str__(self) -> str:
        return KINDS[self.kind](self.value)


def ratio(
    over: CitedNumber | None, under: CitedNumber | None, *, kind: str = "ratio"
) -> CitedNumber | None:
    """Return the ratio of two sums; None if one is missing or the second is 0."""
    if not (over and under and under.value):
        return None
    assert over.under is None and under.under is None, "sums"  # noqa: PT018
    return CitedNumber(over.value / under.value, kind, over.over, under.over)


def rate(amount: CitedNumber | None, time: CitedNumber | None) -> CitedNumber | None:
    """Return FLOPs or bytes per second; None if a number is missing or the time is 0."""
    per_ns = ratio(amount, time)
    return (
        replace(per_ns, value=per_ns.value * 1e9, kind=f"{amount.kind}_per_s")
        if amount and per_ns
        else None
    )


def share(part: CitedNumber | None, whole: CitedNumber | None) -> CitedNumber | None:
    """Return the share; None if a number is missing or the whole is 0."""
    return ratio(part, whole, kind="share")


@dataclass(frozen=True)
class NumberColumn(Column[Any]):
    """A column of numbers of one kind, which a report may sum."""

    kind: str = field(kw_only=True)  # one of KINDS


class Sheet(Table):
    """A table of raw numbers; its title is the file.

    A missing cell is None, and empty in the file.
    """

    @property
    def file(self) -> str:
        """The file, below the report's directory."""
        return self.title

    @functools.cached_property
    def written(self) -> list[dict[str, Cell]]:
        """The rows of the file: column -> cell."""
        return self.records()

    def total(self, column: str, **where: Cell | Collection[Cell]) -> CitedNumber | None:
        """Return the sum of a column over the rows where other columns have one of the values.

        None if there is no number.
        """
        columns = {
            column_of_file.key: column_of_file
            for column_of_file in self.columns
            if column_of_file.key
        }
        assert where.keys() <= columns.keys(), f"{self.file}: {', '.join(where)}"
        conditions = tuple(  # in the order of the columns, so that the same number is cited once
            (
                name,
                tuple(value)
                if isinstance(value, Collection) and not isinstance(value, str)
                else (value,),
            )
            for name, value in sorted(where.items(), key=lambda item: list(columns).index(item[0]))
        )
        wanted = [(name, frozenset(values)) for name, values in conditions]
        matching = [
            row[column]
            for row in self.written
            if all(row[name] in values for name, values in wanted)
        ]
        numbers = [number for number in matching if isinstance(number, int | float)]
        if not numbers:
            return None
        summed = columns[column]
        assert isinstance(summed, NumberColumn), f"{self.file}: {column}"
        return CitedNumber(sum(numbers), summed.kind, Cells(self.file, column, conditions))

    def values(self, column: str, **where: Cell) -> list[Cell]:
        """Return the cells of a column, in row order, in the rows with these values.

        The values are those of other columns.
        """
        return [row[column] for row in self.written if where.items() <= row.items()]


@dataclass(frozen=True)
class Sheets:
    """All tables of one machine, in the order of the report."""

    predictions: Sheet  # without rows and columns until predict.questions fills it
    environment: Sheet
    layers: Sheet
    ceilings: Sheet
    training: Sheet
    curves: Sheet
    operations: dict[tuple[str, str, str, int], Sheet]  # (phase, device, view, batch size)
    iterations: Sheet
    epochs: Sheet
    first_iterations: Sheet
    first_operations: dict[tuple[str, str, int, str], Sheet]  # (phase, device, batch size, weights)
    profiler: Sheet
    studies: dict[str, Sheet]  # by name

    def all(self) -> list[Sheet]:
        """Return every table, in the order of the fields."""
        return [
            sheet
            for tables in vars(self).values()
            for sheet in (tables.values() if isinstance(tables, dict) else [tables])
        ]


def sheets_of(findings: Findings) -> Sheets:
    """Return the tables of one machine's findings."""
    points = [
        (run, point, at)
        for run in findings.trainings
        for point, at in zip(run.curve, samples_seen(run.curve), strict=True)
    ]
    return Sheets(
        environment=Sheet(
            "tables/environment.csv", ENVIRONMENT, tuple(environment_fields(findings).items())
        ),
        layers=Sheet("tables/layers.csv", LAYERS, findings.layers),
        ceilings=Sheet("tables/ceilings.csv", CEILINGS, tuple(findings.ceilings.items())),
        iterations=Sheet("tables/iterations.csv", ITERATIONS, findings.iteration_times),
        epochs=Sheet("tables/epochs.csv", EPOCHS, findings.epoch_times),
        profiler=_profiler(findings),
        first_iterations=Sheet(
            "tables/first-iterations.csv", FIRST_ITERATIONS, findings.first_iterations
        ),
        training=Sheet(
            "tables/training.csv",
            TRAINING,
            [(run, epoch) for run in findings.trainings for epoch in run.epochs],
        ),
        curves=Sheet("tables/training-curves.csv", CURVES, points),
        operations={
            (
                case.params.phase,
                case.params.device,
                table.view,
                case.params.batch_size,
            ): _operations(case, table)
            for case, table in findings.tables
        },
        first_operations={
            (
                iteration.phase,
                iteration.device,
                iteration.batch_size,
                iteration.weights,
            ): _first_operations(iteration)
            for iteration in findings.first_iterations
        },
        studies={study.name: _study(study) for study in findings.studies},
        predictions=Sheet("tables/predictions.csv", (), ()),
    )


def environment_fields(findings: Findings) -> dict[str, str]:
    """Return machine, software and settings as field -> text.

    Each accelerator has separate fields.
    """
    environment = findings.environment
    settings = findings.settings
    fields = {
        name: str(getattr(environment, name)) for name in ("cpu_model", "cpu_count", "threads")
    }
    fields["accelerator_count"] = str(len(environment.devices))
    for number, device in enumerate(environment.devices):
        fields |= {f"accelerator{number or ''}_{name}": value for name, value in device.items()}
    fields |= {
        name: getattr(environment, name)
        for name in ("platform", "python", "torch", "torchvision", "blas")
    }
    if not any("cuda" in device for device in environment.devices):
        build = re.search(r"\+cu(\d+)(\d)", environment.torch)
        fields["cuda"] = f"none (PyTorch is built for {build[1]}.{build[2]})" if build else "none"
    return fields | {
        "allocator": units.listed(dict(environment.allocator)),
        "mnistbench": environment.mnistbench,
        "dataset": settings.dataset,
        "train_samples": str(findings.train_samples),
        "test_samples": str(findings.test_samples),
        "model": settings.model,
        "parameters": str(findings.cases[0].parameter_count),
        "batch_sizes": ", ".join(map(str, settings.batch_sizes)),
        "devices": ", ".join(settings.devices),
        "epochs": str(settings.epochs),
        "seed": str(settings.seed),
    }


def shape(sizes: Sequence[int]) -> str:
    """Return a shape as text: ``64 x 12 x 12``."""
    return " x ".join(map(str, sizes))


def in_a_name(device: str) -> str:
    """Return a device as a part of a file name."""
    return device.replace(":", "")


def samples_seen(curve: Iterable[Any]) -> list[int]:
    """Return the number of training samples up to each point of a curve."""
    return list(itertools.accumulate(point.samples for point in curve))


def number_column(
    kind: str, key: str, value: Callable[[Any], float | None], heading: str | None = None
) -> NumberColumn:
    """Return a column of numbers of one of KINDS; without a heading in the file only."""
    return NumberColumn(heading, value, KINDS[kind], key, kind=kind)


def _word(key: str, value: Callable[[Any], str | None], heading: str | None = None) -> Column[Any]:
    return Column(heading, value, key=key)


ENVIRONMENT = (_word("field", itemgetter(0)), _word("value", itemgetter(1)))

LAYERS = (
    _word("module", lambda layer: layer.name, "module"),
    _word("kind", lambda layer: layer.kind, "kind"),
    _word("output_shape", lambda layer: shape(layer.output_shape), "output_shape"),
    number_column("count", "parameters", lambda layer: layer.parameters, "parameters"),
    number_column("flops", "flops", lambda layer: layer.flops, "flops"),
    number_column("bytes", "output_bytes", lambda layer: layer.output_bytes, "output_bytes"),
)

CEILINGS = (
    _word("device", itemgetter(0), "device"),
    number_column("flops_per_s", "flops_per_s", lambda row: row[1].flops_per_s, "flops_per_s"),
    number_column("bytes_per_s", "bytes_per_s", lambda row: row[1].bytes_per_s, "bytes_per_s"),
)

_CASE: tuple[Column[WarmTime], ...] = (
    _word("device", lambda time: time.device),
    number_column("count", "threads", lambda time: time.threads),
    Column("place", lambda time: time.place),
    _word("phase", lambda time: Label(time.phase), "measured"),
    number_column("label", "batch_size", lambda time: time.batch_size, "batch_size"),
)

ITERATIONS: tuple[Column[WarmTime], ...] = (
    *_CASE,
    number_column("time", "median_ns", lambda time: time.median_ns, "per_batch"),
    number_column("time", "iqr_ns", lambda time: time.iqr_ns, "iqr"),
    number_column(
        "time", "sample_ns", lambda time: round(time.median_ns / time.batch_size), "per_sample"
    ),
    number_column("count", "iterations", lambda time: len(time.times_ns), "timed_iterations"),
    number_column("share", "other_programs", lambda time: time.queued_share),
)

EPOCHS: tuple[Column[WarmTime], ...] = (
    *_CASE,
    number_column("time", "epoch_ns", lambda time: time.whole_ns, "per_epoch"),
    number_column("time", "epoch_iqr_ns", lambda time: time.whole_iqr_ns, "iqr"),
    number_column("share", "timed_share", lambda time: time.samples / time.whole_set, "timed"),
    number_column("count", "timed_iterations", lambda time: len(time.times_ns), "timed_iterations"),
    number_column("time", "timed_median_ns", lambda time: time.median_ns),
    number_column("time", "timed_iqr_ns", lambda time: time.iqr_ns),
    number_column("count", "timed_samples", lambda time: time.samples),
    number_column("count", "whole_set", lambda time: time.whole_set),
)

FIRST_ITERATIONS: tuple[Column[FirstIteration], ...] = (
    _word("device", lambda iteration: iteration.device, "device"),
    _word("phase", lambda iteration: Label(iteration.phase), "measured"),
    _word("weights", lambda iteration: Word(iteration.weights), "weights"),
    number_column("label", "batch_size", lambda iteration: iteration.batch_size, "batch_size"),
    number_column("time", "first_ns", lambda iteration: iteration.cold.ns, "first"),
    number_column("time", "warm_ns", lambda iteration: iteration.warm_ns, "warm"),
    number_column(
        "ratio",
        "times",
        lambda iteration: iteration.cold.ns / iteration.warm_ns if iteration.warm_ns else None,
        "times",
    ),
    number_column(
        "time", "extra_ns", lambda iteration: _less(iteration.cold.ns, iteration.warm_ns)
    ),
    number_column(
        "time", "first_sample_ns", lambda iteration: round(iteration.cold.ns / iteration.batch_size)
    ),
)

#: Of a run and an epoch.
TRAINING = (
    _word("device", lambda row: row[0].device, "device"),
    number_column("label", "batch_size", lambda row: row[0].batch_size, "batch_size"),
    number_column("label", "epoch", lambda row: row[1].number, "epoch"),
    number_column("count", "updates", lambda row: row[1].step),
    number_column("loss", "train_loss", lambda row: row[1].train_loss, "train_loss"),
    number_column(
        "percentage", "train_accuracy", lambda row: row[1].train_accuracy, "train_accuracy"
    ),
    number_column("loss", "test_loss", lambda row: row[1].test_loss, "test_loss"),
    number_column("percentage", "test_accuracy", lambda row: row[1].test_accuracy, "test_accuracy"),
)

#: Of a run, a point of its curve, and the samples up to there.
CURVES = (
    *TRAINING[:2],
    number_column("count", "samples", itemgetter(2)),
    number_column("loss", "loss", lambda row: row[1].loss),
    number_column("percentage", "accuracy", lambda row: row[1].accuracy),
)


def _operations(case: Profiled, table: OpTable) -> Sheet:
    """Return an operation table with shares of the summed self time, and rates.

    Rates are FLOPs and bytes over self time.

    The host of an accelerator only launches kernels, so its tables have no rates.
    """
    params = case.params
    clock = table.clock
    whole = table.total_ns
    works = table.view == "device" or params.device == "cpu"
    amounts = {
        row.key: (cost.flops, cost.n_bytes) if (cost := case.costs.get(row.key)) else (None, None)
        for row in table.rows
    }

    def per_s(row: Any, amount: int | None) -> int | None:
        return (
            round(amount * 1e9 / row.self_ns(clock))
            if works and amount is not None and row.self_ns(clock)
            else None
        )

    columns = (
        _word("operation", attrgetter("name")),
        _word("phase", attrgetter("phase")),
        _word("module", attrgetter("module")),
        number_column("count", "calls", lambda row: row.calls if row.is_operation else 0.0),
        number_column("time", "self_ns", lambda row: row.self_ns(clock)),
        number_column("time", "iqr_ns", lambda row: row.spread_ns(clock)),
        number_column("time", "total_ns", lambda row: median_ns(row.total_cpu_ns)),
        number_column(
            "share", "share", lambda row: round(row.self_ns(clock) / whole, 6) if whole else None
        ),
        number_column("bytes", "memory_bytes", attrgetter("memory_bytes")),
        number_column("flops", "flops", lambda row: amounts[row.key][0]),
        number_column("bytes", "moved_bytes", lambda row: amounts[row.key][1]),
        number_column("flops_per_s", "flops_per_s", lambda row: per_s(row, amounts[row.key][0])),
        number_column("bytes_per_s", "bytes_per_s", lambda row: per_s(row, amounts[row.key][1])),
    )
    rows = sorted(table.rows, key=lambda row: (-row.self_ns(clock), *row.key))
    return Sheet(
        (
            f"tables/operations-{params.phase}-{in_a_name(params.device)}-{table.view}-b"
            f"{params.batch_size}.csv"
        ),
        columns,
        rows,
    )


def _first_operations(iteration: FirstIteration) -> Sheet:
    later = (
        {row.key: row.self_ns("cpu") for row in iteration.warm.table.rows} if iteration.warm else {}
    )

    def warm(row: Any) -> int | None:
        return later.get(row.key, 0) if iteration.warm else None

    columns = (
        _word("operation", lambda row: Code(row.name), "operation"),
        _word("phase", attrgetter("phase"), "phase"),
        _word("module", attrgetter("module"), "module"),
        number_column("time", "first_self_ns", lambda row: row.self_ns("cpu"), "first"),
        number_column("time", "warm_self_ns", warm, "warm"),
        number_column(
            "time", "extra_ns", lambda row: _less(row.self_ns("cpu"), warm(row)), "extra"
        ),
    )
    device = in_a_name(iteration.device)
    case = f"{iteration.phase}-{device}-b{iteration.batch_size}-{iteration.weights}"
    rows = sorted(iteration.cold.table.rows, key=lambda row: (-row.self_ns("cpu"), row.name))
    return Sheet(f"tables/first-iteration-{case}.csv", columns, rows)


def _profiler(findings: Findings) -> Sheet:
    """Return profiled and untraced times per iteration; operation calls are per iteration, too."""
    untraced = {
        (time.device, time.threads, time.phase, time.batch_size): time.median_ns
        for time in findings.iteration_times
    }

    def plain(row: tuple[Profiled, OpTable]) -> int | None:
        params = row[0].params
        return untraced.get((params.device, params.threads, params.phase, params.batch_size))

    def profiled(row: tuple[Profiled, OpTable]) -> int:
        return median_ns(row[1].iteration_ns)

    def calls(row: tuple[Profiled, OpTable]) -> float:
        return sum(operation.calls for operation in row[1].rows if operation.is_operation)

    columns: tuple[Column[tuple[Profiled, OpTable]], ...] = (
        _word("device", lambda row: row[0].params.device, "device"),
        _word("phase", lambda row: Label(row[0].params.phase), "measured"),
        _word("view", lambda row: Word(row[1].view), "view"),
        number_column("label", "batch_size", lambda row: row[0].params.batch_size, "batch_size"),
        number_column("count", "iterations", lambda row: len(row[1].iteration_ns)),
        number_column("time", "profiled_ns", profiled, "profiled"),
        number_column("time", "untraced_ns", plain, "untraced"),
        number_column(
            "ratio",
            "times",
            lambda row: profiled(row) / ns if (ns := plain(row)) else None,
            "times",
        ),
        number_column("count", "operation_calls", calls, "operation_calls"),
        number_column(
            "time", "added_per_call_ns", lambda row: row[1].profiler_ns or None, "added_per_call"
        ),
        number_column("time", "added_ns", lambda row: _less(profiled(row), plain(row))),
        number_column(
            "time", "added_to_calls_ns", lambda row: round(calls(row) * row[1].profiler_ns) or None
        ),
        number_column("time", "busy_ns", lambda row: median_ns(row[1].busy_ns) or None),
    )
    return Sheet("tables/profiler.csv", columns, findings.tables)


def _less(first: int, warm: int | None) -> int | None:
    return None if warm is None else first - warm


#: Columns of the studies' tables that the report shows: one of KINDS, or a class of words -> names
#: in the study's CSV, the keys of the wording.
STUDY_COLUMNS: Mapping[Any, tuple[str, ...]] = {
    "seconds": ("seconds",),
    "flops": ("flops",),
    "label": ("batch_size",),
    "share": ("of_ceiling",),
    "ratio": ("ratio",),
    "time": ("ns_per_multiply_add", "ns_per_multiply_add_in_l1", "eager_ns", "compiled_ns"),
    "count": ("l1_misses", "l2_misses", "eager_operations", "generated_kernels", "library_kernels"),
    "bytes": (
        "n_bytes",
        "weight_bytes",
        "gradient_bytes",
        "optimizer_state_bytes",
        "saved_for_backward_bytes",
        "predicted_peak_bytes",
        "measured_peak_bytes",
    ),
    str: ("convolution", "algorithm", "problem", "model", "program"),
    Code: ("way", "order"),
    Label: ("phase", "part"),
}


def _study_column(key: str) -> Column[Any]:
    """Return a column of a study's CSV, with a heading if the report shows it."""
    kind: Any = next((kind for kind, names in STUDY_COLUMNS.items() if key in names), None)
    if kind in KINDS:
        return number_column(kind, key, itemgetter(key), key)
    if kind:
        return _word(
            key, lambda row: row[key] and kind(row[key]), "measured" if key == "phase" else key
        )
    return Column(None, itemgetter(key), key=key)


def _study(study: StudyTable) -> Sheet:
    rows = [dict(zip(study.columns, map(_cell, row), strict=True)) for row in study.rows]
    return Sheet(
        f"tables/study-{study.name}.csv", [_study_column(key) for key in study.columns], rows
    )


def _cell(text: str) -> Cell:
    """Return a cell of a CSV file as a number if it is one, and None if it is empty."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text or None


#: Operations shown of each table; the CSV files list all.
TOP = 10


def operation_column(sheet: Sheet) -> OperationColumn:
    """Return the self times of an operation table."""
    values: dict[OpKey, float] = {}
    rest: dict[str, float] = {}
    for row in sheet.written:
        name = str(row["operation"])
        self_ns = int(row["self_ns"] or 0)
        if name in NOT_OPERATIONS:
            rest[name] = rest.get(name, 0) + self_ns
        else:
            values[name, str(row["phase"]), str(row["module"])] = self_ns
    return OperationColumn(values, rest, sum([*values.values(), *rest.values()]))
