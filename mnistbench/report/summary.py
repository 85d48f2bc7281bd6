"""What a pytest session prints of ours: a line before the first case, tables and directions after the last."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from mnistbench.allocator import status
from mnistbench.compare import compare
from mnistbench.errors import RecordError
from mnistbench.record import Environment, Run
from mnistbench.report.rows import comparison_head, comparison_tables, operation_tables
from mnistbench.report.terminal import draw
from mnistbench.session import Session

SAVE_HINT = "save one with: pytest bench --benchmark-autosave"


def session_line(environment: Environment, dataset: str, devices: Sequence[str]) -> str:
    """Return one line on what is about to be measured, and whether the allocator will make it noisy."""
    threads = f"{environment.threads} thread{'s' if environment.threads > 1 else ''}"
    return f"mnistbench: torch {environment.torch}, {', '.join(devices)}, {threads}, {dataset}; {status(os.environ)}"


def summarize(session: Session, reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print operations or, where a baseline was asked for, their comparison; then notes and where TensorBoard looks."""
    if session.records and not _quiet(config):
        if config.getoption("benchmark_compare", default=None):
            _print_comparison(session, reporter)
        else:
            _print_operations(session, reporter)
    if session.notes:
        reporter.section("mnistbench: not recorded")
        for note in session.notes:
            reporter.write_line(note)
    if session.tracked_in:
        reporter.write_line(f"\nTensorBoard: tensorboard --logdir {os.path.relpath(session.tracked_in)}")


def _quiet(config: pytest.Config) -> bool:
    return bool(config.getoption("benchmark_quiet", default=False)) and not config.getoption("benchmark_verbose", default=False)


def _print_operations(session: Session, reporter: pytest.TerminalReporter) -> None:
    tables = operation_tables(session.records, session.options.op_top)
    if not tables:
        return
    reporter.section("mnistbench: operations", sep="-")
    for table in tables:
        reporter.write_line(f"\n{draw(table)}")
    reporter.write_line("\nmodule -: belongs to no module (gradient accumulation, the optimizer)")


def _print_comparison(session: Session, reporter: pytest.TerminalReporter) -> None:
    reporter.section("mnistbench: operations compared", sep="-")
    bases = []
    for parsed in session.baselines:
        try:
            bases.append(Run.from_json(parsed, f"the run saved {parsed.get('datetime', 'at an unknown time')}"))
        except RecordError as error:
            reporter.write_line(str(error))
    bases = [base for base in bases if base.cases]
    if not bases:
        reporter.write_line(f"no saved run with operation tables to compare with; {SAVE_HINT}")
        return
    if len(bases) > 1:
        reporter.write_line(f"{len(bases)} saved runs match; the last of them is compared")
    comparison = compare(bases[-1], Run(session.environment, tuple(session.records)))
    for line in comparison_head(comparison):
        reporter.write_line(line)
    if not comparison.cases:
        reporter.write_line(f"no case in common; {SAVE_HINT}")
    for table in comparison_tables(comparison, session.options.op_top):
        reporter.write_line(f"\n{draw(table)}")
