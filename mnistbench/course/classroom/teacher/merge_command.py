"""``mnistbench class merge``: one page and one CSV file of the submissions of a class."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from mnistbench.core import options, units
from mnistbench.core.files import replace_file
from mnistbench.core.units import printable
from mnistbench.course.classroom.score import BANDS, interval
from mnistbench.course.classroom.teacher import cohort
from mnistbench.course.classroom.teacher.cohort import (
    DEMO,
    STATES,
    Copies,
    Entry,
    copies,
    gather,
    places,
    rankings,
)
from mnistbench.course.lab.chapters import document_of, sections_of
from mnistbench.course.lab.predict.predictions import ASKED, OPERATION, PERCENT
from mnistbench.course.lab.predict.questions import Outcome
from mnistbench.course.lab.predict.section import EXPECTED, LEVEL, calibration
from mnistbench.course.lab.sheets import Sheet, Word
from mnistbench.course.lab.texts import Texts, language
from mnistbench.showing.html import html_document
from mnistbench.showing.markdown import markdown_document
from mnistbench.showing.output import EXIT_PASSED, check_directory
from mnistbench.showing.report import Document, Figure, Part
from mnistbench.showing.table import Column, text_table
from mnistbench.showing.text import Text

#: The rows for a grade book. A directory with this file may be replaced.
ROWS = "class.csv"


class ClassWord(Word):
    """A word of the section ``class`` of the wording."""

    __slots__ = ()
    section = "class"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The submissions, and where the page is written."""

    submissions: Path = cohort.submissions()
    lang: str = language()
    output: Path = options.output_directory("output directory", "mnistbench-class")


def run(settings: Settings) -> int:
    """Read the submissions and write the page; return 0.

    UsageError without submissions, or if the output has other files.
    """
    output = settings.output
    texts = Texts(settings.lang)
    check_directory(output, own=(ROWS,))
    entries, ignored = gather(settings.submissions)

    from mnistbench.course.lab.figures import Figures

    output.mkdir(parents=True, exist_ok=True)
    figures = Figures(output, texts)
    shown = itemgetter("ratio", "low", "high")
    families = {
        f"{machine}, b{size}, {dtype}": [
            (units.cut(entry.name, 24), *shown(entry.speedup)) for entry in members
        ]
        for (machine, size, dtype), members in rankings(entries, by_machine=True).items()
    }
    if families:
        figures.speedups(families, BANDS)
    document, rows = page(entries, ignored, texts, figures.drawn)
    print(_summary(entries, texts))
    figures_directory = output / "figures"
    contents = {
        "class.md": markdown_document(document),
        "class.html": html_document(document, figures_directory),
        ROWS: rows.csv(),
    }
    for name, content in contents.items():
        replace_file(output / name, content.encode())
        print(printable(str(output / name)))
    return EXIT_PASSED


def page(
    entries: Sequence[Entry], ignored: Sequence[str], texts: Texts, drawn: Sequence[str]
) -> tuple[Document, Sheet]:
    """Return the page, and the rows of the CSV file.

    ``others`` are files that are no JSON, ``drawn`` are the figures.
    """
    groups = copies(entries)
    rows = Sheet(ROWS, _columns(entries, groups), entries)
    problems = [_complaint(entry, texts) for entry in entries if entry.problems]
    listed: list[Part] = [texts.text("class", "problems"), problems] if problems else []
    parts: dict[str, list[Part]] = {
        "students": [
            *(
                [texts.text("class", "demo")]
                if any(entry.machine.startswith(DEMO) for entry in entries)
                else []
            ),
            _summary(entries, texts),
            *(
                [texts.text("class", "ignored", count=len(ignored), files=", ".join(ignored[:20]))]
                if ignored
                else []
            ),
            replace(texts.table("class_students", rows), is_sortable=True),
            *listed,
        ],
        "class_predictions": _predictions(entries, texts),
        "speedups": _speedups(rows, texts, drawn),
        "copies": _copied(groups, texts),
    }
    return document_of(texts, "class_title", sections_of(texts, parts)), rows


def _complaint(entry: Entry, texts: Texts) -> Text:
    file = f" ({entry.file})" if entry.student else ""
    return Text([f"{entry.name}{file}: {entry.complaint_in(texts)}"])


def _summary(entries: Sequence[Entry], texts: Texts) -> Text:
    count = Counter(entry.state for entry in entries)
    return texts.text(
        "class", "summary", count=len(entries), **{state: count[state] for state in STATES}
    )


def _columns(entries: Sequence[Entry], groups: Sequence[Copies]) -> list[Column[Entry]]:
    """Return the columns of the students.

    Those with a key are in the CSV file, those with a heading are on the page.
    """
    place = places(entries)
    own = places(entries, by_machine=True)

    def calibrated(row: Entry) -> Word | None:
        return ClassWord(calibration(sum(row.judged), len(row.judged))) if row.judged else None

    def in_copies(row: Entry) -> str:
        return "; ".join(group.names for group in groups if row in group.entries)

    return [
        Column("student", lambda row: row.name, key="student"),
        Column(None, lambda row: row.file, key="file"),
        Column("machine", lambda row: row.machine or None, key="machine"),
        Column("state", lambda row: ClassWord(row.state), key="state"),
        Column("hits", lambda row: f"{sum(row.judged)}/{len(row.judged)}" if row.judged else None),
        Column(None, lambda row: sum(row.judged) if row.judged else None, key="inside"),
        Column(None, lambda row: len(row.judged) or None, key="judged"),
        Column("calibration", calibrated, key="calibration"),
        Column("interval", lambda row: interval(row.speedup) if row.speedup else None),
        Column(None, lambda row: row.speedup.get("ratio"), key="ratio"),
        Column(None, lambda row: row.speedup.get("low"), key="low"),
        Column(None, lambda row: row.speedup.get("high"), key="high"),
        Column(None, lambda row: row.score and row.score.batch_size, str, "batch_size"),
        Column(None, lambda row: row.score and row.score.dtype, key="dtype"),
        Column("tie", lambda row: ClassWord("tied") if row.speedup.get("tie") else None, key="tie"),
        Column("band", lambda row: row.speedup.get("band"), "{:g}".format, key="band"),
        Column(None, lambda row: own.get(row.file), str, key="place_in_family"),
        Column(None, lambda row: place.get(row.file), str, key="place_in_class"),
        Column(None, in_copies, key="copies"),
        Column(None, lambda row: row.complaint, key="problems"),
    ]


def _predictions(entries: Sequence[Entry], texts: Texts) -> list[Part]:
    """Return the table of questions over the class, and its calibration.

    Inconsistent submissions do not count.
    """
    counted = [entry for entry in entries if entry.judged and entry.state in STATES[2:]]
    judged = [inside for entry in counted for inside in entry.judged]
    rows = list[Any]()
    if not judged:
        return [texts.text("class", "no_predictions")]
    for key in ASKED:
        outcomes = [
            outcome
            for entry in counted
            for outcome in entry.outcomes
            if outcome.question.key == key and outcome.inside is not None
        ]
        if outcomes:
            share = units.percent(sum(bool(outcome.inside) for outcome in outcomes) / len(outcomes))
            spreads = (_spread(key, outcomes, guesses=guesses) for guesses in (True, False))
            rows.append((texts.text("class", f"ask_{key}"), str(len(outcomes)), share, *spreads))
    heads = [
        texts.plain("column", key)
        for key in ("question", "judged", "inside", "guesses", "measured_values")
    ]
    caption = texts.plain("caption", "class_predictions")
    table = text_table(caption, heads, rows, words_after=2)
    words = {
        "inside": sum(judged),
        "judged": len(judged),
        "expected": f"{EXPECTED * len(judged):.1f}",
    }
    whole = texts.text(
        "predictions", calibration(sum(judged), len(judged)), level=f"{100 * LEVEL:g} %", **words
    )
    own = Counter(calibration(sum(entry.judged), len(entry.judged)) for entry in counted)
    students = texts.text(
        "class", "calibrations", **{key: own[key] for key in ("narrow", "right", "wide", "few")}
    )
    return [texts.text("class", "spread"), table, [whole, students]]


def _spread(key: str, outcomes: Sequence[Outcome], *, guesses: bool) -> str:
    """Return the median and the quartiles of numbers, or how often each operation occurs."""
    if ASKED[key] == OPERATION:
        names = Counter(
            str(outcome.predicted[0] if guesses else outcome.operation) for outcome in outcomes
        )
        return ", ".join(f"{name} {count}" for name, count in names.most_common())
    numbers = [
        float((outcome.predicted[1] if guesses else outcome.number) or 0) for outcome in outcomes
    ]
    first, median, third = statistics.quantiles(
        numbers if len(numbers) > 1 else numbers * 2, n=4, method="inclusive"
    )
    return f"{median:.3g} ({first:.3g} - {third:.3g}){' %' if ASKED[key] == PERCENT else ''}"


def _speedups(students: Sheet, texts: Texts, drawn: Sequence[str]) -> list[Part]:
    """Return the figure, and the places of each machine family, with columns of the students."""
    ranked = [
        entry for members in rankings(students.rows, by_machine=True).values() for entry in members
    ]
    by = {column.heading or column.key: column for column in students.columns}
    if not ranked:
        return [texts.text("class", "no_scores")]
    keys = (
        "machine",
        "batch_size",
        "dtype",
        "place_in_family",
        "student",
        "interval",
        "tie",
        "band",
        "place_in_class",
    )
    table = texts.table(
        "places", Sheet(ROWS, [replace(by[key], heading=key) for key in keys], ranked)
    )
    figures = [Figure(name, texts.plain("caption", "speedups")) for name in drawn]
    return [
        *figures,
        texts.text("class", "ranking", bands=", ".join(f"{band:g}" for band in BANDS)),
        table,
    ]


def _copied(groups: Sequence[Copies], texts: Texts) -> list[Part]:
    if not groups:
        return [texts.text("class", "no_copies")]
    rows = [(group.names, str(group.number)) for group in groups]
    heads = [texts.plain("column", key) for key in ("students", "count")]
    return [
        texts.text("class", "copies"),
        texts.rows(texts.plain("caption", "copies"), heads, rows, numbers=1),
    ]
