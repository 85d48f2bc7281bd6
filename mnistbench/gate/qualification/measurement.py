"""Trials of the same code on both sides, and what gates that are drawn from them find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.gate.flow import prepared, until_ended
from mnistbench.gate.measure.rounds import Rounds, Stage
from mnistbench.gate.options import TRIALS, GateOptions
from mnistbench.gate.qualification.resampling import least_trials, resample
from mnistbench.gate.qualification.result import Qualification
from mnistbench.gate.samples.raw_samples import FIRST_STAGE, End
from mnistbench.showing.progress import Progress

#: Time of a qualification without --trials and --budget, in seconds.
QUALIFYING_S = 600.0
#: Time of the resampling of a qualification, in seconds.
RESAMPLING_S = 60.0
#: Share of a qualification for trials.
TRIALS_SHARE = 0.75
#: Most trials that a qualification makes by itself, as a multiple of the fewest.
MAX_TRIALS = 5


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
    least = least_trials(options)
    if "trials" in options.given_fields and options.trials < least:
        raise UsageError(
            f"--trials: {options.trials} are too few for --qualify; give at least {least}"
        )


def qualify(options: GateOptions, progress: Progress, seed: int | None = None) -> Qualification:
    """Measure the working tree on both sides; return what gates find, also in a file.

    Args and errors are those of :func:`mnistbench.gate.flow.measure`.
    """
    found: dict[str, Any] = {}

    of_all = replace(options, all_cases=True)
    with prepared(of_all, progress, seed, least_trials(options)) as gate:

        def measure_cases(cases: Sequence[str]) -> End:
            end = _measure(cases, options, gate.rounds)
            if not end.cut_short:
                progress.say("resampling gates")
                found.update(_found(options, gate.rounds))
            return end

        until_ended(gate.rounds, measure_cases)
        qualification = Qualification(gate.rounds.recorded, found)
    try:
        qualification.save()
    except OSError as error:
        progress.say(
            f"{qualification.path} cannot be written ({error.strerror}), so later gates do not "
            "state this result"
        )
    return qualification


def _measure(cases: Sequence[str], options: GateOptions, rounds: Rounds) -> End:
    """Make trials: as many as the options give, else for about ten minutes."""
    budget = rounds.budget
    least = least_trials(options)
    stage = Stage(FIRST_STAGE, options.trials, least, cases, budget.deadline)
    if "trials" not in options.given_fields:
        rounds.run(replace(stage, trials=budget.at_once))
        trials_s = TRIALS_SHARE * (options.budget_s or QUALIFYING_S)
        rounds_that_fit = (
            int(trials_s / budget.mean_round_s(FIRST_STAGE)) if budget.rounds_s[FIRST_STAGE] else 0
        )
        fitting = min(MAX_TRIALS * least, rounds_that_fit * budget.at_once)
        stage = replace(stage, trials=max(least, fitting))
    return End(rounds.run(stage))


def _found(options: GateOptions, rounds: Rounds) -> dict[str, Any]:
    """Return what gates find that have as many trials as real ones of these cases."""
    budget = rounds.budget
    gate_s = budget.survey_s + budget.number_of_rounds(TRIALS) * budget.mean_round_s(FIRST_STAGE)
    until = min(budget.deadline, budget.now() + RESAMPLING_S)
    return resample(rounds.recorded, options, gate_s, lambda: budget.now() < until)
