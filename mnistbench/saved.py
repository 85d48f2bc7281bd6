"""Saved runs on disk: found by file, number, glob, ``latest``, commit or branch; each file is read once.

The layout is pytest-benchmark's: ``.benchmarks/<machine>/0001_<name>.json``. It writes in place and two sessions may pick
one number, so a torn file or a number that two files have is expected, named, and costs nothing else.
"""

from __future__ import annotations

import glob
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench import units
from mnistbench.digest import RunDigest
from mnistbench.errors import RecordError, UsageError

#: Larger files are not read: a run of 100 cases has 5 MB.
LARGEST_FILE = 64 * 1024**2

_NUMBERED = re.compile(r"(\d{4,})_.*\.json")

#: What ``tracking.new_directory`` names a session.
_SESSION = re.compile(r"\d{8}-\d{6}(-\d+)?")


@dataclass(frozen=True)
class SavedRun:
    """One file and what it holds."""

    path: Path
    run: RunDigest

    @property
    def number(self) -> str:
        """``0003`` of ``0003_name.json``; empty for a file that has none."""
        found = _NUMBERED.fullmatch(self.path.name)
        return found[1] if found else ""


class Storage:
    """The saved runs below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refused: list[str] = []  # a line for each file that could not be read
        self._read: dict[Path, SavedRun | None] = {}
        self._known: dict[Any, Any] = {}

    def paths(self) -> list[Path]:
        """Return every saved run's file, by number."""
        found = [
            path for folder in (self.root, *self._folders()) for path in folder.iterdir() if _NUMBERED.fullmatch(path.name)
        ]
        return sorted(found, key=lambda path: (int(path.name.partition("_")[0]), path.name, path.parent))

    def _folders(self) -> list[Path]:
        if not self.root.is_dir():
            raise UsageError(f"{self.root} is not a folder of saved runs; name one with --storage, or save a run first")
        return [path for path in self.root.iterdir() if path.is_dir()]

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
        if Path(reference).is_file():
            return [Path(reference)]
        if reference == "latest":
            return self._latest()
        if any(sign in reference for sign in "*?["):
            found = [path for path in self.paths() if path.match(reference) or path.match(f"{reference}.json")]
            found = found or [Path(path) for path in glob.glob(reference, recursive=True) if Path(path).is_file()]  # noqa: PTH207
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
        runs = self.all()
        if identity:
            found = [saved for saved in runs if saved.run.commit == identity]
        elif re.fullmatch(r"[0-9a-f]{4,40}", reference):
            found = [saved for saved in runs if saved.run.commit.startswith(reference)]
        else:
            on_branch = [saved.run.commit for saved in runs if saved.run.branch == reference and not saved.run.dirty]
            found = [saved for saved in runs if on_branch and saved.run.commit == on_branch[-1]]
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
        found = [saved for path in paths if (saved := self._load(path))]
        return sorted(found, key=lambda saved: (saved.run.saved_at, saved.path.name))

    def _load(self, path: Path) -> SavedRun | None:
        if path not in self._read:
            try:
                self._read[path] = SavedRun(path, RunDigest.from_json(read_json(path), str(path), self._known))
            except RecordError as error:
                self._read[path] = None
                self.refused.append(units.printable(str(error)))
        return self._read[path]


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
