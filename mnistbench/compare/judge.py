"""Comparison and thresholds -> verdicts, without input or output.

``docs/comparing.md`` explains the verdicts to users.

Two rules give a verdict:

- *Runs*: with RUNS_NEEDED or more base runs of one commit, each in a process of its own, the new
  time is compared with their prediction interval. The probability FALSE_ALARM is divided equally
  among all quantities of a report (Bonferroni), so that it applies to the whole report.
- *Threshold*: with fewer base runs, a change is compared with the threshold alone. Without a
  threshold from the user, a change that the spread of the runs may have caused is ``suspect``, not
  ``regressed``.

Neither rule passes a change above a threshold that the user gave: it is ``regressed`` or
``inconclusive``. A case or a large operation is also ``inconclusive`` if the smallest slowdown that
the runs can tell from noise is above that threshold.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mnistbench.compare.criteria import (
    DEFAULT_SHARE,
    Criteria,
    Threshold,
)
from mnistbench.compare.diff import (
    CaseComparison,
    Comparison,
    OpChange,
    first_with_form,
    other_settings,
    table_of,
)
from mnistbench.compare.prediction_interval import FALSE_ALARM, RUNS_NEEDED, prediction_interval
from mnistbench.compare.replacements import replacements
from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import OUTSIDE, RUNTIME, operation_name, replacement_title
from mnistbench.core.record import median, quartiles_ns
from mnistbench.judging.acceptance import (
    LARGEST_LIMIT,
    Acceptance,
    cases_written,
    check_cases,
)
from mnistbench.judging.findings import Finding, unused, with_acceptance
from mnistbench.judging.grouping import LARGE_SHARE, is_judged_alone
from mnistbench.judging.kinds import (
    ITERATION,
    OPERATION,
    OTHER,
    OTHER_FUNCTIONS,
    OUTSIDE_KIND,
    REPLACED,
)
from mnistbench.judging.verdicts import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    MISSING,
    NONE,
    PASSED,
    REGRESSED,
    SUSPECT,
    WITHIN,
    Reason,
)
from mnistbench.saved_runs.compatibility import REMEDIES, described
from mnistbench.saved_runs.run import Run


@dataclass(frozen=True)
class RunFinding(Finding):
    """One quantity of a case by the rules of saved runs.

    An operation, several operations together, or the iteration.
    """

    # What was measured.
    case: CaseComparison
    name: str
    kind: str  # operation, replaced, outside (not an operation), other or iteration
    members: tuple[OpChange, ...]  # the operations that are summed; none for the iteration
    base_runs: tuple[float, ...]  # ns in every base run
    head_runs: tuple[float, ...]  # ns in every run of the head
    spread_ns: float  # change that the spread of the runs can explain
    limit: Threshold | None  # the user's

    # What the rule says beside the verdict.
    within: float = 0.0  # the X of "within X %", as a share
    # Minimum detectable change under the rule of runs, as a share; None under that of thresholds.
    smallest: float | None = None
    took_over: bool = False  # it has calls of other operations, and the case changed the other way
    is_open: bool = False  # the runs vary too much to rule out a slowdown of the user's threshold
    is_noise: bool = False  # it is open and leaves the outcome open

    @property
    def has_limit(self) -> bool:
        """Whether the threshold is the user's."""
        return self.limit is not None

    @property
    def threshold(self) -> float:
        """The largest slowdown that passes, as a share of the base."""
        return self.limit.share if self.limit else DEFAULT_SHARE

    @functools.cached_property  # a median that every format asks for
    def base_ns(self) -> float:
        """Median over the base runs; 0 for a new operation."""
        return median(self.base_runs)

    @functools.cached_property
    def head_ns(self) -> float:
        """Median over the runs of the head; 0 for an operation that vanished."""
        return median(self.head_runs)

    @property
    def change_ns(self) -> float:
        """Difference to the base."""
        return self.head_ns - self.base_ns

    @property
    def change(self) -> float:
        """Difference as a share of the base; infinite for a new operation."""
        if self.base_ns > 0:
            return self.change_ns / self.base_ns
        return math.inf if self.head_ns > 0 else 0.0

    @property
    def is_function(self) -> bool:
        """Whether it is one function or several, whose times are those under cProfile."""
        return any(change.is_function for change in self.members)

    @property
    def whole_base_ns(self) -> float:
        """Time in the base that it is part of."""
        base_ns, _ = self.case.whole_ns(is_function=self.is_function)
        return base_ns

    @property
    def is_above_given(self) -> bool:
        """Whether the change is above a threshold that the user gave."""
        return self.has_limit and self.change > self.threshold

    @property
    def spread(self) -> float:
        """The spread of the runs as a share of the base."""
        return self.spread_ns / self.base_ns if self.base_ns > 0 else 0.0

    @property
    def by_runs(self) -> bool:
        """Whether the verdict is by the rule of runs."""
        return self.smallest is not None

    @property
    def uncertainty(self) -> float:
        """The minimum detectable change or, with too few runs for one, the spread of the runs.

        As a share of the base.
        """
        return self.spread if self.smallest is None else self.smallest

    @property
    def may_be_accepted(self) -> bool:
        """Whether an ``--accept`` applies.

        To a regression, or to a change that would be one without the noise.
        """
        return self.verdict == REGRESSED or (self.verdict == INCONCLUSIVE and self.is_above_given)

    @property
    def fails(self) -> bool:
        """Whether it is a regression above a threshold that the user gave."""
        return super().fails and self.has_limit

    @property
    def case_names(self) -> Collection[str]:
        """Those of the case in the new run."""
        return self.case.head.names

    @property
    def quantity_names(self) -> Collection[str]:
        """Its own, and those of its operations and their modules."""
        if self.kind == OTHER:
            # Also of a module; the name of one operation does not accept those pooled with it.
            return {self.name, OTHER}
        members = (name for change in self.members for name in (*change.names, change.module))
        return {self.name, *filter(None, members)}

    @property
    def share_to_accept(self) -> float:
        """The change as a share of the base, or of the whole case for a new operation."""
        is_new = self.change > LARGEST_LIMIT
        return self.change_ns / ((self.whole_base_ns or 1.0) if is_new else self.base_ns)

    @property
    def text(self) -> str:
        """The verdict as tables show it."""
        if self.took_over:
            return "no regression, case faster" if self.change_ns > 0 else "no gain, case slower"
        if self.verdict == WITHIN:
            return f"within {units.growth(self.within)}"
        detectable = ""
        if self.verdict == INCONCLUSIVE and self.smallest is not None:
            detectable = f" (minimum detectable change {units.growth(self.smallest)})"
        return f"{self.verdict}{detectable}{', accepted' if self.accepted else ''}"


@dataclass(frozen=True)
class CaseJudgement:
    """One compared case with the verdicts of its quantities."""

    case: CaseComparison
    iteration: RunFinding
    # Single operations by size of change; then what is no operation, and other.
    operations: tuple[RunFinding, ...]

    @property
    def findings(self) -> tuple[RunFinding, ...]:
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
    def findings(self) -> tuple[RunFinding, ...]:
        """Every quantity with a verdict."""
        return tuple(finding for case in self.cases for finding in case.findings)

    @property
    def regressions(self) -> tuple[RunFinding, ...]:
        """Regressions above a threshold."""
        return tuple(finding for finding in self.findings if finding.fails)

    @property
    def accepted(self) -> tuple[RunFinding, ...]:
        """Regressions within the limit of their ``--accept``."""
        return tuple(finding for finding in self.findings if finding.accepted)

    @property
    def noise(self) -> tuple[RunFinding, ...]:
        """What the runs vary too much to judge by its threshold.

        Changes above it, and cases and large operations.
        """
        return tuple(finding for finding in self.findings if finding.is_noise)

    @property
    def open_questions(self) -> int:
        """Number of problems and changes that could not be judged and are not excused."""
        if not self.asked:
            return 0
        open_problems = sum(not problem.excused for problem in self.problems)
        return open_problems + (0 if self.criteria.inconclusive == "ok" else len(self.noise))

    @property
    def open_operations(self) -> tuple[RunFinding, ...]:
        """Small operations that the runs vary too much to judge, the largest first.

        They do not change the outcome.
        """
        small = (finding for finding in self.findings if finding.is_open and not finding.is_noise)
        return tuple(sorted(small, key=lambda finding: -finding.base_ns))

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
    drafts = [_draft(case, criteria) for case in comparison.cases]
    judged_by_runs = sum(
        len(finding.base_runs) >= RUNS_NEEDED for draft in drafts for finding in draft.findings
    )
    cases = []
    for draft in drafts:
        iteration, *operations = (
            _judge(finding, judged_by_runs, criteria) for finding in draft.findings
        )
        cases.append(CaseJudgement(draft.case, iteration, tuple(operations)))
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
    """Check the thresholds that the cases of a run have from their tests' own marks.

    A saved file may be damaged.
    """
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


# ---- Which quantities are judged -----------------------------------------------------------------


def _draft(case: CaseComparison, criteria: Criteria) -> CaseJudgement:
    """Return what is judged of a case, without verdicts."""
    # The spread of the iterations of each run: of its rounds, or of their times on the device's
    # clock.
    spreads_ns: list[float] = [side.wall_spread_ns for side in (case.base, case.head)]
    if case.clock == "device":
        quartiles = (quartiles_ns(side.device_ns) for side in (case.base, case.head))
        spreads_ns = [third - first for first, third in quartiles]
    limit = Threshold.parse(case.head.case_fail) if case.head.case_fail else criteria.case_fail
    spread_ns = _spread(case.base_runs, case.head_runs, *spreads_ns)
    iteration = RunFinding(
        case, ITERATION, ITERATION, (), case.base_runs, case.head_runs, spread_ns, limit
    )
    return CaseJudgement(case, iteration, tuple(_operation_findings(case, criteria)))


def _operation_findings(case: CaseComparison, criteria: Criteria) -> Iterable[RunFinding]:
    """Yield each operation that matters; what replaced each other together.

    The small operations together.
    """
    limits = _Limits(case, criteria)
    operations = [change for change in case.operations if change.is_operation]
    named = {id(change) for change in operations if limits.name_operation(change)}
    alone: list[RunFinding] = []
    small: list[OpChange] = []
    in_a_group: set[int] = set()
    functions = case.functions
    no_functions = [change for change in operations if not change.is_function]
    for group in (*replacements(no_functions, named), *replacements(functions, named)):
        in_a_group.update(map(id, group))
        if named.intersection(map(id, group)) or _matter(group, case, criteria):
            alone.append(_sum(group, _title(group), REPLACED, limits))
        else:
            small += group
    for change in operations:
        if id(change) in in_a_group:
            continue
        if id(change) in named or _matters(change, case, criteria):
            alone.append(_sum([change], operation_name(*change.key), OPERATION, limits))
        else:
            small.append(change)
    yield from sorted(alone, key=lambda finding: (-abs(finding.change_ns), finding.name))
    for name in dict.fromkeys(change.name for change in case.operations if not change.is_operation):
        outside = [change for change in case.operations if change.name == name]
        # The host has no device time.
        if case.clock == "cpu" or any(change.base_ns or change.head_ns for change in outside):
            yield _sum(outside, operation_name(name, "", ""), OUTSIDE_KIND, limits)
    # By the name that a threshold has; operations and functions by themselves.
    pools: dict[tuple[str, bool], list[OpChange]] = defaultdict(list)
    for change in small:
        limit = limits.named(change)
        pools[limit.name if limit else "", change.is_function].append(change)
    for (name, is_function), changes in sorted(pools.items(), reverse=True):
        other = OTHER_FUNCTIONS if is_function else OTHER
        yield _sum(changes, f"{other} in {name}" if name else other, OTHER, limits)


def _matters(change: OpChange, case: CaseComparison, criteria: Criteria) -> bool:
    """Whether the operation matters in either run: a large increase starts from a small time."""
    return _matter([change], case, criteria)


def _matter(changes: Sequence[OpChange], case: CaseComparison, criteria: Criteria) -> bool:
    """Whether the sum of operations matters in either run, or a single one of several."""
    if len(changes) > 1 and any(_matters(change, case, criteria) for change in changes):
        return True
    is_function = changes[0].is_function
    wholes_ns = case.whole_ns(is_function=is_function)
    for side, whole_ns in zip(("base", "head"), wholes_ns, strict=True):
        present = [change for change in changes if getattr(change, side)]
        total_ns = sum(getattr(change, f"{side}_ns") or 0 for change in present)
        calls = sum(getattr(change, side).calls for change in present)
        if present and is_judged_alone(
            total_ns,
            whole_ns,
            least_share=criteria.min_share,
            calls=calls,
            # The overhead of cProfile is not subtracted, and both sides have it.
            profiler_ns=0 if is_function else case.profiler_ns,
        ):
            return True
    return False


def _title(group: Sequence[OpChange]) -> str:
    """Return what replaced what: ``aten::mm -> aten::addmm, forward fc1``."""
    sides = (
        (change.key, change.base and change.base_ns, change.head and change.head_ns)
        for change in group
    )
    return replacement_title(sides)


class _Limits:
    """Thresholds of a case.

    Those of its test before the general ones, those with a name before those without.
    """

    def __init__(self, case: CaseComparison, criteria: Criteria) -> None:
        self.case = case
        self._all = [*map(Threshold.parse, case.head.op_fail), *criteria.op_fail]

    def named(self, change: OpChange) -> Threshold | None:
        return next(
            (limit for limit in self._all if limit.name and change.is_named(limit.name)), None
        )

    def name_operation(self, change: OpChange) -> bool:
        """Whether a threshold names the operation itself, not only its module.

        Then its size does not count.
        """
        return any(limit.name in change.names for limit in self._all if limit.name)

    def of(self, changes: Sequence[OpChange]) -> Threshold | None:
        named = [limit for change in changes if (limit := self.named(change))]
        if named:  # the threshold of an operation also applies to its replacement
            return min(named, key=lambda limit: limit.share)
        return next((limit for limit in self._all if not limit.name), None)


def _sum(changes: Sequence[OpChange], name: str, kind: str, limits: _Limits) -> RunFinding:
    """Return one quantity for several operations, summed run by run.

    A new operation has no base runs.
    """
    base_runs, head_runs = (
        tuple(map(sum, zip(*filter(None, columns), strict=True)))
        for columns in (
            [change.base_runs for change in changes],
            [change.head_runs for change in changes],
        )
    )
    spread_ns = _spread(
        base_runs,
        head_runs,
        sum(change.base.spread_ns for change in changes if change.base),
        sum(change.head.spread_ns for change in changes if change.head),
    )
    return RunFinding(
        limits.case, name, kind, tuple(changes), base_runs, head_runs, spread_ns, limits.of(changes)
    )


def _spread(
    base_runs: Sequence[float], head_runs: Sequence[float], base_ns: float, head_ns: float
) -> float:
    """Return the spread of a time over the runs of both sides and inside them.

    It is the root of the sum of squares of the ranges over runs and the interquartile ranges.
    """
    ranges = (max(runs) - min(runs) if runs else 0 for runs in (base_runs, head_runs))
    return math.hypot(base_ns, head_ns, *ranges)


# ---- Verdicts ------------------------------------------------------------------------------------


class Ruling(NamedTuple):
    """What one of the two rules says of a change."""

    verdict: str
    within: float = 0.0
    smallest: float | None = None


def _judge(finding: RunFinding, family: int, criteria: Criteria) -> RunFinding:
    """Return a quantity with its verdict.

    Args:
        finding: what was measured.
        family: number of quantities of the report that the rule of runs judges.
        criteria: of the comparison.
    """
    case = finding.case
    if not case.is_comparable or _depends_on_iterations(finding):
        return replace(finding, verdict=INCOMPARABLE)
    has_no_base = finding.base_ns <= 0 and finding.kind != REPLACED
    if has_no_base and finding.change_ns <= criteria.min_share * finding.whole_base_ns:
        # Subtracting the profiler's overhead left no time that a change could be a share of.
        return replace(finding, verdict=WITHIN, within=finding.threshold)
    if _took_over(finding, criteria.min_share):
        return replace(finding, verdict=WITHIN, within=finding.threshold, took_over=True)
    if any(run.trace for run in case.used):
        # A trace is one process, whose steps are no replicates.
        finding = replace(finding, spread_ns=0.0)

    # 0 has no logarithm.
    has_logarithms = min(finding.base_runs, default=0) > 0 and finding.head_ns > 0
    if len(finding.base_runs) >= RUNS_NEEDED and has_logarithms:
        ruling = rule_of_runs(finding, FALSE_ALARM / family)
    else:
        ruling = _rule_of_threshold(finding)
    finding = replace(finding, **ruling._asdict())

    is_open = _is_open(finding)
    # A change above the threshold leaves the outcome open for any operation.
    is_noise = is_open and (finding.is_above_given or _is_decisive(finding))
    if is_noise:
        finding = replace(finding, verdict=INCONCLUSIVE)

    finding = with_acceptance(finding, criteria.accept)
    return replace(
        finding,
        is_open=is_open and not finding.accepted,
        is_noise=is_noise and not finding.accepted,
    )


def _took_over(finding: RunFinding, min_share: float) -> bool:
    """Return whether calls moved to it, or away from it, and made the case change the other way.

    One side hardly has it, so its own times cannot show whether it got slower. A new function of
    which the case and the sum of its functions got faster took the place of slower ones, in
    whatever module they are. A threshold that names it judges it all the same.
    """
    if finding.kind not in (OPERATION, REPLACED, OTHER) or (finding.limit and finding.limit.name):
        return False
    case = finding.case
    has_grown = finding.change_ns > 0
    wholes_ns = case.whole_ns(is_function=finding.is_function)
    times_ns = (finding.base_ns, finding.head_ns)
    small, whole_ns = min(zip(times_ns, wholes_ns, strict=True))
    calls = sum(
        (change.head.calls if change.head else 0) - (change.base.calls if change.base else 0)
        for change in finding.members
    )
    base_whole_ns, head_whole_ns = wholes_ns
    changes_ns = (case.change_ns, head_whole_ns - base_whole_ns)
    return (
        small < min_share * whole_ns
        and (calls > 0 if has_grown else calls < 0)
        and all(change < 0 if has_grown else change > 0 for change in changes_ns)
    )


def _depends_on_iterations(finding: RunFinding) -> bool:
    """Whether a time is not the same part of every iteration.

    A trace of one has no time between two of them.
    """
    if not finding.case.iterations.are_divided:
        return False
    has_time_between = finding.kind == ITERATION and finding.case.clock == "cpu"
    names = {change.name for change in finding.members}
    return has_time_between or not names.isdisjoint((OUTSIDE, RUNTIME))


def rule_of_runs(finding: RunFinding, risk: float) -> Ruling:
    """Return what the spread of the base runs says of a quantity.

    ``risk`` is the probability of a false alarm.
    """
    low, high = prediction_interval(finding.base_runs, risk)
    smallest = high / finding.base_ns - 1
    if finding.change > finding.threshold:
        verdict = REGRESSED if finding.head_ns > high else INCONCLUSIVE
    elif finding.change < -finding.threshold:
        verdict = IMPROVED if finding.head_ns < low else INCONCLUSIVE
    else:
        return Ruling(WITHIN, max(finding.threshold, smallest), smallest)
    return Ruling(verdict, smallest=smallest)


def _rule_of_threshold(finding: RunFinding) -> Ruling:
    change = finding.change
    threshold = finding.threshold
    if change > threshold:
        is_clear = finding.has_limit or change - threshold > finding.spread
        return Ruling(REGRESSED if is_clear else SUSPECT)
    if change < -threshold:
        # As a slowdown: where the user gave the threshold, it decides. It also has to rule out a
        # slowdown of that size.
        is_ruled_out = finding.has_limit and change + finding.spread <= threshold
        is_clear = is_ruled_out or -change - threshold > finding.spread
        return Ruling(IMPROVED if is_clear else INCONCLUSIVE)
    return Ruling(WITHIN, max(threshold, finding.spread))


def _is_open(finding: RunFinding) -> bool:
    """Whether the runs vary too much to rule out a slowdown of the user's threshold.

    Time that the base does not have is above every threshold, and is judged by its share of the
    case.
    """
    if not finding.has_limit or finding.verdict not in (WITHIN, INCONCLUSIVE):
        return False
    is_above = finding.is_above_given and finding.base_ns > 0
    return is_above or finding.uncertainty > finding.threshold


def _is_decisive(finding: RunFinding) -> bool:
    """Whether a pass has to rule it out.

    For a case, a large operation, and one that the threshold names.
    """
    if finding.kind == ITERATION:
        return True
    if finding.kind not in (OPERATION, REPLACED):
        return False
    name = finding.limit.name if finding.limit else ""
    is_named = bool(name) and any(name in change.names for change in finding.members)
    return is_named or finding.base_ns >= LARGE_SHARE * finding.whole_base_ns


# ---- Intended regressions ------------------------------------------------------------------------


def acceptance_for(judgement: Judgement, finding: RunFinding) -> str:
    """Return the ``--accept`` value that accepts a regression of this size.

    It accepts no other regression if the names allow that.
    """
    share = finding.share_to_accept
    percent = math.floor(100 * share)
    if percent / 100 < share:  # rounded up, so that the limit is not below the change
        percent += 1
    label, short, node_id, *_ = finding.case.head.names
    acceptances = [
        Acceptance(f"{_as_pattern(name)}:{_as_pattern(finding.name)}", percent / 100)
        for name in (short, label, node_id)
    ]
    names = _names_of_cases(judgement.comparison)
    specific = (
        acceptance
        for acceptance in acceptances
        if sum(named.is_named_by(acceptance) for named in judgement.findings) == 1
        and len(cases_written(acceptance, names)) < 2
    )
    return f"{next(specific, acceptances[-1]).pattern}:{percent}%"


def _as_pattern(name: str) -> str:
    """Return a pattern that can be typed: ``*`` replaces every character that cannot be printed."""
    return "".join(sign if sign.isprintable() else "*" for sign in name)


# ---- What cannot be judged: missing cases and tables, other machines, thresholds without an effect


def problems(comparison: Comparison, criteria: Criteria) -> Iterable[Reason]:
    """Yield all problems, those of the whole comparison first."""
    if not comparison.head.cases:
        why = comparison.head.why_empty or "the new run has no benchmark in it; name another"
        yield Reason(MISSING, f"no benchmark ran: {why}", excused=False)
        return
    if not comparison.bases:
        yield Reason(
            MISSING,
            "no saved run to compare with; save one with: pytest bench --benchmark-autosave",
            excused=False,
        )
        return
    cases = comparison.cases
    if not cases:
        yield Reason(
            MISSING,
            "no case in common with the base; save a run of these cases first",
            excused=False,
        )
    candidates = first_with_form(comparison.only_head)
    for run, case in comparison.only_base:
        where = f"last saved {run.label}" if run.saved_at else run.label
        text = f"in the base but not in this run: {case.node_id}, {where}"
        if settings := other_settings(case, candidates):
            changed = ", ".join(
                f"{name} {before} -> {after}" for name, (before, after) in settings.items()
            )
            text += f"; this run has it with other settings ({changed}): measure both sides alike"
        yield Reason(MISSING, text, excused=criteria.allow_missing)
    yield from _incomparable(cases, criteria)
    yield from _missing_tables(cases, criteria)
    yield from _unmatched(cases, criteria)


def _incomparable(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Reason]:
    """Yield one problem per difference, not per case.

    Another machine is a difference of all cases.
    """
    counts = Counter(name for case in cases for name in case.incomparable)
    fields = {name: sides for case in cases for name, sides in case.incomparable.items()}
    for name, text in zip(fields, described(fields), strict=True):
        field_text = f"{units.counted(counts[name], 'case')}: {text}"
        advice, option = REMEDIES[name]
        remedy = f"{advice}, or add {criteria.flag(option)}" if option else advice
        yield Reason(INCOMPARABLE, f"{field_text}; {remedy}", excused=criteria.allow_incomparable)
    for case in cases:
        if case.iterations.unknown:
            text = (
                f"{case.head.label}: most numbers of calls differ by one factor, but not all "
                f"({case.iterations.unknown}), and the traces have no steps, so their numbers of "
                "iterations are not known; record each iteration as a step "
                "(torch.profiler.profile.step)"
            )
            yield Reason(INCOMPARABLE, text, excused=criteria.allow_incomparable)
        if case.iterations.are_divided and case.clock == "cpu" and criteria.case_fail:
            text = (
                f"{case.head.label}: {criteria.flag('--case-fail')} cannot judge the time of an "
                "iteration, because the traces have no steps and different numbers of iterations; "
                "record each iteration as a step (torch.profiler.profile.step)"
            )
            yield Reason(INCOMPARABLE, text, excused=criteria.allow_incomparable)


def _missing_tables(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Reason]:
    for case in cases:
        if case.operations or not case.is_comparable or not (criteria.op_fail or case.head.op_fail):
            continue
        both = (("the base", case.base), ("this run", case.head))
        lost = [
            name
            for name, side in both
            if case.clock == "device" and table_of(side, "device") is None
        ]
        if lost:
            text = (
                f"no device time in the operation table of {case.head.node_id} in "
                f"{' and in '.join(lost)}"
            )
            yield Reason(
                MISSING, f"{text}: the profiler recorded no kernel", excused=criteria.allow_missing
            )
            continue
        sides = [name for name, side in both if not side.warm_columns]
        is_without = case.head.tables_in or (case.base.params is None and case.head.params is None)
        if is_without and len(sides) == 2 and not case.head.op_fail:
            # Such a case never has a table of its own, and no threshold of its test asks for one.
            continue
        where = " and in ".join(sides) or "both by the same view"
        yield Reason(
            MISSING,
            f"no operation table of {case.head.node_id} in {where}",
            excused=criteria.allow_missing,
        )


def _unmatched(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Reason]:
    """Yield thresholds that apply to nothing: a misspelt name must not pass."""
    compared = [case for case in cases if case.operations]
    for name in sorted({limit.name for limit in criteria.op_fail if limit.name}):
        if compared and not any(
            change.is_named(name) for case in compared for change in case.operations
        ):
            yield Reason(
                MISSING, f"--op-fail {name!r} is no operation or module of any case", excused=False
            )
    for case in compared:
        for limit in map(Threshold.parse, case.head.op_fail):
            if limit.name and not any(change.is_named(limit.name) for change in case.operations):
                text = f"opgate {limit.name!r} is no operation or module of {case.head.node_id}"
                yield Reason(MISSING, text, excused=False)
    if criteria.op_fail and cases and not compared and all(case.is_comparable for case in cases):
        text = "no case has an operation table that --op-fail could apply to"
        yield Reason(
            MISSING,
            f"{text}; give {criteria.flag('--case-fail')} 10%, or save runs with --op-benchmarks",
            excused=False,
        )
