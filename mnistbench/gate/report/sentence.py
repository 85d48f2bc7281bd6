"""The outcome in one sentence, and what a pass rules out."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mnistbench.core import units
from mnistbench.gate.report.not_decided import next_step
from mnistbench.gate.report.ranking import without_echoes
from mnistbench.gate.report.texts import covered, excluded_text
from mnistbench.gate.statistics.permutation import CONFIDENCE
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.verdict import NOTHING_TO_COMPARE, Verdict, gap_text
from mnistbench.gate.words import BASE, HEAD, WALL
from mnistbench.judging.kinds import ADDED, ITERATION, MEMORY, ONCE
from mnistbench.judging.verdicts import IMPROVED, INCONCLUSIVE, PASSED, REGRESSED


def last_line(verdict: Verdict) -> str:
    """Return the outcome in one sentence, with its limitations."""
    return "; ".join([outcome_text(verdict), *limitations(verdict)])


def outcome_text(verdict: Verdict) -> str:
    """Return the outcome and what it rests on."""
    decision = verdict.shown
    if verdict.outcome == REGRESSED:
        regressions = without_echoes(verdict.regressions)
        titles = [f"{finding.quantity.title} ({finding.quantity.case})" for finding in regressions]
        first_titles = units.and_so_on(titles)
        return f"{REGRESSED}: {len(regressions)} confirmed by fresh launches: {first_titles}"
    if verdict.outcome == PASSED and verdict.are_all_new:
        return f"{PASSED}: {NOTHING_TO_COMPARE}"
    if verdict.outcome == PASSED and verdict.reach.is_empty:
        return f"{PASSED}: nothing was measured"
    if verdict.outcome == PASSED:
        bounds = decision.bound, decision.bound_of_means
        # Of the same result.
        comparable = [
            finding
            for finding in decision.findings
            if finding.quantity.case not in verdict.returned
        ]
        improved = sum(finding.verdict == IMPROVED for finding in without_echoes(comparable))
        better = f"; {improved} improved" if improved else ""
        if not verdict.accepted:
            return f"{PASSED}: {covered(bounds, _measured_cases(verdict))}{better}"
        unaccepted = f"; {covered(bounds, 'other cases')}" if math.isfinite(decision.bound) else ""
        return (
            f"{PASSED}: {len(without_echoes(verdict.accepted))} accepted "
            f"({verdict.options.reason}){unaccepted}{better}"
        )
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{INCONCLUSIVE}: {verdict.reasons[0].text}{more}"


def _measured_cases(verdict: Verdict) -> str:
    """Return the cases of which a pass holds."""
    if not verdict.reach.same:
        return "any case"
    count = len(verdict.header.labels)
    return f"the {units.counted(count, 'case that runs', 'cases that run')} changed code"


def limitations(verdict: Verdict) -> Iterable[str]:
    """Yield the limitations of the outcome."""
    if same := len(verdict.reach.same):
        every = "all " if verdict.reach.is_empty and same > 1 else ""
        yield f"{every}{units.counted(same, 'case runs', 'cases run')} the same code on both sides"
    if verdict.reach.gap and not verdict.options.require_reach:
        them = "it" if len(verdict.reach.gap) == 1 else "them"
        yield f"{gap_text(verdict.reach)}; this gate says nothing about {them}"
    if verdict.outcome == INCONCLUSIVE:
        yield from _reached(verdict)
    if verdict.header.shard.of > 1 and not verdict.recorded.shards:
        yield (
            f"only shard {verdict.header.shard}, so judge the files of all shards with mnistbench "
            "judge"
        )
    unbounded = verdict.shown.unbounded
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
        yield f"the sides return different types in {units.and_more([*verdict.returned], 1)}"
    if numbers := [case for case in verdict.different if case not in verdict.returned]:
        yield f"the sides compute different numbers in {units.and_more(numbers, 1)}"
    for side in (BASE, HEAD):
        if cases := [case for case, sides in verdict.not_finite.items() if side in sides]:
            yield f"the {side} computes NaN or infinity in {units.and_more(cases, 1)}"


def _reached(verdict: Verdict) -> Iterable[str]:
    """Yield for how many of several cases the threshold is ruled out.

    And what more launches would change.
    """
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
    beyond = [estimate for estimate in widest.values() if estimate.high > limit]
    if len(widest) > 1 and beyond:
        more = next_step(beyond, verdict, " more")
        largest = units.percent_up(max(estimate.high for estimate in beyond))
        yield (
            f"{len(widest) - len(beyond)} of {len(widest)} cases rule out {units.percent(limit)}, "
            f"all of them {largest}{more}"
        )


def bounds_of_once(verdict: Verdict) -> Iterable[str]:
    """Yield the largest bounds of what occurs once, without regressions."""
    regressed = {
        finding.quantity.key for finding in verdict.shown.findings if finding.verdict == REGRESSED
    }
    bounded = (
        estimate
        for estimate in verdict.shown.once
        if estimate.quantity.key not in regressed and estimate.high < math.inf
    )
    ranked = sorted(bounded, key=lambda estimate: estimate.high)
    largest = {
        estimate.quantity.kind: f"{excluded_text(estimate)} or more in" for estimate in ranked
    }
    told = (
        (ONCE, "slowdown of", "imports, fixtures, setup and first iterations"),
        (MEMORY, "growth of", "memory"),
    )
    if largest:
        excluded_sizes = (
            f"no {grows} {largest[kind]} {what}" for kind, grows, what in told if kind in largest
        )
        yield f"once: {', '.join(excluded_sizes)}"


def not_seen(verdict: Verdict) -> Iterable[str]:
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
    rarest_launch, rarest_iteration = (
        1 - (1 - CONFIDENCE) ** (1 / count) for count in (verdict.shown.launches, iterations)
    )
    yield (
        f"not ruled out: a slowdown in less than {units.percent(rarest_launch)} of all processes "
        f"({verdict.shown.launches} launches), or in fewer than 1 of "
        f"{math.floor(1 / rarest_iteration)} iterations ({iterations} on each side of "
        f"{verdict.header.name(case)})"
    )
