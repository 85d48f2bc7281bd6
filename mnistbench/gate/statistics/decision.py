"""Effects of two stages -> verdicts. Pure and seeded; does not import torch.

See ``docs/gate-statistics.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mnistbench.core import units
from mnistbench.gate.options import LAUNCHES, LEAST_LAUNCHES, Thresholds
from mnistbench.gate.statistics.permutation import (
    CONFIDENCE,
    LEAST_SPREAD,
    LEVEL,
    Array,
    directed_test,
    simultaneous_bounds,
)
from mnistbench.gate.statistics.quantities import Quantity
from mnistbench.gate.words import ADDED, BUSY, ITERATION, MEAN, OPERATION, REPLACED
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.ratios import change_of
from mnistbench.judging.verdicts import (
    BUDGET,
    CONTRADICTED,
    CONTRADICTION,
    IMPROVED,
    INCONCLUSIVE,
    NOISE,
    PASSED,
    REGRESSED,
    UNCONFIRMED,
    UNMEASURED,
    WITHIN,
    Reason,
)

#: Largest p-value of the first stage for a slowdown.
SCREENING = 0.05
#: Largest p-value of the fresh launches for the confirmation of a slowdown.
CONFIRMING = 1 / 16

#: Numbers of fresh launches at which they are judged; :func:`looks` has those of a shard.
LOOKS = (4, 8, 12)

#: Largest product of both p-values for a regression. If nothing is slower, two independent
#: p-values, the first at most a and the second at most b, have a product of at most c with a
#: probability of at most c (1 + ln(a b / c)). That is 3.3e-4 here, and the sum over the looks is
#: 1.0e-3. The p-values are adjusted over all quantities, so this bounds the probability of any
#: false alarm. Four fresh launches can reach the product: 2^-10 of the first stage by 2^-4.
PRODUCT = 6.9e-5

#: Fewest fresh launches that can be judged.
LEAST_FRESH = min(LOOKS)
#: Fewest fresh launches that can confirm an improvement, whose p-value has to be at most LEVEL
#: there.
LEAST_FRESH_OF_IMPROVEMENT = 8


@dataclass(frozen=True)
class Estimate:
    """Change of one quantity as a share (0.05 is 5 % slower), with simultaneous bounds."""

    quantity: Quantity
    change: float
    low: float
    high: float
    p: float  # adjusted over all quantities that were tested together
    launches: int


def as_shown(estimate: Estimate) -> Estimate:
    """Return an estimate for a reader: with a base and a head that give its change.

    The change is that of pairs of iterations, which is tested. The medians of each side over all
    launches give another one if the speed of the machine changes between launches: 38.2 and 40.7 us
    stood beside -12.6 %. So the base is its median (of what occurs once its mean), and the head is
    what the change makes of it.

    The change of what occurs once, which is tested with 5 ms added to both sides, becomes a share
    of the base alone; it is infinite if the base is 0. If the change is a share of the case
    (ADDED), it gives the difference of both times.
    """
    quantity = estimate.quantity
    change = estimate.change
    if not -1 < change < math.inf:
        return estimate
    if quantity.kind == ADDED:
        case_ns = (
            max(quantity.base_ns, quantity.head_ns) / quantity.share if quantity.share else 0.0
        )
        base, head = _with_difference(quantity.base_ns, quantity.head_ns, change * case_ns)
        return replace(estimate, quantity=replace(quantity, base_ns=base, head_ns=head))
    added = quantity.added
    base = quantity.base_ns
    head = (quantity.base_ns + added) * (1 + change) - added
    # The head is known, and the base is what the change was made of.
    if head < 0 or base + added == 0:
        head = max(0.0, quantity.head_ns) if base + added == 0 else 0.0
        base = (head + added) / (1 + change) - added

    def as_share_of_base(share: float) -> float:
        if base == 0:
            return math.inf if share > 0 else 0.0
        return max(-1.0, share * (base + added) / base)

    shown = replace(estimate, quantity=replace(quantity, base_ns=base, head_ns=head))
    if not added:
        return shown
    return replace(
        shown,
        change=as_share_of_base(change),
        low=as_share_of_base(estimate.low),
        high=as_share_of_base(estimate.high),
    )


def _with_difference(base: float, head: float, difference: float) -> tuple[float, float]:
    """Return times of both sides with this difference.

    Those of the base if it fits, and 0 on a side without the operation.
    """
    if head == 0 or base + difference < 0:
        return max(0.0, -difference), max(0.0, difference)
    return base, base + difference


# ---- The verdict ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A candidate and its verdict."""

    screened: Estimate  # of the first stage
    confirmed: Estimate | None  # of the fresh launches; None if there were none
    # REGRESSED; IMPROVED; WITHIN: significant, but bounded below the threshold; CONTRADICTED: its
    # whole case did not get slower; UNCONFIRMED: not significant in fresh launches; INCONCLUSIVE:
    # not significant there, and not bounded below the threshold.
    verdict: str
    # The slowdown that the confirming test shows: lower bound of the fresh launches at its level.
    least: float = 0.0

    @property
    def best(self) -> Estimate:
        """The estimate to report: that of the fresh launches, which has no selection bias."""
        return self.confirmed or self.screened


@dataclass(frozen=True)
class Decision:
    """The outcome and its basis."""

    outcome: str  # PASSED, REGRESSED or INCONCLUSIVE
    cases: tuple[Estimate, ...]  # medians and means
    operations: tuple[Estimate, ...]
    once: tuple[Estimate, ...]  # costs that occur once, and memory
    findings: tuple[Finding, ...]
    reasons: tuple[Reason, ...]  # why it is inconclusive
    launches: int  # of the first stage; the fewest of all shards
    fresh: int  # of the second; the most of all shards
    # Operations whose upper bound reaches their threshold, by share, the largest first.
    unbounded: tuple[Estimate, ...] = ()
    shards: int = 1  # number of machines that measure the gate

    @property
    def bound(self) -> float:
        """Largest upper bound of the medians of all clocks and cases, without regressed cases.

        Infinite if there is none.
        """
        return self._bound(ITERATION)

    @property
    def bound_of_means(self) -> float:
        """Largest upper bound of the means, as ``bound``."""
        return self._bound(MEAN)

    def _bound(self, kind: str) -> float:
        regressed = {
            finding.screened.quantity.case
            for finding in self.findings
            if _is_case_regression(finding)
        }
        bounds = [
            case.high
            for case in self.cases
            if case.quantity.kind == kind and case.quantity.case not in regressed
        ]
        return max(bounds, default=math.inf)


def decision_as_shown(decision: Decision) -> Decision:
    """Return a decision for a report: each of its estimates as :func:`as_shown` returns it."""

    def finding_as_shown(finding: Finding) -> Finding:
        return replace(
            finding,
            screened=as_shown(finding.screened),
            confirmed=as_shown(finding.confirmed) if finding.confirmed else None,
            least=as_shown(replace(finding.best, low=finding.least)).low,
        )

    return replace(
        decision,
        cases=tuple(map(as_shown, decision.cases)),
        operations=tuple(map(as_shown, decision.operations)),
        once=tuple(map(as_shown, decision.once)),
        findings=tuple(map(finding_as_shown, decision.findings)),
        unbounded=tuple(map(as_shown, decision.unbounded)),
    )


def candidates(
    first: Sequence[Quantity], thresholds: Thresholds, seed: int, shards: int = 1
) -> list[Estimate]:
    """Return the significant and relevant changes of the first stage.

    Fresh launches have to confirm them.
    """
    if not first or len(first[0].logs) < LEAST_LAUNCHES:
        return []
    return _flagged(_estimates(tuple(filter(_usable, first)), seed, shards), thresholds)


def _flagged(estimates: Sequence[Estimate], thresholds: Thresholds) -> list[Estimate]:
    return [
        estimate
        for estimate in estimates
        if estimate.p <= (SCREENING if estimate.change > 0 else LEVEL)
        and _may_matter(estimate, thresholds)
    ]


def _may_matter(estimate: Estimate, thresholds: Thresholds) -> bool:
    """Whether a change of the threshold's size cannot be ruled out.

    Comparing the estimate with the threshold would miss every other change of exactly that size.
    """
    limit = thresholds.of(estimate.quantity)
    return estimate.high >= limit if estimate.change > 0 else estimate.low <= -limit


def decide(
    first: Sequence[Quantity],
    second: Sequence[Quantity],
    thresholds: Thresholds,
    seed: int,
    accepts: Callable[[Finding], bool] = lambda _: False,
    shards: int = 1,
) -> Decision:
    """Return the decision about a gate, or about the part of one machine.

    Args:
        first: quantities of the first stage.
        second: quantities of the fresh launches; empty if there were none.
        thresholds: the smallest changes that matter.
        seed: of the permutation tests.
        accepts: whether a regression is intended. If an accepted regression is one of an operation,
            the bound of its case is still checked.
        shards: number of machines that measure the gate. Together they have the level and the
            confidence of a single one.
    """
    launches = len(first[0].logs) if first else 0
    fresh = len(second[0].logs) if second else 0
    if launches < LEAST_LAUNCHES:
        too_few = units.counted(launches, "launch is", "launches are")
        reason = Reason(BUDGET, f"{too_few} too few: the test needs at least {LEAST_LAUNCHES}")
        return Decision(INCONCLUSIVE, (), (), (), (), (reason,), launches, fresh, (), shards)
    estimates = _estimates(tuple(filter(_usable, first)), seed, shards)
    by_key = {quantity.key: quantity for quantity in second if _usable(quantity)}
    pooled = _with_fresh(estimates, by_key, seed, shards)
    findings = _findings(_flagged(estimates, thresholds), by_key, pooled, thresholds, seed, shards)
    cases = tuple(estimate for estimate in pooled if estimate.quantity.is_case)
    operations = tuple(estimate for estimate in pooled if estimate.quantity.is_operation)
    unbounded = _unbounded(operations, findings, thresholds)
    regressions = [finding for finding in findings if finding.verdict == REGRESSED]
    reasons = (
        *_unusable_reasons(first),
        *_finding_reasons(findings, fresh, thresholds),
        *_bound_reasons(cases, thresholds, regressions, accepts),
        *_unbounded_reasons(unbounded, thresholds),
    )
    return Decision(
        REGRESSED if regressions else INCONCLUSIVE if reasons or not pooled else PASSED,
        cases=cases,
        operations=operations,
        once=tuple(estimate for estimate in pooled if estimate.quantity.is_once),
        findings=tuple(findings),
        reasons=reasons,
        launches=launches,
        fresh=fresh,
        unbounded=tuple(unbounded),
        shards=shards,
    )


def united(parts: Sequence[Decision]) -> Decision:
    """Return the decision about a gate from those about its shards.

    Each shard has its share of the level and of the confidence, so its findings and its bounds are
    those of the gate.
    """
    outcomes = {part.outcome for part in parts}
    unbounded = [estimate for part in parts for estimate in part.unbounded]
    findings = [finding for part in parts for finding in part.findings]
    return Decision(
        REGRESSED if REGRESSED in outcomes else PASSED if outcomes == {PASSED} else INCONCLUSIVE,
        cases=tuple(estimate for part in parts for estimate in part.cases),
        operations=tuple(estimate for part in parts for estimate in part.operations),
        once=tuple(estimate for part in parts for estimate in part.once),
        findings=tuple(sorted(findings, key=_by_size)),
        reasons=tuple(reason for part in parts for reason in part.reasons),
        launches=min((part.launches for part in parts), default=0),
        fresh=max((part.fresh for part in parts), default=0),
        unbounded=tuple(sorted(unbounded, key=lambda estimate: -estimate.quantity.share)),
        shards=max((part.shards for part in parts), default=1),
    )


def is_settled(decision: Decision, thresholds: Thresholds) -> bool:
    """Whether the fresh launches are enough, so that no more of them are needed.

    The flagged quantities of each case are three groups: its time, that of its operations, and what
    occurs once. At the first look a slowdown of each group is confirmed, because an operation
    explains why a case is slower, or all of them are ruled out. Later looks settle a gate that has
    regressed, or in which no slowdown is open.
    """
    ruled_out = {
        finding.screened.quantity.key: _is_ruled_out(finding, decision, thresholds)
        for finding in decision.findings
    }
    if decision.fresh < max(LEAST_FRESH_OF_IMPROVEMENT, looks(decision.shards)[0] + 1):
        groups: dict[tuple[str, bool, bool], list[Finding]] = {}
        for finding in decision.findings:
            of = finding.screened.quantity
            groups.setdefault((of.case, of.is_case, of.is_once), []).append(finding)
        return all(
            any(finding.verdict == REGRESSED for finding in group)
            or all(ruled_out[finding.screened.quantity.key] for finding in group)
            for group in groups.values()
        )
    return decision.outcome == REGRESSED or not any(
        finding.verdict == INCONCLUSIVE
        or (
            _is_unconfirmed(finding)
            and finding.screened.quantity.is_case
            and not ruled_out[finding.screened.quantity.key]
        )
        for finding in decision.findings
    )


def _is_ruled_out(finding: Finding, decision: Decision, thresholds: Thresholds) -> bool:
    """Whether both stages rule out that a flagged slowdown has the size of its threshold."""
    key = finding.screened.quantity.key
    [high] = [
        estimate.high
        for estimate in (*decision.cases, *decision.operations, *decision.once)
        if estimate.quantity.key == key
    ]
    return _is_unconfirmed(finding) and high <= thresholds.to_rule_out(finding.screened.quantity)


def _is_unconfirmed(finding: Finding) -> bool:
    return finding.verdict == UNCONFIRMED and finding.screened.change > 0


def _is_case_regression(finding: Finding) -> bool:
    """Whether it is a regression of the time of a whole case."""
    return finding.verdict == REGRESSED and finding.screened.quantity.is_case


def _unbounded(
    operations: Iterable[Estimate], findings: Sequence[Finding], thresholds: Thresholds
) -> list[Estimate]:
    """Return operations whose upper bound reaches their threshold without a finding."""
    reported = {
        finding.screened.quantity.key
        for finding in findings
        if finding.verdict in (REGRESSED, INCONCLUSIVE, CONTRADICTED)
    }
    unbounded = [
        estimate
        for estimate in operations
        if estimate.high >= thresholds.of(estimate.quantity)
        and estimate.quantity.key not in reported
    ]
    return sorted(unbounded, key=lambda estimate: -estimate.quantity.share)


def _usable(quantity: Quantity) -> bool:
    return all(map(math.isfinite, quantity.logs))


def confidence_of(shards: int) -> float:
    """Return the confidence of the bounds of one of several shards.

    Those of all shards then hold together with CONFIDENCE, because machines are independent
    (Sidak, Rectangular confidence regions, J. Am. Stat. Assoc. 62 (1967) 626).
    """
    return float(CONFIDENCE ** (1 / shards))


# Those of the first stage are needed again at each look at the fresh launches.
@functools.lru_cache(maxsize=1)
def _estimates(quantities: tuple[Quantity, ...], seed: int, shards: int) -> Sequence[Estimate]:
    """Return estimates.

    P-values adjusted over all quantities together, bounds within each family.
    """
    if not quantities:
        return []
    logs = _matrix(quantities)
    slower, faster = (
        directed_test(logs, _kinds(quantities), np.full(len(quantities), sign), seed)
        for sign in (1.0, -1.0)
    )
    smaller = np.minimum(slower, faster)  # the direction of the change has the smaller one
    p = dict(zip((quantity.key for quantity in quantities), smaller, strict=True))
    return [
        replace(estimate, p=float(p[estimate.quantity.key]))
        for family in _families(quantities)
        for estimate in _bounded(family, seed, confidence_of(shards))
    ]


def _families(quantities: Iterable[Quantity]) -> list[list[Quantity]]:
    """Return cases, large operations, small ones, and what occurs once.

    Bounds are simultaneous within each of these families.

    Large operations vary less and matter more. In one family with dozens of small ones their bounds
    would be twice as wide.
    """
    cases: list[Quantity] = []
    large: list[Quantity] = []
    small: list[Quantity] = []
    once: list[Quantity] = []
    for quantity in quantities:
        if quantity.is_case:
            cases.append(quantity)
        elif quantity.is_once:
            once.append(quantity)
        else:
            (small if quantity.share < LARGE_SHARE else large).append(quantity)
    return [cases, large, small, once]


def _bounded(quantities: Sequence[Quantity], seed: int, confidence: float) -> list[Estimate]:
    """Return estimates with simultaneous bounds; quantities of one kind share an s0."""
    if not quantities:
        return []
    logs = _matrix(quantities)
    # The result promises the bounds of cases. Those of operations would be wider, and leave twice
    # as many gates undecided.
    skewed = all(quantity.is_case for quantity in quantities)
    low, high = simultaneous_bounds(logs, seed, confidence, _kinds(quantities), skewed=skewed)
    means = logs.mean(axis=1)
    return [
        Estimate(
            quantity, change_of(mean), change_of(least), change_of(most), 1.0, len(quantity.logs)
        )
        for quantity, mean, least, most in zip(quantities, means, low, high, strict=True)
    ]


def _matrix(quantities: Sequence[Quantity]) -> Array:
    return np.array([quantity.logs for quantity in quantities], dtype=np.float64)


def _kinds(quantities: Sequence[Quantity]) -> list[str]:
    """Return the kinds that share an s0.

    Changes by new operations are shares of a case, so much smaller than others.
    """
    return [
        "operation" if quantity.is_operation and quantity.kind != ADDED else quantity.kind
        for quantity in quantities
    ]


def _with_fresh(
    estimates: Sequence[Estimate],
    second: dict[tuple[str, str, str], Quantity],
    seed: int,
    shards: int,
) -> list[Estimate]:
    """Return estimates of quantities that were measured again.

    Their bounds are from the launches of both stages.

    Effects that were measured once and those measured again are two groups; each takes half of the
    risk of a wrong bound.
    """
    if not second:
        return list(estimates)
    risk = (1 - confidence_of(shards)) / 2
    bounded: dict[tuple[str, str, str], Estimate] = {}
    for family in _families(estimate.quantity for estimate in estimates):
        once = [quantity for quantity in family if quantity.key not in second]
        again = [
            replace(quantity, logs=quantity.logs + second[quantity.key].logs)
            for quantity in family
            if quantity.key in second
        ]
        for group in (once, again):
            bounded |= {
                estimate.quantity.key: estimate for estimate in _bounded(group, seed, 1 - risk)
            }
    return [replace(bounded[estimate.quantity.key], p=estimate.p) for estimate in estimates]


def _findings(
    screened: Sequence[Estimate],
    second: dict[tuple[str, str, str], Quantity],
    pooled: Sequence[Estimate],
    thresholds: Thresholds,
    seed: int,
    shards: int,
) -> list[Finding]:
    measured_again = [estimate for estimate in screened if estimate.quantity.key in second]
    confirmed = _confirmed(measured_again, second, seed, shards)
    shown = _bounded([second[key] for key in confirmed], seed, 1 - 2 * CONFIRMING)
    least = {estimate.quantity.key: max(0.0, estimate.low) for estimate in shown}
    findings = []
    for estimate in screened:
        key = estimate.quantity.key
        verdict = _verdict(estimate, confirmed.get(key), pooled, thresholds, shards)
        findings.append(Finding(estimate, confirmed.get(key), verdict, least.get(key, 0.0)))
    return sorted(findings, key=_by_size)


def _by_size(finding: Finding) -> float:
    return -abs(finding.best.change) * finding.best.quantity.weight


def _confirmed(
    screened: Sequence[Estimate],
    second: dict[tuple[str, str, str], Quantity],
    seed: int,
    shards: int,
) -> dict[tuple[str, str, str], Estimate]:
    """Return estimates of the fresh launches by key.

    With one-sided p-values in the direction of the first stage.
    """
    fresh = [second[estimate.quantity.key] for estimate in screened]
    if not fresh or len(fresh[0].logs) < LEAST_FRESH:
        return {}
    signs = np.array([math.copysign(1, estimate.change) for estimate in screened])
    p = directed_test(_matrix(fresh), _kinds(fresh), signs, seed, many=True)
    estimates = _bounded(fresh, seed, confidence_of(shards))
    return {
        estimate.quantity.key: replace(estimate, p=float(value))
        for estimate, value in zip(estimates, p, strict=True)
    }


def _verdict(
    screened: Estimate,
    fresh: Estimate | None,
    pooled: Sequence[Estimate],
    thresholds: Thresholds,
    shards: int,
) -> str:
    if fresh is None:
        return UNCONFIRMED
    if not _is_confirmed(screened, fresh, shards):
        open_slowdown = (
            screened.change > 0
            and screened.p <= LEVEL
            and fresh.high >= thresholds.of(screened.quantity)
        )
        # The bound of a median is a reason by itself. That of a mean is not: it may be MEAN_FACTOR
        # times as large.
        return (
            INCONCLUSIVE if open_slowdown and screened.quantity.kind != ITERATION else UNCONFIRMED
        )
    if not _may_matter(fresh, thresholds):
        return WITHIN
    if screened.change < 0:
        return IMPROVED
    return (
        CONTRADICTED
        if screened.quantity.is_operation and _contradicted(fresh, pooled)
        else REGRESSED
    )


def _is_confirmed(screened: Estimate, fresh: Estimate, shards: int = 1) -> bool:
    """Whether the fresh launches show a change in the same direction."""
    if fresh.change * screened.change <= 0:
        return False
    if screened.change < 0:
        return fresh.p <= LEVEL
    return fresh.p <= CONFIRMING and screened.p * fresh.p <= product(shards)


@functools.cache
def product(shards: int) -> float:
    """Return the largest product of both p-values for a regression in one of the shards.

    It is PRODUCT for a single one.

    The probability of a false alarm, c (1 + ln(a b / c)) at a look, is divided by the number of
    shards; c follows by iteration.
    """
    largest = PRODUCT
    of_gate = PRODUCT * (1 + math.log(SCREENING * CONFIRMING / PRODUCT))
    for _ in range(100 if shards > 1 else 0):
        largest = of_gate / shards / (1 + math.log(SCREENING * CONFIRMING / largest))
    return largest


def looks(shards: int) -> tuple[int, ...]:
    """Return the numbers of fresh launches at which a shard judges them.

    The first can confirm a slowdown after LAUNCHES.
    """
    later = next(
        more
        for more in range(0, 99, LOOKS[0])
        if 2.0 ** -(LAUNCHES + LOOKS[0] + more) <= product(shards)
    )
    return tuple(look + later for look in LOOKS)


def least_fresh(launches: int, shards: int = 1) -> int:
    """Return the first look that can confirm a slowdown.

    After this number of launches of the first stage.

    The smallest p-value of a stage of n launches is 1 / 2^n.
    """
    return next(look for look in looks(shards) if 2.0 ** -(launches + look) <= product(shards))


def _contradicted(operation: Estimate, pooled: Sequence[Estimate]) -> bool:
    """Whether an operation added more time than the change of its case can be.

    Its lower bound exceeds the upper bound of the case.

    The largest time that other operations of the case may have saved is subtracted. On an
    accelerator, operations are parts of its busy time: in a call that is limited by launches, a
    slower kernel fills a gap and changes no other clock.
    """
    case = operation.quantity.case
    added = operation.low * operation.quantity.weight
    saved = sum(
        -other.low * other.quantity.weight
        for other in pooled
        if other.quantity.is_operation
        and other.quantity.case == case
        and other.quantity.key != operation.quantity.key
        and other.p <= LEVEL
        and other.change < 0
    )
    bounds = {
        estimate.quantity.clock: estimate.high
        for estimate in pooled
        if estimate.quantity.case == case and estimate.quantity.kind == ITERATION
    }
    if BUSY in bounds:
        return added - saved > bounds[BUSY]
    return bool(bounds) and added - saved > max(bounds.values())


# ---- Why it is inconclusive ----------------------------------------------------------------------


def _unusable_reasons(quantities: Sequence[Quantity]) -> Iterable[Reason]:
    for quantity in quantities:
        if not _usable(quantity):
            what = f"{quantity.case}: too few usable samples of {quantity.title}"
            yield Reason(
                UNMEASURED,
                (
                    f"{what} (times of zero, or on one side only); measure again, or choose a "
                    "longer case"
                ),
            )


def _finding_reasons(
    findings: Sequence[Finding], fresh: int, thresholds: Thresholds
) -> Iterable[Reason]:
    for finding in findings:
        if finding.screened.change < 0:
            continue
        name = f"{finding.screened.quantity.case}: {finding.screened.quantity.title}"
        shown = as_shown(finding.best)
        is_new = shown.change == math.inf
        differs = "is new" if is_new else f"differs by {units.percent(shown.change, signed=True)}"
        if finding.verdict == INCONCLUSIVE:
            limit = units.percent(thresholds.of(finding.screened.quantity))
            up_to = "" if is_new else f" (up to {units.percent_up(shown.high)})"
            yield Reason(
                NOISE,
                f"{name} was flagged, and {fresh} fresh launches neither confirm it nor rule out "
                f"a slowdown of {limit}{up_to}; measure again",
            )
        elif finding.verdict == CONTRADICTED:
            text = (
                f"{name} {differs}, more than the time of its case shows; profile this operation "
                "alone"
            )
            yield Reason(CONTRADICTION, text)
        elif finding.verdict == UNCONFIRMED and finding.confirmed is None and fresh >= LEAST_FRESH:
            text = (
                f"{name} {differs}, and fresh launches have no usable sample of it; measure again"
            )
            yield Reason(UNMEASURED, text)
        elif finding.verdict == UNCONFIRMED and finding.confirmed is None:
            too_few = units.counted(fresh, "fresh launch is", "fresh launches are")
            text = f"{name} {differs}, and {too_few} too few to confirm it; increase --budget"
            yield Reason(BUDGET, text)


def _bound_reasons(
    cases: Sequence[Estimate],
    thresholds: Thresholds,
    regressions: Sequence[Finding],
    accepts: Callable[[Finding], bool],
) -> Iterable[Reason]:
    """Yield a reason for each case whose median or mean has too large an upper bound.

    With the clock of the largest.

    A regression that fails the gate settles its case. One that is accepted settles the medians of
    its case, or the means.
    """
    failed = {finding.screened.quantity.case for finding in regressions if not accepts(finding)}
    settled = {
        (finding.screened.quantity.case, finding.screened.quantity.kind) for finding in regressions
    }
    worst: dict[tuple[str, str], Estimate] = {}
    for estimate in cases:
        key = (estimate.quantity.case, estimate.quantity.kind)
        if (
            estimate.high > thresholds.to_rule_out(estimate.quantity)
            and estimate.quantity.case not in failed
            and key not in settled
        ):
            worst[key] = max(worst.get(key, estimate), estimate, key=lambda bounded: bounded.high)
    for estimate in worst.values():
        up_to = f"of up to {units.percent_up(estimate.high)}"
        quantity = estimate.quantity
        left = f"{quantity.case}: a slowdown {up_to} of its {quantity.title} cannot be ruled out"
        limit = thresholds.to_rule_out(estimate.quantity)
        if estimate.change >= limit:
            yield Reason(
                NOISE,
                f"{left}; the estimate is {units.percent(estimate.change, signed=True)}; "
                "measure again",
            )
            continue
        needed = launches_needed(estimate, limit)
        advice = (
            f"about {needed} launches would settle it" if needed <= 1_000 else "too noisy to judge"
        )
        yield Reason(NOISE, f"{left}; {advice}")


def launches_needed(estimate: Estimate, limit: float) -> float:
    """Return the number of launches for an upper bound below a limit.

    The width of an interval falls with their root.
    """
    change = max(estimate.change, -1 + LEAST_SPREAD)
    reach, room = (math.log1p(value) - math.log1p(change) for value in (estimate.high, limit))
    needed = estimate.launches * (reach / room) ** 2
    return math.ceil(needed) if math.isfinite(needed) else math.inf


def _unbounded_reasons(unbounded: Sequence[Estimate], thresholds: Thresholds) -> Iterable[Reason]:
    """Yield a reason for each large operation that is not bounded.

    The last line of the report counts all of them.
    """
    for estimate in unbounded:
        if estimate.quantity.share >= LARGE_SHARE and estimate.quantity.kind in (
            OPERATION,
            REPLACED,
            ADDED,
        ):
            limit = units.percent(thresholds.of(estimate.quantity))
            share = units.percent(estimate.quantity.share)
            slower = (
                f"{estimate.quantity.title} ({share} of its case) may be up to "
                f"{units.percent_up(estimate.high)} slower"
            )
            advice = f"the threshold is {limit}, and more --launches narrow the interval"
            yield Reason(NOISE, f"{estimate.quantity.case}: {slower}; {advice}")
