"""Reports -> files: one function draws any format, and one writes files."""

from __future__ import annotations

import os

from mnistbench.compare.data import csv_report, json_report
from mnistbench.compare.judge import Judgement
from mnistbench.compare.report import blocks, verdict_lines
from mnistbench.showing.markdown import markdown_report
from mnistbench.showing.output import append_text_to_step_summary
from mnistbench.showing.terminal import draw_report

FORMATS = ("terminal", "markdown", "json", "csv")

#: Operations shown per case unless asked otherwise.
TOP = 10


def rendered(judgement: Judgement, form: str, top: int, *, colour: bool = False) -> str:
    """Return a judgement in one of FORMATS, ending in a line end."""
    if form == "json":
        return json_report(judgement)
    if form == "csv":
        return csv_report(judgement)
    parts = blocks(judgement, top)
    if form == "markdown":
        return markdown_report(parts, list(verdict_lines(judgement))[-1])
    return draw_report(parts, colour=colour) + "\n"


def append_step_summary(judgement: Judgement, top: int) -> str:
    """Append Markdown to the file that GitHub shows with a job. Return an error message, or nothing."""
    return append_text_to_step_summary(rendered(judgement, "markdown", top)) if os.environ.get("GITHUB_STEP_SUMMARY") else ""
