"""``mnistbench lab predict``.

Ask what a student expects of a lab before it measures, and keep the answers in its directory.
"""

from __future__ import annotations

import shlex
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
    OrderError,
    Predictions,
    is_tiny,
    parsed,
    read,
    toml,
)
from mnistbench.course.lab.predict.questions import questions
from mnistbench.course.lab.predict.section import asked, shown_number
from mnistbench.course.lab.run import has_begun
from mnistbench.course.lab.texts import Texts, language
from mnistbench.showing.output import EXIT_PASSED, EXIT_STOPPED, check_directory, print_error
from mnistbench.suite import case_options

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
    dataset: str = case_options.dataset()
    lang: str = language()
    output: Path = options.output_directory("directory of the lab", DIRECTORY)

    def __post_init__(self) -> None:
        object.__setattr__(self, "student", self.student.strip())
        if not self.student:
            raise UsageError("--student: is missing; give your name or number: --student s001")
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
    lab = ["mnistbench", "lab"]
    place = [] if directory == Path(DIRECTORY) else ["-o", str(directory)]
    dataset = [] if settings.dataset == "digits" else ["--dataset", settings.dataset]
    answer = [*lab, "predict", "--student", settings.student, *dataset, *place]
    print(
        texts.plain(
            "predictions",
            "done" if predictions.answers else "none",
            file=printable(str(kept)),
            answered=len(predictions.answers),
            asked=len(to_ask),
            lab=printable(shlex.join([*lab, *dataset, *place])),
            predict=printable(shlex.join(answer)),
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
        answers = read(file, known).answers
        for key in (key for key, answer in answers.items() if is_tiny(key, answer)):
            shown = ", ".join(f"{number:g}" for number in answers[key])
            print_error(f"{file}: {key}: {shown} are percentages; 0.2 means 0.2 %, not 20 %")
        yield replace(predictions, answers={**predictions.answers, **answers})
        return
    print(texts.plain("predictions", "intro"))
    for number, (key, text) in enumerate(to_ask.items(), 1):
        print(f"\n[{number}/{len(to_ask)}] {text}")
        predictions = replace(
            predictions,
            answers={**predictions.answers, key: _ask(key, predictions.answers.get(key), texts)},
        )
        print(_echo(key, predictions.answers[key], texts))
        yield predictions


def _echo(key: str, answer: Answer, texts: Texts) -> str:
    """Return an answer as it was understood."""
    if ASKED[key] == OPERATION:
        return texts.plain(
            "predictions", "echo_operation", best=answer[0], possible=", ".join(answer)
        )
    low, best, high = (shown_number(key, number) for number in answer)
    return texts.plain("predictions", "echo_range", low=low, best=best, high=high)


def _ask(key: str, before: Answer | None, texts: Texts) -> Answer:
    """Ask until the answer can be read; an empty one keeps the answer before."""
    print(line := texts.plain("predictions", _HELP[ASKED[key]], operations=", ".join(OPERATIONS)))
    while True:
        text = ""
        kept = (item if isinstance(item, str) else f"{item:g}" for item in before or ())
        try:
            text = input(f"[{' '.join(kept)}] > " if before else "> ").strip()
            answer = before if before and not text else parsed(key, text)
        except (ValueError, RecordError) as error:  # ValueError: also bytes that are no text
            wording = "order" if isinstance(error, OrderError) else "again"
            print(texts.plain("predictions", wording, answer=cut(printable(text), 60), help=line))
            continue
        if not text or not is_tiny(key, answer):
            return answer
        before = answer  # Enter keeps it
        print(texts.plain("predictions", "tiny", answer=_echo(key, answer, texts)))
