"""``mnistbench lab score``.

Time a student's step in turn with the reference, in two processes, by the clock of this one.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench.core import options, units
from mnistbench.core.child import Child, ChildError, measuring_environment
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import Limit, read_limited, scratch
from mnistbench.core.machine import own_cores
from mnistbench.core.options import argument, number, option, path, whole
from mnistbench.core.reading import member, read_text
from mnistbench.core.record import Environment
from mnistbench.course.classroom import score as scores
from mnistbench.course.lab.lab_file import DIRECTORY, FILE, SCORE, Findings, write_file
from mnistbench.gate.processes.sides.turns import in_pairs
from mnistbench.gate.words import MIN_PAIRS
from mnistbench.measuring.timing import Clock
from mnistbench.showing.output import EXIT_PASSED, EXIT_REGRESSED, check_directory, print_error
from mnistbench.showing.progress import Progress
from mnistbench.suite import case_options
from mnistbench.suite.measuring.torch_import import import_torch

REFERENCE = "reference"
STUDENT = "student"
WORKER = (sys.executable, "-P", "-m", "mnistbench.course.classroom.score_worker")

#: A submission has the text of the step.
_CODE = Limit(256 * 1024, "a step", "name a Python file with the step alone")

#: Longest wait for an answer, in seconds: a first step may be compiled.
PATIENCE_S = 300.0


def scored_trials() -> Any:
    """Declare the number of trials of a score."""
    kind = whole(4, scores.MAX_TRIALS)
    return option("--trials", kind, "8", "processes of each side, one after the other", "N")


def seconds_of_trial() -> Any:
    """Declare the time of a trial."""
    text = "time for the turns of both sides in a trial, in seconds"
    return option("--seconds", number(), "3", text, "S")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is scored, and for how long."""

    file: Path = argument("FILE", path, "Python file with a function make_step(model)")
    output: Path = options.output_directory(
        "directory of the lab, to which score.json is written", DIRECTORY
    )
    batch_size: int = case_options.batch_size()
    dtype: scores.Precision = case_options.dtype(  # noqa: RUF009  # a field, as all options
        text="least precise number format that is allowed"
    )
    trials: int = scored_trials()
    seconds: float = seconds_of_trial()


def this_machine() -> Environment:
    """Return the environment of a step: with one thread."""
    import_torch(quiet=True)
    from mnistbench.suite.measuring.environment import read

    return read(1)


def run(settings: Settings) -> int:
    """Score a file; return 0, or 1 if there is no score. Raises errors as :func:`measure`."""
    if not settings.file.is_file():
        raise UsageError(f"FILE: {settings.file} is not a file; name a Python file")
    check_directory(settings.output)
    here = this_machine()
    output = settings.output
    lab = Findings.from_directory(output).environment if (output / FILE).exists() else here
    if difference := scores.other_machine(lab, here):
        raise UsageError(
            f"--output: the lab in {output} is of another machine ({difference}); name "
            f"another directory"
        )
    try:
        with Progress(sys.stderr, total=settings.trials) as progress:
            score = measure(
                settings,
                read_limited(settings.file, _CODE).decode(errors="replace"),
                here,
                progress,
            )
        score.check()
    except scores.RefusedError as error:
        print_error(f"{settings.file}: no score: {error}")
        return EXIT_REGRESSED
    output.mkdir(parents=True, exist_ok=True)
    write_file(output / SCORE, score.content)
    print(f"{score.sentence}\n{output / SCORE}")
    return EXIT_PASSED


def measure(settings: Settings, text: str, here: Environment, progress: Progress) -> scores.Score:
    """Measure the step of a text.

    RefusedError if a result is wrong, UsageError if it fails, or its process ends or hangs.
    """
    from mnistbench.suite.profile.ceilings import ceilings_of

    # Of the order.
    coin = random.Random()  # noqa: S311
    cores = own_cores()
    size = settings.batch_size
    trials: list[scores.ScoreTrial] = []
    with scratch("score") as folder:
        environ = measuring_environment(os.environ, folder / "bytecode")
        weights = {name: f"{folder}/{name}.pt" for name in (REFERENCE, STUDENT)}
        for trial in progress.over(range(settings.trials)):
            progress.step(f"trial {trial + 1} of {settings.trials}")
            with ExitStack() as stack:
                sides = {
                    name: stack.enter_context(ScoredSide(WORKER, environ))
                    for name in coin.sample([*weights], 2)
                }
                job = {
                    "core": coin.choice(cores) if cores else None,
                    "batch_size": size,
                    "file": str(settings.file),
                }
                for name, side in sides.items():
                    side.ask(
                        Any, "load", text=text if name == STUDENT else scores.REFERENCE_STEP, **job
                    )
                if not trials:
                    seed = secrets.randbits(63)
                    for name, side in sides.items():
                        side.ask(Any, "epoch", seed=seed, weights=weights[name])
                    accuracies = [
                        sides[REFERENCE].ask(float, "accuracy", weights=file)
                        for file in weights.values()
                    ]
                trials.append(time_trial(sides, weights[REFERENCE], coin, settings))
    peak = max(ceilings_of("cpu", dtype, 1).flops_per_s for dtype in {"float32", settings.dtype})
    floor_ns = max(1, round(scores.forward_ns(size, peak)))
    learnt = (accuracies[0], accuracies[1])
    return scores.Score(
        settings.file.name, text, size, settings.dtype, here, floor_ns, learnt, tuple(trials)
    )


class ScoredSide(Child):
    """The process of the reference or of the student's step."""

    def ask(self, hint: Any, do: str, **arguments: Any) -> Any:
        """Call a method of ``ScoreWorker`` there; return its value by the type hint.

        Raises errors as :func:`measure`.
        """
        self.tell(json.dumps({"do": do, **arguments}))
        try:
            answer = read_text(line := self.next_line(PATIENCE_S), Mapping[str, Any])
            if "error" not in answer:
                return member(answer, "value", hint)
        except ChildError as error:
            raise UsageError(f"the process of the step {error}") from None
        except RecordError:
            raise scores.RefusedError(
                f"its process answered {line[:60]!r}, which is no result"
            ) from None
        raise UsageError(f"the step fails: {answer['error']}")

    @property
    def cpu_ns(self) -> int:
        """CPU time of all threads of the process so far; 0 where the system does not tell."""
        with suppress(OSError):
            # clock_getcpuclockid(3) of Linux.
            return time.clock_gettime_ns(~self._process.pid << 3 | 2)
        return 0


@dataclass(frozen=True)
class Turn:
    """What the steps of a turn took."""

    wall_ns: int
    cpu_ns: int  # of the process whose turn it was; 0 where the system does not tell
    student_cpu_ns: int  # of the student's process, also while the reference runs


class Pairing:
    """Runs pairs of turns, one of each side, on the same weights and inputs."""

    def __init__(self, sides: Mapping[str, ScoredSide], weights: str, limit: float) -> None:
        """Start every turn from a file of weights; ``limit`` is that of the error of a pair."""
        self._sides = sides
        self._weights = weights
        self._limit = limit
        self.errors: list[float] = []  # of each pair

    def run_pair(self, order: Sequence[str], *, untimed: int, steps: int) -> tuple[Turn, Turn]:
        """Run a turn of each side in an order, after untimed steps.

        Return the turn of the reference and that of the student.

        RefusedError if the student's step computed something else.
        """
        seeds = [secrets.randbits(63) for _ in range(3)]
        turns: dict[str, Turn] = {}
        answers: dict[str, scores.Answer] = {}
        for name in order:
            side = self._sides[name]
            student = self._sides[STUDENT]
            side.ask(Any, "prepare", weights=self._weights, seed=seeds[0], steps=untimed)
            own_cpu_ns = side.cpu_ns
            student_cpu_ns = student.cpu_ns
            began_ns = Clock.wall_ns()
            side.ask(Any, "run", seed=seeds[1], steps=steps)
            answers[name] = side.ask(scores.Answer, "audit", seed=seeds[2])
            turns[name] = Turn(
                wall_ns=Clock.wall_ns() - began_ns,
                cpu_ns=side.cpu_ns - own_cpu_ns,
                student_cpu_ns=student.cpu_ns - student_cpu_ns,
            )
        self.errors.append(scores.error_of(answers[STUDENT], answers[REFERENCE], self._limit))
        return turns[REFERENCE], turns[STUDENT]


def time_trial(
    sides: Mapping[str, ScoredSide], weights: str, coin: random.Random, settings: Settings
) -> scores.ScoreTrial:
    """Compare both sides after one and after STEPS steps, then time pairs of turns.

    Each of the turns is compared, too.
    """
    limit, tolerance = scores.TOLERANCES[settings.dtype]
    pairing = Pairing(sides, weights, limit)
    order = list(sides)
    pairing.run_pair(order, untimed=0, steps=1)
    rough = pairing.run_pair(order, untimed=0, steps=scores.STEPS)
    rough_ns = sum(turn.wall_ns for turn in rough)
    count = max(MIN_PAIRS, round(settings.seconds * 1e9 / rough_ns))
    names = list(in_pairs(order, coin, count))
    pairs = [
        pairing.run_pair(names[first : first + 2], untimed=1, steps=scores.STEPS)
        for first in range(0, 2 * count, 2)
    ]
    if (error := statistics.median(pairing.errors)) > tolerance:
        raise scores.RefusedError(
            f"its losses and weights differ by {units.percent(error)}, too much for "
            f"{settings.dtype}"
        )
    reference_turns, student_turns = zip(*pairs, strict=True)
    cpu_ns = (
        sum(turn.cpu_ns for turn in reference_turns),
        sum(turn.cpu_ns for turn in student_turns),
        sum(turn.student_cpu_ns for turn in reference_turns),
    )
    return scores.ScoreTrial(
        reference_ns=tuple(turn.wall_ns for turn in reference_turns),
        student_ns=tuple(turn.wall_ns for turn in student_turns),
        cpu_ns=cpu_ns if cpu_ns[0] else None,
    )
