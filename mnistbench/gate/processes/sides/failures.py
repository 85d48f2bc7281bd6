"""Why the pytest session of a side failed.

One line with the file, the line, the hook and the error. Does not import torch.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from mnistbench.core import units
from mnistbench.core.errors import LONGEST_ERROR, first_line

#: Packages whose frames say nothing about an error of a project: they call its hooks.
_CALLERS = ("_pytest", "pytest", "pluggy", "mnistbench", "importlib")

#: Where pytest prints a place: ``test_a.py:5: AssertionError``, ``test_a.py:5: in test_a``, ``file
#: /a/test_a.py, line 5`` for a fixture that it does not find, or a frame as Python prints it.
_PLACE = re.compile(
    r'^(?P<path>[^\s:<>][^:]*):(?P<line>\d+): |(File "|^file )(?P<other_path>[^"<]+?)"?, line '
    r"(?P<other_line>\d+)"
)

#: What pytest prints if it cannot import a conftest.py or a plug-in, with its path or name.
_NOT_LOADED = re.compile(
    r"ImportError while loading conftest '(.+)'|Error while loading plugin \"(.+)\""
)


def describe_report(report: pytest.CollectReport | pytest.TestReport, tree: Path) -> str:
    """Return the error of a failed report, and the innermost line of the side's tree.

    The line is in its traceback.
    """
    is_import = isinstance(report, pytest.CollectReport)
    return _placed_error(report.longreprtext, tree, is_import=is_import) or "no reason given"


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


def describe_call(error: Exception, tree: Path) -> str:
    """Return what a call raised, with the innermost line of the side's tree."""
    frames = _of_project(traceback.extract_tb(error.__traceback__), tree)
    named = f"{type(error).__name__}: {first_line(error)}"
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return _without(tree, f"{named}{place}")


def is_of_project(error: BaseException, tree: Path) -> bool:
    """Whether code of the side's tree raised an exception."""
    return bool(_of_project(traceback.extract_tb(error.__traceback__), tree))


def describe_output(code: int, output: str, errors: str, tree: Path) -> str:
    """Return why pytest ended with an exit code, from what it printed.

    conftest.py raises, or an option is unknown.
    """
    return _without(tree, _refusal(errors, tree) or _ending(code, output, errors))


def error_of(text: str) -> str:
    """Return the error in the output of pytest.

    It is the line marked E that names an exception, else the first line marked E.

    Without such lines, a traceback of Python ends with the error, and a message, which may have
    several lines, begins with it.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[2:].strip() for line in lines if line.startswith("E ")]
    named = [
        line
        for line in marked
        if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt|Warning)\b", line)
    ]
    is_traceback = "Traceback (most recent call last):" in lines
    # pytest names a plug-in that cannot be loaded in a line, and the error in the last one.
    is_plugin = lines[:1] and lines[0].startswith("Error while loading plugin")
    unmarked = lines[-1:] if is_traceback or is_plugin else lines
    error = (named or marked or unmarked or [""])[0].removeprefix("_pytest.outcomes.")
    return units.cut(error, LONGEST_ERROR)


def _placed_error(text: str, tree: Path, *, is_import: bool) -> str:
    """Return the error in the output of pytest, with its place.

    The place is the innermost line of the tree in its traceback. If a module cannot be imported or
    read, and it is not of the tree, its own line follows.
    """
    error = _without(tree, error_of(text))
    is_syntax = re.match("SyntaxError|IndentationError|TabError", error)
    places = list(_places(text, tree))
    inside = [place for place in places if place[0].is_relative_to(tree.resolve())]
    details = ["{}:{}".format(*place) for place in inside[-1:]]
    if (is_import or is_syntax or not inside) and places[-1:] != inside[-1:]:
        leads_to = "which leads to " if inside else ""
        details.append("{}{}:{}".format(leads_to, *places[-1]))
    if is_syntax:
        details.append(_reader())
    named = f"{error} ({', '.join(details)})" if error and details else error
    return _without(tree.resolve(), named)


def _reader() -> str:
    """Return which Python could not read a source: another one may know its syntax."""
    return f"read by Python {platform.python_version()}"


def _refusal(errors: str, tree: Path) -> str:
    """Return why pytest did not start; empty if it did."""
    if not_loaded := _NOT_LOADED.search(errors):
        error = _placed_error(errors, tree, is_import=True)
        return f"{not_loaded[1] or not_loaded[2]} cannot be imported: {error}"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith("ERROR: ") and "usage: " not in line:
            detail = lines[number + 1 : number + 2] if line.endswith(":") else []
            return " ".join([line.removeprefix("ERROR: "), *detail])
        if ": error: " in line:
            return line.partition(": error: ")[2]
        if line.startswith("Exit: "):
            return line
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


def _places(text: str, tree: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files and lines that a traceback names, without those of pytest and of imports.

    pytest prints paths relative to the folder in which it was started.
    """
    for line in text.splitlines():
        if not (place := _PLACE.search(line)):
            continue
        path = place["path"] or place["other_path"]
        for file in (Path(path), tree / path):
            if file.is_file():
                resolved = file.resolve()
                if resolved.is_relative_to(tree.resolve()) or not _is_caller(path):
                    yield resolved, place["line"] or place["other_line"]
                break


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
