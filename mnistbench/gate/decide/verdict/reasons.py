"""Why a gate is inconclusive."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from mnistbench.core import units
from mnistbench.gate.decide.statistics import shards
from mnistbench.gate.decide.statistics.permutation import MIN_SPREAD
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.decide.verdict.estimates import Estimate, as_shown, is_usable
from mnistbench.gate.decide.verdict.findings import MIN_FRESH, SCREENING, GateFinding
from mnistbench.gate.listing import Reach, reasons_with_cases
from mnistbench.gate.options import MIN_TRIALS, JudgeOptions, Thresholds
from mnistbench.gate.samples.case_names import CaseNames
from mnistbench.gate.samples.raw_samples import OUT_OF_BUDGET, GateHeader, Recorded
from mnistbench.gate.words import HEAD
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.findings import is_named_by
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ADDED, ITERATION, MEAN, OPERATION, REPLACED
from mnistbench.judging.ratios import change_of
from mnistbench.judging.verdicts import (
    BROKEN,
    BUDGET,
    CONTRADICTED,
    CONTRADICTION,
    INCONCLUSIVE,
    MISSING,
    NOISE,
    SLOWER,
    UNCONFIRMED,
    UNMEASURED,
    Reason,
)

#: Least similarity of two node ids in a file for a hint that one is the new name of the other.
_SIMILAR = 0.8
#: Why a gate whose base has none of the cases compares nothing.
NOTHING_TO_COMPARE = "the base has none of the cases, so nothing was compared"


# ---- Of the measurement --------------------------------------------------------------------------


def measurement_reasons(
    recorded: Recorded,
    options: JudgeOptions,
    *,
    are_all_new: bool,
    unmeasurable: Mapping[str, str],
    unmeasured: Iterable[str],
    unprofiled: Iterable[str],
) -> Iterable[Reason]:
    """Yield what was not measured: the end of a run, cases of one side, samples of some trials.

    The arguments are fields of a ``Verdict``.
    """
    header = recorded.header
    yield from shards.not_measured(recorded.shards) if recorded.shards else ()
    if recorded.end.cut_short:
        yield Reason(BROKEN if recorded.end.broken_off else BUDGET, recorded.end.cut_short)
    # If the base was tried with the head's benchmarks, it is known that it cannot run them.
    is_tried = header.carried or header.sides.base.cannot_run
    if are_all_new and not options.allow_missing and not is_tried:
        yield Reason(MISSING, f"{NOTHING_TO_COMPARE}; add --allow-missing if this is intended")
    if (
        len(recorded.shards) == header.shard.of
        and not header.labels
        and not header.reach.is_empty
        and not are_all_new
    ):
        yield Reason(MISSING, "no test of any shard is a case of both sides")
    yield from _coverage_reasons(header.reach, options)
    why_missing = header.sides.left_out.get(HEAD, {})
    for cases, difference in (
        (header.sides.only_base, "not in the head"),
        (header.sides.changed, "other parameters in the head"),
    ):
        if cases and not options.allow_missing:
            tests = []
            for case in cases:
                new_name = probable_new_name(case, header.sides.only_head)
                why = why_missing.get(case) or (new_name and f"renamed to {new_name}?")
                tests.append(f"{case} ({why})" if why else case)
            yield Reason(
                MISSING,
                (
                    f"{difference}, so not judged: {units.and_more(tests)}; "
                    "add --allow-missing if this is intended"
                ),
            )
    yield from _unmeasurable_reasons(header, unmeasurable, options)
    names = header.names
    for case in unmeasured:
        yield Reason(UNMEASURED, f"{names[case]}: not measured in every trial; measure again")
    for case in unprofiled:
        yield Reason(
            UNMEASURED,
            (
                f"{names[case]}: not profiled in every trial, so no operation is judged; "
                "measure again"
            ),
        )


def probable_new_name(case: str, new_cases: Sequence[str]) -> str:
    """Return the new case that a missing one was probably renamed to; empty if none is like it.

    It has the same name in another file, or a similar name in the same file.
    """
    file, _, test = case.partition("::")
    moved = [new for new in new_cases if new.partition("::")[2] == test]
    in_file = [new for new in new_cases if new.partition("::")[0] == file]
    similar = difflib.get_close_matches(case, in_file, n=1, cutoff=_SIMILAR)
    return next(iter(moved or similar), "")


def _unmeasurable_reasons(
    header: GateHeader, unmeasurable: Mapping[str, str], options: JudgeOptions
) -> Iterable[Reason]:
    """Yield which cases were not measured: those without time, failing ones, and others."""
    names = header.names
    fails_in_head = header.sides.fails_in_head
    out_of_budget = [case for case, why in unmeasurable.items() if why == OUT_OF_BUDGET]
    if out_of_budget:
        number = units.counted(len(out_of_budget), "case is", "cases are")
        cases = units.and_more([names[case] for case in out_of_budget])
        yield Reason(BUDGET, f"{number} left out, because the budget is too small: {cases}")
    for text in reasons_with_cases(fails_in_head):
        yield Reason(MISSING, f"fails in the head alone: {text}")
    explained = {*out_of_budget, *fails_in_head}
    others = {names[case]: why for case, why in unmeasurable.items() if case not in explained}
    for text in [] if options.allow_missing else reasons_with_cases(others):
        yield Reason(MISSING, f"not measured: {text}; add --allow-missing to judge without it")


def _coverage_reasons(reach: Reach, options: JudgeOptions) -> Iterable[Reason]:
    """Yield which differences of the sides no case shows, if that decides."""
    if options.require_coverage:
        if reach.uncovered:
            yield Reason(MISSING, f"{uncovered_text(reach)}; add a case that runs them")
        if reach.unused:
            yield Reason(MISSING, f"{unused_text(reach)}; add a case that uses them")
    if reach.dependencies and reach.is_empty and not options.allow_missing:
        yield Reason(
            MISSING,
            f"{dependencies_text(reach)}, and no other change affects a case; name the new "
            "versions with --head-with, or add --allow-missing",
        )


def uncovered_text(reach: Reach) -> str:
    """Return which changed functions and names no case uses."""
    counted = units.counted(
        len(reach.uncovered), "changed function or name is", "changed functions or names are"
    )
    return f"{counted} run or used by no case: {units.and_so_on(reach.uncovered)}"


def not_followed_texts(reach: Reach) -> Iterable[str]:
    """Yield which changed functions and names may be in use, although no compared case shows it."""
    for why in dict.fromkeys(reach.not_followed.values()):
        names = [name for name, text in reach.not_followed.items() if text == why]
        yield f"changed, {why}: {units.and_so_on(names)}"


def unused_text(reach: Reach) -> str:
    """Return which files differ and are not seen in use."""
    return f"changed, and not seen in use: {units.and_so_on(reach.unused)}"


def dependencies_text(reach: Reach) -> str:
    """Return which files with dependencies differ."""
    return (
        f"dependencies differ ({units.and_so_on(reach.dependencies)}), and both sides have the "
        "installed packages"
    )


# ---- Of the test ---------------------------------------------------------------------------------


def unusable_reasons(quantities: Sequence[Quantity], names: CaseNames) -> Iterable[Reason]:
    """Yield a reason for each quantity that some trial has no difference of."""
    for quantity in quantities:
        if not is_usable(quantity):
            fault = f"{names[quantity.case]}: too few usable samples of {quantity.title}"
            yield Reason(
                UNMEASURED,
                (
                    f"{fault} (times of zero, or on one side only); measure again, or choose a "
                    "longer case"
                ),
            )


#: What to do about a slowdown that too few trials could confirm.
_MORE_BUDGET = "increase --budget: --inconclusive warn does not excuse it"


def too_few_reasons(
    quantities: Sequence[Quantity], thresholds: Thresholds, names: CaseNames
) -> Iterable[Reason]:
    """Yield why fewer trials than the test needs decide nothing, and what looks slower in them.

    Each of n trials is slower by chance with a probability of 1 / 2^n.
    """
    trials = len(quantities[0].logs) if quantities else 0
    too_few = units.counted(trials, "trial is", "trials are")
    yield Reason(BUDGET, f"{too_few} too few: the test needs at least {MIN_TRIALS}")
    for quantity in quantities:
        if quantity.kind != ITERATION or not is_usable(quantity) or 2.0**-trials > SCREENING:
            continue
        least = change_of(min(quantity.logs))
        if least >= thresholds.of(quantity):
            yield Reason(
                UNCONFIRMED,
                (
                    f"{names[quantity.case]}: {quantity.title} is slower by "
                    f"{units.percent(least)} or more in each of {trials} trials, which are "
                    "too few to judge; "
                    f"{_MORE_BUDGET}"
                ),
            )


def finding_reasons(
    findings: Sequence[GateFinding],
    fresh: int,
    thresholds: Thresholds,
    accept: Sequence[Acceptance],
    broken_off: Collection[tuple[str, str, str]],
    not_again: Collection[str],
    names: CaseNames,
) -> Iterable[Reason]:
    """Yield a reason for each slowdown that the fresh trials neither confirm nor rule out.

    The times of a case by all clocks have one reason of a kind, that of a median if there is one.

    Args:
        findings: of the first stage.
        fresh: number of fresh trials.
        thresholds: the smallest changes that matter.
        accept: intended regressions. What they allow need not be confirmed.
        broken_off: keys of the findings that more fresh trials would have decided.
        not_again: flagged cases that the fresh trials do not measure.
        names: how reasons call the cases.
    """
    given: set[tuple[str, str]] = set()
    for finding in sorted(findings, key=lambda finding: finding.quantity.kind == MEAN):
        quantity = finding.quantity
        reason = _finding_reason(
            finding,
            fresh,
            thresholds,
            is_allowed=any(
                is_named_by(finding, acceptance) and finding.share_to_accept <= acceptance.limit
                for acceptance in accept
            ),
            is_broken_off=quantity.key in broken_off,
            is_measured_again=quantity.case not in not_again,
            name=f"{names[quantity.case]}: {quantity.title}",
        )
        if reason is None or (quantity.is_case and (quantity.case, reason.kind) in given):
            continue
        if quantity.is_case:
            given.add((quantity.case, reason.kind))
        yield reason


def _finding_reason(
    finding: GateFinding,
    fresh: int,
    thresholds: Thresholds,
    *,
    is_allowed: bool,
    is_broken_off: bool,
    is_measured_again: bool,
    name: str,
) -> Reason | None:
    """Return why a slowdown is neither confirmed nor ruled out; None if it is one of both."""
    if finding.screened.change < 0:
        return None
    shown = as_shown(finding.best)
    is_new = shown.change == math.inf
    differs = "is new" if is_new else f"differs by {units.percent(shown.change, signed=True)}"
    is_cut = is_broken_off and not is_allowed
    if finding.verdict == SLOWER and not finding.accepted:
        return _slower_reason(finding, name, shown, thresholds)
    if finding.verdict == INCONCLUSIVE or is_cut:
        limit = thresholds.limit_text(finding.quantity)
        up_to = "" if is_new else f" (up to {units.growth(shown.high, up=True)})"
        return Reason(
            UNCONFIRMED if is_cut else NOISE,
            f"{name} was flagged, and {fresh} fresh trials neither confirm it nor rule out "
            f"a slowdown of {limit}{up_to}; {_MORE_BUDGET if is_cut else 'measure again'}",
        )
    if finding.verdict == CONTRADICTED:
        text = f"{name} {differs}, more than " + (
            "its wall time shows; measure again on a machine that runs nothing else"
            if finding.quantity.is_case
            else "the time of its case shows; profile this operation alone"
        )
        return Reason(CONTRADICTION, text)
    if finding.verdict == UNCONFIRMED and not is_measured_again:
        text = f"{name} {differs}, and the budget left no time to measure it again"
        return Reason(UNCONFIRMED, f"{text}; {_MORE_BUDGET}")
    if finding.verdict == UNCONFIRMED and finding.confirmed is None and fresh >= MIN_FRESH:
        text = f"{name} {differs}, and fresh trials have no usable sample of it; measure again"
        return Reason(UNMEASURED, text)
    if finding.verdict == UNCONFIRMED and finding.confirmed is None:
        trials = units.counted(fresh, "fresh trial is", "fresh trials are")
        too_few = (
            f"{trials} too few to confirm it" if fresh else "no fresh trial has measured it again"
        )
        advice = "increase --budget" if is_allowed else _MORE_BUDGET
        text = f"{name} {differs}, and {too_few}; {advice}"
        return Reason(BUDGET if is_allowed else UNCONFIRMED, text)
    return None


def _slower_reason(
    finding: GateFinding, name: str, shown: Estimate, thresholds: Thresholds
) -> Reason:
    """Return why it is open whether a slowdown is a regression.

    Few slowdowns that are 1.25 times as large as the limit have an estimate below it (rates in
    docs/gate-statistics.md), so ``--inconclusive warn`` excuses these.
    """
    limit = thresholds.of(finding.quantity)
    is_below = finding.best.change < limit
    change = "new" if shown.change == math.inf else f"slower by {units.percent(shown.change)}"
    shown_limit = thresholds.limit_text(finding.quantity)
    return Reason(
        NOISE if is_below else SLOWER,
        f"{name} is {change}, which may be less or more than the limit of {shown_limit}; "
        "measure again with more --trials, or allow it with --accept",
    )


def bound_reasons(
    estimates: Iterable[Estimate], thresholds: Thresholds, names: CaseNames
) -> Iterable[Reason]:
    """Yield the reason that too large an upper bound is, of each case the largest."""
    largest: dict[str, Estimate] = {}
    for estimate in estimates:
        case = estimate.quantity.case
        largest[case] = max(largest.get(case, estimate), estimate, key=lambda bound: bound.high)
    yield from (bound_reason(estimate, thresholds, names) for estimate in largest.values())


def bound_reason(estimate: Estimate, thresholds: Thresholds, names: CaseNames) -> Reason:
    """Return the reason that an estimate with too large an upper bound is."""
    up_to = f"of up to {units.growth(estimate.high, up=True)}"
    quantity = estimate.quantity
    left = f"{names[quantity.case]}: a slowdown {up_to} of its {quantity.title} cannot be ruled out"
    limit = thresholds.pass_limit(estimate.quantity)
    if estimate.change >= limit:
        return Reason(
            NOISE,
            f"{left}; the estimate is {units.percent(estimate.change, signed=True)}; measure again",
        )
    needed = trials_needed(estimate, limit)
    advice = f"about {needed} trials would settle it" if needed <= 1_000 else "too noisy to judge"
    return Reason(NOISE, f"{left}; {advice}")


def trials_needed(estimate: Estimate, limit: float) -> float:
    """Return the number of trials for an upper bound below a limit; infinite if none are enough.

    The width of an interval falls with their root. It still contains the estimate, so the limit has
    to be larger.
    """
    change = max(estimate.change, -1 + MIN_SPREAD)
    reach, room = (math.log1p(value) - math.log1p(change) for value in (estimate.high, limit))
    if room <= 0:
        return math.inf
    needed = estimate.trials * (reach / room) ** 2
    return math.ceil(needed) if math.isfinite(needed) else math.inf


def unbounded_reasons(
    unbounded: Sequence[Estimate], thresholds: Thresholds, names: CaseNames
) -> Iterable[Reason]:
    """Yield a reason for each large operation that is not bounded.

    The last line of the report counts all of them.
    """
    for estimate in unbounded:
        if estimate.quantity.share >= LARGE_SHARE and estimate.quantity.kind in (
            OPERATION,
            REPLACED,
            ADDED,
        ):
            limit = thresholds.limit_text(estimate.quantity)
            share = units.percent(estimate.quantity.share)
            slower = (
                f"{estimate.quantity.title} ({share} of its case) may be up to "
                f"{units.growth(estimate.high, up=True)} slower"
            )
            advice = f"the threshold is {limit}, and more --trials narrow the interval"
            yield Reason(NOISE, f"{names[estimate.quantity.case]}: {slower}; {advice}")
