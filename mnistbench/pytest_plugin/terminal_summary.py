"""Terminal output at the end of a pytest session: tables, a comparison, notes."""

from __future__ import annotations

import pytest

from mnistbench.compare.judge import Judgement
from mnistbench.compare.report import blocks, report, verdict_lines
from mnistbench.core import units
from mnistbench.pytest_plugin.session import Session
from mnistbench.saved_runs.case_tables import case_tables
from mnistbench.saved_runs.run import Run
from mnistbench.showing.output import append_to_step_summary
from mnistbench.showing.terminal import draw, draw_report


def summarize(session: Session, reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print operations or, with a baseline, their comparison; then notes."""
    quiet = config.getoption("benchmark_quiet", default=False) and not config.getoption(
        "benchmark_verbose", default=False
    )
    compared = session.judgement is not None and session.judgement.cases
    if (
        not compared
        and not quiet
        and (
            tables := case_tables(
                Run.of_session(None, session.records).cases, session.options.op_top
            )
        )
    ):
        reporter.section("mnistbench: operations", sep="-")
        for table in tables:
            reporter.write_line(f"\n{draw(table, width=_line_width(reporter, config))}")
        if any(record.table("warm") for record in session.records):
            reporter.write_line(
                "\nmodule -: belongs to no module (gradient accumulation, the optimizer)"
            )
    if session.judgement:
        width = _line_width(reporter, config)
        _print_comparison(session, session.judgement, reporter, quiet=quiet, width=width)
    if session.notes:
        reporter.section("mnistbench: not recorded")
        for note in session.notes:  # it may have the text of an exception
            reporter.write_line(units.printable(note))


def _line_width(reporter: pytest.TerminalReporter, config: pytest.Config) -> int:
    """Return the characters of a line: those of a terminal, any number (0) in a file or a pipe."""
    return config.get_terminal_writer().fullwidth if reporter.isatty else 0


def _print_comparison(
    session: Session,
    judgement: Judgement,
    reporter: pytest.TerminalReporter,
    *,
    quiet: bool,
    width: int,
) -> None:
    """Print the report of ``mnistbench compare``.

    With ``--benchmark-quiet`` it has only the reasons of a failure.
    """
    if quiet and judgement.outcome not in ("regressed", "inconclusive"):
        return
    reporter.section("mnistbench: operations compared", sep="-")
    for line in session.refused:
        reporter.write_line(units.printable(line))
    if quiet:
        reporter.write_line("\n".join(units.printable(line) for line in verdict_lines(judgement)))
    else:
        reporter.write_line(
            draw_report(
                blocks(judgement, session.options.op_top), colour=reporter.hasmarkup, width=width
            )
        )
    if note := append_to_step_summary(lambda: report(judgement, session.options.op_top)):
        reporter.write_line(units.printable(note))
