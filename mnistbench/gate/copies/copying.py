"""Copy files of a tree into a side's copy, and say why one cannot be copied."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mnistbench.core.errors import UsageError

#: Names that are not copied from a folder that is not a repository.
LEFT_OUT = (
    ".git",
    ".hg",
    ".benchmarks",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    "node_modules",
)

#: Errors of the place for a copy, for which Python may name the file that is read.
_OF_THE_PLACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def is_behind_link(tree: Path, name: str) -> bool:
    """Return whether a folder on the way to a file of a tree is a link, which may lead out of it.

    Nothing is to be written or removed there.
    """
    return any((tree / folder).is_symlink() for folder in Path(name).parents[:-1])


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder, and after each folder what is in that.

    As git does, leave out what is neither a file nor a folder nor a link, and what vanishes.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield entry
            yield from entries_of(Path(entry))
        elif entry.is_symlink() or entry.is_file():
            yield entry


def copy_folder(folder: Path, into: Path, *, follows_links: bool = False) -> None:
    """Copy a folder into one that does not exist yet, with its links or with what they lead to."""
    into.mkdir(parents=True)
    for entry in entries_of(folder):
        target = into / os.path.relpath(entry, folder)
        if entry.is_dir(follow_symlinks=False):
            target.mkdir()
        else:
            copy_file(Path(entry), target, follows_links=follows_links)


def copy_file(source: Path, target: Path, *, follows_links: bool = False) -> None:
    """Copy a file or a link; do nothing if it has vanished since it was listed."""
    try:
        shutil.copy2(source, target, follow_symlinks=follows_links)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(source):
            raise
        target.unlink(missing_ok=True)


@contextmanager
def copying(tree: str, temporary: Path) -> Iterator[None]:
    """Name the file that cannot be read, or the place that cannot be written, in a ``UsageError``.

    Args:
        tree: which is copied.
        temporary: the folder for copies.
    """
    try:
        yield
    except OSError as error:
        is_source = error.filename and not Path(error.filename).is_relative_to(temporary)
        if is_source and error.errno not in _OF_THE_PLACE:
            raise UsageError(
                f"{error.filename}: cannot be read ({error.strerror}), and the gate copies it; "
                "make it readable, or move it out of the tree"
            ) from None
        raise UsageError(
            f"{tree}: cannot be copied to {temporary} ({error.strerror}); make room, or set TMPDIR"
        ) from None
