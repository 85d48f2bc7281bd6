"""The flow of a gate.

Survey both sides, run the trials of the first stage, more of them where they reach a threshold,
and fresh trials of the flagged cases. Then reproducers are written and causes are looked for.

In the order of reading: :func:`measure`, :func:`surveyed`, and of :class:`RunningGate`
``judged_to_the_end``, ``_compare`` and ``_measure_again``.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch
from mnistbench.gate.copies import trees
from mnistbench.gate.decide.statistics.quantities import Quantity, quantities
from mnistbench.gate.decide.statistics.raw_samples import (
    ENDING,
    FIRST_STAGE,
    FRESH_STAGE,
    INTERRUPTED,
    End,
    GateHeader,
    NotSavedError,
    Recorded,
    append,
    create,
)
from mnistbench.gate.decide.verdict.decision import is_settled
from mnistbench.gate.decide.verdict.findings import (
    MIN_FRESH_OF_IMPROVEMENT,
    GateFinding,
    by_size,
    checkpoints_after,
)
from mnistbench.gate.decide.verdict.verdict import Verdict, check_accepted_cases, conclude
from mnistbench.gate.environments.interpreters import interpreters
from mnistbench.gate.explain.profiles import profiles_of
from mnistbench.gate.listing import Listings
from mnistbench.gate.measure.budget import (
    FEW_CASES,
    MIN_EFFORT,
    Budget,
    SurveyedTimes,
    first_efforts,
    longest_first_call_s,
    planned_trials,
)
from mnistbench.gate.measure.rounds import Rounds, Stage, trials_at_once
from mnistbench.gate.options import LEAST_TRIALS, TRIALS, GateOptions, budget_text
from mnistbench.gate.processes.messages import Efforts
from mnistbench.gate.processes.starting import GateError, Plan, stage_home
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.surveying import survey_sides
from mnistbench.gate.words import ALL_CASES, BASE, HEAD
from mnistbench.judging.kinds import MEMORY
from mnistbench.measuring.provider import provider_of
from mnistbench.showing.output import check_directory
from mnistbench.showing.progress import Progress

#: Most cases for whose likely causes fresh trials leave time.
MOST_CAUSES = 3


def measure(options: GateOptions, progress: Progress, seed: int | None = None) -> Verdict:
    """Measure both sides until they can be judged, and return the verdict.

    All samples are also written to a file, of which ``mnistbench judge`` makes the same verdict.

    Args:
        options: what is measured, and how it is judged.
        progress: shows each step.
        seed: of all random decisions; random if not given.

    Raises:
        UsageError: an option cannot be used.
        GateError: a side cannot be measured.
    """
    with surveyed(options, progress, seed) as gate:
        return gate.judged_to_the_end()


@contextmanager
def surveyed(
    options: GateOptions, progress: Progress, seed: int | None, min_trials: int = LEAST_TRIALS
) -> Iterator[RunningGate]:
    """Copy and survey both sides, and begin the file; remove the copies at the end.

    Args and errors are those of :func:`measure`. A budget has to allow for ``min_trials``.
    """
    here = Path.cwd().resolve()
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    # An environment takes minutes and gigabytes, so what is wrong is found before.
    _check(options, here)
    pythons = interpreters(options, progress.say)
    budget = Budget(
        monotonic(), options.budget_s, monotonic, limits=options, shards=options.shard.of
    )
    with scratch("gate") as folder:
        log = folder / "log"
        plan = _plan(options, pythons.paths, here, folder)
        survey_began = monotonic()
        plan, code, header = survey_sides(options, plan, here, seed, log, progress)
        header = replace(header, interpreter=pythons.chosen)
        budget.survey_s = monotonic() - survey_began
        budget.prepared_s = monotonic() - budget.began
        check_accepted_cases(options.accept, header)
        options = budget.limits = options.with_marks(header.sides)
        plan = _with_efforts(options, plan, budget, header.sides, min_trials)
        measured = Recorded(_new_file(options.storage, options.shard.prefix, header), header, [])
        rounds = Rounds(plan, budget, measured, log, progress, seed)
        yield RunningGate(options, rounds, code)


def _check(options: GateOptions, here: Path) -> None:
    """Check what can be checked before anything is made."""
    if options.base:
        trees.folder_of_base(here, options.base)
    check_directory(options.storage / "gate", "--storage")


def _plan(options: GateOptions, pythons: Mapping[str, str], here: Path, folder: Path) -> Plan:
    """Copy both trees; return what all trials share."""
    base_folder = trees.folder_of_base(here, options.base) if options.base else here
    if options.base is None:
        base = trees.copy_working_tree(here, folder / BASE)
    elif base_folder:
        base = trees.copy_working_tree(base_folder.resolve(), folder / BASE, str(base_folder))
    else:
        base = trees.copy_revision(here, options.base, folder / BASE)
    head = trees.copy_working_tree(here, folder / HEAD)
    trees.check_alike(base, head, str(base_folder) if options.base and base_folder else "")
    if base_folder is None:
        trees.check_generated(base, head)
    elif options.base:  # each side has its own generated files
        base, head = (replace(tree, generated=()) for tree in (base, head))
    return Plan(
        trees={BASE: base, HEAD: head},
        pythons=pythons,
        variables=options.variables,
        home=stage_home(folder),
        repository=(trees.repository_of(here) if shutil.which("git") else None) or here,
        arguments=options.pytest,
        phases=(),
        only=options.only,
        follows_code=not options.all_cases,
        longest_call_s=longest_first_call_s(options.budget_s),
        shard=options.shard,
    )


def _with_efforts(
    options: GateOptions, plan: Plan, budget: Budget, sides: Listings, min_trials: int
) -> Plan:
    """Choose how much a trial measures; check that trials of some case fit into the budget.

    Raises:
        GateError: they do not.
    """
    if not sides.common:
        return plan
    budget.at_once = trials_at_once(plan, sides)
    budget.surveyed = SurveyedTimes.of(plan, sides)
    efforts = first_efforts(options)
    cases = sides.common
    least = Efforts(MIN_EFFORT, MIN_EFFORT)
    deadline = budget.deadline_of_first_stage(len(cases))
    fitting = budget.cases_that_fit(cases, least, min_trials, deadline)
    if options.budget_s and not fitting:
        quickest_s = min(budget.round_s([case], least) for case in cases)
        least_s = budget.prepared_s + budget.rounds(min_trials) * quickest_s
        sufficient_s = budget.sufficient_s(cases, (), efforts, max(TRIALS, min_trials))
        raise GateError(
            f"no case fits into --budget {options.budget_s:g}s: the survey and {min_trials} "
            f"trials, the fewest that can be judged, of the quickest case take about "
            f"{least_s:.0f} s; "
            f"--budget {budget_text(sufficient_s)} is expected to be enough for all cases"
        )
    return replace(plan, efforts=efforts)


@dataclass
class RunningGate:
    """One run of the gate, after the survey."""

    _options: GateOptions
    rounds: Rounds
    _code: ComparedCode
    _newest: Verdict | None = None  # of the trials when it was last asked for

    def judged_to_the_end(self) -> Verdict:
        """Measure until the gate is settled; return its verdict, with how the run ended."""
        end = self.run(self._compared)
        verdict = self._verdict()
        return replace(verdict, recorded=replace(verdict.recorded, end=end))

    def run(self, measure_cases: Callable[[Sequence[str]], End]) -> End:
        """Measure the cases; write and return how it ended."""
        cases = list(self.rounds.measured.header.labels)
        try:
            end = measure_cases(cases) if cases else self._without_cases()
        except KeyboardInterrupt:
            end = INTERRUPTED
        except (GateError, NotSavedError) as error:
            if cases and not self.rounds.measured.trials:
                raise
            end = End(str(error), broken_off=True)
        elapsed_s = round(monotonic() - self.rounds.budget.began, 3)
        end = replace(
            end,
            elapsed_s=elapsed_s,
            parts_s=self.rounds.budget.parts_s(),
            left_out=self.rounds.measured.end.left_out,
        )
        try:
            append(self.rounds.measured.path, end.line())
        except NotSavedError as error:  # what was measured is reported nevertheless
            is_complete = not end.broken_off
            end = replace(end, cut_short=str(error), broken_off=True, is_unsaved=is_complete)
        self.rounds.measured.end = end
        return end

    def _verdict(self) -> Verdict:
        """Return the verdict of the trials so far, which are judged once."""
        trials = self.rounds.measured.trials
        if self._newest is None or len(self._newest.recorded.trials) < len(trials):
            self._newest = conclude(self.rounds.measured, self._options)
        return self._newest

    def _without_cases(self) -> End:
        header = self.rounds.measured.header
        if header.shard.of > 1 and not header.reach.same:
            return End("no test of this shard is a case of both sides", broken_off=True)
        return End()  # all cases of the head are new, or run the same code on both sides

    # ---- Compare two sides -----------------------------------------------------------------------

    def _compared(self, cases: Sequence[str]) -> End:
        return replace(self._compare(cases), sufficient_s=self._sufficient_s())

    def _compare(self, cases: Sequence[str]) -> End:
        stage = Stage(
            FIRST_STAGE,
            self._options.trials,
            LEAST_TRIALS,
            cases,
            self.rounds.budget.deadline_of_first_stage(len(cases)),
            leaves_out=True,
        )
        if cut_short := self.rounds.run(stage):
            return End(cut_short)
        if self._plans_trials and len(self.rounds.measured.trials) == TRIALS:
            self._make_more_trials(stage)
        findings = self._verdict().decision.findings
        if not findings:
            return End()
        end = self._measure_again(findings, cases)
        verdict = self._verdict()
        path = self.rounds.measured.path
        scripts = self._options.reproducers or path.with_name(path.name.removesuffix(ENDING))
        return replace(
            end,
            reproducers=tuple(
                script
                for framework in self.rounds.measured.header.sides.frameworks
                for script in provider_of(framework).write_scripts(verdict, self.rounds, scripts)
            ),
            profiles=profiles_of(verdict, self.rounds, self._code),
        )

    @property
    def _plans_trials(self) -> bool:
        """Whether the number of trials of the first stage is not given."""
        return "trials" not in self._options.given_fields and self._options.trials == TRIALS

    def _make_more_trials(self, stage: Stage) -> None:
        """Make more trials if that brings bounds below their limits."""
        needed = planned_trials(self._quantities(), self._options, self._options.shard.of)
        self.rounds.run(replace(stage, trials=needed))

    def _quantities(self) -> Sequence[Quantity]:
        return quantities(self.rounds.measured.trials)

    def _sufficient_s(self) -> float:
        """Return a budget that is expected to be enough for all trials, in seconds.

        0 if the gate has none.
        """
        budget = self.rounds.budget
        cases = self.rounds.measured.header.sides.common
        if self._options.budget_s is None:
            return 0.0
        trials = self._options.trials
        can_be_judged = len(self.rounds.measured.trials) >= LEAST_TRIALS
        if can_be_judged and self._plans_trials:
            trials = planned_trials(self._quantities(), self._options, self._options.shard.of)
        findings = self._verdict().decision.findings if can_be_judged else ()
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
        budget = self.rounds.budget
        shards = self._options.shard.of
        first_trials = self.rounds.measured.number_of_trials(FIRST_STAGE)
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
            self.rounds.progress.say(too_little)
            return End(too_little if slower else "")
        of_all = f" of {len(flagged)}" if len(fitting) < len(flagged) else ""
        self.rounds.progress.say(
            f"measuring {len(fitting)}{of_all} {'case' if len(flagged) == 1 else 'cases'} again, "
            "in fresh trials"
        )
        end = End()
        deadline = budget.deadline - self._profile_s(fitting)
        stage = Stage(FRESH_STAGE, 0, least, fitting, deadline)
        for checkpoint in checkpoints_left:
            if checkpoint < least:
                continue
            end = End(self.rounds.run(replace(stage, trials=checkpoint)))
            fresh = self.rounds.measured.number_of_trials(FRESH_STAGE)
            is_last = fresh < checkpoint or checkpoint == checkpoints_left[-1]
            if is_last or is_settled(self._verdict().decision, self._options):
                break
            self.rounds.progress.say(f"{checkpoint} fresh trials are not enough to decide")
        return end if slower else End()

    def _affordable(self, flagged: Sequence[str], trials: int) -> Sequence[str]:
        """Return the first flagged cases that fit with so many fresh trials and their profile.

        A single case is kept without the profile, if there is no time for it.
        """

        def needed_s(number: int) -> float:
            first_flagged = flagged[:number]
            return self._fresh_s(first_flagged, trials) + self._profile_s(first_flagged)

        left_s = self.rounds.budget.left_s
        fitting = bisect_right(range(1, len(flagged) + 1), left_s, key=needed_s)
        if not fitting and self._fresh_s(flagged[:1], trials) <= left_s:
            return flagged[:1]
        return flagged[:fitting]

    def _fresh_s(self, flagged: Sequence[str], trials: int) -> float:
        """Return the expected seconds of fresh trials with these cases."""
        budget = self.rounds.budget
        return self.rounds.expected_round_s(flagged) * budget.rounds(trials)

    def _profile_s(self, flagged: Sequence[str]) -> float:
        """Return the seconds that are kept for the likely causes of the surest findings."""
        return self.rounds.budget.profile_s(flagged[:MOST_CAUSES])


def _new_file(storage: Path, prefix: str, header: GateHeader) -> Path:
    """Create a file with this header, which no other gate has, and return its path."""
    folder = storage / "gate"
    with suppress(OSError):  # the file cannot be created then, which says why
        folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
    for number in range(100):
        path = folder / f"{prefix}{stamp}{f'_{number}' if number else ''}{ENDING}"
        with suppress(FileExistsError):
            create(path, header.line())
            return path
    raise UsageError(f"{folder}: has 100 files of this second; run the gate again")
