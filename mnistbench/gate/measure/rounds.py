"""Run rounds of trials, which run at the same time, until a stage has enough of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.machine import available_bytes, own_cores
from mnistbench.gate.listing import Listings, reasons_with_cases
from mnistbench.gate.measure.budget import (
    MAX_AT_ONCE,
    MIN_EFFORT,
    Budget,
    SurveyedTimes,
    first_efforts,
)
from mnistbench.gate.options import TRIALS, GateOptions, budget_text
from mnistbench.gate.processes.messages import ALL_ITERATIONS, Efforts
from mnistbench.gate.processes.starting import GateError, TrialPlan, TrialResult, running_trial
from mnistbench.gate.samples.raw_samples import (
    FIRST_STAGE,
    FRESH_STAGE,
    Recorded,
    Trial,
    append,
)
from mnistbench.showing.progress import Progress

#: From this share of the cases on, those of a first round give its time.
_KNOWN = 0.1


def trials_at_once(plan: TrialPlan, sides: Listings) -> int:
    """Return how many trials run at the same time.

    It is as many as cores and memory allow, at most MAX_AT_ONCE.
    """
    devices = {sides.head.cases[case].params["device"] for case in sides.common}
    if devices != {"cpu"} or plan.parallel.intersection(sides.common):
        return 1
    core_limit = len(own_cores()) // max(max(sides.threads_of(case)) for case in sides.common)
    trial_bytes = sum(sides.resident.values()) + 2 * plan.touched_bytes
    memory_limit = available_bytes() // trial_bytes
    return int(max(1, min(MAX_AT_ONCE, core_limit, memory_limit)))


def efforts_of(
    options: GateOptions, budget: Budget, cases: Sequence[str], min_trials: int
) -> Efforts:
    """Return how much a trial measures if the budget allows it.

    Raises:
        GateError: ``min_trials`` of no case fit into the budget.
    """
    efforts = first_efforts(options)
    least = Efforts(MIN_EFFORT, MIN_EFFORT)
    deadline = budget.deadline_of_first_stage(len(cases))
    fitting = budget.cases_that_fit(cases, least, min_trials, deadline)
    if options.budget_s and not fitting:
        quickest_s = min(budget.round_s([case], least) for case in cases)
        least_s = budget.prepared_s + budget.number_of_rounds(min_trials) * quickest_s
        sufficient_s = budget.sufficient_s(cases, (), efforts, max(TRIALS, min_trials))
        raise GateError(
            f"no case fits into --budget {options.budget_s:g}s: the survey and {min_trials} "
            f"trials, the fewest that can be judged, of the quickest case take about "
            f"{least_s:.0f} s; "
            f"--budget {budget_text(sufficient_s)} is expected to be enough for all cases"
        )
    return efforts


def with_slow_compilations(
    plan: TrialPlan,
    sides: Listings,
    budget: Budget,
    efforts: Efforts,
    trials: int,
    threshold: float,
) -> TrialPlan:
    """Return a plan that compiles anew, in each trial, what the survey of the head compiled slowly.

    One compilation of each side cannot tell a slowdown from noise. If more of them do not fit into
    the budget, there are none.

    Args:
        plan: of the trials, without compilations.
        sides: that were surveyed.
        budget: of the gate; gets the time of the compilations.
        efforts: of a trial.
        trials: of the first stage.
        threshold: smallest slowdown that matters, as a share.
    """
    usual = budget.surveyed
    compiling = replace(plan, compiled_anew=sides.slower_to_compile(threshold))
    budget.surveyed = SurveyedTimes.of(compiling, sides)
    if budget.is_sufficient(sides.common, efforts, trials):
        return compiling
    budget.surveyed = usual
    return plan


@dataclass(frozen=True)
class Stage:
    """Trials of one purpose."""

    number: int  # FIRST_STAGE or FRESH_STAGE
    trials: int  # wanted, with those that the stage already has
    min_trials: int  # fewest that can be judged, or confirm a slowdown
    cases: Sequence[str]  # node ids of the cases to measure
    # Time of the clock, in seconds, until when all but the fewest have to end.
    deadline: float
    leaves_out: bool = False  # the slowest cases, if the fewest trials of all do not fit


@dataclass
class Rounds:
    """The rounds of a gate."""

    plan: TrialPlan
    budget: Budget
    recorded: Recorded  # receives the trials
    log: Path
    progress: Progress
    seed: int
    wanted: Efforts = ALL_ITERATIONS  # of each trial, if the budget allows them
    # Node id of a case that a trial did not find again -> why.
    _unmeasurable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the efforts that are wanted."""
        self._efforts = self.wanted  # of the next trial

    def run(self, stage: Stage) -> str:
        """Run trials until the stage has enough, or the next would exceed its deadline.

        Returns:
            Why there are too few trials to be judged; empty if there are enough.

        Raises:
            GateError: a side cannot be measured.
        """
        while (done := self.recorded.number_of_trials(stage.number)) < stage.trials:
            if stage.number == FIRST_STAGE:
                self._fit_into_budget(stage, done)
            round_s = self._next_round_s(stage)
            deadline = self._deadline(stage, done, round_s)
            if self.budget.now() + round_s > deadline:
                fresh = "fresh " if stage.number == FRESH_STAGE else ""
                used_up = f"the budget allowed {done} of {stage.trials} {fresh}trials"
                self.progress.say(used_up)
                return used_up if done < stage.min_trials else ""
            self._run_round(stage, done, round_s)
        return ""

    def expected_round_s(self, cases: Sequence[str]) -> float:
        """Return the expected seconds of a round with these cases."""
        return self.budget.round_s(self._measurable(cases), self._efforts)

    def _measurable(self, cases: Sequence[str]) -> list[str]:
        left_out = {*self._unmeasurable, *self.recorded.end.left_out}
        return [case for case in cases if case not in left_out]

    def _next_round_s(self, stage: Stage) -> float:
        if stage.number == FIRST_STAGE or not self.budget.rounds_s[stage.number]:
            return self.expected_round_s(stage.cases)
        return self.budget.mean_round_s(stage.number)

    def _deadline(self, stage: Stage, done: int, round_s: float) -> float:
        """Return until when the next trial has to end."""
        # To judge: time reserved for fresh trials would be of no use.
        if done < stage.min_trials:
            return self.budget.deadline
        if stage.number != FIRST_STAGE:
            return stage.deadline
        return max(stage.deadline, self.budget.deadline_for_tenth_trial(done, round_s))

    def _fit_into_budget(self, stage: Stage, done: int) -> None:
        """Shorten the next trials if they would not end in time.

        If that is not enough for the fewest, leave out the slowest cases. The first round tries
        those for which there is time if trials are quicker than expected.
        """
        cases = self._measurable(stage.cases)
        trials = stage.trials - done
        round_s = self.budget.round_s(cases, self.wanted)
        deadline = self._deadline(stage, done, round_s)
        efforts = self.budget.efforts_that_fit(cases, self.wanted, trials, deadline)
        if stage.leaves_out and done < stage.min_trials:
            missing = stage.min_trials - done
            kept = self.budget.cases_that_fit(cases, efforts, missing, stage.deadline)
            if kept and len(kept) < len(cases):
                # Without the slowest cases the others may have longer trials.
                efforts = self.budget.efforts_that_fit(kept, self.wanted, trials, stage.deadline)
                tried = (
                    []
                    if done
                    else self.budget.cases_to_try(cases, kept, efforts, missing, stage.deadline)
                )
                too_slow = {*cases}.difference(kept, tried)
                self._leave_out([case for case in cases if case in too_slow])
        self._efforts = efforts

    def _leave_out(self, cases: Sequence[str]) -> None:
        """Remember the cases that the budget does not allow to measure."""
        if not cases:
            return
        end = self.recorded.end
        self.recorded.end = replace(end, left_out=(*end.left_out, *cases))
        names = [self.recorded.header.names[case] for case in cases]
        self.progress.say(f"the budget leaves no time for {units.and_so_on(names)}")

    def _run_round(self, stage: Stage, done: int, round_s: float) -> None:
        """Run trials at the same time, on different cores.

        Raises:
            GateError: a side cannot be measured, or earlier trials have found none of the cases
                again.
        """
        cases = self._measurable(stage.cases)
        if not cases:
            raise GateError(
                "no case is left to be measured: "
                f"{'; '.join(reasons_with_cases(self._unmeasurable))}"
            )
        begins = self._shown_cases(stage, done, round_s)
        count = min(self.budget.at_once, stage.trials - done)
        seeds = [self.seed + len(self.recorded.trials) + number for number in range(1, count + 1)]
        cores = own_cores()
        random.Random(seeds[0]).shuffle(cores)  # noqa: S311  # no secret
        began = self.budget.now()
        with ThreadPoolExecutor() as threads, ExitStack() as running:
            trials = [
                running.enter_context(
                    running_trial(
                        self.plan,
                        seed,
                        cases,
                        self.log.with_name(f"{self.log.name}{slot}"),
                        cores[slot::count],
                        efforts=self._efforts,
                    )
                )
                for slot, seed in enumerate(seeds)
            ]
            for trial in trials:
                trial.ready()
            # The trials of a round measure equally many cases: those of one are shown.
            shown = [begins, *[None] * (count - 1)]
            results = [
                threads.submit(trial.measure, begins_case)
                for trial, begins_case in zip(trials, shown, strict=True)
            ]
            for result in results:
                self._keep(stage, result.result())
        self.budget.rounds_s[stage.number].append(self.budget.now() - began)

    def _keep(self, stage: Stage, result: TrialResult) -> None:
        """Write the samples of a trial.

        Checked before they are written, as a bad line makes the file unreadable.
        """
        line = result.line(stage.number)
        try:
            trial = Trial.from_line(line)
        except RecordError as error:
            raise GateError(f"the result of a trial cannot be used: {error}") from None
        self.recorded.trials.append(trial)
        self._unmeasurable |= trial.unmeasurable
        append(self.recorded.path, line)
        if stage.number == FIRST_STAGE:
            self.budget.spent.append(result.spent)

    def _shown_cases(self, stage: Stage, done: int, round_s: float) -> Callable[[int, int], None]:
        """Show the round; return what shows which case it measures.

        Until a round has ended, the first tenth of the cases gives its time.
        """
        text = f"trial {done + 1} of {stage.trials}"
        rounds = self.budget.number_of_rounds(stage.trials - done)
        is_known = bool(self.budget.rounds_s[stage.number]) or stage.number == FRESH_STAGE
        self.progress.step(text, left_s=round_s * rounds if is_known else None)
        began = self.budget.now()

        def show_case(number: int, of: int) -> None:
            share = (number - 1) / of
            left_s = None
            if is_known:
                left_s = round_s * (rounds - share)
            elif share >= _KNOWN:
                left_s = (self.budget.now() - began) / share * (rounds - share)
            self.progress.step(f"{text}, case {number} of {of}", log="", left_s=left_s)

        return show_case
