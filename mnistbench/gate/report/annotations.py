"""What a job on GitHub gets of a verdict: annotations of changed lines, and outputs of the step.

An annotation is a line that the runner reads from the log of a job, a *workflow command*. GitHub
shows it beside the line of the pull request that it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.files import Limit, read_limited
from mnistbench.core.units import cut, printable
from mnistbench.gate.listing import is_of_file, name_of_test
from mnistbench.gate.report.outcome import sentence
from mnistbench.gate.report.rows import FindingRow, Rows
from mnistbench.gate.survey.reach import source
from mnistbench.judging.verdicts import IMPROVED, INCONCLUSIVE, REGRESSED, SLOWER

#: Most annotations of a step: GitHub shows ten errors and ten warnings.
MAX_ANNOTATIONS = 10

#: Most characters of an annotation: GitHub cuts longer ones.
_LONGEST_TEXT = 4_000

#: Largest Python file in which a function is looked for.
_LARGEST_SOURCE = Limit(4_000_000, "a Python file", "divide it")


class Place(NamedTuple):
    """What an annotation points at."""

    path: str  # relative to the root of the repository; empty if no file is known
    line: int = 0  # 0 if it is not known


def outputs(rows: Rows) -> dict[str, str]:
    """Return the outputs of the step that runs the gate.

    ``found`` is ``true`` if somebody should read the report: something regressed or improved, or
    the gate could not decide about something that looks slower.
    """
    verdict = rows.verdict
    regressed = [finding.quantity.case for finding in verdict.regressions]
    is_open = verdict.outcome == INCONCLUSIVE and bool(rows.findings)
    is_clear = any(row.finding.verdict in (REGRESSED, SLOWER, IMPROVED) for row in rows.findings)
    return {
        "verdict": verdict.outcome,
        "regressed": json.dumps(list(dict.fromkeys(regressed))),
        "found": "true" if is_open or is_clear else "false",
    }


def annotation_lines(rows: Rows, root: Path) -> list[str]:
    """Return a workflow command for each place with a regression or an undecided slowdown.

    Args:
        rows: the content of the report.
        root: folder of the files that the report names; they may be missing.
    """
    verdict = rows.verdict
    if verdict.header.shard.of > 1 and not verdict.recorded.shards:
        return []  # the job that judges all shards has them
    texts: dict[tuple[str, Place], list[str]] = {}
    for row in rows.findings:
        if level := _level(row, rows):
            text = "; ".join(filter(None, (row.line, row.cause)))
            texts.setdefault((level, _place(row, rows, root)), []).append(text)
    commands = [
        workflow_command(level, place, f"mnistbench: {_title(level)}", lines)
        for (level, place), lines in texts.items()
    ]
    is_excusable = all(reason.is_excusable for reason in verdict.reasons)
    if verdict.outcome == INCONCLUSIVE and not commands and not is_excusable:
        commands = [workflow_command("warning", Place(""), "mnistbench", [sentence(rows)])]
    return commands[:MAX_ANNOTATIONS]


def _level(row: FindingRow, rows: Rows) -> str:
    """Return the level of a finding: ``error``, ``warning``, or empty for none."""
    if row.finding.fails:
        blocks = rows.verdict.outcome == REGRESSED and not rows.verdict.options.report_only
        return "error" if blocks else "warning"
    is_open = row.finding.verdict in (SLOWER, INCONCLUSIVE) and not row.finding.accepted
    return "warning" if is_open else ""


def _title(level: str) -> str:
    return REGRESSED if level == "error" else "not decided"


def workflow_command(level: str, place: Place, title: str, lines: Iterable[str]) -> str:
    """Return a line that the runner of GitHub shows as an annotation.

    Names come from the measured code. Control characters are escaped, so that a name cannot end
    the line and begin a command of its own.
    """
    properties = {"file": place.path, "line": str(place.line or ""), "title": title}
    given = ",".join(
        f"{name}={_escaped_property(value)}" for name, value in properties.items() if value
    )
    text = cut("\n".join(map(printable, lines)), _LONGEST_TEXT)
    return f"::{level} {given}::{_escaped(text)}"


def _escaped(text: str) -> str:
    """Escape a message; the runner undoes it (``@actions/core``, ``command.ts``)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(printable(text)).replace(":", "%3A").replace(",", "%2C")


# ---- Places --------------------------------------------------------------------------------------


def _place(row: FindingRow, rows: Rows, root: Path) -> Place:
    """Return the likely cause of a finding, else the function of its test."""
    cause = row.explanation.cause
    # ``pkg/parse.py:Parser.read``, or ``pkg/parse.py:6`` for a statement that runs at import.
    path, _, name = cause.name.rpartition(":") if cause else ("", "", "")
    if cause is None or not path.endswith(".py"):
        return _place_of_test(row.finding.quantity.case, rows, root)
    if name.isdigit():
        return Place(path, int(name))
    return Place(path, cause.line or _line(root / path, name))


def _place_of_test(case: str, rows: Rows, root: Path) -> Place:
    """Return the file of a test, and the line of its function.

    The folder in which pytest runs may be below the root of the repository.
    """
    listed = rows.verdict.header.sides.head.cases.get(case)
    path, *names = name_of_test(case).split("::")
    if listed is None or not path.endswith(".py"):
        return Place("")
    files = [file for file in listed.sources if is_of_file(case, file)]
    path = files[0] if files else path
    return Place(path, _line(root / path, ".".join(names)))


def _line(file: Path, name: str) -> int:
    """Return the first line of a function; 0 if it is not there."""
    try:
        functions = source.read(read_limited(file, _LARGEST_SOURCE)).functions
    except (OSError, MnistbenchError, ValueError, SyntaxError, RecursionError):
        return 0  # not checked out, or another version of Python
    return next((function.line for function in functions if function.name == name), 0)
