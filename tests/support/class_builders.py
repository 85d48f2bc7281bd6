"""What the teacher's commands read of submissions, without files.

And raw times that no other series has.
"""

from __future__ import annotations

import random
from typing import Any

from mnistbench.course.classroom.score import BANDS
from mnistbench.course.classroom.teacher.cohort import Entry
from mnistbench.course.lab.predict.predictions import Answer
from mnistbench.course.lab.predict.questions import Outcome, Question
from mnistbench.course.lab.sheets import Cells, CitedNumber


def noisy(ns: int, count: int, draw: random.Random) -> tuple[int, ...]:
    return tuple(round(ns * draw.uniform(0.95, 1.2)) for _ in range(count))


def speedup(ratio: float, low: float, high: float) -> dict[str, Any]:
    band = max((lower for lower in BANDS if lower <= low), default=None)
    return {"ratio": ratio, "low": low, "high": high, "tie": low <= 1 <= high, "band": band}


def outcome(key: str, predicted: Answer, measured: float | str) -> Outcome:
    number = (
        CitedNumber(measured, "ratio", Cells("file", "column", ()))
        if isinstance(measured, float)
        else measured
    )
    return Outcome(Question(key), predicted, number)


def entry(student: str, *, measured_speedup: dict[str, Any] | None = None, **changes: Any) -> Entry:
    """What was read of a student's file, without the file."""
    return Entry(
        **{
            "file": f"{student}.json",
            "student": student,
            "speedup": measured_speedup or {},
            **changes,
        }
    )
