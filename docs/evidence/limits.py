"""Compute how often a gate calls a slowdown near its limit *regressed*, *slower* or passed.

    python docs/evidence/limits.py [GATES]  # 200 of each row by default; about three minutes

Gates of one or eight tests with a limit of 5 %, one of which is slower. The differences of trials
are normal, with the SD of the second column. A row has the shares of the gates by outcome.
"""

from __future__ import annotations

import math
import sys
from collections import Counter

import numpy as np

from mnistbench.core import units
from mnistbench.gate.decide.statistics.quantities import CaseTime
from mnistbench.gate.decide.verdict.decision import Decision, decide, is_settled
from mnistbench.gate.decide.verdict.findings import CHECKPOINTS
from mnistbench.gate.options import TRIALS, Thresholds
from mnistbench.gate.words import WALL
from mnistbench.judging.kinds import ITERATION
from mnistbench.judging.verdicts import PASSED, REGRESSED

LIMIT = 0.05
LIMITS = Thresholds(case=LIMIT)

#: True slowdowns and SDs of a trial's difference, as multiples of the limit.
SLOWDOWNS = (0.0, 0.5, 0.84, 1.0, 1.25, 1.5, 2.0, 3.0)
SPREADS = (0.25, 0.5, 1.0)

OUTCOMES = ("regressed", "slower, at least the limit", "slower, below the limit", "passed", "other")


def quantity(case: str, logs: np.ndarray) -> CaseTime:
    """Return the wall time of a test, with log(head / base) of each trial."""
    return CaseTime(case, ITERATION, WALL, tuple(logs), 1e6, 1e6)


def gate(draw: np.random.Generator, slowdown: float, spread: float, tests: int) -> Decision:
    """Return the decision of a gate whose first test is slower by a share."""
    means = [math.log1p(slowdown), *[0.0] * (tests - 1)]
    first = [
        quantity(f"t{number}", draw.normal(mean, spread, TRIALS))
        for number, mean in enumerate(means)
    ]
    decision = decide(first, [], LIMITS, 1)
    flagged = {finding.quantity.case for finding in decision.findings}
    fresh = {
        f"t{number}": draw.normal(mean, spread, CHECKPOINTS[-1])
        for number, mean in enumerate(means)
    }
    for look in CHECKPOINTS if flagged else ():
        second = [quantity(case, logs[:look]) for case, logs in fresh.items() if case in flagged]
        decision = decide(first, second, LIMITS, 1)
        if is_settled(decision, LIMITS):
            break
    return decision


def outcome(decision: Decision) -> str:
    """Return which of OUTCOMES a decision is."""
    if decision.outcome == REGRESSED:
        return OUTCOMES[0]
    for finding in decision.findings:
        if finding.is_slower:
            return OUTCOMES[1] if finding.best.change >= LIMIT else OUTCOMES[2]
    return OUTCOMES[3] if decision.outcome == PASSED else OUTCOMES[4]


def main() -> None:
    """Print the table."""
    gates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    draw = np.random.default_rng(1)
    print("| tests | slowdown / limit | SD / limit |", " | ".join(OUTCOMES), "|")
    print("|---" * (3 + len(OUTCOMES)), "|", sep="")
    for tests in (1, 8):
        for spread in SPREADS:
            for slowdown in SLOWDOWNS:
                counts = Counter(
                    outcome(gate(draw, slowdown * LIMIT, spread * LIMIT, tests))
                    for _ in range(gates)
                )
                shares = " | ".join(units.percent(counts[name] / gates) for name in OUTCOMES)
                print(f"| {tests} | {slowdown:g} | {spread:g} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
