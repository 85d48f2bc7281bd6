"""The time of a gate: what its launches take, how many there are, and how much each measures.

An effort is a factor of the numbers in ``gate.iterations``. All cases have the same one, which
follows from the thresholds; with a budget it is smaller where the launches would not fit, and the
slowest cases are left out where that is not enough. A bound is the estimate plus a reach: the
spread of a quantity over the launches, times a factor that depends on the numbers of quantities and
launches. So the number of launches follows from the spread of the first ones.

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
from typing import Self

import numpy as np

from mnistbench.core.machine import own_cores
from mnistbench.core.params import CALL
from mnistbench.gate.iterations import BUILDS, calls_s
from mnistbench.gate.launcher import Plan
from mnistbench.gate.listing import ListedCase, Listings
from mnistbench.gate.messages import Efforts, Spent
from mnistbench.gate.options import FULL_CASE, LAUNCHES, LEAST_LAUNCHES, Thresholds
from mnistbench.gate.statistics.permutation import simultaneous_bounds
from mnistbench.gate.statistics.quantities import Quantity
from mnistbench.gate.statistics.raw_samples import FIRST_STAGE, FRESH_STAGE
from mnistbench.gate.verdict.findings import checkpoints, least_fresh
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ITERATION, OPERATION

#: Smallest effort. A launch then spends less than a tenth of a second on a short test.
LEAST_EFFORT = 1 / 32
#: Factor by which efforts become smaller until the launches fit into a budget.
_SHORTER = 0.8

#: Threshold of operations whose launches have the effort 1, as a share.
FULL_OPERATION = 0.025

#: Most launches at the same time, each with a core of its own for each thread. More have not been
#: measured.
MOST_AT_ONCE = 2

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

#: Time that the profile of a case takes at least, in seconds.
_LEAST_PROFILE_S = 3.0
#: Calls of each side in a profile, of which a profiler makes some take several times as long.
_PROFILED_CALLS = 12

#: Share of what the survey lets expect of a launch that quick ones take: the survey calls each test
#: for the first time.
_QUICKER = 0.6

#: A budget that is named is so many times as long as what is expected, because the speed of a
#: machine changes.
_SPARE = 1.25

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


def longest_first_call_s(budget_s: float | None) -> float:
    """Return how long the first call of a case may take at most, in seconds; 0 without a budget.

    Each of the fewest launches makes it on both sides in turn, with MOST_AT_ONCE launches at once.
    """
    if budget_s is None or not math.isfinite(budget_s):
        return 0.0
    return budget_s / (2 * LEAST_LAUNCHES / MOST_AT_ONCE)


def first_efforts(limits: Thresholds) -> Efforts:
    """Return the efforts that reach thresholds on an ordinary machine."""
    shares = (FULL_CASE / limits.case, FULL_OPERATION / limits.operation)
    return Efforts(*(max(LEAST_EFFORT, min(1.0, share**2)) for share in shares))


@dataclass(frozen=True)
class SurveyedCase:
    """What the survey has found out about the time of a case, in seconds."""

    call_s: float  # a call on each side, both together
    build_s: float = 0.0  # what each build takes on both sides besides
    builds: int = 1  # of a launch with the effort 1
    in_blocks: bool = False  # CPU time is measured in blocks, too
    has_operations: bool = False

    def launch_s(self, efforts: Efforts) -> float:
        """Return how long a launch takes for the case."""
        calls_of_build_s = calls_s(
            self.call_s / 2, efforts, in_blocks=self.in_blocks, is_profiled=self.has_operations
        )
        return max(LEAST_CASE_S, self.builds * (self.build_s + 2 * calls_of_build_s))


@dataclass(frozen=True)
class SurveyedTimes:
    """What launches are expected to take before there is one, by the times of the survey.

    The survey may be the first to read the files of a large package from a disk, to compile code or
    to start an accelerator, which takes several times as long as in a launch. So a start counts
    with what the survey has computed until it had collected the tests.
    """

    start_s: float = 0.0
    cases: Mapping[str, SurveyedCase] = field(default_factory=dict)  # by node id

    @classmethod
    def of(cls, plan: Plan, sides: Listings) -> Self:
        """Return the times of the cases that are to be measured."""
        listings = (sides.base, sides.head)
        return cls(
            start_s=max(listing.loading_s for listing in listings),
            cases={
                case: _surveyed_case(
                    [listing.cases[case] for listing in listings],
                    has_one_thread=sides.threads_of(case) == {1} and case not in plan.parallel,
                    has_operations=bool(plan.frameworks),
                )
                for case in sides.common
            },
        )


def _surveyed_case(
    of_sides: Sequence[ListedCase], *, has_one_thread: bool, has_operations: bool
) -> SurveyedCase:
    is_plain = all(listed.params.get("phase") == CALL for listed in of_sides)
    is_on_cpu = all(listed.params["device"] == "cpu" for listed in of_sides)
    # The survey counts two calls of a plain test; it builds a case of a workload and calls it.
    seconds = sum(listed.seconds for listed in of_sides)
    looks_s = sum(listed.look_ns for listed in of_sides) / 1e9
    return SurveyedCase(
        call_s=looks_s or seconds / 2,
        build_s=sum(listed.setup_s for listed in of_sides) if is_plain else seconds,
        builds=1 if is_plain else BUILDS,
        in_blocks=has_one_thread and is_on_cpu and bool(own_cores()),
        has_operations=has_operations,
    )


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
    prepared_s: float = 0.0  # from the start of the gate to the first launch
    survey_s: float = 0.0  # of these seconds those of the survey
    at_once: int = 1  # launches of a round
    surveyed: SurveyedTimes = field(default_factory=SurveyedTimes)
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
        kept_share = 1 - _fresh_share(cases)
        return self.now() + kept_share * self.left_s if math.isfinite(self.left_s) else math.inf

    def latest_start_of_a_saving_launch(self, launches: int, round_s: float) -> float:
        """Return until when another launch of the first stage may end to save fresh ones.

        After 8 or 9 launches a confirmation needs 8 fresh ones, after 10 only 4. 0 if it saves
        none.
        """
        fewest = min(checkpoints(self.limits, self.shards))
        if least_fresh(launches, self.limits, self.shards) <= fewest:
            return 0.0
        return self.deadline - round_s * self.rounds(fewest)

    def first_checkpoint(self, launches: int, round_s: float, kept_s: float = 0.0) -> int:
        """Return how many fresh launches are made before they are judged for the first time.

        The fewest that can confirm a slowdown after ``launches`` of the first stage, or more if
        they are cheap. Four confirm a slowdown and say little about its size: of a true +10 % they
        said +0.0 % to +31.4 %. All launches up to a checkpoint are made whatever they show. What
        follows them needs ``kept_s`` seconds.

        Which checkpoints are left out may follow from anything that is known before the first fresh
        launch, also from what the first stage has found: each checkpoint has a level of its own, so
        fewer checkpoints make false alarms rarer.
        """
        least = least_fresh(launches, self.limits, self.shards)
        cheap_s = max(CHEAP_FRESH_S, CHEAP_FRESH_SHARE * (self.now() - self.began))
        allowed_s = min(cheap_s, self.left_s - kept_s)
        return max(
            checkpoint
            for checkpoint in checkpoints(self.limits, self.shards)
            if checkpoint == least
            or (checkpoint > least and self.rounds(checkpoint) * round_s <= allowed_s)
        )

    @property
    def start_s(self) -> float:
        """Seconds of a round without those of its cases: processes, imports and collection."""
        if not self.spent:
            return self.surveyed.start_s
        return statistics.fmean(self.rounds_s[FIRST_STAGE]) - statistics.fmean(
            sum(spent.seconds for spent in launch.values()) for launch in self.spent
        )

    def case_s(self, case: str, efforts: Efforts) -> float:
        """Return the expected seconds of a case in a launch with these efforts."""
        launches = [launch[case] for launch in self.spent if case in launch]
        if launches:
            return statistics.fmean(_seconds_with(spent, efforts) for spent in launches)
        surveyed = self.surveyed.cases.get(case)
        return surveyed.launch_s(efforts) if surveyed else 0.0

    def round_s(self, cases: Collection[str], efforts: Efforts) -> float:
        """Return the expected seconds of a round of launches with these cases and efforts."""
        return self.start_s + sum(self.case_s(case, efforts) for case in cases)

    def profile_s(self, cases: Collection[str]) -> float:
        """Return the expected seconds of a profile of these cases, for their likely causes."""
        calls_of_cases_s = (
            self.surveyed.cases[case].call_s if case in self.surveyed.cases else 0.0
            for case in cases
        )
        return self.start_s + sum(
            max(_LEAST_PROFILE_S, _PROFILED_CALLS * call_s) for call_s in calls_of_cases_s
        )

    def efforts_that_fit(
        self, cases: Collection[str], efforts: Efforts, launches: int, deadline: float
    ) -> Efforts:
        """Return efforts with which so many more launches end in time.

        At most the given ones; smaller by the same factor if they would take too long.
        """
        smaller = efforts
        factor = 1.0
        while (
            not self._ends_in_time(launches, self.round_s(cases, smaller), deadline)
            and factor > LEAST_EFFORT
        ):
            factor *= _SHORTER
            smaller = Efforts(*(max(LEAST_EFFORT, factor * effort) for effort in efforts))
        return smaller

    def cases_that_fit(
        self,
        cases: Sequence[str],
        efforts: Efforts,
        launches: int,
        deadline: float,
        *,
        taken_share: float = 1.0,
    ) -> list[str]:
        """Return the cases of which so many more launches fit into the budget; none if none do.

        All cases if they fit. Otherwise the gate cannot pass anyway, so that the slowest are left
        out until the others end before ``deadline``, which leaves them time for fresh launches; a
        single case needs none. Launches take ``taken_share`` of what is expected of them.
        """
        seconds = {case: taken_share * self.case_s(case, efforts) for case in cases}
        round_s = taken_share * self.start_s + sum(seconds.values())
        if self._ends_in_time(launches, round_s, self.deadline):
            return list(cases)
        quickest_first = sorted(cases, key=seconds.__getitem__)
        while len(quickest_first) > 1 and not self._ends_in_time(launches, round_s, deadline):
            round_s -= seconds[quickest_first.pop()]
        if not self._ends_in_time(launches, round_s, self.deadline):
            return []
        kept = {*quickest_first}
        return [case for case in cases if case in kept]

    def cases_to_try(
        self,
        cases: Sequence[str],
        kept: Collection[str],
        efforts: Efforts,
        launches: int,
        deadline: float,
    ) -> list[str]:
        """Return the cases that the first round measures beside those that are kept.

        They fit if launches are quicker than the survey lets expect. What the round takes decides
        which of them the next ones measure. All rounds of the kept cases end before ``deadline``
        even if that is none.
        """
        shortest = Efforts(LEAST_EFFORT, LEAST_EFFORT)
        hoped = self.cases_that_fit(cases, shortest, launches, deadline, taken_share=_QUICKER)
        candidates = [case for case in hoped if case not in kept]
        kept_round_s = self.round_s(kept, efforts)
        left_s = deadline - self.now() - self.rounds(launches) * kept_round_s
        tried: list[str] = []
        for case in sorted(candidates, key=lambda case: self.case_s(case, efforts)):
            left_s -= self.case_s(case, efforts)
            if left_s < 0:
                break
            tried.append(case)
        return tried

    def _ends_in_time(self, launches: int, round_s: float, deadline: float) -> bool:
        """Whether so many more launches end in time if a round of them takes ``round_s``."""
        return self.now() + self.rounds(launches) * round_s <= deadline

    def sufficient_s(
        self, cases: Sequence[str], again: Collection[str], efforts: Efforts, launches: int
    ) -> float:
        """Return a budget that is expected to be enough for all launches, in seconds.

        Args:
            cases: all of the gate.
            again: those that fresh launches measure; if none is flagged, the slowest ones.
            efforts: of a launch.
            launches: of the first stage.
        """
        slowest = sorted(cases, key=lambda case: -self.case_s(case, efforts))
        again = again or slowest[:FEW_CASES]
        first_s = self.rounds(launches) * self.round_s(cases, efforts)
        most_fresh = max(checkpoints(self.limits, self.shards))
        fresh_s = self.rounds(most_fresh) * self.round_s(again, efforts)
        stages_s = max(
            first_s + fresh_s + self.profile_s(again), first_s / (1 - _fresh_share(len(cases)))
        )
        return self.prepared_s + _SPARE * stages_s

    def parts_s(self) -> dict[str, float]:
        """Return what the time went to; launches at the same time count once."""
        launches_s = [sum(spent.seconds for spent in launch.values()) for launch in self.spent]
        cases_s = sum(launches_s) / self.at_once
        return {
            "survey": round(self.survey_s, 3),
            "starts": round(sum(self.rounds_s[FIRST_STAGE]) - cases_s, 3),
            "cases and fixtures": round(cases_s, 3),
            "fresh launches": round(sum(self.rounds_s[FRESH_STAGE]), 3),
        }


def _fresh_share(cases: int) -> float:
    """Return the share of the budget that is reserved for fresh launches."""
    return max(LEAST_FRESH_SHARE, FRESH_SHARE * min(1.0, FEW_CASES / cases))


def _seconds_with(spent: Spent, efforts: Efforts) -> float:
    """Return the expected seconds of a case with other efforts."""
    used_timed, used_profiled = spent.efforts
    parts = (
        (spent.timed_s, efforts.timed, used_timed),
        (spent.profiled_s, efforts.profiled, used_profiled),
    )
    changed_s = sum(part_s * (effort / used - 1) for part_s, effort, used in parts if used)
    return max(spent.seconds + changed_s, spent.seconds - spent.timed_s - spent.profiled_s)
