"""What a command gives back.

Exit codes, the line of an error, and a report in a format, printed or in a file.

A command that shows a report has :class:`ReportSettings`, and its ``run`` returns a
:class:`CommandResult`. ``mnistbench.cli`` checks the file of the report before it calls ``run`` and
delivers the report afterwards.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.files import check_file, replace_file, why_not_writable
from mnistbench.core.units import cut, printable
from mnistbench.showing.report import Report
from mnistbench.showing.terminal import colours, line_width

#: Exit code: passed or done.
EXIT_PASSED = 0
#: Exit code: regressed.
EXIT_REGRESSED = 1
#: Exit code: inconclusive, wrong usage or failed.
EXIT_INCONCLUSIVE = 2

#: Exit code for ``git bisect run``: this commit cannot be tested.
BISECT_SKIPS = 125
#: Exit code for ``git bisect run``: no commit can be tested.
BISECT_STOPS = 128

#: Exit code of a training run or a lab that Ctrl-C stopped: 128 plus the number of the signal, as
#: shells return it.
EXIT_STOPPED = 130

#: Most characters of the line of an error.
_LONGEST_LINE = 4_000

#: Time in which rank 0 ends after an error, and the launcher ends the other ranks.
_DELAY_S = 5.0


def print_error(error: MnistbenchError | str) -> None:
    """Print an error as one line, which is cut where it has names of any length."""
    line = cut(printable(str(error)), _LONGEST_LINE)
    print(f"mnistbench: {line}", file=sys.stderr, flush=True)


def leave_error_to_rank_0(environ: Mapping[str, str]) -> None:
    """Wait before an error is printed, on every rank of a launcher but rank 0.

    Rank 0 usually has the same error. It prints the error and ends, and then the launcher ends the
    other ranks, so the error is printed once.
    """
    if environ.get("WORLD_SIZE") and environ.get("RANK", "") not in ("", "0"):
        time.sleep(_DELAY_S)


@runtime_checkable
class ReportSettings(Protocol):
    """Settings of a command that shows a report: in which format, and in which file."""

    @property
    def format(self) -> str: ...

    @property
    def output(self) -> Path | None: ...


@dataclass(frozen=True)
class JobMessages:
    """What a step of a job on GitHub says beside its report."""

    annotations: Sequence[str]  # workflow commands, one line each
    outputs: Mapping[str, str]  # of the step; a value is one line


@dataclass(frozen=True)
class CommandResult:
    """The report of a command, and its exit code."""

    report: Report
    code: int = EXIT_PASSED
    is_verdict: bool = False  # the summary of a job on GitHub gets the report, too
    job_messages: Callable[[], JobMessages] | None = None


def deliver_result(result: CommandResult, settings: ReportSettings) -> int:
    """Deliver the report of a command as its settings say; return its exit code."""
    deliver(result.report, settings.format, settings.output)
    if result.is_verdict and (note := append_to_step_summary(lambda: result.report)):
        print_error(note)
    if result.job_messages and os.environ.get("GITHUB_ACTIONS") == "true":
        _deliver_job_messages(result.job_messages())
    return result.code


def render(report: Report, form: str, *, colour: bool = False, width: int = 0) -> str:
    """Return a report in a format, ending in a line end.

    It is ``terminal``, ``markdown``, ``json``, ``csv`` or ``html``. Colours and the width of a line
    are those of a terminal.
    """
    from mnistbench.showing.markdown import markdown_report
    from mnistbench.showing.terminal import draw_report

    if form == "json":
        return report.json
    if form == "csv":
        assert report.table
        return report.table.csv()
    if form == "html":
        assert report.html
        return report.html()
    if form == "markdown":
        return markdown_report(
            report.blocks,
            report.heading,
            first_lines=report.first_lines,
            drawn=report.drawn,
            limit=report.limit,
        )
    return draw_report(report.blocks, colour=colour, width=width) + "\n"


def deliver(report: Report, form: str, output: Path | None) -> None:
    """Print a report, or write it to a file, in one of the formats of :func:`render`."""
    shown = output is None
    colour = shown and colours(sys.stdout)
    width = line_width(sys.stdout) if shown else 0
    deliver_text(render(report, form, colour=colour, width=width), output)


def deliver_text(text: str, output: Path | None) -> None:
    """Write text to a file, completely or not at all, and to a pipe or ``/dev/stdout`` directly.

    Print it if there is none.
    """
    if output is None:
        sys.stdout.write(text)
        return
    try:
        target = output.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            replace_file(target, text.encode())
    except OSError as error:
        raise _cannot_be_written(output, error) from None


def check_directory(
    directory: Path, option: str = "--output", *, own: Collection[str] | None = None
) -> None:
    """Check that files could be written to a directory, without a change there.

    It may not exist yet.

    With ``own``, a directory with other contents is refused, unless one of these files tells that
    they may be replaced.
    """
    if problem := why_not_writable(directory):
        raise UsageError(f"{option}: {problem}; name another directory")
    may_replace = own is None or any((directory / name).exists() for name in own)
    if not may_replace and directory.exists() and any(directory.iterdir()):
        raise UsageError(
            f"{option}: {directory} contains files of something else; name a new or an empty "
            "directory"
        )


def check(path: Path, option: str = "--output") -> None:
    """Check that :func:`deliver` could write there, without a change there.

    Called before anything is measured.
    """
    try:
        check_file(path.resolve())
    except OSError as error:
        raise _cannot_be_written(path, error, option) from None


def _cannot_be_written(path: Path, error: OSError, option: str = "--output") -> UsageError:
    return UsageError(f"{option}: {path} cannot be written ({error.strerror}); name another file")


def append_to_step_summary(make_report: Callable[[], Report]) -> str:
    """Append a report as Markdown to the file that ``GITHUB_STEP_SUMMARY`` names, if it is set.

    Return an error message, or nothing.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return ""
    return _append("GITHUB_STEP_SUMMARY", path, render(make_report(), "markdown") + "\n")


def _deliver_job_messages(messages: JobMessages) -> None:
    """Print annotations, and append outputs to the file that ``GITHUB_OUTPUT`` names.

    The runner reads annotations on either stream. Standard output may be a report for a program.
    """
    for annotation in messages.annotations:
        print(annotation, file=sys.stderr, flush=True)
    path = os.environ.get("GITHUB_OUTPUT")
    text = "".join(f"{name}={value}\n" for name, value in messages.outputs.items())
    if path and (note := _append("GITHUB_OUTPUT", path, text)):
        print_error(note)


def _append(variable: str, path: str, text: str) -> str:
    """Append text to the file that a variable names; return an error message, or nothing."""
    try:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        return f"{variable}: {path} cannot be written ({error.strerror})"
    return ""
