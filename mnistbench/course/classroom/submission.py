"""What a student hands in: ``submission.json``, one file with the texts of a lab's files.

Nothing of it is run or extracted.
"""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from mnistbench.core.errors import MnistbenchError, RecordError, first_line
from mnistbench.core.reading import FieldError, member, wrong
from mnistbench.core.reading import read as read_value
from mnistbench.core.units import cut
from mnistbench.course.classroom.score import REFERENCE_STEP, Score, read_score
from mnistbench.course.lab.lab_file import (
    FILE,
    QUIET,
    SCORE,
    Findings,
    read_file,
    write_file,
)
from mnistbench.course.lab.predict import predictions
from mnistbench.course.lab.predict.predictions import (
    EXPLANATIONS,
    LAB_FILE,
    LONGEST_NAME,
    PREDICTIONS,
    Predictions,
    SubmittedFile,
)
from mnistbench.course.lab.predict.questions import (
    LARGE,
    Outcome,
    questions,
    with_predictions,
)
from mnistbench.course.lab.run import BEGUN, STEPS, unlike_steps
from mnistbench.course.lab.sentences import disturbance
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import Texts

#: Kind of a flaw: something is missing.
INCOMPLETE = "incomplete"
#: Kind of a flaw: something was changed or is of another lab.
INCONSISTENT = "inconsistent"
#: Kind of a flaw: the machine was disturbed when it measured the score, or nothing shows that not.
DOUBTFUL = "doubtful"
#: Kind of a flaw: the machine was disturbed when it measured the lab.
DISTURBED = "disturbed"

#: Files of a lab that a submission has, beside those of its steps.
NAMES = (PREDICTIONS, EXPLANATIONS, FILE, SCORE, QUIET)
#: Most bytes of a submission, 16 times as many as are usual, and of each file of it.
LARGEST = LAB_FILE.n_bytes

#: Most characters of a text about a flaw, which may have values of the file.
LONGEST_LINE = 1_000

_STEP = re.compile(rf"{STEPS.name}/[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}\.json")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
#: It begins at the first of several marks only, or it would search them again from each.
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|[\u3002\uff01\uff1f]+")

_T = TypeVar("_T")


#: What is wrong: its kind, the key of its wording in the section ``flaw``, and what fills it in.
Found = tuple[str, str, dict[str, object]]


@dataclass(frozen=True)
class Flaw:
    """Something that is wrong with a submission."""

    kind: str  # INCOMPLETE, INCONSISTENT, DOUBTFUL or DISTURBED
    check: str  # one of CHECKS
    key: str  # of its wording: what is wrong, and what to do
    words: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The English text."""
        return self.text_in(Texts("en"))

    def text_in(self, texts: Texts) -> str:
        """Return the text in a language."""
        return cut(texts.plain("flaw", self.key, **self.words), LONGEST_LINE)

    @classmethod
    def of_error(cls, kind: str, check: str, error: object) -> Flaw:
        """Return what an error says, which is in English."""
        return cls(kind, check, "error", {"text": str(error)})


@dataclass(frozen=True)
class Submission:
    """The files of a student's lab.

    Its properties raise RecordError, in one line, if their file is wrong.
    """

    student: str  # empty without predictions
    files: Mapping[str, str]  # name -> text
    directory: Path | None = field(default=None, compare=False)  # of the lab that was packed

    def __post_init__(self) -> None:
        if self.student and not (self.student.isprintable() and len(self.student) <= LONGEST_NAME):
            raise wrong(self.student, f"at most {LONGEST_NAME} printable characters", "student")
        for name, text in self.files.items():
            if name not in NAMES and not _STEP.fullmatch(name):
                raise FieldError("is no file of a lab", f"files.{name[:60]!r}")
            if _NO_TEXT.search(text):
                raise FieldError("is no text", f"files.{name}")

    @cached_property
    def predictions(self) -> Predictions | None:
        """The predictions in their own file.

        The student may have changed it after the lab began.
        """
        return self._read(PREDICTIONS, predictions.read)

    @cached_property
    def findings(self) -> Findings | None:
        """The lab, with the predictions as they were when it began."""
        return self._read(FILE, lambda file: read_value(read_file(file), Findings))

    @cached_property
    def score(self) -> Score | None:
        """The score, if it follows from its times and is possible on the machine of the lab."""
        return self._read(SCORE, self._measured)

    @cached_property
    def quiet(self) -> Score | None:
        """The self-test, a score of code that is equal to the reference."""
        return self._read(QUIET, self._measured)

    @cached_property
    def explanations(self) -> Mapping[str, str]:
        """Question -> the student's explanation of a prediction that failed."""
        return self._read(EXPLANATIONS, predictions.read_explanations) or {}

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The predictions beside what was measured; none without a lab."""
        if not self.findings:
            return ()
        try:
            return tuple(with_predictions(self.findings, sheets_of(self.findings)).predictions.rows)
        # made-up findings may contradict each other in any way.
        except Exception as error:  # noqa: BLE001
            raise RecordError(
                f"{FILE}: its measurements contradict each other ({type(error).__name__})"
            ) from None

    def command(self, *words: str) -> str:
        """Return a command of ``mnistbench lab``, for the directory of the lab if it is known."""
        place = ["-o", str(self.directory)] if self.directory else []
        return shlex.join(["mnistbench", "lab", *words, *place])

    def _measured(self, file: SubmittedFile) -> Score:
        machine = self.findings.environment if self.findings else None
        score = read_score(file, machine, is_quiet=file.name == QUIET)
        if self.findings:
            score.check_machine(self.findings)
        return score

    def file(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file; None if there is none."""
        return self._read(name, read_file)

    def _read(self, name: str, reader: Callable[[SubmittedFile], _T]) -> _T | None:
        if name not in self.files:
            return None
        try:
            return reader(SubmittedFile(name, self.files[name]))
        except MnistbenchError as error:
            raise RecordError(
                str(error) if str(error).startswith(name) else f"{name}: {error}"
            ) from None


# ---- Files ---------------------------------------------------------------------------------------


def pack(directory: Path) -> Submission:
    """Return the submission of a lab's directory.

    RecordError if there is none, or a file is no text, too large or a link.
    """
    steps = directory / STEPS
    there = [*_listed(directory), *(f"{STEPS.name}/{name}" for name in _listed(steps))]
    # Others may be a project's.
    if steps.is_symlink() or not {PREDICTIONS, FILE, BEGUN.as_posix()} & {*there}:
        raise RecordError(f"{directory} is not the directory of a lab; name one, or a submission")
    names = [*(name for name in NAMES if name in there), *filter(_STEP.fullmatch, there)]
    submission = Submission("", {name: _text(directory / name) for name in names}, directory)
    with suppress(RecordError):
        return replace(
            submission, student=submission.predictions.student if submission.predictions else ""
        )
    return submission


def read(path: Path) -> Submission:
    """Read a submission.

    RecordError if it cannot be read or is none: one line that names the file.
    """
    text = _text(path)
    try:
        content = read_file(SubmittedFile(str(path), text))
        return Submission(
            member(content, "student", str), member(content, "files", Mapping[str, str])
        )
    except RecordError as error:
        raise RecordError(f"{path}: {error}; write it again with mnistbench lab check") from None


def write(path: Path, submission: Submission) -> None:
    """Write a submission; OSError if that fails."""
    write_file(path, {"student": submission.student, "files": submission.files})


def _listed(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RecordError(f"{directory}: cannot be read ({error.strerror})") from None


def _text(path: Path) -> str:
    """Return the text of a regular file that is not too large; RecordError if it is none."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path}: is not a regular file; a link or a device is not read")
        if status.st_size > LARGEST:
            raise RecordError(f"{path}: has {status.st_size} bytes, more than {LARGEST}")
        with path.open("rb") as stream:
            return stream.read(LARGEST).decode()
    except FileNotFoundError:
        raise RecordError(
            f"{path}: does not exist; name the directory of a lab, or a submission"
        ) from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise RecordError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


# ---- Problems ------------------------------------------------------------------------------------


def _predictions(submission: Submission) -> Iterator[Found]:
    predictions = submission.predictions
    file = {"file": PREDICTIONS}
    if not predictions:
        yield INCOMPLETE, "predictions_missing", {**file}
        return
    if submission.student != predictions.student:
        names = {"student": repr(predictions.student), "other": repr(submission.student)}
        yield INCONSISTENT, "predictions_of_another", {**file, **names}
    asked = {
        question.key
        for question in questions(predictions.student, predictions.dataset, predictions.cores)
    }
    if missing := sorted(asked - set(predictions.answers)):
        yield INCOMPLETE, "unanswered", {**file, "questions": ", ".join(missing)}
    if submission.findings and submission.findings.predictions != predictions:
        yield INCONSISTENT, "predictions_changed", {**file}


def _lab(submission: Submission) -> Iterator[Found]:
    findings = submission.findings
    file = {"file": FILE}
    command = submission.command()
    if not findings:
        yield INCOMPLETE, "missing", {**file, "command": command}
    elif len(findings.settings.batch_sizes) * len(findings.settings.devices) > len(
        submission.files
    ):
        yield INCONSISTENT, "few_steps", {**file}
    elif (
        findings.predictions
        and (size := findings.predictions.batch_size) not in findings.settings.batch_sizes
    ):
        student = repr(findings.predictions.student)
        yield INCONSISTENT, "other_size", {**file, "size": str(size), "student": student}
    elif unlike := unlike_steps(findings, submission.file):
        words = {"folder": str(STEPS), "steps": ", ".join(unlike), "command": command}
        yield INCONSISTENT, "unlike_steps", {**file, **words}
    elif unmeasured := _unmeasured(findings):
        key, words = unmeasured
        yield INCOMPLETE, key, {**file, **words}
    elif worst := findings.disturbed:
        sentence = disturbance(worst)
        yield DISTURBED, sentence.key, {**sentence.words}


def _unmeasured(findings: Findings) -> tuple[str, dict[str, str]] | None:
    """Return what questions of the predictions a lab did not measure, and what to do.

    Else a student could leave out what a prediction would fail at.
    """
    predicted = findings.predictions
    settings = findings.settings
    if not predicted:
        return None
    if predicted.dataset != settings.dataset:
        words = {"dataset": settings.dataset, "predicted": predicted.dataset}
        return "unmeasured_dataset", words
    if "cpu" not in settings.devices:
        return "unmeasured_cpu", {}
    asked = questions(predicted.student, predicted.dataset, predicted.cores)
    sizes = {question.size for question in asked} | {LARGE}
    if missing := sorted(sizes - set(settings.batch_sizes)):
        wanted = sorted(sizes | set(settings.batch_sizes))
        return "unmeasured_size", {
            "missing": ", ".join(map(str, missing)),
            "wanted": ",".join(map(str, wanted)),
        }
    return None


def _explanations(submission: Submission) -> Iterator[Found]:
    failed = [outcome.question.key for outcome in submission.outcomes if outcome.inside is False]
    texts = {key: _SENTENCE_END.split(submission.explanations.get(key, "")) for key in failed}
    if short := [key for key in failed if sum(map(bool, map(str.strip, texts[key]))) < 2]:
        yield INCOMPLETE, "unexplained", {"file": EXPLANATIONS, "questions": ", ".join(short)}


def _score(submission: Submission) -> Iterator[Found]:
    if not submission.score:
        command = submission.command("score", "my_step.py")
        yield INCOMPLETE, "missing", {"file": SCORE, "command": command}


def _machine(submission: Submission) -> Iterator[Found]:
    file: dict[str, object] = {"file": QUIET}
    if not submission.quiet:
        # A score needs a quiet machine.
        yield (
            DOUBTFUL if SCORE in submission.files else INCOMPLETE,
            "self_test_missing",
            file,
        )
    elif submission.quiet.text != REFERENCE_STEP:
        yield INCONSISTENT, "self_test_of_other_code", file
    elif why := submission.quiet.disturbed:
        yield DOUBTFUL, "self_test_failed", {"why": why}


#: What is checked, in this order: name -> function that yields what is wrong.
CHECKS: Mapping[str, Callable[[Submission], Iterator[Found]]] = {
    "predictions": _predictions,
    "lab": _lab,
    "explanations": _explanations,
    "score": _score,
    "machine": _machine,
}


def problems(submission: Submission) -> tuple[Flaw, ...]:
    """Return what is incomplete, inconsistent or doubtful, in the order of CHECKS.

    Nothing if everything is right.
    """
    flaws = []
    for name, check in CHECKS.items():
        try:
            flaws += [Flaw(kind, name, key, words) for kind, key, words in check(submission)]
        except RecordError as error:
            flaws.append(Flaw.of_error(INCONSISTENT, name, error))
        except Exception as error:  # noqa: BLE001  # made-up numbers can raise anything
            words = {"type": type(error).__name__, "text": first_line(error)}
            flaws.append(Flaw(INCONSISTENT, name, "not_evaluated", words))
    return tuple(flaws)
