"""The time of a gate: what its trials take, how many there are, and how much each measures.

An effort is a factor of the numbers in ``iterations``. All cases have the same one, which
follows from the thresholds; with a budget it is smaller where the trials would not fit, and the
slowest cases are left out where that is not enough. A bound is the estimate plus a half-width: the
spread of a quantity over the trials, times a factor that depends on the numbers of quantities and
trials. So the number of trials follows from the spread of the first ones.

It depends on the samples by the absolute differences of trials alone. These stay the same if the
roles of a trial are exchanged, so the permutation test remains exact whatever is planned.
``docs/evidence/planning.md`` has what each rule saves, and the power that it gives.
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
from mnistbench.gate.decide.statistics.permutation import simultaneous_bounds
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.decide.verdict.findings import checkpoints, least_fresh
from mnistbench.gate.listing import ListedCase, Listings
from mnistbench.gate.options import FULL_CASE, MIN_TRIALS, TRIALS, Thresholds
from mnistbench.gate.processes.iterations import builds_of, calls_s
from mnistbench.gate.processes.messages import Efforts, Spent
from mnistbench.gate.processes.starting import TrialPlan
from mnistbench.gate.samples.raw_samples import FIRST_STAGE, FRESH_STAGE
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ITERATION, OPERATION

#: Smallest effort. A trial then spends less than a tenth of a second on a short test.
MIN_EFFORT = 1 / 32
#: Factor by which efforts become smaller until the trials fit into a budget.
_SHORTER = 0.8

#: Threshold of operations whose trials have the effort 1, as a share.
FULL_OPERATION = 0.025

#: Most trials at the same time, each with a core of its own for each thread. More have not been
#: measured.
MAX_AT_ONCE = 2

#: Most trials of the first stage that are planned.
MAX_TRIALS = 2 * TRIALS

#: Fewest and most trials of the first stage that are planned for thresholds of cases below
#: FULL_CASE, for which trials cannot be longer: a spread of ten trials may be half of the true
#: one.
MIN_TRIALS_BELOW_FULL = 3 * TRIALS
MAX_TRIALS_BELOW_FULL = 6 * TRIALS
#: Standard errors by which a slowdown of such a threshold exceeds the bounds, so that both tests
#: find nine of ten (``docs/evidence/gate_power.py small``; for one test it would be 1.28).
FOUND_ROOM = 3.5

#: Most normal quantities that are drawn to find the half-width of a bound, which grows slowly: with
#: ten times as many by a tenth.
MAX_ROWS = 2_000

#: Least time of a case in a trial with the smallest effort, in seconds.
MIN_CASE_S = 0.1

#: Time that the profile of a case takes at least, in seconds.
_MIN_PROFILE_S = 3.0
#: Calls of each side in a profile, of which a profiler makes some take several times as long.
_PROFILED_CALLS = 12

#: Share of what the survey lets expect of a trial that quick ones take: the survey calls each test
#: for the first time.
_QUICKER = 0.6

#: A budget that is named is so many times as long as what is expected, because the speed of a
#: machine changes.
_SPARE = 1.25

#: Share of the budget that is reserved for fresh trials, with up to FEW_CASES cases.
FRESH_SHARE = 0.4
#: With more cases than this, which are seldom all measured again, the share is smaller in
#: proportion.
FEW_CASES = 4
#: The least share of the budget that is reserved for fresh trials.
MIN_FRESH_SHARE = 0.1


# ---- Before anything is measured -----------------------------------------------------------------


def longest_first_call_s(budget_s: float | None) -> float:
    """Return how long the first call of a case may take at most, in seconds; 0 without a budget.

    Each of the fewest trials makes it on both sides in turn, with MAX_AT_ONCE trials at once.
    """
    if budget_s is None or not math.isfinite(budget_s):
        return 0.0
    return budget_s / (2 * MIN_TRIALS / MAX_AT_ONCE)


def first_efforts(limits: Thresholds) -> Efforts:
    """Return the efforts that reach thresholds on an ordinary machine."""
    shares = (FULL_CASE / limits.case, FULL_OPERATION / limits.operation)
    return Efforts(*(max(MIN_EFFORT, min(1.0, share**2)) for share in shares))


@dataclass(frozen=True)
class SurveyedCase:
    """What the survey has found out about the time of a case, in seconds."""

    call_s: float  # a call on each side, both together
    build_s: float = 0.0  # what each build takes on both sides besides
    builds: int = 1  # of a trial with the effort 1
    in_blocks: bool = False  # CPU time is measured in blocks, too
    has_operations: bool = False

    def trial_s(self, efforts: Efforts) -> float:
        """Return how long a trial takes for the case."""
        calls_of_build_s = calls_s(
            self.call_s / 2, efforts, in_blocks=self.in_blocks, is_profiled=self.has_operations
        )
        return max(MIN_CASE_S, self.builds * (self.build_s + 2 * calls_of_build_s))


@dataclass(frozen=True)
class SurveyedTimes:
    """What trials are expected to take before there is one, by the times of the survey.

    The survey may be the first to read the files of a large package from a disk, to compile code or
    to start an accelerator, which takes several times as long as in a trial. So a start counts
    with what the survey has computed until it had collected the tests.
    """

    start_s: float = 0.0
    cases: Mapping[str, SurveyedCase] = field(default_factory=dict)  # by node id

    @classmethod
    def of(cls, plan: TrialPlan, sides: Listings) -> Self:
        """Return the times of the cases that are to be measured."""
        listings = (sides.base, sides.head)
        return cls(
            start_s=max(listing.loading_s for listing in listings),
            cases={
                case: _surveyed_case(
                    [listing.cases[case] for listing in listings],
                    has_one_thread=sides.threads_of(case) == {1} and case not in plan.parallel,
                    has_operations=bool(plan.frameworks),
                    is_compiled_anew=case in plan.compiled_anew,
                )
                for case in sides.common
            },
        )


def _surveyed_case(
    of_sides: Sequence[ListedCase],
    *,
    has_one_thread: bool,
    has_operations: bool,
    is_compiled_anew: bool,
) -> SurveyedCase:
    is_plain = all(listed.params.get("phase") == CALL for listed in of_sides)
    is_compiled = any(listed.params.get("compile") for listed in of_sides)
    is_on_cpu = all(listed.params["device"] == "cpu" for listed in of_sides)
    # The survey counts two calls of a plain test; it builds a case of a workload and calls it.
    seconds = sum(listed.seconds for listed in of_sides)
    looks_s = sum(listed.look_ns for listed in of_sides) / 1e9
    compile_s = sum(listed.compile_ns for listed in of_sides) / 1e9 if is_compiled_anew else 0.0
    return SurveyedCase(
        call_s=looks_s or seconds / 2,
        build_s=compile_s + (sum(listed.setup_s for listed in of_sides) if is_plain else seconds),
        builds=builds_of(is_plain=is_plain, is_compiled=is_compiled),
        in_blocks=has_one_thread and is_on_cpu and bool(own_cores()),
        has_operations=has_operations,
    )


# ---- After the first trials --------------------------------------------------------------------


def planned_trials(quantities: Sequence[Quantity], limits: Thresholds, shards: int = 1) -> int:
    """Return the number of trials of the first stage: TRIALS, or more where they help.

    So many that all quantities that a pass bounds get bounds below their limits if nothing has
    changed. Quantities that would need too many do not count.

    Args:
        quantities: of the first TRIALS.
        limits: the thresholds.
        shards: number of machines whose bounds are simultaneous.
    """
    cases = [quantity for quantity in quantities if quantity.kind == ITERATION]
    operations = [
        quantity
        for quantity in quantities
        if quantity.kind == OPERATION and quantity.share >= LARGE_SHARE
    ]
    of_cases = _trials_of(cases, limits, shards, is_below_full=limits.is_below_full)
    of_operations = _trials_of(operations, limits, shards, is_below_full=False)
    return max([TRIALS, *of_cases, *of_operations])


def _trials_of(
    family: Sequence[Quantity], limits: Thresholds, shards: int, *, is_below_full: bool
) -> list[int]:
    """Return the trials that each quantity needs; 0 if more of them would not help.

    Bounds of a family are simultaneous. Their half-width is a multiple of the SD that falls with
    the square root of the number of trials, so the number follows from what it is after TRIALS.
    With a threshold below FULL_CASE a slowdown as large as that has to be found, too, and not only
    ruled out.
    """
    if not family:
        return []
    half_width = half_width_of(min(MAX_ROWS, 2 * len(family) * shards))
    most = MAX_TRIALS_BELOW_FULL if is_below_full else MAX_TRIALS
    trials = []
    for quantity in family:
        limit = limits.of(quantity)
        errors = spread(quantity) / math.log1p(limit)
        pass_limit = TRIALS * (half_width * errors) ** 2
        can_be_ruled_out = pass_limit <= most  # not if it is not finite
        if not can_be_ruled_out or differs_by_more(quantity, half_width, limit):
            trials.append(0)
        elif is_below_full:
            to_find = TRIALS * ((half_width + FOUND_ROOM / math.sqrt(TRIALS)) * errors) ** 2
            trials.append(max(MIN_TRIALS_BELOW_FULL, min(most, math.ceil(to_find))))
        else:
            trials.append(math.ceil(pass_limit))
    return trials


def differs_by_more(quantity: Quantity, half_width: float, limit: float) -> bool:
    """Whether one side is faster by more than the limit, whichever it is.

    Then a slowdown is ruled out or found already. Absolute differences that are far from 0 have the
    SD of the differences.
    """
    sizes = np.abs(quantity.logs)
    return bool(sizes.mean() - half_width * sizes.std(ddof=1) > math.log1p(limit))


def spread(quantity: Quantity) -> float:
    """Return the SD of a quantity over trials.

    It is that of absolute differences divided by sqrt(1 - 2 / pi), as for normal differences.
    """
    return float(np.std(np.abs(quantity.logs), ddof=1)) / math.sqrt(1 - 2 / math.pi)


@functools.cache
def half_width_of(rows: int, trials: int = TRIALS) -> float:
    """Return how far simultaneous upper bounds are above their estimates, if all SDs are 1.

    There is no formula, so it is the median over so many rows of ``trials`` normal numbers.
    """
    logs = np.random.default_rng(1).normal(size=(rows, trials))
    _, high = simultaneous_bounds(logs, 1)
    return float(np.median(high - logs.mean(axis=1)))


# ---- While it is measured ------------------------------------------------------------------------


@dataclass
class Budget:
    """When the trials of a gate have to end, and what they have taken so far."""

    began: float  # time of the clock, seconds
    budget_s: float | None  # None: no limit
    now: Callable[[], float]  # reads the clock
    limits: Thresholds = field(default_factory=Thresholds)  # of the gate
    shards: int = 1  # number of machines that measure the gate
    prepared_s: float = 0.0  # from the start of the gate to the first trial
    survey_s: float = 0.0  # of these seconds those of the survey
    at_once: int = 1  # trials of a round
    surveyed: SurveyedTimes = field(default_factory=SurveyedTimes)
    # Stage -> seconds of each of its rounds.
    rounds_s: Mapping[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    # Of each trial of the first stage, by case.
    spent: list[Mapping[str, Spent]] = field(default_factory=list)

    @property
    def deadline(self) -> float:
        """When all trials have to end."""
        return self.began + (math.inf if self.budget_s is None else self.budget_s)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - self.now())

    def mean_round_s(self, stage: int) -> float:
        """Return the mean duration of the rounds of a stage so far, in seconds."""
        return statistics.fmean(self.rounds_s[stage])

    def number_of_rounds(self, trials: int) -> int:
        """Return the number of rounds of so many trials."""
        return math.ceil(trials / self.at_once)

    def deadline_of_first_stage(self, cases: int) -> float:
        """Return when the trials of the first stage have to end: fresh ones need a share."""
        kept_share = 1 - _fresh_share(cases)
        return self.now() + kept_share * self.left_s if math.isfinite(self.left_s) else math.inf

    def deadline_for_tenth_trial(self, trials: int, round_s: float) -> float:
        """Return until when another trial of the first stage may end after 8 or 9 of them.

        A confirmation needs 8 fresh trials after 8 or 9, and only 4 after 10. So another trial
        is worth its time as long as 4 fit behind it. 0 if ``trials`` are 10 or more.
        """
        fewest = checkpoints(self.limits, self.shards)[0]
        if least_fresh(trials, self.limits, self.shards) <= fewest:
            return 0.0
        return self.deadline - round_s * self.number_of_rounds(fewest)

    @property
    def start_s(self) -> float:
        """Seconds of a round without those of its cases: processes, imports and collection."""
        if not self.spent:
            return self.surveyed.start_s
        return self.mean_round_s(FIRST_STAGE) - statistics.fmean(
            sum(spent.seconds for spent in trial.values()) for trial in self.spent
        )

    def case_s(self, case: str, efforts: Efforts) -> float:
        """Return the expected seconds of a case in a trial with these efforts."""
        trials = [trial[case] for trial in self.spent if case in trial]
        if trials:
            return statistics.fmean(_seconds_with(spent, efforts) for spent in trials)
        surveyed = self.surveyed.cases.get(case)
        return surveyed.trial_s(efforts) if surveyed else 0.0

    def round_s(self, cases: Collection[str], efforts: Efforts) -> float:
        """Return the expected seconds of a round of trials with these cases and efforts."""
        return self.start_s + sum(self.case_s(case, efforts) for case in cases)

    def profile_s(self, cases: Collection[str]) -> float:
        """Return the expected seconds of a profile of these cases, for their likely causes."""
        calls_of_cases_s = (
            self.surveyed.cases[case].call_s if case in self.surveyed.cases else 0.0
            for case in cases
        )
        return self.start_s + sum(
            max(_MIN_PROFILE_S, _PROFILED_CALLS * call_s) for call_s in calls_of_cases_s
        )

    def efforts_that_fit(
        self, cases: Collection[str], efforts: Efforts, trials: int, deadline: float
    ) -> Efforts:
        """Return efforts with which so many more trials end in time.

        At most the given ones; smaller by the same factor if they would take too long.
        """
        smaller = efforts
        factor = 1.0
        while (
            not self._ends_in_time(trials, self.round_s(cases, smaller), deadline)
            and factor > MIN_EFFORT
        ):
            factor *= _SHORTER
            smaller = Efforts(*(max(MIN_EFFORT, factor * effort) for effort in efforts))
        return smaller

    def cases_that_fit(
        self,
        cases: Sequence[str],
        efforts: Efforts,
        trials: int,
        deadline: float,
        *,
        taken_share: float = 1.0,
    ) -> list[str]:
        """Return the cases of which so many more trials fit into the budget; none if none do.

        All cases if they fit. Otherwise the gate cannot pass anyway, so that the slowest are left
        out until the others end before ``deadline``, which leaves them time for fresh trials; a
        single case needs none. Trials take ``taken_share`` of what is expected of them.
        """
        seconds = {case: taken_share * self.case_s(case, efforts) for case in cases}
        round_s = taken_share * self.start_s + sum(seconds.values())
        if self._ends_in_time(trials, round_s, self.deadline):
            return list(cases)
        quickest_first = sorted(cases, key=seconds.__getitem__)
        while len(quickest_first) > 1 and not self._ends_in_time(trials, round_s, deadline):
            round_s -= seconds[quickest_first.pop()]
        if not self._ends_in_time(trials, round_s, self.deadline):
            return []
        kept = {*quickest_first}
        return [case for case in cases if case in kept]

    def cases_to_try(
        self,
        cases: Sequence[str],
        kept: Collection[str],
        efforts: Efforts,
        trials: int,
        deadline: float,
    ) -> list[str]:
        """Return the cases that the first round measures beside those that are kept.

        They fit if trials are quicker than the survey lets expect. What the round takes decides
        which of them the next ones measure. All rounds of the kept cases end before ``deadline``
        even if that is none.
        """
        shortest = Efforts(MIN_EFFORT, MIN_EFFORT)
        hoped = self.cases_that_fit(cases, shortest, trials, deadline, taken_share=_QUICKER)
        candidates = [case for case in hoped if case not in kept]
        kept_round_s = self.round_s(kept, efforts)
        left_s = deadline - self.now() - self.number_of_rounds(trials) * kept_round_s
        tried: list[str] = []
        for case in sorted(candidates, key=lambda case: self.case_s(case, efforts)):
            left_s -= self.case_s(case, efforts)
            if left_s < 0:
                break
            tried.append(case)
        return tried

    def _ends_in_time(self, trials: int, round_s: float, deadline: float) -> bool:
        """Whether so many more trials end in time if a round of them takes ``round_s``."""
        return self.now() + self.number_of_rounds(trials) * round_s <= deadline

    def sufficient_s(
        self, cases: Sequence[str], again: Collection[str], efforts: Efforts, trials: int
    ) -> float:
        """Return a budget that is expected to be enough for all trials, in seconds.

        Args:
            cases: all of the gate.
            again: those that fresh trials measure; if none is flagged, the slowest ones.
            efforts: of a trial.
            trials: of the first stage.
        """
        slowest = sorted(cases, key=lambda case: -self.case_s(case, efforts))
        again = again or slowest[:FEW_CASES]
        first_s = self.number_of_rounds(trials) * self.round_s(cases, efforts)
        most_fresh = max(checkpoints(self.limits, self.shards))
        fresh_s = self.number_of_rounds(most_fresh) * self.round_s(again, efforts)
        stages_s = max(
            first_s + fresh_s + self.profile_s(again), first_s / (1 - _fresh_share(len(cases)))
        )
        return self.prepared_s + _SPARE * stages_s

    def is_sufficient(self, cases: Sequence[str], efforts: Efforts, trials: int) -> bool:
        """Whether the budget is expected to be enough for all trials of all cases."""
        return self.budget_s is None or self.budget_s >= self.sufficient_s(
            cases, (), efforts, trials
        )

    def parts_s(self) -> dict[str, float]:
        """Return what the time went to; trials at the same time count once."""
        trials_s = [sum(spent.seconds for spent in trial.values()) for trial in self.spent]
        cases_s = sum(trials_s) / self.at_once
        return {
            "survey": round(self.survey_s, 3),
            "starts": round(sum(self.rounds_s[FIRST_STAGE]) - cases_s, 3),
            "cases and fixtures": round(cases_s, 3),
            "fresh trials": round(sum(self.rounds_s[FRESH_STAGE]), 3),
        }


def _fresh_share(cases: int) -> float:
    """Return the share of the budget that is reserved for fresh trials."""
    return max(MIN_FRESH_SHARE, FRESH_SHARE * min(1.0, FEW_CASES / cases))


def _seconds_with(spent: Spent, efforts: Efforts) -> float:
    """Return the expected seconds of a case with other efforts."""
    used_timed, used_profiled = spent.efforts
    parts = (
        (spent.timed_s, efforts.timed, used_timed),
        (spent.profiled_s, efforts.profiled, used_profiled),
    )
    changed_s = sum(part_s * (effort / used - 1) for part_s, effort, used in parts if used)
    return max(spent.seconds + changed_s, spent.seconds - spent.timed_s - spent.profiled_s)
