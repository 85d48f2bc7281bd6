"""The flow of a gate: it surveys both sides, measures and judges them, and looks for the causes.

In the order of reading: :func:`measure`, :func:`prepared`, :func:`until_ended` and
:func:`_explained`; :func:`listed` ends after the survey. ``commands`` makes the report.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from mnistbench.core.files import scratch
from mnistbench.gate.copies import trees
from mnistbench.gate.decide.verdict.verdict import Verdict, check_accepted_cases
from mnistbench.gate.environments.interpreters import Interpreters, interpreters
from mnistbench.gate.explain.profiles import profiles_of
from mnistbench.gate.measure.budget import Budget, SurveyedTimes, longest_first_call_s
from mnistbench.gate.measure.rounds import (
    Rounds,
    efforts_of,
    trials_at_once,
    with_slow_compilations,
)
from mnistbench.gate.measure.two_stages import TwoStages
from mnistbench.gate.options import MIN_TRIALS, TRIALS, GateOptions
from mnistbench.gate.processes.messages import ALL_ITERATIONS
from mnistbench.gate.processes.starting import GateError, Setup, stage_home
from mnistbench.gate.samples.raw_samples import (
    ENDING,
    INTERRUPTED,
    End,
    GateHeader,
    NotSavedError,
    Recorded,
    append,
    create_in,
)
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.surveying import SurveyedSides, survey_sides
from mnistbench.measuring.provider import provider_of
from mnistbench.showing.output import check_directory
from mnistbench.showing.progress import Progress


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
    with prepared(options, progress, seed) as gate:
        stages = TwoStages(gate.rounds, gate.options)

        def measure_and_explain(cases: Sequence[str]) -> End:
            end = stages.measure(cases)
            verdict = stages.verdict()
            return _explained(end, verdict, gate) if verdict.decision.findings else end

        end = until_ended(gate.rounds, measure_and_explain)
        verdict = stages.verdict()
        # The verdict has a copy of the samples, made before they had an end.
        return replace(verdict, recorded=replace(verdict.recorded, end=end))


@dataclass(frozen=True)
class PreparedGate:
    """A gate whose sides are copied and surveyed."""

    options: GateOptions  # with the thresholds of the tests' own marks
    rounds: Rounds
    code: ComparedCode


def listed(options: GateOptions, progress: Progress, seed: int | None = None) -> GateHeader:
    """Survey both sides and measure nothing; return the header that the samples would have.

    Args and errors are those of :func:`measure`.
    """
    seed = _random_seed() if seed is None else seed
    pythons = _checked_interpreters(options, progress)
    with scratch("gate") as folder:
        setup = setup_of(options, pythons.paths, Path.cwd().resolve(), folder)
        return _surveyed(options, setup, pythons, seed, folder / "log", progress).header


@contextmanager
def prepared(
    options: GateOptions, progress: Progress, seed: int | None, min_trials: int = MIN_TRIALS
) -> Iterator[PreparedGate]:
    """Copy and survey both sides, and begin the file; remove the copies at the end.

    Args and errors are those of :func:`measure`. A budget has to allow for ``min_trials``.
    """
    seed = _random_seed() if seed is None else seed
    pythons = _checked_interpreters(options, progress)
    budget = Budget(
        monotonic(), options.budget_s, monotonic, limits=options, shards=options.shard.of
    )
    with scratch("gate") as folder:
        log = folder / "log"
        setup = setup_of(options, pythons.paths, Path.cwd().resolve(), folder)
        survey_began = monotonic()
        sides = _surveyed(options, setup, pythons, seed, log, progress)
        header = sides.header
        budget.survey_s = monotonic() - survey_began
        budget.prepared_s = monotonic() - budget.began
        check_accepted_cases(options.accept, header)
        options = budget.limits = options.with_marks(header.sides)
        efforts = ALL_ITERATIONS
        plan = sides.plan
        if cases := header.sides.common:
            budget.at_once = trials_at_once(sides.plan, header.sides)
            budget.surveyed = SurveyedTimes.of(sides.plan, header.sides)
            efforts = efforts_of(options, budget, cases, min_trials)
            plan = with_slow_compilations(
                plan, header.sides, budget, efforts, max(TRIALS, min_trials), options.once
            )
        path = create_in(options.storage, options.shard.prefix, header)
        measured = Recorded(path, header, [])
        rounds = Rounds(plan, budget, measured, log, progress, seed, efforts)
        yield PreparedGate(options, rounds, sides.code)


def _random_seed() -> int:
    return int.from_bytes(os.urandom(4), "big")


def _checked_interpreters(options: GateOptions, progress: Progress) -> Interpreters:
    """Check the base and the storage, and make the environments that the options ask for."""
    # An environment takes minutes and gigabytes, so what is wrong is found before.
    if options.base:
        trees.folder_of_base(Path.cwd().resolve(), options.base)
    check_directory(options.storage / "gate", "--storage")
    return interpreters(options, progress.say)


def setup_of(options: GateOptions, pythons: Mapping[str, str], here: Path, folder: Path) -> Setup:
    """Copy both trees and the package; return what is fixed for all processes.

    Args:
        options: name the base and the variables of each side.
        pythons: side -> its interpreter.
        here: folder of the working tree.
        folder: for the copies.

    Raises:
        UsageError: a tree cannot be copied.
    """
    return Setup(
        trees=trees.copy_both(here, options.base, folder),
        pythons=pythons,
        variables=options.variables,
        home=stage_home(folder),
        repository=(trees.repository_of(here) if shutil.which("git") else None) or here,
    )


def _surveyed(
    options: GateOptions,
    setup: Setup,
    pythons: Interpreters,
    seed: int,
    log: Path,
    progress: Progress,
) -> SurveyedSides:
    """Survey both sides, and note how their interpreter was found."""
    longest_call_s = longest_first_call_s(options.budget_s)
    here = Path.cwd().resolve()
    sides = survey_sides(options, setup, longest_call_s, here, seed, log, progress)
    return replace(sides, header=replace(sides.header, interpreter=pythons.chosen))


def until_ended(rounds: Rounds, measure_cases: Callable[[Sequence[str]], End]) -> End:
    """Measure the cases; write and return how it ended.

    Raises:
        GateError: a side cannot be measured, and no trial has ended.
        NotSavedError: nothing can be written, and no trial has ended.
    """
    measured = rounds.recorded
    cases = list(measured.header.labels)
    try:
        end = measure_cases(cases) if cases else _without_cases(measured)
    except KeyboardInterrupt:
        end = INTERRUPTED
    except (GateError, NotSavedError) as error:
        if cases and not measured.trials:
            raise
        end = End(str(error), broken_off=True)
    end = replace(
        end,
        elapsed_s=round(monotonic() - rounds.budget.began, 3),
        parts_s=rounds.budget.parts_s(),
        left_out=measured.end.left_out,
    )
    try:
        append(measured.path, end.line())
    except NotSavedError as error:  # what was measured is reported nevertheless
        is_complete = not end.broken_off
        end = replace(end, cut_short=str(error), broken_off=True, is_unsaved=is_complete)
    measured.end = end
    return end


def _without_cases(measured: Recorded) -> End:
    header = measured.header
    if header.shard.of > 1 and not header.reach.same:
        return End("no test of this shard is a case of both sides", broken_off=True)
    return End()  # all cases of the head are new, or run the same code on both sides


def _explained(end: End, verdict: Verdict, gate: PreparedGate) -> End:
    """Add scripts that reproduce slower operations, and the call paths of changed cases."""
    path = gate.rounds.recorded.path
    scripts = gate.options.reproducers or path.with_name(path.name.removesuffix(ENDING))
    return replace(
        end,
        reproducers=tuple(
            script
            for framework in verdict.header.sides.frameworks
            for script in provider_of(framework).write_scripts(verdict, gate.rounds, scripts)
        ),
        profiles=profiles_of(verdict, gate.rounds, gate.code),
    )
