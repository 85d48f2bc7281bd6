"""Saved runs and thresholds of a subcommand, from its options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mnistbench.compare.settings import SETTINGS, project_table
from mnistbench.compare.thresholds import Criteria, criteria_of
from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.storage import SavedRun, Storage


def criteria(parsed: argparse.Namespace) -> Criteria:
    """Return what a comparison is judged by: options first, then ``[tool.mnistbench]`` of the project.

    Raises:
        UsageError: a value cannot be used.
    """
    configured, file = project_table()
    return criteria_of({setting.name: getattr(parsed, setting.name, None) for setting in SETTINGS}, configured, file)


def find(parsed: argparse.Namespace, *references: str) -> list[list[SavedRun]]:
    """Return the saved runs that each reference names, oldest first; print a line for each file that cannot be read.

    Raises:
        UsageError: a reference names no readable run.
    """
    storage = Storage(Path(parsed.storage))
    try:
        return [storage.find(reference) for reference in references]
    finally:
        _print_refused(storage.refused)


def all_runs(parsed: argparse.Namespace) -> list[SavedRun]:
    """Return all saved runs, oldest first; print a line for each file that cannot be read.

    Raises:
        UsageError: there is none.
    """
    storage = Storage(Path(parsed.storage))
    runs = storage.all()
    _print_refused(storage.refused)
    if not runs:
        raise UsageError(f"no saved run in {parsed.storage} can be read; save one with: pytest bench --benchmark-autosave")
    return runs


def _print_refused(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"mnistbench: passed over: {line}", file=sys.stderr)
