"""Scores of students' steps, of made-up samples, with keyword overrides."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import environment

from mnistbench.course.classroom.score import Score, ScoreTrial

#: Noise of the turns of a trial, as factors.
TURNS = (0.98, 1.0, 1.02, 1.3)
#: Noise of trials, as factors.
TRIALS = (0.99, 1.0, 1.01, 0.995, 1.005, 1.0, 0.99, 1.01)


def trial(ratio: float, **changes: Any) -> ScoreTrial:
    """A trial in which a turn of the reference takes 400 ms.

    One of the student takes ``ratio`` times less.
    """
    reference_ns = tuple(round(4e8 * noise) for noise in TURNS)
    student_ns = tuple(round(ns / ratio) for ns in reference_ns)
    default = ScoreTrial(reference_ns, student_ns, (sum(reference_ns), sum(student_ns), 0))
    return dataclasses.replace(default, **changes)


def score(ratio: float = 1.3, **changes: Any) -> Score:
    """A score of eight trials whose ratios differ by 1 %."""
    default = Score(
        file="step.py",
        text="def make_step(model): ...\n",
        batch_size=64,
        dtype="float32",
        environment=environment(),
        floor_ns=10_000_000,
        accuracies=(0.9, 0.9),
        trials=tuple(trial(ratio * noise) for noise in TRIALS),
    )
    return dataclasses.replace(default, **changes)
