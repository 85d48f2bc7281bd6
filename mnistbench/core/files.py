"""Bounded reads, atomic writes, locks, temporary folders, and whether a place is writable."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.machine import available_bytes, end_processes_of

#: First bytes of a file that gzip compressed.
GZIP = b"\x1f\x8b"

#: Bytes that are decompressed at once. The rest of them is copied for each part of a file, so that
#: more would make a file of many small parts slow.
_CHUNK = 2**14

#: Most parts of a compressed file. Raw samples have one for each trial; programs that compress
#: blocks (bgzip) make 16,000 for 1 GiB.
_MAX_PARTS = 100_000

#: Bytes of a file that are read at once to search them.
_READ = 2**20

#: A file of this size is read in any case.
_SMALL = 64 * 1024**2

#: Bytes of memory that are needed to read a byte, at least: the bytes and their text.
_BYTES_OF_BYTE = 3

#: How the names of temporary folders begin, and how those of the locked files beside them end.
_PREFIX = "mnistbench-"
_LOCK = ".lock"
#: What these files have.
_MARK = b"lock of a temporary folder of mnistbench\n"


@dataclass(frozen=True)
class Limit:
    """How much of a file is read that may come from anywhere."""

    n_bytes: int  # decompressed
    kind: str  # of the file: "a trace"
    advice: str  # what to do about a larger file


def read_limited(path: Path, limit: Limit) -> bytes:
    """Return the content of a file, decompressed if it was compressed with gzip.

    Raises:
        RecordError: it cannot be read, is no file, is damaged, or exceeds the limit or the memory.
    """
    with _opened(path, limit) as (stream, most):
        if stream.peek(len(GZIP)).startswith(GZIP):
            _check_decompressed(path, stream, most)
            return b"".join(_decompressed_parts(path, stream, most))
        content = stream.read(most.n_bytes + 1)
        if len(content) > most.n_bytes:
            raise most.exceeded(path)
        return content


def compressed_parts(path: Path, limit: Limit) -> Iterator[bytes]:
    """Yield what each part of a file was that gzip compressed. Those before a fault are yielded.

    Raises:
        DamagedError: a part is damaged or no part.
        CutOffError: the last part has no end.
        RecordError: as :func:`read_limited`.
    """
    with _opened(path, limit) as (stream, most):
        _check_decompressed(path, stream, most)
        yield from _decompressed_parts(path, stream, most)


def beginning(path: Path, n_bytes: int) -> Iterator[bytes]:
    """Yield the first bytes of a file in chunks, decompressed if it was compressed with gzip.

    It has fewer if it is damaged, and none if it is no file or cannot be read.
    """
    most = _Most(n_bytes, "", "")
    with contextlib.suppress(RecordError, OSError, zlib.error):
        if path.is_file():
            with path.open("rb") as stream:
                if stream.peek(len(GZIP)).startswith(GZIP):
                    yield from (piece for piece, _ in _decompressed(path, stream, most))
                while n_bytes > 0 and (chunk := stream.read(_READ)):
                    n_bytes -= len(chunk)
                    yield chunk


@contextlib.contextmanager
def _opened(path: Path, limit: Limit) -> Iterator[tuple[BufferedReader, _Most]]:
    """Open a file of which no more than a limit is read."""
    try:
        check_is_file(path)
        most = _most(limit)
        if path.stat().st_size > most.n_bytes:
            raise most.exceeded(path)
        with path.open("rb") as stream:
            yield stream, most
    except zlib.error as error:
        raise DamagedError(f"{path}: is damaged ({error}); copy the file again") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None


def check_is_file(path: Path) -> None:
    """Check that a path is a file or a link to one: a pipe or a device may have no end.

    Raises:
        RecordError: it is something else.
        OSError: it does not exist.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise RecordError(f"{path}: is not a file; a folder, a pipe or a device is not read")


class DamagedError(RecordError):
    """A compressed file is damaged."""


class CutOffError(RecordError):
    """The last part of a compressed file has no end."""


@dataclass(frozen=True)
class _Most:
    """The bytes that are read of a file, and the reason."""

    n_bytes: int
    why: str
    advice: str

    def exceeded(self, path: Path) -> RecordError:
        return RecordError(
            f"{path}: has more than {units.size(self.n_bytes)}, {self.why}; {self.advice}"
        )


def _most(limit: Limit) -> _Most:
    """Return the limit, or less where the memory is not enough for it."""
    most = _Most(limit.n_bytes, f"the most that is read of {limit.kind}", limit.advice)
    if limit.n_bytes <= _SMALL:
        return most
    memory = available_bytes()
    n_bytes = memory / _BYTES_OF_BYTE
    if n_bytes >= limit.n_bytes:
        return most
    why = f"for which the available memory of {units.size(memory)} is too small"
    return _Most(max(_SMALL, math.floor(n_bytes)), why, limit.advice)


def _check_decompressed(path: Path, stream: BufferedReader, most: _Most) -> None:
    """Check what a large file would become, before the memory is filled with it."""
    if most.n_bytes > _SMALL:
        with contextlib.suppress(CutOffError, zlib.error):  # the reader has more to say
            for _ in _decompressed(path, stream, most):
                pass
        stream.seek(0)


def _decompressed_parts(path: Path, stream: BufferedReader, most: _Most) -> Iterator[bytes]:
    pieces = []
    for piece, ends_part in _decompressed(path, stream, most):
        pieces.append(piece)
        if ends_part:
            yield b"".join(pieces)
            pieces.clear()


def _decompressed(path: Path, stream: BufferedReader, most: _Most) -> Iterator[tuple[bytes, bool]]:
    """Yield pieces of at most 16 MiB, and whether a part ends with each."""
    n_bytes = 0
    n_parts = 0
    compressed = stream.read(_CHUNK)
    while compressed:
        n_parts += 1
        if n_parts > _MAX_PARTS:
            raise RecordError(
                f"{path}: has more than {units.count(_MAX_PARTS)} compressed parts, the most that "
                f"are read of any file; {most.advice}"
            )
        part = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not part.eof:
            if not compressed:
                raise CutOffError(f"{path}: is cut off; copy the whole file again")
            piece = part.decompress(compressed, most.n_bytes - n_bytes + 1)
            n_bytes += len(piece)
            if n_bytes > most.n_bytes:
                raise most.exceeded(path)
            compressed = b"" if part.eof else stream.read(_CHUNK)
            yield piece, part.eof
        # gzip allows zeros after each part.
        compressed = part.unused_data.lstrip(b"\0")
        while not compressed and (chunk := stream.read(_CHUNK)):
            compressed = chunk.lstrip(b"\0")


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
def locked(path: Path, *, before_waiting: Callable[[], None] | None = None) -> Iterator[int]:
    """Lock a file, which is made if it does not exist, and give its descriptor.

    Its holder may remove it. Then the one that waits locks the file that is in its place.

    Args:
        path: the file.
        before_waiting: called before this process waits for another one; None: it does not wait.

    Raises:
        BlockingIOError: another process has locked it, and this one does not wait.
        OSError: the file cannot be made.
    """
    import fcntl  # here: a measured process locks nothing

    while True:
        with path.open("ab") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if before_waiting is None:
                    raise
                before_waiting()
                fcntl.flock(stream, fcntl.LOCK_EX)
            # Else removed before it was locked.
            if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                yield stream.fileno()
                return


@contextlib.contextmanager
def scratch(command: str) -> Iterator[Path]:
    """Yield a temporary folder and remove it afterwards.

    Remove also the folders of killed commands, and on Linux end the processes that these have left.
    The file beside a folder, which its command has locked, exists before the folder and is removed
    after it. So no folder is ever without its file.

    Args:
        command: part of the name, which tells a user whose folder it is.
    """
    from mnistbench.core.child import uninterrupted  # here: most commands start no process

    temporary = Path(tempfile.gettempdir()).resolve()
    with contextlib.ExitStack() as held:
        try:
            lock = _new_lock(temporary, command)
            held.enter_context(locked(lock, before_waiting=lambda: None))
            folder = lock.with_suffix("")
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise UsageError(
                f"{temporary}: cannot be written ({error.strerror}); set TMPDIR to a folder that "
                "can be"
            ) from None
        try:
            _remove_abandoned(temporary, lock)
            yield folder
        finally:
            with uninterrupted():
                _remove(folder, lock)


def _new_lock(temporary: Path, command: str) -> Path:
    prefix = f"{_PREFIX}{command}-"
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=_LOCK, dir=temporary)
    try:
        os.write(descriptor, _MARK)
    finally:
        os.close(descriptor)
    return Path(name)


def _remove_abandoned(temporary: Path, own: Path) -> None:
    for lock in temporary.glob(f"{_PREFIX}*{_LOCK}"):
        # Locked by a running command, or removed already.
        with contextlib.suppress(OSError):
            facts = lock.lstat()
            is_own_user = facts.st_uid == os.getuid()
            if lock != own and stat.S_ISREG(facts.st_mode) and is_own_user and _is_ours(lock):
                with locked(lock):
                    folder = lock.with_suffix("")
                    end_processes_of(folder)
                    _remove(folder, lock)


def _is_ours(lock: Path) -> bool:
    """Whether a command has made this file: another program may give its own such a name."""
    with lock.open("rb") as stream:
        return stream.read(len(_MARK) + 1) == _MARK


def _remove(folder: Path, lock: Path) -> None:
    """Remove a folder and then its file; another command removes what cannot be removed now."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():  # a test has made a folder that its owner may not change or list
            _permit(folder)
            shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        lock.unlink(missing_ok=True)


def _permit(folder: Path) -> None:
    """Let the owner change and list a folder and those in it."""
    with contextlib.suppress(OSError):  # of another user
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            inner = [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for path in inner:
            _permit(path)


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
