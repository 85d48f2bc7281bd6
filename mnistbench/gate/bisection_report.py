"""A Bisection -> its report: the reports of the gates, a table of the releases, and the first slower one in a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mnistbench.core import units
from mnistbench.gate import report as gate_report
from mnistbench.gate.bisection import NOT_JUDGED, SLOWER, Bisection, Gate, largest_regressions
from mnistbench.gate.verdict.decision import PASSED, REGRESSED
from mnistbench.showing.markdown import markdown_report
from mnistbench.showing.report import Block
from mnistbench.showing.table import text_table
from mnistbench.showing.terminal import draw_report

#: Version of the JSON report, which docs/schema/bisect-1.json describes; raised as that of a gate's report, which it contains.
#:
#: 1: the first.
SCHEMA = 1


def rendered(bisection: Bisection, form: str, top: int, *, colour: bool = False) -> str:
    """Return the outcome of a search as ``terminal``, ``markdown`` or ``json``.

    Args:
        bisection: with one gate or more.
        form: the format.
        top: number of operations shown per case of each gate.
        colour: whether verdicts are coloured.
    """
    if form == "json":
        return json.dumps(_data(bisection), indent=1, allow_nan=False) + "\n"
    gates = [block for gate in bisection.gates for block in _gate_blocks(bisection, gate, top)]
    if form == "markdown":
        return markdown_report([_releases(bisection), *gates], last_line(bisection), drawn=True)
    last = Block("Result", (last_line(bisection),))
    return draw_report([*gates, _releases(bisection), last], colour=colour) + "\n"


def last_line(bisection: Bisection) -> str:
    """Return the outcome in one sentence."""
    package, first, last = bisection.package, bisection.releases[0], bisection.releases[-1]
    if not bisection.candidates:
        verdict = bisection.gates[0].verdict
        outcome = gate_report.last_line(verdict) if verdict else ""
        if bisection.outcome == PASSED:
            return f"no slower release: {package} {last} is not slower than {first}; {outcome}"
        return f"{package} {first} -> {last}: {outcome}"
    if bisection.outcome == REGRESSED:
        [release] = bisection.candidates
        [outcome] = [
            gate_report.last_line(gate.verdict) for gate in bisection.gates if gate.release == release and gate.verdict
        ]
        return f"first slower release: {package} {release} ({bisection.not_slower} is not slower); {outcome}"
    not_judged = {gate.release for gate in bisection.gates if gate.result == NOT_JUDGED}
    unjudged = [release for release in bisection.candidates if release in not_judged]
    why = bisection.stopped or f"{_listed(unjudged, 'and')} could not be judged; measure again, or increase --launches"
    return (
        f"{bisection.outcome}: the first slower release is {package} {_listed(bisection.candidates, 'or')} "
        f"({bisection.not_slower} is not slower); {why}"
    )


def _listed(releases: Sequence[str], word: str) -> str:
    *others, last = releases
    return f"{', '.join(others)} {word} {last}" if others else last


def _gate_blocks(bisection: Bisection, gate: Gate, top: int) -> Iterable[Block]:
    if gate.verdict:
        head, *others = gate_report.blocks(gate.verdict, top)
        yield replace(head, lines=(f"{bisection.package} {bisection.releases[0]} -> {gate.release}", *head.lines))
        yield from others


def _releases(bisection: Bisection) -> Block:
    """Return the table of all gates, by release."""
    gates = sorted(bisection.gates, key=lambda gate: bisection.releases.index(gate.release))
    table = text_table(
        title=f"releases of {bisection.package}, each against {bisection.releases[0]}",
        headings=("release", "result", "case", "largest regression", "change", "seconds", "raw samples"),
        rows=tuple(row for gate in gates for row in _rows(gate)),
        sums=(),
        numbers_from=4,
        words_after=1,
        lines=tuple(f"{gate.release}: {gate.result}: {gate.reason}" for gate in gates if gate.reason),
    )
    return Block("", (f"{len(bisection.releases)} releases of {bisection.package}: {', '.join(bisection.releases)}",), (table,))


def _rows(gate: Gate) -> Iterable[tuple[str, ...]]:
    """Yield a row for each regressed case of a gate; one row if it has none."""
    of_gate, at_end = (gate.release, gate.result), (f"{gate.seconds:.0f}", gate.raw or units.MISSING)
    regressions = largest_regressions(gate.verdict).values() if gate.verdict and gate.result == SLOWER else ()
    if not regressions:
        yield (*of_gate, units.MISSING, units.MISSING, units.MISSING, *at_end)
    for number, finding in enumerate(regressions):
        quantity = finding.screened.quantity  # its title is that of the tables
        cells = (quantity.case, gate_report.quantity(quantity), units.percent(finding.best.change, signed=True))
        yield (*("", ""), *cells, *("", "")) if number else (*of_gate, *cells, *at_end)


def _data(bisection: Bisection) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "outcome": bisection.outcome,
        "sentence": last_line(bisection),
        "package": bisection.package,
        "releases": list(bisection.releases),
        "candidates": list(bisection.candidates),  # of which one is the first slower release
        "not_slower": bisection.not_slower if bisection.candidates else None,
        "stopped": bisection.stopped,
        "gates": [
            {
                "release": gate.release,
                "result": gate.result,
                "reason": gate.reason,
                "raw": gate.raw,
                "seconds": gate.seconds,
                "report": gate_report.json_data(gate.verdict) if gate.verdict else None,
            }
            for gate in bisection.gates
        ],
    }
