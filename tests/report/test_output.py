"""Where a report goes: what cannot be written is known before anything is measured for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mnistbench.core.errors import UsageError
from mnistbench.report.output import check, write


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no/report.txt", "No such file or directory"),
        ("file/report.txt", "Not a directory"),
        ("folder", "Is a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_written_is_the_same_line_before_and_after(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    path = tmp_path / name
    lines = []
    for use in (check, lambda path: write(path, "text")):
        with pytest.raises(UsageError) as error:
            use(path)
        lines.append(str(error.value))
    assert lines == [f"--output: {path} cannot be written ({why}); name another file"] * 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_that_is_not_writable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UsageError, match=r"cannot be written \(Permission denied\); name another file$"):
        check(tmp_path / "report.txt")


def test_what_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "old.txt")
    before = sorted(tmp_path.iterdir())
    for name in ("old.txt", "new.txt", "pipe", "link"):
        check(tmp_path / name)
    check(Path("/dev/stdout"))
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "old.txt").read_text() == "old"
