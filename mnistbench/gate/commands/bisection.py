"""Find the first slower release of a package with as few gates as possible.

Measures nothing itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mnistbench.core import units
from mnistbench.core.errors import MnistbenchError
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.samples.raw_samples import INTERRUPTED
from mnistbench.gate.words import ALL_CASES
from mnistbench.judging.kinds import ADDED, REPLACED
from mnistbench.judging.verdicts import INCONCLUSIVE, NOISE, PASSED, REGRESSED

#: What a gate says of a release: it is slower.
SLOWER = "slower"
#: What a gate says of a release: it is not slower.
NOT_SLOWER = "not slower"
#: What a gate says of a release: it could not be judged.
NOT_JUDGED = "not judged"

#: Why a search ends early.
USED_UP = "the budget is used up; increase --budget"

#: Part of the logarithm of a slowdown of the last release that the first slower release has at
#: least: an earlier one may have a small slowdown of the same case for another reason.
SAME = 0.5

#: Measures a release: (release, node ids of the cases, or none for all, seconds it may take) ->
#: (file of raw samples, verdict).
Measure = Callable[[str, tuple[str, ...], float], tuple[str, Verdict]]


@dataclass(frozen=True)
class Gate:
    """The gate of a release against the first one of the range."""

    release: str
    result: str  # SLOWER, NOT_SLOWER or NOT_JUDGED
    reason: str = ""  # why it is NOT_JUDGED
    verdict: Verdict | None = None  # None: it could not be measured
    raw: str = ""  # path of the file of raw samples
    seconds: float = 0.0  # from start to finish, without the time to make environments


@dataclass(frozen=True)
class Bisection:
    """The search for the first slower release.

    What it has found so far, and which release is next.
    """

    package: str
    releases: tuple[str, ...]  # the oldest first; the first one is the base of all gates
    gates: tuple[Gate, ...] = ()  # as they were run
    stopped: str = ""  # why the search ended early

    @property
    def most_gates(self) -> int:
        """The largest number of gates if each one judges its release."""
        return 1 + (len(self.releases) - 2).bit_length()

    @property
    def next(self) -> str | None:
        """The release to measure next.

        The last one, then the one in the middle, or its nearest neighbor that is left.
        """
        if self.stopped:
            return None
        if not self.gates:
            return self.releases[-1]
        if not self._slower:
            return None
        low, high = self._ends
        gone = {gate.release for gate in self.gates}
        left = [number for number in range(low + 1, high) if self.releases[number] not in gone]
        return (
            self.releases[min(left, key=lambda number: abs(2 * number - low - high))]
            if left
            else None
        )

    @property
    def _slower(self) -> list[int]:
        return [self.releases.index(gate.release) for gate in self.gates if gate.result == SLOWER]

    @property
    def _ends(self) -> tuple[int, int]:
        """The newest release known not to be slower, and the oldest one known to be slower."""
        not_slower = [
            self.releases.index(gate.release) for gate in self.gates if gate.result == NOT_SLOWER
        ]
        return max(not_slower, default=0), min(self._slower)

    @property
    def not_slower(self) -> str:
        """The newest release that is not slower, before the first slower one.

        It is known only if a release is slower.
        """
        return self.releases[self._ends[0]]

    @property
    def candidates(self) -> tuple[str, ...]:
        """The releases of which one is the first slower one.

        None if no release is known to be slower.
        """
        if not self._slower:
            return ()
        low, high = self._ends
        return self.releases[low + 1 : high + 1]

    @property
    def outcome(self) -> str:
        """REGRESSED: the first slower release is found. PASSED: the last one is not slower.

        Otherwise INCONCLUSIVE.
        """
        if len(self.candidates) == 1:
            return REGRESSED
        return PASSED if self.gates and self.gates[0].result == NOT_SLOWER else INCONCLUSIVE

    @property
    def is_excusable(self) -> bool:
        """Whether ``--inconclusive warn`` applies.

        Nothing is slower, and noise and the budget are the only reasons.
        """
        verdict = self.gates[0].verdict if self.gates else None
        return not self.candidates and verdict is not None and verdict.is_excusable

    @property
    def was_broken_off(self) -> bool:
        """Whether the user has ended it, or its first gate has ended by an error."""
        verdict = self.gates[0].verdict if self.gates else None
        return self.stopped == INTERRUPTED.cut_short or verdict is None or verdict.was_broken_off


def bisect(
    bisection: Bisection,
    measure: Measure,
    say: Callable[[str], None],
    *,
    budget_s: float = math.inf,
    now: Callable[[], float] = time.monotonic,
) -> Bisection:
    """Measure releases until the first slower one is known.

    It ends earlier if the budget is used up or the user interrupts.

    Gates after the first one measure only the cases that the first one found slower, see
    :func:`followed`. ``say`` receives a line before and after each gate. All gates together may
    take ``budget_s`` seconds.

    Raises:
        MnistbenchError: the first gate cannot be run. A later one that cannot be run does not judge
            its release.
        KeyboardInterrupt: in the first gate, before anything was measured.
    """
    first = bisection.releases[0]
    regressions: Mapping[str, GateFinding] = {}
    while (release := bisection.next) is not None:
        if budget_s <= 0:
            return replace(bisection, stopped=USED_UP)
        say(f"gate {len(bisection.gates) + 1}: {bisection.package} {first} -> {release}")
        began = now()
        try:
            raw, verdict = measure(
                release, () if ALL_CASES in regressions else tuple(regressions), budget_s
            )
        except KeyboardInterrupt:
            if not bisection.gates:
                raise
            return replace(bisection, stopped=INTERRUPTED.cut_short)
        except MnistbenchError as error:
            if not bisection.gates:
                raise
            gate = Gate(release, NOT_JUDGED, str(error), seconds=now() - began)
            stopped = ""
        else:
            result, reason = judged(verdict, regressions)
            gate = Gate(release, result, reason, verdict, raw, verdict.end.elapsed_s)
            end = verdict.end
            was_interrupted = end.cut_short == INTERRUPTED.cut_short
            stopped = (
                end.cut_short
                if was_interrupted
                else USED_UP
                if end.cut_short and not end.broken_off
                else ""
            )
            regressions = regressions or followed(verdict)
        say(
            f"{bisection.package} {release}: "
            f"{gate.result}{f': {gate.reason}' if gate.reason else ''}"
        )
        bisection = replace(bisection, gates=(*bisection.gates, gate), stopped=stopped)
        budget_s -= gate.seconds
    return bisection


def largest_regressions(verdict: Verdict) -> dict[str, GateFinding]:
    """Return the regression of each slower case that added most to it, by node id.

    That of the process has the key ALL_CASES.
    """
    largest: dict[str, GateFinding] = {}
    for finding in verdict.regressions:  # the largest first
        largest.setdefault(finding.quantity.case, finding)
    return largest


def followed(verdict: Verdict) -> dict[str, GateFinding]:
    """Return the regressions whose first release is searched for.

    If there are regressions of iterations, it is only those.

    One-time costs and the memory of the process grow with many releases.
    """
    largest = largest_regressions(verdict)
    return {
        node_id: finding
        for node_id, finding in largest.items()
        if not finding.best.quantity.is_once
    } or largest


def judged(verdict: Verdict, regressions: Mapping[str, GateFinding]) -> tuple[str, str]:
    """Return what a gate says of its release, and the reason if the release is not judged.

    Args:
        verdict: of the gate.
        regressions: those of the first gate, by node id; none for the first gate itself. A later
            gate judges its release in spite of noise if it rules out changes as large as these. The
            release is slower if it has SAME of one of them.
    """
    least = {
        node_id: SAME * math.log1p(finding.best.change) for node_id, finding in regressions.items()
    }
    same_cases = [
        finding
        for finding in verdict.shown.findings
        if finding.is_slower and not finding.accepted and finding.quantity.case in least
    ]
    if any(
        math.log1p(finding.best.change) >= least[finding.quantity.case] for finding in same_cases
    ) or (verdict.outcome == REGRESSED and not regressions):
        return SLOWER, ""
    for reason in verdict.reasons:
        if not regressions or reason.kind != NOISE:
            return NOT_JUDGED, reason.text
    estimates = (*verdict.shown.cases, *verdict.shown.operations, *verdict.shown.once)
    for node_id, finding in regressions.items():
        if node_id not in {*verdict.header.labels, ALL_CASES}:
            return (
                NOT_JUDGED,
                f"{node_id} was not measured, because it is missing or has other parameters",
            )
        quantity = finding.best.quantity
        change = finding.best.change
        case = verdict.header.names[node_id]
        bounds = (
            _bound_as(quantity, estimate)
            for estimate in estimates
            if _is_same(quantity, estimate.quantity)
        )
        # An operation that only later releases have has none.
        bound = max(bounds, default=-math.inf)
        if bound >= change:
            return NOT_JUDGED, (
                f"{quantity.title} ({case}) may be up to {units.percent_up(bound)} slower, and "
                f"the last release is {units.percent(change)} slower; more --trials narrow the "
                "interval"
            )
    return NOT_SLOWER, ""


def _is_same(sought: Quantity, measured: Quantity) -> bool:
    """Whether two gates measured the same quantity.

    Replaced operations may be large in one and small in the other.
    """
    kinds = {sought.kind, measured.kind}
    return (measured.case, measured.name) == (sought.case, sought.name) and (
        len(kinds) == 1 or kinds == {REPLACED, ADDED}
    )


def _bound_as(sought: Quantity, estimate: Estimate) -> float:
    """Return the upper bound of an estimate, as a share of another time.

    It is the time that the change of another quantity is a share of.
    """
    return (
        estimate.high
        if estimate.quantity.kind == sought.kind
        else estimate.high * estimate.quantity.weight / sought.weight
    )
