"""What each form of a report shows of a verdict: lines of findings, rows of tables, notes.

The text, the page and JSON take their content from :class:`Rows`, where it is computed once.
"""

from __future__ import annotations

import functools
import math
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mnistbench.core import units
from mnistbench.gate.decide.statistics.permutation import CONFIDENCE
from mnistbench.gate.decide.statistics.quantities import Quantity, how_replaced
from mnistbench.gate.decide.verdict.decision import Decision
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.exact_differences import OTHER_PATH
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.explain.texts import (
    LIKELY,
    Explanation,
    explanation,
    function_differences,
    named,
)
from mnistbench.gate.samples.case_names import CaseNames
from mnistbench.gate.samples.case_profile import OtherChange, ProfiledFunction
from mnistbench.gate.words import BUSY, CPU, DEVICE
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ADDED, ITERATION, MEAN, MEMORY
from mnistbench.judging.ratios import change_of
from mnistbench.judging.verdicts import BELOW_FLOOR, GRAVITY, IMPROVED, REGRESSED, UNCONFIRMED

#: How titles call the intervals.
CONFIDENT = f"simultaneous {CONFIDENCE:.0%} confidence intervals".replace("%", " %")

#: Clocks of an accelerator, as the table of cases names them.
CLOCKS = {CPU: "CPU", DEVICE: "device elapsed", BUSY: "device busy"}

#: Where everything is that a report leaves out.
SEE_ALL = "to see all: mnistbench judge FILE --verbose"

#: A trial is far from the others if its distance from their median is larger than this many robust
#: standard deviations.
FAR = 4.0


# ---- Changes and times ---------------------------------------------------------------------------


def signed(change: float) -> str:
    """Return the text of a change; what a base of 0 does not have is ``new``."""
    return "new" if change == math.inf else units.percent(change, signed=True)


def change_with_interval(estimate: Estimate, trials: str = "") -> str:
    """Return the change of a quantity with its interval, and which trials it is of."""
    quantity = estimate.quantity
    of_case = " of the case" if quantity.kind == ADDED else ""
    interval = (
        "" if estimate.change == math.inf else f"{signed(estimate.low)} to {signed(estimate.high)}"
    )
    beside = ", ".join(filter(None, (interval, trials)))
    return f"{signed(estimate.change)}{of_case}" + (f" ({beside})" if beside else "")


def change_text(estimate: Estimate, trials: str = "") -> str:
    """Return the change of a quantity with its interval, its times, and the change of the case."""
    quantity = estimate.quantity
    with_times = f"{change_with_interval(estimate, trials)}, {amounts(quantity)}"
    if not quantity.is_operation or quantity.kind == ADDED:
        return with_times
    return f"{with_times}; {signed(estimate.change * quantity.share)} of the case"


def amounts(quantity: Quantity) -> str:
    """Return the times of both sides, or their memory."""
    unit = units.size if quantity.kind == MEMORY else units.duration
    return " -> ".join(map(unit, (quantity.base, quantity.head)))


def table_name(quantity: Quantity) -> str:
    """Return the name of a quantity in a table with its change."""
    return f"{quantity.title}{' (change as a share of the case)' if quantity.kind == ADDED else ''}"


# ---- Findings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FindingRow:
    """What a report says of a finding, and of the same by other clocks of its case."""

    finding: GateFinding
    by_other_clocks: tuple[GateFinding, ...]  # of the same case
    case_name: str
    estimate: Estimate  # the one to show
    verdict: str  # with the reason if it is accepted
    trials: str  # which ones the estimate is of, if it is not of all
    clocks: tuple[str, ...]  # changes of the case by other clocks
    reasons: tuple[str, ...]  # for the verdict
    explanation: Explanation  # by functions and other changes
    exact_difference: str  # that probably caused it, too; empty if there is none
    advice: str  # what to do if it is intended; empty if there is nothing to say

    @property
    def name(self) -> str:
        """The name of the case; of another quantity with its title."""
        quantity = self.finding.quantity
        return self.case_name if quantity.is_case else f"{self.case_name}: {quantity.title}"

    @property
    def cause(self) -> str:
        """What probably caused it, or why that is not known; empty if there is nothing to say."""
        text = self.explanation.text
        if not self.exact_difference or text.startswith(LIKELY):
            return "; ".join(filter(None, (text, self.exact_difference)))
        return f"{LIKELY}{self.exact_difference}"

    @property
    def cause_name(self) -> str:
        """The function or other change that probably caused it; empty if it is not known."""
        return named(self.explanation.cause) if self.explanation.cause else ""

    @property
    def detail(self) -> str:
        """What is said of the cause below a heading that has its name."""
        if not self.cause_name:
            return self.cause
        return "; ".join(filter(None, (self.explanation.detail, self.exact_difference)))

    @property
    def line(self) -> str:
        """Everything but the cause in one line."""
        quantity = self.finding.quantity
        changed = change_text(self.estimate, self.trials)
        first = f"{self.verdict}: {quantity.title} ({self.case_name}), {changed}"
        return "; ".join(filter(None, (first, *self.clocks, *self.reasons, self.advice)))


def _finding_row(
    finding: GateFinding, *by_other_clocks: GateFinding, verdict: Verdict
) -> FindingRow:
    """Return the row of a finding."""
    accepted = f", accepted: {finding.reason_to_accept}" if finding.accepted else ""
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
        _compared_with_limit(finding, verdict),
        _by_one_clock(finding, by_other_clocks, verdict),
        _difference_of_operation(finding, verdict),
        _less_work(finding, verdict),
    )
    return FindingRow(
        finding,
        by_other_clocks,
        verdict.names[finding.quantity.case],
        _shown_estimate(finding, verdict),
        verdict=f"{finding.verdict}{accepted}",
        trials="fresh trials only" if is_fresh else "",
        clocks=tuple(
            f"{same.quantity.title} {signed(_shown_estimate(same, verdict).change)}"
            for same in by_other_clocks
        ),
        reasons=tuple(filter(None, reasons)),
        explanation=explanation(finding, verdict),
        exact_difference=_more_work(finding, verdict),
        advice=_gone_in_other_places(finding, verdict),
    )


def _shown_estimate(finding: GateFinding, verdict: Verdict) -> Estimate:
    """Return the estimate of all trials of what got slower, else that of the fresh trials.

    Fresh trials did not choose the quantity.
    """
    if not finding.is_slower:
        return finding.best
    decision = verdict.shown
    estimates = (*decision.cases, *decision.operations, *decision.once)
    return next(
        (estimate for estimate in estimates if estimate.quantity.key == finding.quantity.key),
        finding.best,
    )


def _confirmation(finding: GateFinding) -> str:
    """Return which trials confirmed a slowdown, and how large it is in them alone."""
    if not finding.is_slower or not finding.confirmed:
        return ""
    trials = units.counted(finding.confirmed.trials, "fresh trial", "fresh trials")
    if not 0 < finding.least < math.inf:
        return f"confirmed by {trials}"
    return f"confirmed by {trials}, which show {signed(finding.least)} or more"


def _too_few(finding: GateFinding) -> str:
    """Return that an improvement needs more fresh trials to be one."""
    if finding.verdict != UNCONFIRMED or finding.screened.change > 0 or finding.could_be_confirmed:
        return ""
    if not finding.confirmed:
        return f"no fresh trial has measured it again, so it is not called {IMPROVED}"
    fresh = units.counted(finding.confirmed.trials, "fresh trial is", "fresh trials are")
    return f"{fresh} too few to call it {IMPROVED}"


def _compared_with_limit(finding: GateFinding, verdict: Verdict) -> str:
    """Return whether a slowdown is larger than the limit, or may be smaller."""
    if finding.verdict == BELOW_FLOOR:
        return f"less than the floor of {units.duration(verdict.options.floor_ns)}"
    if not finding.is_slower:
        return ""
    limit = f"the limit of {verdict.options.limit_text(finding.quantity)}"
    return f"more than {limit}" if finding.verdict == REGRESSED else f"less or more than {limit}"


def _by_one_clock(
    finding: GateFinding, by_other_clocks: Sequence[GateFinding], verdict: Verdict
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


def _less_work(finding: GateFinding, verdict: Verdict) -> str:
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


def _more_work(finding: GateFinding, verdict: Verdict) -> str:
    """Return the exact difference that probably caused the slowdown of a case."""
    quantity = finding.quantity
    if not finding.is_slower or not quantity.is_case:
        return ""
    sentences = verdict.exact_differences.get(quantity.case, ())
    return next((sentence for sentence in sentences if _is_more(sentence)), "")


def _difference_of_operation(finding: GateFinding, verdict: Verdict) -> str:
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


def _gone_in_other_places(finding: GateFinding, verdict: Verdict) -> str:
    """Return what is gone in other places of the case, for operations that replace nothing.

    They may be a fusion of operations of several modules. Nothing shows that, so the regression
    stays one.
    """
    quantity = finding.quantity
    if not finding.is_slower or how_replaced(quantity.replaced) != "new":
        return ""
    gone = [
        estimate.quantity
        for estimate in verdict.shown.operations
        if estimate.quantity.case == quantity.case
        and how_replaced(estimate.quantity.replaced) == "gone"
    ]
    if not gone:
        return ""
    titles = [
        f"{operations.title} ({units.duration(operations.base)})"
        for operations in sorted(gone, key=lambda operations: -operations.base)
    ]
    elsewhere = units.and_more(titles, separator="; ", last="; ")
    return (
        f"nothing is gone in its place, but elsewhere {elsewhere}: if it replaces them, accept it"
    )


# ---- Findings of one cause -----------------------------------------------------------------------


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one likely cause, or a single one without a known cause."""

    rows: Sequence[FindingRow]  # regressions first; of one verdict cases before operations

    @property
    def cause(self) -> ProfiledFunction | OtherChange | None:
        """The likely cause; None if it is not known."""
        return self.rows[0].explanation.cause

    @property
    def cause_name(self) -> str:
        """The likely cause with how it differs; empty if it is not known."""
        return self.rows[0].cause_name

    @property
    def is_only(self) -> bool:
        """Whether nothing else may be the cause of one of the findings."""
        return any(row.explanation.is_only for row in self.rows)

    @property
    def heading(self) -> str:
        """The likely cause, and what it changes: ``6 cases, +0.3 to +4.5 %``."""
        return f"{LIKELY}{self.cause_name}{'' if self.is_only else ' or another one'}: {self.sizes}"

    @property
    def sizes(self) -> str:
        """What the findings are of, and their range of changes; those that got slower first."""
        slower = [row for row in self.rows if row.estimate.change > 0]
        faster = [row for row in self.rows if row.estimate.change <= 0]
        return "; ".join(
            f"{units.counted(len(counted), noun)}, {_range(counted)}"
            for rows in (slower, faster)
            for noun, counted in rows_by_noun(rows).items()
        )


def _range(rows: Sequence[FindingRow]) -> str:
    """Return the smallest and the largest change: ``+0.3 to +4.5 %``."""
    changes = sorted(row.estimate.change for row in rows)
    smallest, largest = signed(changes[0]), signed(changes[-1])
    return largest if smallest == largest else f"{smallest.removesuffix(' %')} to {largest}"


def rows_by_noun(rows: Iterable[FindingRow]) -> dict[str, list[FindingRow]]:
    """Return ``case``, ``operation`` or ``one-time cost`` -> its findings, in their order.

    A case has several findings if its median and its mean changed. It counts once, with the first.
    """
    first_of_case: dict[str, FindingRow] = {}
    operations: list[FindingRow] = []
    once: list[FindingRow] = []
    for row in rows:
        quantity = row.finding.quantity
        if quantity.is_case:
            first_of_case.setdefault(quantity.case, row)
        else:
            (operations if quantity.is_operation else once).append(row)
    nouns = {"case": [*first_of_case.values()], "operation": operations, "one-time cost": once}
    return {noun: counted for noun, counted in nouns.items() if counted}


# ---- Tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EstimateRow:
    """An operation or a one-time cost."""

    estimate: Estimate
    case_name: str
    verdict: str  # of its finding; empty if it has none


@dataclass(frozen=True)
class CaseRow:
    """A case in the table of cases."""

    name: str
    estimates: Sequence[Estimate]  # medians and means by all clocks, that of wall time first
    # The worst finding, or empty if a slowdown is not ruled out; None if neither holds.
    verdict: str | None

    @property
    def case(self) -> str:
        """Its node id."""
        return self.estimate.quantity.case

    @property
    def estimate(self) -> Estimate:
        """The median of the wall time."""
        return self.estimates[0]

    @property
    def changes(self) -> dict[str, float]:
        """Clock -> change of the median."""
        return {
            estimate.quantity.clock: estimate.change
            for estimate in self.estimates
            if estimate.quantity.kind != MEAN
        }

    @property
    def high(self) -> float | None:
        """Largest upper bound of the medians by all clocks."""
        return self._high(ITERATION)

    @property
    def high_of_mean(self) -> float | None:
        """Largest upper bound of the means by all clocks."""
        return self._high(MEAN)

    def _high(self, kind: str) -> float | None:
        highs = [estimate.high for estimate in self.estimates if estimate.quantity.kind == kind]
        return max(0.0, *highs) if highs else None


def clocks_of(rows: Sequence[CaseRow]) -> dict[str, str]:
    """Return the clocks beside wall time that any case was measured by, with their headings."""
    return {
        clock: heading
        for clock, heading in CLOCKS.items()
        if any(clock in row.changes for row in rows)
    }


# ---- Trials far from the others ---------------------------------------------------------------


@dataclass(frozen=True)
class FarTrials:
    """The trials of a case that are far from the others."""

    case: str  # its name
    title: str  # of the clock
    far_logs: tuple[float, ...]  # log(head / base) of each, the farthest first
    median_log: float  # of all trials
    trials: int

    @property
    def distance(self) -> float:
        """Distance of the farthest one from the median, as a logarithm."""
        return abs(self.far_logs[0] - self.median_log)

    @property
    def text(self) -> str:
        """The sentence about the case."""
        shown = units.and_so_on([signed(change_of(log)) for log in self.far_logs])
        return (
            f"{self.case}: {len(self.far_logs)} of {self.trials} trials far from the others "
            f"by {self.title} ({shown}; median {signed(change_of(self.median_log))}), so single "
            "processes may be slower or faster"
        )


# ---- All rows ------------------------------------------------------------------------------------


class Rows:
    """The content of a report; each part is computed when a form first needs it."""

    def __init__(self, verdict: Verdict) -> None:
        """Keep the verdict, with which ``--verbose`` shows everything."""
        self.verdict = with_everything(verdict) if verdict.options.everything else verdict

    @property
    def names(self) -> CaseNames:
        """The names of the cases."""
        return self.verdict.names

    @property
    def shown(self) -> Decision:
        """The decision with the changes that a reader sees."""
        return self.verdict.shown

    @property
    def is_long(self) -> bool:
        """Whether only what was found is listed: more cases than --top, and no --verbose."""
        return len(self.verdict.header.labels) > self.verdict.options.top

    def limited(self, lines: Iterable[str], *, always: bool = False) -> list[str]:
        """Return lines: of a long report (or always) at most --top, and how many more there are."""
        if not (always or self.is_long):
            return list(lines)
        return units.first_lines(lines, self.verdict.options.top, SEE_ALL)

    @functools.cached_property
    def findings(self) -> list[FindingRow]:
        """The findings to report, regressions first; one for the time of a case by all clocks."""
        rows: dict[tuple[object, ...], list[GateFinding]] = {}
        for finding in sorted(
            without_duplicate_means(self.shown.reported_findings),
            key=lambda finding: (GRAVITY.index(finding.verdict), finding.accepted),
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
                rows.setdefault(key, []).append(finding)
        return [_finding_row(*findings, verdict=self.verdict) for findings in rows.values()]

    @functools.cached_property
    def groups(self) -> list[FindingGroup]:
        """The findings by their likely cause, that of the gravest one first."""
        groups: dict[object, list[FindingRow]] = {}
        for position, row in enumerate(self.findings):
            groups.setdefault(row.cause_name or position, []).append(row)

        def place(row: FindingRow) -> tuple[int, bool]:
            finding = row.finding
            return GRAVITY.index(finding.verdict), not finding.quantity.is_case

        return [FindingGroup(sorted(rows, key=place)) for rows in groups.values()]

    @functools.cached_property
    def verdicts(self) -> dict[tuple[str, str, str], str]:
        """Key of each quantity with a finding -> its verdict, regressions first."""
        findings = sorted(
            self.shown.reported_findings,
            key=lambda finding: GRAVITY.index(finding.verdict),
        )
        return {
            finding.quantity.key: f"{finding.verdict}{', accepted' if finding.accepted else ''}"
            for finding in findings
        }

    @functools.cached_property
    def notable(self) -> dict[str, str]:
        """The cases with a finding -> the worst one; then those with an open slowdown -> ``""``.

        An open slowdown is one that is not ruled out.
        """
        wide = [
            estimate
            for estimate in self.shown.cases
            if estimate.high > self.verdict.options.pass_limit(estimate.quantity)
        ]
        unbounded = [
            estimate for estimate in self.shown.unbounded if estimate.quantity.share >= LARGE_SHARE
        ]
        notable = dict[str, str]()
        for (case, _, _), text in self.verdicts.items():
            notable.setdefault(case, text)
        for estimate in (*sorted(wide, key=lambda estimate: -estimate.high), *unbounded):
            notable.setdefault(estimate.quantity.case, "")
        return notable

    @functools.cached_property
    def cases(self) -> list[CaseRow]:
        """The measured cases, in the order of the base."""
        estimates: dict[str, list[Estimate]] = {}
        for estimate in self.shown.cases:
            estimates.setdefault(estimate.quantity.case, []).append(estimate)
        return [
            CaseRow(self.names[case], case_estimates, self.notable.get(case))
            for case, case_estimates in estimates.items()
        ]

    @functools.cached_property
    def operations(self) -> dict[str, list[EstimateRow]]:
        """Node id -> the operations of the case."""
        rows: dict[str, list[EstimateRow]] = {}
        for estimate in self.shown.operations:
            rows.setdefault(estimate.quantity.case, []).append(self._row(estimate))
        return rows

    @functools.cached_property
    def once(self) -> list[EstimateRow]:
        """The one-time costs, those with the largest bounds first."""
        ranked = sorted(self.shown.once, key=lambda estimate: -estimate.high)
        return [self._row(estimate) for estimate in ranked]

    @functools.cached_property
    def replacements(self) -> list[str]:
        """Operations that only one side calls and that have no finding, the largest first."""
        ranked = sorted(self.shown.operations, key=lambda estimate: -estimate.quantity.share)
        return [
            f"{how_replaced(estimate.quantity.replaced)}: {estimate.quantity.title} "
            f"({self.names[estimate.quantity.case]}), {change_text(estimate)}"
            for estimate in ranked
            if estimate.quantity.replaced and estimate.quantity.key not in self.verdicts
        ]

    @functools.cached_property
    def exact_differences(self) -> dict[str, tuple[str, ...]]:
        """Node id -> the exact differences of the case, those of its functions last."""
        of_cases = self.verdict.exact_differences
        of_functions = function_differences(self.verdict)
        return {
            case: (*of_cases.get(case, ()), *of_functions.get(case, ()))
            for case in dict.fromkeys((*of_cases, *of_functions))
        }

    @functools.cached_property
    def far_trials(self) -> list[FarTrials]:
        """The cases with trials that are far from the others, by the first clock that shows it.

        They differ by the threshold or more: single processes may be slow. Source of the factor of
        the median absolute deviation: that of a normal distribution, 1 / 0.6745.
        """
        cases: dict[str, FarTrials] = {}
        for estimate in self.shown.cases:
            quantity = estimate.quantity
            middle = statistics.median(quantity.logs)
            deviation = statistics.median(abs(log - middle) for log in quantity.logs) / 0.6745
            limit = max(FAR * deviation, math.log1p(self.verdict.options.case))
            far_logs = [log for log in quantity.logs if abs(log - middle) > limit]
            if not far_logs or quantity.kind == MEAN or quantity.case in cases:
                continue
            far_logs.sort(key=lambda log: -abs(log - middle))
            cases[quantity.case] = FarTrials(
                self.names[quantity.case],
                quantity.title,
                tuple(far_logs),
                middle,
                len(quantity.logs),
            )
        return list(cases.values())

    def _row(self, estimate: Estimate) -> EstimateRow:
        quantity = estimate.quantity
        return EstimateRow(estimate, self.names[quantity.case], self.verdicts.get(quantity.key, ""))


def with_everything(verdict: Verdict) -> Verdict:
    """Return a verdict whose report shows everything."""
    return replace(verdict, options=replace(verdict.options, everything=True, top=sys.maxsize))


def without_duplicate_means(findings: Sequence[GateFinding]) -> list[GateFinding]:
    """Leave out the mean of a case if the median by the same clock explains it.

    The median then has the same verdict, and its upper bound reaches the change of the mean.
    """
    medians = {
        (finding.quantity.case, finding.quantity.clock, finding.verdict): finding.best
        for finding in findings
        if finding.quantity.is_case and finding.quantity.kind != MEAN
    }

    def is_explained(finding: GateFinding) -> bool:
        quantity = finding.quantity
        median = medians.get((quantity.case, quantity.clock, finding.verdict))
        return quantity.kind == MEAN and median is not None and finding.best.low <= median.high

    return [finding for finding in findings if not is_explained(finding)]
