"""The environments in the user's cache: make one or use it again, list them, remove them.

Each environment has a folder, named by a hash of what was asked for. Its manifest is written last,
so a folder without one is incomplete. A file beside the folder is locked: shared while an
environment is used, exclusively while it is made or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import platformdirs

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import locked, replace_file
from mnistbench.core.reading import read_text
from mnistbench.core.units import size
from mnistbench.gate.environments import uv
from mnistbench.gate.environments.packages import Wanted
from mnistbench.gate.environments.python import name_of
from mnistbench.gate.trees import contents_of

#: The manifest, which marks an environment as complete.
_MANIFEST = "mnistbench.json"
#: The version of the manifest.
SCHEMA: Final = 1


@dataclass(frozen=True)
class MadeEnvironment:
    """A complete environment, as its manifest describes it."""

    folder: str
    asked: tuple[str, ...]  # requirements that the user has given
    version: str  # of its interpreter
    created: str  # UTC, ISO 8601
    last_used: str  # the same
    packages: Mapping[str, str]  # installed distribution -> version
    size_bytes: int  # of its files, also those that it shares with uv's cache
    schema: Literal[1] = SCHEMA

    @property
    def python(self) -> str:
        """The path of its interpreter."""
        return f"{self.folder}/bin/python"


def root() -> Path:
    """Return the folder of all environments."""
    return platformdirs.user_cache_path("mnistbench") / "environments"


@contextmanager
def held(wanted: Wanted, say: Callable[[str], None]) -> Iterator[MadeEnvironment]:
    """Make an environment, or use the one that was made before.

    It cannot be removed until the body ends.
    """
    folder = root() / _name(wanted)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder.parent} cannot be written ({error.strerror}); set XDG_CACHE_HOME to another "
            "folder"
        ) from None

    def before_waiting() -> None:
        say(f"waiting for another process that makes or removes {shown(folder)}")

    lock_file = _lock_file(folder)
    while True:  # another process may remove it after it was made and before it is used
        with locked(lock_file, shared=True, before_waiting=before_waiting):
            if environment := _load(folder):
                used = replace(environment, last_used=_now())
                with contextlib.suppress(OSError):  # a full disk does not prevent its use
                    _write(used)
                yield used
                return
        with locked(lock_file, before_waiting=before_waiting) as lock:
            if _load(folder) is None:
                try:
                    _make(folder, wanted, lock, say)
                except BaseException:  # also Ctrl-C
                    _remove(folder)
                    lock_file.unlink()
                    raise


def listed() -> tuple[list[MadeEnvironment], int]:
    """Return the complete environments, oldest first, and the number of other folders.

    Incomplete, or being made.
    """
    folders = _folders()
    complete = [environment for folder in folders if (environment := _load(folder))]
    complete.sort(key=lambda environment: (environment.created, environment.folder))
    return complete, len(folders) - len(complete)


def remove_all() -> dict[Path, tuple[int, int] | None]:
    """Remove all environments but those that another process uses or makes.

    Returns:
        Folder -> bytes of its files, and of those without a hard link in uv's cache; None if it is
        used, and so not removed.
    """
    removed: dict[Path, tuple[int, int] | None] = {}
    for folder in _folders():
        try:
            with locked(_lock_file(folder)):
                sizes = _sizes(folder)
                _remove(folder)
                _lock_file(folder).unlink()
            removed[folder] = sizes
        except BlockingIOError:
            removed[folder] = None
        except OSError as error:
            raise UsageError(f"{folder} cannot be removed ({error.strerror})") from None
    return removed


def shown(folder: Path) -> str:
    """Return a path as a user writes it: ``~/.cache/...``."""
    with contextlib.suppress(ValueError, RuntimeError):  # another folder, or no home
        return str(Path("~") / folder.relative_to(Path.home()))
    return str(folder)


def _make(folder: Path, wanted: Wanted, lock: int, say: Callable[[str], None]) -> None:
    """Make an environment in its folder; an error may leave a part of it."""
    program = uv.find()
    asked = ", ".join(wanted.asked)
    say(
        f"making an environment with {asked} in {shown(folder)}: about {size(wanted.size_bytes)}, "
        "less what uv has in its cache"
    )
    install = ["pip", "install", "--python", f"{folder}/bin/python"]
    for line in wanted.lines:
        # uv would use what it has built from a folder until the pyproject.toml there changes.
        if " @ file:" in line:
            install += ["--refresh-package", line.partition(" @ ")[0].partition("[")[0]]
    try:
        _remove(folder)
        python = wanted.interpreter.path
        uv.run(program, ["venv", "--no-project", "--python", python, str(folder)], lock)
        if wanted.loose:  # uv keeps an installed version unless a requirement excludes it
            uv.run(
                program,
                [
                    *install,
                    "--no-deps",
                    "--requirements",
                    _requirements(folder / "loose.txt", wanted.loose),
                ],
                lock,
            )
        lines = [line.partition("==")[0] if line in wanted.loose else line for line in wanted.lines]
        uv.run(
            program,
            [*install, "--requirements", _requirements(folder / "requirements.txt", lines)],
            lock,
        )
        places = [str(path) for path in folder.glob("lib/python*/site-packages")]
        packages = {
            distribution.name: distribution.version
            for distribution in importlib.metadata.distributions(path=places)
            if name_of(distribution)
        }
        now = _now()
        _write(
            MadeEnvironment(
                str(folder),
                wanted.asked,
                wanted.interpreter.number,
                now,
                now,
                packages,
                _sizes(folder)[0],
            )
        )
        if _load(folder) is None:
            raise UsageError("uv made a folder without an interpreter")  # noqa: TRY301
    except OSError as error:
        raise UsageError(
            f"no environment with {asked}: {shown(folder)} cannot be written ({error.strerror})"
        ) from None
    except UsageError as error:
        raise UsageError(f"no environment with {asked}: {error}") from None


def _requirements(path: Path, lines: Sequence[str]) -> str:
    """Write a file of requirements and return its path."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def _name(wanted: Wanted) -> str:
    """Return a hash of everything that decides what is installed."""
    local = [
        contents_of(Path(unquote(urlsplit(line.partition(" @ ")[2]).path)))
        for line in wanted.lines
        if " @ file:" in line
    ]
    identity = [
        sys.implementation.name,
        wanted.interpreter.version,
        sysconfig.get_platform(),
        wanted.asked,
        wanted.lines,
        wanted.loose,
        local,
        uv.settings(),
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _lock_file(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _folders() -> list[Path]:
    return sorted(path for path in root().iterdir() if path.is_dir()) if root().is_dir() else []


def _load(folder: Path) -> MadeEnvironment | None:
    """Return an environment if it is complete, in its place, and its interpreter still exists."""
    try:
        environment = read_text((folder / _MANIFEST).read_bytes(), MadeEnvironment)
    except (OSError, RecordError):
        return None
    is_usable = environment.folder == str(folder) and os.access(environment.python, os.X_OK)
    return environment if is_usable else None


def _write(environment: MadeEnvironment) -> None:
    manifest = json.dumps(asdict(environment), indent=1)
    replace_file(Path(environment.folder, _MANIFEST), manifest.encode())


def _remove(folder: Path) -> None:
    """Remove a folder, its manifest first.

    An interrupted removal leaves no folder that seems complete. What a link leads to stays.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    (folder / _MANIFEST).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _sizes(folder: Path) -> tuple[int, int]:
    """Return the bytes of all files of a folder, and of those without another hard link."""
    total = 0
    own = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            # A Path per file takes twice as long.
            status = os.lstat(os.path.join(directory, name))  # noqa: PTH118
            total += status.st_size
            own += status.st_size if status.st_nlink == 1 else 0
    return total, own


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
