"""Gates that are resampled from trials of the same code on both sides.

The roles of each trial are drawn anew, which is allowed because both sides ran the same code. This
makes the null hypothesis true by construction, so such gates cannot show a false alarm that the
roles themselves cause; gates with the roles as recorded can. A slowdown is simulated by adding
log(1 + change) to the differences of a case, or of an operation and, weighted by its share, of its
case; a one-time cost becomes longer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from mnistbench.core import units
from mnistbench.gate.decide.statistics import quantities
from mnistbench.gate.decide.statistics.quantities import MIN_ONCE_NS, Quantity
from mnistbench.gate.decide.verdict.decision import Decision, decide, is_settled
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.findings import checkpoints, checkpoints_after
from mnistbench.gate.options import TRIALS, Thresholds
from mnistbench.gate.samples.raw_samples import Recorded
from mnistbench.gate.words import ALL_CASES, WALL
from mnistbench.judging.distributions import binomial_interval
from mnistbench.judging.kinds import ITERATION, ONCE
from mnistbench.judging.verdicts import INCONCLUSIVE

#: Slowdowns of a case that gates look for, as shares.
AMOUNTS = (0.01, 0.02, 0.05, 0.10)
#: The slowdown that a qualified machine rules out and finds.
LARGEST = AMOUNTS[-1]
#: Share of gates that have to find it.
MIN_FOUND = 0.8

#: Gates with each of these slowdowns; there are twice as many of the same code.
GATES = 200

#: A case is named as disturbed from this share of the time in which others had the core.
DISTURBED = 0.02
#: A case is named as noisy if its bound is this multiple of the next largest.
NOISY = 1.5

signed_change = partial(units.percent, signed=True)


def least_trials(limits: Thresholds) -> int:
    """Return the most trials of a gate, which are the fewest that a qualification needs."""
    return TRIALS + max(checkpoints(limits))


class Pool:
    """Trials of the same code, from which gates are drawn."""

    def __init__(self, quantities: Sequence[Quantity], seed: int = 1) -> None:
        self.quantities = quantities
        self.trials = len(quantities[0].logs)
        self._logs = np.array([quantity.logs for quantity in quantities])
        self._seed = seed
        self._draw = np.random.default_rng(seed)

    def gate(
        self,
        limits: Thresholds,
        hit: Quantity | None = None,
        change: float = 0.0,
        *,
        trials: int = TRIALS,
        start: int | None = None,
    ) -> tuple[list[Estimate], Decision]:
        """Return what the first stage flags, and the decision.

        Args:
            limits: the thresholds.
            hit: the case or operation that is slower.
            change: of it, as a share.
            trials: of the first stage.
            start: number of the first trial; all keep their roles. If not given, it is drawn, with
                new roles.
        """
        size = trials + max(checkpoints(limits))
        drawn = np.arange(size) + (self._draw.integers(self.trials) if start is None else start)
        logs = self._logs[:, drawn % self.trials] * (
            self._draw.choice([-1.0, 1.0], size) if start is None else 1.0
        )
        for row, quantity in enumerate(self.quantities):
            if hit and (
                quantity.key == hit.key
                or (quantity.is_case and quantity.case == hit.case and not hit.is_once)
            ):
                part = hit.share if quantity.is_case and not hit.is_case else 1
                part = hit.base / (hit.base + MIN_ONCE_NS) if quantity.kind == ONCE else part
                logs[row] += math.log1p(change * part)
        sampled = [
            replace(quantity, logs=tuple(row))
            for quantity, row in zip(self.quantities, logs, strict=True)
        ]
        first = [replace(quantity, logs=quantity.logs[:trials]) for quantity in sampled]
        decision = decide(first, [], limits, self._seed)
        flagged = [finding.screened for finding in decision.findings]
        cases = {estimate.quantity.case for estimate in flagged}
        for checkpoint in checkpoints_after(trials, limits) if cases else ():
            fresh = [
                replace(quantity, logs=quantity.logs[trials : trials + checkpoint])
                for quantity in sampled
                if {quantity.case, ALL_CASES} & cases
            ]
            decision = decide(first, fresh, limits, self._seed)
            if is_settled(decision, limits):
                break
        return flagged, decision


def is_found(result: Decision, hit: Quantity) -> bool:
    """Whether a gate reports that this case, or this operation, got slower."""
    slower = [finding.quantity for finding in result.findings if finding.is_slower]
    return any(
        (quantity.case, quantity.is_case) == (hit.case, hit.is_case)
        and (hit.is_case or quantity.name == hit.name)
        for quantity in slower
    )


def _has_slower(result: Decision) -> bool:
    """Whether a gate reports that anything got slower: of the same code it is a false alarm."""
    return any(finding.is_slower for finding in result.findings)


def share(hits: int, draws: int) -> str:
    """Return a share with its 95 % interval as text."""
    low, high = map(units.percent, binomial_interval(hits, draws))
    return f"{units.percent(hits / draws)} ({low} to {high})"


def resample(
    measured: Recorded,
    limits: Thresholds,
    gate_s: float,
    may_go_on: Callable[[], bool],
) -> dict[str, Any]:
    """Return what gates with these limits find on this machine, as JSON.

    Empty if no case has times in every trial.

    Args:
        measured: ``least_trials(limits)`` of the same code or more.
        limits: the thresholds of the gates.
        gate_s: duration of a gate without fresh trials, in seconds.
        may_go_on: whether there is time for more gates, asked after a tenth of them.
    """
    same = quantities.quantities(measured.trials)
    hits = [
        quantity
        for quantity in same
        if (quantity.kind, quantity.clock) == (ITERATION, WALL) and np.isfinite(quantity.logs).all()
    ]
    if not hits:
        return {}
    pool = Pool(same, measured.header.seed)
    gates = list[Decision]()
    times_found = [[0] * len(AMOUNTS) for _ in hits]
    while len(gates) < 2 * GATES and (len(gates) < GATES // 5 or may_go_on()):
        number = len(gates) // 2 % len(hits)
        for position, added in enumerate(AMOUNTS):
            times_found[number][position] += is_found(
                pool.gate(limits, hits[number], added)[1], hits[number]
            )
        gates += [pool.gate(limits)[1] for _ in range(2)]
    windows = [
        _has_slower(pool.gate(limits, start=start)[1])
        for start in range(pool.trials - least_trials(limits) + 1)
    ]
    highs = [
        {
            (estimate.quantity.case, estimate.quantity.kind, estimate.quantity.clock): estimate.high
            for estimate in gate.cases
        }
        for gate in gates
    ]
    cases = [
        {
            "case": measured.header.names[hit.case],
            "rules_out": statistics.median(
                gate_highs[hit.case, ITERATION, WALL] for gate_highs in highs
            ),
            "gates": len(range(number, len(gates) // 2, len(hits))),
            "found": times_found[number],
        }
        for number, hit in enumerate(hits)
    ]
    data = {
        "rules_out": statistics.median(gate.bound for gate in gates),
        "gate_seconds": gate_s,
        "gates": len(gates),
        "regressed": sum(map(_has_slower, gates)),
        "inconclusive": sum(
            gate.outcome == INCONCLUSIVE and not _has_slower(gate) for gate in gates
        ),
        "windows": len(windows),
        "windows_regressed": sum(windows),
        "other_programs": statistics.fmean(
            side.queued
            for trial in measured.trials
            for case in trial.cases.values()
            for build in case
            for side in build.values()
        ),
        "added": [*AMOUNTS],
        "found": [sum(case_counts) for case_counts in zip(*times_found, strict=True)],
        "cases": cases,
    }
    # The latter say nothing of the machine.
    judged = {*(hit.case for hit in hits), *measured.unmeasurable}
    without = [measured.header.names[case] for case in measured.header.labels if case not in judged]
    reasons = [f"{name} has no usable time in every trial" for name in without]
    return {
        **data,
        "reasons": [*reasons, *_reasons(data)],
        "improvements": list(_improvements(data, limits)),
    }


def _reasons(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a machine cannot judge a slowdown of LARGEST."""
    if data["rules_out"] >= LARGEST:
        yield f"it cannot rule out {signed_change(LARGEST)}"
    for case in ({**data, "case": "a case", "gates": data["gates"] // 2}, *data["cases"]):
        if case["gates"] and binomial_interval(case["found"][-1], case["gates"])[1] < MIN_FOUND:
            found = f"{case['found'][-1]} of {case['gates']}"
            yield f"it finds {signed_change(LARGEST)} in {case['case']} in {found} gates"


def _improvements(data: Mapping[str, Any], limits: Thresholds) -> Iterator[str]:
    """Yield what limits the machine, as its trials show."""
    if data["rules_out"] > limits.case:
        needed = math.ceil(TRIALS * (math.log1p(data["rules_out"]) / math.log1p(limits.case)) ** 2)
        yield (
            f"about {needed} --trials would rule out {units.percent(limits.case)}: bounds fall "
            "with their square root"
        )
    noisiest, *quieter = sorted(data["cases"], key=itemgetter("rules_out"), reverse=True)
    if quieter and noisiest["rules_out"] > NOISY * quieter[0]["rules_out"]:
        bounds = [units.percent_up(case["rules_out"]) for case in (noisiest, quieter[0])]
        yield (
            f"the noisiest case is {noisiest['case']}: {bounds[0]} is ruled out there, {bounds[1]} "
            "in the next one"
        )
    if data["other_programs"] > DISTURBED:
        yield f"other programs had the core for {units.percent(data['other_programs'])} of the time"
