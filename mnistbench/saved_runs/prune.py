"""Select old saved runs with their TensorBoard directories, and remove them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.storage import SavedRun, tensorboard_directory


def plan(runs: Sequence[SavedRun], keep: int, tensorboard: Path) -> tuple[list[Path], list[Path], list[str]]:
    """Return the files and TensorBoard directories of all but the newest ``keep`` runs, and a line per directory to keep.

    A directory that a kept run uses too is not returned.
    """
    old, kept = runs[:-keep], runs[-keep:]
    still_used = set(_directories(kept, tensorboard))
    directories = [path for path in _directories(old, tensorboard) if path not in still_used]
    elsewhere = sorted(
        {
            case.directory
            for saved in old
            for case in saved.run.cases
            if _is_folder(case.directory) and tensorboard_directory(case.directory, tensorboard) is None
        }
    )
    return (
        [saved.path for saved in old],
        directories,
        [f"left alone, outside {tensorboard}: {directory!r}" for directory in elsewhere],
    )


def _directories(runs: Iterable[SavedRun], tensorboard: Path) -> list[Path]:
    found = [tensorboard_directory(case.directory, tensorboard) for saved in runs for case in saved.run.cases if case.directory]
    return list(dict.fromkeys(path for path in found if path))


def _is_folder(directory: str) -> bool:
    return bool(directory) and os.path.isdir(directory)  # noqa: PTH112  # Path.is_dir raises where a name is too long


def remove(files: Iterable[Path], directories: Iterable[Path]) -> None:
    """Remove directories, then files: after an error, the same call can be repeated.

    Raises:
        UsageError: a path cannot be removed; the following ones are kept.
    """
    path = Path()
    try:
        for path in directories:
            shutil.rmtree(path)
        for path in files:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be removed ({error.strerror}); what follows it stays") from None
