"""The score of a student's step: samples, their judgement, and the file ``score.json``.

Does not import torch.

The medians of log(reference / student) over the pairs of each trial have a mean and the gate's
interval for one quantity.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from mnistbench.core import units
from mnistbench.core.errors import MnistbenchError
from mnistbench.core.reading import Nanoseconds, Positive, read
from mnistbench.core.record import Environment
from mnistbench.course.lab.lab_file import SCHEMA, Findings, read_file
from mnistbench.course.lab.predict.predictions import TextFile
from mnistbench.gate.decide.statistics.differences import difference
from mnistbench.gate.decide.statistics.permutation import simultaneous_bounds
from mnistbench.saved_runs.compatibility import blocking_differences, described

#: Training steps in a turn.
STEPS = 5
#: How many times as fast a step has to be for a band.
BANDS = (1.05, 1.25, 1.5, 2.0, 3.0)

#: Most trials: the interval takes 2 MB for each.
MAX_TRIALS = 100

#: Number format -> largest relative error of a turn, of a loss or of the change of a parameter
#: (Euclidean norm), and largest median of a trial. In float32 errors are 1e-6 to 1e-4, but 0.02
#: where rounding moves a value past 0 in a ReLU; in bfloat16 by autocast 0.03 to 0.45. They are 0.2
#: to 1.6 without the last of six updates, and 0.5 to 3.4 with half of each batch.
TOLERANCES = {"float32": (0.4, 0.01), "bfloat16": (0.9, 0.25)}

#: How much lower the accuracy may be: two standard errors of the difference of two shares of 90 %
#: of 360 samples.
ACCURACY_MARGIN = 0.05
#: Largest factor between the speed-ups by wall and by CPU time, which differ if a side uses other
#: threads or processes.
CLOCK_FACTOR = 1.25
#: Largest CPU time of the student's process in the turns of the reference, as a share of these.
IDLE_SHARE = 0.05

#: FLOPs of a forward pass of one sample: a backward pass may be sparse, as max-pooling and ReLU
#: leave few gradients.
FLOPS = 23_984_896
#: No core does more, in FLOP/s: 1,024 multiply-adds of bfloat16 per cycle, at 4.9 GHz.
MAX_FLOPS_PER_S = 1e13
#: How many times the rate in float32 a core may reach in bfloat16: 16 with AMX, 2 without.
BFLOAT16_FACTOR = 16
#: How many times as fast as measured in the lab a core may be in the score: the lab may have been
#: disturbed when it measured the peak rate.
PEAK_FACTOR = 2
#: Largest factor between the times of the reference's step in the score and in the lab: by its
#: power supply and temperature, the clock of a laptop changes by 3.
LAB_FACTOR = 5

#: The reference, as a student's file.
REFERENCE_STEP = """\
from mnistbench.suite.workloads.step import Step
from mnistbench.suite.workloads.workload import builtin_workloads


def make_step(model):
    workload = builtin_workloads("digits", None)[0]
    step = Step(model, workload.loss, workload.make_optimizer(model.parameters()))
    return lambda images, targets: step(images, targets)[1]
"""


#: Number format of a step.
Precision = Literal["float32", "bfloat16"]


class RefusedError(MnistbenchError):
    """There is no score; the message says why, without a subject."""


@dataclass(frozen=True)
class Answer:
    """What a side computed in a turn."""

    losses: tuple[float, ...]  # of each step, from before its update
    # Parameter -> values at random positions after the last step.
    values: Mapping[str, tuple[float, ...]]
    start: Mapping[str, tuple[float, ...]]  # the same before the turn


@dataclass(frozen=True)
class ScoreTrial:
    """A process of each side.

    The nth turns of both are a pair, with the same weights and inputs.
    """

    reference_ns: tuple[Positive, ...]  # wall time of each turn
    student_ns: tuple[Positive, ...]
    # CPU time of reference and student in all their turns, of the latter in those of the former;
    # None if it is not known
    cpu_ns: tuple[Positive, Positive, Nanoseconds] | None


@dataclass(frozen=True)
class Score:
    """A measured step."""

    file: str
    text: str  # of the file
    batch_size: Positive
    # The least precise format that was allowed.
    dtype: Precision
    environment: Environment
    floor_ns: Positive  # least time of a step by the roofline
    accuracies: tuple[float, float]  # of the reference and of the student after an epoch
    trials: Annotated[tuple[ScoreTrial, ...], Meta(min_length=1)]

    @property
    def logs(self) -> list[float]:
        """The logarithm of the ratio of each trial."""
        return [difference(trial.student_ns, trial.reference_ns).log for trial in self.trials]

    @property
    def disturbed(self) -> str:
        """How the score of a step that is equal to the reference shows a disturbed machine.

        Empty if it does not.

        The interval has to contain 1 or to be within 2 % of it, and trials may differ by 5 %.
        """
        speedup = self.speedup
        spread = math.exp(max(self.logs) - min(self.logs)) - 1
        try:
            self.check()
        except RefusedError as error:
            return f"{error}"
        if not (speedup["tie"] or 0.98 <= speedup["low"] <= speedup["high"] <= 1.02):
            return f"its ratio is {interval(speedup, '{} (95 % interval {} to {})')}"
        return f"the ratios of its trials differ by {units.growth(spread)}" if spread > 0.05 else ""

    @property
    def speedup(self) -> dict[str, Any]:
        """The ratio, its 95 % interval, whether that is a tie, and the band of its lower bound.

        RefusedError if unknown.
        """
        logs = self.logs
        if not 2 <= len(logs) <= MAX_TRIALS or not all(map(math.isfinite, logs)):
            raise RefusedError("it has too few trials or turns, or too many trials")
        bounds = (bound.item() for bound in simultaneous_bounds(np.array([logs]), 1))
        ratio, low, high = (
            round(math.exp(min(log, 700.0)), 4) for log in (statistics.fmean(logs), *bounds)
        )
        band = max((band for band in BANDS if band <= low), default=None)
        return {"ratio": ratio, "low": low, "high": high, "tie": low <= 1 <= high, "band": band}

    def check(self) -> None:
        """Raise RefusedError if a step learns less than the reference or breaks the rules.

        It is faster than the core, or used other threads.
        """
        if self.accuracies[1] < self.accuracies[0] - ACCURACY_MARGIN:
            raise RefusedError(
                "its accuracy after an epoch is {1}, not {0}".format(
                    *map(units.percent, self.accuracies)
                )
            )
        step_ns = self._step_ns("student_ns")
        if step_ns < self.floor_ns:
            least = (
                f"its forward pass takes {units.duration(self.floor_ns)} at the core's peak rate"
            )
            raise RefusedError(f"a step took {units.duration(step_ns)}, but {least}")
        clocks = [
            (sum(trial.reference_ns), sum(trial.student_ns), *trial.cpu_ns)
            for trial in self.trials
            if trial.cpu_ns
        ]
        if (
            idle := max((idle_ns / base_ns for base_ns, _, _, _, idle_ns in clocks), default=0.0)
        ) > IDLE_SHARE:
            raise RefusedError(
                f"it computed during {units.percent(idle)} of the reference's time; let no thread "
                "go on"
            )
        wall, cpu = (
            statistics.median([clock[first] / clock[first + 1] for clock in clocks] or [1.0])
            for first in (0, 2)
        )
        if not 1 / CLOCK_FACTOR <= wall / cpu <= CLOCK_FACTOR:
            shown = (
                f"{units.factor(wall)} times as fast by wall time and {units.factor(cpu)} times "
                "by CPU time"
            )
            raise RefusedError(
                f"it is {shown}; use one thread and no other process, and run nothing else "
                "meanwhile"
            )

    def check_machine(self, lab: Findings) -> None:
        """Raise RefusedError if the machine of the lab cannot be that of the score.

        The step is faster than its forward pass at the lab's peak rate, or the reference took
        another time than in the lab. Both are compared only if the lab measured the CPU.
        """
        peak = MAX_FLOPS_PER_S
        if ceilings := lab.ceilings.get("cpu"):
            faster = PEAK_FACTOR * (BFLOAT16_FACTOR if self.dtype == "bfloat16" else 1)
            peak = min(peak, faster * ceilings.flops_per_s)
        step_ns = self._step_ns("student_ns")
        if step_ns < (least_ns := forward_ns(self.batch_size, peak)):
            raise RefusedError(
                f"a step took {units.duration(step_ns)}, but its forward pass takes at least "
                f"{units.duration(least_ns)} on the machine of the lab"
            )
        steps = [
            time for time in lab.iteration_times if (time.device, time.phase) == ("cpu", "step")
        ]
        if not steps:
            return
        near = min(steps, key=lambda time: (abs(time.batch_size - self.batch_size), time.threads))
        samples = self.batch_size / near.batch_size
        low_ns = near.median_ns * min(1.0, samples) / LAB_FACTOR
        high_ns = near.median_ns * max(1.0, samples) * near.threads * LAB_FACTOR
        reference_ns = self._step_ns("reference_ns")
        if not low_ns <= reference_ns <= high_ns:
            raise RefusedError(
                f"a step of the reference took {units.duration(reference_ns)}, but "
                f"{units.duration(near.median_ns)} in the lab (batch size {near.batch_size}, "
                f"{units.threads(near.threads)})"
            )

    def _step_ns(self, side: str) -> float:
        """Return the median time of a step of ``student_ns`` or ``reference_ns``."""
        turns: list[int] = [ns for trial in self.trials for ns in getattr(trial, side)]
        return statistics.median(turns) / STEPS

    @property
    def content(self) -> dict[str, Any]:
        """What the file has: the samples, what follows from them, and a digest of both."""
        sha256 = hashlib.sha256(self.text.encode(errors="replace")).hexdigest()
        text = json.dumps(
            {**asdict(self), "sha256": sha256, "speedup": self.speedup}, sort_keys=True
        )
        return {**json.loads(text), "digest": hashlib.sha256(text.encode()).hexdigest()}

    @property
    def sentence(self) -> str:
        speedup = self.speedup
        n = len(self.trials)
        shown = interval(speedup, "{} times as fast as the reference (95 % interval {} to {}")
        band = (
            f"at least {speedup['band']:g} times"
            if speedup["band"]
            else f"none, the first is {BANDS[0]:g} times"
        )
        return f"{self.file}: {'tie, ' if speedup['tie'] else ''}{shown}, {n} trials); band: {band}"


def forward_ns(batch_size: int, flops_per_s: float) -> float:
    """Return the least time of a forward pass at a rate, in nanoseconds."""
    return 1e9 * batch_size * FLOPS / flops_per_s


def interval(speedup: Mapping[str, Any], form: str = "{} ({} - {})") -> str:
    """Return a speed-up with its interval: ``1.13 (1.10 - 1.16)``."""
    return form.format(*(units.factor(speedup[key]) for key in ("ratio", "low", "high")))


def error_of(student: Answer, reference: Answer, limit: float) -> float:
    """Return the largest relative error of what a student's step computed in a turn.

    RefusedError if it is above the limit.

    Losses below 0.1 and changes below 1e-5 count as these: those of one sample can be as small as
    the rounding of the weights.
    """
    steps = len(reference.losses)
    shapes = [
        (len(answer.losses), {name: len(answer.values[name]) for name in answer.values})
        for answer in (student, reference)
    ]
    if shapes[0] != shapes[1]:
        raise RefusedError("its process sent another answer than was asked for")
    pairs = enumerate(zip(student.losses, reference.losses, strict=True), 1)
    errors = {
        f"loss of step {step}": abs(loss - expected) / max(abs(expected), 0.1)
        for step, (loss, expected) in pairs
    }
    for name, values in reference.values.items():
        moved = max(math.dist(values, reference.start[name]), 1e-5)
        errors[f"change of {name} in {steps} steps"] = (
            math.dist(student.values[name], values) / moved
        )
    worst = max(errors, key=lambda name: errors[name])
    if errors[worst] > limit:
        raise RefusedError(
            f"the {worst} differs from the reference's by {units.percent(errors[worst])}"
        )
    return errors[worst]


def read_score(file: TextFile, machine: Environment | None, *, is_quiet: bool = False) -> Score:
    """Read a score and check it again.

    RefusedError if it is wrong or not of the machine, RecordError if it is damaged.

    A self-test, ``is_quiet``, is only compared with its times: see :attr:`Score.disturbed`.
    """
    content = read_file(file)
    score = read(content, Score)
    if {"schema": SCHEMA, **score.content} != content:
        raise RefusedError("the file was edited; measure it again")
    if machine and (difference := other_machine(score.environment, machine)):
        raise RefusedError(
            f"it was measured on another machine or with other software ({difference}); measure "
            "it here"
        )
    if not is_quiet:
        score.check()
    return score


def other_machine(environment: Environment, machine: Environment) -> str:
    """Return how the machines of two environments differ; empty if they do not.

    Threads and allocator are of a process.
    """
    changes = blocking_differences(asdict(environment), asdict(machine), None)
    return "; ".join(
        described(
            {name: pair for name, pair in changes.items() if name not in ("threads", "allocator")}
        )
    )
