"""Atomic writes, and a check whether a directory is writable."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file completely or not at all: write a temporary file and rename it.

    Raises:
        OSError: the file cannot be written; a previous file is unchanged.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def why_not_writable(directory: Path) -> str:
    """Return why a directory, which may not exist yet, is not writable; empty if it is. Changes nothing on disk."""
    try:
        existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if _is_there(path))
    except OSError as error:
        return f"{directory} cannot be used ({error.strerror})"
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


def _is_there(path: Path) -> bool:
    """Return whether a path exists. Unlike ``Path.exists``, it raises OSError for an invalid name."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
