"""The saved runs and traces that the arguments of a command name."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.record import Detail
from mnistbench.saved_runs.storage import ENDINGS, SavedRun, Storage, has_key

#: Help for an argument that names a saved run or a trace.
OR_TRACE = "a file, a number (0003), a name, a glob, latest, a commit or a branch, or a trace"


def find(root: Path, *references: str) -> list[list[SavedRun]]:
    """Return the saved runs that each reference names, oldest first.

    Print a line for each file that cannot be read.

    A file that is a trace counts as a saved run. All references name saved runs, or all name
    traces.

    Raises:
        UsageError: a reference names no readable run, or one names a saved run and another a trace.
        RecordError: a trace is damaged.
    """
    traces = [reference for reference in references if is_trace(reference)]
    if len(traces) == len(references):
        # Here: most commands read saved runs only.
        from mnistbench.saved_runs.trace import saved_trace

        return [[saved_trace(Path(reference))] for reference in references]
    storage = Storage(root)
    try:
        runs_by_reference = {
            reference: _find(storage, reference)
            for reference in references
            if reference not in traces
        }
    finally:
        _print_refused(storage.refused)
    if traces:
        saved_reference = next(iter(runs_by_reference))
        raise UsageError(
            f"{traces[0]!r} is a trace and {saved_reference!r} a saved run; name two traces or two "
            "saved runs"
        )
    return [runs_by_reference[reference] for reference in references]


def all_runs(root: Path, detail: Detail) -> list[SavedRun]:
    """Return all saved runs below a directory, oldest first, with as much of them as is asked for.

    Print a line for each file that cannot be read.
    """
    storage = Storage(root, detail)
    runs = storage.all()
    _print_refused(storage.refused)
    if not runs:
        raise UsageError(
            f"no saved run in {root} can be read; save one with: pytest bench --benchmark-autosave"
        )
    return runs


def is_trace(reference: str | Path) -> bool:
    """Whether a reference is the file of a trace, compressed or not, or begins like one."""
    # Path.is_file raises where a name is too long.
    return os.path.isfile(reference) and has_key(Path(reference)) == "traceEvents"  # noqa: PTH113


def _find(storage: Storage, reference: str) -> list[SavedRun]:
    try:
        return storage.find(reference)
    except UsageError:
        if os.path.isdir(reference):  # noqa: PTH112  # Path.is_dir raises where a name is too long
            raise UsageError(f"{reference!r} is a folder; name one file in it") from None
        if os.path.isfile(reference) and storage.refused:  # noqa: PTH113
            raise UsageError(storage.refused.pop()) from None
        is_file_name = reference.endswith(ENDINGS) and not any(sign in reference for sign in "*?[")
        if is_file_name and not os.path.lexists(reference):
            raise UsageError(f"{reference!r} does not exist; name a saved run or a trace") from None
        raise


def _print_refused(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"mnistbench: skipped: {line}", file=sys.stderr)
