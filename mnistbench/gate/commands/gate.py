"""``mnistbench gate``: measure a base and the working tree together, and judge."""

from __future__ import annotations

import sys
from dataclasses import replace

from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.gate import qualification
from mnistbench.gate.commands.result import report, result_of
from mnistbench.gate.flow import measure, measure_same_code
from mnistbench.gate.options import GateOptions
from mnistbench.gate.statistics.raw_samples import ENDING
from mnistbench.showing.output import BISECT_SKIPS, EXIT_INCONCLUSIVE, CommandResult, print_error
from mnistbench.showing.progress import Progress

Settings = GateOptions


def run(settings: Settings) -> CommandResult | int:
    """Measure, judge, and return the report; without one, the exit code of a commit to skip.

    Raises:
        MnistbenchError: something cannot be used or measured. With ``--bisect`` only a UsageError,
            because it stops the search; what cannot be measured is a commit to skip.
    """
    try:
        with Progress(sys.stderr) as progress:
            if settings.qualify:
                measured = measure_same_code(settings, progress)
            else:
                verdict = measure(settings, progress)
                measured = verdict.recorded
            of = settings.shard.of
            files = measured.path
            if of > 1:
                files = files.with_name(f"shard-*-of-{of}_*{ENDING}")
            again = (
                "judge them again with"
                if of == 1
                else f"when all {of} shards have ended, judge them with"
            )
            progress.say(f"raw samples: {measured.path}; {again}: mnistbench judge {files}")
        if settings.qualify:
            outcome, shown = qualification.report(measured, settings.top)
            return result_of(shown, settings, outcome, is_excusable=False)
        result = result_of(
            report(verdict), settings, verdict.outcome, is_excusable=verdict.is_excusable
        )
    except MnistbenchError as error:
        if isinstance(error, UsageError) or not settings.bisect:
            raise
        print_error(error)
        return BISECT_SKIPS
    if settings.bisect and result.code == EXIT_INCONCLUSIVE:
        return replace(result, code=BISECT_SKIPS)
    return result
