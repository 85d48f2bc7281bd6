"""Saved runs on disk: found by file, number, glob, ``latest``, commit or branch; each file is read once.

The layout is pytest-benchmark's: ``.benchmarks/<machine>/0001_<name>.json``. It writes in place and two sessions may pick
one number, so a torn file or a number that two files have is expected, named, and costs nothing else.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.gc_pause import gc_paused
from mnistbench.saved_runs.summary import RunSummary

#: Larger files are not read: a run of 100 cases has 5 MB.
LARGEST_FILE = 64 * 1024**2

_NUMBERED = re.compile(r"(\d{4,})_.*\.json")

#: What ``tracking.new_directory`` names a session.
_SESSION = re.compile(r"[0-9]{8}-[0-9]{6}(-[0-9]{1,3})?")


@dataclass(frozen=True)
class SavedRun:
    """One file and what it holds."""

    path: Path
    run: RunSummary

    @property
    def number(self) -> str:
        """``0003`` of ``0003_name.json``; empty for a file that has none."""
        found = _NUMBERED.fullmatch(self.path.name)
        return found[1] if found else ""


class Storage:
    """The saved runs below one directory."""

    def __init__(self, root: Path, *, tables: bool = True) -> None:
        """Look below ``root``; without ``tables`` runs have no operations, and are read in half the time."""
        self.root = root
        self._tables = tables
        self.refused: list[str] = []  # a line for each file that could not be read
        self._read: dict[Path, SavedRun | None] = {}
        self._known: dict[Any, Any] = {}

    def paths(self) -> list[Path]:
        """Return every saved run's file, by number."""
        folders = (self.root, *(path for path in _members(self.root) if path.is_dir()))
        found = [path for folder in folders for path in _members(folder) if _NUMBERED.fullmatch(path.name)]
        return sorted(found, key=lambda path: (int(path.name.partition("_")[0]), path.name, path.parent))

    def all(self) -> list[SavedRun]:
        """Return every run that can be read, oldest first; others are in ``refused``."""
        return self._sorted(self.paths())

    def find(self, reference: str) -> list[SavedRun]:
        """Return the runs that a user means, oldest first, at least one.

        Args:
            reference: a file, a number, a glob, ``latest``, a commit or a branch.

        Raises:
            UsageError: nothing that can be read is meant, or a number means several.
        """
        paths = self._paths_of(reference)
        if not paths:
            return self._of_commit(reference)
        found = self._sorted(paths)
        if not found:
            raise UsageError(
                f"{reference!r} is {paths[0] if len(paths) == 1 else f'{len(paths)} files'}: nothing there can be read"
            )
        return found

    def _paths_of(self, reference: str) -> list[Path]:
        if os.path.isfile(reference):  # noqa: PTH113  # Path.is_file raises where a name is too long
            return [Path(reference)]
        if reference == "latest":
            return self._latest()
        if any(sign in reference for sign in "*?["):
            found = [path for path in self.paths() if path.match(reference) or path.match(f"{reference}.json")]
            if not found and reference.endswith(".json"):  # a bare * means saved runs, never the files that lie here
                found = [Path(path) for path in glob.glob(reference, recursive=True) if Path(path).is_file()]  # noqa: PTH207
            if not found:
                raise UsageError(f"{reference!r} matches no saved run in {self.root}; mnistbench list shows them")
            return found
        if reference.isdecimal() and len(reference) <= 6:  # longer, it is the id of a commit
            found = [path for path in self.paths() if int(path.name.partition("_")[0]) == int(reference)]
            if len(found) > 1:
                shown = ", ".join(str(path) for path in found)
                raise UsageError(f"{reference!r} is the number of {len(found)} saved runs: {shown}; give one's file")
            return found
        return []

    def _latest(self) -> list[Path]:
        """Return the newest that can be read, as pytest-benchmark counts: the highest number."""
        for path in reversed(self.paths()):
            if self._load(path):
                return [path]
        raise UsageError(f"'latest': no saved run in {self.root} can be read; save one with: pytest bench --benchmark-autosave")

    def _of_commit(self, reference: str) -> list[SavedRun]:
        """Return the runs of a commit, or of the newest saved commit of a branch; not those with changes on top."""
        identity = _resolve(reference)
        runs = [saved for saved in self.all() if saved.run.commit]
        if identity:
            found = [saved for saved in runs if saved.run.commit == identity]
        else:
            found = _starting_with(reference, runs) or _newest_of_branch(reference, runs)
        clean = [saved for saved in found if not saved.run.dirty]
        if clean:
            return clean
        of = f"{reference!r} is commit {identity[:7]}, which" if identity and identity != reference else f"{reference!r}"
        if found:
            files = ", ".join(str(saved.path) for saved in found)
            raise UsageError(f"{of} has saved runs only with changes on top of it: {files}; name one of these files")
        raise UsageError(
            f"{of} has no saved run in {self.root}; give a file, a number, a glob, latest, a commit or a branch that has one "
            "(mnistbench list shows them)"
        )

    def _sorted(self, paths: Iterable[Path]) -> list[SavedRun]:
        with gc_paused():
            found = [saved for path in paths if (saved := self._load(path))]
        return sorted(found, key=lambda saved: (saved.run.saved_at, saved.path.name))

    def _load(self, path: Path) -> SavedRun | None:
        if path not in self._read:
            try:
                self._read[path] = SavedRun(
                    path, RunSummary.from_json(read_json(path), str(path), self._known, tables=self._tables)
                )
            except RecordError as error:
                self._read[path] = None
                self.refused.append(units.printable(str(error)))
        return self._read[path]


def _members(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{folder} is not a folder of saved runs; name one with --storage, or save a run first") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be read ({error.strerror}); name another with --storage") from None


def _starting_with(reference: str, runs: Iterable[SavedRun]) -> list[SavedRun]:
    if not re.fullmatch(r"[0-9a-f]{4,40}", reference):
        return []
    found = [saved for saved in runs if saved.run.commit.startswith(reference)]
    commits = sorted({saved.run.commit for saved in found})
    if len(commits) > 1:
        raise UsageError(f"{reference!r} is the start of {len(commits)} commits: {', '.join(commits)}; give more of one")
    return found


def _newest_of_branch(reference: str, runs: Sequence[SavedRun]) -> list[SavedRun]:
    if not reference:  # an unset variable of a script; where git failed, a run has no branch either
        return []
    commits = [saved.run.commit for saved in runs if saved.run.branch == reference and not saved.run.dirty]
    return [saved for saved in runs if commits and saved.run.commit == commits[-1]]


def read_json(path: Path) -> Any:
    """Parse a file that anybody may have written.

    Raises:
        RecordError: one line with the file and what is wrong with it.
    """
    try:
        if not path.is_file():
            raise RecordError(f"{path}: is not a file")
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise RecordError(f"{path}: has {units.size(size)}, more than any saved run; leave it out")
        if size == 0:
            raise RecordError(f"{path}: is empty; the run that should have written it was cut off")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise RecordError(f"{path}: is not a text file") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: is not JSON ({error}); the run that wrote it was cut off, or it is no saved run") from None


def _resolve(reference: str) -> str:
    """Return the whole id of what git calls a commit here; empty where there is none, or no git."""
    git = shutil.which("git")
    if git is None or reference.startswith("-"):
        return ""
    command = [git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def tensorboard_directory(case_directory: str, root: Path) -> Path | None:
    """Return the TensorBoard directory of the session that a case belongs to, if it is one of ours below ``root``.

    Only the session's name is taken from the file, and only if it has the form that ``tracking`` gives: whatever a file
    says, nothing outside ``root`` is meant.
    """
    session = Path(case_directory).parent.name
    found = root / session
    return found if _SESSION.fullmatch(session) and found.is_dir() and not found.is_symlink() else None
