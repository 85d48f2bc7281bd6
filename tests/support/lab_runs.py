"""Labs in directories, with every file that a student hands in, of made-up measures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders import environment
from lab_builders import (
    MS,
    case,
    epoch_time,
    first_iterations,
    forward_rows,
    iteration_time,
    step_rows,
    table,
    training,
)
from score_builders import score

from mnistbench.course.classroom.score import REFERENCE_STEP, Score
from mnistbench.course.lab.lab_file import QUIET, SCORE, LabSettings, write_file
from mnistbench.course.lab.predict.predictions import (
    ASKED,
    EXPLANATIONS,
    OPERATION,
    OPERATIONS,
    PERCENT,
    PREDICTIONS,
    Answer,
    Predictions,
    toml,
)
from mnistbench.course.lab.run import Lab
from mnistbench.events.work.roofline import Ceilings


class Counting:
    """Measures nothing, and stops where it is told to."""

    def __init__(self, stop_at=None):
        self.asked = []
        self.stop_at = stop_at

    def _ask(self, *what):
        if what == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append(what)

    def samples(self):
        return 1437, 360

    def training(self, device, threads, size, output, advance):
        self._ask("training", device, size)
        assert not output.exists()
        output.mkdir(parents=True)
        advance(0.5)
        return dataclasses.replace(
            training(device, size, 98.0), directory=f"tensorboard/{output.name}"
        ), ("a note",)

    def profiled(self, phase, device, threads, size, trace):
        self._ask("profiled", phase, device, size)
        if trace:
            trace.parent.mkdir(exist_ok=True)
            trace.write_text("{}", encoding="utf-8")
        rows = forward_rows if phase == "forward" else step_rows
        operations = table(rows(400_000, 100_000, 20_000))
        return case(
            phase,
            size,
            operations,
            device=device,
            threads=threads,
            ceilings=Ceilings(2e11, 2e10, "float32"),
        )

    def first_iterations(self, phase, device, threads, size):
        self._ask("first", phase, device, size)
        return tuple(
            first_iterations(device, phase, size, first=20 * MS, warm=1 * MS, trained=20 * MS)
        )

    def iterations(self, wanted, advance):
        self._ask("iterations")
        advance(1.0)
        return tuple(
            iteration_time(phase, size, size * MS, device=device, threads=threads)
            for phase, device, threads, size in wanted
        )

    def epoch(self, phase, device, threads, size):
        self._ask("epoch", phase, device, threads, size)
        return epoch_time(phase, size, 100 * MS, device=device, threads=threads)


#: Answers whose ranges contain every value.
WIDE: Mapping[str, Answer] = {
    key: tuple(OPERATIONS)
    if kind == OPERATION
    else (0, 50, 100)
    if kind == PERCENT
    else (0, 1, 1_000_000)
    for key, kind in ASKED.items()
}

#: One of them fails, which two sentences explain.
ANSWERS = {**WIDE, "image": (0, 0, 0)}
EXPLAINED = 'image = "I forgot the overhead of a call. It is paid once per batch."\n'


def predict(
    directory: Path, student: str = "s001", answers: Mapping[str, Answer] = ANSWERS
) -> None:
    """Write predictions as the command does."""
    predictions = Predictions(student, "2026-11-25T07:00:00+00:00", "digits", 2, answers)
    write(directory, PREDICTIONS, toml(predictions, dict.fromkeys(ASKED, "?")))


def write(directory: Path, name: str, text: str) -> None:
    """Write a file of a lab as a student does."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")


def measure(directory: Path, measures: Any = None, **machine: Any) -> None:
    """Run a lab of made-up measures."""
    settings = LabSettings("digits", (1, 16, 64), ("cpu",), 3, "convnet", 1)
    Lab(directory, settings, environment(threads=2, **machine), measures or Counting()).run(None)


def quiet(ratio: float = 1.0, **changes: Any) -> Score:
    """A self-test."""
    return score(ratio, text=REFERENCE_STEP, **changes)


def whole_lab(directory: Path, student: str = "s001", **machine: Any) -> Path:
    """A lab with which everything is right."""
    predict(directory, student)
    measure(directory, **machine)
    write(directory, EXPLANATIONS, EXPLAINED)
    for name, measured_score in (
        (SCORE, score(environment=environment(**machine))),
        (QUIET, quiet(environment=environment(**machine))),
    ):
        write_file(directory / name, measured_score.content)
    return directory
