"""The report of a gate: of a verdict, in all forms."""

from __future__ import annotations

from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.report.comment import first_screen
from mnistbench.gate.report.data import json_data
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.report.text import blocks
from mnistbench.showing.report import Report, document


def report(verdict: Verdict) -> Report:
    """Return the report of a gate."""
    rows = Rows(verdict)

    def html() -> str:
        from mnistbench.gate.report.page.view import gate_page  # it loads jinja2

        return gate_page(verdict)

    outcome, lines = first_screen(rows)
    return Report(
        outcome,
        blocks(rows),
        document("gate", **json_data(rows)),
        first_lines=lines,
        drawn=True,
        html=html,
    )
