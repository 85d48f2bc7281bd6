"""The section of a lab's report on predictions.

Each beside what was measured, the calibration of the ranges, explanations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import replace_file
from mnistbench.core.reading import Reader
from mnistbench.course.lab.document import Block, Cited, Code, Text
from mnistbench.course.lab.lab_file import Findings
from mnistbench.course.lab.predict.predictions import ASKED, EXPLANATIONS, OPERATION, PERCENT, load
from mnistbench.course.lab.predict.questions import Outcome, Question
from mnistbench.course.lab.sheets import CitedNumber, Sheet, Sheets, ratio
from mnistbench.course.lab.texts import Cite, Texts

#: The share of the ranges of a well-calibrated student that contain the measured value.
EXPECTED = 0.8
#: The level of the tests of this share.
LEVEL = 0.10


def calibration(inside: int, judged: int) -> str:
    """Return whether ranges are ``narrow``, ``wide`` or ``right``.

    They were meant to contain 80 % of the values.

    Two one-sided exact binomial tests at LEVEL. Ten ranges or fewer are never too wide, because 0.8
    ** 10 exceeds the level.
    """
    from scipy.stats import binomtest  # imported late, because it takes a second

    few, many = (
        binomtest(inside, judged, EXPECTED, alternative=side).pvalue for side in ("less", "greater")
    )
    return "narrow" if few <= LEVEL else "wide" if many <= LEVEL else "right"


def asked(question: Question, texts: Texts) -> Text:
    """Return the text of a question."""
    key, words = question.wording
    return texts.text("question", key, **words)


def predictions_section(
    directory: Path, findings: Findings, sheets: Sheets, texts: Texts
) -> Callable[[Cite], list[Block]]:
    """Return a function that makes the section; it has no blocks if there are no predictions.

    UsageError if the student's explanations cannot be read, OSError if the file for them cannot be
    written.
    """
    found = findings.predictions
    sheet = sheets.predictions
    failed = [outcome.question for outcome in sheet.rows if outcome.inside is False]
    explained = _explanations(directory / EXPLANATIONS, failed, texts)

    def blocks(cite: Cite) -> list[Block]:
        if not found:
            return []
        heads = [
            texts.plain("column", key)
            for key in ("question", "expected", "range", "measured_value", "inside")
        ]
        rows = [_row(each, texts, cite) for each in sheet.rows]
        table = texts.rows(texts.plain("caption", "predictions"), heads, rows, (sheet.file,))
        missing = texts.text("predictions", "unexplained", file=Code(EXPLANATIONS))
        items: list[Text] = []
        for question in failed:
            own = " ".join(explained.get(question.key, "").split())
            items.append(
                (*asked(question, texts), " ", *((own,) if own else (*missing, Code(question.key))))
            )
        made = texts.text("predictions", "made", student=found.student, time=found.made)
        failures: list[Block] = [texts.text("predictions", "failed"), items] if items else []
        return [made, table, *_calibrated(sheet, texts, cite), *failures]

    return blocks


def _explanations(path: Path, failed: list[Question], texts: Texts) -> Mapping[str, str]:
    """Read the student's explanations.

    If there is no file, write one with an empty text for each prediction that failed.
    """
    if path.exists():
        try:
            found: Mapping[str, str] = Reader(load(path)).read(Mapping[str, str])
        except RecordError as error:
            raise UsageError(f"{path}: {error}") from None
        return found
    if failed:
        lines = [f'# {"".join(map(str, asked(each, texts)))}\n{each.key} = ""' for each in failed]
        content = "\n".join([f"# {texts.plain('predictions', 'failed')}", *lines, ""]).encode()
        replace_file(path, content)
    return {}


def _row(outcome: Outcome, texts: Texts, cite: Cite) -> tuple[Text, ...]:
    measured = outcome.measured
    predicted = outcome.predicted
    kind = ASKED[outcome.question.key]
    if isinstance(measured, CitedNumber):
        found: Text = (Cited(measured.text, cite(measured)),)
    else:
        found = (Code(measured) if measured else units.MISSING,)
    guess, possible = [
        Text((Code(text),)) for text in (predicted[0], ", ".join(map(str, predicted)))
    ]
    if kind != OPERATION:
        low, value, high = (f"{number:g}{' %' if kind == PERCENT else ''}" for number in predicted)
        guess = (value,)
        possible = texts.text("predictions", "range", low=low, high=high)
    verdict = {None: "unmeasured", True: "yes", False: "no"}[outcome.inside]
    return (
        asked(outcome.question, texts),
        guess,
        possible,
        found,
        texts.text("predictions", verdict),
    )


def _calibrated(sheet: Sheet, texts: Texts, cite: Cite) -> list[Block]:
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
    sentences = [
        texts.cited("predictions", calibration(int(inside.value), int(judged.value)), words, cite)
    ]
    if width := ratio(sheet.total("relative_width"), sheet.total("with_width")):
        sentences.append(texts.cited("predictions", "width", {"width": width}, cite))
    return [sentences]
