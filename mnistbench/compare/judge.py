"""Comparison + Criteria -> Judgement: pure. ``docs/verdicts.md`` explains it to users.

Two rules:

- *Runs*: with RUNS_NEEDED or more base runs of one commit, each a process of its own, the new run is held against their
  prediction interval. Times are taken as log-normal (effects multiply): one future observation lies below
  exp(mean + t s sqrt(1 + 1/n)) of the logs with the probability that t = t(n - 1) was chosen for [1]. The risk of
  FALSE_ALARM is shared evenly among all that is held (Bonferroni), so that it holds for the whole report.
- *Threshold*: with fewer, a change is held against the threshold alone. By how much the runs' own spread could have
  moved it says whether it is ``regressed`` or ``suspect``.

Neither rule passes a change above a threshold that was given: it is ``regressed``, or it could not be judged.

[1] Hahn and Meeker, Statistical Intervals, 1991, section 4.7: prediction interval for one future observation.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from mnistbench.compare.diff import CaseComparison, Comparison, OpChange, table_of
from mnistbench.compare.exact import operation_name, shortened
from mnistbench.compare.thresholds import DEFAULT_SHARE, LARGEST_LIMIT, Acceptance, Criteria, Threshold, plain_threshold
from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.saved_runs.summary import RunSummary

REGRESSED, IMPROVED, WITHIN, SUSPECT = "regressed", "improved", "within", "suspect"
INCONCLUSIVE, INCOMPARABLE, MISSING = "inconclusive", "incomparable", "missing"

#: Base runs from which their spread is trusted: a standard deviation of 8 is known to about a quarter of itself.
RUNS_NEEDED = 8

#: Probability that a report over runs of the same code calls anything regressed, under the rule of runs.
FALSE_ALARM = 0.05

#: What the rows that hold no single operation are called; ``--accept CASE:OP`` takes these names too.
OTHER, CALL = "other", "call"


@dataclass(frozen=True)
class CheckedQuantity:
    """One quantity of a case that is held: an operation, several pooled, or the call."""

    name: str
    kind: str  # operation, replaced, outside, other or call
    members: tuple[OpChange, ...]  # what it sums; none for the call
    base_runs: tuple[int, ...]  # ns in every base run
    now_ns: int
    spread_ns: float  # how far the runs' own spread could have moved the difference
    threshold: float  # share of the base
    given: bool  # the user gave that threshold
    verdict: str = INCONCLUSIVE
    within: float = 0.0  # the X of "within X %", as a share
    by_runs: bool = False  # the rule of runs judged
    smallest: float | None = None  # the minimum detectable change under the rule of runs, as a share
    accepted: bool = False
    accept_limit: float | None = None  # of the --accept that matches it, as a share; None where none with a limit matches
    accept_unlimited: bool = False  # only an --accept without a limit matches it

    @functools.cached_property  # a median, asked for in every format
    def base_ns(self) -> int:
        """Median over the base runs; 0 for what is new."""
        return round(statistics.median(self.base_runs)) if self.base_runs else 0

    @property
    def change_ns(self) -> int:
        """What it added."""
        return self.now_ns - self.base_ns

    @property
    def change(self) -> float:
        """What it added as a share of the base; infinite for what is new."""
        return self.change_ns / self.base_ns if self.base_ns > 0 else (math.inf if self.now_ns > 0 else 0.0)

    @property
    def fails(self) -> bool:
        """Whether it is a regression above a threshold that was given."""
        return self.verdict == REGRESSED and self.given and not self.accepted and not self.accept_unlimited

    @property
    def is_noise(self) -> bool:
        """Whether it is above a threshold that was given, and not beyond what the base runs differ by."""
        return self.verdict == INCONCLUSIVE and self.given and self.change > self.threshold and not self.accepted

    @property
    def text(self) -> str:
        """The verdict as a table shows it."""
        if self.verdict == WITHIN:
            return f"within {units.percent(self.within)}"
        detectable = ""
        if self.verdict == INCONCLUSIVE and self.smallest is not None:
            detectable = f" (minimum detectable change {units.percent(self.smallest)})"
        return f"{self.verdict}{detectable}{', accepted' if self.accepted else ''}"


@dataclass(frozen=True)
class CaseJudgement:
    """One compared case with what was held of it."""

    case: CaseComparison
    call: CheckedQuantity
    operations: tuple[CheckedQuantity, ...]  # one by one, by size of change; then outside operations and other

    @property
    def checked(self) -> tuple[CheckedQuantity, ...]:
        """Everything that has a verdict."""
        return (self.call, *self.operations)


class Problem(NamedTuple):
    """Why something could not be judged."""

    verdict: str  # missing or incomparable
    text: str
    excused: bool  # by --allow-missing or --allow-incomparable


@dataclass(frozen=True)
class Judgement:
    """A comparison with its verdicts."""

    comparison: Comparison
    criteria: Criteria
    cases: tuple[CaseJudgement, ...]
    problems: tuple[Problem, ...]
    asked: bool  # somebody gave a threshold, here or on a test
    unused: tuple[str, ...]  # --accept that matched no regression

    @property
    def checked(self) -> tuple[tuple[CaseJudgement, CheckedQuantity], ...]:
        """Everything that has a verdict, with its case."""
        return tuple((case, checked) for case in self.cases for checked in case.checked)

    @property
    def regressions(self) -> tuple[tuple[CaseJudgement, CheckedQuantity], ...]:
        """What is regressed above a threshold."""
        return tuple((case, checked) for case, checked in self.checked if checked.fails)

    @property
    def accepted(self) -> tuple[tuple[CaseJudgement, CheckedQuantity], ...]:
        """Regressions within the limit that they were accepted with."""
        return tuple((case, checked) for case, checked in self.checked if checked.accepted)

    @property
    def unlimited(self) -> tuple[tuple[CaseJudgement, CheckedQuantity], ...]:
        """Regressions above a threshold that are accepted without a limit, so that nothing is decided."""
        found = (pair for pair in self.checked if pair[1].accept_unlimited and pair[1].given)
        return tuple((case, checked) for case, checked in found if checked.verdict == REGRESSED)

    @property
    def noise(self) -> tuple[tuple[CaseJudgement, CheckedQuantity], ...]:
        """What is above a threshold, and not beyond what the base runs differ by."""
        return tuple((case, checked) for case, checked in self.checked if checked.is_noise)

    @property
    def unjudged(self) -> int:
        """How many things could not be judged and are not excused."""
        if not self.asked:
            return 0
        problems = sum(not problem.excused for problem in self.problems)
        return problems + len(self.unlimited) + (0 if self.criteria.noise_passes else len(self.noise))

    @property
    def minimum_detectable(self) -> tuple[CaseJudgement, CheckedQuantity] | None:
        """What has the largest minimum detectable change of all that was judged by the rule of runs."""
        by_runs = [(case, checked) for case, checked in self.checked if checked.smallest is not None]
        return max(by_runs, key=lambda pair: pair[1].smallest or 0.0, default=None)

    @property
    def outcome(self) -> str:
        """``passed``, ``regressed``, ``unjudged``, or ``none`` where no threshold was given."""
        if not self.asked:
            return "none"
        return "regressed" if self.regressions else "unjudged" if self.unjudged else "passed"


def judge(comparison: Comparison, criteria: Criteria) -> Judgement:
    """Give every case and every operation that matters its verdict.

    Raises:
        RecordError: a case of the new run has a threshold that cannot be read.
    """
    _check_thresholds(comparison.now)
    drafts = [_draft(case, criteria) for case in comparison.cases]
    by_runs = sum(
        len(checked.base_runs) >= RUNS_NEEDED for case in drafts for checked in case.checked if not case.case.incomparable
    )
    cases = tuple(
        CaseJudgement(
            draft.case,
            _judge(draft.call, draft.case, by_runs, criteria),
            tuple(_judge(checked, draft.case, by_runs, criteria) for checked in draft.operations),
        )
        for draft in drafts
    )
    used = {
        one
        for case in cases
        for checked in case.checked
        if _may_be_accepted(checked)
        for one in _matching(case.case, checked, criteria)
    }
    # A marked case that is missing now was to be held, too.
    concerned = (*comparison.now.cases, *(case for _, case in comparison.only_base))
    marks = any(case.op_fail or case.case_fail for case in concerned)
    return Judgement(
        comparison=comparison,
        criteria=criteria,
        cases=cases,
        problems=tuple(_problems(comparison, criteria, cases)),
        asked=bool(criteria.op_fail or criteria.case_fail or marks),
        unused=tuple(one.text for one in criteria.accept if one not in used),
    )


def _check_thresholds(run: RunSummary) -> None:
    """Check the thresholds that the cases of a run have from their tests' own marks: a saved file may be damaged."""
    for case in run.cases:
        thresholds = [(text, Threshold.parse) for text in case.op_fail]
        thresholds += [(case.case_fail, plain_threshold)] if case.case_fail else []
        for text, parse in thresholds:
            try:
                parse(text)
            except ValueError as error:
                complaint = f"{run.source}: opgate of {case.node_id}: {text!r} is {error}"
                raise RecordError(units.printable(f"{complaint}; save the run again or leave the file out")) from None


# ---- What is held ----------------------------------------------------------------------------------------------------


def _draft(case: CaseComparison, criteria: Criteria) -> CaseJudgement:
    mark = Threshold.parse(case.now.case_fail) if case.now.case_fail else None
    limit = mark or criteria.case_fail
    call = CheckedQuantity(
        name=CALL,
        kind=CALL,
        members=(),
        base_runs=case.base_runs,
        now_ns=case.now_ns,
        spread_ns=_spread(case.base_runs, case.base.wall_spread_ns, case.now.wall_spread_ns),
        threshold=limit.share if limit else DEFAULT_SHARE,
        given=limit is not None,
    )
    return CaseJudgement(case, call, tuple(_checked_operations(case, criteria)))


def _checked_operations(case: CaseComparison, criteria: Criteria) -> Iterable[CheckedQuantity]:
    """Yield operations that matter one by one; new and vanished ones by their place; all others in one."""
    limits = _Limits(case, criteria)
    operations = [change for change in case.operations if change.is_operation]
    alone = [change for change in operations if limits.name_operation(change) or _matters(change, case, criteria)]
    replaced: dict[tuple[str, str], list[OpChange]] = defaultdict(list)
    for change in alone:
        if change.base is None or change.now is None:
            replaced[change.phase, change.module].append(change)
    drafts = [_hold([change], operation_name(change), "operation", limits) for change in alone if change.base and change.now]
    drafts += [_hold(changes, _replacement(changes), "replaced", limits) for changes in replaced.values()]
    yield from sorted(drafts, key=lambda checked: (-abs(checked.change_ns), checked.name))
    outside = [change for change in case.operations if not change.is_operation]
    if outside:
        yield _hold(outside, "outside operations", "outside", limits)
    rest: dict[str, list[OpChange]] = defaultdict(list)
    taken = {id(change) for change in alone}
    for change in operations:
        if id(change) not in taken:
            limit = limits.named(change)
            rest[limit.name if limit else ""].append(change)
    for name, changes in sorted(rest.items(), reverse=True):
        yield _hold(changes, f"{OTHER} in {name}" if name else OTHER, OTHER, limits)


def _matters(change: OpChange, case: CaseComparison, criteria: Criteria) -> bool:
    """Whether it is a large enough share of its case, in either run, and quick calls are not mostly profiler."""
    sides = ((change.base, change.base_ns, case.base_ns), (change.now, change.now_ns, case.now_ns))
    for side, ns, whole in sides:
        if (
            side
            and ns is not None
            and ns >= criteria.min_share * whole
            and ns >= criteria.min_cost * case.profiler_ns * side.calls
        ):
            return True
    return False


class _Limits:
    """Thresholds of a case: its test's mark before the general ones, a name before none."""

    def __init__(self, case: CaseComparison, criteria: Criteria) -> None:
        self._all = [*map(Threshold.parse, case.now.op_fail), *criteria.op_fail]

    def named(self, change: OpChange) -> Threshold | None:
        return next((limit for limit in self._all if limit.name and names(limit.name, change)), None)

    def name_operation(self, change: OpChange) -> bool:
        """Whether a threshold names the operation, not only its module: then it is held however small it is."""
        return any(limit.name in operation_names(change) for limit in self._all if limit.name)

    def of(self, changes: Sequence[OpChange]) -> Threshold | None:
        named = [limit for change in changes if (limit := self.named(change))]
        if named:  # what replaces a named operation is held to its threshold
            return min(named, key=lambda limit: limit.share)
        return next((limit for limit in self._all if not limit.name), None)


def names(name: str, change: OpChange) -> bool:
    """Whether a name that a user gave means that operation or its module."""
    return change.is_operation and name in (*operation_names(change), change.module)


def operation_names(change: OpChange) -> tuple[str, ...]:
    """Every name of an operation: as torch calls it, as tables shorten it, with its place."""
    return (change.name, shortened(change.name), operation_name(change))


def _hold(changes: Sequence[OpChange], name: str, kind: str, limits: _Limits) -> CheckedQuantity:
    limit = limits.of(changes)
    base_runs = _summed_runs(changes)
    return CheckedQuantity(
        name=name,
        kind=kind,
        members=tuple(changes),
        base_runs=base_runs,
        now_ns=sum(change.now_ns or 0 for change in changes),
        spread_ns=_spread(
            base_runs,
            sum(change.base.spread_ns for change in changes if change.base),
            sum(change.now.spread_ns for change in changes if change.now),
        ),
        threshold=limit.share if limit else DEFAULT_SHARE,
        given=limit is not None,
    )


def _summed_runs(changes: Sequence[OpChange]) -> tuple[int, ...]:
    """Sum run by run; what is new has no base runs."""
    return tuple(map(sum, zip(*(change.base_runs for change in changes if change.base_runs), strict=True)))


def _spread(base_runs: Sequence[int], base_ns: int, now_ns: int) -> float:
    """Interquartile ranges inside the two runs, and the range over the base runs, add as independent errors do."""
    between = max(base_runs) - min(base_runs) if base_runs else 0
    return math.hypot(base_ns, now_ns, between)


def _replacement(changes: Sequence[OpChange]) -> str:
    gone = [change.name for change in changes if change.now is None]
    new = [change.name for change in changes if change.base is None]
    place = f"{changes[0].phase} {changes[0].module}".strip()
    return f"{' + '.join(gone) or 'nothing'} -> {' + '.join(new) or 'nothing'}{f', {place}' if place else ''}"


# ---- Verdicts --------------------------------------------------------------------------------------------------------


def _judge(checked: CheckedQuantity, case: CaseComparison, family: int, criteria: Criteria) -> CheckedQuantity:
    if case.incomparable:
        return replace(checked, verdict=INCOMPARABLE)
    if checked.base_ns <= 0 and checked.kind != "replaced" and checked.change_ns <= criteria.min_share * case.base_ns:
        return replace(checked, verdict=WITHIN, within=checked.threshold)  # the profiler's cost left nothing to take shares of
    judged = _by_runs(checked, family) if len(checked.base_runs) >= RUNS_NEEDED else _by_threshold(checked)
    return _accept(judged, case, criteria)


def _by_runs(checked: CheckedQuantity, family: int) -> CheckedQuantity:
    if min(checked.base_runs) <= 0 or checked.now_ns <= 0:  # nothing that a logarithm could be taken of
        return _by_threshold(checked)
    checked = replace(checked, by_runs=True)
    low, high = prediction_interval(checked.base_runs, FALSE_ALARM / family)
    smallest = high / checked.base_ns - 1
    checked = replace(checked, smallest=smallest)
    if checked.change > checked.threshold:
        return replace(checked, verdict=REGRESSED if checked.now_ns > high else INCONCLUSIVE)
    if checked.change < -checked.threshold:
        return replace(checked, verdict=IMPROVED if checked.now_ns < low else INCONCLUSIVE)
    return replace(checked, verdict=WITHIN, within=max(checked.threshold, smallest))


def prediction_interval(values: Sequence[int], risk: float) -> tuple[float, float]:
    """Return the limits that one more value of the same log-normal population falls below, or above, with this risk.

    Args:
        values: at least two positive times.
        risk: one-sided, for each limit.
    """
    from scipy.special import stdtrit  # Student's quantile alone; scipy.stats takes a second to import

    logs = [math.log(value) for value in values]
    n = len(logs)
    reach = float(stdtrit(n - 1, 1 - risk)) * statistics.stdev(logs) * math.sqrt(1 + 1 / n)
    mean = statistics.fmean(logs)
    return _exp(mean - reach), _exp(mean + reach)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf  # near the largest float's logarithm


def _by_threshold(checked: CheckedQuantity) -> CheckedQuantity:
    spread = checked.spread_ns / checked.base_ns if checked.base_ns > 0 else 0.0
    if checked.change > checked.threshold:
        clear = checked.given or checked.change - checked.threshold > spread
        return replace(checked, verdict=REGRESSED if clear else SUSPECT)
    if checked.change < -checked.threshold:
        return replace(checked, verdict=IMPROVED if -checked.change - checked.threshold > spread else INCONCLUSIVE)
    return replace(checked, verdict=WITHIN, within=max(checked.threshold, spread))


# ---- Intended regressions --------------------------------------------------------------------------------------------


def _may_be_accepted(checked: CheckedQuantity) -> bool:
    """Whether an ``--accept`` may apply: a regression, or what only noise keeps from being one."""
    return checked.verdict == REGRESSED or (
        checked.verdict == INCONCLUSIVE and checked.given and checked.change > checked.threshold
    )


def _accept(checked: CheckedQuantity, case: CaseComparison, criteria: Criteria) -> CheckedQuantity:
    """Hold a regression to the largest limit that an ``--accept`` gives it."""
    matching = _matching(case, checked, criteria) if _may_be_accepted(checked) else []
    limits = [one.limit for one in matching if one.limit is not None]
    if not limits:
        return replace(checked, accept_unlimited=bool(matching))
    return replace(checked, accept_limit=max(limits), accepted=checked.change_ns / _accept_base(checked, case) <= max(limits))


def _accept_base(checked: CheckedQuantity, case: CaseComparison) -> int:
    """Return what the limit of an ``--accept`` is a share of: the base or, of what is new, the time of the call."""
    return checked.base_ns if checked.change <= LARGEST_LIMIT else max(case.base_ns, 1)


def acceptance_for(judgement: Judgement, judged: CaseJudgement, checked: CheckedQuantity) -> str:
    """Return the ``--accept`` value that accepts a regression as large as this one, and no other where names allow that."""
    label, short, node_id, _ = judged.case.now.names
    patterns = [f"{_as_pattern(name)}:{_as_pattern(checked.name)}" for name in (short, label, node_id)]
    alone = (p for p in patterns if sum(_means(p, case.case, other) for case, other in judgement.checked) == 1)
    percent = -(-100 * checked.change_ns // _accept_base(checked, judged.case))  # rounded up
    return f"{next(alone, patterns[-1])}:{percent}%"


def _as_pattern(name: str) -> str:
    """Return a pattern for a name that can be typed: ``*`` stands for what cannot be printed."""
    return "".join(sign if sign.isprintable() else "*" for sign in name)


def _matching(case: CaseComparison, checked: CheckedQuantity, criteria: Criteria) -> list[Acceptance]:
    return [one for one in criteria.accept if _means(one.pattern, case, checked)]


def _means(pattern: str, case: CaseComparison, checked: CheckedQuantity) -> bool:
    """Whether the pattern of an ``--accept`` means this."""
    names_of_checked = {checked.name}
    if checked.kind == OTHER:
        names_of_checked.add(OTHER)  # also of a module; one operation's name does not excuse those pooled with it
    else:
        names_of_checked.update(
            name for change in checked.members for name in (*operation_names(change), change.module) if name
        )
    literal = _only_stars(pattern)
    return any(fnmatchcase(f"{case_name}:{name}", literal) for case_name in case.now.names for name in names_of_checked)


def _only_stars(pattern: str) -> str:
    """Return a pattern in which ``*`` alone is more than itself: ids of tests have brackets."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


# ---- What could not be judged ----------------------------------------------------------------------------------------


def _problems(comparison: Comparison, criteria: Criteria, cases: Sequence[CaseJudgement]) -> Iterable[Problem]:
    if not comparison.now.cases:
        yield Problem(MISSING, "no benchmark ran that has an operation record", excused=False)
        return
    if not comparison.bases:
        yield Problem(MISSING, "no saved run to compare with; save one with: pytest bench --benchmark-autosave", excused=False)
        return
    if not cases:
        yield Problem(MISSING, "no case in common with the base; save a run of these cases first", excused=False)
    for base, _, fields in comparison.redefined:
        changed = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in fields.items())
        text = f"not the same case any more: {base.node_id} ({changed}); measure both sides alike"
        yield Problem(INCOMPARABLE, text, excused=criteria.allow_incomparable)
    redefined = {id(base) for base, _, _ in comparison.redefined}
    for run, case in comparison.only_base:
        if id(case) not in redefined:
            text = f"in the base and not run now: {case.node_id}, last saved {run.label}"
            yield Problem(MISSING, text, excused=criteria.allow_missing)
    yield from _incomparable(cases, criteria)
    yield from _missing_tables(cases, criteria)
    yield from _unmatched(cases, criteria)


def _incomparable(cases: Sequence[CaseJudgement], criteria: Criteria) -> Iterable[Problem]:
    """Yield a line per difference, not per case: a machine is another for all."""
    from mnistbench.saved_runs.compatibility import BLOCKING

    found: dict[str, tuple[object, object, int]] = {}
    for judged in cases:
        for name, (base, now) in judged.case.incomparable.items():
            found[name] = (base, now, found.get(name, (0, 0, 0))[2] + 1)
    for name, (base, now, count) in found.items():
        what = f"{count} case{'s' if count > 1 else ''}: {name.replace('_', ' ')} {units.listed(base)} -> {units.listed(now)}"
        yield Problem(INCOMPARABLE, f"{what}; {BLOCKING[name]}", excused=criteria.allow_incomparable)


def _missing_tables(cases: Sequence[CaseJudgement], criteria: Criteria) -> Iterable[Problem]:
    for judged in cases:
        case = judged.case
        if judged.operations or case.incomparable or not (criteria.op_fail or case.now.op_fail):
            continue
        both = (("the base", case.base), ("this run", case.now))
        lost = [name for name, side in both if case.clock == "device" and table_of(side, "device") is None]
        if lost:
            text = f"no device time in the operation table of {case.now.node_id} in {' and in '.join(lost)}"
            yield Problem(MISSING, f"{text}: the profiler recorded no kernel", excused=criteria.allow_missing)
            continue
        sides = [name for name, side in both if not side.tables]
        if case.now.tables_in and len(sides) == 2 and not case.now.op_fail:  # both, and nobody asked this test for one
            continue  # such a case never has a table of its own
        where = " and in ".join(sides) or "both by the same view"
        yield Problem(MISSING, f"no operation table of {case.now.node_id} in {where}", excused=criteria.allow_missing)


def _unmatched(cases: Sequence[CaseJudgement], criteria: Criteria) -> Iterable[Problem]:
    """Yield thresholds that hold nothing: a misspelt name must not pass."""
    compared = [judged for judged in cases if judged.operations]
    general = {limit.name for limit in criteria.op_fail if limit.name}
    for name in sorted(general):
        if compared and not any(names(name, change) for judged in compared for change in judged.case.operations):
            yield Problem(MISSING, f"--op-fail {name!r} is no operation or module of any case", excused=False)
    for judged in compared:
        for limit in map(Threshold.parse, judged.case.now.op_fail):
            if limit.name and not any(names(limit.name, change) for change in judged.case.operations):
                where = judged.case.now.node_id
                yield Problem(MISSING, f"opgate {limit.name!r} is no operation or module of {where}", excused=False)
    if criteria.op_fail and cases and not compared and not any(judged.case.incomparable for judged in cases):
        yield Problem(MISSING, "no case has operations to hold", excused=False)
