"""How much a report says of many cases, operations or tests, and what it names first."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mnistbench.core import units
from mnistbench.gate.verdict.findings import LaunchFinding
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import MEAN
from mnistbench.judging.verdicts import GRAVITY

#: Where everything is that a report leaves out.
SEE_ALL = "to see all: mnistbench judge FILE --all"


def with_everything(verdict: Verdict) -> Verdict:
    """Return a verdict whose report shows everything."""
    return replace(verdict, options=replace(verdict.options, everything=True, top=sys.maxsize))


def is_long(verdict: Verdict) -> bool:
    """Whether a report lists only what was found: there are more cases than --top, and no --all."""
    return len(verdict.header.labels) > verdict.options.top


def limited(lines: Iterable[str], verdict: Verdict, *, always: bool = False) -> list[str]:
    """Return the lines, of many cases (or always) at most --top, and how many more there are."""
    if not (always or is_long(verdict)):
        return list(lines)
    return units.first_lines(lines, verdict.options.top, SEE_ALL)


def said_once(notes: Iterable[tuple[str, str]], verdict: Verdict, what: str = "cases") -> list[str]:
    """Return a line for each text, with the cases of which it is said.

    Args:
        notes: name of a case, or of a test, and text.
        verdict: the content of the report.
        what: the notes are about, in the plural.
    """
    cases: dict[str, list[str]] = {}
    for case, text in notes:
        cases.setdefault(text, []).append(case)
    most = verdict.options.top if verdict.options.everything else units.NAMED
    return limited(
        (f"{units.counted_names(names, most, what)}: {text}" for text, names in cases.items()),
        verdict,
    )


# ---- What comes first ----------------------------------------------------------------------------


def without_echoes(findings: Sequence[LaunchFinding]) -> list[LaunchFinding]:
    """Leave out the mean of a case if the median explains it.

    The median by the same clock then has the same verdict.
    """
    medians = {
        (
            finding.quantity.case,
            finding.quantity.clock,
            finding.verdict,
        ): finding.best
        for finding in findings
        if finding.quantity.is_case and finding.quantity.kind != MEAN
    }

    def echoes(finding: LaunchFinding) -> bool:
        quantity = finding.quantity
        median = medians.get((quantity.case, quantity.clock, finding.verdict))
        return quantity.kind == MEAN and median is not None and finding.best.low <= median.high

    return [finding for finding in findings if not echoes(finding)]


def verdicts_of_quantities(verdict: Verdict) -> dict[tuple[str, str, str], str]:
    """Return the verdict of each quantity with a finding by its key, regressions first."""
    findings = sorted(verdict.shown.findings, key=lambda finding: GRAVITY.index(finding.verdict))
    return {
        finding.quantity.key: finding.verdict + ", accepted" * (finding in verdict.accepted)
        for finding in findings
    }


def notable_cases(verdict: Verdict) -> dict[str, str]:
    """Return the cases with a finding and the worst one of each, then those that are open.

    In the latter a slowdown is not ruled out.
    """
    decision = verdict.shown
    notable = dict[str, str]()
    wide = [
        estimate
        for estimate in decision.cases
        if estimate.high > verdict.options.to_rule_out(estimate.quantity)
    ]
    unbounded = [
        estimate for estimate in decision.unbounded if estimate.quantity.share >= LARGE_SHARE
    ]
    for (case, _, _), text in verdicts_of_quantities(verdict).items():
        notable.setdefault(case, text)
    for estimate in (*sorted(wide, key=lambda estimate: -estimate.high), *unbounded):
        notable.setdefault(estimate.quantity.case, "")
    return notable
