"""A gate's Verdict -> its report and its exit code.

Intervals are also drawn as text, in a forest plot.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mnistbench.core import units
from mnistbench.core.operation import NAMED
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.statistics.permutation import CONFIDENCE
from mnistbench.gate.statistics.quantities import Quantity
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.exact_differences import OTHER_PATH
from mnistbench.gate.verdict.findings import Finding
from mnistbench.gate.verdict.levels import SCREENING, looks, product
from mnistbench.gate.verdict.reasons import launches_needed
from mnistbench.gate.verdict.verdict import NOTHING_TO_COMPARE, Verdict
from mnistbench.gate.words import (
    ADDED,
    BASE,
    BUSY,
    CPU,
    DEVICE,
    HEAD,
    ITERATION,
    MEAN,
    MEMORY,
    ONCE,
    WALL,
)
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.ratios import change_of
from mnistbench.judging.verdicts import (
    CONTRADICTED,
    IMPROVED,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    UNCONFIRMED,
    WITHIN,
)
from mnistbench.showing.output import (
    EXIT_PASSED,
    EXIT_REGRESSED,
    EXIT_UNJUDGED,
    append_text_to_step_summary,
    deliver,
    print_error,
    render,
)
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table

#: Width of a forest plot in characters; odd, so that zero has its own column.
WIDTH = 31

#: Largest change that a forest plot shows, as a share; larger ones are cut off at its edge.
WIDEST = 10.0

#: Share of a case from which on an operation is large; the bounds of large operations are a family
#: of their own.
_LARGE = units.percent(LARGE_SHARE)

#: Clocks of an accelerator, as the table of cases names them.
_CLOCKS = {CPU: "CPU", DEVICE: "device elapsed", BUSY: "device busy"}

#: Names of the cases of which a sentence is said.
NAMES = 3

#: Where everything is that a report leaves out.
_SEE_ALL = "to see all: mnistbench judge FILE --all"

#: Largest Markdown of a comment, in bytes: GitHub takes 65,536 characters.
COMMENT = 65_000
#: Largest Markdown of the summary of a step, in bytes: GitHub takes 1 MiB.
SUMMARY = 1_000_000

#: Verdicts in the order of the report.
_FOUND = (REGRESSED, INCONCLUSIVE, CONTRADICTED, IMPROVED, WITHIN, UNCONFIRMED)


def signed(change: float) -> str:
    """Return the text of a change; what a base of 0 does not have is ``new``."""
    return "new" if change == math.inf else units.percent(change, signed=True)


_CODES = {PASSED: EXIT_PASSED, REGRESSED: EXIT_REGRESSED, INCONCLUSIVE: EXIT_UNJUDGED}


def report(verdict: Verdict) -> Report:
    """Return the report of a verdict."""
    return Report(
        last_line(verdict), blocks(verdict), document("gate", **json_data(verdict)), drawn=True
    )


def deliver_verdict(
    shown: Report, options: JudgeOptions, outcome: str, *, is_excusable: bool
) -> int:
    """Print or write a report, and return the exit code.

    Append it to the summary of a job on GitHub.

    Args:
        shown: the report.
        options: of the command.
        outcome: PASSED, REGRESSED or INCONCLUSIVE.
        is_excusable: whether ``--inconclusive ok`` applies.
    """
    shown = replace(
        shown,
        limit=(SUMMARY, "to see all: --format json") if options.everything else (COMMENT, _SEE_ALL),
    )
    deliver(shown, options.format, options.output)
    if os.environ.get("GITHUB_STEP_SUMMARY") and (
        note := append_text_to_step_summary(render(shown, "markdown"))
    ):
        print_error(note)
    may_pass = outcome == INCONCLUSIVE and is_excusable and options.inconclusive == "ok"
    return _CODES[PASSED if may_pass else outcome]


def blocks(verdict: Verdict) -> list[Block]:
    """Return the report: what was found, then what it rests on.

    ``--top`` and ``--all`` limit what has no finding.
    """
    if verdict.options.everything:
        verdict = replace(verdict, options=replace(verdict.options, top=sys.maxsize))
    return [
        Block("", tuple(_head(verdict))),
        Block("Found", tuple(_found(verdict))),
        Block("Not decided", tuple(_limited((reason.text for reason in verdict.reasons), verdict))),
        _cases(verdict),
        _operations(verdict),
        Block("Replaced operations", tuple(_limited(_replacements(verdict), verdict, always=True))),
        Block("Exact differences", tuple(_exact_differences(verdict))),
        Block("Reproducers", tuple(_limited(_reproducers(verdict), verdict))),
        Block("Notes", tuple(_notes(verdict))),
        Block("Verdict", (*_bounds_of_once(verdict), *_not_seen(verdict), last_line(verdict))),
    ]


def _is_long(verdict: Verdict) -> bool:
    """Whether a report lists only what was found: there are more cases than --top, and no --all."""
    return len(verdict.header.labels) > verdict.options.top


def _limited(lines: Iterable[str], verdict: Verdict, *, always: bool = False) -> list[str]:
    """Return the lines, of many cases (or always) at most --top, and how many more there are."""
    found = list(lines)
    most = verdict.options.top
    if len(found) <= most or not (always or _is_long(verdict)):
        return found
    return [*found[:most], f"{len(found) - most} more; {_SEE_ALL}"]


def _named(names: Iterable[str], most: int, what: str = "") -> str:
    """Return names, or the number of them and the first ones."""
    found = list(names)
    return (
        ", ".join(found)
        if len(found) <= most
        else f"{len(found)} {what}({', '.join(found[:most])}, ...)"
    )


def _said_once(
    said: Iterable[tuple[str, str]], verdict: Verdict, what: str = "cases "
) -> list[str]:
    """Return a line for each text, with the cases of which it is said."""
    cases: dict[str, list[str]] = {}
    for case, text in said:
        cases.setdefault(text, []).append(case)
    most = verdict.options.top if verdict.options.everything else NAMES
    return _limited(
        (f"{_named(names, most, what)}: {text}" for text, names in cases.items()), verdict
    )


def _head(verdict: Verdict) -> Iterable[str]:
    header = verdict.header
    decision = verdict.decision
    launches = units.counted(decision.launches, "launch", "launches")
    fresh = f" and {units.counted(decision.fresh, 'fresh one')}" if decision.fresh else ""
    yield f"base {header.base} -> head {header.head}"
    count = units.counted(len(header.labels), "case")
    time = units.duration(verdict.recorded.seconds * 1e9)
    if verdict.end.elapsed_s:
        time = f"{units.duration(verdict.end.elapsed_s * 1e9)} from start to finish"
    torch = f", torch {header.sides.torch}" if header.sides.torch else ""
    yield f"measured: {count}, {launches}{fresh}, {time}{torch}"
    if parts := ", ".join(
        f"{name} {units.duration(part_s * 1e9)}"
        for name, part_s in verdict.end.parts_s.items()
        if part_s
    ):
        yield f"time: {parts}"
    cpus = (_cpu(part.header.sides.cpu) for part in verdict.recorded.shards or (verdict.recorded,))
    yield from (f"cpu: {cpu}" for cpu in dict.fromkeys(cpus) if cpu)
    for side, variables in header.variables.items():
        if variables:
            yield (
                f"{side} with "
                f"{' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}"
            )
    both = [
        f"{name} {base} -> {head}"
        for name, (base, head) in header.sides.packages.items()
        if base and head
    ]
    of_base, of_head = (
        [name for name, versions in header.sides.packages.items() if not versions[other]]
        for other in (1, 0)
    )
    for what, names in (
        ("packages of other versions", both),
        ("packages only in the base", of_base),
        ("packages only in the head", of_head),
    ):
        if names:
            yield f"{what}: {_named(names, verdict.options.top)}"
    if header.qualified:
        yield header.qualified
    machines: dict[str, list[str]] = {}
    for part in verdict.recorded.shards:
        machines.setdefault(part.header.machine, []).append(str(part.header.shard.number))
    for machine, numbers in machines.items():
        yield (
            f"shard{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} of {header.shard.of}: "
            f"{machine}"
        )


def _cpu(cpu: Mapping[str, Mapping[str, str]]) -> str:
    """Return what decides which code runs on the CPU, of both sides where they differ."""
    base, head = (cpu.get(side, {}) for side in (BASE, HEAD))
    values = {
        name: dict.fromkeys(side.get(name, "none") for side in (base, head))
        for name in {**base, **head}
    }
    return "; ".join(f"{name} {' -> '.join(of_sides)}" for name, of_sides in values.items())


def _notes(verdict: Verdict) -> Iterable[str]:
    """Yield which tests are not judged, what differs beside the code, and the notes about cases."""
    header = verdict.header
    name = verdict.header.name
    most = verdict.options.top
    fresh = units.counted(verdict.decision.fresh, "fresh launch", "fresh launches")
    for what, names in (
        ("only in the base", header.sides.only_base),
        ("only in the head", header.sides.only_head),
        ("other parameters in the head, so not compared", header.sides.changed),
        ("ignored by git, and copied from the working tree", header.generated),
    ):
        if names:
            yield f"{what}: {_named(names, most)}"
    yield from header.remarks
    base, head = (header.sides.left_out.get(side, {}) for side in (BASE, HEAD))
    left_out = {
        case: base[case]
        if base.get(case) == head.get(case)
        else "; ".join(
            f"{texts[case]} in the {side}"
            for side, texts in ((BASE, base), (HEAD, head))
            if case in texts
        )
        for case in (*base, *head)
    }
    types = _named(dict.fromkeys(header.sides.uncompared.values()), most, "types ")
    sources = "other tests or data, from which a difference in time may come"
    not_finite = "NaN or infinity in the {}; times may depend on it"
    result, data = (
        f"so a difference in time may come from the {what}" for what in ("result", "data")
    )
    found = verdict.decision.findings
    unconfirmed = [
        finding.screened.quantity
        for finding in found
        if finding.verdict == UNCONFIRMED and finding.confirmed
    ]
    left_out |= verdict.unmeasurable
    yield from _said_once(
        ((case, f"left out: {why}") for case, why in left_out.items()), verdict, "tests "
    )
    for said in (
        ((name(case), f"{sources}: {', '.join(names)}") for case, names in header.sources.items()),
        ((name(case), note) for case, note in header.sides.notes.items()),
        (
            (name(case), f"{types}, so the results of the sides are not compared")
            for case in header.sides.uncompared
        ),
        (
            (case, f"the base returns {base_result} and the head {head_result}, {result}")
            for case, (base_result, head_result) in verdict.returned.items()
        ),
        (
            (case, f"the sides compute different numbers, {data}")
            for case in verdict.different
            if case not in verdict.returned
        ),
        (
            (case, not_finite.format(" and in the ".join(sides)))
            for case, sides in verdict.not_finite.items()
        ),
        (
            (quantity.case, f"{quantity.title} was flagged, and {fresh} did not confirm it")
            for quantity in unconfirmed
        ),
    ):
        yield from _said_once(said, verdict)
    yield from (f"--accept {pattern!r} matched no regression" for pattern in verdict.unused)
    yield from _limited(_far_launches(verdict), verdict)


def _found(verdict: Verdict) -> list[str]:
    """Return a line for each finding, regressions first.

    One line for the time of a case by several clocks.
    """
    found: dict[tuple[object, ...], list[Finding]] = {}
    for finding in sorted(
        _without_echoes(verdict.decision.findings),
        key=lambda finding: _FOUND.index(finding.verdict),
    ):
        of = finding.screened.quantity
        if finding.verdict != UNCONFIRMED or not finding.confirmed:
            key = (
                of.case,
                of.kind,
                "" if of.is_case else of.name,
                finding.verdict,
                finding in verdict.accepted,
            )
            found.setdefault(key, []).append(finding)
    return _limited(
        (_finding_line(*of_line, verdict=verdict) for of_line in found.values()), verdict
    )


def _without_echoes(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out the mean of a case if the median explains it.

    The median by the same clock then has the same verdict.
    """
    medians = {
        (
            finding.screened.quantity.case,
            finding.screened.quantity.clock,
            finding.verdict,
        ): finding.best
        for finding in findings
        if finding.screened.quantity.is_case and finding.screened.quantity.kind != MEAN
    }

    def echoes(finding: Finding) -> bool:
        quantity = finding.screened.quantity
        median = medians.get((quantity.case, quantity.clock, finding.verdict))
        return quantity.kind == MEAN and median is not None and finding.best.low <= median.high

    return [finding for finding in findings if not echoes(finding)]


def _finding_line(finding: Finding, *others: Finding, verdict: Verdict) -> str:
    """Return the line of a finding; ``others`` are those of other clocks of the same case."""
    accepted = f", accepted: {verdict.options.reason}" if finding in verdict.accepted else ""
    title = finding.screened.quantity.title  # that of the tables
    shown = (
        replace(finding.best, low=finding.least) if finding.verdict == REGRESSED else finding.best
    )
    changed = _change(shown, ", fresh launches only" if finding.confirmed else "")
    told = f"{finding.verdict}{accepted}: {title} ({finding.best.quantity.case}), {changed}"
    clocks = [f"{other.screened.quantity.title} {signed(other.best.change)}" for other in others]
    limits = [
        acceptance.limit for exceeding, acceptance in verdict.exceeded if exceeding is finding
    ]
    exceeded = [f"more than the {units.percent(limit)} that --accept allows" for limit in limits]
    reasons = (
        _beside_limit(finding, verdict),
        _cause(finding, verdict),
        _gone_elsewhere(finding, verdict),
    )
    return "; ".join(filter(None, (told, *clocks, *exceeded, *reasons)))


def _beside_limit(finding: Finding, verdict: Verdict) -> str:
    """Return whether a regression is larger than the limit, or only may be."""
    if finding.verdict != REGRESSED:
        return ""
    least = verdict.options.of(finding.screened.quantity)
    limit = f"the limit of {units.percent(least)}"
    return (
        f"more than {limit}"
        if finding.least >= least
        else f"a slowdown of {limit} cannot be ruled out"
    )


def _reproducers(verdict: Verdict) -> Iterable[str]:
    """Yield the script of each operation that was found slower, or why there is none."""
    titles = {
        finding.screened.quantity.key: finding.screened.quantity.title
        for finding in verdict.decision.findings
    }
    for reproducer in verdict.end.reproducers:
        node_id, kind, name = reproducer.key
        case = verdict.header.name(node_id)
        name = f"{titles.get((case, kind, name), name)} ({case})"
        yield (
            f"reproducer: {reproducer.script} for {name}"
            if reproducer.script
            else f"no reproducer for {name}: {reproducer.why_not}"
        )


def _change(estimate: Estimate, launches: str = "") -> str:
    """Return the change of a quantity with its interval, its times, and the change of the case."""
    quantity = estimate.quantity
    of_case = " of the case" if quantity.kind == ADDED else ""
    interval = (
        []
        if estimate.change == math.inf
        else [f"{signed(estimate.low)} to {signed(estimate.high)}"]
    )
    beside = "".join(interval) + (launches if interval else launches.removeprefix(", "))
    change = f"{signed(estimate.change)}{of_case}" + (f" ({beside})" if beside else "")
    told = f"{change}, {_amounts(quantity)}"
    if not quantity.is_operation or quantity.kind == ADDED:
        return told
    return f"{told}; {signed(estimate.change * quantity.share)} of the case"


def _amounts(quantity: Quantity) -> str:
    """Return the times of both sides, or their memory."""
    unit = units.size if quantity.kind == MEMORY else units.duration
    return " -> ".join(map(unit, (quantity.base_ns, quantity.head_ns)))


def quantity(quantity: Quantity) -> str:
    """Return the name of a quantity in a table with its change."""
    return f"{quantity.title}{' (change as a share of the case)' if quantity.kind == ADDED else ''}"


def _replacements(verdict: Verdict) -> Iterable[str]:
    """Yield the replacements without a finding, the largest first.

    The sides call other operations there.
    """
    found = _verdicts(verdict)
    for estimate in sorted(
        verdict.decision.operations, key=lambda operation: -operation.quantity.share
    ):
        if estimate.quantity.replaced and estimate.quantity.key not in found:
            yield (
                f"{estimate.quantity.how_replaced}: {estimate.quantity.title} "
                f"({estimate.quantity.case}), {_change(estimate)}"
            )


def _cause(finding: Finding, verdict: Verdict) -> str:
    """Return the exact difference that probably caused a regression.

    More or other work of the same operation.
    """
    quantity = finding.screened.quantity
    if finding.verdict != REGRESSED:
        return ""
    found = verdict.exact_differences.get(quantity.case, ())
    if quantity.is_case:
        return next((f"likely cause: {sentence}" for sentence in found if _is_more(sentence)), "")
    name = f"{quantity.name}: "
    return next(
        (sentence.removeprefix(name) for sentence in found if sentence.startswith(name)), ""
    )


def _gone_elsewhere(finding: Finding, verdict: Verdict) -> str:
    """Return what is gone in other places of the case, for a regression.

    Of operations that replace nothing in their place.

    They may be a fusion of operations of several modules. Nothing shows that, so the regression
    stays one.
    """
    quantity = finding.screened.quantity
    if finding.verdict != REGRESSED or not quantity.replaced or quantity.how_replaced != "new":
        return ""
    replacements = [
        estimate.quantity
        for estimate in verdict.decision.operations
        if estimate.quantity.case == quantity.case
    ]
    gone = [
        replacement
        for replacement in replacements
        if replacement.replaced and replacement.how_replaced == "gone"
    ]
    if not gone:
        return ""
    titles = [
        f"{replacement.title} ({units.duration(replacement.base_ns)})"
        for replacement in sorted(gone, key=lambda replacement: -replacement.base_ns)
    ]
    more = [f"{len(titles) - NAMED} more"] if len(titles) > NAMED else []
    return (
        f"nothing is gone in its place, but elsewhere {'; '.join([*titles[:NAMED], *more])}: if "
        "it replaces them, accept it"
    )


def _is_more(sentence: str) -> bool:
    if ": new, " in sentence or sentence.startswith(OTHER_PATH):
        return True
    match = re.search(r": ([\d.,]+) -> ([\d.,]+) (?:calls|reorders)", sentence)
    return match is not None and float(match[2].replace(",", "")) > float(match[1].replace(",", ""))


def _verdicts(verdict: Verdict) -> dict[tuple[str, str, str], str]:
    """Return the verdict of each quantity with a finding by its key, regressions first."""
    findings = sorted(verdict.decision.findings, key=lambda finding: _FOUND.index(finding.verdict))
    return {
        finding.screened.quantity.key: finding.verdict
        + ", accepted" * (finding in verdict.accepted)
        for finding in findings
    }


def _notable(verdict: Verdict) -> dict[str, str]:
    """Return the cases with a finding and the worst one of each, then those that are open.

    In the latter a slowdown is not ruled out.
    """
    decision = verdict.decision
    found = dict[str, str]()
    wide = [
        estimate
        for estimate in decision.cases
        if estimate.high > verdict.options.to_rule_out(estimate.quantity)
    ]
    unbounded = [
        estimate for estimate in decision.unbounded if estimate.quantity.share >= LARGE_SHARE
    ]
    for (case, _, _), text in _verdicts(verdict).items():
        found.setdefault(case, text)
    for estimate in (*sorted(wide, key=lambda estimate: -estimate.high), *unbounded):
        found.setdefault(estimate.quantity.case, "")
    return found


def _cases(verdict: Verdict) -> Block:
    """Return the tables of cases and of what occurs once.

    Of many cases those with a finding, or with the largest bounds.
    """
    decision = verdict.decision
    notable = _notable(verdict)
    is_long = _is_long(verdict)
    rows: dict[str, Estimate] = {}  # case -> the median of its wall time
    highs: dict[tuple[str, str], float] = {}  # case and kind -> largest bound of all clocks
    for estimate in decision.cases:
        case = estimate.quantity.case
        kind = estimate.quantity.kind
        rows.setdefault(case, estimate)
        highs[case, kind] = max(highs.get((case, kind), 0.0), estimate.high)
    changes = {
        (estimate.quantity.case, estimate.quantity.clock): estimate.change
        for estimate in decision.cases
        if estimate.quantity.kind != MEAN
    }
    lines = []
    shown = [*rows.values()]
    if is_long:
        named = [case for case in notable if case in rows]
        shown = [
            rows[case]
            for rank, case in enumerate(named)
            if rank < verdict.options.top or notable[case]
        ]
        if quiet := rows.keys() - notable.keys():
            median, mean = (
                max(highs.get((case, kind), 0.0) for case in quiet) for kind in (ITERATION, MEAN)
            )
            lines.append(
                f"{units.counted(len(quiet), 'case')} without a finding: "
                f"{_covered((median, mean), 'any of them')}"
            )
        if len(named) > len(shown):
            more = units.counted(len(named) - len(shown), "more case")
            lines.append(f"{more} in which a slowdown is not ruled out; {_SEE_ALL}")

    def by(clock: str) -> Column[Estimate]:
        return Column(
            _CLOCKS[clock], lambda estimate: changes.get((estimate.quantity.case, clock)), signed
        )

    tables = []
    if shown:
        columns = (
            Column[Estimate]("case", lambda estimate: estimate.quantity.case),
            Column[Estimate]("base", lambda estimate: estimate.quantity.base_ns, units.duration),
            Column[Estimate]("head", lambda estimate: estimate.quantity.head_ns, units.duration),
            *_columns_of_change(_scale(shown, verdict.options.case)),
            *(by(clock) for clock in _CLOCKS if any(clock == measured for _, measured in changes)),
            Column[Estimate](
                "slowdown below",
                lambda estimate: highs.get((estimate.quantity.case, ITERATION)),
                units.percent_up,
            ),
            Column[Estimate](
                "mean below",
                lambda estimate: highs.get((estimate.quantity.case, MEAN)),
                units.percent_up,
            ),
            Column[Estimate](
                "verdict", lambda estimate: notable.get(estimate.quantity.case) or None
            ),
        )
        title = f"cases: change of the median wall time, head relative to base; {_CONFIDENCE}"
        tables.append(Table(title, columns if decision.findings else columns[:-1], shown))
    found = _verdicts(verdict)
    if ranked := sorted(
        (estimate for estimate in decision.once if not is_long or estimate.quantity.key in found),
        key=lambda estimate: -estimate.high,
    ):
        columns = (
            Column[Estimate]("what", lambda estimate: estimate.quantity.title),
            Column[Estimate]("case", lambda estimate: estimate.quantity.case),
            Column[Estimate]("base -> head", lambda estimate: _amounts(estimate.quantity)),
            *_columns_of_change(_scale(ranked, verdict.options.once)),
            Column[Estimate]("growth below", _excluded),
        )
        tables.append(
            Table(
                f"once in a process: CPU time, memory at its peak; {_CONFIDENCE}", columns, ranked
            )
        )
    return Block("Cases", tuple(lines), tuple(tables))


def _operations(verdict: Verdict) -> Block:
    """Return a table for each case; of many cases, for those with the largest findings."""
    found = _verdicts(verdict)
    cases: dict[str, list[Estimate]] = {}
    for estimate in verdict.decision.operations:
        cases.setdefault(estimate.quantity.case, []).append(estimate)
    chosen = (
        [case for case in _notable(verdict) if case in cases][: verdict.options.top]
        if _is_long(verdict)
        else [*cases]
    )
    tables = []
    for case in chosen:
        ranked = sorted(
            cases[case],
            key=lambda estimate: (estimate.quantity.key not in found, -estimate.quantity.share),
        )
        shown = [
            estimate
            for rank, estimate in enumerate(ranked)
            if rank < verdict.options.top or estimate.quantity.key in found
        ]
        columns = (
            Column[Estimate]("operation", lambda estimate: quantity(estimate.quantity)),
            Column[Estimate]("base", lambda estimate: estimate.quantity.base_ns, units.duration),
            Column[Estimate]("share", lambda estimate: estimate.quantity.share, units.percent),
            *_columns_of_change(_scale(shown, verdict.options.operation)),
            Column[Estimate](
                "verdict",
                lambda estimate: found.get(estimate.quantity.key, f"below {_excluded(estimate)}"),
            ),
        )
        title = (
            f"{case}: change of self times; {_CONFIDENCE}, separately for shares of {_LARGE} and "
            "more"
        )
        tables.append(Table(units.printable(title), columns, shown))
    lines = (
        (f"tables of {len(cases) - len(tables)} more cases; {_SEE_ALL}",)
        if len(tables) < len(cases)
        else ()
    )
    return Block("Operations", lines, tuple(tables))


def _columns_of_change(scale: float) -> tuple[Column[Estimate], ...]:
    """Return the columns of a change.

    The estimate, its bounds, and a forest plot from -scale to +scale.
    """
    edge = units.percent(scale)
    half = (WIDTH + 1) // 2
    return (
        Column("change", lambda estimate: estimate.change, signed),
        Column("from", lambda estimate: _bound(estimate, estimate.low), signed),
        Column("to", lambda estimate: _bound(estimate, estimate.high), signed),
        Column(
            f"-{edge}".ljust(half) + "0" + f"+{edge}".rjust(half),
            lambda estimate: forest(estimate, scale),
        ),
    )


_CONFIDENCE = f"simultaneous {CONFIDENCE:.0%} confidence intervals".replace("%", " %")


def _bound(estimate: Estimate, bound: float) -> float | None:
    """Return a bound; None if the change is no share, because the base has no such time."""
    return bound if estimate.change < math.inf else None


def _excluded(estimate: Estimate) -> str:
    return units.percent_up(max(estimate.high, 0.0)) if estimate.high < math.inf else units.MISSING


def _scale(estimates: Sequence[Estimate], threshold: float) -> float:
    """Return the change at the edges of a plot.

    It shows every estimate up to WIDEST, and at least twice the threshold.
    """
    reaches = (
        max(min(abs(estimate.change), WIDEST), min(max(abs(estimate.low), abs(estimate.high)), 1.0))
        for estimate in estimates
    )
    widest = max(reaches, default=0.0)
    return max(2 * threshold, math.ceil(widest * 100) / 100)


def forest(estimate: Estimate, scale: float) -> str:
    """Return an interval as text.

    ``(----*----)`` on a line from -scale to +scale, ``|`` at no change.

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


def _exact_differences(verdict: Verdict) -> list[str]:
    """Return the first differences of each case, those of cases with a finding before others."""
    notable = _notable(verdict)
    ranked = sorted(verdict.exact_differences.items(), key=lambda item: item[0] not in notable)
    return _said_once(
        ((case, text) for case, found in ranked for text in _limited(found, verdict, always=True)),
        verdict,
    )


def _bounds_of_once(verdict: Verdict) -> Iterable[str]:
    """Yield the largest bounds of what occurs once, without regressions."""
    regressed = {
        finding.screened.quantity.key
        for finding in verdict.decision.findings
        if finding.verdict == REGRESSED
    }
    bounded = (
        estimate
        for estimate in verdict.decision.once
        if estimate.quantity.key not in regressed and estimate.high < math.inf
    )
    ranked = sorted(bounded, key=lambda estimate: estimate.high)
    largest = {estimate.quantity.kind: f"{_excluded(estimate)} or more in" for estimate in ranked}
    told = (
        (ONCE, "slowdown of", "imports, fixtures, setup and first iterations"),
        (MEMORY, "growth of", "memory"),
    )
    if largest:
        excluded = (
            f"no {grows} {largest[kind]} {what}" for kind, grows, what in told if kind in largest
        )
        yield f"once: {', '.join(excluded)}"


#: A launch is far from the others if its distance from their median is larger than this many robust
#: standard deviations.
FAR = 4.0


def _far_launches(verdict: Verdict) -> Iterable[str]:
    """Yield launches whose median differs from that of the others by the threshold or more.

    Single processes may be slow.

    Source of the factor of the median absolute deviation: that of a normal distribution, 1 /
    0.6745.
    """
    told = set()
    for estimate in verdict.decision.cases:
        logs = estimate.quantity.logs
        case = estimate.quantity.case
        middle = statistics.median(logs)
        deviation = statistics.median(abs(log - middle) for log in logs) / 0.6745
        limit = max(FAR * deviation, math.log1p(verdict.options.case))
        far = sorted(
            (log for log in logs if abs(log - middle) > limit), key=lambda log: -abs(log - middle)
        )
        if far and estimate.quantity.kind != MEAN and case not in told:
            told.add(case)
            shown = ", ".join(signed(change_of(log)) for log in far[:3]) + (
                ", ..." if len(far) > 3 else ""
            )
            yield (
                f"{case}: {len(far)} of {len(logs)} launches far from the others by "
                f"{estimate.quantity.title} ({shown}; median {signed(change_of(middle))}), so "
                "single processes may be slower or faster"
            )


def _not_seen(verdict: Verdict) -> Iterable[str]:
    """Yield how rare a slowdown may be that did not occur.

    One with this share would have occurred with CONFIDENCE.

    Source: the exact binomial bound for no event in n trials, 1 - 0.05^(1 / n); for many trials the
    rule of three, 3 / n.
    """

    def iterations_of(case: str) -> int:
        builds = [
            build for launch in verdict.recorded.launches for build in launch.cases.get(case, ())
        ]
        # Blocks show CPU time alone, so an iteration that waits is seen in turn only.
        return min(
            sum(len(build[side].times.get(WALL, ())) for build in builds) for side in (BASE, HEAD)
        )

    if verdict.outcome != PASSED or not verdict.header.labels:
        return
    case = min(verdict.header.labels, key=iterations_of)
    iterations = max(1, iterations_of(case))
    of_launches, of_iterations = (
        1 - (1 - CONFIDENCE) ** (1 / count) for count in (verdict.decision.launches, iterations)
    )
    yield (
        f"not ruled out: a slowdown in less than {units.percent(of_launches)} of all processes "
        f"({verdict.decision.launches} launches), or in fewer than 1 of "
        f"{math.floor(1 / of_iterations)} iterations ({iterations} on each side of "
        f"{verdict.header.name(case)})"
    )


def last_line(verdict: Verdict) -> str:
    """Return the outcome in one sentence, with its limitations."""
    return "; ".join([_outcome(verdict), *_limits(verdict)])


def _outcome(verdict: Verdict) -> str:
    decision = verdict.decision
    if verdict.outcome == REGRESSED:
        regressions = _without_echoes(verdict.regressions)
        names = ", ".join(
            f"{f.screened.quantity.title} ({f.screened.quantity.case})" for f in regressions[:3]
        )
        more = ", ..." if len(regressions) > 3 else ""
        return f"{REGRESSED}: {len(regressions)} confirmed by fresh launches: {names}{more}"
    if verdict.outcome == PASSED and verdict.are_all_new:
        return f"{PASSED}: {NOTHING_TO_COMPARE}"
    if verdict.outcome == PASSED:
        bounds = decision.bound, decision.bound_of_means
        # Of the same result.
        found = [
            finding
            for finding in decision.findings
            if finding.screened.quantity.case not in verdict.returned
        ]
        improved = sum(finding.verdict == IMPROVED for finding in _without_echoes(found))
        better = f"; {improved} improved" if improved else ""
        if not verdict.accepted:
            return f"{PASSED}: {_covered(bounds, 'any case')}{better}"
        others = f"; {_covered(bounds, 'other cases')}" if math.isfinite(decision.bound) else ""
        return (
            f"{PASSED}: {len(_without_echoes(verdict.accepted))} accepted "
            f"({verdict.options.reason}){others}{better}"
        )
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{INCONCLUSIVE}: {verdict.reasons[0].text}{more}"


def _covered(bounds: tuple[float, float], where: str) -> str:
    """Return the smallest slowdowns that are ruled out, of the median and of the mean."""
    median, mean = (
        f" of {units.percent_up(bound)} or more" if bound > 0 else "" for bound in bounds
    )
    return f"no regression{median} in the median time of {where}, nor{mean} in the mean"


#: Launches that are suggested are at most this multiple of those that were measured.
_SUGGESTED = 2


def _reached(verdict: Verdict) -> Iterable[str]:
    """Yield for how many of several cases the threshold is ruled out.

    And what more launches would change.
    """
    decision = verdict.decision
    limit = verdict.options.case
    widest = dict[str, Estimate]()
    for estimate in decision.cases:
        if estimate.quantity.kind == ITERATION:
            widest[estimate.quantity.case] = max(
                widest.get(estimate.quantity.case, estimate),
                estimate,
                key=lambda estimate: estimate.high,
            )
    beyond = [estimate for estimate in widest.values() if estimate.high > limit]
    if len(widest) > 1 and beyond:
        needed = [
            number
            for estimate in beyond
            if (number := launches_needed(estimate, limit)) <= _SUGGESTED * decision.launches
        ]
        time = units.duration(
            1e9 * verdict.end.elapsed_s * max(needed, default=0) / decision.launches
        )
        more = (
            f", and about {max(needed)} launches ({time}) would settle {len(needed)} more"
            if needed
            else ""
        )
        largest = units.percent_up(max(estimate.high for estimate in beyond))
        yield (
            f"{len(widest) - len(beyond)} of {len(widest)} cases rule out {units.percent(limit)}, "
            f"all of them {largest}{more}"
        )


def _limits(verdict: Verdict) -> Iterable[str]:
    """Yield the limitations of the outcome."""
    if verdict.outcome == INCONCLUSIVE:
        yield from _reached(verdict)
    if verdict.header.shard.of > 1 and not verdict.recorded.shards:
        yield (
            f"only shard {verdict.header.shard}, so judge the files of all shards with mnistbench "
            "judge"
        )
    unbounded = verdict.decision.unbounded
    if unbounded and verdict.outcome != REGRESSED:
        largest = unbounded[0]
        count = len(unbounded)
        what = f"{largest.quantity.title} ({largest.quantity.case})"
        up_to = (
            f"up to {units.percent_up(largest.high)}"
            f"{' of the case' if largest.quantity.kind == ADDED else ''}"
        )
        limit = units.percent(verdict.options.operation)
        operations = f"{count} operations, the largest being" if count > 1 else "1 operation,"
        yield f"a slowdown of {limit} cannot be ruled out for {operations} {what}: {up_to}"
    if verdict.returned:
        yield f"the sides return different types in {_some([*verdict.returned])}"
    if numbers := [case for case in verdict.different if case not in verdict.returned]:
        yield f"the sides compute different numbers in {_some(numbers)}"
    for side in (BASE, HEAD):
        if cases := [case for case, sides in verdict.not_finite.items() if side in sides]:
            yield f"the {side} computes NaN or infinity in {_some(cases)}"


def _some(names: Sequence[str]) -> str:
    return f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


# ---- JSON ----------------------------------------------------------------------------------------


def json_data(verdict: Verdict) -> dict[str, Any]:
    """Return the whole verdict for JSON, which docs/schema/gate.json describes.

    Changes are shares (0.05 is 5 % slower).
    """
    header = verdict.header
    decision = verdict.decision
    options = verdict.options
    facts_of_cases = {
        **{
            name: getattr(header.sides, name)
            for name in ("memory", "notes", "onednn", "uncompared", "returned")
        },
        "sources": header.sources,
    }
    return {
        "outcome": verdict.outcome,
        "sentence": last_line(verdict),
        "reasons": [{"kind": reason.kind, "text": reason.text} for reason in verdict.reasons],
        "no_regression_of": _finite(decision.bound),
        "no_regression_of_means": _finite(decision.bound_of_means),
        "base": header.base,
        "head": header.head,
        "torch": header.sides.torch,
        "cpu": header.sides.cpu,
        "variables": header.variables,
        "packages": header.sides.packages,
        "resident": header.sides.resident,
        "only_base": header.sides.only_base,
        "only_head": header.sides.only_head,
        "changed": header.sides.changed,
        "generated": header.generated,
        "left_out": header.sides.left_out,
        "remarks": header.remarks,
        "qualified": header.qualified,
        **{
            name: {header.name(case): value for case, value in facts.items()}
            for name, facts in facts_of_cases.items()
        },
        "launches": decision.launches,
        "fresh_launches": decision.fresh,
        "shard": str(header.shard) if header.shard.of > 1 and not verdict.recorded.shards else None,
        "shards": [
            {
                "shard": str(part.header.shard),
                "machine": part.header.machine,
                "cases": len(part.header.labels),
            }
            for part in verdict.recorded.shards
        ],
        "seconds": verdict.recorded.seconds,
        "elapsed_seconds": verdict.end.elapsed_s,
        "parts_seconds": verdict.end.parts_s,
        "level_of_first_stage": SCREENING,
        "level_of_product": product(decision.shards),
        "looks": looks(decision.shards),
        "confidence": CONFIDENCE,
        "thresholds": {"case": options.case, "operation": options.operation, "once": options.once},
        "findings": [
            {
                "verdict": finding.verdict,
                "accepted": options.reason if finding in verdict.accepted else None,
                "screened": _estimate(finding.screened),
                "confirmed": _estimate(finding.confirmed) if finding.confirmed else None,
                "least": _finite(finding.least),
            }
            for finding in decision.findings
        ],
        "cases": list(map(_estimate, decision.cases)),
        "once": list(map(_estimate, decision.once)),
        "operations": list(map(_estimate, decision.operations)),
        "exact": verdict.exact_differences,
        "far_launches": list(_far_launches(verdict)),
        "reproducers": [
            {
                **dict(
                    zip(
                        ("case", "kind", "name"),
                        (header.name(reproducer.key[0]), *reproducer.key[1:]),
                        strict=True,
                    )
                ),
                "script": reproducer.script or None,
                "why_not": reproducer.why_not,
            }
            for reproducer in verdict.end.reproducers
        ],
        "different": verdict.different,
        "not_finite": verdict.not_finite,
        "unbounded": [
            {"case": estimate.quantity.case, "name": estimate.quantity.name}
            for estimate in decision.unbounded
        ],
        "unmeasurable": verdict.unmeasurable,
        "unprofiled": verdict.unprofiled,
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    quantity = estimate.quantity
    return {
        **{name: getattr(quantity, name) for name in ("case", "kind", "name", "title")},
        "clock": quantity.clock or "profiled",
        "members": quantity.members,
        "replaced": [
            {"operation": replaced.key, "base_ns": replaced.base_ns, "head_ns": replaced.head_ns}
            for replaced in quantity.replaced
        ],
        **{
            f"{side}_{unit}": amount if (unit == "bytes") == (quantity.kind == MEMORY) else None
            for unit in ("ns", "bytes")
            for side, amount in ((BASE, quantity.base_ns), (HEAD, quantity.head_ns))
        },
        "share": quantity.share,
        **{name: _finite(getattr(estimate, name)) for name in ("change", "low", "high")},
        "p": estimate.p,
        "launches": estimate.launches,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
