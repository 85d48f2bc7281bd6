"""The time of a gate: what its launches take, how many there are, and how much each measures.

An effort is a factor of the numbers of iterations in ``sides.steps``. All cases have the same one,
which follows from the thresholds; with a budget it is smaller where the launches would not fit. A
bound is the estimate plus a reach: the spread of a quantity over the launches, times a factor that
depends on the numbers of quantities and launches. So the number of launches follows from the
spread of the first ones.

It depends on the samples by the absolute differences of launches alone. These stay the same if the
roles of a launch are exchanged, so the permutation test remains exact whatever is planned.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mnistbench.gate.messages import Efforts, Spent
from mnistbench.gate.options import (
    FULL_CASE,
    LAUNCHES,
    LEAST_LAUNCHES,
    MOST_SHARDS,
    Thresholds,
)
from mnistbench.gate.statistics.permutation import simultaneous_bounds
from mnistbench.gate.statistics.quantities import Quantity
from mnistbench.gate.statistics.raw_samples import FIRST_STAGE, FRESH_STAGE, Shard
from mnistbench.gate.verdict.findings import least_fresh, looks
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ITERATION, OPERATION

#: Smallest effort. A launch then spends less than a tenth of a second on a short test.
LEAST_EFFORT = 1 / 32
#: Factor by which efforts become smaller until the launches fit into a budget.
_SHORTER = 0.8

#: Threshold of operations whose launches have the effort 1, as a share.
FULL_OPERATION = 0.025

#: Most launches of the first stage that are planned.
MOST_LAUNCHES = 2 * LAUNCHES
#: Standard errors of an estimate for which there has to be room below its limit where fewer
#: launches than usual are enough.
ROOM = 2.0

#: Standard errors by which a slowdown of its limit exceeds the bounds, so that both tests find nine
#: of ten (``docs/evidence/gate_power.py small``; for one test it would be 1.28). For limits below
#: FULL_CASE, for which launches cannot be longer; then there are more of them.
FOUND_ROOM = 3.5
#: Fewest and most launches of the first stage that are planned for such limits: a spread of ten
#: launches may be half of the true one.
LEAST_LAUNCHES_BELOW_FULL = 3 * LAUNCHES
MOST_LAUNCHES_BELOW_FULL = 6 * LAUNCHES

#: Most normal quantities that are drawn to find the reach, which grows slowly: with ten times as
#: many by a tenth.
MOST_ROWS = 2_000

#: Least time of a case in a launch with the smallest effort, in seconds.
LEAST_CASE_S = 0.1
#: Least time of a case in a launch with the smallest effort, as a multiple of that in the survey.
CALLS = 4.0

#: Share of the budget that is reserved for fresh launches, with up to FEW_CASES cases.
FRESH_SHARE = 0.4
#: With more cases than this, which are seldom all measured again, the share is smaller in
#: proportion.
FEW_CASES = 4
#: The least share of the budget that is reserved for fresh launches.
LEAST_FRESH_SHARE = 0.1

#: Fresh launches that take no longer than this together, in seconds, are not saved: 12 of a case
#: that takes 0.3 s, with their starts, also one at a time.
CHEAP_FRESH_S = 15.0
#: The same as a share of what the gate has taken before them.
CHEAP_FRESH_SHARE = 1 / 4


# ---- Before anything is measured -----------------------------------------------------------------


def first_efforts(limits: Thresholds) -> Efforts:
    """Return the efforts that reach thresholds on an ordinary machine."""
    shares = (FULL_CASE / limits.case, FULL_OPERATION / limits.operation)
    return Efforts(*(max(LEAST_EFFORT, min(1.0, share**2)) for share in shares))


@dataclass(frozen=True)
class LeastGate:
    """The smallest gate that can be judged: LEAST_LAUNCHES with the smallest effort.

    The survey may be the first to read the files of a large package from a disk, to compile code or
    to start an accelerator, which takes several times as long as in a launch. So launches are
    estimated by what the survey has computed: no gate is refused that would fit.
    """

    survey_s: float  # from the start of the gate to the end of the survey
    loading_s: float  # CPU time of the side that is loaded faster
    case_seconds: tuple[float, ...]  # of each case in the survey, on the faster side
    at_once: int  # launches at the same time
    shard: Shard

    def seconds(self, case_seconds: Sequence[float] | None = None) -> float:
        """Return how long it takes with these cases, by default with all."""
        kept = self.case_seconds if case_seconds is None else case_seconds
        survey_s = max(0.0, self.survey_s - sum(self.case_seconds)) + sum(kept)
        return survey_s + math.ceil(LEAST_LAUNCHES / self.at_once) * self.launch_s(kept)

    def launch_s(self, case_seconds: Sequence[float]) -> float:
        """Return how long a launch of these cases takes at least."""
        cases_s = sum(max(LEAST_CASE_S, CALLS * seconds) for seconds in case_seconds)
        return self.loading_s + cases_s

    def advice(self, budget_s: float) -> str:
        """Return what makes the cases fit into a budget that is too small: only what helps."""
        increase = f"give --budget {math.ceil(self.seconds())}s"
        shards = self._shards(budget_s)
        ways = [increase, f"use --shard 1/{shards}"] if shards else [increase]
        if len(self.case_seconds) > 1 and self.seconds([min(self.case_seconds)]) <= budget_s:
            ways.append("select fewer tests with -k")
        return " or ".join(ways) if len(ways) < 3 else f"{', '.join(ways[:-1])}, or {ways[-1]}"

    def _shards(self, budget_s: float) -> int:
        """Return the fewest shards of which each fits, also the one with the longest cases.

        0 if no number helps.
        """
        longest_first = sorted(self.case_seconds, reverse=True)
        tests = len(self.shard.tests) or len(longest_first)
        for shards in range(self.shard.of + 1, min(tests, MOST_SHARDS) + 1):
            if self.seconds(longest_first[: math.ceil(tests / shards)]) <= budget_s:
                return shards
        return 0


# ---- After the first launches --------------------------------------------------------------------


def are_enough(quantities: Sequence[Quantity], limits: Thresholds, shards: int = 1) -> bool:
    """Return whether the launches so far bound all quantities by their limits, if none has changed.

    The estimates themselves must not decide that: who stops when they are small gets bounds that
    are too small. ROOM stands for them, or FOUND_ROOM, so that a slowdown of the limit is found.
    """
    launches = len(quantities[0].logs) if quantities else 0
    return all(
        (half_width + _room(quantity, limits) / math.sqrt(launches)) * _spread(quantity)
        <= math.log1p(limits.of(quantity))
        for quantity, half_width in _bounded(quantities, shards, launches)
    )


def _room(quantity: Quantity, limits: Thresholds) -> float:
    """Return the standard errors that have to fit below a limit besides the bound."""
    return FOUND_ROOM if _is_below_full(quantity, limits) else ROOM


def _is_below_full(quantity: Quantity, limits: Thresholds) -> bool:
    """Whether it is the median of a case whose limit is below FULL_CASE."""
    return quantity.kind == ITERATION and limits.is_below_full


def planned_launches(quantities: Sequence[Quantity], limits: Thresholds, shards: int = 1) -> int:
    """Return the number of launches with which all quantities reach their limits.

    So that they are bounded by them if nothing has changed, and cases with limits below FULL_CASE
    are found if they are slower by that. Those count that can with MOST_LAUNCHES, or with
    MOST_LAUNCHES_BELOW_FULL, and whose sides do not differ by more than the limit anyway;
    ``shards`` is the number of machines whose bounds are simultaneous.
    """
    needed = [len(quantities[0].logs)] if quantities else [0]
    for quantity, half_width in _bounded(quantities, shards, LAUNCHES):
        limit = limits.of(quantity)
        if _differs_by_more(quantity, half_width, limit):
            continue
        errors = _spread(quantity) / math.log1p(limit)
        is_below_full = _is_below_full(quantity, limits)
        most = MOST_LAUNCHES_BELOW_FULL if is_below_full else MOST_LAUNCHES
        room = FOUND_ROOM / math.sqrt(LAUNCHES) if is_below_full else 0.0
        if LAUNCHES * (half_width * errors) ** 2 <= most:  # not if it is not finite
            number = math.ceil(LAUNCHES * ((half_width + room) * errors) ** 2)
            least = LEAST_LAUNCHES_BELOW_FULL if is_below_full else 0
            needed.append(max(least, min(most, number)))
    return max(needed)


def _differs_by_more(quantity: Quantity, half_width: float, limit: float) -> bool:
    """Whether one side is faster by more than the limit, whichever it is.

    Then a slowdown is ruled out or found already. Absolute differences that are far from 0 have the
    SD of the differences.
    """
    sizes = np.abs(quantity.logs)
    return bool(sizes.mean() - half_width * sizes.std(ddof=1) > math.log1p(limit))


def _spread(quantity: Quantity) -> float:
    """Return the SD of a quantity over launches, from that of absolute differences.

    sqrt(1 - 2 / pi) of it if normal.
    """
    return float(np.std(np.abs(quantity.logs), ddof=1)) / math.sqrt(1 - 2 / math.pi)


def _bounded(
    quantities: Sequence[Quantity], shards: int, launches: int
) -> list[tuple[Quantity, float]]:
    """Return the quantities that a pass bounds by their thresholds.

    With the half-width of the bound after so many launches if the spread is 1.
    """
    cases = [quantity for quantity in quantities if quantity.kind == ITERATION]
    operations = [
        quantity
        for quantity in quantities
        if quantity.kind == OPERATION and quantity.share >= LARGE_SHARE
    ]
    return [
        (quantity, _half_width(min(MOST_ROWS, 2 * len(family) * shards), launches))
        for family in (cases, operations)
        for quantity in family
    ]


@functools.cache
def _half_width(rows: int, launches: int) -> float:
    """Return the half-width of the simultaneous upper bound of independent N(0, 1) quantities.

    By simulation; ``rows`` is their number.
    """
    logs = np.random.default_rng(1).normal(size=(rows, launches))
    _, high = simultaneous_bounds(logs, 1)
    return float(np.median(high - logs.mean(axis=1)))


# ---- While it is measured ------------------------------------------------------------------------


@dataclass
class Budget:
    """When the launches of a gate have to end, and what they have taken so far."""

    began: float  # time of the clock, seconds
    budget_s: float | None  # None: no limit
    now: Callable[[], float]  # reads the clock
    limits: Thresholds = field(default_factory=Thresholds)  # of the gate
    shards: int = 1  # number of machines that measure the gate
    loading_s: float = 0.0  # of the survey
    at_once: int = 1  # launches of a round
    first_round_s: float = 0.0  # that the first round takes at least
    # Stage -> seconds of each of its rounds.
    rounds_s: Mapping[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    # Of each launch of the first stage, by case.
    spent: list[Mapping[str, Spent]] = field(default_factory=list)

    @property
    def deadline(self) -> float:
        """When all launches have to end."""
        return self.began + (math.inf if self.budget_s is None else self.budget_s)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - self.now())

    def mean_round_s(self, stage: int) -> float:
        """Return the mean duration of the rounds of a stage so far, in seconds."""
        return statistics.fmean(self.rounds_s[stage])

    def rounds(self, launches: int) -> int:
        """Return the number of rounds of so many launches."""
        return math.ceil(launches / self.at_once)

    def deadline_of_first_stage(self, cases: int) -> float:
        """Return when the launches of the first stage have to end: fresh ones need a share."""
        share = max(LEAST_FRESH_SHARE, FRESH_SHARE * min(1.0, FEW_CASES / cases))
        return self.now() + (1 - share) * self.left_s if math.isfinite(self.left_s) else math.inf

    def latest_start_of_a_saving_launch(self, launches: int, round_s: float) -> float:
        """Return until when another launch of the first stage may end to save fresh ones.

        After 8 or 9 launches a confirmation needs 8 fresh ones, after 10 only 4. 0 if it saves
        none.
        """
        fewest = min(looks(self.limits, self.shards))
        if least_fresh(launches, self.limits, self.shards) <= fewest:
            return 0.0
        return self.deadline - round_s * self.rounds(fewest)

    def first_look(self, launches: int, round_s: float) -> int:
        """Return how many fresh launches are made before they are judged for the first time.

        The fewest that can confirm a slowdown after ``launches`` of the first stage, or more if
        they are cheap. Four confirm a slowdown and say little about its size: of a true +10 % they
        said +0.0 % to +31.4 %. All launches of a look are made whatever they show.

        Which looks are left out may follow from anything that is known before the first fresh
        launch, also from what the first stage has found: each look has a level of its own, so fewer
        looks make false alarms rarer.
        """
        least = least_fresh(launches, self.limits, self.shards)
        cheap_s = max(CHEAP_FRESH_S, CHEAP_FRESH_SHARE * (self.now() - self.began))
        allowed_s = min(cheap_s, self.left_s)
        return max(
            look
            for look in looks(self.limits, self.shards)
            if look == least or (look > least and self.rounds(look) * round_s <= allowed_s)
        )

    def round_s(self, cases: Collection[str], efforts: Efforts) -> float:
        """Return the expected seconds of a round of launches with these cases and efforts.

        From those of the first stage so far.
        """
        starts_s = statistics.fmean(self.rounds_s[FIRST_STAGE]) - statistics.fmean(
            sum(spent.seconds for spent in launch.values()) for launch in self.spent
        )
        cases_s = 0.0
        for case in cases:
            launches = [launch[case] for launch in self.spent if case in launch]
            if launches:
                cases_s += statistics.fmean(_seconds_with(spent, efforts) for spent in launches)
        return starts_s + cases_s

    def efforts_that_fit(
        self, cases: Collection[str], efforts: Efforts, launches: int, deadline: float
    ) -> Efforts:
        """Return efforts with which so many more launches end in time.

        At most the given ones; smaller by the same factor if they would take too long.
        """
        left_s = deadline - self.now()
        smaller = efforts
        factor = 1.0
        while (
            self.rounds(launches) * self.round_s(cases, smaller) > left_s and factor > LEAST_EFFORT
        ):
            factor *= _SHORTER
            smaller = Efforts(*(max(LEAST_EFFORT, factor * effort) for effort in efforts))
        return smaller

    def parts_s(self) -> dict[str, float]:
        """Return what the time went to; launches at the same time count once."""
        launches_s = [sum(spent.seconds for spent in launch.values()) for launch in self.spent]
        cases_s = sum(launches_s) / self.at_once
        return {
            "survey": round(self.loading_s, 3),
            "starts and fixtures": round(sum(self.rounds_s[FIRST_STAGE]) - cases_s, 3),
            "cases": round(cases_s, 3),
            "fresh launches": round(sum(self.rounds_s[FRESH_STAGE]), 3),
        }


def _seconds_with(spent: Spent, efforts: Efforts) -> float:
    """Return the expected seconds of a case with other efforts."""
    used_timed, used_profiled = spent.efforts
    parts = (
        (spent.timed_s, efforts.timed, used_timed),
        (spent.profiled_s, efforts.profiled, used_profiled),
    )
    changed_s = sum(part_s * (effort / used - 1) for part_s, effort, used in parts if used)
    return max(spent.seconds + changed_s, spent.seconds - spent.timed_s - spent.profiled_s)
