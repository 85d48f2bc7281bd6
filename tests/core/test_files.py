"""Atomic writes and directories that cannot be written."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from mnistbench.core.files import (
    locked,
    replace_file,
    why_not_writable,
)


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


def test_a_lock_is_held_by_one_process_or_shared_by_several(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waits: list[str] = []
    with locked(path, shared=True), locked(path, shared=True):
        with pytest.raises(BlockingIOError), locked(path):
            pass
        with pytest.raises(InterruptedError), locked(path, before_waiting=interrupt(waits)):
            pass
        assert waits == ["waits"]
    with locked(path), pytest.raises(BlockingIOError), locked(path, shared=True):
        pass
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
