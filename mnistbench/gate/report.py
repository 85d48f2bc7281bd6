"""A gate's Verdict -> its report and its exit code. Intervals are also drawn as text, in a forest plot."""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mnistbench.compare.criteria import LARGE_SHARE
from mnistbench.core import units
from mnistbench.gate.verdict.decision import (
    IMPROVED,
    INCONCLUSIVE,
    LOOKS,
    PASSED,
    PRODUCT,
    REGRESSED,
    SCREENING,
    UNCONFIRMED,
    Estimate,
    Finding,
    change_of,
)
from mnistbench.gate.verdict.permutation import CONFIDENCE
from mnistbench.gate.verdict.result import JudgeOptions, Verdict
from mnistbench.gate.verdict.samples import ADDED, BASE, BUSY, DEVICE, HEAD, MEAN, MEMORY, ONCE, WALL, GateHeader, Quantity
from mnistbench.gate.verdict.soak import Soak
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

#: Share of a case from which on an operation is large; the bounds of large operations are a family of their own.
_LARGE = units.percent(LARGE_SHARE)

#: Clocks of an accelerator, as the table of cases names them.
_CLOCKS = {DEVICE: "device elapsed", BUSY: "device busy"}

#: Exact differences shown per case, and tests that are left out.
DIFFERENCES = LEFT_OUT = 6

#: Text of a change.
signed = functools.partial(units.percent, signed=True)

_CODES = {PASSED: EXIT_PASSED, REGRESSED: EXIT_REGRESSED, INCONCLUSIVE: EXIT_UNJUDGED}


def report(verdict: Verdict) -> Report:
    """Return the report of a verdict."""
    return Report(last_line(verdict), blocks(verdict), document("gate", **json_data(verdict)), drawn=True)


def deliver_verdict(shown: Report, options: JudgeOptions, outcome: str, *, is_excusable: bool) -> int:
    """Print or write a report, append it to the summary of a job on GitHub, and return the exit code.

    Args:
        shown: the report.
        options: of the command.
        outcome: PASSED, REGRESSED or INCONCLUSIVE.
        is_excusable: whether ``--inconclusive ok`` applies.
    """
    deliver(shown, options.format, options.output)
    if os.environ.get("GITHUB_STEP_SUMMARY") and (note := append_text_to_step_summary(render(shown, "markdown"))):
        print_error(note)
    may_pass = outcome == INCONCLUSIVE and is_excusable and options.inconclusive == "ok"
    return _CODES[PASSED if may_pass else outcome]


def blocks(verdict: Verdict) -> list[Block]:
    """Return the report; ``--top`` limits the operations of each case, but those with a finding are always shown."""
    return [
        Block("", tuple(_head(verdict))),
        Block("Soak", tuple(map(_soak_line, verdict.soaks))),
        Block("Found", tuple(_finding_line(finding, verdict) for finding in _without_echoes(verdict.decision.findings))),
        Block("Reproducers", tuple(_reproducers(verdict))),
        Block("Cases", tables=tuple(_case_table(verdict))),
        Block("Operations", tables=tuple(_operation_tables(verdict))),
        Block("Replaced operations", tuple(_replacements(verdict))),
        Block("Exact differences", tuple(_exact_differences(verdict))),
        Block("Verdict", (*_notes(verdict), last_line(verdict))),
    ]


def _head(verdict: Verdict) -> Iterable[str]:
    header, decision = verdict.header, verdict.decision
    fresh = f" and {decision.fresh} fresh ones" if decision.fresh else ""
    yield f"base {header.base} -> head {header.head}"
    count = f"{len(header.labels)} case{'s' if len(header.labels) != 1 else ''}"
    time = units.duration(verdict.recorded.seconds * 1e9)
    if verdict.end.elapsed_s:
        time = f"{units.duration(verdict.end.elapsed_s * 1e9)} from start to finish"
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
    if header.qualified:
        yield header.qualified
    yield from _selection(header)


def _selection(header: GateHeader) -> Iterable[str]:
    """Yield what was copied beside the commits, what else differs, and the tests that are not judged."""
    for what, cases in (
        ("only in the base", header.only_base), ("only in the head", header.only_head),
        ("other parameters in the head, so not compared", header.changed),
    ):  # fmt: skip
        if cases:
            yield f"{what}: {', '.join(cases)}"
    if header.generated:
        yield f"ignored by git, and copied from the working tree: {', '.join(header.generated)}"
    yield from header.remarks
    for names in dict.fromkeys(header.sources.values()):
        of_cases = ", ".join(header.name(case) for case, of_case in header.sources.items() if of_case == names)
        yield f"other tests or data, from which a difference in time may come: {', '.join(names)} of {of_cases}"
    base, head = (header.left_out.get(side, {}) for side in (BASE, HEAD))
    left_out = list(dict.fromkeys((*base, *head)))
    for case in left_out[:LEFT_OUT]:
        of_base, of_head = base.get(case, ""), head.get(case, "")
        said = [f"{text} in the {side}" for side, text in ((BASE, of_base), (HEAD, of_head)) if text]
        yield f"left out: {case} {of_base if of_base == of_head else '; '.join(said)}"
    if len(left_out) > LEFT_OUT:
        yield f"left out: {len(left_out) - LEFT_OUT} more; use --format json to see all"


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
    accepted = f", accepted: {verdict.options.reason}" if finding in verdict.accepted else ""
    title = finding.screened.quantity.title  # that of the tables
    shown = replace(finding.best, low=finding.least) if finding.verdict == REGRESSED else finding.best
    changed = _change(shown, ", fresh launches only" if finding.confirmed else "")
    told = f"{finding.verdict}{accepted}: {title} ({finding.best.quantity.case}), {changed}"
    limits = [acceptance.limit or 0.0 for exceeding, acceptance in verdict.exceeded if exceeding is finding]
    exceeded = [f"more than the {units.percent(limit)} that --accept allows" for limit in limits]
    return "; ".join(filter(None, (told, *exceeded, _beside_limit(finding, verdict), _cause(finding, verdict))))


def _beside_limit(finding: Finding, verdict: Verdict) -> str:
    """Return whether a regression is larger than the limit, or only may be."""
    if finding.verdict != REGRESSED:
        return ""
    least = verdict.options.of(finding.screened.quantity)
    limit = f"the limit of {units.percent(least)}"
    return f"more than {limit}" if finding.least >= least else f"a slowdown of {limit} cannot be ruled out"


def _soak_line(soak: Soak) -> str:
    means, slowest = (" -> ".join(map(units.duration, pair)) for pair in (soak.means_ns, soak.slowest_ns))
    base, head = map(signed, soak.growths)
    return (
        f"{soak.case}: {soak.iterations:,} iterations on each side, mean {signed(soak.change)} ({signed(soak.low)} to "
        f"{signed(soak.high)}), {means}; from the first tenth to the last {base} in the base, {head} in the head; "
        f"mean of the slowest {slowest}"
    )


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
    change = f"{signed(estimate.change)}{of_case} ({signed(estimate.low)} to {signed(estimate.high)}{launches})"
    told = f"{change}, {_amounts(quantity)}"
    if not quantity.is_operation or quantity.kind == ADDED:
        return told
    return f"{told}; {signed(estimate.change * quantity.share)} of the case"


def _amounts(quantity: Quantity) -> str:
    """Return the times of both sides, or their memory."""
    unit = units.size if quantity.kind == MEMORY else units.duration
    return " -> ".join(unit(amount) if amount else "0" for amount in (quantity.base_ns, quantity.head_ns))


def quantity(quantity: Quantity) -> str:
    """Return the name of a quantity in a table with its change."""
    return f"{quantity.title}{' (change as a share of the case)' if quantity.kind == ADDED else ''}"


def _replacements(verdict: Verdict) -> Iterable[str]:
    """Yield the largest replacements of each case without a finding, so that a reader knows that the sides call others."""
    found = {finding.screened.quantity.key for finding in verdict.decision.findings}
    top, quiet = verdict.options.top, dict[str, list[Estimate]]()
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
        return next((f"likely cause: {sentence}" for sentence in found if _is_more(sentence)), "")
    name = f"{quantity.name}: "
    return next((sentence.removeprefix(name) for sentence in found if sentence.startswith(name)), "")


def _is_more(sentence: str) -> bool:
    if ": new, " in sentence:
        return True
    match = re.search(r": ([\d.,]+) -> ([\d.,]+) calls", sentence)
    return match is not None and float(match[2].replace(",", "")) > float(match[1].replace(",", ""))


def _case_table(verdict: Verdict) -> Iterable[Table]:
    cases = verdict.decision.cases
    if cases:
        columns = (
            Column[Estimate]("case", lambda one: one.quantity.case),
            Column[Estimate]("clock", _clock),
            Column[Estimate]("base us", lambda one: one.quantity.base_ns, units.microseconds),
            Column[Estimate]("head us", lambda one: one.quantity.head_ns, units.microseconds),
            *_columns_of_change(_scale(cases, verdict.options.case)),
            Column[Estimate]("slowdown below", _excluded),
        )
        yield Table(f"cases: change of iteration time, head relative to base; {_CONFIDENCE}", columns, cases)
    if ranked := sorted(verdict.decision.once, key=lambda one: -one.high):
        columns = (
            Column[Estimate]("what", lambda one: one.quantity.title),
            Column[Estimate]("case", lambda one: one.quantity.case),
            Column[Estimate]("base -> head", lambda one: _amounts(one.quantity)),
            *_columns_of_change(_scale(ranked, verdict.options.once)),
            Column[Estimate]("growth below", _excluded),
        )
        yield Table(f"once in a process: CPU time, memory at its peak; {_CONFIDENCE}", columns, ranked)


def _clock(one: Estimate) -> str:
    clock = one.quantity.clock
    return f"{_CLOCKS.get(clock, clock)}{', mean' if one.quantity.kind == MEAN else ''}"


def _operation_tables(verdict: Verdict) -> Iterable[Table]:
    found = {finding.screened.quantity.key: finding for finding in verdict.decision.findings}

    def told(operation: Estimate) -> str:
        finding = found.get(operation.quantity.key)
        if finding is None:
            return f"below {_excluded(operation)}"
        return f"{finding.verdict}, accepted" if finding in verdict.accepted else finding.verdict

    for case in dict.fromkeys(operation.quantity.case for operation in verdict.decision.operations):
        of_case = [operation for operation in verdict.decision.operations if operation.quantity.case == case]
        ranked = sorted(of_case, key=lambda one: (one.quantity.key not in found, -one.quantity.share))
        top = verdict.options.top
        shown = [operation for rank, operation in enumerate(ranked) if rank < top or operation.quantity.key in found]
        columns = (
            Column[Estimate]("operation", lambda one: quantity(one.quantity)),
            Column[Estimate]("base us", lambda one: one.quantity.base_ns, units.microseconds),
            Column[Estimate]("share", lambda one: one.quantity.share, units.percent),
            *_columns_of_change(_scale(shown, verdict.options.operation)),
            Column[Estimate]("verdict", told),
        )
        title = f"{case}: change of self times; {_CONFIDENCE}, separately for shares of {_LARGE} and more"
        yield Table(units.printable(title), columns, shown)


def _columns_of_change(scale: float) -> tuple[Column[Estimate], ...]:
    """Return the columns of a change: the estimate, its bounds, and a forest plot from -scale to +scale."""
    edge, half = units.percent(scale), (WIDTH + 1) // 2
    return (
        Column("change", lambda one: one.change, signed),
        Column("from", lambda one: one.low, signed),
        Column("to", lambda one: one.high, signed),
        Column(f"-{edge}".ljust(half) + "0" + f"+{edge}".rjust(half), lambda one: forest(one, scale)),
    )


_CONFIDENCE = f"simultaneous {CONFIDENCE:.0%} confidence intervals".replace("%", " %")


def _excluded(estimate: Estimate) -> str:
    return units.percent_up(max(estimate.high, 0.0))


def _scale(estimates: Sequence[Estimate], threshold: float) -> float:
    """Return the change at the edges of a plot: it shows every estimate up to WIDEST, and at least twice the threshold."""
    reaches = (
        max(min(abs(estimate.change), WIDEST), min(max(abs(estimate.low), abs(estimate.high)), 1.0)) for estimate in estimates
    )
    widest = max(reaches, default=0.0)
    return max(2 * threshold, math.ceil(widest * 100) / 100)


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


def _exact_differences(verdict: Verdict) -> Iterable[str]:
    for case, found in verdict.exact_differences.items():
        yield from (f"{case}: {sentence}" for sentence in found[:DIFFERENCES])
        if len(found) > DIFFERENCES:
            yield f"{case}: {len(found) - DIFFERENCES} more; use --format json to see all"


def _notes(verdict: Verdict) -> Iterable[str]:
    for case, note in verdict.header.notes.items():
        yield f"{verdict.header.name(case)}: {note}"
    for case, why in verdict.header.uncompared.items():
        yield f"{verdict.header.name(case)}: {why}, so the results of the sides are not compared"
    for case in verdict.different:
        base, head = verdict.returned.get(case, ("", ""))
        what = f"the base returns {base} and the head {head}" if base else "the sides compute different numbers"
        yield f"{case}: {what}, so a difference in time may come from the {'result' if base else 'data'}"
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
    yield from _far_launches(verdict)
    in_last_line = 1 if verdict.outcome == INCONCLUSIVE else 0
    for reason in verdict.reasons[in_last_line:]:
        yield f"{INCONCLUSIVE}: {reason.text}"
    yield from _bounds_of_once(verdict)
    if verdict.outcome == PASSED:
        yield _not_seen(verdict)


def _bounds_of_once(verdict: Verdict) -> Iterable[str]:
    """Yield the largest bounds of what occurs once, without regressions."""
    regressed = {finding.screened.quantity.key for finding in verdict.decision.findings if finding.verdict == REGRESSED}
    ranked = sorted((one for one in verdict.decision.once if one.quantity.key not in regressed), key=lambda one: one.high)
    largest = {one.quantity.kind: f"{_excluded(one)} or more in" for one in ranked}
    told = ((ONCE, "slowdown of", "imports, fixtures, setup and first iterations"), (MEMORY, "growth of", "memory"))
    if largest:
        yield f"once: {', '.join(f'no {grows} {largest[kind]} {what}' for kind, grows, what in told if kind in largest)}"


#: A launch is far from the others if its distance from their median is larger than this many robust standard deviations.
FAR = 4.0


def _far_launches(verdict: Verdict) -> Iterable[str]:
    """Yield launches whose median differs from that of the others by the threshold or more: single processes may be slow.

    Source of the factor of the median absolute deviation: that of a normal distribution, 1 / 0.6745.
    """
    told = set()
    for one in verdict.decision.cases:
        logs, case = one.quantity.logs, one.quantity.case
        middle = statistics.median(logs)
        deviation = statistics.median(abs(log - middle) for log in logs) / 0.6745
        limit = max(FAR * deviation, math.log1p(verdict.options.case))
        far = sorted((log for log in logs if abs(log - middle) > limit), key=lambda log: -abs(log - middle))
        if far and one.quantity.kind != MEAN and case not in told:
            told.add(case)
            shown = ", ".join(signed(change_of(log)) for log in far[:3]) + (", ..." if len(far) > 3 else "")
            yield (
                f"{case}: {len(far)} of {len(logs)} launches far from the others by {one.quantity.title} ({shown}; "
                f"median {signed(change_of(middle))}), so single processes may be slower or faster"
            )


def _not_seen(verdict: Verdict) -> str:
    """Return how rare a slowdown may be that did not occur: one with this share would have occurred with CONFIDENCE.

    Source: the exact binomial bound for no event in n trials, 1 - 0.05^(1 / n); for many trials the rule of three, 3 / n.
    """

    def iterations_of(case: str) -> int:
        builds = [build for launch in verdict.recorded.launches for build in launch.cases.get(case, ())]
        # Blocks show CPU time alone, so an iteration that waits is seen in turn only.
        return min(sum(len(build[side].times.get(WALL, ())) for build in builds) for side in (BASE, HEAD))

    case = min(verdict.header.labels, key=iterations_of)
    iterations = max(1, iterations_of(case))
    of_launches, of_iterations = (1 - (1 - CONFIDENCE) ** (1 / count) for count in (verdict.decision.launches, iterations))
    return (
        f"not ruled out: a slowdown in less than {units.percent(of_launches)} of all processes ({verdict.decision.launches} "
        f"launches), or in fewer than 1 of {math.floor(1 / of_iterations)} iterations ({iterations} on each side of "
        f"{verdict.header.name(case)})"
    )


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
        found = [one for one in decision.findings if one.screened.quantity.case not in verdict.returned]  # of the same result
        improved = sum(finding.verdict == IMPROVED for finding in _without_echoes(found))
        better = f"; {improved} improved" if improved else ""
        if not verdict.accepted:
            return f"{PASSED}: {_covered(verdict, 'any case')}{better}"
        others = f"; {_covered(verdict, 'other cases')}" if math.isfinite(decision.bound) else ""
        return f"{PASSED}: {len(_without_echoes(verdict.accepted))} accepted ({verdict.options.reason}){others}{better}"
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{INCONCLUSIVE}: {verdict.reasons[0].text}{more}"


def _covered(verdict: Verdict, where: str) -> str:
    """Return the smallest slowdowns that are ruled out, of the median and of the mean."""
    bounds = verdict.decision.bound, verdict.decision.bound_of_means
    median, mean = (f" of {units.percent_up(bound)} or more" if bound > 0 else "" for bound in bounds)
    return f"no regression{median} in the median time of {where}, nor{mean} in the mean"


def _limits(verdict: Verdict) -> Iterable[str]:
    """Yield the limitations of the outcome."""
    unbounded = verdict.decision.unbounded
    if unbounded and verdict.outcome != REGRESSED:
        largest, count = unbounded[0], len(unbounded)
        what = f"{largest.quantity.title} ({largest.quantity.case})"
        up_to = f"up to {units.percent_up(largest.high)}{' of the case' if largest.quantity.kind == ADDED else ''}"
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


# ---- JSON ------------------------------------------------------------------------------------------------------------


def json_data(verdict: Verdict) -> dict[str, Any]:
    """Return the whole verdict for JSON, which docs/schema/gate.json describes; changes are shares (0.05 is 5 % slower)."""
    header, decision, options = verdict.header, verdict.decision, verdict.options
    of_header = (
        "base", "head", "torch", "variables", "packages", "resident", "only_base", "only_head", "changed", "generated",
        "left_out", "remarks", "qualified",
    )  # fmt: skip
    return {
        "outcome": verdict.outcome,
        "sentence": last_line(verdict),
        "reasons": [reason._asdict() for reason in verdict.reasons],
        "no_regression_of": _finite(decision.bound),
        "no_regression_of_means": _finite(decision.bound_of_means),
        **{name: getattr(header, name) for name in of_header},
        **{
            name: {header.name(case): value for case, value in getattr(header, name).items()}
            for name in ("memory", "notes", "uncompared", "returned", "sources")
        },
        "launches": decision.launches,
        "fresh_launches": decision.fresh,
        "seconds": verdict.recorded.seconds,
        "elapsed_seconds": verdict.end.elapsed_s,
        "level_of_first_stage": SCREENING,
        "level_of_product": PRODUCT,
        "looks": LOOKS,
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
                **dict(zip(("case", "kind", "name"), (header.name(one.key[0]), *one.key[1:]), strict=True)),
                "script": one.script or None,
                "why_not": one.why_not,
            }
            for one in verdict.end.reproducers
        ],
        "different": verdict.different,
        "not_finite": verdict.not_finite,
        "unbounded": [{"case": one.quantity.case, "name": one.quantity.name} for one in decision.unbounded],
        "unprofiled": verdict.unprofiled,
        "soak": [one._asdict() for one in verdict.soaks],
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    quantity = estimate.quantity
    return {
        **{name: getattr(quantity, name) for name in ("case", "kind", "name", "title")},
        "clock": quantity.clock or "profiled",
        "members": quantity.members,
        "replaced": [{"operation": one.key, "base_ns": one.base_ns, "head_ns": one.head_ns} for one in quantity.replaced],
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
