"""``mnistbench gate``: measure a base and the working tree together, and judge."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.options import switch
from mnistbench.gate.commands.result import result_of, result_of_verdict
from mnistbench.gate.decide.statistics.raw_samples import ENDING, Recorded
from mnistbench.gate.flow import measure
from mnistbench.gate.options import GateOptions
from mnistbench.showing.output import BISECT_SKIPS, EXIT_INCONCLUSIVE, CommandResult, print_error
from mnistbench.showing.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Settings(GateOptions):
    """The options of the command."""

    qualify: bool = switch(
        "--qualify",
        (
            "estimate what a gate finds on this machine: measure the working tree against itself "
            "(about 10 minutes)"
        ),
    )

    def __post_init__(self) -> None:
        """Check that there is something to compare, or to qualify."""
        super().__post_init__()
        if self.qualify:
            # Here, because most gates qualify nothing.
            from mnistbench.gate.qualification.measurement import check

            check(self)
        elif not (self.base or self.differ):
            raise UsageError(
                "nothing to compare: give --base with a revision or a folder, or what differs, "
                "such as --base-env NAME=VALUE"
            )


def run(settings: Settings) -> CommandResult | int:
    """Measure, judge, and return the report; without one, the exit code of a commit to skip.

    Raises:
        MnistbenchError: something cannot be used or measured. With ``--bisect`` only a UsageError,
            because it stops the search; what cannot be measured is a commit to skip.
    """
    if settings.qualify:
        return _qualify(settings)
    try:
        with Progress(sys.stderr) as progress:
            verdict = measure(settings, progress)
            _name_samples(verdict.recorded, settings, progress)
        result = result_of_verdict(verdict, settings)
    except MnistbenchError as error:
        if isinstance(error, UsageError) or not settings.bisect:
            raise
        print_error(error)
        return BISECT_SKIPS
    if settings.bisect and result.code == EXIT_INCONCLUSIVE:
        return replace(result, code=BISECT_SKIPS)
    return result


def _qualify(settings: Settings) -> CommandResult:
    from mnistbench.gate.qualification.measurement import qualify
    from mnistbench.gate.qualification.report import report as report_of_qualification

    with Progress(sys.stderr) as progress:
        qualification = qualify(settings, progress)
        _name_samples(qualification.measured, settings, progress)
    outcome, report = report_of_qualification(qualification, settings.top)
    return result_of(report, settings, outcome, is_excusable=False)


def _name_samples(measured: Recorded, settings: Settings, progress: Progress) -> None:
    """Say where the raw samples are, and how they are judged again."""
    of = settings.shard.of
    files = measured.path
    if of > 1:
        files = files.with_name(f"shard-*-of-{of}_*{ENDING}")
    again = (
        "judge them again with" if of == 1 else f"when all {of} shards have ended, judge them with"
    )
    progress.say(f"raw samples: {measured.path}; {again}: mnistbench judge {files}")
