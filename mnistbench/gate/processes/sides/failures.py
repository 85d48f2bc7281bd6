"""Why the pytest session of a side failed.

One line with the file, the line, the hook and the error. Does not import torch.
"""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mnistbench.core.errors import first_line

#: Packages whose frames say nothing about an error of a project: they call its hooks.
_CALLERS = ("_pytest", "pytest", "pluggy", "importlib", "mnistbench", __name__.partition(".")[0])


def describe_report(
    report: pytest.CollectReport | pytest.TestReport,
    excinfo: pytest.ExceptionInfo[BaseException] | None,
    tree: Path,
) -> str:
    """Return the error of a failed report, and the innermost line of the side's tree."""
    longrepr: Any = report.longrepr
    if missing := getattr(longrepr, "errorstring", ""):  # of a fixture that does not exist
        place = f"{longrepr.filename}:{longrepr.firstlineno + 1}"
        return _without(tree, f"{missing.splitlines()[0]} ({place})")
    if excinfo is None:  # a strict xfail that passes
        return report.longreprtext.partition("\n")[0] or "no reason given"
    return describe_error(excinfo.value, tree, is_import=isinstance(report, pytest.CollectReport))


def describe_unloaded(error: BaseException, tree: Path) -> str:
    """Return why pytest could not import a conftest.py or a plug-in, as pytest raises it."""
    name = getattr(error, "path", None) or error
    return _without(
        tree, f"{name} cannot be imported: {describe_error(error, tree, is_import=True)}"
    )


def describe_error(error: BaseException, tree: Path, *, is_import: bool = False) -> str:
    """Return an exception of the project's code, with its place.

    The place is the innermost line of the tree in its traceback. If a module cannot be imported or
    read, and it is not of the tree, its own line follows.
    """
    while error.__cause__ and (
        isinstance(error, pytest.Collector.CollectError)
        or type(error).__module__ == "_pytest.config"  # of a conftest.py, of a plug-in
    ):
        error = error.__cause__
    places = list(_places(error, tree))
    inside = [place for place in places if place[0].is_relative_to(tree.resolve())]
    details = ["{}:{}".format(*place) for place in inside[-1:]]
    is_syntax = isinstance(error, SyntaxError)
    if (is_import or is_syntax or not inside) and places[-1:] != inside[-1:]:
        leads_to = "which leads to " if inside else ""
        details.append("{}{}:{}".format(leads_to, *places[-1]))
    if is_syntax:
        details.append(_reader())
    text = f"{_text(error)} ({', '.join(details)})" if details else _text(error)
    return _without(tree, _without(tree.resolve(), text))


def describe_exception(error: BaseException, tree: Path) -> str:
    """Return what a hook raised.

    ``conftest.py:2, pytest_configure: RuntimeError: the database is down``.

    The place is the innermost frame in the tree; without one, the innermost frame that is not of
    pytest.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    frames = traceback.extract_tb(error.__traceback__)
    chosen = _of_project(frames, tree) or [
        frame for frame in frames if not _is_caller(frame.filename)
    ]
    if not chosen:  # pytest itself raises it, and has several lines for what is wrong
        return _without(tree, f"{type(error).__name__}: {'; '.join(lines)}")
    named = f"{type(error).__name__}: {lines[0]}"
    place = f"{chosen[-1].filename}:{chosen[-1].lineno}"
    if isinstance(error, SyntaxError) and error.filename:  # no frame has run the file
        named = f"{type(error).__name__}: {error.msg} ({_reader()})"
        place = f"{error.filename}:{error.lineno}"
    functions = [frame.name for frame in chosen if frame.name != "<module>"]
    hook = next(
        (name for name in functions if name.startswith("pytest_")),
        functions[0] if functions else "",
    )
    return _without(tree, f"{place}, {hook}: {named}" if hook else f"{place}: {named}")


def is_of_project(error: BaseException, tree: Path) -> bool:
    """Whether code of the side's tree raised an exception."""
    return bool(_of_project(traceback.extract_tb(error.__traceback__), tree))


def describe_output(code: int, output: str, errors: str, tree: Path) -> str:
    """Return why pytest ended with an exit code, from what it printed.

    conftest.py raises, or an option is unknown.
    """
    return _without(tree, _refusal(errors) or _ending(code, output, errors))


def _text(error: BaseException) -> str:
    """Return the line of an exception that pytest marks with E."""
    name = type(error).__name__
    if isinstance(error, SyntaxError):  # its own text has the place, too
        return f"{name}: {error.msg}"
    message = first_line(error)
    unnamed = (pytest.fail.Exception, pytest.skip.Exception, pytest.Collector.CollectError)
    has_no_name = isinstance(error, unnamed) or (
        isinstance(error, AssertionError) and message.startswith("assert ")
    )
    return message if has_no_name else f"{name}: {message}"


def _reader() -> str:
    """Return which Python could not read a source: another one may know its syntax."""
    return f"read by Python {platform.python_version()}"


def _refusal(errors: str) -> str:
    """Return why pytest did not start; empty if it did."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith("ERROR: ") and "usage: " not in line:
            detail = lines[number + 1 : number + 2] if line.endswith(":") else []
            return " ".join([line.removeprefix("ERROR: "), *detail])
        if ": error: " in line:
            return line.partition(": error: ")[2]
        if line.startswith("Exit: "):
            return line
        if line.startswith("Error while loading plugin"):  # given with -p
            return f"{line} {lines[-1].removeprefix('E ').strip()}" if lines[-1] != line else line
    return ""


def _ending(code: int, output: str, errors: str) -> str:
    """Return the exit code of a session that ran, with the reason that pytest printed."""
    internal = [
        line.removeprefix("INTERNALERROR> ")
        for line in (output + errors).splitlines()
        if "INTERNALERROR> " in line
    ]
    stopped = [line.strip("! ") for line in output.splitlines() if line.startswith("!!!")]
    if reasons := [line for line in (*internal, *stopped) if line.strip()]:
        return f"pytest ended with exit code {code}: {reasons[-1].strip()}"
    if code == pytest.ExitCode.TESTS_FAILED:
        return (
            f"pytest ended with exit code {code}, although no test failed: a hook such as "
            "pytest_sessionfinish has set it"
        )
    last_line = [line for line in (output + errors).splitlines() if line.strip()][-1:]
    return ": ".join([f"pytest ended with exit code {code}", *last_line])


@contextmanager
def exits_named(tree: Path) -> Iterator[None]:
    """Write to the log where ``os._exit`` is called in the body.

    It ends the process without a message.
    """
    process = os.getpid()
    end = os._exit

    def named(status: int) -> NoReturn:
        if os.getpid() == process:  # not a process that a test has forked
            caller = traceback.extract_stack()[-2]
            called = f"os._exit({status}) was called at {caller.filename}:{caller.lineno}"
            print(_without(tree, called), file=sys.__stderr__, flush=True)
        end(status)

    os._exit = named
    try:
        yield
    finally:
        os._exit = end


def _places(error: BaseException, tree: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files and lines of a traceback, without those of pytest and of imports."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):  # no frame has run the file
        frames.append((error.filename or "", error.lineno))
    for filename, line in frames:
        resolved = Path(filename).resolve()
        if not resolved.is_file():  # such as <frozen importlib._bootstrap>
            continue
        if resolved.is_relative_to(tree.resolve()) or not _is_caller(filename):
            yield resolved, line or 0


def _of_project(
    frames: Sequence[traceback.FrameSummary], tree: Path
) -> list[traceback.FrameSummary]:
    return [frame for frame in frames if Path(frame.filename).is_relative_to(tree)]


def _is_caller(filename: str) -> bool:
    return filename.startswith("<") or not {*_CALLERS}.isdisjoint(
        Path(filename).with_suffix("").parts
    )


def _without(tree: Path, text: str) -> str:
    """Return a text in which the files of the tree have their names in the project."""
    return text.replace(f"{tree}{os.sep}", "")
