"""Rows -> what the HTML page shows of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mnistbench.core import units
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.report.notes import head_lines, note_lines, reproducers
from mnistbench.gate.report.outcome import (
    bounds_of_once,
    limitations,
    not_decided,
    not_seen,
    outcome_text,
)
from mnistbench.gate.report.page.forest import ForestPlot, six_digits, tone
from mnistbench.gate.report.page.icicles import Icicles
from mnistbench.gate.report.page.operations import OperationTables
from mnistbench.gate.report.rows import (
    CONFIDENT,
    CaseRow,
    EstimateRow,
    FindingGroup,
    FindingRow,
    Rows,
    change_text,
    clocks_of,
    signed,
    with_everything,
)
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
    return html_page("gate.html", **view(Rows(with_everything(verdict))))


def view(rows: Rows) -> dict[str, Any]:
    """Return what the template shows of rows that have everything."""
    verdict = rows.verdict
    limits = verdict.options
    ranked = sorted(rows.cases, key=_rank)
    ids = {row.case: f"case{position}" for position, row in enumerate(ranked)}
    tables = OperationTables(rows)
    icicles = Icicles(verdict.end.profiles, len(rows.shown.operations))
    cases = ForestPlot("cases", [row.estimate for row in ranked], limits)
    findings = ForestPlot("findings", [row.estimate for row in rows.findings], limits)
    once = ForestPlot("once", [row.estimate for row in rows.once], limits)
    clocks = clocks_of(ranked)
    case_views = [
        _case_view(row, ids[row.case], cases, tables, icicles, clocks, verdict) for row in ranked
    ]
    compared, measured, *conditions = head_lines(verdict)
    return {
        "open_lines": OPEN_LINES,
        "few_cases": FEW_CASES,
        "confident": CONFIDENT,
        "outcome": verdict.outcome,
        "tone": tone(verdict.outcome),
        "outcome_text": outcome_text(rows),
        "limitations": [*limitations(verdict)],
        "compared": compared,
        "measured": measured,
        "conditions": conditions,
        "plots": {
            plot.name: plot for plot in (findings, cases, once, tables.plot) if plot.estimates
        },
        "findings": _finding_groups(rows.groups, findings, ids),
        "not_decided": not_decided(rows),
        "case_threshold": units.percent(limits.case),
        "clocks": [*clocks.values()],
        "cases": case_views,
        "operation_names": tables.names,
        "function_names": icicles.names,
        "same": sorted(verdict.names[case] for case in verdict.reach.same),
        "uncovered": verdict.reach.uncovered,
        "unused": (*verdict.reach.unused, *verdict.reach.dependencies),
        "once": _once_views(rows.once, once, ids),
        "once_bounds": [*bounds_of_once(rows)],
        "once_differences": verdict.exact_differences.get(ALL_CASES, ()),
        # Too few trials have no estimate of a case, but the differences that were counted.
        "differences": [
            f"{verdict.names[case]}: {text}"
            for case, texts in verdict.exact_differences.items()
            if case not in ids and case != ALL_CASES
            for text in texts
        ],
        "replaced": rows.replacements,
        "reproducers": [*reproducers(verdict)],
        "notes": [*note_lines(rows), *not_seen(verdict)],
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
        "base": _amount(estimate, quantity.base),
        "head": _amount(estimate, quantity.head),
        "verdict": verdict,
        "tone": tone(verdict),
        "grid": f"{plot.name}{plot.grid(estimate)}",
        "drawn": plot.drawn(estimate),
    }


def _finding_groups(
    groups: Iterable[FindingGroup], plot: ForestPlot, ids: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the findings by their cause, those without a known one in a group of their own.

    The operations of a cause are folded if it has other findings.
    """
    of_causes: dict[str, list[FindingRow]] = {}
    for group in groups:
        of_causes.setdefault(group.heading if group.cause else "", []).extend(group.rows)
    views = []
    for heading, rows in of_causes.items():
        operations = [row for row in rows if row.finding.quantity.is_operation]
        others = [row for row in rows if not row.finding.quantity.is_operation]
        is_folded = bool(heading and others)
        views.append(
            {
                "heading": heading,
                "rows": [_finding_view(row, plot, ids) for row in (others if is_folded else rows)],
                "folded": [
                    _finding_view(row, plot, ids) for row in (operations if is_folded else ())
                ],
            }
        )
    return views


def _finding_view(row: FindingRow, plot: ForestPlot, ids: Mapping[str, str]) -> dict[str, Any]:
    quantity = row.finding.quantity
    return {
        "title": quantity.title,
        "case": row.case_name,
        "case_id": ids.get(quantity.case, "once"),
        "cause": row.detail,
        "lines": [*filter(None, (row.trials, *row.clocks, *row.reasons, row.advice))],
        **_estimate_view(row.estimate, plot, row.verdict),
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


def _once_views(
    rows: Iterable[EstimateRow], plot: ForestPlot, ids: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        {
            "title": row.estimate.quantity.title,
            "case": row.case_name,
            "case_id": ids.get(row.estimate.quantity.case, ""),
            "bound": _bound(max(row.estimate.high, 0.0)),
            **_estimate_view(row.estimate, plot, row.verdict),
        }
        for row in rows
    ]
