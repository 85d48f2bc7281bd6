"""A report -> the terminal or a file, the summary of a job, and the exit code."""

from __future__ import annotations

import os
from dataclasses import replace

from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.selection import SEE_ALL
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.showing.output import (
    EXIT_PASSED,
    EXIT_REGRESSED,
    EXIT_UNJUDGED,
    append_text_to_step_summary,
    deliver,
    print_error,
    render,
)
from mnistbench.showing.report import Report

#: Largest Markdown of a comment, in bytes: GitHub takes 65,536 characters.
COMMENT = 65_000


#: Largest Markdown of the summary of a step, in bytes: GitHub takes 1 MiB.
SUMMARY = 1_000_000

_CODES = {PASSED: EXIT_PASSED, REGRESSED: EXIT_REGRESSED, INCONCLUSIVE: EXIT_UNJUDGED}


def deliver_verdict(
    shown: Report, options: JudgeOptions, outcome: str, *, is_excusable: bool
) -> int:
    """Print or write a report, and return the exit code.

    Append it to the summary of a job on GitHub.

    Args:
        shown: the report.
        options: of the command.
        outcome: PASSED, REGRESSED or INCONCLUSIVE.
        is_excusable: whether ``--inconclusive ok`` applies.
    """
    shown = replace(
        shown,
        limit=(SUMMARY, "to see all: --format json") if options.everything else (COMMENT, SEE_ALL),
    )
    deliver(shown, options.format, options.output)
    if os.environ.get("GITHUB_STEP_SUMMARY") and (
        note := append_text_to_step_summary(render(shown, "markdown"))
    ):
        print_error(note)
    may_pass = outcome == INCONCLUSIVE and is_excusable and options.inconclusive == "ok"
    return _CODES[PASSED if may_pass else outcome]
