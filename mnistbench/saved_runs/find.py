"""The saved runs and traces that the arguments of a command name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.storage import SavedRun, Storage

#: Help for an argument that names a saved run or a trace.
OR_TRACE = "a file, a number (0003), a glob, latest, a commit or a branch, or a trace"

#: The first of these keys tells a trace from a saved run; texts inside JSON have no plain quotes.
_KEY = re.compile(rb'"(traceEvents|benchmarks)"\s*:')

_CHUNK, _OVERLAP = 2**20, 64

#: First bytes of a compressed trace, and endings of the names of traces.
_GZIP = b"\x1f\x8b"
_ENDINGS = (".json", ".json.gz")


def find(root: Path, *references: str) -> list[list[SavedRun]]:
    """Return the saved runs that each reference names, oldest first; print a line for each file that cannot be read.

    A file that is a trace counts as a saved run. All references name saved runs, or all name traces.

    Raises:
        UsageError: a reference names no readable run, or one names a saved run and another a trace.
        RecordError: a trace is damaged.
    """
    traces = [reference for reference in references if is_trace(reference)]
    if len(traces) == len(references):
        from mnistbench.saved_runs.trace import saved_trace  # here: most commands read saved runs only

        return [[saved_trace(Path(reference))] for reference in references]
    storage = Storage(root)
    try:
        found = {reference: _find(storage, reference) for reference in references if reference not in traces}
    finally:
        _print_refused(storage.refused)
    if traces:
        other = next(iter(found))
        raise UsageError(f"{traces[0]!r} is a trace and {other!r} a saved run; name two traces or two saved runs")
    return [found[reference] for reference in references]


def all_runs(root: Path) -> list[SavedRun]:
    """Return all saved runs below a directory, oldest first; print a line for each file that cannot be read.

    Raises:
        UsageError: there is none.
    """
    storage = Storage(root)
    runs = storage.all()
    _print_refused(storage.refused)
    if not runs:
        raise UsageError(f"no saved run in {root} can be read; save one with: pytest bench --benchmark-autosave")
    return runs


def is_trace(reference: str | Path) -> bool:
    """Whether a reference is the file of a trace, compressed or not, or begins like one.

    A large part of a file is read only if it is neither a trace nor a saved run.
    """
    if not os.path.isfile(reference):  # noqa: PTH113  # Path.is_file raises where a name is too long
        return False
    if str(reference).endswith(".gz"):
        return True
    before = b""
    try:
        with Path(reference).open("rb") as file:
            while chunk := file.read(_CHUNK):
                if not before and chunk.startswith(_GZIP):
                    return True
                if found := _KEY.search(before + chunk):
                    return found[1] == b"traceEvents"
                before = chunk[-_OVERLAP:]
    except OSError:
        return False
    return False


def _find(storage: Storage, reference: str) -> list[SavedRun]:
    if reference.endswith(_ENDINGS) and not os.path.lexists(reference) and not any(sign in reference for sign in "*?["):
        raise UsageError(f"{reference!r} does not exist; name a saved run or a trace")
    try:
        return storage.find(reference)
    except UsageError:
        if os.path.isdir(reference):  # noqa: PTH112  # Path.is_dir raises where a name is too long
            raise UsageError(f"{reference!r} is a folder; name one file in it") from None
        if os.path.isfile(reference) and storage.refused:  # noqa: PTH113
            raise UsageError(storage.refused.pop()) from None
        raise


def _print_refused(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"mnistbench: passed over: {line}", file=sys.stderr)
