"""The lines of findings, with their probable causes and their scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.gate.causes.texts import LIKELY, cause_name, cause_text
from mnistbench.gate.report.selection import limited, verdicts_of_quantities, without_echoes
from mnistbench.gate.report.texts import change_text, signed
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.exact_differences import OTHER_PATH
from mnistbench.gate.verdict.findings import LaunchFinding
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.judging.verdicts import GRAVITY, IMPROVED, REGRESSED, UNCONFIRMED


@dataclass(frozen=True)
class FindingEntry:
    """What a report says of a finding, and of the same by other clocks of its case."""

    finding: LaunchFinding
    case_name: str
    estimate: Estimate  # the one to show
    verdict: str  # with the reason if it is accepted
    launches: str  # which ones the estimate is of, if it is not of all
    clocks: tuple[str, ...]  # changes of the case by other clocks
    reasons: tuple[str, ...]  # for the verdict
    cause: str  # what probably caused it, or why that is not known; empty if there is nothing
    cause_name: str  # the function or other change that probably caused it; empty if not known
    advice: str  # what to do if it is intended; empty if there is nothing to say

    @property
    def line(self) -> str:
        """Everything but the cause in one line."""
        quantity = self.finding.quantity
        changed = change_text(self.estimate, self.launches and f", {self.launches}")
        told = f"{self.verdict}: {quantity.title} ({self.case_name}), {changed}"
        return "; ".join(filter(None, (told, *self.clocks, *self.reasons, self.advice)))


def finding_lines(verdict: Verdict) -> list[str]:
    """Return a line for each finding, regressions first, and one for its cause."""
    causes = {entry.line: entry.cause for entry in finding_entries(verdict)}
    return [
        text for line in limited(causes, verdict) for text in filter(None, (line, causes.get(line)))
    ]


def finding_entries(verdict: Verdict) -> list[FindingEntry]:
    """Return the findings to report, regressions first.

    One entry for the time of a case by several clocks.
    """
    entries: dict[tuple[object, ...], list[LaunchFinding]] = {}
    for finding in sorted(
        without_echoes(verdict.shown.findings),
        key=lambda finding: GRAVITY.index(finding.verdict),
    ):
        quantity = finding.quantity
        if finding.verdict != UNCONFIRMED or not finding.could_be_confirmed:
            key = (
                quantity.case,
                quantity.kind,
                "" if quantity.is_case else quantity.name,
                finding.verdict,
                finding.accepted,
            )
            entries.setdefault(key, []).append(finding)
    return [_entry(*findings, verdict=verdict) for findings in entries.values()]


def _entry(
    finding: LaunchFinding, *by_other_clocks: LaunchFinding, verdict: Verdict
) -> FindingEntry:
    """Return the entry of a finding; ``by_other_clocks`` are of the same case."""
    accepted = f", accepted: {verdict.options.reason}" if finding.accepted else ""
    is_fresh = finding.confirmed and not finding.is_slower
    exceeded = (
        f"more than the {units.percent(finding.exceeded_limit)} that --accept allows"
        if finding.exceeded_limit is not None
        else ""
    )
    reasons = (
        exceeded,
        _confirmation(finding),
        _too_few(finding),
        _beside_limit(finding, verdict),
        _by_one_clock(finding, by_other_clocks, verdict),
        _difference_of_operation(finding, verdict),
        _less_work(finding, verdict),
    )
    return FindingEntry(
        finding,
        verdict.names[finding.quantity.case],
        _shown_estimate(finding, verdict),
        verdict=f"{finding.verdict}{accepted}",
        launches="fresh launches only" if is_fresh else "",
        clocks=tuple(
            f"{same.quantity.title} {signed(_shown_estimate(same, verdict).change)}"
            for same in by_other_clocks
        ),
        reasons=tuple(filter(None, reasons)),
        cause=_cause(finding, verdict),
        cause_name=cause_name(finding, verdict),
        advice=_gone_elsewhere(finding, verdict),
    )


def _shown_estimate(finding: LaunchFinding, verdict: Verdict) -> Estimate:
    """Return the estimate of a line: of what got slower that of all launches.

    Others are of the fresh launches, which did not choose the quantity.
    """
    if not finding.is_slower:
        return finding.best
    decision = verdict.shown
    estimates = (*decision.cases, *decision.operations, *decision.once)
    return next(
        (estimate for estimate in estimates if estimate.quantity.key == finding.quantity.key),
        finding.best,
    )


def _confirmation(finding: LaunchFinding) -> str:
    """Return which launches confirmed a slowdown, and how large it is in them alone."""
    if not finding.is_slower or not finding.confirmed:
        return ""
    launches = units.counted(finding.confirmed.launches, "fresh launch", "fresh launches")
    if not 0 < finding.least < math.inf:
        return f"confirmed by {launches}"
    return f"confirmed by {launches}, which show {signed(finding.least)} or more"


def _too_few(finding: LaunchFinding) -> str:
    """Return that an improvement needs more fresh launches to be one."""
    if finding.verdict != UNCONFIRMED or finding.screened.change > 0 or finding.could_be_confirmed:
        return ""
    if not finding.confirmed:
        return f"no fresh launch has measured it again, so it is not called {IMPROVED}"
    fresh = units.counted(finding.confirmed.launches, "fresh launch is", "fresh launches are")
    return f"{fresh} too few to call it {IMPROVED}"


def _beside_limit(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return whether a slowdown is larger than the limit, or may be smaller."""
    if not finding.is_slower:
        return ""
    limit = f"the limit of {units.percent(verdict.options.of(finding.quantity))}"
    return f"more than {limit}" if finding.verdict == REGRESSED else f"less or more than {limit}"


def _by_one_clock(
    finding: LaunchFinding, by_other_clocks: Sequence[LaunchFinding], verdict: Verdict
) -> str:
    """Return what the other clocks of a case show, if only this one shows that it got slower."""
    quantity = finding.quantity
    if not finding.is_slower or not quantity.is_case or by_other_clocks:
        return ""
    others = [
        estimate
        for estimate in verdict.shown.cases
        if (estimate.quantity.case, estimate.quantity.kind) == (quantity.case, quantity.kind)
        and estimate.quantity.clock != quantity.clock
    ]
    if not others:
        return ""
    texts = [
        f"{estimate.quantity.title}, {signed(estimate.change)} ({signed(estimate.low)} to "
        f"{signed(estimate.high)})"
        for estimate in others
    ]
    return f"not confirmed by {', nor by '.join(texts)}"


def _less_work(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return why a case may be faster because the head does less in the time that is measured."""
    if finding.verdict != IMPROVED:
        return ""
    case = finding.quantity.case
    doubts = []
    if case in verdict.returned:
        base, head = verdict.returned[case]
        doubts.append(
            f"the base returns {base} and the head {head}, so the head may leave work out or put "
            "it off"
        )
    elif why := verdict.header.sides.uncompared.get(case):
        doubts.append(
            f"the results of the sides are not compared ({why}), so the head may leave work out or "
            "put it off"
        )
    if case in verdict.outlives:
        doubts.append(f"in the head {verdict.outlives[case]}")
    return f"but {', and '.join(doubts)}" if doubts else ""


def _cause(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return the function and the exact difference that probably caused a finding."""
    functions = cause_text(finding, verdict)
    difference = _more_work(finding, verdict)
    if not difference or functions.startswith(LIKELY):
        return "; ".join(filter(None, (functions, difference)))
    return f"{LIKELY}{difference}"


def _more_work(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return the exact difference that probably caused the slowdown of a case."""
    quantity = finding.quantity
    if not finding.is_slower or not quantity.is_case:
        return ""
    sentences = verdict.exact_differences.get(quantity.case, ())
    return next((sentence for sentence in sentences if _is_more(sentence)), "")


def _difference_of_operation(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return more or other work of an operation that got slower."""
    quantity = finding.quantity
    if not finding.is_slower or quantity.is_case:
        return ""
    name = f"{quantity.name}: "
    sentences = verdict.exact_differences.get(quantity.case, ())
    return next(
        (sentence.removeprefix(name) for sentence in sentences if sentence.startswith(name)), ""
    )


def _is_more(sentence: str) -> bool:
    if ": new, " in sentence or sentence.startswith(OTHER_PATH):
        return True
    match = re.search(r": ([\d.,]+) -> ([\d.,]+) (?:calls|reorders)", sentence)
    return match is not None and float(match[2].replace(",", "")) > float(match[1].replace(",", ""))


def _gone_elsewhere(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return what is gone in other places of the case, for a regression.

    Of operations that replace nothing in their place.

    They may be a fusion of operations of several modules. Nothing shows that, so the regression
    stays one.
    """
    quantity = finding.quantity
    if not finding.is_slower or not quantity.replaced or quantity.how_replaced != "new":
        return ""
    replacements = [
        estimate.quantity
        for estimate in verdict.shown.operations
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
    elsewhere = units.and_more(titles, separator="; ", last="; ")
    return (
        f"nothing is gone in its place, but elsewhere {elsewhere}: if it replaces them, accept it"
    )


def replacements(verdict: Verdict) -> Iterable[str]:
    """Yield the replacements without a finding, the largest first.

    The sides call other operations there.
    """
    verdicts = verdicts_of_quantities(verdict)
    for estimate in sorted(
        verdict.shown.operations, key=lambda operation: -operation.quantity.share
    ):
        if estimate.quantity.replaced and estimate.quantity.key not in verdicts:
            yield (
                f"{estimate.quantity.how_replaced}: {estimate.quantity.title} "
                f"({verdict.names[estimate.quantity.case]}), {change_text(estimate)}"
            )


def reproducers(verdict: Verdict) -> Iterable[str]:
    """Yield the script of each operation that was found slower, or why there is none."""
    titles = {finding.quantity.key: finding.quantity.title for finding in verdict.shown.findings}
    for reproducer in verdict.end.reproducers:
        case, _, name = reproducer.key
        name = f"{titles.get(reproducer.key, name)} ({verdict.names[case]})"
        yield (
            f"reproducer: {reproducer.script} for {name}"
            if reproducer.script
            else f"no reproducer for {name}: {reproducer.why_not}"
        )
