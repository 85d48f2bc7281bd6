"""``mnistbench list``, ``history``, ``export`` and ``prune``: their settings, and what they do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core import options, units
from mnistbench.core.errors import UsageError
from mnistbench.core.units import printable
from mnistbench.saved_runs.references import OR_TRACE, all_runs, find, is_trace
from mnistbench.saved_runs.report import history_table, list_table, run_csv
from mnistbench.saved_runs.storage import SavedRun, tensorboard_directory
from mnistbench.showing.output import EXIT_PASSED, deliver_text
from mnistbench.showing.terminal import draw, line_width


@dataclass(frozen=True, kw_only=True)
class List:
    """The options of ``list``."""

    storage: Path = options.storage()

    def run(self) -> int:
        """Print the saved runs, oldest first; return 0."""
        table = list_table(all_runs(self.storage, "cases"))
        print(draw(table, width=line_width(sys.stdout)))
        return EXIT_PASSED


@dataclass(frozen=True, kw_only=True)
class History:
    """The options of ``history``."""

    case: str = options.argument("CASE", str, "title of the case in a table, or its pytest id")
    op: str = options.option(
        "--op", str, "", "show this operation or function of the case: aten::addmm", "NAME"
    )
    module: str = options.option("--module", str, "", "show this module of the case: conv2", "NAME")
    storage: Path = options.storage()

    def run(self) -> int:
        """Print the time of the case, of an operation or of a module in every saved run."""
        if is_trace(self.case):
            raise UsageError(
                f"{self.case!r} is a trace, not a case of saved runs; compare two traces with: "
                "mnistbench compare"
            )
        runs = all_runs(self.storage, "medians" if self.op or self.module else "cases")
        table = history_table(runs, self.case, self.op, self.module)
        print(draw(table, width=line_width(sys.stdout)))
        return EXIT_PASSED


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of ``export``."""

    which: str | None = options.argument(
        "RUN", str, f"{OR_TRACE} (default: latest)", required=False
    )
    output: Path | None = options.output()
    storage: Path = options.storage()

    def run(self) -> int:
        """Write the cases and operations of a run as CSV; return 0."""
        [matching_runs] = find(self.storage, self.which or "latest")
        deliver_text(run_csv(matching_runs[-1].run), self.output)
        return EXIT_PASSED


@dataclass(frozen=True, kw_only=True)
class Prune:
    """The options of ``prune``."""

    keep: int | None = options.option(
        "--keep", options.whole(1), None, "number of newest runs to keep, required", "N"
    )
    yes: bool = options.switch("--yes", "remove the files; without it they are only listed")
    storage: Path = options.storage()

    def run(self) -> int:
        """List what goes and, with ``--yes``, remove it; return 0."""
        if self.keep is None:
            raise UsageError(
                "--keep: is missing; give the number of newest runs to keep, such as --keep 20"
            )
        runs = [saved for saved in all_runs(self.storage, "cases") if saved.number]
        if not runs:
            raise UsageError(
                f"{self.storage}: no file has a number (0001_*.json); prune removes only what "
                "pytest-benchmark saved"
            )
        files, directories, left = plan(runs, self.keep, self.storage / "tensorboard")
        for line in left:
            print(line)
        if not files:
            print(
                f"nothing to remove: there are no more than {units.counted(self.keep, 'saved run')}"
            )
            return EXIT_PASSED
        for path in (*files, *directories):
            print(f"{'removing' if self.yes else 'would remove'} {printable(str(path))}")
        if self.yes:
            remove(files, directories)
        else:
            directories_text = (
                f"{len(directories)} TensorBoard director{'y' if len(directories) == 1 else 'ies'}"
            )
            print(
                f"{units.counted(len(files), 'saved run')} and {directories_text}; add --yes to "
                "remove them"
            )
        return EXIT_PASSED


def plan(
    runs: Sequence[SavedRun], keep: int, tensorboard: Path
) -> tuple[list[Path], list[Path], list[str]]:
    """Return what to remove of all but the newest ``keep`` runs, and a line per directory to keep.

    Files of runs and their TensorBoard directories are removed.

    A directory that a kept run uses too is not returned.
    """
    old = runs[:-keep]
    kept = runs[-keep:]
    still_used = set(_directories(kept, tensorboard))
    directories = [path for path in _directories(old, tensorboard) if path not in still_used]
    elsewhere = {
        case.scalars.directory
        for saved in old
        for case in saved.run.cases
        if case.scalars
        and case.scalars.directory
        # Path.is_dir raises where a name is too long.
        and os.path.isdir(case.scalars.directory)  # noqa: PTH112
        and tensorboard_directory(case.scalars.directory, tensorboard) is None
    }
    left = [f"left alone, outside {tensorboard}: {directory!r}" for directory in sorted(elsewhere)]
    return [saved.path for saved in old], directories, left


def _directories(runs: Iterable[SavedRun], tensorboard: Path) -> list[Path]:
    directories = [
        tensorboard_directory(case.scalars.directory, tensorboard)
        for saved in runs
        for case in saved.run.cases
        if case.scalars and case.scalars.directory
    ]
    return list(dict.fromkeys(path for path in directories if path))


def remove(files: Iterable[Path], directories: Iterable[Path]) -> None:
    """Remove directories, then files: after an error, the same call can be repeated."""
    path = Path()
    try:
        for path in directories:
            shutil.rmtree(path)
        for path in files:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be removed ({error.strerror}); what follows it stays"
        ) from None
