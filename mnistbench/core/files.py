"""Atomic writes, locks, and checks whether a place is writable."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file completely or not at all: write a temporary file and rename it.

    Its content is on the disk before it has its name, so that a power cut leaves no other.

    Raises:
        OSError: the file, which the error names, cannot be written; a previous file is unchanged.
    """
    # Nobody can guess the name and make a link of it, which would be followed.
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with scratch.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


@contextlib.contextmanager
def locked(
    path: Path, *, shared: bool = False, before_waiting: Callable[[], None] | None = None
) -> Iterator[int]:
    """Lock a file, which is made if it does not exist, and give its descriptor.

    Its holder may remove it. Then the one that waits locks the file that is in its place.

    Args:
        path: the file.
        shared: whether others may hold a shared lock at the same time.
        before_waiting: called before this process waits for another one; None: it does not wait.

    Raises:
        BlockingIOError: another process has locked it, and this one does not wait.
        OSError: the file cannot be made.
    """
    import fcntl  # here: a measured process locks nothing

    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        with path.open("ab") as stream:
            try:
                fcntl.flock(stream, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                if before_waiting is None:
                    raise
                before_waiting()
                fcntl.flock(stream, mode)
            # Else removed before it was locked.
            if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                yield stream.fileno()
                return


def check_file(file: Path) -> None:
    """Check that :func:`replace_file` could write a file, or that it is a pipe or a device.

    Changes nothing on disk.

    Raises:
        OSError: says why the file cannot be written.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _os_error(errno.EISDIR)
        if not stat.S_ISREG(mode):
            return
    file.parent.stat()
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise _os_error(errno.EACCES)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def why_not_writable(directory: Path) -> str:
    """Return why a directory, which may not exist yet, is not writable; empty if it is.

    Changes nothing on disk.
    """
    try:
        existing = next(
            path
            for path in (directory.absolute(), *directory.absolute().parents)
            if _is_there(path)
        )
    except OSError as error:
        return f"{directory} cannot be used ({error.strerror})"
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


def _is_there(path: Path) -> bool:
    """Return whether a path exists.

    Unlike ``Path.exists``, it raises OSError for an invalid name.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
