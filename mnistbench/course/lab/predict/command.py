"""``mnistbench lab predict``.

Ask what a student expects of a lab before it measures, and keep the answers in its directory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mnistbench.core import options
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import replace_file
from mnistbench.core.machine import usable_cpus
from mnistbench.core.options import option, path
from mnistbench.core.units import cut, printable
from mnistbench.course.lab.lab_file import DIRECTORY
from mnistbench.course.lab.predict.predictions import (
    ASKED,
    LONGEST_NAME,
    OPERATION,
    OPERATIONS,
    PERCENT,
    PREDICTIONS,
    RATIO,
    Answer,
    Predictions,
    parsed,
    read,
    toml,
)
from mnistbench.course.lab.predict.questions import questions
from mnistbench.course.lab.predict.section import asked
from mnistbench.course.lab.run import has_begun
from mnistbench.course.lab.texts import Texts, language
from mnistbench.showing.output import EXIT_PASSED, EXIT_STOPPED, check_directory, print_error

#: Kind of a question -> the wording of what can be answered.
_HELP = {OPERATION: "help_operation", RATIO: "help_ratio", PERCENT: "help_percent"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Who predicts, about which lab, and where the answers come from."""

    student: str = option(
        "--student",
        str,
        "",
        "your name or number; your questions are drawn from it; required",
        "NAME",
    )
    file: Path | None = option(
        "--from",
        path,
        None,
        "read the answers from this file; a new file gets the questions",
        "FILE",
    )
    dataset: str = options.dataset()
    lang: str = language()
    output: Path = options.output_directory("directory of the lab", DIRECTORY)

    def __post_init__(self) -> None:
        object.__setattr__(self, "student", self.student.strip())
        if not self.student.isprintable() or not 1 <= len(self.student) <= LONGEST_NAME:
            shown = cut(repr(self.student), 60)
            raise UsageError(
                f"--student: {shown} cannot be used; give your name or number, at most "
                f"{LONGEST_NAME} printable characters"
            )


def run(settings: Settings) -> int:
    """Ask, or read a file of answers.

    Return 0, or 130 if the student stopped before the last question.

    UsageError if an option or a file cannot be used, the lab has begun, or there is no terminal.
    """
    directory = settings.output
    texts = Texts(settings.lang)
    cores = usable_cpus()
    check_directory(directory)
    if has_begun(directory):
        raise UsageError(
            f"--output: the lab in {directory} has begun, too late for predictions; name another "
            "directory"
        )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    kept = directory / PREDICTIONS
    predictions = empty = Predictions(settings.student, now, settings.dataset, cores, {})
    to_ask = {
        question.key: str(asked(question, texts))
        for question in questions(settings.student, settings.dataset, cores)
    }

    def keep(predictions: Predictions) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(kept, toml(predictions, to_ask).encode())

    if not kept.exists():
        # The lab does not begin while it has no answers: afterwards no prediction counts.
        keep(empty)
    try:
        for predictions in answered(empty, to_ask, settings.file, kept, texts):
            keep(predictions)
    except (KeyboardInterrupt, EOFError):
        print_error(
            f"interrupted; your answers are kept in {kept}; run the same command again to go on"
        )
        return EXIT_STOPPED
    print(
        texts.plain(
            "predictions",
            "done",
            file=printable(str(kept)),
            answered=len(predictions.answers),
            asked=len(to_ask),
        )
    )
    return EXIT_PASSED


def answered(
    empty: Predictions, to_ask: Mapping[str, str], file: Path | None, kept: Path, texts: Texts
) -> Iterator[Predictions]:
    """Yield the predictions of a file, or those after each answer in the terminal.

    They have the kept ones that they lack.
    """
    known = {name: getattr(empty, name) for name in ("student", "made_at", "dataset", "cores")}
    if file and not file.exists():
        replace_file(file, toml(empty, to_ask).encode())
        raise UsageError(
            f"--from: {file} did not exist; your questions are there now: answer them and run the "
            "command again"
        )
    if not file and not sys.stdin.isatty():
        raise UsageError(
            "--from: there is no terminal to ask in; name a file of answers, or a new file for "
            "the questions"
        )
    predictions = read(kept, known) if read(kept).answers else empty
    if file:
        yield replace(predictions, answers={**predictions.answers, **read(file, known).answers})
        return
    print(texts.plain("predictions", "intro"))
    for number, (key, text) in enumerate(to_ask.items(), 1):
        print(f"\n[{number}/{len(to_ask)}] {text}")
        predictions = replace(
            predictions,
            answers={**predictions.answers, key: _ask(key, predictions.answers.get(key), texts)},
        )
        yield predictions


def _ask(key: str, before: Answer | None, texts: Texts) -> Answer:
    """Ask until the answer can be read; an empty one keeps the answer before."""
    print(line := texts.plain("predictions", _HELP[ASKED[key]], operations=", ".join(OPERATIONS)))
    while True:
        text = ""
        try:
            text = input(f"[{' '.join(map(str, before))}] > " if before else "> ").strip()
            return before if before and not text else parsed(key, text)
        except (ValueError, RecordError):  # ValueError: also bytes that are no text
            print(texts.plain("predictions", "again", answer=cut(printable(text), 60), help=line))
