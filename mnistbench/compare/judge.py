"""Comparison and thresholds -> verdicts, without input or output.

``docs/comparing.md`` explains the verdicts to users. A quantity gets its verdict in three steps:

1. One of two rules says how large a change noise can explain. With RUNS_NEEDED or more base runs of
   one commit, each in a process of its own, it is :func:`rule_of_runs`: the prediction interval of
   these runs. With fewer it is :func:`rule_of_threshold`: the spread of the runs.
2. :func:`decide` compares the change with the threshold, and gives the word and what is left open.
3. ``--accept`` may accept a regression.

Neither rule passes a change above a threshold that the user gave: it is ``regressed`` or
``inconclusive``.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import CaseComparison, Comparison
from mnistbench.compare.prediction_interval import FALSE_ALARM, RUNS_NEEDED, prediction_interval
from mnistbench.compare.problems import problems
from mnistbench.compare.quantities import Measurement, iteration_of, operations_of
from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import OUTSIDE, RUNTIME
from mnistbench.judging.acceptance import WARN, Acceptance, cases_written, check_cases
from mnistbench.judging.findings import accept_limit, is_named_by, unused
from mnistbench.judging.kinds import ITERATION, OPERATION, OTHER, REPLACED
from mnistbench.judging.verdicts import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    NONE,
    PASSED,
    REGRESSED,
    SUSPECT,
    WITHIN,
    Reason,
)
from mnistbench.saved_runs.run import Run

#: What a quantity leaves open: nothing.
NOTHING = "nothing"
#: Its own verdict: the runs vary too much to rule out a slowdown of the user's threshold, but it is
#: too small to change the outcome.
ITSELF = "itself"
#: The outcome of the report.
OUTCOME = "outcome"


class Ruling(NamedTuple):
    """What the change of a quantity means."""

    verdict: str
    # The minimum detectable change or, with too few runs for one, the spread of the runs: as a
    # share of the base. 0 if neither rule judged it.
    uncertainty: float = 0.0
    by_runs: bool = False  # by the rule of runs
    within: float = 0.0  # the X of "within X %", as a share
    leaves_open: str = NOTHING  # or ITSELF, OUTCOME
    took_over: bool = False  # it has calls of other operations, and the case changed the other way


@dataclass(frozen=True)
class Finding:
    """One quantity of a case: what differs, what that means, and whether a user accepts it."""

    measured: Measurement
    ruling: Ruling
    accept_limit: float | None = None  # largest limit of an --accept that applies, as a share

    @property
    def verdict(self) -> str:
        return self.ruling.verdict

    @property
    def may_be_accepted(self) -> bool:
        """Whether it is a regression, or would be one without the noise."""
        measured = self.measured
        is_above = measured.has_limit and measured.change > measured.threshold
        return self.verdict == REGRESSED or (self.verdict == INCONCLUSIVE and is_above)

    @property
    def accepted(self) -> bool:
        """Whether the change is within the limit of an ``--accept``."""
        return self.accept_limit is not None and self.share_to_accept <= self.accept_limit

    @property
    def exceeded_limit(self) -> float | None:
        """The limit of ``--accept`` that the change is larger than, as a share; None if none."""
        return None if self.accepted else self.accept_limit

    @property
    def fails(self) -> bool:
        """Whether it is a regression above a threshold that the user gave."""
        return self.verdict == REGRESSED and self.measured.has_limit and not self.accepted

    @property
    def is_noise(self) -> bool:
        """Whether the runs vary too much to judge it, so that the outcome is open."""
        return self.ruling.leaves_open == OUTCOME and not self.accepted

    @property
    def is_open(self) -> bool:
        """Whether the runs vary too much to judge it, whatever that does to the outcome."""
        return self.ruling.leaves_open != NOTHING and not self.accepted

    @property
    def case_names(self) -> Collection[str]:
        """Those of the case in the new run."""
        return self.measured.case.head.names

    @property
    def quantity_names(self) -> Collection[str]:
        return self.measured.names

    @property
    def share_to_accept(self) -> float:
        return self.measured.share_to_accept

    @property
    def text(self) -> str:
        """The verdict as tables show it."""
        ruling = self.ruling
        if ruling.took_over:
            is_slower = self.measured.change_ns > 0
            return "no regression, case faster" if is_slower else "no gain, case slower"
        if ruling.verdict == WITHIN:
            return f"within {units.growth(ruling.within)}"
        detectable = ""
        if ruling.verdict == INCONCLUSIVE and ruling.by_runs:
            detectable = f" (minimum detectable change {units.growth(ruling.uncertainty)})"
        return f"{ruling.verdict}{detectable}{', accepted' if self.accepted else ''}"


@dataclass(frozen=True)
class CaseJudgement:
    """One compared case with the verdicts of its quantities."""

    case: CaseComparison
    iteration: Finding
    # Single operations by size of change; then what is no operation, and other.
    operations: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every quantity with a verdict."""
        return (self.iteration, *self.operations)


@dataclass(frozen=True)
class Judgement:
    """A comparison with its verdicts."""

    comparison: Comparison
    criteria: Criteria
    cases: tuple[CaseJudgement, ...]
    problems: tuple[Reason, ...]
    asked: bool  # a threshold was given, on the command line, in a configuration or on a test
    unused: tuple[str, ...]  # --accept values that match no regression

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every quantity with a verdict."""
        return tuple(finding for case in self.cases for finding in case.findings)

    @property
    def regressions(self) -> tuple[Finding, ...]:
        """Regressions above a threshold."""
        return tuple(finding for finding in self.findings if finding.fails)

    @property
    def accepted(self) -> tuple[Finding, ...]:
        """Regressions within the limit of their ``--accept``."""
        return tuple(finding for finding in self.findings if finding.accepted)

    @property
    def noise(self) -> tuple[Finding, ...]:
        """What leaves the outcome open, because the runs vary too much to judge it."""
        return tuple(finding for finding in self.findings if finding.is_noise)

    @property
    def open_questions(self) -> int:
        """Number of problems and changes that could not be judged and are not excused."""
        if not self.asked:
            return 0
        open_problems = sum(not problem.excused for problem in self.problems)
        return open_problems + (0 if self.criteria.inconclusive == WARN else len(self.noise))

    @property
    def open_operations(self) -> tuple[Finding, ...]:
        """Small operations that the runs vary too much to judge: they leave the outcome alone.

        The largest comes first.
        """
        small = (finding for finding in self.findings if finding.is_open and not finding.is_noise)
        return tuple(sorted(small, key=lambda finding: -finding.measured.base_ns))

    @property
    def outcome(self) -> str:
        """NONE where no threshold was given, else PASSED, REGRESSED or INCONCLUSIVE."""
        if not self.asked:
            return NONE
        if self.regressions:
            return REGRESSED
        return INCONCLUSIVE if self.open_questions else PASSED


def judge(comparison: Comparison, criteria: Criteria) -> Judgement:
    """Give every case and its operations their verdicts.

    Raises:
        RecordError: a case of the new run has a threshold that cannot be read.
        UsageError: an ``--accept`` names several cases of the new run without a wildcard.
    """
    _check_thresholds(comparison.head)
    check_cases(criteria.accept, _names_of_cases(comparison), criteria.flag("--accept"))
    measured_cases = [
        (case, (iteration_of(case, criteria), *operations_of(case, criteria)))
        for case in comparison.cases
    ]
    judged_by_runs = sum(
        len(measured.base_runs) >= RUNS_NEEDED
        for _, quantities in measured_cases
        for measured in quantities
    )
    cases = []
    for case, quantities in measured_cases:
        iteration, *operations = (
            _finding(measured, judged_by_runs, criteria) for measured in quantities
        )
        cases.append(CaseJudgement(case, iteration, tuple(operations)))
    # A test that is missing now may have a threshold, too.
    concerned = (*comparison.head.cases, *(case for _, case in comparison.only_base))
    marks = any(case.op_fail or case.case_fail for case in concerned)
    return Judgement(
        comparison=comparison,
        criteria=criteria,
        cases=tuple(cases),
        problems=tuple(problems(comparison, criteria)),
        asked=bool(criteria.op_fail or criteria.case_fail or marks),
        unused=unused(criteria.accept, (finding for case in cases for finding in case.findings)),
    )


def _names_of_cases(comparison: Comparison) -> dict[str, Collection[str]]:
    """Return the names that ``--accept`` may call a case by: node id -> all names."""
    return {case.node_id: case.names for case in comparison.head.cases}


def _check_thresholds(run: Run) -> None:
    """Check the thresholds from the marks of tests, because a saved file may be damaged."""
    for case in run.cases:
        thresholds = [(text, Threshold.parse) for text in case.op_fail]
        thresholds += [(case.case_fail, Threshold.of_case)] if case.case_fail else []
        for text, parse in thresholds:
            try:
                parse(text)
            except ValueError as error:
                complaint = f"{run.source}: opgate of {case.node_id}: {text!r} {error}"
                raise RecordError(
                    units.printable(f"{complaint}; save the run again or leave the file out")
                ) from None


# ---- Verdicts ------------------------------------------------------------------------------------


def _finding(measured: Measurement, family: int, criteria: Criteria) -> Finding:
    """Judge a quantity; ``family`` is the number of those that the rule of runs judges."""
    finding = Finding(measured, _ruling(measured, family, criteria.min_share))
    return replace(finding, accept_limit=accept_limit(finding, criteria.accept))


def _ruling(measured: Measurement, family: int, min_share: float) -> Ruling:
    if not measured.case.is_comparable or _depends_on_iterations(measured):
        return Ruling(INCOMPARABLE)
    if _has_no_base(measured, min_share):
        return Ruling(WITHIN, within=measured.threshold)
    if _took_over(measured, min_share):
        return Ruling(WITHIN, within=measured.threshold, took_over=True)
    # 0 has no logarithm.
    has_logarithms = min(measured.base_runs, default=0) > 0 and measured.head_ns > 0
    by_runs = len(measured.base_runs) >= RUNS_NEEDED and has_logarithms
    noise = rule_of_runs(measured, FALSE_ALARM / family) if by_runs else rule_of_threshold(measured)
    verdict, leaves_open = decide(
        measured.change,
        measured.threshold,
        noise,
        is_given=measured.has_limit,
        is_decisive=measured.is_decisive,
    )
    within = max(measured.threshold, noise.uncertainty) if verdict == WITHIN else 0.0
    return Ruling(verdict, noise.uncertainty, by_runs, within, leaves_open)


class Noise(NamedTuple):
    """What one of the two rules says of the differences between runs of the same code."""

    is_clear: bool  # noise alone does not explain a change of this size
    uncertainty: float  # smallest slowdown that it does not explain, as a share of the base
    by_runs: bool  # by the rule of runs


def rule_of_runs(measured: Measurement, risk: float) -> Noise:
    """Compare the new time with the prediction interval of the base runs.

    A change is clear if the new time is outside of the interval. The uncertainty is its upper
    limit. ``risk`` is the probability that a time of the same code is above the interval:
    FALSE_ALARM divided by the number of quantities (Bonferroni), so that FALSE_ALARM is that of the
    whole report.
    """
    low, high = prediction_interval(measured.base_runs, risk)
    is_clear = measured.head_ns > high if measured.change_ns > 0 else measured.head_ns < low
    return Noise(is_clear, high / measured.base_ns - 1, by_runs=True)


def rule_of_threshold(measured: Measurement) -> Noise:
    """Compare the change with the threshold and the spread of the few runs that there are.

    A change is clear if it exceeds the threshold by more than the spread. A threshold from the user
    decides alone: a larger slowdown is clear, and so is a gain if the spread leaves no room for a
    slowdown of the threshold. A trace is one process, whose steps are no replicates: it has no
    spread.
    """
    is_trace = any(run.trace for run in measured.case.bases.runs)
    spread = 0.0 if is_trace else measured.spread
    is_clear = abs(measured.change) - measured.threshold > spread
    if measured.has_limit:
        is_slower = measured.change > 0
        is_clear = is_clear or is_slower or measured.change + spread <= measured.threshold
    return Noise(is_clear, spread, by_runs=False)


def decide(
    change: float, threshold: float, noise: Noise, *, is_given: bool, is_decisive: bool
) -> tuple[str, str]:
    """Return the verdict of a change, and what it leaves open.

    =====================  =====  =========  =========  ==============================
    change                 clear  threshold  ruled out  verdict, and what it leaves open
    =====================  =====  =========  =========  ==============================
    above the threshold    yes    any        -          regressed
    above the threshold    no     default    -          suspect; by runs: inconclusive
    above the threshold    no     given      -          inconclusive, and the outcome
    below minus threshold  yes    any        -          improved
    below minus threshold  no     default    -          inconclusive
    below minus threshold  no     given      yes        inconclusive
    below minus threshold  no     given      no         inconclusive, and the outcome*
    between                -      default    -          within
    between                -      given      yes        within
    between                -      given      no         inconclusive, and the outcome*
    =====================  =====  =========  =========  ==============================

    A slowdown of the threshold is ruled out if the uncertainty is at most the threshold.

    (*) If the quantity is decisive. Another one has the verdict of the row above and leaves only
    itself open: a case has dozens of small operations, and some always vary by more than any useful
    threshold.

    Args:
        change: of the time, as a share of the base.
        threshold: the largest slowdown that passes, as a share of the base.
        noise: what the rule says of it.
        is_given: the threshold is the user's.
        is_decisive: a pass has to rule out a slowdown of the quantity: it is a case, a large
            operation or one that the threshold names.
    """
    if change > threshold:
        if noise.is_clear:
            return REGRESSED, NOTHING
        if is_given:
            return INCONCLUSIVE, OUTCOME
        return INCONCLUSIVE if noise.by_runs else SUSPECT, NOTHING
    is_faster = change < -threshold
    if is_faster and noise.is_clear:
        return IMPROVED, NOTHING
    is_open = is_given and noise.uncertainty > threshold
    if is_open and is_decisive:
        return INCONCLUSIVE, OUTCOME
    return INCONCLUSIVE if is_faster else WITHIN, ITSELF if is_open else NOTHING


def _has_no_base(measured: Measurement, min_share: float) -> bool:
    """Whether no time of the base is left after the profiler's overhead, and the change is small.

    A share of no time cannot be compared with a threshold. A large change is judged as that of a
    new operation.
    """
    is_empty = measured.base_ns <= 0 and measured.kind != REPLACED
    return is_empty and measured.change_ns <= min_share * measured.whole.base_ns


def _took_over(measured: Measurement, min_share: float) -> bool:
    """Whether calls moved to it, or away from it, and the case changed the other way.

    One side hardly has it, so its own times cannot show whether it got slower. A new function took
    the place of slower ones, in whatever module they are, if the case and the sum of its functions
    got faster. A threshold that names it judges it all the same.
    """
    has_name = measured.limit is not None and measured.limit.name
    if measured.kind not in (OPERATION, REPLACED, OTHER) or has_name:
        return False
    whole = measured.whole
    has_grown = measured.change_ns > 0
    small_ns, whole_ns = min((measured.base_ns, whole.base_ns), (measured.head_ns, whole.head_ns))
    calls = sum(
        (change.head.calls if change.head else 0) - (change.base.calls if change.base else 0)
        for change in measured.members
    )
    changes_ns = (measured.case.change_ns, whole.change_ns)
    return (
        small_ns < min_share * whole_ns
        and (calls > 0 if has_grown else calls < 0)
        and all(change < 0 if has_grown else change > 0 for change in changes_ns)
    )


def _depends_on_iterations(measured: Measurement) -> bool:
    """Whether a divided time includes time between iterations, which a trace of one has not."""
    if not measured.case.iterations.are_divided:
        return False
    has_time_between = measured.kind == ITERATION and measured.case.clock == "cpu"
    names = {change.name for change in measured.members}
    return has_time_between or not names.isdisjoint((OUTSIDE, RUNTIME))


# ---- Intended regressions ------------------------------------------------------------------------


def acceptance_for(judgement: Judgement, finding: Finding) -> str:
    """Return the ``--accept`` value for a regression of this size, and for no other if possible."""
    share = finding.share_to_accept
    percent = math.floor(100 * share)
    if percent / 100 < share:  # rounded up, so that the limit is not below the change
        percent += 1
    label, short, node_id, *_ = finding.case_names
    quantity = _as_pattern(finding.measured.name)
    acceptances = [
        Acceptance(f"{_as_pattern(name)}:{quantity}", percent / 100)
        for name in (short, label, node_id)
    ]
    names = _names_of_cases(judgement.comparison)
    specific = (
        acceptance
        for acceptance in acceptances
        if sum(is_named_by(named, acceptance) for named in judgement.findings) == 1
        and len(cases_written(acceptance, names)) < 2
    )
    return f"{next(specific, acceptances[-1]).pattern}:{percent}%"


def _as_pattern(name: str) -> str:
    """Return a pattern that can be typed: ``*`` replaces every character that cannot be printed."""
    return "".join(sign if sign.isprintable() else "*" for sign in name)
