"""Saved runs on disk: found by file, number, glob, ``latest``, commit, branch or name.

Each file is read once.

The layout is that of pytest-benchmark: ``.benchmarks/<machine>/0001_<name>.json``. pytest-benchmark
writes in place, and two sessions may choose the same number, so truncated files and duplicate
numbers are reported and do not stop a command.
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

import msgspec

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import Limit, beginning, read_limited
from mnistbench.core.machine import gc_paused
from mnistbench.core.record import Detail
from mnistbench.saved_runs.run import Run

#: A run of 100 cases has 5 MB.
SAVED_RUN = Limit(64 * 1024**2, "a saved run", "leave it out")

_NUMBERED = re.compile(r"(\d{4,})_(.*)\.json(?:\.gz)?")

#: What ``--benchmark-autosave`` writes after the number: a commit, the time, and whether the tree
#: had changes.
_AUTOSAVED = re.compile(r"([0-9a-f]{7,40}|unversioned|unknown)_\d{8}_\d{6}(_.*)?")

#: Endings of the names of saved runs.
ENDINGS = (".json", ".json.gz")

#: The first of these keys tells a trace from a saved run; texts inside JSON have no plain quotes.
_KEY = re.compile(rb'"(traceEvents|benchmarks)"\s*:')

#: A key of each event of a trace.
_EVENT = re.compile(rb'"ph"\s*:')

#: What may stand before JSON: byte order marks and white space.
_BEFORE_JSON = b"\xef\xbb\xbf\xff\xfe \t\r\n"

#: Bytes of a file in which the key is searched. Both programs write it before the most of the file.
_SEARCHED = 256 * 1024**2

#: Bytes of a chunk that are searched with the next one.
_OVERLAP = 64

_NEITHER = "it is neither a saved run of pytest-benchmark nor a trace of torch.profiler"


@dataclass(frozen=True)
class SavedRun:
    """One file and its run."""

    path: Path
    run: Run  # of a saved run, as much as its Storage reads; of a trace, all

    def whole(self) -> Run:
        """Return the run with samples and curves, which a saved run has in its file.

        Raises:
            RecordError: they cannot be read.
        """
        if self.run.trace:
            return self.run
        return Run.from_json(read_json(self.path), str(self.path))

    @property
    def number(self) -> str:
        """``0003`` of ``0003_name.json``, compressed or not; empty for a file without a number."""
        numbered = _NUMBERED.fullmatch(self.path.name)
        return numbered[1] if numbered else ""

    @property
    def name(self) -> str:
        """The number, or the name of a file without one."""
        return self.number or self.path.name

    @property
    def given_name(self) -> str:
        """``new-parser`` of ``0002_new-parser.json``; empty for an automatic name."""
        numbered = _NUMBERED.fullmatch(self.path.name)
        return numbered[2] if numbered and not _AUTOSAVED.fullmatch(numbered[2]) else ""


class Storage:
    """The saved runs below one directory."""

    def __init__(self, root: Path, detail: Detail = "medians") -> None:
        self.root = root
        self._detail = detail
        self.refused: list[str] = []  # a line for each file that could not be read
        self._read: dict[Path, SavedRun | None] = {}

    def paths(self) -> list[Path]:
        """Return the files of all saved runs, sorted by number.

        Where no file has a number, they are those that ``--benchmark-json`` wrote, under any name.
        """
        folders = (self.root, *(path for path in _members(self.root) if path.is_dir()))
        files = [
            path for folder in folders for path in _members(folder) if path.name.endswith(ENDINGS)
        ]
        numbered_files = [path for path in files if _NUMBERED.fullmatch(path.name)]
        if not numbered_files:
            return sorted(path for path in files if has_key(path) == "benchmarks")
        return sorted(
            numbered_files,
            key=lambda path: (int(path.name.partition("_")[0]), path.name, path.parent),
        )

    def all(self) -> list[SavedRun]:
        """Return all readable runs, oldest first; errors of the others are added to ``refused``."""
        return self._sorted(self.paths())

    def find(self, reference: str) -> list[SavedRun]:
        """Return the runs that a reference means, oldest first.

        It is a file, a number, a glob, ``latest``, a commit, a branch or a name.

        Raises:
            UsageError: the reference means no readable run, or a number means several.
        """
        paths = self._paths_of(reference)
        if not paths:
            try:
                return self._of_commit(reference)
            except UsageError:
                paths = self._named(reference)
                if not paths:
                    raise
        saved_runs = self._sorted(paths)
        if not saved_runs:
            raise UsageError(
                f"{reference!r} is {paths[0] if len(paths) == 1 else f'{len(paths)} files'}: "
                "nothing there can be read"
            )
        return saved_runs

    def _paths_of(self, reference: str) -> list[Path]:
        # Path.is_file raises where a name is too long.
        if os.path.isfile(reference):  # noqa: PTH113
            return [Path(reference)]
        if reference == "latest":
            return self._latest()
        if any(sign in reference for sign in "*?["):
            patterns = (reference, *(f"{reference}{ending}" for ending in ENDINGS))
            files = []
            # A bare * means saved runs, never files of the working directory.
            if reference.endswith(ENDINGS):
                files = [
                    Path(path)
                    for path in glob.glob(reference, recursive=True)  # noqa: PTH207
                    if Path(path).is_file()
                ]
            if files and not self.root.is_dir():
                return files
            matching = [path for path in self.paths() if any(map(path.match, patterns))] or files
            if not matching:
                raise UsageError(
                    f"{reference!r} matches no saved run in {self.root}; mnistbench list shows them"
                )
            return matching
        folder, _, name = reference.rpartition("/")
        if name.isdecimal() and len(name) <= 6:  # longer, it is the id of a commit
            numbered = [
                (path, number[1])
                for path in self.paths()
                if (number := _NUMBERED.fullmatch(path.name))
            ]
            matching = [
                path
                for path, number in numbered
                if int(number) == int(name) and folder in ("", path.parent.name)
            ]
            return _only_one(matching, f"{reference!r} is the number of")
        return []

    def _named(self, reference: str) -> list[Path]:
        """Return the file of a name: as it is, without its ending, or without its number."""
        folder, _, name = reference.rpartition("/")
        paths = [path for path in self.paths() if folder in ("", path.parent.name)] if name else []
        matching = [
            path
            for path in paths
            if path.name in (name, *(f"{name}{ending}" for ending in ENDINGS))
        ]
        if not matching:
            matching = [
                path
                for path in paths
                if (number := _NUMBERED.fullmatch(path.name)) and number[2] == name
            ]
        return _only_one(matching, f"{reference!r} is the name of")

    def _latest(self) -> list[Path]:
        """Return the readable run with the highest number, or the newest by date."""
        paths = self.paths()
        if not any(_NUMBERED.fullmatch(path.name) for path in paths):
            paths = [saved.path for saved in self._sorted(paths)]
        for path in reversed(paths):
            if self._load(path):
                return [path]
        raise UsageError(
            f"'latest': no saved run in {self.root} can be read; save one with: pytest bench "
            "--benchmark-autosave"
        )

    def _of_commit(self, reference: str) -> list[SavedRun]:
        """Return the runs of a commit, or of a branch's newest one, without changed trees."""
        identity = _resolve(reference)
        runs = [saved for saved in self.all() if saved.run.commit]
        if identity:
            matching = [saved for saved in runs if saved.run.commit == identity]
        else:
            # An unset variable of a script is no branch: where git failed, a run has none either.
            branch_runs = [
                saved
                for saved in runs
                if reference and saved.run.branch == reference and not saved.run.dirty
            ]
            newest = {saved.run.commit for saved in branch_runs[-1:]}
            matching = _starting_with(reference, runs) or [
                saved for saved in runs if saved.run.commit in newest
            ]
        clean = [saved for saved in matching if not saved.run.dirty]
        if clean:
            return clean
        of = (
            f"{reference!r} is commit {identity[:7]}, which"
            if identity and identity != reference
            else f"{reference!r}"
        )
        if matching:
            files = ", ".join(str(saved.path) for saved in matching)
            raise UsageError(
                f"{of} has saved runs only with changes on top of it: {files}; name one of these "
                "files"
            )
        raise UsageError(
            f"{of} has no saved run in {self.root}; give a file, a number, a name, a glob, latest, "
            "a commit or a branch that has one (mnistbench list shows them)"
        )

    def _sorted(self, paths: Sequence[Path]) -> list[SavedRun]:
        with gc_paused():
            loaded = [saved for path in paths if (saved := self._load(path))]
        return sorted(loaded, key=lambda saved: (saved.run.saved_at, saved.path.name))

    def _load(self, path: Path) -> SavedRun | None:
        if path not in self._read:
            try:
                saved = SavedRun(path, _read_run(path, self._detail))
                self._read[path] = saved
                self.refused += [
                    units.printable(f"{path}: {line}; this benchmark is left out")
                    for line in saved.run.left_out
                ]
            except RecordError as error:
                self._read[path] = None
                self.refused.append(units.printable(str(error)))
        return self._read[path]


def _read_run(path: Path, detail: Detail) -> Run:
    file = read_json(path)
    if isinstance(file, dict) and "benchmarks" not in file:
        if "traceEvents" in file:
            raise RecordError(
                f"{path}: is a trace, no saved run; compare two traces by their paths"
            )
        raise RecordError(f"{path}: has no benchmarks and no traceEvents; {_NEITHER}")
    return Run.from_json(file, str(path), detail)


def _members(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{folder} is not a folder of saved runs; name one with --storage, or save a run first"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read ({error.strerror}); name another with --storage"
        ) from None


def _only_one(matching: list[Path], what: str) -> list[Path]:
    """Return the files that a reference means."""
    if len(matching) > 1:
        shown = ", ".join(str(path) for path in matching)
        raise UsageError(f"{what} {len(matching)} saved runs: {shown}; give one's file")
    return matching


def has_key(path: Path) -> str:
    """Return the first of the keys that tell a trace from a saved run; empty if there is none.

    A file that cannot be read has none. Pipes and the like are not opened: they may never end.

    A large part of a file is read only if it is neither. Chrome's form of a trace is a list of
    events, and a key of an event counts as ``traceEvents``.
    """
    return _first_key(beginning(path, _SEARCHED))


def _first_key(chunks: Iterable[bytes]) -> str:
    pattern = None
    before = b""
    for chunk in chunks:
        text = chunk.replace(b"\0", b"")  # UTF-16 has a zero byte beside each letter of a key
        pattern = pattern or (_EVENT if text.lstrip(_BEFORE_JSON).startswith(b"[") else _KEY)
        if key := pattern.search(before + text):
            return "traceEvents" if pattern is _EVENT else key[1].decode()
        before = text[-_OVERLAP:]
    return ""


def _starting_with(reference: str, runs: Iterable[SavedRun]) -> list[SavedRun]:
    if not re.fullmatch(r"[0-9a-f]{4,40}", reference):
        return []
    matching = [saved for saved in runs if saved.run.commit.startswith(reference)]
    commits = sorted({saved.run.commit for saved in matching})
    if len(commits) > 1:
        raise UsageError(
            f"{reference!r} is the start of {len(commits)} commits: {', '.join(commits)}; give "
            "more of one"
        )
    return matching


def read_json(path: Path) -> Any:
    """Parse a file of unknown origin.

    Raises:
        RecordError: one line with the file and the reason.
    """
    content = read_limited(path, SAVED_RUN)
    if not content:
        raise RecordError(f"{path}: is empty; the run that should have written it was cut off")
    return _parsed(content, path)


def _parsed(text: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(text)
    # JSON of other programs: with NaN, in UTF-16 or UTF-32, or with a byte order mark.
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        from mnistbench.events.content import formats  # here: most files are read

        if known := formats.of_bytes(text):
            raise RecordError(f"{path}: is {known.name}; {known.remedy or _NEITHER}") from None
        begins_like_json = text.replace(b"\0", b"").lstrip(_BEFORE_JSON)[:1] in (b"{", b"[")
        if isinstance(error, UnicodeDecodeError):
            why = (
                "has bytes that are not UTF-8; save it as UTF-8"
                if begins_like_json
                else f"is not a text file; {_NEITHER}"
            )
            raise RecordError(f"{path}: {why}") from None
        why = (
            "the run that wrote it was cut off, or it is no saved run"
            if begins_like_json
            else _NEITHER
        )
        raise RecordError(f"{path}: is not JSON ({error}); {why}") from None


def _resolve(reference: str) -> str:
    """Return the whole id of a commit of the repository here; empty if there is none, or no git."""
    git = shutil.which("git")
    if git is None or reference.startswith("-"):
        return ""
    command = [
        git,
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{reference}^{{commit}}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
