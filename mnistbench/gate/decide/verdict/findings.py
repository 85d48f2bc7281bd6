"""What the first stage flagged, and what the fresh trials make of it.

The levels of both stages, and the numbers of fresh trials at which they are judged, come first;
see ``docs/gate-statistics.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mnistbench.core.operation import shortened
from mnistbench.gate.decide.statistics.permutation import LEVEL, directed_test
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.decide.verdict.estimates import (
    Estimate,
    as_shown,
    bounded,
    confidence_of,
    kinds_of,
    matrix,
)
from mnistbench.gate.options import TRIALS, Thresholds
from mnistbench.gate.words import BUSY, CPU, WALL
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.findings import acceptance_of
from mnistbench.judging.kinds import ITERATION, OTHER
from mnistbench.judging.verdicts import (
    BELOW_FLOOR,
    CONTRADICTED,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    SLOWER,
    UNCONFIRMED,
    WITHIN,
)

# ---- Levels --------------------------------------------------------------------------------------

#: Largest p-value of the first stage for a slowdown.
SCREENING = 0.05

#: Largest p-value of the fresh trials for the confirmation of a slowdown.
CONFIRMING = 1 / 16

#: Numbers of fresh trials at which they are judged; :func:`checkpoints` has those of a shard.
CHECKPOINTS = (4, 12)
#: The same of gates with a threshold below FULL_CASE, whose first stage has more trials, too.
#: Twelve confirm 0.5 % in 84 % of the gates of a case whose trials have an SD of 0.47 %, these in
#: all of 200 (``docs/evidence/gate_power.py small``).
CHECKPOINTS_BELOW_FULL = (8, 24)

#: Largest product of both p-values for a regression. If nothing is slower, two independent
#: p-values, the first at most a and the second at most b, have a product of at most c with a
#: probability of at most c (1 + ln(a b / c)). That is 3.3e-4 here, and 6.6e-4 over both
#: checkpoints. The p-values are adjusted over all quantities, so this bounds the probability of any
#: false alarm. Four fresh trials can reach the product: 2^-10 of the first stage by 2^-4.
PRODUCT = 6.9e-5

#: Fewest fresh trials that can be judged.
MIN_FRESH = min(CHECKPOINTS)

#: Fewest fresh trials that can confirm an improvement, whose p-value has to be at most LEVEL
#: there.
MIN_FRESH_OF_IMPROVEMENT = 8


@functools.cache
def product(shards: int) -> float:
    """Return the largest product of both p-values for a regression in one of the shards.

    It is PRODUCT for a single one. Else the probability of a false alarm at a checkpoint,
    c (1 + ln(a b / c)), is divided by the number of shards; c follows by iteration.
    """
    largest = PRODUCT
    product_of_gate = PRODUCT * (1 + math.log(SCREENING * CONFIRMING / PRODUCT))
    for _ in range(100 if shards > 1 else 0):
        largest = product_of_gate / shards / (1 + math.log(SCREENING * CONFIRMING / largest))
    return largest


def checkpoints(limits: Thresholds, shards: int = 1) -> tuple[int, ...]:
    """Return the numbers of fresh trials after which a gate, or one of its shards, judges them.

    The first can confirm a slowdown after TRIALS of the first stage.
    """
    numbers = CHECKPOINTS_BELOW_FULL if limits.is_below_full else CHECKPOINTS
    later = next(
        more
        for more in range(0, 99, CHECKPOINTS[0])
        if 2.0 ** -(TRIALS + numbers[0] + more) <= product(shards)
    )
    return tuple(checkpoint + later for checkpoint in numbers)


def least_fresh(trials: int, limits: Thresholds, shards: int = 1) -> int:
    """Return the fresh trials of the first checkpoint after ``trials`` of the first stage.

    They can confirm a slowdown: the smallest p-value of a stage of n trials is 1 / 2^n. So there
    are more of them after fewer than TRIALS: 8 in place of 4.
    """
    return next(
        fresh
        for fresh in range(checkpoints(limits, shards)[0], 99, CHECKPOINTS[0])
        if 2.0 ** -(trials + fresh) <= product(shards)
    )


def checkpoints_after(trials: int, limits: Thresholds, shards: int = 1) -> tuple[int, ...]:
    """Return the checkpoints after ``trials`` of the first stage; the first one can confirm."""
    return (least_fresh(trials, limits, shards), *checkpoints(limits, shards)[1:])


# ---- Findings ------------------------------------------------------------------------------------

#: Limit of --accept, as a share, that allows a cost that the base does not have; it is no share of
#: the base.
LIMIT_OF_NEW = 10.0


@dataclass(frozen=True)
class GateFinding:
    """A quantity that the first stage flagged, with the verdict of the rule of trials.

    The verdict is REGRESSED: the lower bound of all trials reaches the threshold; SLOWER:
    confirmed, and the threshold is within the bounds; IMPROVED; WITHIN: significant, but bounded
    below the threshold; BELOW_FLOOR: the same, but by ``--floor`` alone; CONTRADICTED: its whole
    case, or the wall time, did not get slower;
    UNCONFIRMED: not significant in fresh trials; INCONCLUSIVE: not significant there, and not
    bounded below the threshold.
    """

    screened: Estimate  # of the first stage
    confirmed: Estimate | None  # of the fresh trials; None if there were none
    # The slowdown that the confirming test shows: lower bound of the fresh trials at its level.
    least: float = 0.0
    case_names: Collection[str] = ()
    verdict: str = INCONCLUSIVE  # one of judging.verdicts
    acceptance: Acceptance | None = None  # of those that apply the one with the largest limit

    @property
    def quantity(self) -> Quantity:
        """What was flagged."""
        return self.screened.quantity

    @property
    def best(self) -> Estimate:
        """The estimate to report: that of the fresh trials, which has no selection bias."""
        return self.confirmed or self.screened

    @property
    def is_slower(self) -> bool:
        """Whether it is confirmed that it got slower, by whatever share."""
        return self.verdict in (REGRESSED, SLOWER)

    @property
    def may_be_accepted(self) -> bool:
        """Whether there is something to accept."""
        return self.is_slower

    @property
    def accepted(self) -> bool:
        """Whether the change is within the limit of an ``--accept``."""
        return self.acceptance is not None and self.share_to_accept <= self.acceptance.limit

    @property
    def reason_to_accept(self) -> str:
        """Why an accepted change is intended; empty if it is not accepted."""
        return self.acceptance.reason if self.acceptance and self.accepted else ""

    @property
    def exceeded_limit(self) -> float | None:
        """The limit of ``--accept`` that the change is larger than, as a share; None if none."""
        return None if self.accepted or not self.acceptance else self.acceptance.limit

    @property
    def fails(self) -> bool:
        """Whether it is a regression that nobody accepts."""
        return self.verdict == REGRESSED and not self.accepted

    @property
    def could_be_confirmed(self) -> bool:
        """Whether the fresh trials were enough to confirm it."""
        least = MIN_FRESH if self.screened.change > 0 else MIN_FRESH_OF_IMPROVEMENT
        return self.confirmed is not None and self.confirmed.trials >= least

    @property
    def quantity_names(self) -> Collection[str]:
        """Its own, and those of its operations and their modules.

        ``iteration`` and the title of a clock are the median and the mean of a case.
        """
        quantity = self.quantity
        if quantity.is_case:
            clock_title = replace(quantity, kind=ITERATION).title
            return {quantity.name, ITERATION, quantity.title, clock_title}
        if quantity.kind == OTHER:
            return {quantity.name}
        members = (name for key in quantity.members for name in (key[0], shortened(key[0]), key[2]))
        return {quantity.name, quantity.title, *filter(None, members)}

    @property
    def share_to_accept(self) -> float:
        """The change as reports show it."""
        change = as_shown(self.best).change
        return change if math.isfinite(change) else LIMIT_OF_NEW


def flagged(estimates: Sequence[Estimate], thresholds: Thresholds) -> list[Estimate]:
    """Return the significant and relevant changes, which fresh trials have to confirm."""
    return [
        estimate
        for estimate in estimates
        if estimate.p <= (SCREENING if estimate.change > 0 else LEVEL)
        and _may_matter(estimate, thresholds)
    ]


def below_floor(estimates: Sequence[Estimate], thresholds: Thresholds) -> list[GateFinding]:
    """Return the changes that would be flagged if ``--floor`` were 0.

    Fresh trials do not measure them again, because none of them can fail the gate.
    """
    if not thresholds.floor_ns:
        return []
    by_share = replace(thresholds, floor_ns=0.0)
    keys = {estimate.quantity.key for estimate in flagged(estimates, thresholds)}
    findings = [
        GateFinding(estimate, None, verdict=BELOW_FLOOR)
        for estimate in flagged(estimates, by_share)
        if estimate.quantity.key not in keys
    ]
    return sorted(findings, key=by_size)


def _may_matter(estimate: Estimate, thresholds: Thresholds) -> bool:
    """Whether a change of the threshold's size cannot be ruled out.

    Comparing the estimate with the threshold would miss every other change of exactly that size.
    """
    limit = thresholds.of(estimate.quantity)
    return estimate.high >= limit if estimate.change > 0 else estimate.low <= -limit


def findings_of(
    screened: Sequence[Estimate],
    of_fresh: dict[tuple[str, str, str], Quantity],
    pooled: Sequence[Estimate],
    thresholds: Thresholds,
    seed: int,
    shards: int,
    accept: Sequence[Acceptance],
    accept_names: Mapping[str, Collection[str]],
) -> list[GateFinding]:
    """Return a finding for each estimate that was flagged, the largest first.

    Args:
        screened: flagged estimates of the first stage.
        of_fresh: quantities of the fresh trials by key.
        pooled: estimates of all quantities, with bounds from the trials of both stages.
        thresholds: the smallest changes that matter.
        seed: of the permutation tests.
        shards: number of machines that measure the gate.
        accept: intended regressions.
        accept_names: node id -> the names that ``accept`` may call the case by.
    """
    measured_again = [estimate for estimate in screened if estimate.quantity.key in of_fresh]
    confirmed = _confirmed(measured_again, of_fresh, seed, shards)
    shown = bounded([of_fresh[key] for key in confirmed], seed, 1 - 2 * CONFIRMING)
    least = {estimate.quantity.key: max(0.0, estimate.low) for estimate in shown}
    findings = []
    for estimate in screened:
        key = estimate.quantity.key
        verdict = _verdict(estimate, confirmed.get(key), pooled, thresholds, shards)
        finding = GateFinding(
            estimate,
            confirmed.get(key),
            least.get(key, 0.0),
            accept_names.get(estimate.quantity.case, ()),
            verdict=verdict,
        )
        findings.append(replace(finding, acceptance=acceptance_of(finding, accept)))
    return sorted(findings, key=by_size)


def by_size(finding: GateFinding) -> float:
    """Return a key that sorts findings by what they cost their case, the largest first."""
    return -abs(finding.best.change) * finding.best.quantity.weight


def _confirmed(
    screened: Sequence[Estimate],
    of_fresh: dict[tuple[str, str, str], Quantity],
    seed: int,
    shards: int,
) -> dict[tuple[str, str, str], Estimate]:
    """Return estimates of the fresh trials by key.

    Their p-values are one-sided, in the direction of the first stage.
    """
    fresh = [of_fresh[estimate.quantity.key] for estimate in screened]
    if not fresh or len(fresh[0].logs) < MIN_FRESH:
        return {}
    signs = np.array([math.copysign(1, estimate.change) for estimate in screened])
    p = directed_test(matrix(fresh), kinds_of(fresh), signs, seed, many=True)
    estimates = bounded(fresh, seed, confidence_of(shards))
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
    if not is_confirmed(screened, fresh, shards):
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
        return _within(screened.quantity, thresholds)
    if screened.change < 0:
        return IMPROVED
    quantity = screened.quantity
    [of_all] = [estimate for estimate in pooled if estimate.quantity.key == quantity.key]
    is_contradicted = (quantity.is_operation and _contradicted(fresh, pooled)) or (
        quantity.is_case and _contradicted_by_wall_time(of_all, pooled)
    )
    limit = thresholds.of(quantity)
    if is_contradicted:
        return CONTRADICTED
    if of_all.high < limit:
        return _within(quantity, thresholds)
    # The first stage chose the quantity, so the bounds of all trials are a little too high; the
    # estimate of the fresh ones is not.
    return REGRESSED if of_all.low >= limit and fresh.change >= limit else SLOWER


def _within(quantity: Quantity, thresholds: Thresholds) -> str:
    """Return the verdict of a change that is bounded below its limit."""
    return BELOW_FLOOR if thresholds.is_by_floor(quantity) else WITHIN


def is_confirmed(screened: Estimate, fresh: Estimate, shards: int = 1) -> bool:
    """Whether the fresh trials show a change in the same direction."""
    if fresh.change * screened.change <= 0:
        return False
    if screened.change < 0:
        return fresh.p <= LEVEL
    return fresh.p <= CONFIRMING and screened.p * fresh.p <= product(shards)


def _contradicted(operation: Estimate, pooled: Sequence[Estimate]) -> bool:
    """Whether the lower bound of an operation exceeds what its case can have changed.

    The largest time that other operations of the case may have saved is subtracted. On an
    accelerator, operations are parts of its busy time: in a call that is limited by launches, a
    slower kernel fills a gap and changes no other clock.
    """
    case = operation.quantity.case
    added = operation.low * operation.quantity.weight
    saved = sum(
        -faster.low * faster.quantity.weight
        for faster in pooled
        if faster.quantity.is_operation
        and faster.quantity.case == case
        and faster.quantity.key != operation.quantity.key
        and faster.p <= LEVEL
        and faster.change < 0
    )
    bounds = {
        estimate.quantity.clock: estimate.high
        for estimate in pooled
        if estimate.quantity.case == case and estimate.quantity.kind == ITERATION
    }
    if BUSY in bounds:
        return added - saved > bounds[BUSY]
    return bool(bounds) and added - saved > max(bounds.values())


def _contradicted_by_wall_time(case: Estimate, pooled: Sequence[Estimate]) -> bool:
    """Whether the CPU time of a case grew by more than its wall time can have grown.

    The wall time of a thread contains its CPU time. The reverse is a case that waits.
    """
    quantity = case.quantity
    return quantity.clock == CPU and any(
        estimate.high * estimate.quantity.base < case.low * quantity.base
        for estimate in pooled
        if estimate.quantity.is_case
        and (estimate.quantity.case, estimate.quantity.kind) == (quantity.case, quantity.kind)
        and estimate.quantity.clock == WALL
    )
