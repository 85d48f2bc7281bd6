"""What a reader of a pull request sees first: a few lines, below which the report is folded."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from mnistbench.core import units
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.explain.texts import LIKELY, named
from mnistbench.gate.report.outcome import counted_findings, excused, limits_of_result, outcome_text
from mnistbench.gate.report.rows import FindingGroup, Rows, change_with_interval, rows_by_noun
from mnistbench.gate.samples.case_profile import GRAPH, OtherChange, ProfiledFunction
from mnistbench.gate.survey.reach.differences import GONE
from mnistbench.judging.verdicts import IMPROVED, PASSED, REGRESSED
from mnistbench.showing.text import Link, Text

#: Lines of a first screen. What does not fit is counted.
_SCREEN_LINES = 15
#: Characters of a line on a phone (380 pixels), less what names leave free that cannot be broken.
_LINE_CHARACTERS = 38

#: Most characters of a name, which may be much longer than a line.
_NAME_CHARACTERS = 100

#: What a gate calls its head if that is a commit. In the checkout of a job, changes are what its
#: steps have left, such as the metadata of an installation.
_COMMIT = re.compile(r"([0-9a-f]{7,40})(?: with changes)?")


def first_screen(rows: Rows, environ: Mapping[str, str] = os.environ) -> tuple[str, list[Text]]:
    """Return the outcome, and the lines between it and the folded report.

    Args:
        rows: the content of the report.
        environ: of a job of GitHub, in which causes are links.
    """
    outcome = outcome_text(rows, is_brief=True)
    tree = address_of_head(rows.verdict.header.head, environ)
    # The outcome says which ones have regressed, unless the gate was broken off.
    implied = REGRESSED if rows.verdict.outcome == REGRESSED else ""
    slowdowns = [
        _slowdown(group, tree, implied) for group in rows.groups if group.rows[0].finding.is_slower
    ]
    improved = [row for row in rows.findings if row.finding.verdict == IMPROVED]
    # The outcome of a pass counts them.
    counts_improved = improved and rows.verdict.outcome != PASSED
    others = [
        f"{counted_findings(improved)} improved" if counts_improved else "",
        "; ".join(_reach(rows.verdict)),
    ]
    excuse = excused(rows.verdict, rows.verdict.options)
    other_lines = [Text([line]) for line in (*others, excuse) if line]
    limits = [Text([limit]) for limit in limits_of_result(rows.verdict)]
    left = _SCREEN_LINES - _height(outcome) - sum(map(_height, other_lines))
    first = _fitting(slowdowns, left, "more slowdown", least=1)
    last = _fitting(limits, left - sum(map(_height, first)), "more limitation")
    return outcome, [*first, *other_lines, *last]


def _height(text: str | Text) -> int:
    """Return the lines of a text on a phone."""
    return math.ceil(len(str(text)) / _LINE_CHARACTERS)


def _fitting(lines: list[Text], height: int, noun: str, *, least: int = 0) -> list[Text]:
    """Return the first lines that fit into a height, and how many more there are.

    Args:
        lines: all of them.
        height: in lines on a phone.
        noun: what the others are.
        least: number of lines that are there even if they do not fit.
    """
    fitting = list(lines)
    while len(fitting) > least and sum(map(_height, fitting)) + (fitting != lines) > height:
        fitting.pop()
    if more := len(lines) - len(fitting):
        noun = noun if fitting else noun.removeprefix("more ")
        fitting.append(Text([f"{units.counted(more, noun)} in the report"]))
    return fitting


def _slowdown(group: FindingGroup, tree: str, implied: str) -> Text:
    """Return the first finding of a group, how many others it has, and the likely cause.

    Args:
        group: whose first finding is a slowdown.
        tree: address of the files of the head.
        implied: a verdict that the line need not have.
    """
    first = group.rows[0]
    [noun_of_first] = rows_by_noun([first])
    verdict = "" if first.verdict == implied else f"{first.verdict}: "
    name = units.cut(first.name, _NAME_CHARACTERS)
    found = [f"{verdict}{name}, {change_with_interval(first.estimate, first.trials)}"]
    slower = [row for row in group.rows if row.finding.is_slower]
    for noun, counted in rows_by_noun(slower).items():
        if noun != noun_of_first:
            found.append(units.counted(len(counted), noun))
        elif len(counted) > 1:
            found.append(units.counted(len(counted) - 1, f"more {noun}"))
    text = units.joined(found)
    if group.cause:
        others = "" if group.is_only else " or another one"
        return Text([f"{text}; {LIKELY}", _place(group.cause, tree), others])
    return Text([f"{text}; {first.cause}" if first.cause.startswith(LIKELY) else text])


def _reach(verdict: Verdict) -> Iterator[str]:
    """Yield how many cases were left out, and how much changed code no case shows."""
    reach = verdict.reach
    if same := len(reach.same):
        yield f"{units.counted(same, 'case runs', 'cases run')} the same code on both sides"
    if uncovered := len(reach.uncovered):
        are = units.counted(
            uncovered, "changed function or name is", "changed functions or names are"
        )
        yield f"{are} used by no case"
    if unused := len(reach.unused):
        yield f"{units.counted(unused, 'changed file was', 'changed files were')} not seen in use"


# ---- Links ---------------------------------------------------------------------------------------


def address_of_head(head: str, environ: Mapping[str, str]) -> str:
    """Return the address of the files of the head on GitHub; empty outside of a job there."""
    server, repository = (environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY"))
    named = _COMMIT.fullmatch(head)
    if not server or not repository or not named:
        return ""
    commit = environ.get("GITHUB_SHA", "")
    return f"{server}/{repository}/blob/{commit if commit.startswith(named[1]) else named[1]}"


def _place(cause: ProfiledFunction | OtherChange, tree: str) -> Link | str:
    """Return the name of a cause with its line, as a link to it if it is in the head."""
    name = named(cause)
    if cause.line and not (isinstance(cause, OtherChange) and cause.kind == GRAPH):
        name = name.replace(f"{cause.path}:", f"{cause.path}:{cause.line} ", 1)
    if not tree or not cause.path or cause.change == GONE:
        return name
    line = f"#L{cause.line}" if cause.line else ""
    return Link(name, f"{tree}/{quote(cause.path)}{line}")
