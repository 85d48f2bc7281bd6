"""Compute what each rule of a gate's planning saves, and the power that it gives.

    python docs/evidence/planning.py [GATES]  # 90 of each row by default; 8 minutes on two cores

Gates are drawn from recorded trials of the same code on both sides: consecutive ones from a
random one on, with roles drawn again, and with a slowdown added to one case. The product's own
functions decide. The rules of a gate are left out, or put back, one at a time; all rows of a set
have the same gates. The time is in trials of the first stage, with the survey.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mnistbench.core import units
from mnistbench.gate.decide.statistics import permutation
from mnistbench.gate.decide.statistics.quantities import (
    CaseTime,
    OneTimeCost,
    OperationTime,
    Quantity,
)
from mnistbench.gate.decide.verdict.decision import Decision, decide, is_settled
from mnistbench.gate.decide.verdict.findings import checkpoints, least_fresh
from mnistbench.gate.measure import budget
from mnistbench.gate.options import MIN_TRIALS, TRIALS, Thresholds
from mnistbench.gate.words import ALL_CASES
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ITERATION, MEAN, MEMORY, ONCE, OPERATION
from mnistbench.judging.verdicts import PASSED, REGRESSED

DATA = Path(__file__).parent / "data"

#: Name of a set -> its trials, the threshold of cases, and whether each gate has one case alone.
SETS = {
    "quiet: three training steps, 2 %": ("gate_trials", 0.02, False),
    "quiet: one training step, 2 %": ("gate_trials", 0.02, True),
    "usual: three training steps, 2 %": ("gate_default_trials", 0.02, False),
    "usual: one training step, 2 %": ("gate_default_trials", 0.02, True),
    "noisy: seven plain tests, 2 %": ("gate_plain_trials", 0.02, False),
    "noisy: one plain test, 2 %": ("gate_plain_trials", 0.02, True),
    "quiet: three training steps, 0.5 %": ("gate_trials", 0.005, False),
    "quiet: one training step, 0.5 %": ("gate_trials", 0.005, True),
    "usual: three training steps, 0.5 %": ("gate_default_trials", 0.005, False),
}

#: True slowdowns, as multiples of the threshold.
SLOWDOWNS = (0.0, 1.0, 1.5, 2.0, 5.0)
#: Those for which the table has the power.
SHOWN = (1.0, 1.5, 2.0)

#: Fewer than the product's, so that thousands of verdicts take minutes.
EXCHANGES = 2_000

#: Time of a survey, in trials, and share of a trial that starts of processes take: a gate of
#: seven plain tests took 19 s for the survey, 2.4 s for the start of a trial and 3.9 s for cases.
SURVEY = 2.0
START = 0.3

#: Trials of a drawn gate; the fresh ones are the last.
DRAWN = 120
#: Gates that a process computes at a time.
PART = 30


# ---- Rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """How a gate plans its trials."""

    #: Numbers of fresh trials at which they are judged; those of the product if empty.
    checkpoints: Sequence[int] = ()
    #: More trials than usual where that brings bounds below their limits.
    plans: bool = True
    #: The number of trials of the first stage; 0 if it is not fixed.
    trials: int = 0
    #: Eight are enough where nothing is flagged and all bounds have room below their limits.
    eight: bool = False
    #: A case whose sides differ by more than its limit needs no more trials.
    skips_different: bool = True


#: Rules that are left out, or put back (with a plus), one at a time.
ROWS: Mapping[str, Rules] = {
    "as built (4, 12)": Rules(),
    "+ 8 trials are enough": Rules(eight=True),
    "no more than 10 trials": Rules(plans=False),
    "more trials also where the sides differ": Rules(skips_different=False),
    "no first checkpoint, 12 at once": Rules((12,)),
    "no second checkpoint": Rules((4,)),
    "8 instead of 12 fresh trials": Rules((4, 8)),
    "+ checkpoint at 8": Rules((4, 8, 12)),
}
#: The same for a threshold below 1 %.
ROWS_BELOW_FULL: Mapping[str, Rules] = {
    "as built (30 to 60; 8, 24)": Rules(),
    "10 trials": Rules(trials=TRIALS),
    "30 trials": Rules(trials=budget.MIN_TRIALS_BELOW_FULL),
    "60 trials": Rules(trials=budget.MAX_TRIALS_BELOW_FULL),
    "more trials also where the sides differ": Rules(skips_different=False),
    "4 and 12 fresh trials": Rules((4, 12)),
    "no first checkpoint, 24 at once": Rules((24,)),
    "16 instead of 24 fresh trials": Rules((8, 16)),
    "+ checkpoint at 16": Rules((8, 16, 24)),
}


def are_enough(quantities: Sequence[Quantity], limits: Thresholds) -> bool:
    """Whether two standard errors fit between the bound of every quantity and its limit."""
    families = [
        [quantity for quantity in quantities if quantity.kind == ITERATION],
        [q for q in quantities if q.kind == OPERATION and q.share >= LARGE_SHARE],
    ]
    error_of_estimates = 2 / math.sqrt(MIN_TRIALS)
    return all(
        (budget.half_width_of(2 * len(family), MIN_TRIALS) + error_of_estimates)
        * budget.spread(quantity)
        <= math.log1p(limits.of(quantity))
        for family in families
        for quantity in family
    )


#: The product's function, which a row replaces.
differs_by_more = budget.differs_by_more


def never(*_: object) -> bool:
    return False


# ---- Gates ---------------------------------------------------------------------------------------


class Gate:
    """The trials of a gate, of which any number may be judged."""

    def __init__(self, quantities: Sequence[Quantity], logs: np.ndarray, limits: Thresholds):
        self.quantities = quantities
        self.logs = logs
        self.limits = limits
        self._decisions: dict[tuple[int, int], Decision] = {}

    def first(self, trials: int) -> list[Quantity]:
        return [
            replace(quantity, logs=tuple(row[:trials]))
            for quantity, row in zip(self.quantities, self.logs, strict=True)
        ]

    def decision(self, trials: int, fresh: int = 0) -> Decision:
        if (trials, fresh) not in self._decisions:
            second = []
            if fresh:
                flagged = self.flagged(trials)
                second = [
                    replace(quantity, logs=tuple(row[DRAWN - fresh :]))
                    for quantity, row in zip(self.quantities, self.logs, strict=True)
                    if {quantity.case, ALL_CASES} & flagged
                ]
            self._decisions[trials, fresh] = decide(self.first(trials), second, self.limits, 1)
        return self._decisions[trials, fresh]

    def flagged(self, trials: int) -> set[str]:
        return {finding.quantity.case for finding in self.decision(trials).findings}

    def trials(self, rules: Rules) -> int:
        """Return the number of trials of the first stage."""
        if rules.trials:
            return rules.trials
        if (
            rules.eight
            and not self.flagged(MIN_TRIALS)
            and are_enough(self.first(MIN_TRIALS), self.limits)
        ):
            return MIN_TRIALS
        if not rules.plans:
            return TRIALS
        budget.differs_by_more = differs_by_more if rules.skips_different else never
        return budget.planned_trials(self.first(TRIALS), self.limits)

    def run(self, rules: Rules) -> tuple[int, int, Decision]:
        """Return the trials of both stages, and what they decide."""
        trials = self.trials(rules)
        fresh = 0
        if self.flagged(trials):
            for fresh in rules.checkpoints or checkpoints(self.limits):
                if is_settled(self.decision(trials, fresh), self.limits):
                    break
        return trials, fresh, self.decision(trials, fresh)


#: Time, and whether it finds the slower case, says that it has regressed, passes, and has a false
#: alarm.
Outcome = tuple[float, bool, bool, bool, bool]


def quantity_of(case: str, kind: str, name: str, _: str, share: float, ns: float) -> Quantity:
    """Return a recorded quantity without its samples."""
    if kind in (ITERATION, MEAN):
        return CaseTime(case, kind, name, (), ns, ns)
    if kind in (ONCE, MEMORY):
        return OneTimeCost(case, kind, name, (), ns, ns)
    return OperationTime(case, kind, name, (), ns, ns, (), share)


def outcomes(task: tuple[str, float, int]) -> dict[str, list[Outcome]]:
    """Return what a part of the gates of a set does by each row."""
    name, slowdown, part = task
    permutation.EXCHANGES = EXCHANGES
    file, threshold, is_alone = SETS[name]
    data = json.loads(gzip.decompress((DATA / f"{file}.json.gz").read_bytes()))
    recorded = np.array(data["logs"]["pairs"])
    quantities = [quantity_of(*saved) for saved in data["quantities"]]
    cases = sorted({quantity.case for quantity in quantities if quantity.kind == ITERATION})
    limits = Thresholds(case=threshold)
    rows = ROWS_BELOW_FULL if limits.is_below_full else ROWS
    draw = np.random.default_rng((part, round(10 * slowdown)))
    of_rows: dict[str, list[Outcome]] = {row: [] for row in rows}
    for number in range(PART):
        case = cases[number % len(cases)]
        start = draw.integers(recorded.shape[1])
        drawn = (start + np.arange(DRAWN)) % recorded.shape[1]
        logs = recorded[:, drawn] * draw.choice([-1.0, 1.0], DRAWN)
        for position, quantity in enumerate(quantities):
            if quantity.is_case and quantity.case == case:
                logs[position] += math.log1p(slowdown * threshold)
        kept = [
            position
            for position, quantity in enumerate(quantities)
            if not is_alone or quantity.case in (case, ALL_CASES)
        ]
        gate = Gate([quantities[position] for position in kept], logs[kept], limits)
        for row, rules in rows.items():
            of_rows[row].append(_outcome(gate, rules, case, 1 if is_alone else len(cases)))
    return of_rows


def _outcome(gate: Gate, rules: Rules, case: str, cases: int) -> Outcome:
    trials, fresh, decision = gate.run(rules)
    share_again = len(gate.flagged(trials)) / cases
    slower = [finding for finding in decision.findings if finding.is_slower]
    of_case = [f for f in slower if f.quantity.case == case and f.quantity.is_case]
    return (
        SURVEY + trials + fresh * (START + (1 - START) * share_again),
        bool(of_case),
        any(finding.verdict == REGRESSED for finding in of_case),
        decision.outcome == PASSED,
        bool(slower),
    )


# ---- Budgets -------------------------------------------------------------------------------------

#: Budgets of the trials of a case that cannot be shorter, in trials.
BUDGETS = np.arange(MIN_TRIALS, 24, 0.25)


def can_be_confirmed(budget_s: float, fresh_s: float, *, goes_on: bool) -> bool:
    """Whether a budget has time to confirm a slower case; a trial of the first stage takes 1 s.

    ``goes_on``: the first stage goes on after 8 or 9 trials to save fresh ones.
    """
    clock = 0.0
    plan = budget.Budget(0.0, budget_s, lambda: clock)
    of_first_stage = plan.deadline_of_first_stage(cases=1)
    trials = 0
    while trials < TRIALS:
        deadline = budget_s
        if trials >= MIN_TRIALS:
            of_tenth = plan.deadline_for_tenth_trial(trials, 1.0) if goes_on else 0.0
            deadline = max(of_first_stage, of_tenth)
        if clock + 1 > deadline:
            break
        clock += 1
        trials += 1
    return clock + fresh_s * least_fresh(trials, Thresholds()) <= budget_s


def _print_budgets() -> None:
    print("\n## Budgets of 8 to 24 trials in which a slower case can be confirmed\n")
    print("| a fresh trial takes | as built | the first stage never goes on |\n|---|---|---|")
    for fresh_s in (1.0, 0.5):
        shares = (
            np.mean([can_be_confirmed(s, fresh_s, goes_on=goes_on) for s in BUDGETS])
            for goes_on in (True, False)
        )
        print(f"| {fresh_s:g} of a trial | {' | '.join(map(units.percent, shares))} |")


# ---- The table -----------------------------------------------------------------------------------


def main() -> None:
    gates = int(sys.argv[1]) if len(sys.argv) > 1 else 90
    parts = range(-(-gates // PART))
    with ProcessPoolExecutor(2) as processes:
        for name in SETS:
            tasks = [(name, slowdown, part) for slowdown in SLOWDOWNS for part in parts]
            measured: dict[tuple[str, float], list[Outcome]] = {}
            for (_, slowdown, _), of_rows in zip(
                tasks, processes.map(outcomes, tasks), strict=True
            ):
                for row, results in of_rows.items():
                    measured.setdefault((row, slowdown), []).extend(results)
            _print(name, measured)
    _print_budgets()


def _print(name: str, measured: Mapping[tuple[str, float], Sequence[Outcome]]) -> None:
    print(f"\n## {name[0].upper()}{name[1:]}\n")
    heads = (
        "planning",
        "time of the same code",
        "time at 1.5x",
        "time at 2x",
        "time at 5x",
        "passed",
        "false alarms",
        *(f"found at {slowdown:g}x" for slowdown in SHOWN),
        *(f"regressed at {slowdown:g}x" for slowdown in SHOWN),
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in dict.fromkeys(row for row, _ in measured):

        def mean(slowdown: float, column: int, row: str = row) -> float:
            return float(np.mean([result[column] for result in measured[row, slowdown]]))

        cells: Iterable[str] = (
            f"{mean(0.0, 0):.1f}",
            *(f"{mean(slowdown, 0):.1f}" for slowdown in (1.5, 2.0, 5.0)),
            units.percent(mean(0.0, 3)),
            units.percent(mean(0.0, 4)),
            *(units.percent(mean(slowdown, 1)) for slowdown in SHOWN),
            *(units.percent(mean(slowdown, 2)) for slowdown in SHOWN),
        )
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
