"""Measure the cases of a gate in two stages, until they can be judged.

The first stage measures all cases. Cases that reach a threshold there are measured again, in fresh
trials, which are judged at checkpoints.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mnistbench.gate.decide.statistics.quantities import Quantity, quantities
from mnistbench.gate.decide.verdict.decision import is_settled
from mnistbench.gate.decide.verdict.findings import (
    MIN_FRESH_OF_IMPROVEMENT,
    GateFinding,
    by_size,
    checkpoints_after,
)
from mnistbench.gate.decide.verdict.verdict import Verdict, conclude
from mnistbench.gate.measure.budget import FEW_CASES, first_efforts, planned_trials
from mnistbench.gate.measure.rounds import Rounds, Stage
from mnistbench.gate.options import MIN_TRIALS, TRIALS, GateOptions
from mnistbench.gate.samples.raw_samples import FIRST_STAGE, FRESH_STAGE, End
from mnistbench.gate.words import ALL_CASES
from mnistbench.judging.kinds import MEMORY

#: Most cases for whose likely causes fresh trials leave time.
MAX_CAUSES = 3


@dataclass
class TwoStages:
    """Both stages of a gate."""

    _rounds: Rounds
    _options: GateOptions
    _newest: Verdict | None = None  # of the trials when it was last asked for

    def measure(self, cases: Sequence[str]) -> End:
        """Measure the cases in both stages; return whether the budget has ended them early."""
        end = self._measure_stages(cases)
        return replace(end, sufficient_s=self._sufficient_s())

    def verdict(self) -> Verdict:
        """Return the verdict of the trials so far, which are judged once."""
        trials = self._rounds.recorded.trials
        if self._newest is None or len(self._newest.recorded.trials) < len(trials):
            self._newest = conclude(self._rounds.recorded, self._options)
        return self._newest

    def _measure_stages(self, cases: Sequence[str]) -> End:
        stage = Stage(
            FIRST_STAGE,
            self._options.trials,
            MIN_TRIALS,
            cases,
            self._rounds.budget.deadline_of_first_stage(len(cases)),
            leaves_out=True,
        )
        if cut_short := self._rounds.run(stage):
            return End(cut_short)
        if self._plans_trials and len(self._rounds.recorded.trials) == TRIALS:
            self._make_more_trials(stage)
        findings = self.verdict().decision.findings
        if not findings:
            return End()
        return self._measure_again(findings, cases)

    @property
    def _plans_trials(self) -> bool:
        """Whether the number of trials of the first stage is not given."""
        return "trials" not in self._options.given_fields and self._options.trials == TRIALS

    def _make_more_trials(self, stage: Stage) -> None:
        """Make more trials if that brings bounds below their limits."""
        needed = planned_trials(self._quantities(), self._options, self._options.shard.of)
        self._rounds.run(replace(stage, trials=needed))

    def _quantities(self) -> Sequence[Quantity]:
        return quantities(self._rounds.recorded.trials)

    def _sufficient_s(self) -> float:
        """Return a budget that is expected to be enough for all trials, in seconds.

        0 if the gate has none.
        """
        budget = self._rounds.budget
        cases = self._rounds.recorded.header.sides.common
        if self._options.budget_s is None:
            return 0.0
        trials = self._options.trials
        can_be_judged = len(self._rounds.recorded.trials) >= MIN_TRIALS
        if can_be_judged and self._plans_trials:
            trials = planned_trials(self._quantities(), self._options, self._options.shard.of)
        findings = self.verdict().decision.findings if can_be_judged else ()
        flagged = self._flagged_cases(findings, cases) if findings else ()
        efforts = first_efforts(self._options)
        return budget.sufficient_s(cases, flagged, efforts, max(trials, TRIALS))

    def _flagged_cases(
        self, findings: Sequence[GateFinding], cases: Sequence[str]
    ) -> Sequence[str]:
        """Return the cases to measure again, those of the surest findings first.

        For a cost of the process, return the cases that cause it.
        """
        kinds_of_process = {
            finding.quantity.kind for finding in findings if finding.quantity.case == ALL_CASES
        }
        # Its memory is measured with the first case, other costs of the process come from all.
        if kinds_of_process - {MEMORY}:
            return cases
        ranked = sorted(findings, key=lambda finding: (finding.screened.p, by_size(finding)))
        flagged = dict.fromkeys(finding.quantity.case for finding in ranked)
        measured = {*cases}
        return [case for case in flagged if case in measured] or cases[:FEW_CASES]

    def _measure_again(self, findings: Sequence[GateFinding], cases: Sequence[str]) -> End:
        """Measure flagged cases again, until a checkpoint decides or the budget is used up.

        The budget has to allow for a checkpoint of at least one case, and for the profile of its
        functions. If no case is slower, the gate is settled whatever fresh trials show.
        """
        budget = self._rounds.budget
        shards = self._options.shard.of
        first_trials = self._rounds.recorded.number_of_trials(FIRST_STAGE)
        slower = [finding for finding in findings if finding.screened.change > 0]
        checkpoints_left = checkpoints_after(first_trials, self._options, shards)
        least_of_faster = next(
            checkpoint for checkpoint in checkpoints_left if checkpoint >= MIN_FRESH_OF_IMPROVEMENT
        )
        least = checkpoints_left[0] if slower else least_of_faster
        flagged = self._flagged_cases(findings, cases)
        if slower and budget.left_s < self._fresh_s(flagged, least_of_faster):
            flagged = self._flagged_cases(slower, cases)
        fitting = self._affordable(flagged, least)
        if not fitting:
            needed_s = self._fresh_s(flagged[:1], least)
            too_little = (
                f"the budget leaves {budget.left_s:.0f} s, and {least} fresh trials take "
                f"about {needed_s:.0f} s; increase --budget"
            )
            self._rounds.progress.say(too_little)
            return End(too_little if slower else "")
        of_all = f" of {len(flagged)}" if len(fitting) < len(flagged) else ""
        self._rounds.progress.say(
            f"measuring {len(fitting)}{of_all} {'case' if len(flagged) == 1 else 'cases'} again, "
            "in fresh trials"
        )
        end = End()
        deadline = budget.deadline - self._profile_s(fitting)
        stage = Stage(FRESH_STAGE, 0, least, fitting, deadline)
        for checkpoint in checkpoints_left:
            if checkpoint < least:
                continue
            end = End(self._rounds.run(replace(stage, trials=checkpoint)))
            fresh = self._rounds.recorded.number_of_trials(FRESH_STAGE)
            is_last = fresh < checkpoint or checkpoint == checkpoints_left[-1]
            if is_last or is_settled(self.verdict().decision, self._options):
                break
            self._rounds.progress.say(f"{checkpoint} fresh trials are not enough to decide")
        return end if slower else End()

    def _affordable(self, flagged: Sequence[str], trials: int) -> Sequence[str]:
        """Return the first flagged cases that fit with so many fresh trials and their profile.

        A single case is kept without the profile, if there is no time for it.
        """

        def needed_s(number: int) -> float:
            first_flagged = flagged[:number]
            return self._fresh_s(first_flagged, trials) + self._profile_s(first_flagged)

        left_s = self._rounds.budget.left_s
        fitting = bisect_right(range(1, len(flagged) + 1), left_s, key=needed_s)
        if not fitting and self._fresh_s(flagged[:1], trials) <= left_s:
            return flagged[:1]
        return flagged[:fitting]

    def _fresh_s(self, flagged: Sequence[str], trials: int) -> float:
        """Return the expected seconds of fresh trials with these cases."""
        budget = self._rounds.budget
        return self._rounds.expected_round_s(flagged) * budget.number_of_rounds(trials)

    def _profile_s(self, flagged: Sequence[str]) -> float:
        """Return the seconds that are kept for the likely causes of the surest findings."""
        return self._rounds.budget.profile_s(flagged[:MAX_CAUSES])
