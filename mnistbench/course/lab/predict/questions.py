"""The questions of a student, and the answers in the findings of a lab.

A table shows the predictions beside the measured values.

All questions are about the CPU, which every machine has. Those that are drawn differ from student
to student, so that the answers of another student do not fit. Reads and writes no files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mnistbench.course.lab.lab_file import UNTRAINED, Findings
from mnistbench.course.lab.predict.predictions import OPERATIONS, Answer, drawn
from mnistbench.course.lab.sentences import (
    Words,
    best_view,
    convolutions,
    main_place,
    ranked_operations,
)
from mnistbench.course.lab.sheets import (
    Cell,
    CitedNumber,
    Sheet,
    Sheets,
    Word,
    number_column,
    ratio,
    share,
)
from mnistbench.showing.table import Column
from mnistbench.showing.text import Code

CPU = "cpu"

#: The smallest default batch size of a lab.
SMALL = 1
#: The largest default batch size of a lab.
LARGE = 64

_RANKS = (Word("largest"), Word("second"))
_LAYERS = ("conv1", "relu1", "conv2", "relu2", "pool", "dropout1", "fc1")

#: What a lab measured: a number, the name of an operation, or None if it has no such value.
Measured = CitedNumber | str | None


@dataclass(frozen=True)
class Question:
    """A question of a phase at a batch size."""

    key: str  # of ASKED
    phase: str = "step"
    size: int = LARGE
    what: str | int = ""  # a word of _RANKS, a layer, the dataset or the number of cores

    @property
    def wording(self) -> tuple[str, Words]:
        """The key of its text, and what fills it in."""
        words = {"phase": Word(self.phase), "size": self.size, "large": LARGE, "what": self.what}
        return self.key.partition("_")[0], words


def questions(student: str, dataset: str, cores: int) -> tuple[Question, ...]:
    """Return the questions of a student; none about threads for a machine with one core."""
    size, draw = drawn(student)
    phases = ("forward", "step")
    drawn_questions = (
        Question("operation_small", "forward", SMALL, _RANKS[0]),
        Question("operation_large", "forward", LARGE, _RANKS[0]),
        Question("image", size=SMALL),
        Question("backward"),
        Question("convolutions"),
        Question("accuracy", what=Code(dataset)),
        Question("first", "forward", SMALL),
        Question("threads", what=cores),
        Question("operation_drawn", draw.choice(phases), size, draw.choice(_RANKS)),
        Question("image_drawn", draw.choice(phases), size),
        Question("layer_drawn", "step", size, Code(draw.choice(_LAYERS))),
    )
    return tuple(question for question in drawn_questions if cores > 1 or question.key != "threads")


def answer(question: Question, findings: Findings, sheets: Sheets) -> Measured:
    """Return what the lab measured; None where it has no value."""
    place = main_place(findings, CPU)
    phase = question.phase
    size = question.size
    table = best_view(sheets, phase, CPU, size)
    kind, _ = question.wording
    if kind == "image":
        at: dict[str, Cell] = {"device": CPU, "threads": place.threads, "phase": phase}
        return ratio(
            *(
                sheets.iterations.total("sample_ns", **at, batch_size=compared)
                for compared in (size, LARGE)
            )
        )
    if kind == "accuracy":
        is_same = findings.settings.dataset == question.what
        return (
            sheets.training.total("test_accuracy", device=CPU, batch_size=size, epoch=1)
            if is_same
            else None
        )
    if kind == "first":
        at = {"device": CPU, "phase": phase, "weights": UNTRAINED, "batch_size": size}
        return ratio(
            *(sheets.first_iterations.total(column, **at) for column in ("first_ns", "warm_ns"))
        )
    if kind == "threads":
        at = {"device": CPU, "phase": phase, "batch_size": size}
        times = (
            sheets.iterations.total("median_ns", **at, threads=compared)
            for compared in (1, place.threads)
        )
        return ratio(*times) if place.threads > 1 else None
    if not table:
        return None
    if kind == "operation":
        return next(iter(ranked_operations(table)[_RANKS.index(question.what) :]), None)
    if kind == "backward":
        return ratio(*(table.total("self_ns", phase=part) for part in ("backward", "forward")))
    where: dict[str, Cell | list[str]] = (
        {"module": question.what} if kind == "layer" else {"operation": convolutions(table)}
    )
    return share(table.total("self_ns", **where), table.total("self_ns"))


@dataclass(frozen=True)
class Outcome:
    """A prediction and what the lab measured."""

    question: Question
    predicted: Answer
    measured: Measured
    is_noise: bool = False  # the machine was disturbed, and the value follows from times

    @property
    def number(self) -> float | None:
        """The measured number as it was asked for, shares in percent."""
        measured = self.measured
        return (
            (measured.value * (100 if measured.kind == "share" else 1))
            if isinstance(measured, CitedNumber)
            else None
        )

    @property
    def operation(self) -> str:
        """The measured operation as it was asked for, one of OPERATIONS."""
        return next(
            name
            for name, parts in OPERATIONS.items()
            if any(part in str(self.measured) for part in parts)
        )

    @property
    def inside(self) -> bool | None:
        """Whether the range contains the number, or the operation is among the possible ones.

        The result is None without a value, or if noise could make it.
        """
        if self.measured is None or self.is_noise:
            return None
        if isinstance(self.measured, str):
            return self.operation in self.predicted
        return self.number is not None and self.predicted[0] <= self.number <= self.predicted[2]

    @property
    def relative_width(self) -> float | None:
        """The width of the range, divided by the measured number; None if noise could make it."""
        if self.is_noise or not self.number:
            return None
        return float(self.predicted[2] - self.predicted[0]) / self.number


#: Columns of the file. The last four are summed: numbers of predictions, and widths.
_COLUMNS: tuple[Column[Outcome], ...] = (
    Column(None, lambda row: row.question.key, key="question"),
    Column(None, lambda row: " ".join(map(str, row.predicted)), key="predicted"),
    Column(None, lambda row: row.measured if row.number is None else row.number, key="measured"),
    number_column("count", "judged", lambda row: int(row.inside is not None)),
    number_column("count", "inside", lambda row: None if row.inside is None else int(row.inside)),
    number_column("count", "with_width", lambda row: int(row.relative_width is not None)),
    number_column("ratio", "relative_width", lambda row: row.relative_width),
)


def with_predictions(findings: Findings, sheets: Sheets) -> Sheets:
    """Return the tables with that of the predictions."""
    predictions = findings.predictions
    if not predictions:
        return sheets
    asked = [
        question
        for question in questions(predictions.student, predictions.dataset, predictions.cores)
        if question.key in predictions.answers
    ]
    rows = [
        Outcome(
            question,
            predictions.answers[question.key],
            answer(question, findings, sheets),
            is_noise=bool(findings.disturbed) and question.key != "accuracy",
        )
        for question in asked
    ]
    return replace(sheets, predictions=Sheet(sheets.predictions.file, _COLUMNS, rows))
