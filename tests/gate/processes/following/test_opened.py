"""Which files were opened, as the system tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnistbench.gate.processes.following.opened import OpenedFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@pytest.fixture
def paths(tmp_path):
    """Two files."""
    files = [tmp_path / name for name in ("one", "two")]
    for file in files:
        file.write_text("1")
    return [*map(str, files)]


def test_a_file_is_seen_once(paths):
    watched = OpenedFiles(paths)
    assert watched.drain() == set()
    Path(paths[0]).read_text(encoding="utf-8")
    assert watched.drain() == {paths[0]}
    assert watched.drain() == set()
    assert watched.is_complete


def test_a_file_is_seen_that_was_open_before(paths):
    with Path(paths[0]).open(encoding="utf-8") as stream:
        watched = OpenedFiles(paths)
        stream.read()
    assert watched.drain() == {paths[0]}


def test_a_file_is_seen_that_another_process_opens(paths):
    watched = OpenedFiles(paths)
    subprocess.run(["cat", paths[1]], stdout=subprocess.DEVNULL, check=True)
    assert watched.drain() == {paths[1]}


def test_a_file_is_seen_behind_a_link(paths, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("one")
    watched = OpenedFiles([str(link)])
    Path(paths[0]).read_text(encoding="utf-8")
    assert watched.drain() == {str(link)}


def test_two_names_of_a_file_are_both_seen(paths, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("one")
    watched = OpenedFiles([paths[0], str(link)])
    Path(paths[0]).read_text(encoding="utf-8")
    assert os.path.realpath(next(iter(watched.drain()))) == paths[0]
    assert watched.is_complete


def test_what_does_not_exist_is_not_watched(tmp_path):
    watched = OpenedFiles([str(tmp_path), str(tmp_path / "gone")])
    assert watched.is_complete
    assert watched.drain() == set()


def test_a_closed_descriptor_is_noticed(paths):
    watched = OpenedFiles(paths)
    os.close(watched._descriptor)
    assert watched.drain() == set()
    assert not watched.is_complete


def test_too_many_events_are_noticed(paths, monkeypatch):
    watched = OpenedFiles(paths)
    overflow = b"\xff\xff\xff\xff" + b"\0\x40\0\0" + b"\0" * 8
    answers = iter([overflow])

    def read(*_):
        try:
            return next(answers)
        except StopIteration:
            raise BlockingIOError from None

    monkeypatch.setattr(os, "read", read)
    assert watched.drain() == set()
    assert not watched.is_complete


def test_another_system_is_noticed(paths, monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    watched = OpenedFiles(paths)
    assert not watched.is_complete
    assert watched.drain() == set()


def test_a_limit_of_the_system_is_noticed(paths, monkeypatch):
    class Library:
        @staticmethod
        def inotify_init1(_):
            return 3

        @staticmethod
        def inotify_add_watch(*_):
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Library)
    assert not OpenedFiles(paths).is_complete
