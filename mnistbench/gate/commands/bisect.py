"""``mnistbench bisect``.

Find the first slower release of a package, with a gate for each release that is measured.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from packaging.requirements import Requirement

from mnistbench.core import units
from mnistbench.core.options import ToolTable, argument, options_of
from mnistbench.gate.commands.bisection import (
    NOT_JUDGED,
    SLOWER,
    Bisection,
    Gate,
    bisect,
    largest_regressions,
)
from mnistbench.gate.commands.result import result_of
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.environments.releases import Range, release_range, releases
from mnistbench.gate.flow import measure
from mnistbench.gate.options import TOOL_TABLE, GateOptions, RunOptions
from mnistbench.gate.report.data import json_data
from mnistbench.gate.report.outcome import excused
from mnistbench.gate.report.outcome import last_line as gate_sentence
from mnistbench.gate.report.rows import Rows, signed, table_name
from mnistbench.gate.report.text import blocks as gate_blocks
from mnistbench.judging.acceptance import FAIL
from mnistbench.judging.verdicts import PASSED, REGRESSED
from mnistbench.showing.output import CommandResult
from mnistbench.showing.progress import Progress
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table


@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """The options of the command. Both sides of each gate are the working tree as it is."""

    tool_table: ClassVar[ToolTable] = TOOL_TABLE

    range: Range = argument(
        "RANGE",
        release_range,
        "releases of an installed package, NAME==FIRST..LAST, such as torch==2.13.0..2.15.0",
    )


def run(settings: Settings) -> CommandResult:
    """Run gates until the first slower release is known, and return the report.

    Raises:
        MnistbenchError: uv fails, or the first gate cannot be run.
    """
    name = settings.range.name
    bisection = Bisection(name, releases(settings.range))
    run_options = {option: getattr(settings, option) for option in options_of(RunOptions)}
    # The last line of the search says what excuses it, not those of its gates.
    run_options |= {"inconclusive": FAIL, "report_only": False}
    with Progress(sys.stderr) as progress:

        def gate(release: str, only: tuple[str, ...], budget_s: float) -> tuple[str, Verdict]:
            base_with, head_with = (
                (Requirement(f"{name}=={version}"),) for version in (bisection.releases[0], release)
            )
            run_options["budget_s"] = budget_s
            request = GateOptions(
                **run_options,
                base_with=base_with,
                head_with=head_with,
                only=only,
            )
            verdict = measure(request, progress)
            path = verdict.recorded.path
            progress.say(f"raw samples: {path}")
            return str(path), verdict

        most = bisection.most_gates
        gates = (
            "1 gate"
            if most == 1
            else f"at most {most} gates, and one more for each that cannot judge its release"
        )
        progress.say(
            f"{len(bisection.releases)} releases of {name}: {', '.join(bisection.releases)}; "
            f"{gates}"
        )
        result = bisect(
            bisection,
            gate,
            progress.say,
            budget_s=math.inf if settings.budget_s is None else settings.budget_s,
        )
    excuse = excused(result, settings)
    return result_of(report(result, excuse), settings, result.outcome, excuse)


# ---- Report --------------------------------------------------------------------------------------


def report(bisection: Bisection, excuse: str = "") -> Report:
    """Return the report of a search with one gate or more.

    It has the reports of the gates, a table of releases, and the outcome.

    Args:
        bisection: the search.
        excuse: why its exit code is 0 whatever the outcome is; empty if it is not.
    """
    blocks: list[Block] = []
    for gate in bisection.gates:
        if gate.verdict:
            head, *rest = gate_blocks(Rows(gate.verdict))
            blocks += [
                replace(
                    head,
                    lines=(
                        f"{bisection.package} {bisection.releases[0]} -> {gate.release}",
                        *head.lines,
                    ),
                ),
                *rest,
            ]
    outcome = "; ".join(filter(None, (last_line(bisection), excuse)))
    data = document("bisection", **_data(bisection, outcome))
    return Report(
        outcome, [*blocks, _releases(bisection), Block("Result", (outcome,))], data, drawn=True
    )


def last_line(bisection: Bisection) -> str:
    """Return the outcome in one sentence."""
    package = bisection.package
    first = bisection.releases[0]
    last = bisection.releases[-1]
    if not bisection.candidates:
        verdict = bisection.gates[0].verdict
        outcome = gate_sentence(verdict) if verdict else ""
        if bisection.outcome == PASSED:
            return f"no slower release: {package} {last} is not slower than {first}; {outcome}"
        return f"{package} {first} -> {last}: {outcome}"
    if bisection.outcome == REGRESSED:
        [release] = bisection.candidates
        [outcome] = [
            gate_sentence(gate.verdict)
            for gate in bisection.gates
            if gate.release == release and gate.verdict
        ]
        return (
            f"first slower release: {package} {release} ({bisection.not_slower} is not slower); "
            f"{outcome}"
        )
    not_judged = {gate.release for gate in bisection.gates if gate.result == NOT_JUDGED}
    unjudged = [release for release in bisection.candidates if release in not_judged]
    why = (
        bisection.stopped
        or f"{units.joined(unjudged)} could not be judged; measure again, or increase --trials"
    )
    return (
        f"{bisection.outcome}: the first slower release is {package} "
        f"{units.joined(bisection.candidates, 'or')} ({bisection.not_slower} is not slower); {why}"
    )


class _Row(NamedTuple):
    """A regressed case of a gate, or a gate without any."""

    gate: Gate
    is_first: bool  # of its gate
    finding: GateFinding | None


def _case_name(row: _Row) -> str | None:
    if row.finding is None or row.gate.verdict is None:
        return None
    return row.gate.verdict.names[row.finding.quantity.case]


def _releases(bisection: Bisection) -> Block:
    """Return the table of all gates, by release.

    A row for each regressed case, or one row for a gate without any.
    """
    gates = sorted(bisection.gates, key=lambda gate: bisection.releases.index(gate.release))
    rows = [
        _Row(gate, number == 0, finding)
        for gate in gates
        for number, finding in enumerate(_regressions(gate) or [None])
    ]
    columns = (
        Column[_Row]("release", lambda row: row.gate.release if row.is_first else ""),
        Column[_Row]("result", lambda row: row.gate.result if row.is_first else ""),
        Column[_Row]("case", _case_name),
        Column[_Row](
            "largest regression",
            lambda row: row.finding and table_name(row.finding.quantity),
        ),
        Column[_Row]("change", lambda row: row.finding and row.finding.best.change, signed),
        Column[_Row](
            "time", lambda row: units.duration(1e9 * row.gate.seconds) if row.is_first else "", str
        ),
        Column[_Row]("raw samples", lambda row: (row.gate.raw or None) if row.is_first else ""),
    )
    reasons = tuple(
        f"{gate.release}: {gate.result}: {gate.reason}" for gate in gates if gate.reason
    )
    table = Table(
        f"releases of {bisection.package}, each against {bisection.releases[0]}",
        columns,
        rows,
        lines=reasons,
    )
    return Block(
        "",
        (
            (
                f"{len(bisection.releases)} releases of {bisection.package}: "
                f"{', '.join(bisection.releases)}"
            ),
        ),
        (table,),
    )


def _regressions(gate: Gate) -> list[GateFinding]:
    return (
        list(largest_regressions(gate.verdict).values())
        if gate.verdict and gate.result == SLOWER
        else []
    )


def _data(bisection: Bisection, sentence: str) -> dict[str, Any]:
    """Return the search for JSON, which docs/schema/bisection.json describes."""
    return {
        "outcome": bisection.outcome,
        "sentence": sentence,
        "package": bisection.package,
        "releases": bisection.releases,
        "candidates": bisection.candidates,  # of which one is the first slower release
        "not_slower": bisection.not_slower if bisection.candidates else None,
        "stopped": bisection.stopped,
        "gates": [
            {
                **{
                    name: getattr(gate, name)
                    for name in ("release", "result", "reason", "raw", "seconds")
                },
                "report": document("gate", **json_data(Rows(gate.verdict)))
                if gate.verdict
                else None,
            }
            for gate in bisection.gates
        ],
    }
