"""Effects of two stages -> verdicts: pure, seeded, free of torch. ``docs/gate.md`` explains it to users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from mnistbench.core import units
from mnistbench.gate.permutation import CONFIDENCE, LEAST_SPREAD, LEVEL, Array, directed_test, family_test, simultaneous_bounds
from mnistbench.gate.samples import CALL, MEAN, OPERATION, REPLACED, Effect

#: Fewest launches: 2^8 exchanges are the fewest that a level of 1 % can be read from, two-sided.
LEAST_LAUNCHES = 8

#: A control that moved by more than this, and surely, makes the verdict inconclusive.
CONTROL_BOUND = 0.01

#: A pass needs every mean bounded below this many times the threshold of a case: on a busy machine means have a spread that is
#: up to five times as large as that of medians, because every disturbed iteration counts.
MEAN_FACTOR = 5

#: Operations of this share of their case have to be bounded below their threshold for a pass. It is also how the cost of new
#: operations is judged: adding as much to the case as an operation of this share may grow.
LARGE_SHARE = 0.10

#: Logarithm beyond which a change is not told from infinity; near that of the largest float.
_LARGEST_LOG = 700.0

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Estimate:
    """What is known of one quantity: change of its time as a share (0.05 is 5 % slower), with simultaneous bounds."""

    effect: Effect
    change: float
    low: float
    high: float
    p: float  # adjusted over all that was tested together
    launches: int


# ---- The verdict -----------------------------------------------------------------------------------------------------

PASSED, REGRESSED, INCONCLUSIVE = "passed", "regressed", "inconclusive"
IMPROVED, UNCONFIRMED, CONTRADICTED, SMALL = "improved", "unconfirmed", "contradicted", "small"
UNDECIDED = "undecided"


class Reason(NamedTuple):
    """Why a gate could not judge."""

    kind: str
    text: str

    @property
    def is_excusable(self) -> bool:
        """Whether ``--inconclusive ok`` lets it pass: noise and a budget are the machine's, all else is not."""
        return self.kind in (NOISE, BUDGET)


NOISE, BUDGET = "noise", "budget"
#: The control differs; profiled and untraced iterations disagree; no usable times; a case that one side lacks; an --accept
#: without a limit; a crash or an interrupt.
MACHINE, CONTRADICTION, UNMEASURED, MISSING, ACCEPTANCE, BROKEN = (
    "machine", "contradiction", "unmeasured", "missing", "acceptance", "broken",
)  # fmt: skip


@dataclass(frozen=True)
class Thresholds:
    """The smallest changes that matter, as shares."""

    call: float = 0.02
    operation: float = 0.05

    def of(self, effect: Effect) -> float:
        """Return the smallest change of this quantity that matters; of new operations as a share of the case."""
        if effect.is_case:
            return self.call
        return self.operation * LARGE_SHARE if effect.kind == REPLACED else self.operation

    def to_exclude(self, effect: Effect) -> float:
        """Return what has to be excluded of this quantity before a gate passes."""
        return MEAN_FACTOR * self.call if effect.kind == MEAN else self.of(effect)


@dataclass(frozen=True)
class Finding:
    """A candidate with what became of it."""

    screened: Estimate  # when all were tested
    confirmed: Estimate | None  # in fresh launches; None where there were none
    # REGRESSED; IMPROVED; SMALL: sure, and surely below the threshold; CONTRADICTED: its whole case did not get slower;
    # UNCONFIRMED: not surely seen again; UNDECIDED: nor excluded by the fresh launches.
    verdict: str

    @property
    def best(self) -> Estimate:
        """The estimate to report: of the fresh launches, which did not choose it."""
        return self.confirmed or self.screened


@dataclass(frozen=True)
class Decision:
    """The verdict with all that it rests on."""

    outcome: str  # PASSED, REGRESSED or INCONCLUSIVE
    cases: tuple[Estimate, ...]  # medians and means
    operations: tuple[Estimate, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[Reason, ...]  # why it is inconclusive
    launches: int  # of the first stage
    fresh: int  # of the second
    unbounded: tuple[Estimate, ...] = ()  # operations that may be slower by their threshold or more, the largest share first

    @property
    def bound(self) -> float:
        """The X of "no regression of X % or more in the median": the largest bound, by any clock, of cases not regressed."""
        return self._bound(CALL)

    @property
    def bound_of_means(self) -> float:
        """The same of the means."""
        return self._bound(MEAN)

    def _bound(self, kind: str) -> float:
        regressed = {finding.screened.effect.case for finding in self.findings if _is_of_case(finding)}
        bounds = [case.high for case in self.cases if case.effect.kind == kind and case.effect.case not in regressed]
        return max(bounds, default=math.inf)


def candidates(first: Sequence[Effect], thresholds: Thresholds, seed: int) -> list[Estimate]:
    """Return what is surely and relevantly changed after the first stage: what fresh launches must confirm."""
    if not first or len(first[0].logs) < LEAST_LAUNCHES:
        return []
    return _flagged(_estimates([effect for effect in first if _usable(effect)], seed), thresholds)


def _flagged(estimates: Sequence[Estimate], thresholds: Thresholds) -> list[Estimate]:
    return [estimate for estimate in estimates if estimate.p <= LEVEL and _may_matter(estimate, thresholds)]


def _may_matter(estimate: Estimate, thresholds: Thresholds) -> bool:
    """Whether a change of the size that matters cannot be excluded.

    Not: whether the estimate is that large. Then a change of exactly that size would be missed every other time.
    """
    limit = thresholds.of(estimate.effect)
    return estimate.high >= limit if estimate.change > 0 else estimate.low <= -limit


def decide(
    first: Sequence[Effect],
    second: Sequence[Effect],
    controls: Sequence[Sequence[float]],
    thresholds: Thresholds,
    seed: int,
    accepts: Callable[[Finding], bool] = lambda _: False,
) -> Decision:
    """Return the verdict.

    Args:
        first: effects of the first stage.
        second: effects of the fresh launches; none where there were none.
        controls: per stage, the control's difference in each launch.
        thresholds: the smallest changes that matter.
        seed: of everything random.
        accepts: whether a regression is intended. Where it is one of an operation, its case is still to be bounded.
    """
    launches = len(first[0].logs) if first else 0
    fresh = len(second[0].logs) if second else 0
    if launches < LEAST_LAUNCHES:
        reason = Reason(BUDGET, f"{launches} launches are too few: the test needs at least {LEAST_LAUNCHES}")
        return Decision(INCONCLUSIVE, (), (), (), (reason,), launches, fresh)
    estimates = _estimates([effect for effect in first if _usable(effect)], seed)
    by_key = {effect.key: effect for effect in second if _usable(effect)}
    pooled = _with_fresh(estimates, by_key, seed)
    cases = tuple(estimate for estimate in pooled if estimate.effect.is_case)
    operations = tuple(estimate for estimate in pooled if not estimate.effect.is_case)
    findings = _findings(_flagged(estimates, thresholds), by_key, cases, operations, thresholds, seed)
    unbounded = _unbounded(operations, findings, thresholds)
    reasons = [
        *_of_controls(controls, seed),
        *_of_unusable(first),
        *_of_findings(findings, fresh, thresholds),
        *_of_bounds(cases, thresholds, [f for f in findings if _is_of_case(f) or (f.verdict == REGRESSED and not accepts(f))]),
        *_of_unbounded(unbounded, thresholds),
    ]
    regressed = any(finding.verdict == REGRESSED for finding in findings)
    moved = any(reason.kind == MACHINE for reason in reasons)
    outcome = REGRESSED if regressed and not moved else INCONCLUSIVE if reasons else PASSED
    return Decision(outcome, cases, operations, tuple(findings), tuple(reasons), launches, fresh, tuple(unbounded))


def _is_of_case(finding: Finding) -> bool:
    """Whether the time of a whole case regressed."""
    return finding.verdict == REGRESSED and finding.screened.effect.is_case


def _unbounded(operations: Iterable[Estimate], findings: Sequence[Finding], thresholds: Thresholds) -> list[Estimate]:
    """Return operations that may be slower by their threshold or more, and of which nothing else is reported."""
    reported = {finding.screened.effect.key for finding in findings if finding.verdict in (REGRESSED, UNDECIDED, CONTRADICTED)}
    found = [one for one in operations if one.high >= thresholds.of(one.effect) and one.effect.key not in reported]
    return sorted(found, key=lambda one: -one.effect.share)


def _usable(effect: Effect) -> bool:
    return all(map(math.isfinite, effect.logs))


def _estimates(effects: Sequence[Effect], seed: int) -> list[Estimate]:
    """Test all together; bound each family by itself."""
    if not effects:
        return []
    p = family_test(_matrix(effects), _kinds(effects), seed)
    found = dict(zip((effect.key for effect in effects), p, strict=True))
    return [
        replace(estimate, p=float(found[estimate.effect.key]))
        for family in _families(effects, lambda effect: effect)
        for estimate in _bounded(family, seed, CONFIDENCE)
    ]


def _families(items: Sequence[_Item], effect_of: Callable[[_Item], Effect]) -> list[list[_Item]]:
    """Return cases, large operations and small operations apart: the bounds of each family hold together.

    Large operations vary less and matter more. Together with dozens of small ones their bounds would be twice as wide.
    """
    families: tuple[list[_Item], list[_Item], list[_Item]] = ([], [], [])
    for item in items:
        effect = effect_of(item)
        families[0 if effect.is_case else 1 if effect.share >= LARGE_SHARE else 2].append(item)
    return list(families)


def _bounded(effects: Sequence[Effect], seed: int, confidence: float) -> list[Estimate]:
    if not effects:
        return []
    logs = _matrix(effects)
    low, high = simultaneous_bounds(logs, seed, confidence, _kinds(effects))
    means = logs.mean(axis=1)
    return [
        Estimate(effect, _share(mean), _share(least), _share(most), 1.0, len(effect.logs))
        for effect, mean, least, most in zip(effects, means, low, high, strict=True)
    ]


def _share(log: float) -> float:
    """Return the change that a logarithm means; infinite where it is too large for a float."""
    return math.expm1(log) if log < _LARGEST_LOG else math.inf


def _matrix(effects: Sequence[Effect]) -> Array:
    return np.array([effect.logs for effect in effects], dtype=np.float64)


def _kinds(effects: Sequence[Effect]) -> list[str]:
    """Return what shares an s0: costs of new operations are shares of a case, and so much smaller than other changes."""
    return [effect.kind if effect.is_case or effect.kind == REPLACED else "operation" for effect in effects]


def _with_fresh(estimates: Sequence[Estimate], second: dict[tuple[str, str, str], Effect], seed: int) -> list[Estimate]:
    """Take the launches of both stages together for the bounds of what was measured again.

    The two groups share the risk of a wrong bound.
    """
    if not second:
        return list(estimates)
    risk = (1 - CONFIDENCE) / 2
    found: dict[tuple[str, str, str], Estimate] = {}
    for family in _families(estimates, lambda estimate: estimate.effect):
        once = [estimate.effect for estimate in family if estimate.effect.key not in second]
        again = [
            replace(estimate.effect, logs=estimate.effect.logs + second[estimate.effect.key].logs)
            for estimate in family
            if estimate.effect.key in second
        ]
        for group in (once, again):
            found |= {estimate.effect.key: estimate for estimate in _bounded(group, seed, 1 - risk)}
    return [replace(found[estimate.effect.key], p=estimate.p) for estimate in estimates]


def _findings(
    screened: Sequence[Estimate],
    second: dict[tuple[str, str, str], Effect],
    cases: Sequence[Estimate],
    operations: Sequence[Estimate],
    thresholds: Thresholds,
    seed: int,
) -> list[Finding]:
    again = [estimate for estimate in screened if estimate.effect.key in second]
    confirmed: dict[tuple[str, str, str], Estimate] = {}
    if again and len(second[again[0].effect.key].logs) >= LEAST_LAUNCHES:
        fresh = [second[estimate.effect.key] for estimate in again]
        signs = np.array([math.copysign(1, estimate.change) for estimate in again])
        p = directed_test(_matrix(fresh), _kinds(fresh), signs, seed)
        confirmed = {
            estimate.effect.key: replace(estimate, p=float(value))
            for estimate, value in zip(_bounded(fresh, seed, CONFIDENCE), p, strict=True)
        }
    found = []
    for estimate in screened:
        fresh_estimate = confirmed.get(estimate.effect.key)
        verdict = UNCONFIRMED
        if fresh_estimate and fresh_estimate.p <= LEVEL and fresh_estimate.change * estimate.change > 0:
            verdict = REGRESSED if estimate.change > 0 else IMPROVED
            if not _may_matter(fresh_estimate, thresholds):
                verdict = SMALL
            if verdict == REGRESSED and not estimate.effect.is_case:
                verdict = CONTRADICTED if _contradicted(fresh_estimate, cases, operations) else verdict
        elif fresh_estimate and estimate.change > 0 and not estimate.effect.is_case:  # a case's bound is a reason by itself
            verdict = UNDECIDED if fresh_estimate.high >= thresholds.of(estimate.effect) else UNCONFIRMED
        found.append(Finding(estimate, fresh_estimate, verdict))
    return sorted(found, key=lambda finding: -abs(finding.best.change) * finding.best.effect.weight)


def _contradicted(operation: Estimate, cases: Sequence[Estimate], operations: Sequence[Estimate]) -> bool:
    """Whether what the operation added, at the least, is more than its whole case can have got slower.

    What other operations of the case gave back, at the most, is allowed for.
    """
    case = operation.effect.case
    added = operation.low * operation.effect.weight
    given_back = sum(
        -other.low * other.effect.weight
        for other in operations
        if other.effect.case == case and other.effect.key != operation.effect.key and other.p <= LEVEL and other.change < 0
    )
    bounds = [one.high for one in cases if one.effect.case == case and one.effect.kind == CALL]
    return bool(bounds) and added - given_back > max(bounds)


# ---- Why it is inconclusive ------------------------------------------------------------------------------------------


def _of_controls(controls: Sequence[Sequence[float]], seed: int) -> Iterable[Reason]:
    for stage in controls:
        if not all(map(math.isfinite, stage)):
            text = "the control has no usable time, so a change of the machine would not be noticed; measure again"
            yield Reason(UNMEASURED, text)
            continue
        if len(stage) < LEAST_LAUNCHES:
            continue
        logs = np.array([stage], dtype=np.float64)
        change = _share(logs.mean())
        if abs(change) > CONTROL_BOUND and family_test(logs, [""], seed)[0] <= LEVEL:
            yield Reason(
                MACHINE,
                "the machine moved, not only the code: the control, which is the same on both sides, differs by "
                f"{units.percent(change, signed=True)}; measure again when nothing else runs",
            )


def _of_unusable(effects: Sequence[Effect]) -> Iterable[Reason]:
    for effect in effects:
        if not _usable(effect):
            what = f"{effect.case}: too few iterations have a usable time of {effect.title}"
            yield Reason(UNMEASURED, f"{what} (zero, or on one side only); measure again, or a longer case")


def _of_findings(findings: Sequence[Finding], fresh: int, thresholds: Thresholds) -> Iterable[Reason]:
    for finding in findings:
        if finding.screened.change < 0:
            continue
        name = f"{finding.screened.effect.case}: {finding.screened.effect.title}"
        change = units.percent(finding.best.change, signed=True)
        if finding.verdict == UNDECIDED:
            limit, up_to = (units.percent(thresholds.of(finding.screened.effect)), units.percent_up(finding.best.high))
            yield Reason(
                NOISE,
                f"{name} was flagged, and {fresh} fresh launches neither confirm nor exclude {limit} (up to {up_to}); "
                "measure again",
            )
        elif finding.verdict == CONTRADICTED:
            text = f"{name} differs by {change}, but its case's untraced time does not; look at it by itself"
            yield Reason(CONTRADICTION, text)
        elif finding.verdict == UNCONFIRMED and finding.confirmed is None and fresh >= LEAST_LAUNCHES:
            yield Reason(UNMEASURED, f"{name} differs by {change}, and fresh launches have no usable time of it; measure again")
        elif finding.verdict == UNCONFIRMED and finding.confirmed is None:
            text = (
                f"{name} differs by {change}, and {fresh} fresh launches are too few to confirm it; give it a larger --budget"
            )
            yield Reason(BUDGET, text)


def _of_bounds(cases: Sequence[Estimate], thresholds: Thresholds, failing: Sequence[Finding]) -> Iterable[Reason]:
    """Yield a reason for each case whose median or mean may have grown too much: the clock that excludes least."""
    settled = {finding.screened.effect.case for finding in failing}
    worst: dict[tuple[str, str], Estimate] = {}
    for one in cases:
        key = (one.effect.case, one.effect.kind)
        if one.high > thresholds.to_exclude(one.effect) and one.effect.case not in settled:
            worst[key] = max(worst.get(key, one), one, key=lambda estimate: estimate.high)
    for one in worst.values():
        up_to = f"of up to {units.percent_up(one.high)}"
        left = f"{one.effect.case}: a slowdown {up_to} of its {one.effect.title} cannot be ruled out"
        limit = thresholds.to_exclude(one.effect)
        if one.change >= limit:
            yield Reason(NOISE, f"{left}, the estimate being {units.percent(one.change, signed=True)}; measure again")
            continue
        needed = _launches_needed(one, limit)
        yield Reason(NOISE, f"{left}; {f'about {needed} launches would settle it' if needed <= 1_000 else 'too noisy'}")


def _launches_needed(one: Estimate, limit: float) -> float:
    """Return how many launches would bring the bound below a limit above the estimate; a bound falls with their root."""
    estimate = max(one.change, -1 + LEAST_SPREAD)
    reach, room = (math.log1p(value) - math.log1p(estimate) for value in (one.high, limit))
    needed = one.launches * (reach / room) ** 2
    return math.ceil(needed) if math.isfinite(needed) else math.inf


def _of_unbounded(unbounded: Sequence[Estimate], thresholds: Thresholds) -> Iterable[Reason]:
    """Yield a reason for each large operation that is not bounded; others and groups are in the closing sentence."""
    for one in unbounded:
        if one.effect.share >= LARGE_SHARE and one.effect.kind in (OPERATION, REPLACED):
            limit, share = units.percent(thresholds.of(one.effect)), units.percent(one.effect.share)
            slower = f"{one.effect.title} ({share} of its case) may be up to {units.percent_up(one.high)} slower"
            yield Reason(NOISE, f"{one.effect.case}: {slower}, and {limit} matters; more --launches would narrow it")
