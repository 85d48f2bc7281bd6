"""A gate's Verdict -> the blocks of its report, and its JSON. Intervals are also drawn as text, in a forest plot."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from mnistbench.core import units
from mnistbench.gate.verdict.decision import (
    IMPROVED,
    INCONCLUSIVE,
    LARGE_SHARE,
    LOOKS,
    PASSED,
    PRODUCT,
    REGRESSED,
    SCREENING,
    UNCONFIRMED,
    Estimate,
    Finding,
)
from mnistbench.gate.verdict.permutation import CONFIDENCE
from mnistbench.gate.verdict.result import Header, Verdict
from mnistbench.gate.verdict.samples import ADDED, BASE, BUSY, DEVICE, HEAD, MEAN, Quantity
from mnistbench.showing.markdown import markdown_report
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table
from mnistbench.showing.terminal import draw_report

#: Width of a forest plot in characters; odd, so that zero has its own column.
WIDTH = 31

#: Largest change that a forest plot shows, as a share; larger ones are cut off at its edge.
WIDEST = 10.0

#: Share of a case from which on an operation is large; the bounds of large operations are a family of their own.
_LARGE = units.percent(LARGE_SHARE)

#: Clocks of an accelerator, as the table of cases names them.
_CLOCKS = {DEVICE: "device elapsed", BUSY: "device busy"}

#: Exact differences shown per case, and tests that are left out.
FACTS = LEFT_OUT = 6

#: Version of the JSON report, which docs/schema/gate-1.json describes. Raise it, and add a schema file, if a program that
#: reads the report could fail or be misled: a key is removed or renamed, or its meaning, type or unit changes. For a new key
#: or value, change the file of this version.
#:
#: 1: the first.
SCHEMA = 1


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
        verdict: the verdict to report.
        top: number of operations shown per case; those with a finding are always shown.
    """
    return [
        Block("", tuple(_head(verdict))),
        Block("Found", tuple(_finding_line(finding, verdict) for finding in _without_echoes(verdict.decision.findings))),
        Block("Reproducers", tuple(_reproducers(verdict))),
        Block("Cases", tables=tuple(_case_table(verdict))),
        Block("Operations", tables=tuple(_operation_tables(verdict, top))),
        Block("Replaced operations", tuple(_replacements(verdict, top))),
        Block("Exact differences", tuple(_facts(verdict))),
        Block("Verdict", (*_notes(verdict), last_line(verdict))),
    ]


def _head(verdict: Verdict) -> Iterable[str]:
    header, decision = verdict.header, verdict.decision
    fresh = f" and {decision.fresh} fresh ones" if decision.fresh else ""
    yield f"base {header.base} -> head {header.head}"
    count = f"{len(header.labels)} case{'s' if len(header.labels) != 1 else ''}"
    time = units.duration(verdict.seconds * 1e9)
    if verdict.end.elapsed_s:
        time = f"{units.duration(verdict.end.elapsed_s * 1e9)} from start to finish ({time} of measuring)"
    torch = f", torch {header.torch}" if header.torch else ""
    yield f"measured: {count}, {decision.launches} launches{fresh}, {time}{torch}"
    for side, variables in header.variables.items():
        if variables:
            yield f"{side} with {' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}"
    both = [f"{name} {base} -> {head}" for name, (base, head) in header.packages.items() if base and head]
    of_base, of_head = ([name for name, versions in header.packages.items() if not versions[other]] for other in (1, 0))
    for what, names in (
        ("packages of other versions", both), ("packages only in the base", of_base), ("packages only in the head", of_head),
    ):  # fmt: skip
        if names:
            yield f"{what}: {', '.join(names)}"
    yield from _selection(header)


def _selection(header: Header) -> Iterable[str]:
    """Yield what was copied beside the commits, and the tests that are not judged."""
    for what, cases in (
        ("only in the base", header.only_base), ("only in the head", header.only_head),
        ("other parameters in the head, so not compared", header.changed),
    ):  # fmt: skip
        if cases:
            yield f"{what}: {', '.join(cases)}"
    if header.generated:
        yield f"ignored by git, and copied from the working tree: {', '.join(header.generated)}"
    base, head = (header.left_out.get(side, {}) for side in (BASE, HEAD))
    left_out = list(dict.fromkeys((*base, *head)))
    for case in left_out[:LEFT_OUT]:
        yield f"left out: {case} {_said_by_sides(base.get(case, ''), head.get(case, ''))}"
    if len(left_out) > LEFT_OUT:
        yield f"left out: {len(left_out) - LEFT_OUT} more; use --format json to see all"


def _said_by_sides(base: str, head: str) -> str:
    if base == head:
        return base
    return "; ".join(f"{text} in the {side}" for side, text in ((BASE, base), (HEAD, head)) if text)


def _without_echoes(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out the mean of a case if the median by the same clock has the same verdict and explains the mean."""
    medians = {
        (finding.screened.quantity.case, finding.screened.quantity.clock, finding.verdict): finding.best
        for finding in findings
        if finding.screened.quantity.is_case and finding.screened.quantity.kind != MEAN
    }

    def echoes(finding: Finding) -> bool:
        quantity = finding.screened.quantity
        median = medians.get((quantity.case, quantity.clock, finding.verdict))
        return quantity.kind == MEAN and median is not None and finding.best.low <= median.high

    return [finding for finding in findings if not echoes(finding)]


def _finding_line(finding: Finding, verdict: Verdict) -> str:
    accepted = f", accepted: {verdict.reason}" if finding in verdict.accepted else ""
    title = finding.screened.quantity.title  # that of the tables
    changed = _change(finding.best, ", fresh launches only" if finding.confirmed else "")
    told = f"{finding.verdict}{accepted}: {title} ({finding.best.quantity.case}), {changed}"
    limits = [acceptance.limit or 0.0 for exceeding, acceptance in verdict.exceeded if exceeding is finding]
    exceeded = [f"more than the {units.percent(limit)} that --accept allows" for limit in limits]
    return "; ".join(filter(None, (told, *exceeded, _cause(finding, verdict))))


def _reproducers(verdict: Verdict) -> Iterable[str]:
    """Yield the script of each operation that was found slower, or why there is none."""
    titles = {finding.screened.quantity.key: finding.screened.quantity.title for finding in verdict.decision.findings}
    for one in verdict.end.reproducers:
        node_id, kind, name = one.key
        case = verdict.header.name(node_id)
        name = f"{titles.get((case, kind, name), name)} ({case})"
        yield f"reproducer: {one.script} for {name}" if one.script else f"no reproducer for {name}: {one.why_not}"


def _change(estimate: Estimate, launches: str = "") -> str:
    """Return the change of a quantity with its interval, its times, and the change of the case."""
    quantity = estimate.quantity
    of_case = " of the case" if quantity.kind == ADDED else ""
    change = f"{units.percent(estimate.change, signed=True)}{of_case} ({_interval(estimate)}{launches})"
    times = " -> ".join(units.duration(ns) if ns else "0" for ns in (quantity.base_ns, quantity.head_ns))
    told = f"{change}, {times}"
    if quantity.is_case or quantity.kind == ADDED:
        return told
    return f"{told}; {units.percent(estimate.change * quantity.share, signed=True)} of the case"


def quantity(quantity: Quantity) -> str:
    """Return the name of a quantity in a table with its change."""
    return f"{quantity.title}{' (change as a share of the case)' if quantity.kind == ADDED else ''}"


def _replacements(verdict: Verdict, top: int) -> Iterable[str]:
    """Yield the largest replacements of each case without a finding, so that a reader knows that the sides call others."""
    found = {finding.screened.quantity.key for finding in verdict.decision.findings}
    quiet: dict[str, list[Estimate]] = {}
    for operation in sorted(verdict.decision.operations, key=lambda operation: -operation.quantity.share):
        if operation.quantity.replaced and operation.quantity.key not in found:
            quiet.setdefault(operation.quantity.case, []).append(operation)
    for case, operations in quiet.items():
        for one in operations[:top]:
            yield f"{one.quantity.how_replaced}: {one.quantity.title} ({case}), {_change(one)}"
        if len(operations) > top:
            yield f"{case}: {len(operations) - top} more; use --format json to see all"


def _cause(finding: Finding, verdict: Verdict) -> str:
    """Return the exact difference that probably caused a regression: more or other work of the same operation."""
    quantity = finding.screened.quantity
    if finding.verdict != REGRESSED:
        return ""
    found = verdict.exact_differences.get(quantity.case, ())
    if quantity.is_case:
        return next((f"likely cause: {fact}" for fact in found if _is_more(fact)), "")
    return next((fact.removeprefix(f"{quantity.name}: ") for fact in found if fact.startswith(f"{quantity.name}: ")), "")


def _is_more(fact: str) -> bool:
    if ": new, " in fact:
        return True
    match = re.search(r": ([\d.,]+) -> ([\d.,]+) calls", fact)
    return match is not None and float(match[2].replace(",", "")) > float(match[1].replace(",", ""))


def _interval(estimate: Estimate) -> str:
    return f"{units.percent(estimate.low, signed=True)} to {units.percent(estimate.high, signed=True)}"


def _case_table(verdict: Verdict) -> Iterable[Table]:
    cases = verdict.decision.cases
    if cases:
        scale = _scale(cases, verdict.thresholds.call)
        yield text_table(
            title=f"cases: change of iteration time, head relative to base; {_confidence()}",
            headings=("case", "clock", "base us", "head us", "change", "from", "to", _plot_head(scale), "slowdown below"),
            rows=tuple(
                (
                    one.quantity.case,
                    f"{_CLOCKS.get(one.quantity.clock, one.quantity.clock)}{', mean' if one.quantity.kind == MEAN else ''}",
                    units.microseconds(one.quantity.base_ns),
                    units.microseconds(one.quantity.head_ns),
                    *_change_cells(one, scale),
                    _excluded(one),
                )
                for one in cases
            ),
            sums=(),
            numbers_from=2,
            words_after=2,
        )


def _operation_tables(verdict: Verdict, top: int) -> Iterable[Table]:
    found = {finding.screened.quantity.key: finding for finding in verdict.decision.findings}
    for case in dict.fromkeys(operation.quantity.case for operation in verdict.decision.operations):
        of_case = [operation for operation in verdict.decision.operations if operation.quantity.case == case]
        ranked = sorted(of_case, key=lambda o: (o.quantity.key not in found, -o.quantity.share))
        shown = [operation for rank, operation in enumerate(ranked) if rank < top or operation.quantity.key in found]
        scale = _scale(shown, verdict.thresholds.operation)
        yield text_table(
            title=units.printable(f"{case}: change of self times; {_confidence()}, separately for shares of {_LARGE} and more"),
            headings=("operation", "base us", "share", "change", "from", "to", _plot_head(scale), "verdict"),
            rows=tuple(
                (
                    quantity(operation.quantity),
                    units.microseconds(operation.quantity.base_ns),
                    units.percent(operation.quantity.share),
                    *_change_cells(operation, scale),
                    _verdict(operation, found.get(operation.quantity.key), verdict),
                )
                for operation in shown
            ),
            sums=(),
            numbers_from=1,
            words_after=2,
        )


def _change_cells(estimate: Estimate, scale: float) -> tuple[str, ...]:
    """Return the cells of a change: estimate, bounds and plot."""
    numbers = (estimate.change, estimate.low, estimate.high)
    return (*(units.percent(number, signed=True) for number in numbers), forest(estimate, scale))


def _verdict(operation: Estimate, finding: Finding | None, verdict: Verdict) -> str:
    if finding is None:
        return f"below {_excluded(operation)}"
    return f"{finding.verdict}, accepted" if finding in verdict.accepted else finding.verdict


def _confidence() -> str:
    return f"simultaneous {CONFIDENCE:.0%} confidence intervals".replace("%", " %")


def _excluded(estimate: Estimate) -> str:
    return units.percent_up(max(estimate.high, 0.0))


def _scale(estimates: Sequence[Estimate], threshold: float) -> float:
    """Return the change at the edges of a plot: it shows every estimate up to WIDEST, and at least twice the threshold."""
    reaches = (
        max(min(abs(estimate.change), WIDEST), min(max(abs(estimate.low), abs(estimate.high)), 1.0)) for estimate in estimates
    )
    widest = max(reaches, default=0.0)
    return max(2 * threshold, math.ceil(widest * 100) / 100)


def _plot_head(scale: float) -> str:
    edge = units.percent(scale)
    return f"-{edge}".ljust((WIDTH + 1) // 2) + "0" + f"+{edge}".rjust((WIDTH + 1) // 2)


def forest(estimate: Estimate, scale: float) -> str:
    """Return an interval as text: ``(----*----)`` on a line from -scale to +scale, ``|`` at no change.

    Square brackets enclose the line, because some renderers of tables strip blanks from cells.
    """

    def column(change: float) -> int:
        half = (WIDTH - 1) // 2
        return half + round(max(-1.0, min(1.0, change / scale)) * half)

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
    for case, found in verdict.exact_differences.items():
        yield from (f"{case}: {fact}" for fact in found[:FACTS])
        if len(found) > FACTS:
            yield f"{case}: {len(found) - FACTS} more; use --format json to see all"


def _notes(verdict: Verdict) -> Iterable[str]:
    for case, note in verdict.header.notes.items():
        yield f"{verdict.header.name(case)}: {note}"
    for case, why in verdict.header.uncompared.items():
        yield f"{verdict.header.name(case)}: {why}, so the results of the sides are not compared"
    for case in verdict.different:
        yield f"{case}: the sides compute different numbers, so a difference in time may come from the data"
    for case, sides in verdict.not_finite.items():
        yield f"{case}: NaN or infinity in the {' and in the '.join(sides)}; times may depend on it"
    for pattern in verdict.unused:
        yield f"--accept {pattern!r} matched no regression"
    for finding in verdict.decision.findings:
        if finding.verdict == UNCONFIRMED and finding.confirmed:
            yield (
                f"{finding.screened.quantity.case}: {finding.screened.quantity.title} was flagged, and "
                f"{verdict.decision.fresh} fresh launches did not confirm it"
            )
    in_last_line = 1 if verdict.outcome == INCONCLUSIVE else 0
    for reason in verdict.reasons[in_last_line:]:
        yield f"{INCONCLUSIVE}: {reason.text}"


def last_line(verdict: Verdict) -> str:
    """Return the outcome in one sentence, with its limitations."""
    return "; ".join([_outcome(verdict), *_limits(verdict)])


def _outcome(verdict: Verdict) -> str:
    decision = verdict.decision
    if verdict.outcome == REGRESSED:
        regressions = _without_echoes(verdict.regressions)
        names = ", ".join(f"{f.screened.quantity.title} ({f.screened.quantity.case})" for f in regressions[:3])
        more = ", ..." if len(regressions) > 3 else ""
        return f"{REGRESSED}: {len(regressions)} confirmed by fresh launches: {names}{more}"
    if verdict.outcome == PASSED:
        improved = sum(finding.verdict == IMPROVED for finding in _without_echoes(decision.findings))
        better = f"; {improved} improved" if improved else ""
        if not verdict.accepted:
            return f"{PASSED}: {_covered(verdict, 'any case')}{better}"
        others = f"; {_covered(verdict, 'other cases')}" if math.isfinite(decision.bound) else ""
        return f"{PASSED}: {len(_without_echoes(verdict.accepted))} accepted ({verdict.reason}){others}{better}"
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{INCONCLUSIVE}: {verdict.reasons[0].text}{more}"


def _covered(verdict: Verdict, where: str) -> str:
    """Return the smallest slowdowns that are ruled out, of the median and of the mean."""
    median, mean = (units.percent_up(max(bound, 0.0)) for bound in (verdict.decision.bound, verdict.decision.bound_of_means))
    return f"no regression of {median} or more in the median time of {where}, nor of {mean} or more in the mean"


def _limits(verdict: Verdict) -> Iterable[str]:
    """Yield the limitations of the outcome."""
    unbounded = verdict.decision.unbounded
    if unbounded and verdict.outcome != REGRESSED:
        largest, count = unbounded[0], len(unbounded)
        what = f"{largest.quantity.title} ({largest.quantity.case})"
        up_to = f"up to {units.percent_up(largest.high)}{' of the case' if largest.quantity.kind == ADDED else ''}"
        limit = units.percent(verdict.thresholds.operation)
        operations = f"{count} operations, the largest being" if count > 1 else "1 operation,"
        yield f"a slowdown of {limit} cannot be ruled out for {operations} {what}: {up_to}"
    if verdict.different:
        yield f"the sides compute different numbers in {_some(verdict.different)}"
    for side in (BASE, HEAD):
        if cases := [case for case, sides in verdict.not_finite.items() if side in sides]:
            yield f"the {side} computes NaN or infinity in {_some(cases)}"


def _some(names: Sequence[str]) -> str:
    return f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def json_report(verdict: Verdict) -> str:
    """Return the whole verdict as JSON; changes are shares (0.05 is 5 % slower)."""
    return json.dumps(json_data(verdict), indent=1, allow_nan=False) + "\n"


def json_data(verdict: Verdict) -> dict[str, Any]:
    """Return the content of :func:`json_report`."""
    decision = verdict.decision
    return {
        "schema": SCHEMA,
        "outcome": verdict.outcome,
        "sentence": last_line(verdict),
        "reasons": [reason._asdict() for reason in verdict.reasons],
        "no_regression_of": _finite(decision.bound),
        "no_regression_of_means": _finite(decision.bound_of_means),
        "base": verdict.header.base,
        "head": verdict.header.head,
        "torch": verdict.header.torch,
        "variables": {side: dict(found) for side, found in verdict.header.variables.items()},
        "packages": {name: list(versions) for name, versions in verdict.header.packages.items()},
        "memory": {verdict.header.name(case): dict(sizes) for case, sizes in verdict.header.memory.items()},
        "resident": dict(verdict.header.resident),
        "launches": decision.launches,
        "fresh_launches": decision.fresh,
        "seconds": verdict.seconds,
        "elapsed_seconds": verdict.end.elapsed_s,
        "level_of_first_stage": SCREENING,
        "level_of_product": PRODUCT,
        "looks": list(LOOKS),
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
        "cases": [_estimate(one) for one in decision.cases],
        "operations": [_estimate(operation) for operation in decision.operations],
        "exact": {case: list(found) for case, found in verdict.exact_differences.items()},
        "reproducers": [
            {
                "case": verdict.header.name(one.key[0]),
                "kind": one.key[1],
                "name": one.key[2],
                "script": one.script or None,
                "why_not": one.why_not,
            }
            for one in verdict.end.reproducers
        ],
        "different": list(verdict.different),
        "not_finite": {case: list(sides) for case, sides in verdict.not_finite.items()},
        "unbounded": [{"case": one.quantity.case, "name": one.quantity.name} for one in decision.unbounded],
        "unprofiled": list(verdict.unprofiled),
        "only_base": list(verdict.header.only_base),
        "only_head": list(verdict.header.only_head),
        "changed": list(verdict.header.changed),
        "generated": list(verdict.header.generated),
        "left_out": {side: dict(found) for side, found in verdict.header.left_out.items()},
        "notes": {verdict.header.name(case): note for case, note in verdict.header.notes.items()},
        "uncompared": {verdict.header.name(case): why for case, why in verdict.header.uncompared.items()},
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    quantity = estimate.quantity
    return {
        "case": quantity.case,
        "kind": quantity.kind,
        "name": quantity.name,
        "title": quantity.title,
        "clock": quantity.clock or "profiled",
        "members": [list(key) for key in quantity.members],
        "replaced": [{"operation": list(one.key), "base_ns": one.base_ns, "head_ns": one.head_ns} for one in quantity.replaced],
        "base_ns": quantity.base_ns,
        "head_ns": quantity.head_ns,
        "share": quantity.share,
        "change": _finite(estimate.change),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
        "p": estimate.p,
        "launches": estimate.launches,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
