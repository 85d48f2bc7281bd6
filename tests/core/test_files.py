"""Bounded reads, atomic writes and directories that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from mnistbench.core import files
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import (
    _MARK,
    CutOffError,
    DamagedError,
    Limit,
    beginning,
    compressed_parts,
    locked,
    read_limited,
    replace_file,
    scratch,
    why_not_writable,
)

LIMIT = Limit(1_000_000, "a file of this test", "make it smaller")
TOO_LARGE = "has more than 977 KiB, the most that is read of a file of this test; make it smaller"


def refusal(path: Path, limit: Limit = LIMIT) -> str:
    with pytest.raises(RecordError) as raised:
        read_limited(path, limit)
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("size", [0, 1, 1_000_000])
def test_a_file_within_the_limit_is_read(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    plain = tmp_path / "plain"
    plain.write_bytes(b"{" + content[1:])
    compressed = tmp_path / "compressed"
    # Two parts, with the padding that gzip allows.
    parts = [content[:500_000], content[500_000:]]
    compressed.write_bytes(b"".join(gzip.compress(part, 1) + bytes(40_000) for part in parts))
    assert read_limited(plain, LIMIT) == b"{" + content[1:]
    assert read_limited(compressed, Limit(10**9, "", "")) == content
    assert list(compressed_parts(compressed, Limit(10**9, "", ""))) == parts
    assert b"".join(beginning(compressed, 10**7)) == content
    assert b"".join(beginning(plain, 10**7)) == b"{" + content[1:]


def test_a_larger_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(1_000_001))
    assert refusal(path) == TOO_LARGE
    path.write_bytes(gzip.compress(bytes(1_000_001)))
    assert refusal(path) == TOO_LARGE
    assert sum(map(len, beginning(path, 100))) < 1_000_001


def test_a_small_file_that_becomes_large_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SMALL", 1_000_000)
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(100_000_000)) * 3)
    tracemalloc.start()
    assert "has more than 238 MiB, the most" in refusal(path, Limit(250_000_000, "", ""))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000


def test_a_file_for_which_the_memory_is_too_small_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SMALL", 1_000)
    monkeypatch.setattr(files, "available_bytes", lambda: 300_000.0)
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    assert read_limited(path, LIMIT) == bytes(100_000)
    path.write_bytes(bytes(100_001))
    assert refusal(path) == (
        "has more than 97.7 KiB, for which the available memory of 293 KiB is too small; make it "
        "smaller"
    )


def test_a_file_of_very_many_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    path.write_bytes(gzip.compress(b"", 1) * 100_001)
    assert refusal(path, Limit(10**9, "", "make it smaller")) == (
        "has more than 100,000 compressed parts, the most that are read of any file; make it "
        "smaller"
    )


def test_a_compressed_file_with_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    part = gzip.compress(b"part")
    for content, error in (
        (part + part[:-1], CutOffError),
        (part + b"rest", DamagedError),
        (part + part[:-8] + bytes(8), DamagedError),
    ):
        path.write_bytes(content)
        read = []
        with pytest.raises(error):
            read.extend(compressed_parts(path, LIMIT))
        assert read == [b"part"]
        with pytest.raises(error):
            read_limited(path, LIMIT)
        assert next(beginning(path, 1_000)) == b"part"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # reading it would wait for a writer
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    for path in (pipe, link, tmp_path):
        assert refusal(path) == "is not a file; a folder, a pipe or a device is not read"
        assert list(beginning(path, 1_000)) == []
    assert refusal(tmp_path / "missing") == "cannot be read (No such file or directory)"


def test_a_file_is_written_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    for content in (b"one", b"another"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        replace_file(path, b"new")
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_is_one_that_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"old")
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".weights.pt.guessed").symlink_to(victim)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "weights.pt", b"new")
    assert victim.read_bytes() == b"old"


def test_a_lock_is_held_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waits: list[str] = []
    with locked(path):
        with pytest.raises(BlockingIOError), locked(path):
            pass
        with pytest.raises(InterruptedError), locked(path, before_waiting=interrupt(waits)):
            pass
        assert waits == ["waits"]
    with locked(path, before_waiting=interrupt(waits)):
        assert waits == ["waits"]


def interrupt(waits: list[str]) -> Callable[[], None]:
    """Return what notes that a lock is waited for, and ends the wait."""

    def before_waiting() -> None:
        waits.append("waits")
        raise InterruptedError

    return before_waiting


def test_a_file_that_its_holder_removed_is_no_lock_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    flock = fcntl.flock
    removed: list[int] = []

    def after_a_removal(descriptor: IO[bytes], operation: int) -> None:
        if not removed:
            removed.append(path.stat().st_ino)
            path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_a_removal)
    with locked(path) as descriptor:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        assert len(removed) == 1


def test_why_a_directory_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_writable(tmp_path / "not" / "there") == ""
    (tmp_path / "file").write_text("in the way")
    assert (
        why_not_writable(tmp_path / "file" / "below") == f"{tmp_path / 'file'} is not a directory"
    )
    assert not (tmp_path / "not").exists()
    long = tmp_path / ("n" * 300)
    assert why_not_writable(long) == f"{long} cannot be used (File name too long)"
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert "Too many levels of symbolic links" in why_not_writable(tmp_path / "round" / "below")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert why_not_writable(tmp_path / "not") == f"{tmp_path} is not writable"


# ---- Temporary folders ---------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which has nothing."""
    folder = (tmp_path / "tmp").resolve()
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_behind(temporary: Path) -> Path:
    folder = temporary / "mnistbench-gate-dead"
    (folder / "base" / "deep").mkdir(parents=True)
    lock_of(folder).write_bytes(_MARK)
    return folder


def lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_the_folder_goes_however_the_body_ends(
    temporary: Path, error: type[BaseException] | None
) -> None:
    # Of two gates at once.
    with (
        pytest.raises(error) if error else contextlib.nullcontext(),
        scratch("gate") as folder,
        scratch("gate"),
    ):
        (folder / "base").mkdir()
        assert folder.parent == temporary
        if error:
            raise error
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_dead_gate_goes_too(temporary: Path) -> None:
    dead = left_behind(temporary)
    with scratch("gate") as folder:
        assert sorted(temporary.iterdir()) == [folder, lock_of(folder)]
        assert not dead.exists()


class KilledError(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("call", ["mkdir", "rmdir", "unlink"])
def test_the_folder_of_a_gate_that_was_killed_meanwhile_goes_too(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Killed at any call that makes or removes a file or a folder, while these are there."""
    original = getattr(os, call)
    calls = 0
    while True:
        left = calls

        def killed(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if "mnistbench-gate-" in str(arguments[0]) or "dir_fd" in options:
                left -= 1
                if left < 0:
                    raise KilledError
            return original(*arguments, **options)

        left_behind(temporary)
        with monkeypatch.context() as patch, contextlib.suppress(KilledError):
            patch.setattr(os, call, killed)
            with scratch("gate") as folder:
                (folder / "base").mkdir()
                (folder / "base" / "model.py").touch()
        with scratch("gate") as folder:
            assert sorted(temporary.iterdir()) == [folder, lock_of(folder)]
        if left >= 0:  # no call is left
            break
        calls += 1
    assert calls > 1


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_processes_that_a_killed_command_has_left_end(temporary: Path) -> None:
    """A benchmark can start a daemon, which gets the variables of its side."""
    dead = left_behind(temporary)
    command = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
    with contextlib.ExitStack() as stack:
        left, other, looks_into = (
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
            for variables in (
                {"TMPDIR": f"{dead}/tmp/base"},
                {"TMPDIR": f"{dead}-other/tmp"},
                {"PWD": f"{dead}/base", "OLDPWD": f"{dead}/base"},  # an editor of a user
            )
        )
        for process in (left, other, looks_into):
            stack.callback(process.kill)
            assert process.stdout
            process.stdout.readline()  # then it has its variables
        with scratch("gate"):
            pass
        assert left.wait() == -signal.SIGKILL
        assert other.poll() is looks_into.poll() is None


@pytest.mark.skipif(os.getuid() == 0, reason="root may do everything")
def test_a_folder_that_nobody_may_list_or_change_goes_too(temporary: Path) -> None:
    with scratch("gate") as folder:
        (folder / "tmp" / "a" / "b").mkdir(parents=True)
        (folder / "tmp" / "a" / "b").chmod(0)
        (folder / "tmp" / "a").chmod(0o500)
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_running_gate_stays(temporary: Path) -> None:
    program = """
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
    folder = left_behind(temporary)
    command = [sys.executable, "-c", program, str(lock_of(folder))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline() == "held\n"
        with scratch("gate"):
            pass
        assert (folder / "base").is_dir()
    with scratch("gate"):
        assert not folder.exists()


def test_a_folder_that_another_gate_has_just_made_stays(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has no time to take its lock: the second gate starts between the two.
    flock = fcntl.flock
    inside = list[IO[bytes]]()

    def slow(lock: IO[bytes], operation: int) -> None:
        if not inside:
            inside.append(lock)
            with scratch("gate"):
                pass
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with scratch("gate") as folder:
        assert folder.is_dir()
        assert lock_of(folder).is_file()


def test_other_things_in_the_temporary_folder_stay(tmp_path: Path, temporary: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    for name, target in (("link", precious), ("dangling", "nowhere")):
        folder = temporary / f"mnistbench-gate-{name}"
        folder.symlink_to(target)
        lock_of(folder).symlink_to(precious / "file")
    (temporary / "mnistbench-gate-results").mkdir()  # the action has such a folder
    (temporary / "mnistbench-gate-file").touch()
    (temporary / "mine").mkdir()
    (temporary / "mine.lock").touch()
    (temporary / "mnistbench-ci").mkdir()  # of a script, which locks it in the same way
    (temporary / "mnistbench-ci.lock").touch()
    before = sorted(path.name for path in temporary.iterdir())
    with scratch("gate"):
        pass
    assert sorted(path.name for path in temporary.iterdir()) == before
    lock_of(temporary / "mnistbench-gate-link").unlink()
    lock_of(temporary / "mnistbench-gate-link").touch()
    with scratch("gate"):
        pass
    assert (precious / "file").is_file()


def test_a_temporary_folder_that_cannot_be_written_is_one_line(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(UsageError) as raised, scratch("gate"):
        pass
    assert str(raised.value) == (
        f"{temporary}: cannot be written (No space left on device); set TMPDIR to a folder that "
        "can be"
    )
