"""Launches of the same code on both sides, and what gates that are drawn from them find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.gate.decide.statistics.raw_samples import FIRST_STAGE, End
from mnistbench.gate.flow import RunningGate, surveyed
from mnistbench.gate.measure.rounds import Rounds, Stage
from mnistbench.gate.options import LAUNCHES, GateOptions
from mnistbench.gate.qualification.resampling import least_launches, resample
from mnistbench.gate.qualification.result import Qualification
from mnistbench.showing.progress import Progress

#: Time of a qualification without --launches and --budget, in seconds.
QUALIFYING_S = 600.0
#: Time of the resampling of a qualification, in seconds.
RESAMPLING_S = 60.0
#: Share of a qualification for launches.
LAUNCHES_SHARE = 0.75
#: Most launches that a qualification makes by itself, as a multiple of the fewest.
MOST_LAUNCHES = 5


def check(options: GateOptions) -> None:
    """Check that these options of a gate can be those of a qualification.

    Raises:
        UsageError: one of them cannot be used.
    """
    if options.shard.of > 1:
        raise UsageError("--shard: cannot be given with --qualify; remove one of them")
    if options.format == "html":
        raise UsageError("--format: a qualification has no page; choose another format")
    if options.bisect:
        raise UsageError("--bisect: cannot be given with --qualify; remove one of them")
    if options.base or options.differ:
        raise UsageError(
            "--qualify: measures the working tree on both sides; remove the options of base and "
            "head"
        )
    least = least_launches(options)
    if "launches" in options.given_fields and options.launches < least:
        raise UsageError(
            f"--launches: {options.launches} are too few for --qualify; give at least {least}"
        )


def qualify(options: GateOptions, progress: Progress, seed: int | None = None) -> Qualification:
    """Measure the working tree on both sides; return what gates find, also in a file.

    Args and errors are those of :func:`mnistbench.gate.flow.measure`.
    """
    found: dict[str, Any] = {}

    def measure_cases(cases: Sequence[str], gate: RunningGate) -> End:
        end = _measure(cases, options, gate.rounds)
        if not end.cut_short:
            progress.say("resampling gates")
            found.update(_found(options, gate.rounds))
        return end

    of_all = replace(options, all_cases=True)
    with surveyed(of_all, progress, seed, least_launches(options)) as gate:
        gate.run(lambda cases: measure_cases(cases, gate))
        qualification = Qualification(gate.rounds.measured, found)
    try:
        qualification.save()
    except OSError as error:
        progress.say(
            f"{qualification.path} cannot be written ({error.strerror}), so later gates do not "
            "state this result"
        )
    return qualification


def _measure(cases: Sequence[str], options: GateOptions, rounds: Rounds) -> End:
    """Make launches: as many as the options give, else for about ten minutes."""
    budget = rounds.budget
    least = least_launches(options)
    stage = Stage(FIRST_STAGE, options.launches, least, cases, budget.deadline)
    if "launches" not in options.given_fields:
        rounds.run(replace(stage, launches=budget.at_once))
        launches_s = LAUNCHES_SHARE * (options.budget_s or QUALIFYING_S)
        rounds_that_fit = (
            int(launches_s / budget.mean_round_s(FIRST_STAGE))
            if budget.rounds_s[FIRST_STAGE]
            else 0
        )
        fitting = min(MOST_LAUNCHES * least, rounds_that_fit * budget.at_once)
        stage = replace(stage, launches=max(least, fitting))
    return End(rounds.run(stage))


def _found(options: GateOptions, rounds: Rounds) -> dict[str, Any]:
    """Return what gates find that have as many launches as real ones of these cases."""
    budget = rounds.budget
    gate_s = budget.survey_s + budget.rounds(LAUNCHES) * budget.mean_round_s(FIRST_STAGE)
    until = min(budget.deadline, budget.now() + RESAMPLING_S)
    return resample(rounds.measured, options, gate_s, lambda: budget.now() < until)
