"""Generate the submissions of a class from one lab, to try the teacher's commands on.

    python docs/make_class.py DIR --lab LAB

LAB: the directory of a lab with predictions.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.record import OpRow
from mnistbench.course.classroom import score, submission
from mnistbench.course.classroom.teacher.cohort import DEMO
from mnistbench.course.lab.lab_file import (
    DIRECTORY,
    FILE,
    QUIET,
    SCORE,
    SUBMISSION,
    Findings,
    MeasuredField,
    stored,
    write_file,
)
from mnistbench.course.lab.predict import predictions
from mnistbench.course.lab.predict.predictions import (
    ASKED,
    EXPLANATIONS,
    OPERATION,
    OPERATIONS,
    PERCENT,
    PREDICTIONS,
)
from mnistbench.course.lab.predict.questions import Outcome, with_predictions
from mnistbench.course.lab.run import BEGUN, STEPS, LabPlan, items_of
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.showing.output import check_directory

TEXTS = Path(__file__).with_suffix(".toml")

#: Machine family -> its times, divided by those of the lab.
FAMILIES = {f"{DEMO} A": 0.8, f"{DEMO} B": 1.0, f"{DEMO} C": 1.7}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and write the class."""
    parser = argparse.ArgumentParser(description="Generate the submissions of a class.")
    parser.add_argument("directory", metavar="DIR", type=Path, help="new directory")
    parser.add_argument(
        "--lab", type=Path, default=Path(DIRECTORY), help="directory of a lab with predictions"
    )
    parser.add_argument("--size", type=int, default=30, help="number of students, 8 to 999")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    given = parser.parse_args(arguments)
    if not 8 <= given.size <= 999:
        parser.error(f"--size: {given.size} cannot be used; give a whole number, 8 to 999")
    try:
        write_class(given.directory, given.lab, given.size, given.seed)
    except MnistbenchError as error:
        parser.error(str(error))


def write_class(directory: Path, lab_directory: Path, last: int, seed: int) -> None:
    """Write a submission for each student.

    Raises:
        UsageError: the lab cannot be used, or the directory has files.
    """
    check_directory(directory, "DIR", own=())
    try:
        lab = submission.pack(lab_directory)
        if not (
            lab.findings
            and lab.findings.predictions
            and lab.findings.iteration_times
            and lab.file(BEGUN.as_posix())
        ):
            raise RecordError("a lab with predictions and its steps is needed")  # noqa: TRY301
    except RecordError as error:
        raise UsageError(
            f"--lab: {lab_directory} cannot be used ({error}); in a new directory, run "
            f"mnistbench lab predict -o {lab_directory} and mnistbench lab -o {lab_directory}"
        ) from None
    handed_in = submission.Submission("", {})
    for number in range(1, last + 1):
        name = f"s{number:03}"
        neighbour = handed_in
        handed_in = DemoStudent(lab, number, name, seed).submission()
        if number == last - 1:  # a copy of the student before, under another name
            copied = {
                file: text.replace(neighbour.student, name)
                for file, text in neighbour.files.items()
            }
            handed_in = replace(neighbour, student=name, files=copied)
        if number == last:  # edited: the accuracy is better than the measured one
            edited = re.sub(
                r'"test_accuracy": [\d.]+', '"test_accuracy": 99.9', handed_in.files[FILE]
            )
            handed_in = replace(handed_in, files={**handed_in.files, FILE: edited})
        (directory / name).mkdir(parents=True)
        submission.write(directory / name / SUBMISSION, handed_in)
    sys.stdout.write(f"{directory}: {last} generated students\n")


class DemoStudent:
    """A made-up student. What differs from the lab is drawn from the seed and the name."""

    def __init__(self, lab: submission.Submission, number: int, name: str, seed: int) -> None:
        assert lab.findings and lab.findings.predictions, "checked"  # noqa: PT018
        self.lab = lab
        self.findings = lab.findings
        self.number = number
        self.predictions = replace(
            lab.findings.predictions,
            student=name,
            answers={
                key: ("other",) if kind == OPERATION else (0, 0, 0) for key, kind in ASKED.items()
            },
        )
        self.was = lab.findings.predictions.batch_size
        self.size = self.predictions.batch_size
        self.machine, self.factor = list(FAMILIES.items())[number % len(FAMILIES)]
        self.draw = random.Random(f"{seed} {name}")  # noqa: S311  # no secret
        self.texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))

    def submission(self) -> submission.Submission:
        """Return the files of a lab, written and packed as those of a real one."""
        findings, steps, outcomes = self._lab()
        begun = self.lab.file(BEGUN.as_posix())
        assert begun and findings.predictions, "checked"  # noqa: PT018
        first = {
            **begun,
            "environment": findings.environment,
            "predictions": findings.predictions,
        }
        # Some are disturbed.
        quiet = self._score(
            findings, score.REFERENCE_STEP, 1.2 if self.number % 10 == 6 else 1.0, 0.01
        )
        contents: dict[str, Any] = {
            PREDICTIONS: predictions.toml(findings.predictions, dict.fromkeys(ASKED, "generated"))
        }
        contents |= {BEGUN.as_posix(): first, **steps, FILE: stored(findings), QUIET: quiet.content}
        if self.number % 10 != 9:  # those have no score, or a refused step
            ratio = 1.0 if self.number % 7 == 0 else self.draw.lognormvariate(0.25, 0.2)
            choices = {
                name: ways[self.number >> bit & 1]
                for bit, (name, ways) in enumerate(self.texts["choices"].items())
            }
            contents[SCORE] = self._score(
                findings, self.texts["code"].format(**choices), ratio, 0.025
            ).content
        # Those explain nothing.
        contents[EXPLANATIONS] = "" if self.number % 10 == 4 else self._explanations(outcomes)
        with TemporaryDirectory(prefix="mnistbench-") as folder:
            directory = Path(folder)
            (directory / STEPS).mkdir()
            for name, content in contents.items():
                if isinstance(content, str):
                    (directory / name).write_text(content, encoding="utf-8")
                else:
                    write_file(directory / name, content)
            return submission.pack(directory)

    def _lab(self) -> tuple[Findings, dict[str, Any], list[Outcome]]:
        """Return findings of the student's machine, contents of their steps, and predictions."""
        sizes = sorted(
            self.size if size == self.was else size for size in self.findings.settings.batch_sizes
        )
        settings = replace(self.findings.settings, batch_sizes=tuple(sizes))
        environment = replace(self.findings.environment, cpu_model=self.machine)
        findings = replace(
            self.findings,
            settings=settings,
            environment=environment,
            predictions=self.predictions,
            studies=(),
        )
        steps = dict[str, Any]()
        results = dict[MeasuredField, Any]()
        for step in LabPlan(findings.settings, findings.environment).steps():
            before = self.lab.file(
                f"{STEPS}/{re.sub(rf'-b{self.size}$', f'-b{self.was}', step.name)}.json"
            )
            if before and step.field != "studies":
                items = tuple(self._item(item) for item in items_of(before, step))
                steps[f"{STEPS}/{step.name}.json"] = {
                    "what": step.what,
                    "items": items,
                    "notes": (),
                }
                results[step.field] = (*results.get(step.field, ()), *items)
        findings = replace(findings, **results)
        truths: Sequence[Outcome] = with_predictions(findings, sheets_of(findings)).predictions.rows
        outcomes = [replace(truth, predicted=self._answer(truth)) for truth in truths]
        answers = {outcome.question.key: outcome.predicted for outcome in outcomes}
        return (
            replace(findings, predictions=replace(self.predictions, answers=answers)),
            steps,
            outcomes,
        )

    def _item(self, item: Any) -> Any:
        """Return a measurement of this machine.

        One at the lab's drawn batch size becomes one at the student's own.
        """
        params = getattr(item, "params", item)
        factor = self.factor
        if params.batch_size == self.was:
            # As the lab estimates the time of a step.
            factor *= (6 + 1.1 * self.size) / (6 + 1.1 * self.was)
            factor *= (
                self.was / self.size
                if getattr(params, "phase", "train") in ("train", "eval")
                else 1
            )
        return self._varied(item, "", factor)

    def _varied(self, value: Any, name: str, factor: float) -> Any:
        """Return a value in which times have another factor and noise.

        The shares of operations follow from the machine.
        """
        if is_dataclass(value) and not isinstance(value, type):
            if isinstance(value, OpRow):
                # No secret.
                share = random.Random(f"{self.machine} {value.name}").uniform(0.7, 1.4)  # noqa: S311
                factor *= share * self.draw.lognormvariate(0, 0.1)
            parts = {
                part.name: self._varied(getattr(value, part.name), part.name, factor)
                for part in fields(value)
            }
            return replace(value, **parts)
        if type(value) is tuple:
            return tuple(self._varied(part, name, factor) for part in value)
        if name in ("batch_size", "samples", "whole_set") and value == self.was:
            return self.size
        return (
            max(1, round(value * factor * self.draw.lognormvariate(0, 0.03)))
            if name.endswith("_ns") and value
            else value
        )

    def _score(self, findings: Findings, text: str, ratio: float, spread: float) -> score.Score:
        """Return a score of eight trials of six pairs of turns; a ratio of 1 is a tie."""
        steps = [time for time in findings.iteration_times if time.phase == "step"]
        near = min(steps, key=lambda time: (abs(time.batch_size - 64), time.threads))
        base = score.STEPS * near.median_ns
        trials = list[score.ScoreTrial]()
        for trial in self.draw.sample((-1.2, -0.9, -0.6, -0.3, 0.3, 0.6, 0.9, 1.2), 8):
            reference = tuple(
                max(1, round(base * self.draw.lognormvariate(0, 0.03))) for _ in range(6)
            )
            by = math.exp(trial * spread) / ratio
            own = tuple(
                max(1, round(ns * by * self.draw.lognormvariate(0, 0.01))) for ns in reference
            )
            trials.append(score.ScoreTrial(reference, own, (sum(reference), sum(own), 0)))
        machine = replace(findings.environment, threads=1)
        return score.Score(
            "my_step.py", text, 64, "float32", machine, 1, (0.95, 0.95), tuple(trials)
        )

    def _answer(self, truth: Outcome) -> predictions.Answer:
        """Return a prediction around the measured value; every third student is overconfident."""
        kind = ASKED[truth.question.key]
        is_careful = self.number % 3 != 1
        if kind == OPERATION:
            right = truth.operation if truth.measured else "convolution"
            wrong = self.draw.sample([name for name in OPERATIONS if name != right], 2)
            return (
                (right, wrong[0])
                if self.draw.random() < (0.85 if is_careful else 0.4)
                else tuple(wrong)
            )
        guess = (5.0 if truth.number is None else truth.number) * self.draw.lognormvariate(0, 0.25)
        # Half of the range, as a logarithm.
        half = 0.35 if is_careful else 0.08
        most = 100.0 if kind == PERCENT else 1e6
        return tuple(float(f"{min(most, guess * math.exp(by)):.2g}") for by in (-half, 0.0, half))

    def _explanations(self, outcomes: Sequence[Outcome]) -> str:
        """Return an explanation of each failed prediction.

        No other one has its combination of sentences.
        """
        lines = []
        for at, row in enumerate(outcomes):
            count = self.number * len(ASKED) + at
            choices = [self.texts[key] for key in ("first", "second", "third")]
            text = " ".join(
                sentences[count // len(sentences) ** power % len(sentences)]
                for power, sentences in enumerate(choices)
            )
            lines += [f"{row.question.key} = {json.dumps(text)}\n"] if row.inside is False else []
        return "".join(lines)


if __name__ == "__main__":
    main()
