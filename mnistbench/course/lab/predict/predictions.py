"""What a student expects of a lab before it measures, and the file ``predictions.toml``.

Findings have predictions, so this module imports nothing of the lab.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import Limit, read_limited
from mnistbench.core.reading import FieldError, member, place, wrong
from mnistbench.core.reading import read as read_value

#: File in the directory of a lab with the predictions.
PREDICTIONS = "predictions.toml"
#: File in the directory of a lab with the student's explanations of predictions that failed.
EXPLANATIONS = "explanations.toml"

#: Kind of a question whose answer is the name of an operation.
OPERATION = "operation"
#: Kind of a question whose answer is a ratio.
RATIO = "ratio"
#: Kind of a question whose answer is a share or an accuracy in percent.
PERCENT = "percent"
#: Question -> its kind, in the order in which they are asked. The last three are drawn for each
#: student. Shares and accuracies are percentages.
ASKED: Mapping[str, str] = {
    "operation_small": OPERATION,
    "operation_large": OPERATION,
    "image": RATIO,
    "backward": RATIO,
    "convolutions": PERCENT,
    "accuracy": PERCENT,
    "first": RATIO,
    "threads": RATIO,
    "operation_drawn": OPERATION,
    "image_drawn": RATIO,
    "layer_drawn": PERCENT,
}

#: Units that a number of an answer may have, as a regular expression.
_UNITS: Mapping[str, str] = {RATIO: "x|\u00d7|times|倍", PERCENT: "%|\uff05|percent|per cent"}

#: The value in a file of an answer that is not given yet.
_BLANKS: Mapping[str, str] = {
    OPERATION: '["best guess", "other"]',
    RATIO: "[low, best guess, high]",
    PERCENT: "[low, best guess, high]  # percent",
}

#: Operation that can be predicted -> parts of names in an operation table; the first operation with
#: a part counts.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "convolution_backward": ("convolution_backward",),
    "convolution": ("conv",),
    "addmm": ("addmm",),
    "mm": ("aten::mm",),
    "relu": ("relu", "clamp_min", "threshold_backward"),
    "max_pool2d": ("max_pool2d",),
    "log_softmax": ("log_softmax",),
    "dropout": ("dropout", "bernoulli"),
    "other": ("",),
}

#: Bounds of the batch size that is drawn; no default batch size is within them.
_SIZES = 17, 61

#: Operations, the best guess first, then others that are possible; or the low end of a range, the
#: best guess, the high end.
Answer = tuple[Any, ...]


class OrderError(ValueError):
    """The numbers of a range do not ascend, so it is not clear which is the best guess."""


class SubmittedFile(NamedTuple):
    """A file of a submission, which is read as one on disk."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.name


TextFile = Path | SubmittedFile

#: Files of a lab have less than 1 MiB.
LAB_FILE = Limit(16 * 1024**2, "a file of a lab", "name another directory")

#: Most characters of a student's name.
LONGEST_NAME = 200
#: Most characters of a file by hand, four times as many as all questions with long explanations.
LONGEST_TEXT = 2**15
#: Most dots in one line of it: a TOML key may have a part after each, and tomllib takes time and
#: memory that grow with the square of their number.
MAX_DOTS = 100


@dataclass(frozen=True)
class Predictions:
    """The answers of a student: question -> answer. Unanswered questions are left out."""

    student: str
    made_at: str  # time in UTC, ISO 8601
    dataset: str
    cores: int  # of the machine
    answers: Mapping[str, Answer]

    def __post_init__(self) -> None:
        for key, answer in self.answers.items():
            with place(f"answers.{key}"):
                check(key, answer)

    @property
    def batch_size(self) -> int:
        """The batch size of the drawn questions."""
        return drawn(self.student)[0]


def drawn(student: str) -> tuple[int, random.Random]:
    """Return a student's batch size and random numbers, which follow from a hash of the name.

    The same on every machine.
    """
    draw = random.Random(student)  # noqa: S311  # no secret
    return draw.randint(*_SIZES), draw


def check(key: str, answer: Answer) -> None:
    """Check the answer to a question; FieldError names the value and what it needs."""
    if key not in ASKED:
        raise FieldError(f"is no question; choose of {', '.join(ASKED)}")
    if ASKED[key] == OPERATION:
        if not answer or not all(name in list(OPERATIONS) for name in answer):
            raise wrong(list(answer), f"a list of {', '.join(OPERATIONS)}")
        return
    most = 100 if ASKED[key] == PERCENT else 1_000_000
    are_numbers = len(answer) == 3 and all(type(number) in (int, float) for number in answer)
    if not (are_numbers and 0 <= answer[0] <= answer[1] <= answer[2] <= most):
        raise wrong(list(answer), f"[low, best guess, high], from 0 to {most}, ascending")


def parsed(key: str, text: str) -> Answer:
    """Return the answer to a question from words or numbers.

    Spaces, commas or semicolons are between them, Chinese ones, too.

    A number may have the unit of its kind, ``20 %`` or ``5x``, a decimal comma and commas between
    thousands.

    ValueError if the text has no numbers where it needs them, OrderError if they do not ascend,
    FieldError as :func:`check`.
    """
    kind = ASKED[key]
    answer: Answer
    if kind == OPERATION:
        answer = tuple(dict.fromkeys(re.split(r"[\s,;、\uff0c\uff1b]+", text.strip())))
    else:
        numbers = re.split(r"[\s;、\uff0c\uff1b]+", _without_units(kind, text).strip())
        if len(numbers) != 3:  # commas separate the numbers, and are no decimal commas
            numbers = re.split(r"[\s,;、\uff0c\uff1b]+", _without_units(kind, text).strip())
        answer = tuple(map(_number, numbers))
        if len(answer) == 3 and list(answer) != sorted(answer):
            raise OrderError(f"{text!r} is not in ascending order")
    check(key, answer)
    return answer


def is_tiny(key: str, answer: Answer) -> bool:
    """Return whether a range of percentages ends at 1 % or below: shares of 1 may be meant."""
    return ASKED[key] == PERCENT and 0 < answer[2] <= 1


def _without_units(kind: str, text: str) -> str:
    return re.sub(rf"(?<=[\d.])\s*({_UNITS[kind]})(?!\w)", " ", text, flags=re.IGNORECASE)


def _number(text: str) -> float:
    """Return a number: ``2.5``, ``2,5``, ``1,000`` or ``1,000.5``; ValueError if it is none."""
    text = text.strip(",")
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+(\.\d*)?", text):
        return float(text.replace(",", ""))
    return float(text.replace(",", "."))


def text_of(path: TextFile, encoding: str) -> str:
    """Return the text of a file of a lab.

    Raises:
        RecordError: it cannot be read; the message does not have its name.
        ValueError: it is no text, such as with half a surrogate pair.
    """
    if isinstance(path, SubmittedFile):
        return path.text.encode().decode(encoding)
    try:
        return read_limited(path, LAB_FILE).decode(encoding)
    except RecordError as error:
        raise RecordError(str(error).removeprefix(f"{path}: ")) from None


def load(path: TextFile, corrected: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the content of a TOML file that a student wrote, after its text was corrected.

    UsageError if it cannot be read, or is so long or has such keys that it would take long.
    """
    try:
        # Some editors begin a file with a byte order mark.
        text = text_of(path, "utf-8-sig")
        if len(text) > LONGEST_TEXT:
            raise UsageError(
                f"{path}: has {len(text)} characters, more than {LONGEST_TEXT}; shorten it"
            )
        for number, line in enumerate(text.split("\n"), 1):
            if line.count(".") > MAX_DOTS:
                raise UsageError(
                    f"{path}: line {number} has more than {MAX_DOTS} dots; divide it into "
                    "several lines"
                )
        return tomllib.loads(corrected(text))
    except RecordError as error:
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct it there") from None


def _plain_numbers(text: str) -> str:
    """Return the text of a file of predictions in which numbers have no units.

    ``[20 %, 35 %, 60 %]`` is no TOML.
    """

    def plain(line: re.Match[str]) -> str:
        kind = ASKED.get(line["key"], OPERATION)
        if kind == OPERATION:
            return line[0]
        values = re.sub(r"""["']([^"']*)["']""", r"\1", line["values"])
        return f"{line['start']}{_without_units(kind, values)}{line['end']}"

    return re.sub(
        # Not \s, which would search all following lines from the start of each.
        r"^(?P<start>[ \t]*(?P<key>\w+)[ \t]*=[ \t]*\[)(?P<values>[^\]\n]*)(?P<end>\])",
        plain,
        text,
        flags=re.MULTILINE,
    )


def read(path: TextFile, known: Mapping[str, Any] | None = None) -> Predictions:
    """Return the predictions of a file.

    Fields that are ``known`` replace those of the file; the student must be the same.

    UsageError if the file cannot be read or names another student; of a wrong value it names the
    key and what it needs.
    """
    content = load(path, _plain_numbers)
    if known and (named_student := content.get("student", known["student"])) != known["student"]:
        raise UsageError(
            f"{path}: student: is {named_student!r}, not {known['student']!r}; their questions are "
            "not the same"
        )
    try:
        answers = {
            key: read_value(answer, Answer, f"answers.{key}")
            for key, answer in member(content, "answers", Mapping[str, Any]).items()
        }
        return read_value({**content, **(known or {}), "answers": answers}, Predictions)
    except RecordError as error:
        raise UsageError(f"{path}: {error}") from None


def read_explanations(path: TextFile) -> dict[str, str]:
    """Return the student's explanations: question -> text.

    UsageError if the file cannot be read, FieldError if an explanation is no text.
    """
    return {key: read_value(text, str, key) for key, text in load(path).items()}


def toml(predictions: Predictions, questions: Mapping[str, str]) -> str:
    """Return the text of the file, with the text of each question as a comment.

    So is a question without an answer.
    """
    head = {name: getattr(predictions, name) for name in ("student", "made_at", "dataset", "cores")}
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in head.items()
    ] + ["", "[answers]"]
    for key, text in questions.items():
        blank = _BLANKS[ASKED[key]]
        lines += [
            f"# {text}",
            f"{key} = {json.dumps(predictions.answers[key])}"
            if key in predictions.answers
            else f"# {key} = {blank}",
        ]
    return "\n".join(lines) + "\n"
