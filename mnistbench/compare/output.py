"""Reports -> files: one function draws any format, and one writes files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from mnistbench.compare.data import csv_report, json_report
from mnistbench.compare.judge import Judgement
from mnistbench.compare.report import blocks, verdict_lines
from mnistbench.core.errors import UsageError
from mnistbench.core.files import replace_file
from mnistbench.showing.markdown import markdown_report
from mnistbench.showing.terminal import draw_report

FORMATS = ("terminal", "markdown", "json", "csv")

#: Operations shown per case unless asked otherwise.
TOP = 10


def rendered(judgement: Judgement, form: str, top: int, *, colour: bool = False) -> str:
    """Return a judgement in one of FORMATS, ending in a line end."""
    if form == "json":
        return json_report(judgement)
    if form == "csv":
        return csv_report(judgement)
    parts = blocks(judgement, top)
    if form == "markdown":
        return markdown_report(parts, list(verdict_lines(judgement))[-1])
    return draw_report(parts, colour=colour) + "\n"


def check(path: Path) -> None:
    """Check that :func:`write` could write there, without a change there. Called before anything is measured.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        target = path.resolve()
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode
            if stat.S_ISDIR(mode):
                raise _os_error(errno.EISDIR)
            if not stat.S_ISREG(mode):
                return
        target.parent.stat()
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise _os_error(errno.EACCES)
    except OSError as error:
        raise _cannot_be_written(path, error) from None


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _cannot_be_written(path: Path, error: OSError) -> UsageError:
    return UsageError(f"--output: {path} cannot be written ({error.strerror}); name another file")


def write(path: Path, text: str) -> None:
    """Write a whole file or nothing. A pipe or ``/dev/stdout`` is written to directly.

    Raises:
        UsageError: it cannot be written; an existing file is unchanged.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        replace_file(target, text.encode())
    except OSError as error:
        raise _cannot_be_written(path, error) from None


def append_step_summary(judgement: Judgement, top: int) -> str:
    """Append Markdown to the file that GitHub shows with a job. Return an error message, or nothing."""
    return append_text_to_step_summary(rendered(judgement, "markdown", top)) if os.environ.get("GITHUB_STEP_SUMMARY") else ""


def append_text_to_step_summary(text: str) -> str:
    """Append Markdown to the file that ``GITHUB_STEP_SUMMARY`` names. Return an error message, or nothing."""
    path = os.environ["GITHUB_STEP_SUMMARY"]
    try:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except OSError as error:
        return f"GITHUB_STEP_SUMMARY: {path} cannot be written ({error.strerror})"
    return ""
