"""Quantities of two stages -> the outcome of the test.

Pure and seeded; does not import torch. See ``docs/gate-statistics.md``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.decide.verdict.estimates import (
    Estimate,
    as_shown,
    estimates_of,
    is_usable,
    with_fresh,
)
from mnistbench.gate.decide.verdict.findings import (
    MIN_FRESH_OF_IMPROVEMENT,
    GateFinding,
    below_floor,
    by_size,
    checkpoints,
    findings_of,
    flagged,
)
from mnistbench.gate.decide.verdict.reasons import (
    bound_reasons,
    finding_reasons,
    too_few_reasons,
    unbounded_reasons,
    unusable_reasons,
)
from mnistbench.gate.options import MIN_TRIALS, Thresholds
from mnistbench.gate.samples.case_names import NODE_IDS, CaseNames
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.kinds import ITERATION, MEAN
from mnistbench.judging.verdicts import (
    CONTRADICTED,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    SLOWER,
    UNCONFIRMED,
    Reason,
)


@dataclass(frozen=True)
class Decision:
    """The outcome and its basis."""

    outcome: str  # PASSED, REGRESSED or INCONCLUSIVE
    cases: tuple[Estimate, ...]  # medians and means
    operations: tuple[Estimate, ...]
    once: tuple[Estimate, ...]  # one-time costs, and memory
    findings: tuple[GateFinding, ...]
    reasons: tuple[Reason, ...]  # why it is inconclusive
    trials: int  # of the first stage; the fewest of all shards
    fresh: int  # of the second; the most of all shards
    # Operations whose upper bound reaches their threshold, by share, the largest first.
    unbounded: tuple[Estimate, ...] = ()
    # Of each case the median or mean whose upper bound is too large, which is one of the reasons.
    open_cases: tuple[Estimate, ...] = ()
    # Changes that are too small for --floor, which fresh trials do not measure again.
    below_floor: tuple[GateFinding, ...] = ()
    floor_ns: float = 0.0  # of the thresholds
    shards: int = 1  # number of machines that measure the gate

    @property
    def reported_findings(self) -> tuple[GateFinding, ...]:
        """All findings, also those below the floor."""
        return (*self.findings, *self.below_floor)

    @property
    def bound(self) -> float:
        """Largest upper bound of the medians of all clocks and cases, without slower cases.

        Bounds below the floor do not count: 0 if all are. Infinite if there is no bound.
        """
        return self._bound(ITERATION)

    @property
    def bound_of_means(self) -> float:
        """Largest upper bound of the means, as ``bound``."""
        return self._bound(MEAN)

    def _bound(self, kind: str) -> float:
        slower = {finding.quantity.case for finding in self.findings if _is_slower_case(finding)}
        bounds = [
            case.high if case.high * case.quantity.reference_ns >= self.floor_ns else 0.0
            for case in self.cases
            if case.quantity.kind == kind and case.quantity.case not in slower
        ]
        return max(bounds, default=math.inf)


def decision_as_shown(decision: Decision) -> Decision:
    """Return a decision for a report: each of its estimates as :func:`as_shown` returns it."""

    def finding_as_shown(finding: GateFinding) -> GateFinding:
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
        below_floor=tuple(map(finding_as_shown, decision.below_floor)),
        unbounded=tuple(map(as_shown, decision.unbounded)),
    )


def decide(
    first: Sequence[Quantity],
    of_fresh: Sequence[Quantity],
    thresholds: Thresholds,
    seed: int,
    accept: Sequence[Acceptance] = (),
    accept_names: Mapping[str, Collection[str]] = MappingProxyType({}),
    names: CaseNames = NODE_IDS,
    shards: int = 1,
) -> Decision:
    """Return the decision about a gate, or about the part of one machine.

    Args:
        first: quantities of the first stage.
        of_fresh: quantities of the fresh trials; empty if there were none.
        thresholds: the smallest changes that matter.
        seed: of the permutation tests.
        accept: intended regressions. If an accepted regression is one of an operation, the bound of
            its case is still checked.
        accept_names: node id -> the names that ``accept`` may call the case by.
        names: how reasons call the cases.
        shards: number of machines that measure the gate. Together they have the level and the
            confidence of a single one.
    """
    trials = len(first[0].logs) if first else 0
    fresh = len(of_fresh[0].logs) if of_fresh else 0
    if trials < MIN_TRIALS:
        reasons = tuple(too_few_reasons(first, thresholds, names))
        return Decision(INCONCLUSIVE, (), (), (), (), reasons, trials, fresh, shards=shards)
    estimates = estimates_of(tuple(filter(is_usable, first)), seed, shards)
    fresh_of_key = {quantity.key: quantity for quantity in of_fresh if is_usable(quantity)}
    pooled = with_fresh(estimates, fresh_of_key, seed, shards)
    findings = findings_of(
        flagged(estimates, thresholds),
        fresh_of_key,
        pooled,
        thresholds,
        seed,
        shards,
        accept,
        accept_names,
    )
    cases = tuple(estimate for estimate in pooled if estimate.quantity.is_case)
    operations = tuple(estimate for estimate in pooled if estimate.quantity.is_operation)
    unbounded = _unbounded(operations, findings, thresholds)
    slower = [finding for finding in findings if finding.is_slower]
    regressions = [finding for finding in slower if finding.verdict == REGRESSED]
    open_cases = _open_estimates(cases, thresholds, slower)
    decision = Decision(
        REGRESSED if regressions else INCONCLUSIVE,
        cases=cases,
        operations=operations,
        once=tuple(estimate for estimate in pooled if estimate.quantity.is_once),
        findings=tuple(findings),
        reasons=(),
        trials=trials,
        fresh=fresh,
        unbounded=tuple(unbounded),
        open_cases=tuple(open_cases),
        below_floor=tuple(below_floor(estimates, thresholds)),
        floor_ns=thresholds.floor_ns,
        shards=shards,
    )
    broken_off = _broken_off(decision, thresholds)
    flagged_cases = {finding.quantity.case for finding in findings}
    not_again = flagged_cases - {quantity.case for quantity in of_fresh} if of_fresh else set[str]()
    reasons = (
        *unusable_reasons(first, names),
        *finding_reasons(findings, fresh, thresholds, accept, broken_off, not_again, names),
        *bound_reasons(open_cases, thresholds, names),
        *unbounded_reasons(unbounded, thresholds, names),
    )
    is_passed = pooled and not reasons and not regressions
    return replace(decision, reasons=reasons, outcome=PASSED if is_passed else decision.outcome)


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
        findings=tuple(sorted(findings, key=by_size)),
        reasons=tuple(reason for part in parts for reason in part.reasons),
        trials=min((part.trials for part in parts), default=0),
        fresh=max((part.fresh for part in parts), default=0),
        open_cases=tuple(estimate for part in parts for estimate in part.open_cases),
        below_floor=tuple(finding for part in parts for finding in part.below_floor),
        floor_ns=max((part.floor_ns for part in parts), default=0.0),
        unbounded=tuple(sorted(unbounded, key=lambda estimate: -estimate.quantity.share)),
        shards=max((part.shards for part in parts), default=1),
    )


def is_settled(decision: Decision, thresholds: Thresholds) -> bool:
    """Whether the fresh trials are enough, so that no more of them are needed.

    The flagged quantities of each case are three groups: its time, that of its operations, and its
    one-time costs. At the first checkpoint a slowdown of each group is confirmed, because an
    operation explains why a case is slower, or all of them are ruled out. Later checkpoints settle
    a gate that has regressed, or in which no slowdown is open. A slowdown is open, too, if more
    trials may show whether it is above or below the limit. One that is accepted is settled, but
    it settles no other slowdown.
    """
    ruled_out = {
        finding.quantity.key: _is_ruled_out(finding, decision, thresholds)
        for finding in decision.findings
    }
    if decision.fresh < max(
        MIN_FRESH_OF_IMPROVEMENT, checkpoints(thresholds, decision.shards)[0] + 1
    ):
        groups: dict[tuple[str, bool, bool], list[GateFinding]] = {}
        for finding in decision.findings:
            of = finding.quantity
            groups.setdefault((of.case, of.is_case, of.is_once), []).append(finding)
        return all(
            any(finding.fails for finding in group)
            or all(finding.accepted or ruled_out[finding.quantity.key] for finding in group)
            for group in groups.values()
        )
    return any(finding.fails for finding in decision.findings) or not any(
        finding.verdict == INCONCLUSIVE
        or (finding.verdict == SLOWER and not finding.accepted)
        or (
            _is_unconfirmed(finding)
            and finding.quantity.is_case
            and not ruled_out[finding.quantity.key]
        )
        for finding in decision.findings
    )


def _broken_off(decision: Decision, thresholds: Thresholds) -> set[tuple[str, str, str]]:
    """Return the keys of slowdowns that are open because the fresh trials ended too early.

    After the last checkpoint, and where a checkpoint has settled the gate, they are open because
    of noise.
    """
    last_checkpoint = checkpoints(thresholds, decision.shards)[-1]
    if decision.fresh >= last_checkpoint or is_settled(decision, thresholds):
        return set()
    open_cases = {estimate.quantity.key for estimate in decision.open_cases}
    return {
        finding.quantity.key
        for finding in decision.findings
        if finding.confirmed
        and finding.screened.change > 0
        and (
            finding.verdict == INCONCLUSIVE
            or (finding.verdict == UNCONFIRMED and finding.quantity.key in open_cases)
        )
    }


def _is_ruled_out(finding: GateFinding, decision: Decision, thresholds: Thresholds) -> bool:
    """Whether both stages rule out that a flagged slowdown has the size of its threshold."""
    key = finding.quantity.key
    [high] = [
        estimate.high
        for estimate in (*decision.cases, *decision.operations, *decision.once)
        if estimate.quantity.key == key
    ]
    return _is_unconfirmed(finding) and high <= thresholds.pass_limit(finding.quantity)


def _is_unconfirmed(finding: GateFinding) -> bool:
    return finding.verdict == UNCONFIRMED and finding.screened.change > 0


def _is_slower_case(finding: GateFinding) -> bool:
    """Whether the time of a whole case got slower."""
    return finding.is_slower and finding.quantity.is_case


def _open_estimates(
    cases: Iterable[Estimate],
    thresholds: Thresholds,
    slower: Sequence[GateFinding],
) -> list[Estimate]:
    """Return the median or mean of each case with too large an upper bound, by its worst clock.

    A slowdown that does not let the gate pass settles its case. One that is accepted settles the
    medians of its case, or the means.
    """
    failed = {finding.quantity.case for finding in slower if not finding.accepted}
    settled = {(finding.quantity.case, finding.quantity.kind) for finding in slower}
    worst: dict[tuple[str, str], Estimate] = {}
    for estimate in cases:
        key = (estimate.quantity.case, estimate.quantity.kind)
        if (
            estimate.high > thresholds.pass_limit(estimate.quantity)
            and estimate.quantity.case not in failed
            and key not in settled
        ):
            worst[key] = max(worst.get(key, estimate), estimate, key=lambda bounded: bounded.high)
    return list(worst.values())


def _unbounded(
    operations: Iterable[Estimate], findings: Sequence[GateFinding], thresholds: Thresholds
) -> list[Estimate]:
    """Return operations whose upper bound reaches their threshold without a finding."""
    reported = {
        finding.quantity.key
        for finding in findings
        if finding.verdict in (REGRESSED, SLOWER, INCONCLUSIVE, CONTRADICTED)
    }
    unbounded = [
        estimate
        for estimate in operations
        if estimate.high >= thresholds.of(estimate.quantity)
        and estimate.quantity.key not in reported
    ]
    return sorted(unbounded, key=lambda estimate: -estimate.quantity.share)
