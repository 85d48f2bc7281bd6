"""A gate's Verdict -> the blocks of its report, and its JSON. The forest plot is text: a star between two brackets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from mnistbench import units
from mnistbench.gate.decision import (
    CONFIDENCE,
    IMPROVED,
    INCONCLUSIVE,
    LEVEL,
    PASSED,
    REGRESSED,
    UNCONFIRMED,
    Estimate,
    Finding,
)
from mnistbench.gate.samples import operation_text
from mnistbench.gate.verdict import Verdict
from mnistbench.report.comparison import Block
from mnistbench.report.markdown import markdown_report
from mnistbench.report.rows import Table
from mnistbench.report.terminal import draw_report

#: Characters of a forest plot; odd, so that no change has a column of its own.
WIDTH = 31

#: Exact differences shown per case.
FACTS = 6


def rendered(verdict: Verdict, form: str, top: int, *, colour: bool = False) -> str:
    """Return a verdict as ``terminal``, ``markdown`` or ``json``."""
    if form == "json":
        return json_report(verdict)
    if form == "markdown":
        return markdown_report(blocks(verdict, top), last_line(verdict), drawn=True)
    return draw_report(blocks(verdict, top), colour=colour) + "\n"


def blocks(verdict: Verdict, top: int) -> list[Block]:
    """Return the report.

    Args:
        verdict: what is reported.
        top: operations shown per case; what was found is always shown.
    """
    return [
        Block("", tuple(_head(verdict))),
        Block("Found", tuple(_finding_line(finding, verdict) for finding in verdict.decision.findings)),
        Block("Cases", tables=tuple(_case_table(verdict))),
        Block("Operations", tables=tuple(_operation_tables(verdict, top))),
        Block("Exact differences", tuple(_facts(verdict))),
        Block("Verdict", (*_notes(verdict), last_line(verdict))),
    ]


def _head(verdict: Verdict) -> Iterable[str]:
    header, decision = verdict.header, verdict.decision
    kind = "split" if header.split else "twin"
    fresh = f" and {decision.fresh} fresh ones" if decision.fresh else ""
    yield f"base {header.base} -> head {header.head}"
    count = f"{len(header.labels)} case{'s' if len(header.labels) != 1 else ''}"
    time = units.duration(verdict.seconds * 1e9)
    yield f"measured: {count}, {decision.launches} {kind} launches{fresh}, {time}, torch {header.torch}"
    for what, cases in (
        ("only in the base", header.only_base), ("only in the head", header.only_head),
        ("not the same case any more, so not compared", header.changed),
    ):  # fmt: skip
        if cases:
            yield f"{what}: {', '.join(cases)}"


def _finding_line(finding: Finding, verdict: Verdict) -> str:
    best, effect = finding.best, finding.best.effect
    accepted = f", accepted: {verdict.reason}" if finding in verdict.accepted else ""
    times = f"{units.duration(effect.base_ns)} -> {units.duration(effect.new_ns)}"
    share = "" if effect.kind == "call" else f"; {units.percent(best.change * effect.share, signed=True)} of the case"
    cause = _cause(finding, verdict)
    change = units.percent(best.change, signed=True)
    interval = f"{_interval(best)}{', by fresh launches alone' if finding.confirmed else ''}"
    told = f"{finding.verdict}{accepted}: {effect.title} ({effect.case}), {change} ({interval}), {times}{share}"
    return f"{told}; {cause}" if cause else told


def _cause(finding: Finding, verdict: Verdict) -> str:
    """Return the exact difference that likely made a confirmed slowdown: more or other work of the same operation, or place."""
    effect = finding.screened.effect
    if finding.verdict != REGRESSED:
        return ""
    found = verdict.facts.get(effect.case, ())
    if effect.kind == "replaced":
        of_place = [fact for fact in found if any(fact.startswith(f"{operation_text(*key)}: ") for key in effect.members)]
        return "; ".join(of_place[:2])
    if effect.kind == "call":
        return next((f"likely cause: {fact}" for fact in found if _is_more(fact)), "")
    return next((fact.removeprefix(f"{effect.name}: ") for fact in found if fact.startswith(f"{effect.name}: ")), "")


def _is_more(fact: str) -> bool:
    if ": new, " in fact:
        return True
    match = re.search(r": ([\d.,]+) -> ([\d.,]+) calls", fact)
    return match is not None and float(match[2].replace(",", "")) > float(match[1].replace(",", ""))


def _interval(estimate: Estimate) -> str:
    return f"{units.percent(estimate.low, signed=True)} to {units.percent(estimate.high, signed=True)}"


def _case_table(verdict: Verdict) -> Iterable[Table]:
    calls = verdict.decision.calls
    if calls:
        scale = _scale(calls, verdict.thresholds.call)
        yield Table(
            title=f"cases: change of the time of a call, head against base; {_confidence()}",
            headers=("case", "clock", "base us", "head us", "change", "from", "to", _plot_head(scale), "no regression of"),
            rows=tuple(
                (
                    call.effect.case,
                    call.effect.clock,
                    units.microseconds(call.effect.base_ns),
                    units.microseconds(call.effect.new_ns),
                    *_change_cells(call, scale),
                    _excluded(call),
                )
                for call in calls
            ),
            sums=(),
            numbers_from=2,
            words_after=2,
        )


def _operation_tables(verdict: Verdict, top: int) -> Iterable[Table]:
    found = {finding.screened.effect.key: finding for finding in verdict.decision.findings}
    for case in dict.fromkeys(operation.effect.case for operation in verdict.decision.operations):
        of_case = [operation for operation in verdict.decision.operations if operation.effect.case == case]
        ranked = sorted(of_case, key=lambda o: (o.effect.key not in found, -o.effect.share))
        shown = [operation for rank, operation in enumerate(ranked) if rank < top or operation.effect.key in found]
        scale = _scale(shown, verdict.thresholds.operation)
        yield Table(
            title=units.printable(f"{case}: change of operations; {_confidence()}"),
            headers=("operation", "base us", "share", "change", "from", "to", _plot_head(scale), "verdict"),
            rows=tuple(
                (
                    operation.effect.name,
                    units.microseconds(operation.effect.base_ns),
                    units.percent(operation.effect.share),
                    *_change_cells(operation, scale),
                    _verdict(operation, found.get(operation.effect.key), verdict),
                )
                for operation in shown
            ),
            sums=(),
            numbers_from=1,
            words_after=2,
        )


def _change_cells(estimate: Estimate, scale: float) -> tuple[str, ...]:
    """Return what both kinds of tables show of a change: estimate, bounds, plot."""
    numbers = (estimate.change, estimate.low, estimate.high)
    return (*(units.percent(number, signed=True) for number in numbers), forest(estimate, scale))


def _verdict(operation: Estimate, finding: Finding | None, verdict: Verdict) -> str:
    if finding is None:
        return f"below {_excluded(operation)}"
    return f"{finding.verdict}, accepted" if finding in verdict.accepted else finding.verdict


def _confidence() -> str:
    return f"all intervals hold together with {CONFIDENCE:.0%} confidence".replace("%", " %")


def _excluded(estimate: Estimate) -> str:
    return units.percent_up(max(estimate.high, 0.0))


def _scale(estimates: Sequence[Estimate], threshold: float) -> float:
    """Return the change at the plot's edges: what shows every estimate, and no less than twice the threshold."""
    reaches = (max(abs(estimate.change), min(max(abs(estimate.low), abs(estimate.high)), 1.0)) for estimate in estimates)
    widest = max(reaches, default=0.0)
    return max(2 * threshold, math.ceil(widest * 100) / 100)


def _plot_head(scale: float) -> str:
    edge = units.percent(scale)
    return f"-{edge}".ljust((WIDTH + 1) // 2) + "0" + f"+{edge}".rjust((WIDTH + 1) // 2)


def forest(estimate: Estimate, scale: float) -> str:
    """Return an interval as text: ``(----*----)`` on a line from -scale to +scale, ``|`` at no change.

    The line is in brackets of its own: some that draw tables cut blanks off the ends of a cell.
    """

    def column(change: float) -> int:
        half = (WIDTH - 1) // 2
        return half + max(-half, min(half, round(change / scale * half)))

    line = [" "] * WIDTH
    low, middle, high = (column(value) for value in (estimate.low, estimate.change, estimate.high))
    for position in range(low, high + 1):
        line[position] = "-"
    line[(WIDTH - 1) // 2] = "|"
    line[low] = "(" if estimate.low > -scale else "<"
    line[high] = ")" if estimate.high < scale else ">"
    line[middle] = "*"
    return f"[{''.join(line)}]"


def _facts(verdict: Verdict) -> Iterable[str]:
    for case, found in verdict.facts.items():
        yield from (f"{case}: {fact}" for fact in found[:FACTS])
        if len(found) > FACTS:
            yield f"{case}: {len(found) - FACTS} more; --format json has all"


def _notes(verdict: Verdict) -> Iterable[str]:
    for case in verdict.different:
        yield f"{case}: the two sides do not compute the same numbers, so a difference in time may be the data's"
    for pattern in verdict.unused:
        yield f"--accept {pattern!r} matched no regression"
    for effect in verdict.decision.unheld:
        yield f"{effect.case}: {effect.title} is not held: it has no time in some profiled iteration"
    for case in verdict.unprofiled:
        yield f"{case}: no operation is held: some launch has no profile of it"
    for finding in verdict.decision.findings:
        if finding.verdict == UNCONFIRMED and finding.confirmed:
            yield (
                f"{finding.screened.effect.case}: {finding.screened.effect.title} was flagged, and "
                f"{verdict.decision.fresh} fresh launches did not confirm it"
            )
    in_last_line = 1 if verdict.outcome == INCONCLUSIVE else 0
    for reason in verdict.reasons[in_last_line:]:
        yield f"{INCONCLUSIVE}: {reason}"


def last_line(verdict: Verdict) -> str:
    """Return the outcome in a sentence."""
    decision = verdict.decision
    if verdict.outcome == REGRESSED:
        count = len(verdict.regressions)
        names = ", ".join(f"{f.screened.effect.title} ({f.screened.effect.case})" for f in verdict.regressions[:3])
        return f"{REGRESSED}: {count} confirmed in fresh launches, {names}{', ...' if count > 3 else ''}"
    if verdict.outcome == PASSED:
        improved = sum(finding.verdict == IMPROVED for finding in decision.findings)
        better = f"; {improved} improved" if improved else ""
        none = f"no regression of {units.percent_up(max(decision.bound, 0.0))} or more"
        if not verdict.accepted:
            return f"{PASSED}: {none} in any case{better}"
        others = f"; {none} in other cases" if math.isfinite(decision.bound) else ""
        return f"{PASSED}: {len(verdict.accepted)} accepted ({verdict.reason}){others}{better}"
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{INCONCLUSIVE}: {verdict.reasons[0]}{more}"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def json_report(verdict: Verdict) -> str:
    """Return everything as JSON, changes as shares (0.05 is 5 % slower)."""
    decision = verdict.decision
    data = {
        "outcome": verdict.outcome,
        "sentence": last_line(verdict),
        "reasons": list(verdict.reasons),
        "no_regression_of": _finite(decision.bound),
        "base": verdict.header.base,
        "head": verdict.header.head,
        "torch": verdict.header.torch,
        "split": verdict.header.split,
        "launches": decision.launches,
        "fresh_launches": decision.fresh,
        "seconds": verdict.seconds,
        "level": LEVEL,
        "confidence": CONFIDENCE,
        "thresholds": asdict(verdict.thresholds),
        "findings": [
            {
                "verdict": finding.verdict,
                "accepted": verdict.reason if finding in verdict.accepted else None,
                "screened": _estimate(finding.screened),
                "confirmed": _estimate(finding.confirmed) if finding.confirmed else None,
            }
            for finding in decision.findings
        ],
        "cases": [_estimate(call) for call in decision.calls],
        "operations": [_estimate(operation) for operation in decision.operations],
        "exact": {case: list(found) for case, found in verdict.facts.items()},
        "different": list(verdict.different),
        "unheld": [{"case": effect.case, "name": effect.title} for effect in verdict.decision.unheld],
        "unprofiled": list(verdict.unprofiled),
        "only_base": list(verdict.header.only_base),
        "only_head": list(verdict.header.only_head),
        "changed": list(verdict.header.changed),
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _estimate(estimate: Estimate) -> dict[str, Any]:
    effect = estimate.effect
    return {
        "case": effect.case,
        "kind": effect.kind,
        "name": effect.name,
        "clock": effect.clock or "profiled",
        "members": [list(key) for key in effect.members],
        "base_ns": effect.base_ns,
        "head_ns": effect.new_ns,
        "share": effect.share,
        "change": estimate.change,
        "low": estimate.low,
        "high": _finite(estimate.high),
        "p": estimate.p,
        "launches": estimate.launches,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
