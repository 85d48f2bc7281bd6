"""The report and the exit code of a gate or of several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.qualification.result import with_qualification
from mnistbench.gate.report.annotations import annotation_lines, outputs
from mnistbench.gate.report.outcome import excused
from mnistbench.gate.report.report import report
from mnistbench.gate.report.rows import SEE_ALL, Rows
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.showing.output import (
    EXIT_INCONCLUSIVE,
    EXIT_PASSED,
    EXIT_REGRESSED,
    CommandResult,
    JobMessages,
)
from mnistbench.showing.report import Report

#: Largest Markdown of a comment, in bytes: GitHub takes 65,536 characters.
MAX_COMMENT_BYTES = 65_000
#: Largest Markdown of the summary of a step, in bytes: GitHub takes 1 MiB.
MAX_SUMMARY_BYTES = 1_000_000

_CODES = {PASSED: EXIT_PASSED, REGRESSED: EXIT_REGRESSED, INCONCLUSIVE: EXIT_INCONCLUSIVE}


def result_of_verdict(verdict: Verdict, options: JudgeOptions) -> CommandResult:
    """Return the report of a gate, with the newest qualification of its machine, and the code."""

    def job_messages() -> JobMessages:
        rows = Rows(verdict)
        folders = (Path.cwd(), *Path.cwd().parents)
        checkout = next((folder for folder in folders if (folder / ".git").exists()), folders[0])
        return JobMessages(annotation_lines(rows, checkout), outputs(rows))

    shown = with_qualification(report(verdict), verdict.recorded)
    excuse = excused(verdict, verdict.options)
    result = result_of(shown, options, verdict.outcome, excuse)
    return replace(result, job_messages=job_messages)


def result_of(
    report: Report, options: JudgeOptions, outcome: str, excuse: str = ""
) -> CommandResult:
    """Return a report, whose Markdown is cut to what GitHub takes, with the exit code.

    Args:
        report: of the gate or the gates.
        options: of the command.
        outcome: PASSED, REGRESSED or INCONCLUSIVE.
        excuse: why the exit code is 0 whatever the outcome is; empty if it is not.
    """
    limit = (MAX_COMMENT_BYTES, SEE_ALL)
    if options.everything:
        limit = (MAX_SUMMARY_BYTES, "to see all: --format json")
    code = EXIT_PASSED if excuse else _CODES[outcome]
    return CommandResult(replace(report, limit=limit), code, is_verdict=True)
