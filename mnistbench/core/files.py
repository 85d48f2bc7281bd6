"""Files that are whole or not there, and whether a directory could be made."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside its place first, then into it.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def why_not_writable(directory: Path) -> str:
    """Return why nothing can be written into a directory that may not exist yet, or nothing. Leaves no trace there."""
    try:
        existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if _is_there(path))
    except OSError as error:
        return f"{directory} cannot be used ({error.strerror})"
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


def _is_there(path: Path) -> bool:
    """Whether there is something; other than ``Path.exists`` it raises of a name that no file can have."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
