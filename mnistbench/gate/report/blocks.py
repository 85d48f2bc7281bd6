"""A verdict -> the report of a gate.

What was found, then what it rests on.
"""

from __future__ import annotations

from mnistbench.gate.report.data import json_data
from mnistbench.gate.report.findings import finding_lines, replacements, reproducers
from mnistbench.gate.report.head import head_lines
from mnistbench.gate.report.notes import exact_differences, note_lines, reach_lines
from mnistbench.gate.report.outcome import bounds_of_once, last_line, not_decided, not_seen
from mnistbench.gate.report.selection import limited, with_everything
from mnistbench.gate.report.tables import cases_block, operations_block
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.showing.report import Block, Report, document


def report(verdict: Verdict) -> Report:
    """Return the report of a verdict."""

    def html() -> str:
        from mnistbench.gate.page.view import gate_page  # it loads jinja2

        return gate_page(verdict)

    return Report(
        last_line(verdict),
        blocks(verdict),
        document("gate", **json_data(verdict)),
        drawn=True,
        html=html,
    )


def blocks(verdict: Verdict) -> list[Block]:
    """Return the report: what was found, then what it rests on.

    ``--top`` and ``--verbose`` limit what has no finding.
    """
    if verdict.options.everything:
        verdict = with_everything(verdict)
    return [
        Block("", tuple(head_lines(verdict))),
        Block("Found", tuple(finding_lines(verdict))),
        Block("Not decided", tuple(not_decided(verdict))),
        cases_block(verdict),
        operations_block(verdict),
        Block("Replaced operations", tuple(limited(replacements(verdict), verdict, always=True))),
        Block("Exact differences", tuple(exact_differences(verdict))),
        Block("Reproducers", tuple(limited(reproducers(verdict), verdict))),
        Block("Changed code", tuple(reach_lines(verdict))),
        Block("Notes", tuple(note_lines(verdict))),
        Block("Verdict", (*bounds_of_once(verdict), *not_seen(verdict), last_line(verdict))),
    ]
