"""Why a gate is inconclusive: each reason, or of many cases their number and the worst."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mnistbench.core import units
from mnistbench.gate.report.limits import SEE_ALL, limited
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.reasons import bound_reason, launches_needed
from mnistbench.gate.verdict.verdict import Verdict

#: Most cases of which each has a line of its own.
MOST_CASES = 10

#: Launches that are suggested are at most this multiple of those that were measured.
SUGGESTED = 2


def not_decided(verdict: Verdict) -> list[str]:
    """Return a line for each reason; without --all, cases that are too noisy have one together."""
    open_cases = verdict.decision.open_cases
    names = {estimate.quantity.case for estimate in open_cases}
    if len(names) <= MOST_CASES or verdict.options.everything:
        return limited((reason.text for reason in verdict.reasons), verdict)
    ranked = sorted(open_cases, key=lambda estimate: -estimate.high)
    noisy = [bound_reason(estimate, verdict.options) for estimate in ranked]
    other_reasons = [reason.text for reason in verdict.reasons if reason not in noisy]
    smallest = units.percent_up(_largest_highs(open_cases)[-1])
    largest = units.percent_up(ranked[0].high)
    summary = (
        f"{len(names)} of {units.counted(len(verdict.header.labels), 'case')}: slowdowns of up to "
        f"{smallest} to {largest} cannot be ruled out{next_step(open_cases, verdict)}; the worst "
        f"follow; {SEE_ALL}"
    )
    return [
        *limited(other_reasons, verdict),
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
    """Return what it costs to settle more cases, if at most SUGGESTED times the launches do.

    Args:
        estimates: with upper bounds that are too large.
        verdict: the content of the report.
        more: what the settled ones are called beside their number.
    """
    launches = verdict.decision.launches
    needed: dict[str, float] = {}
    for estimate in estimates:
        number = launches_needed(estimate, verdict.options.to_rule_out(estimate.quantity))
        case = estimate.quantity.case
        needed[case] = max(needed.get(case, number), number)
    affordable = [number for number in needed.values() if number <= SUGGESTED * launches]
    if not affordable:
        return ""
    elapsed_s = verdict.end.elapsed_s
    time = f" ({units.duration(1e9 * elapsed_s * max(affordable) / launches)})" if elapsed_s else ""
    return f", and about {max(affordable)} launches{time} would settle {len(affordable)}{more}"
