"""Saved runs, traces and thresholds of a subcommand, from its options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mnistbench.compare.settings import SETTINGS, project_table
from mnistbench.compare.thresholds import Criteria, criteria_of
from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.storage import SavedRun, Storage
from mnistbench.saved_runs.trace import is_trace, saved_trace
from mnistbench.traces.reader import ENDINGS


def criteria(parsed: argparse.Namespace) -> Criteria:
    """Return what a comparison is judged by: options first, then ``[tool.mnistbench]`` of the project.

    Raises:
        UsageError: a value cannot be used.
    """
    configured, file = project_table()
    return criteria_of({setting.name: getattr(parsed, setting.name, None) for setting in SETTINGS}, configured, file)


def find(parsed: argparse.Namespace, *references: str) -> list[list[SavedRun]]:
    """Return the saved runs that each reference names, oldest first; print a line for each file that cannot be read.

    A file that is a trace counts as a saved run. All references name saved runs, or all name traces.

    Raises:
        UsageError: a reference names no readable run, or one names a saved run and another a trace.
        RecordError: a trace is damaged.
    """
    traces = [reference for reference in references if names_trace(reference)]
    if len(traces) == len(references):
        return [[saved_trace(Path(reference))] for reference in references]
    storage = Storage(Path(parsed.storage))
    try:
        found = {reference: _find(storage, reference) for reference in references if reference not in traces}
    finally:
        _print_refused(storage.refused)
    if traces:
        other = next(iter(found))
        raise UsageError(f"{traces[0]!r} is a trace and {other!r} a saved run; name two traces or two saved runs")
    return [found[reference] for reference in references]


def names_trace(reference: str) -> bool:
    """Whether a reference is a file that is a trace."""
    return os.path.isfile(reference) and is_trace(Path(reference))  # noqa: PTH113  # Path.is_file raises where a name is too long


def _find(storage: Storage, reference: str) -> list[SavedRun]:
    if reference.endswith(ENDINGS) and not os.path.lexists(reference) and not any(sign in reference for sign in "*?["):
        raise UsageError(f"{reference!r} does not exist; name a saved run or a trace")
    try:
        return storage.find(reference)
    except UsageError:
        if os.path.isdir(reference):  # noqa: PTH112  # Path.is_dir raises where a name is too long
            raise UsageError(f"{reference!r} is a folder; name one file in it") from None
        if os.path.isfile(reference) and storage.refused:  # noqa: PTH113
            raise UsageError(storage.refused.pop()) from None
        raise


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
