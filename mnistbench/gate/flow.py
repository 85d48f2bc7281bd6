"""The flow of a gate, on one page.

Survey both sides, run the launches of the first stage, more of them where they reach a threshold,
and fresh launches of the flagged cases. Then reproducers are written and causes are looked for.
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
from mnistbench.gate import trees
from mnistbench.gate.budget import (
    FEW_CASES,
    MIN_EFFORT,
    Budget,
    SurveyedTimes,
    first_efforts,
    longest_first_call_s,
    planned_launches,
)
from mnistbench.gate.causes.profiles import profiles_of
from mnistbench.gate.environments.interpreters import interpreters
from mnistbench.gate.launcher import LaunchError, Plan, stage_home
from mnistbench.gate.listing import Listings
from mnistbench.gate.messages import Efforts
from mnistbench.gate.options import LAUNCHES, LEAST_LAUNCHES, GateOptions, budget_text
from mnistbench.gate.qualification import PREFIX, least_launches, measure_to_qualify, newest
from mnistbench.gate.reach.compared import ComparedCode
from mnistbench.gate.rounds import Rounds, Stage, launches_at_once
from mnistbench.gate.statistics.quantities import Quantity, quantities
from mnistbench.gate.statistics.raw_samples import (
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
from mnistbench.gate.surveying import survey_sides
from mnistbench.gate.verdict.decision import is_settled
from mnistbench.gate.verdict.findings import (
    LEAST_FRESH_OF_IMPROVEMENT,
    LaunchFinding,
    by_size,
    least_fresh,
    looks,
)
from mnistbench.gate.verdict.verdict import Verdict, conclude, names_of_cases
from mnistbench.gate.words import ALL_CASES, BASE, HEAD
from mnistbench.judging.acceptance import check_cases
from mnistbench.judging.kinds import MEMORY
from mnistbench.showing.output import check_directory
from mnistbench.showing.progress import Progress
from mnistbench.suite.reproducers.write import reproducers_of

#: Most cases for whose likely causes fresh launches leave time.
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
        LaunchError: a side cannot be measured.
    """
    with _surveyed(options, progress, seed) as gate:
        return gate.judged_to_the_end()


def measure_same_code(
    options: GateOptions, progress: Progress, seed: int | None = None
) -> Recorded:
    """Measure the same code on both sides for a qualification, and return all samples.

    Args and errors are those of :func:`measure`.
    """
    with _surveyed(options, progress, seed) as gate:
        return gate.qualified()


@contextmanager
def _surveyed(options: GateOptions, progress: Progress, seed: int | None) -> Iterator[_Gate]:
    """Copy and survey both sides, and begin the file; remove the copies at the end."""
    here = Path.cwd().resolve()
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    # An environment takes minutes and gigabytes, so what is wrong is found before.
    _check(options, here)
    with interpreters(options, progress.say) as pythons:
        budget = Budget(
            monotonic(), options.budget_s, monotonic, limits=options, shards=options.shard.of
        )
        with scratch("gate") as folder:
            log = folder / "log"
            plan = _plan(options, pythons.paths, here, folder)
            surveyed = monotonic()
            plan, code, header = survey_sides(options, plan, here, seed, log, progress)
            header = replace(header, interpreter=pythons.chosen)
            budget.survey_s = monotonic() - surveyed
            budget.prepared_s = monotonic() - budget.began
            if not options.qualify:
                files = options.storage / "gate"
                qualified = newest(files, header.machine, header.sides.common)
                header = replace(header, qualified=qualified)
                check_cases(options.accept, names_of_cases(header))
            prefix = PREFIX * options.qualify + options.shard.prefix
            plan = _with_efforts(options, plan, budget, header.sides)
            measured = Recorded(_new_file(options.storage, prefix, header), header, [])
            rounds = Rounds(plan, budget, measured, log, progress, seed)
            yield _Gate(options, rounds, code)


def _check(options: GateOptions, here: Path) -> None:
    """Check what can be checked before anything is made."""
    least = least_launches(options)
    if options.qualify and "launches" in options.given_fields and options.launches < least:
        raise UsageError(
            f"--launches: {options.launches} are too few for --qualify; give at least {least}"
        )
    if options.base_dir and not options.base_dir.is_dir():
        raise UsageError(
            f"--base-dir: {str(options.base_dir)!r} is not a folder; name a checkout of the base"
        )
    if options.base:
        trees.commit_of(here, options.base)
    check_directory(options.storage / "gate", "--storage")


def _plan(options: GateOptions, pythons: Mapping[str, str], here: Path, folder: Path) -> Plan:
    """Copy both trees; return what all launches share."""
    if options.base_dir:
        base = trees.of_working_tree(
            options.base_dir.resolve(), folder / BASE, str(options.base_dir)
        )
    elif options.base:
        base = trees.of_revision(here, options.base, folder / BASE)
    else:
        base = trees.of_working_tree(here, folder / BASE)
    head = trees.of_working_tree(here, folder / HEAD)
    trees.check_alike(base, head, str(options.base_dir or ""))
    if options.base:
        trees.check_generated(base, head)
    return Plan(
        trees={BASE: base, HEAD: head},
        pythons=pythons,
        variables=options.variables,
        home=stage_home(folder),
        repository=(trees.repository_of(here) if shutil.which("git") else None) or here,
        arguments=options.pytest,
        phases=(),
        only=options.only,
        follows_code=not (options.all_cases or options.qualify),
        longest_call_s=longest_first_call_s(options.budget_s),
        shard=options.shard,
    )


def _with_efforts(options: GateOptions, plan: Plan, budget: Budget, sides: Listings) -> Plan:
    """Choose how much a launch measures; check that launches of some case fit into the budget.

    Raises:
        LaunchError: they do not.
    """
    if not sides.common:
        return plan
    budget.at_once = launches_at_once(plan, sides)
    budget.surveyed = SurveyedTimes.of(plan, sides)
    efforts = first_efforts(options)
    cases = sides.common
    least = Efforts(MIN_EFFORT, MIN_EFFORT)
    deadline = budget.deadline_of_first_stage(len(cases))
    fitting = budget.cases_that_fit(cases, least, LEAST_LAUNCHES, deadline)
    if options.budget_s and not fitting and not options.qualify:
        quickest_s = min(budget.round_s([case], least) for case in cases)
        least_s = budget.prepared_s + budget.rounds(LEAST_LAUNCHES) * quickest_s
        sufficient_s = budget.sufficient_s(cases, (), efforts, LAUNCHES)
        raise LaunchError(
            f"no case fits into --budget {options.budget_s:g}s: the survey and {LEAST_LAUNCHES} "
            f"launches, the fewest that can be judged, of the quickest case take about "
            f"{least_s:.0f} s; "
            f"--budget {budget_text(sufficient_s)} is expected to be enough for all cases"
        )
    return replace(plan, efforts=efforts)


@dataclass
class _Gate:
    """One run of the gate, after the survey."""

    _options: GateOptions
    _rounds: Rounds
    _code: ComparedCode
    _newest: Verdict | None = None  # of the launches when it was last asked for

    def judged_to_the_end(self) -> Verdict:
        """Measure until the gate is settled; return its verdict, with how the run ended."""
        end = self._run(self._compare)
        verdict = self._verdict()
        return replace(verdict, recorded=replace(verdict.recorded, end=end))

    def qualified(self) -> Recorded:
        """Measure for a qualification; return the samples, with what was found."""
        self._run(lambda cases: measure_to_qualify(cases, self._options, self._rounds))
        return self._rounds.measured

    def _run(self, measure_cases: Callable[[Sequence[str]], End]) -> End:
        """Measure the cases; write and return how it ended."""
        cases = list(self._rounds.measured.header.labels)
        try:
            end = measure_cases(cases) if cases else self._without_cases()
        except KeyboardInterrupt:
            end = INTERRUPTED
        except (LaunchError, NotSavedError) as error:
            if cases and not self._rounds.measured.launches:
                raise
            end = End(str(error), broken_off=True)
        elapsed_s = round(monotonic() - self._rounds.budget.began, 3)
        end = replace(
            end,
            elapsed_s=elapsed_s,
            parts_s=self._rounds.budget.parts_s(),
            left_out=self._rounds.measured.end.left_out,
            sufficient_s=0.0 if end.broken_off else self._sufficient_s(),
        )
        try:
            append(self._rounds.measured.path, end.line())
        except NotSavedError as error:  # what was measured is reported nevertheless
            is_complete = not end.broken_off
            end = replace(end, cut_short=str(error), broken_off=True, is_unsaved=is_complete)
        self._rounds.measured.end = end
        return end

    def _verdict(self) -> Verdict:
        """Return the verdict of the launches so far, which are judged once."""
        launches = self._rounds.measured.launches
        if self._newest is None or len(self._newest.recorded.launches) < len(launches):
            self._newest = conclude(self._rounds.measured, self._options)
        return self._newest

    def _without_cases(self) -> End:
        header = self._rounds.measured.header
        if header.shard.of > 1 and not header.reach.same:
            return End("no test of this shard is a case of both sides", broken_off=True)
        return End()  # all cases of the head are new, or run the same code on both sides

    # ---- Compare two sides -----------------------------------------------------------------------

    def _compare(self, cases: Sequence[str]) -> End:
        stage = Stage(
            FIRST_STAGE,
            self._options.launches,
            LEAST_LAUNCHES,
            cases,
            self._rounds.budget.deadline_of_first_stage(len(cases)),
            leaves_out=True,
        )
        if cut_short := self._rounds.run(stage):
            return End(cut_short)
        if self._plans_launches and len(self._rounds.measured.launches) == LAUNCHES:
            self._make_more_launches(stage)
        findings = self._verdict().decision.findings
        if not findings:
            return End()
        end = self._measure_again(findings, cases)
        verdict = self._verdict()
        path = self._rounds.measured.path
        scripts = self._options.reproducers or path.with_name(path.name.removesuffix(ENDING))
        return replace(
            end,
            reproducers=reproducers_of(verdict, self._rounds, scripts),
            profiles=profiles_of(verdict, self._rounds, self._code),
        )

    @property
    def _plans_launches(self) -> bool:
        """Whether the number of launches of the first stage is not given."""
        return "launches" not in self._options.given_fields and self._options.launches == LAUNCHES

    def _make_more_launches(self, stage: Stage) -> None:
        """Make more launches if that brings bounds below their limits."""
        needed = planned_launches(self._quantities(), self._options, self._options.shard.of)
        self._rounds.run(replace(stage, launches=needed))

    def _quantities(self) -> Sequence[Quantity]:
        return quantities(self._rounds.measured.launches)

    def _sufficient_s(self) -> float:
        """Return a budget that is expected to be enough for all launches, in seconds.

        0 if the gate has none, or nothing to measure.
        """
        budget = self._rounds.budget
        cases = self._rounds.measured.header.sides.common
        if self._options.budget_s is None or self._options.qualify or not cases:
            return 0.0
        launches = self._options.launches
        can_be_judged = len(self._rounds.measured.launches) >= LEAST_LAUNCHES
        if can_be_judged and self._plans_launches:
            launches = planned_launches(self._quantities(), self._options, self._options.shard.of)
        findings = self._verdict().decision.findings if can_be_judged else ()
        flagged = self._flagged_cases(findings, cases) if findings else ()
        efforts = first_efforts(self._options)
        return budget.sufficient_s(cases, flagged, efforts, max(launches, LAUNCHES))

    def _flagged_cases(
        self, findings: Sequence[LaunchFinding], cases: Sequence[str]
    ) -> Sequence[str]:
        """Return the cases to measure again, those of the surest findings first.

        Of a cost of the process, those that it comes from.
        """
        kinds_of_process = {
            finding.quantity.kind for finding in findings if finding.quantity.case == ALL_CASES
        }
        # Its memory is measured with the first case, other costs of the process come from all.
        if kinds_of_process - {MEMORY}:
            return cases
        node_id = self._rounds.measured.header.node_id
        ranked = sorted(findings, key=lambda finding: (finding.screened.p, by_size(finding)))
        flagged = dict.fromkeys(node_id(finding.quantity.case) for finding in ranked)
        measured = {*cases}
        return [case for case in flagged if case in measured] or cases[:FEW_CASES]

    def _measure_again(self, findings: Sequence[LaunchFinding], cases: Sequence[str]) -> End:
        """Measure flagged cases in fresh launches until a look settles the gate.

        If the budget allows for enough of them: at least for some cases that are slower, and for
        the profile of their functions. Without slower cases the gate is settled, whatever fresh
        launches show.
        """
        budget = self._rounds.budget
        shards = self._options.shard.of
        first_launches = sum(
            launch.stage == FIRST_STAGE for launch in self._rounds.measured.launches
        )
        slower = [finding for finding in findings if finding.screened.change > 0]
        first_look = least_fresh(first_launches, self._options, shards)
        looks_left = [first_look, *looks(self._options, shards)[1:]]
        least_of_faster = next(look for look in looks_left if look >= LEAST_FRESH_OF_IMPROVEMENT)
        least = first_look if slower else least_of_faster
        flagged = self._flagged_cases(findings, cases)
        if slower and budget.left_s < self._fresh_s(flagged, least_of_faster):
            flagged = self._flagged_cases(slower, cases)
        fitting = self._affordable(flagged, least)
        if not fitting:
            needed_s = self._fresh_s(flagged[:1], least)
            too_little = (
                f"the budget leaves {budget.left_s:.0f} s, and {least} fresh launches take "
                f"about {needed_s:.0f} s; increase --budget"
            )
            self._rounds.progress.say(too_little)
            return End(too_little if slower else "")
        of_all = f" of {len(flagged)}" if len(fitting) < len(flagged) else ""
        self._rounds.progress.say(
            f"measuring {len(fitting)}{of_all} {'case' if len(flagged) == 1 else 'cases'} again, "
            "in fresh launches"
        )
        end = End()
        deadline = budget.deadline - self._profile_s(fitting)
        stage = Stage(FRESH_STAGE, 0, least, fitting, deadline)
        for look in (look for look in looks_left if look >= least):
            end = End(self._rounds.run(replace(stage, launches=look)))
            fresh = sum(launch.stage == FRESH_STAGE for launch in self._rounds.measured.launches)
            is_last = fresh < look or look == looks_left[-1]
            if is_last or is_settled(self._verdict().decision, self._options):
                break
            self._rounds.progress.say(f"{look} fresh launches are not enough to decide")
        return end if slower else End()

    def _affordable(self, flagged: Sequence[str], launches: int) -> Sequence[str]:
        """Return the first of the flagged cases, of which so many fresh launches fit.

        With the profile of their functions; of a single case without it, if there is no time.
        """

        def needed_s(number: int) -> float:
            first_flagged = flagged[:number]
            return self._fresh_s(first_flagged, launches) + self._profile_s(first_flagged)

        left_s = self._rounds.budget.left_s
        fitting = bisect_right(range(1, len(flagged) + 1), left_s, key=needed_s)
        if not fitting and self._fresh_s(flagged[:1], launches) <= left_s:
            return flagged[:1]
        return flagged[:fitting]

    def _fresh_s(self, flagged: Sequence[str], launches: int) -> float:
        """Return the expected seconds of fresh launches with these cases."""
        budget = self._rounds.budget
        return self._rounds.expected_round_s(flagged) * budget.rounds(launches)

    def _profile_s(self, flagged: Sequence[str]) -> float:
        """Return the seconds that are kept for the likely causes of the surest findings."""
        return self._rounds.budget.profile_s(flagged[:MOST_CAUSES])


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
