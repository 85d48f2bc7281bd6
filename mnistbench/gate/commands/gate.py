"""``mnistbench gate``: measure a base and the working tree together, and judge."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.options import ToolTable, switch
from mnistbench.gate.commands.result import result_of, result_of_verdict
from mnistbench.gate.flow import listed, measure
from mnistbench.gate.options import TOOL_TABLE, GateOptions
from mnistbench.gate.samples.raw_samples import ENDING, Recorded
from mnistbench.judging.acceptance import FAIL
from mnistbench.showing.output import (
    BISECT_SKIPS,
    EXIT_INCONCLUSIVE,
    EXIT_PASSED,
    CommandResult,
    print_error,
)
from mnistbench.showing.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Settings(GateOptions):
    """The options of the command."""

    tool_table: ClassVar[ToolTable] = TOOL_TABLE

    qualify: bool = switch(
        "--qualify",
        (
            "estimate what a gate finds on this machine: measure the working tree against itself "
            "(about 10 minutes)"
        ),
    )

    lists: bool = switch(
        "--list",
        "show which cases would be measured and why, and measure nothing; exit code 0",
    )

    def __post_init__(self) -> None:
        """Check what cannot be combined."""
        super().__post_init__()
        for flag, is_given in (("--bisect", self.bisect), ("--qualify", self.qualify)):
            if self.report_only and is_given:
                raise UsageError(
                    f"--report-only: cannot be given with {flag}, which acts by its exit code; "
                    "remove one of them"
                )
        if self.lists and (self.qualify or self.bisect):
            flag = "--qualify" if self.qualify else "--bisect"
            raise UsageError(f"--list: cannot be given with {flag}; remove one of them")
        if self.lists and self.format == "html":
            raise UsageError("--format: a list of cases has no page; choose another format")
        if self.qualify:
            # Here, because most gates qualify nothing.
            from mnistbench.gate.qualification.measurement import check

            check(self)
        elif self.bisect and not (self.base or self.differ):
            raise UsageError(
                "--bisect: the commits that are searched have one base; give --base with a commit "
                "that is not slower"
            )
        if self.bisect:  # what is not decided must not count as good, whatever the project says
            object.__setattr__(self, "inconclusive", FAIL)


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
            settings = _with_base(settings, progress)
            if settings.lists:
                return _list(settings, progress)
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


def _with_base(settings: Settings, progress: Progress) -> Settings:
    """Return the settings with the base to which the job and the repository lead, if none is given.

    Raises:
        UsageError: they lead to none.
    """
    if settings.base or settings.differ:
        return settings
    from mnistbench.gate.copies.base import base_of

    base = base_of(Path.cwd(), os.environ)
    progress.say(f"base: {base.text}")
    return replace(settings, base=base.commit, base_rule=base.rule)


def _list(settings: Settings, progress: Progress) -> CommandResult:
    from mnistbench.gate.report.listed import report

    return CommandResult(report(listed(settings, progress)), EXIT_PASSED)


def _qualify(settings: Settings) -> CommandResult:
    from mnistbench.gate.qualification.measurement import qualify
    from mnistbench.gate.qualification.report import report as report_of_qualification

    with Progress(sys.stderr) as progress:
        qualification = qualify(settings, progress)
        _name_samples(qualification.measured, settings, progress)
    outcome, report = report_of_qualification(qualification, settings.top)
    return result_of(report, settings, outcome)


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
