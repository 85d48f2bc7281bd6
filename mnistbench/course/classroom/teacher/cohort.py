"""The submissions of a class: what each file has, the places of the students, and likely copies.

Runs nothing of them.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.core.errors import MnistbenchError, UsageError, first_line
from mnistbench.core.options import argument, path
from mnistbench.core.units import cut, printable
from mnistbench.course.classroom.score import Score
from mnistbench.course.classroom.submission import (
    DISTURBED,
    DOUBTFUL,
    INCOMPLETE,
    INCONSISTENT,
    Flaw,
    problems,
    read,
)
from mnistbench.course.lab.lab_file import Findings
from mnistbench.course.lab.predict.questions import Outcome
from mnistbench.course.lab.texts import Texts

#: The worst state of a file; the states between this one and COMPLETE are kinds of problems.
UNREADABLE = "unreadable"
#: The best state of a file.
COMPLETE = "complete"
STATES = (UNREADABLE, INCONSISTENT, DOUBTFUL, INCOMPLETE, DISTURBED, COMPLETE)

#: CPU models of generated submissions (docs/make_class.py) begin so.
DEMO = "demo CPU"

#: Characters that are shown of a name.
NAME = 60
#: Characters that are shown of a reason.
REASON = 300


def submissions() -> Any:
    """Declare the folder of the submissions."""
    text = "folder with the students' files, or with a folder for each"
    return argument("SUBMISSIONS", path, text)


@dataclass(frozen=True)
class Entry:
    """A file of the class; its texts are printable and short."""

    file: str  # below the folder
    student: str = ""  # empty if it is not known
    machine: str = ""  # model of the CPU
    problems: tuple[Flaw, ...] = ()  # their kinds are of STATES
    findings: Findings | None = None  # None, like the others, if they are missing or wrong
    score: Score | None = None
    quiet: Score | None = None
    explanations: Mapping[str, str] = field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()  # of predictions
    speedup: Mapping[str, Any] = field(default_factory=dict)  # of the score

    @property
    def name(self) -> str:
        """The student, or the file if no student is known."""
        return self.student or self.file

    @property
    def state(self) -> str:
        """The worst of STATES."""
        kinds = {flaw.kind for flaw in self.problems}
        return next((state for state in STATES if state in kinds), COMPLETE)

    @property
    def complaint(self) -> str:
        """All problems in one line."""
        return self.complaint_in(Texts("en"))

    def complaint_in(self, texts: Texts) -> str:
        """Return all problems in one line, in a language."""
        lines = (cut(printable(flaw.text_in(texts)), REASON) for flaw in self.problems)
        return texts.plain("class", "separator").join(lines)

    @property
    def judged(self) -> list[bool]:
        """Whether the range contains the measured value, of each prediction that has one."""
        return [outcome.inside for outcome in self.outcomes if outcome.inside is not None]

    @property
    def task(self) -> tuple[int, str]:
        """Batch size and number format of the score; all scores are of digits."""
        return (self.score.batch_size, self.score.dtype) if self.score else (0, "")

    @property
    def has_place(self) -> bool:
        """Whether the score counts: there is one, and nothing is inconsistent or doubtful."""
        return bool(self.speedup) and self.state not in (INCONSISTENT, DOUBTFUL)


def gather(folder: Path) -> tuple[list[Entry], list[str]]:
    """Return an entry for each JSON file in a folder, and the names of other files.

    Up to two folders below it are read.

    Links are not followed. A file that cannot be read is an entry with the reason. UsageError if
    there is no such file.
    """
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"SUBMISSIONS: {folder} {problem}; name the folder of the submissions")
    paths = list[Path]()
    refused = list[OSError]()
    for root, folders, files in os.walk(folder, onerror=refused.append):
        is_deepest = len(Path(root).relative_to(folder).parts) == 2
        folders[:] = (
            [] if is_deepest else sorted(name for name in folders if not name.startswith("."))
        )
        paths += (Path(root, name) for name in sorted(files) if not name.startswith("."))
    wanted = [path for path in paths if path.suffix.lower() == ".json"]
    if not wanted:
        why = "".join(f" ({error.filename}: {error.strerror})" for error in refused[:1])
        raise UsageError(
            f"SUBMISSIONS: {folder} has no *.json, nor have the folders in it{why}; name the "
            "folder of the submissions"
        )
    entries = [_entry(path, folder) for path in wanted]
    entries += [
        _entry(Path(error.filename), folder, f"cannot be read ({error.strerror})")
        for error in refused
    ]
    count = Counter(entry.student.casefold() for entry in entries if entry.student)
    for position, entry in enumerate(entries):
        if (number := count[entry.student.casefold()]) > 1:  # the teacher decides which one counts
            words = {"student": entry.student, "count": number}
            double = Flaw(DOUBTFUL, "", "several_submissions", words)
            entries[position] = replace(entry, problems=(*entry.problems, double))
    return entries, [cut(printable(path.name), NAME) for path in paths if path not in wanted]


def _entry(path: Path, folder: Path, reason: str = "") -> Entry:
    file = cut(printable(str(path.relative_to(folder))), NAME + 20)
    try:
        if reason:
            raise MnistbenchError(reason)  # noqa: TRY301
        submission = read(path)
        parts = dict[str, Any]()
        for name in ("findings", "score", "quiet", "explanations", "outcomes"):
            with suppress(MnistbenchError):  # it is one of the problems
                parts[name] = getattr(submission, name)
        measured = parts.get("findings") or parts.get("score")
        student = submission.student
        machine = measured.environment.cpu_model if measured else ""
        student, machine = (cut(printable(text.strip()), NAME) for text in (student, machine))
        return Entry(
            file,
            student,
            machine,
            problems(submission),
            speedup=score.speedup if (score := parts.get("score")) else {},
            **parts,
        )
    except MnistbenchError as error:
        flaw = Flaw.of_error(UNREADABLE, "", str(error).removeprefix(f"{path}: "))
    except Exception as error:  # noqa: BLE001  # made-up numbers can raise anything
        words = {"type": type(error).__name__, "text": first_line(error)}
        flaw = Flaw(UNREADABLE, "", "not_evaluated", words)
    return Entry(file, problems=(flaw,))


def rankings(
    entries: Iterable[Entry], *, by_machine: bool = False
) -> dict[tuple[Any, ...], list[Entry]]:
    """Return the entries with a place, the fastest first, by task.

    ``by_machine`` by machine and task.
    """
    ranked = defaultdict[tuple[Any, ...], list[Entry]](list)
    for entry in sorted(
        (entry for entry in entries if entry.has_place),
        key=lambda entry: (-entry.speedup["ratio"], entry.file),
    ):
        ranked[(entry.machine, *entry.task) if by_machine else entry.task].append(entry)
    return dict(sorted(ranked.items()))


def places(entries: Iterable[Entry], *, by_machine: bool = False) -> dict[str, int]:
    """Return file -> place in its ranking.

    Those whose intervals overlap that of the fastest one of a place share the place.
    """
    place_of_file = dict[str, int]()
    for ranked in rankings(entries, by_machine=by_machine).values():
        low = math.inf
        place = 0
        for number, entry in enumerate(ranked, 1):
            if entry.speedup["high"] < low:
                low = entry.speedup["low"]
                place = number
            place_of_file[entry.file] = place
    return place_of_file


# ---- Copies --------------------------------------------------------------------------------------


class Copies(NamedTuple):
    """Submissions with equal raw times, which is improbable by chance."""

    entries: tuple[Entry, ...]
    number: int  # of equal series

    @property
    def names(self) -> str:
        """The students."""
        return ", ".join(entry.name for entry in self.entries)


def copies(entries: Sequence[Entry]) -> list[Copies]:
    """Return the submissions of different students that have equal series of times."""
    owners: dict[tuple[float, ...], set[int]] = defaultdict(set)
    for number, entry in enumerate(entries):
        for series in _series(entry):
            owners[series].add(number)
    groups = Counter(tuple(sorted(numbers)) for numbers in owners.values())
    shared = [
        Copies(tuple(entries[number] for number in numbers), count)
        for numbers, count in groups.items()
    ]
    return [group for group in shared if len({entry.name for entry in group.entries}) > 1]


def _series(entry: Entry) -> Iterator[tuple[float, ...]]:
    """Yield the raw times of iterations and turns, each divided by the first of its series.

    A factor does not hide a copy.

    Shorter series, and those of fewer different times, may be equal by chance.
    """
    trials = [trial for score in (entry.score, entry.quiet) if score for trial in score.trials]
    series = [(*trial.reference_ns, *trial.student_ns) for trial in trials]
    if findings := entry.findings:
        series += [
            measured.times_ns for measured in (*findings.iteration_times, *findings.epoch_times)
        ]
        series += [table.iteration_ns for _, table in findings.tables]
    for times in series:
        if len(times) >= 8 and len(set(times)) >= 4 and times[0]:
            yield tuple(round(ns / times[0], 4) for ns in times)
