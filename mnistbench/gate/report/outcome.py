"""The outcome in one sentence, what a pass rules out, and why a gate is inconclusive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from mnistbench.core import units
from mnistbench.gate.decide.statistics.permutation import CONFIDENCE
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.reasons import (
    NOTHING_TO_COMPARE,
    bound_reason,
    dependencies_text,
    not_followed_texts,
    trials_needed,
    uncovered_text,
    unused_text,
)
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions, budget_text
from mnistbench.gate.report.rows import SEE_ALL, FindingRow, Rows, rows_by_noun, signed
from mnistbench.gate.survey.reach.look import LOOK_RATIO
from mnistbench.gate.words import BASE, HEAD, WALL
from mnistbench.judging.acceptance import WARN
from mnistbench.judging.kinds import ADDED, ITERATION, MEMORY, ONCE
from mnistbench.judging.verdicts import (
    BUDGET,
    IMPROVED,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    UNCONFIRMED,
)

#: Most noisy cases of which each has a line of its own.
MAX_NOISY_CASES = 10

#: Trials that are suggested are at most this multiple of those that were measured.
MAX_SUGGESTED = 2


def last_line(verdict: Verdict) -> str:
    """Return the outcome in one sentence, with its limitations."""
    return sentence(Rows(verdict))


def sentence(rows: Rows) -> str:
    """Return the last line of a report."""
    verdict = rows.verdict
    excuse = excused(verdict, verdict.options)
    return "; ".join(filter(None, [outcome_text(rows), *limitations(verdict), excuse]))


class Judged(Protocol):
    """A gate, or a search with several of them."""

    @property
    def outcome(self) -> str: ...
    @property
    def is_excusable(self) -> bool: ...
    @property
    def was_broken_off(self) -> bool: ...


def excused(judged: Judged, options: JudgeOptions) -> str:
    """Return why the exit code is 0 although nothing passed; empty if it is not."""
    if judged.outcome == PASSED:
        return ""
    if judged.outcome == INCONCLUSIVE and judged.is_excusable and options.inconclusive == WARN:
        return (
            "only noise or the budget leaves this open, so the exit code is 0 "
            f"(--inconclusive {WARN})"
        )
    if options.report_only and not judged.was_broken_off:
        return "this is a report only, so the exit code is 0 (--report-only)"
    return ""


def outcome_text(rows: Rows, *, is_brief: bool = False) -> str:
    """Return the outcome and what it rests on.

    If it is brief, it has one regression by name and no cause, which follow.
    """
    verdict = rows.verdict
    decision = verdict.shown
    if verdict.outcome == REGRESSED:
        return _regressed_text(rows, is_brief=is_brief)
    if verdict.outcome == PASSED and verdict.are_all_new:
        return f"{PASSED}: {NOTHING_TO_COMPARE}"
    if verdict.outcome == PASSED and verdict.measured_nothing:
        return f"{PASSED}: nothing was measured"
    if verdict.outcome == PASSED:
        bounds = decision.bound, decision.bound_of_means
        # Of the same result, and of all the work.
        improved = [
            row
            for row in rows.findings
            if row.finding.verdict == IMPROVED
            and row.finding.quantity.case not in verdict.returned
            and row.finding.quantity.case not in verdict.outlives
        ]
        better = f"; {counted_findings(improved)} improved" if improved else ""
        if not verdict.accepted:
            return (
                f"{PASSED}: {covered(bounds, _measured_cases(verdict), decision.floor_ns)}{better}"
            )
        unaccepted = (
            f"; {covered(bounds, 'other cases', decision.floor_ns)}"
            if math.isfinite(decision.bound)
            else ""
        )
        accepted = [row for row in rows.findings if row.finding.accepted]
        reasons = dict.fromkeys(row.finding.reason_to_accept for row in accepted)
        return (
            f"{PASSED}: {counted_findings(accepted)} accepted "
            f"({'; '.join(reasons)}){unaccepted}{better}"
        )
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{INCONCLUSIVE}: {verdict.reasons[0].text}{more}"


def _regressed_text(rows: Rows, *, is_brief: bool) -> str:
    """Return how many cases and operations regressed, and their likely causes."""
    regressions = [row for row in rows.findings if row.finding.fails]
    if is_brief:
        return f"{REGRESSED}: {counted_findings(regressions, named=1)}"
    causes = dict.fromkeys(
        group.cause_name
        for group in rows.groups
        if group.is_only and any(row.finding.fails for row in group.rows)
    )
    likely = f", likely cause {units.and_so_on(list(causes))}" if causes else ""
    return f"{REGRESSED}: {counted_findings(regressions, named=units.NAMED)}{likely}"


def counted_findings(rows: Sequence[FindingRow], *, named: int = 0) -> str:
    """Return ``2 cases and 1 operation``: what findings are about.

    Args:
        rows: findings, the largest first.
        named: number of those of the first kind that are named, with their changes.
    """
    texts: list[str] = []
    for noun, counted in rows_by_noun(rows).items():
        text = units.counted(len(counted), noun)
        if named and not texts:
            names = [f"{row.name}, {signed(row.estimate.change)}" for row in counted]
            text += f" ({units.and_so_on(names, named, '; ')})"
        texts.append(text)
    return units.joined(texts)


def _measured_cases(verdict: Verdict) -> str:
    """Return the cases of which a pass holds."""
    if not verdict.reach.same:
        return "any case"
    count = len(verdict.header.labels)
    return f"the {units.counted(count, 'affected case')}"


def covered(bounds: tuple[float, float], where: str, floor_ns: float = 0.0) -> str:
    """Return the smallest slowdowns that are ruled out, of the median and of the mean.

    With a floor, those that are as long, too: of cases whose bounds are below it, any share of it.
    """
    floor = [units.duration(floor_ns)] if floor_ns else []
    sizes = ([*([units.growth(bound, up=True)] if bound > 0 else []), *floor] for bound in bounds)
    median, mean = (f" of {units.joined(size)} or more" if size else "" for size in sizes)
    return f"no regression{median} in the median time of {where}, nor{mean} in the mean"


def limitations(verdict: Verdict) -> Iterable[str]:
    """Yield the limitations of the outcome."""
    yield from _limits_of_reach(verdict)
    yield from limits_of_result(verdict)


def _limits_of_reach(verdict: Verdict) -> Iterable[str]:
    """Yield which cases were left out, and which differences no case shows."""
    reach = verdict.reach
    if same := len(reach.same):
        every = "all " if verdict.measured_nothing and same > 1 else ""
        cases = units.counted(same, "case runs", "cases run")
        yield f"{every}{cases} the same code on both sides{_quick_look_text(reach)}"
    if not verdict.options.require_coverage:
        if reach.uncovered:
            them = "it" if len(reach.uncovered) == 1 else "them"
            yield f"{uncovered_text(reach)}; this gate says nothing about {them}"
        if reach.unused:
            yield unused_text(reach)
    yield from not_followed_texts(reach)


def limits_of_result(verdict: Verdict) -> Iterable[str]:
    """Yield what restricts the result for the measured cases."""
    reach = verdict.reach
    if reach.dependencies and not verdict.measured_nothing:
        yield dependencies_text(reach)
    if verdict.outcome == INCONCLUSIVE:
        yield from _bounded_cases(verdict)
        yield from _sufficient_budget(verdict)
    if verdict.header.shard.of > 1 and not verdict.recorded.shards:
        yield (
            f"only shard {verdict.header.shard}, so judge the files of all shards with mnistbench "
            "judge"
        )
    unbounded = verdict.shown.unbounded
    if unbounded and verdict.outcome != REGRESSED:
        largest = unbounded[0]
        count = len(unbounded)
        what = f"{largest.quantity.title} ({verdict.names[largest.quantity.case]})"
        up_to = (
            f"up to {units.percent_up(largest.high)} of the case"
            if largest.quantity.kind == ADDED
            else f"up to {units.growth(largest.high, up=True)}"
        )
        limit = units.percent(verdict.options.operation)
        operations = f"{count} operations, the largest being" if count > 1 else "1 operation,"
        yield f"a slowdown of {limit} cannot be ruled out for {operations} {what}: {up_to}"
    yield from _other_work(verdict)


def _sufficient_budget(verdict: Verdict) -> Iterable[str]:
    """Yield which budget is expected to be enough, if it was too small."""
    sufficient_s = verdict.recorded.sufficient_s
    if sufficient_s and any(reason.kind in (BUDGET, UNCONFIRMED) for reason in verdict.reasons):
        yield f"--budget {budget_text(sufficient_s)} is expected to be enough for all trials"


def _other_work(verdict: Verdict) -> Iterable[str]:
    """Yield in which cases the sides compute something else, or the head later."""
    names = verdict.names
    base_cases = verdict.header.sides.base.cases
    if returned := [names[case] for case in verdict.returned]:
        yield f"the sides return different types in {units.and_more(returned, 1)}"
    if numbers := [names[case] for case in verdict.different if case not in verdict.returned]:
        yield f"the sides compute different numbers in {units.and_more(numbers, 1)}"
    if later := [names[case] for case in verdict.outlives if not base_cases[case].outlives]:
        yield (
            f"in the head work goes on after the call returns in {units.and_more(later, 1)}, and "
            "is not timed"
        )
    for side in (BASE, HEAD):
        if cases := [names[case] for case, sides in verdict.not_finite.items() if side in sides]:
            yield f"the {side} computes NaN or infinity in {units.and_more(cases, 1)}"


def _quick_look_text(reach: Reach) -> str:
    """Return what the quick look has shown of the cases that are left out.

    A difference of a few nanoseconds does not count, so the ratio of a case may be larger.
    """
    seen = sum(ratio < LOOK_RATIO for ratio in reach.looks.values())
    if not seen:
        return ""
    slower = f"slower by {units.percent(LOOK_RATIO - 1)} or more"
    if len(reach.same) == 1:
        return f"; in a quick look it was not {slower}"
    if seen < len(reach.same):
        return f"; in a quick look {seen} of them {'was' if seen == 1 else 'were'} not {slower}"
    return f"; in a quick look none of them was {slower}"


def _bounded_cases(verdict: Verdict) -> Iterable[str]:
    """Yield in how many cases the threshold is ruled out, and what would settle more."""
    decision = verdict.shown
    limit = verdict.options.case
    widest = dict[str, Estimate]()
    for estimate in decision.cases:
        if estimate.quantity.kind == ITERATION:
            widest[estimate.quantity.case] = max(
                widest.get(estimate.quantity.case, estimate),
                estimate,
                key=lambda estimate: estimate.high,
            )
    beyond = [
        estimate
        for estimate in widest.values()
        if estimate.high > verdict.options.of(estimate.quantity)
    ]
    if len(widest) > 1 and beyond:
        more = next_step(beyond, verdict, " more")
        largest = units.growth(max(estimate.high for estimate in beyond), up=True)
        yield (
            f"{len(widest) - len(beyond)} of {len(widest)} cases rule out {units.percent(limit)}, "
            f"all of them {largest}{more}"
        )


def bounds_of_once(rows: Rows) -> Iterable[str]:
    """Yield the largest bounds of one-time costs, without those that got slower."""
    slower = {finding.quantity.key for finding in rows.shown.findings if finding.is_slower}
    largest: dict[str, str] = {}
    for row in rows.once:
        quantity = row.estimate.quantity
        if quantity.key not in slower and row.estimate.high < math.inf:
            largest.setdefault(quantity.kind, f"{excluded_text(row.estimate)} or more in")
    texts = (
        (ONCE, "slowdown of", "imports, fixtures, setup and first iterations"),
        (MEMORY, "growth of", "memory"),
    )
    if largest:
        excluded_sizes = (
            f"no {grows} {largest[kind]} {what}" for kind, grows, what in texts if kind in largest
        )
        yield f"once: {', '.join(excluded_sizes)}"


def excluded_text(estimate: Estimate) -> str:
    """Return the smallest slowdown that an estimate rules out; ``-`` if it rules out none."""
    return units.percent_up(max(estimate.high, 0.0)) if estimate.high < math.inf else units.MISSING


def not_seen(verdict: Verdict) -> Iterable[str]:
    """Yield how rare a slowdown may be that did not occur.

    One with this share would have occurred with CONFIDENCE.

    Source: the exact binomial bound for no event in n observations, 1 - 0.05^(1 / n); for many of
    them the rule of three, 3 / n.
    """

    def iterations_of(case: str) -> int:
        builds = [build for trial in verdict.recorded.trials for build in trial.cases.get(case, ())]
        # Blocks show CPU time alone, so an iteration that waits is seen in turn only.
        return min(
            sum(len(build[side].times.get(WALL, ())) for build in builds) for side in (BASE, HEAD)
        )

    if verdict.outcome != PASSED or not verdict.header.labels:
        return
    case = min(verdict.header.labels, key=iterations_of)
    iterations = max(1, iterations_of(case))
    rarest_trial, rarest_iteration = (
        1 - (1 - CONFIDENCE) ** (1 / count) for count in (verdict.shown.trials, iterations)
    )
    yield (
        f"not ruled out: a slowdown in less than {units.percent(rarest_trial)} of all processes "
        f"({verdict.shown.trials} trials), or in fewer than 1 of "
        f"{math.floor(1 / rarest_iteration)} iterations ({iterations} on each side of "
        f"{verdict.names[case]})"
    )


# ---- Why it is inconclusive ----------------------------------------------------------------------


def not_decided(rows: Rows) -> list[str]:
    """Return a line for each reason; cases that are too noisy share one without --verbose."""
    verdict = rows.verdict
    open_cases = verdict.decision.open_cases
    cases = {estimate.quantity.case for estimate in open_cases}
    if len(cases) <= MAX_NOISY_CASES or verdict.options.everything:
        return rows.limited(reason.text for reason in verdict.reasons)
    ranked = sorted(open_cases, key=lambda estimate: -estimate.high)
    noisy = [bound_reason(estimate, verdict.options, verdict.names) for estimate in ranked]
    other_reasons = [reason.text for reason in verdict.reasons if reason not in noisy]
    smallest = units.growth(_largest_highs(open_cases)[-1], up=True)
    largest = units.growth(ranked[0].high, up=True)
    summary = (
        f"{len(cases)} of {units.counted(len(verdict.header.labels), 'case')}: slowdowns of up to "
        f"{smallest} to {largest} cannot be ruled out{next_step(open_cases, verdict)}; the worst "
        f"follow; {SEE_ALL}"
    )
    return [
        *rows.limited(other_reasons),
        summary,
        *(reason.text for reason in noisy[: units.NAMED]),
    ]


def _largest_highs(estimates: Iterable[Estimate]) -> list[float]:
    """Return the largest upper bound of each case, the largest first."""
    highs: dict[str, float] = {}
    for estimate in estimates:
        case = estimate.quantity.case
        highs[case] = max(highs.get(case, estimate.high), estimate.high)
    return sorted(highs.values(), reverse=True)


def next_step(estimates: Sequence[Estimate], verdict: Verdict, more: str = "") -> str:
    """Return what it costs to settle more cases, if at most MAX_SUGGESTED times the trials do.

    Args:
        estimates: with upper bounds that are too large.
        verdict: the content of the report.
        more: what the settled ones are called beside their number.
    """
    trials = verdict.decision.trials
    needed: dict[str, float] = {}
    for estimate in estimates:
        number = trials_needed(estimate, verdict.options.pass_limit(estimate.quantity))
        case = estimate.quantity.case
        needed[case] = max(needed.get(case, number), number)
    affordable = [number for number in needed.values() if number <= MAX_SUGGESTED * trials]
    if not affordable:
        return ""
    elapsed_s = verdict.end.elapsed_s
    time = f" ({units.duration(1e9 * elapsed_s * max(affordable) / trials)})" if elapsed_s else ""
    return f", and about {max(affordable)} trials{time} would settle {len(affordable)}{more}"
