"""The section of a lab's report on predictions.

Each beside what was measured, the calibration of the ranges, explanations.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import replace_file
from mnistbench.course.lab.lab_file import Findings
from mnistbench.course.lab.predict.predictions import (
    ASKED,
    EXPLANATIONS,
    OPERATION,
    PERCENT,
    read_explanations,
)
from mnistbench.course.lab.predict.questions import Outcome, Question
from mnistbench.course.lab.sheets import CitedNumber, Sheet, Sheets, ratio
from mnistbench.course.lab.texts import Texts
from mnistbench.judging.distributions import binomial_at_most
from mnistbench.showing.report import Part
from mnistbench.showing.text import Code, Text

#: The share of the ranges of a well-calibrated student that contain the measured value.
EXPECTED = 0.8
#: Key of the student's own summary in the file of explanations.
SUMMARY = "summary"
#: Fewest ranges that are called well calibrated: of fewer, almost any ranges would be.
FEWEST = 5
#: The level of the tests of this share.
LEVEL = 0.10


def calibration(inside: int, judged: int) -> str:
    """Return whether ranges are ``narrow``, ``wide`` or ``right``, or too ``few`` to tell.

    They were meant to contain 80 % of the values.

    Two one-sided exact binomial tests at LEVEL. Ten ranges or fewer are never too wide, because 0.8
    ** 10 exceeds the level.
    """
    few = binomial_at_most(inside, judged, EXPECTED)
    many = binomial_at_most(judged - inside, judged, 1 - EXPECTED)
    if few <= LEVEL:
        return "narrow"
    if many <= LEVEL:
        return "wide"
    return "few" if judged < FEWEST else "right"


def asked(question: Question, texts: Texts) -> Text:
    """Return the text of a question."""
    key, words = question.wording
    return texts.text("question", key, **words)


def predictions_section(
    directory: Path, findings: Findings, sheets: Sheets, texts: Texts
) -> list[Part]:
    """Return the parts of the section; none if there are no predictions.

    UsageError if the student's explanations cannot be read, OSError if the file for them cannot be
    written.
    """
    predictions = findings.predictions
    if not predictions:
        return []
    sheet = sheets.predictions
    failed = [outcome.question for outcome in sheet.rows if outcome.inside is False]
    explanations = _explanations(directory / EXPLANATIONS, failed, texts)
    headings = [
        texts.plain("column", key)
        for key in ("question", "expected", "range", "measured_value", "inside")
    ]
    rows = [_row(outcome, texts) for outcome in sheet.rows]
    parts: list[Part] = [
        texts.text("predictions", "made", student=predictions.student, time=predictions.made_at),
        texts.rows(texts.plain("caption", "predictions"), headings, rows, (sheet.file,)),
        *_calibrated(sheet, texts),
    ]
    if failed:
        parts.append(texts.text("predictions", "failed"))
        parts.append([_explained(question, explanations, texts) for question in failed])
    return parts


def summary_section(directory: Path, findings: Findings, texts: Texts) -> list[Part]:
    """Return the student's own summary, or the request for it; nothing without predictions.

    UsageError if the file of explanations cannot be read. :func:`predictions_section` writes it.
    """
    if not findings.predictions:
        return []
    own = " ".join(_explanations(directory / EXPLANATIONS, [], texts).get(SUMMARY, "").split())
    request = texts.text("predictions", "no_summary", file=Code(EXPLANATIONS), name=Code(SUMMARY))
    return [Text([own]) if own else request]


def shown_number(key: str, number: float) -> str:
    """Return a number of an answer with its unit."""
    return f"{number:g}{' %' if ASKED[key] == PERCENT else ''}"


def _explained(question: Question, explanations: Mapping[str, str], texts: Texts) -> Text:
    """Return a question, and the student's explanation or the request for it."""
    own = " ".join(explanations.get(question.key, "").split())
    if own:
        return Text([*asked(question, texts), " ", own])
    missing = texts.text("predictions", "unexplained", file=Code(EXPLANATIONS))
    return Text([*asked(question, texts), " ", *missing, Code(question.key)])


def _explanations(path: Path, failed: list[Question], texts: Texts) -> Mapping[str, str]:
    """Read the student's explanations.

    If there is no file, write one with an empty text for each prediction that failed, and for the
    summary.
    """
    if path.exists():
        try:
            return read_explanations(path)
        except RecordError as error:
            raise UsageError(f"{path}: {error}") from None
    head = [f"# {texts.plain('predictions', 'failed')}"] if failed else []
    lines = [f'# {asked(question, texts)}\n{question.key} = ""' for question in failed]
    summary = f'# {texts.plain("predictions", "summary")}\n{SUMMARY} = ""\n'
    replace_file(path, "\n".join([*head, *lines, summary]).encode())
    return {}


def _row(outcome: Outcome, texts: Texts) -> tuple[Text, ...]:
    measured = outcome.measured
    predicted = outcome.predicted
    kind = ASKED[outcome.question.key]
    if isinstance(measured, CitedNumber):
        value = Text([measured])
    else:
        value = Text([Code(measured) if measured else units.MISSING])
    if kind == OPERATION:
        guess = Text([Code(predicted[0])])
        possible = Text([Code(", ".join(map(str, predicted)))])
    else:
        low, best, high = (shown_number(outcome.question.key, number) for number in predicted)
        guess = Text([best])
        possible = texts.text("predictions", "range", low=low, high=high)
    verdict = {None: "unjudged" if outcome.is_noise else "unmeasured", True: "yes", False: "no"}
    return (
        asked(outcome.question, texts),
        guess,
        possible,
        value,
        texts.text("predictions", verdict[outcome.inside]),
    )


def _calibrated(sheet: Sheet, texts: Texts) -> list[Part]:
    """Return how many ranges contain the measured value, what follows, and their mean width."""
    judged = sheet.total("judged")
    inside = sheet.total("inside")
    if not (judged and inside):
        return []
    words = {
        "inside": inside,
        "judged": judged,
        "expected": f"{EXPECTED * judged.value:.1f}",
        "level": f"{100 * LEVEL:g} %",
    }
    key = calibration(int(inside.value), int(judged.value))
    sentences = [texts.text("predictions", key, **words)]
    if width := ratio(sheet.total("relative_width"), sheet.total("with_width")):
        sentences.append(texts.text("predictions", "width", width=width))
    return [sentences]
