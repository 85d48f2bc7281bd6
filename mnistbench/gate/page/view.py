"""A verdict -> what its HTML page shows.

The sentence, findings, all cases as a forest plot, one-time costs, and what it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mnistbench.core import units
from mnistbench.gate.causes.texts import LIKELY
from mnistbench.gate.page.forest import ForestPlot, six_digits, tone
from mnistbench.gate.page.icicles import Icicles
from mnistbench.gate.page.operations import OperationTables
from mnistbench.gate.report.findings import FindingEntry, finding_entries, replacements, reproducers
from mnistbench.gate.report.head import head_lines
from mnistbench.gate.report.notes import note_lines
from mnistbench.gate.report.outcome import (
    bounds_of_once,
    limitations,
    not_decided,
    not_seen,
    outcome_text,
)
from mnistbench.gate.report.selection import verdicts_of_quantities, with_everything
from mnistbench.gate.report.tables import CONFIDENT, CaseRow, case_rows, clocks_of
from mnistbench.gate.report.texts import change_text, signed
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.gate.words import ALL_CASES
from mnistbench.judging.kinds import MEMORY
from mnistbench.judging.verdicts import GRAVITY
from mnistbench.showing.page.html_page import html_page

#: Lines of a list that are open; the others are folded.
OPEN_LINES = 10

#: Cases above which the page has a field that filters them.
FEW_CASES = 10

#: Verdict of a case in which a slowdown is not ruled out.
NOT_DECIDED = "not decided"

#: A cell of a table that can be sorted: its text, and what it is sorted by.
Cell = tuple[str, float | None]


def gate_page(verdict: Verdict) -> str:
    """Return the page of a verdict, a whole HTML document."""
    return html_page("gate.html", **view(with_everything(verdict)))


def view(verdict: Verdict) -> dict[str, Any]:
    """Return what the template shows of a verdict whose options show everything."""
    decision = verdict.shown
    limits = verdict.options
    rows = sorted(case_rows(verdict), key=_rank)
    entries = finding_entries(verdict)
    ids = {row.case: f"case{position}" for position, row in enumerate(rows)}
    tables = OperationTables(verdict)
    icicles = Icicles(verdict.end.profiles, len(decision.operations))
    cases = ForestPlot("cases", [row.estimate for row in rows], limits)
    findings = ForestPlot("findings", [entry.estimate for entry in entries], limits)
    once = ForestPlot("once", decision.once, limits)
    clocks = clocks_of(rows)
    case_views = [
        _case_view(row, ids[row.case], cases, tables, icicles, clocks, verdict) for row in rows
    ]
    compared, measured, *conditions = head_lines(verdict)
    return {
        "open_lines": OPEN_LINES,
        "few_cases": FEW_CASES,
        "confident": CONFIDENT,
        "outcome": verdict.outcome,
        "tone": tone(verdict.outcome),
        "outcome_text": outcome_text(verdict),
        "limitations": [*limitations(verdict)],
        "compared": compared,
        "measured": measured,
        "conditions": conditions,
        "plots": {
            plot.name: plot for plot in (findings, cases, once, tables.plot) if plot.estimates
        },
        "findings": _finding_groups(entries, findings, ids),
        "not_decided": not_decided(verdict),
        "case_threshold": units.percent(limits.case),
        "clocks": [*clocks.values()],
        "cases": case_views,
        "operation_names": tables.names,
        "function_names": icicles.names,
        "same": sorted(verdict.names[case] for case in verdict.reach.same),
        "uncovered": verdict.reach.uncovered,
        "unused": (*verdict.reach.unused, *verdict.reach.dependencies),
        "once": _once_views(once, ids, verdict),
        "once_bounds": [*bounds_of_once(verdict)],
        "once_differences": verdict.exact_differences.get(ALL_CASES, ()),
        # Too few launches have no estimate of a case, but the differences that were counted.
        "differences": [
            f"{verdict.names[case]}: {text}"
            for case, texts in verdict.exact_differences.items()
            if case not in ids and case != ALL_CASES
            for text in texts
        ],
        "replaced": [*replacements(verdict)],
        "reproducers": [*reproducers(verdict)],
        "notes": [*note_lines(verdict), *not_seen(verdict)],
    }


def _rank(row: CaseRow) -> tuple[int, float]:
    """Return a key that sorts cases: findings, what is not decided, the others; slowest first."""
    if row.verdict:
        rank = GRAVITY.index(row.verdict.partition(",")[0])
    else:
        rank = len(GRAVITY) + (row.verdict is None)
    return rank, -row.estimate.change


def _change(change: float) -> Cell:
    return signed(change), six_digits(change)


def _amount(estimate: Estimate, amount: float) -> Cell:
    is_memory = estimate.quantity.kind == MEMORY
    return (units.size if is_memory else units.duration)(amount), six_digits(amount)


def _bound(high: float | None) -> Cell:
    if high is None or not math.isfinite(high):
        return units.MISSING, None
    return units.percent_up(high), six_digits(high)


def _bounds(estimate: Estimate) -> str:
    """Return the interval as text; empty if the change is no share, because the base is 0."""
    if estimate.change == math.inf:
        return ""
    return f"{signed(estimate.low)} to {signed(estimate.high)}"


def _estimate_view(estimate: Estimate, plot: ForestPlot, verdict: str) -> dict[str, Any]:
    """Return the cells that each table of estimates has."""
    quantity = estimate.quantity
    return {
        "change": _change(estimate.change),
        "bounds": _bounds(estimate),
        "base": _amount(estimate, quantity.base_ns),
        "head": _amount(estimate, quantity.head_ns),
        "verdict": verdict,
        "tone": tone(verdict),
        "grid": f"{plot.name}{plot.grid(estimate)}",
        "drawn": plot.drawn(estimate),
    }


def _finding_groups(
    entries: Iterable[FindingEntry], plot: ForestPlot, ids: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the findings by their cause, those without a known one in a group of their own.

    Of a cause the operations are folded if it has other findings.
    """
    of_causes: dict[str, list[FindingEntry]] = {}
    for entry in entries:
        of_causes.setdefault(entry.cause_name, []).append(entry)
    groups = []
    for cause, of_cause in of_causes.items():
        operations = [entry for entry in of_cause if entry.finding.quantity.is_operation]
        others = [entry for entry in of_cause if not entry.finding.quantity.is_operation]
        is_folded = bool(cause and others)
        cases = {entry.finding.quantity.case for entry in of_cause}
        findings = units.counted(len(of_cause), "finding")
        groups.append(
            {
                "cause": cause,
                "size": f"{findings} in {units.counted(len(cases), 'case')}",
                "rows": [
                    _finding_view(entry, plot, ids) for entry in (others if is_folded else of_cause)
                ],
                "folded": [
                    _finding_view(entry, plot, ids) for entry in (operations if is_folded else ())
                ],
            }
        )
    return groups


def _finding_view(entry: FindingEntry, plot: ForestPlot, ids: Mapping[str, str]) -> dict[str, Any]:
    quantity = entry.finding.quantity
    return {
        "title": quantity.title,
        "case": entry.case_name,
        "case_id": ids.get(quantity.case, "once"),
        # The heading of its group has the name.
        "cause": entry.cause.removeprefix(f"{LIKELY}{entry.cause_name}: ")
        if entry.cause_name
        else entry.cause,
        "lines": [*filter(None, (entry.launches, *entry.clocks, *entry.reasons, entry.advice))],
        **_estimate_view(entry.estimate, plot, entry.verdict),
    }


def _case_view(
    row: CaseRow,
    case_id: str,
    plot: ForestPlot,
    tables: OperationTables,
    icicles: Icicles,
    clocks: Iterable[str],
    verdict: Verdict,
) -> dict[str, Any]:
    changes = row.changes
    return {
        "id": case_id,
        "name": row.name,
        "node_id": row.case,
        "reasons": verdict.reach.reasons.get(row.case, ()),
        "clocks": [
            _change(changes[clock]) if clock in changes else (units.MISSING, None)
            for clock in clocks
        ],
        "bound": _bound(row.high),
        "times": [(estimate.quantity.title, change_text(estimate)) for estimate in row.estimates],
        "differences": verdict.exact_differences.get(row.case, ()),
        "operations": tables.rows(row.case),
        "call_paths": icicles.data(row.case, row.name),
        "no_call_paths": icicles.why_not(row.case),
        **_estimate_view(
            row.estimate, plot, NOT_DECIDED if row.verdict == "" else row.verdict or ""
        ),
    }


def _once_views(plot: ForestPlot, ids: Mapping[str, str], verdict: Verdict) -> list[dict[str, Any]]:
    """Return the rows of one-time costs, the largest bounds first."""
    verdicts = verdicts_of_quantities(verdict)
    return [
        {
            "title": estimate.quantity.title,
            "case": verdict.names[estimate.quantity.case],
            "case_id": ids.get(estimate.quantity.case, ""),
            "bound": _bound(max(estimate.high, 0.0)),
            **_estimate_view(estimate, plot, verdicts.get(estimate.quantity.key, "")),
        }
        for estimate in sorted(plot.estimates, key=lambda estimate: -estimate.high)
    ]
