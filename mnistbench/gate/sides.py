"""Load the code of two trees into one process: each side has its own modules, which are active during its turns.

A side is a tree on disk. Its own modules and those of mnistbench are swapped in and out of ``sys.modules``. Installed packages
(torch, pytest) are shared.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.metadata
import io
import json
import os
import re
import sys
import sysconfig
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import torch
from torch import library

from mnistbench.core.errors import MnistbenchError
from mnistbench.gate.fingerprint import Fingerprint

#: Arguments for pytest after the user's: the session only collects cases and writes no files.
_QUIET = ("--benchmark-disable", "--bench-tensorboard=off", "-p", "no:cacheprovider", "-q")

_PACKAGE = "mnistbench"


class SideError(MnistbenchError):
    """The code of a side cannot be measured; the message names the side and the reason."""


class ClashError(MnistbenchError):
    """The sides cannot share a process; the message gives the reason."""


@dataclass
class TakenCase:
    """A case of a side's tests, and the function that builds it."""

    node_id: str
    label: str
    params: Any  # the side's own Params
    build: Callable[[], Any]  # returns the side's own Case


@dataclass
class Side:
    """One tree, its modules and its cases."""

    name: str
    tree: Path  # of the snapshot
    directory: Path  # in it: where pytest runs
    fallback: str  # folder with mnistbench, for a side whose environment does not have it
    cases: dict[str, TakenCase] = field(default_factory=dict)
    _modules: dict[str, ModuleType] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)  # names of modules that do not belong to the side
    _path: list[str] = field(default_factory=list)

    def load(self, arguments: list[str], wanted: Callable[[TakenCase], bool]) -> None:
        """Let the side's pytest collect its cases.

        Raises:
            SideError: a file cannot be imported, or pytest refuses the arguments.
        """
        taker = _Taker()
        code, errors = self._run_pytest(arguments, taker)
        if taker.failures:
            raise SideError(f"{self.name}: {taker.failures[0]}")
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SideError(f"{self.name}: {_refusal(errors) or f'pytest ended with exit code {int(code)}'}")
        self.cases = {case.node_id: case for case in taker.cases if wanted(case)}

    def paths_among(self, arguments: list[str]) -> list[str] | None:
        """Return the arguments that the side's pytest takes for paths; None if it does not accept the arguments.

        Runs in a forked process: pytest imports conftest.py to know its options, and code that runs twice in one process may
        register its operators or hooks twice.
        """
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about forking with threads: those of imported libraries are idle
            child = os.fork()
        if not child:
            try:
                reader = _PathReader()
                self._run_pytest(arguments, reader)
                os.write(writing, json.dumps(reader.paths).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            text = stream.read()
        os.waitpid(child, 0)
        found: list[str] | None = json.loads(text or "null")
        return found

    def _run_pytest(self, arguments: list[str], plugin: object) -> tuple[int, str]:
        """Run the side's pytest; return its exit code and its error output."""
        source = [str(self.directory / "src")] if (self.directory / "src").is_dir() else []
        shared = [path for path in sys.path if path and path != self.fallback]
        self._path = [str(self.directory), *source, *shared, self.fallback]
        errors, output = io.StringIO(), io.StringIO()
        with self.turn(), contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
            code = pytest.main([*arguments, *_moved_plugins(self.directory), *_QUIET], plugins=[plugin])
        sys.stderr.write(output.getvalue() + errors.getvalue())  # the log of the launch
        return int(code), errors.getvalue()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Activate the side's modules while the body runs.

        Raises:
            SideError: the body raises.
        """
        with self.active(), self.errors_named():
            yield

    @contextmanager
    def active(self) -> Iterator[None]:
        """Activate the side's modules, import path and directory while the body runs."""
        path, directory = sys.path[:], Path.cwd()
        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
        sys.modules.update(self._modules)
        sys.path[:] = self._path
        os.chdir(self.directory)
        try:
            yield
        finally:
            self._take_back()
            sys.modules.update(kept)
            sys.path[:] = path
            os.chdir(directory)

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Turn an exception of the body, which runs code of the side, into a SideError."""
        try:
            yield
        except SideError:
            raise
        except Exception as error:  # the side's code may raise anything
            traceback.print_exc()  # the log of the launch
            text = str(error).strip().splitlines()
            raise SideError(f"{self.name}: {type(error).__name__}: {text[0] if text else 'no message'}") from error

    def _take_back(self) -> None:
        """Remove the side's modules from ``sys.modules`` again, including late imports."""
        mine = [name for name in self._modules if name in sys.modules]
        for name in [name for name in sys.modules if name not in self._shared and name not in self._modules]:
            if _is_ours(name) or any(self._holds(path) for path in _paths(sys.modules[name])):
                mine.append(name)
            else:
                self._shared.add(name)
        self._modules = {name: sys.modules.pop(name) for name in mine}

    def _holds(self, path: str) -> bool:
        return path.startswith(f"{self.tree}{os.sep}")

    @property
    def files(self) -> dict[str, str]:
        """Module of the tree -> its file, relative to the tree."""
        return {
            name: os.path.relpath(path, self.tree)
            for name, module in sorted(self._modules.items())
            for path in _paths(module)[:1]
            if self._holds(path)
        }

    @property
    def native(self) -> list[str]:
        """Compiled modules of the tree, of which a process can load one copy only."""
        suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
        loaded = [path for path in torch.ops.loaded_libraries if self._holds(path)]
        return [name for name, file in self.files.items() if file.endswith(suffixes)] + loaded


def _is_ours(name: str) -> bool:
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


def _paths(module: ModuleType) -> list[str]:
    """Return the file of a module, or the folders of a namespace package."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return [file]
    try:
        return [str(path) for path in getattr(module, "__path__", ())]
    except Exception:  # noqa: BLE001  # a lazy module, so none of a tree
        return []


class _PathReader:
    """A plug-in that reads which arguments are paths and ends the session before collection."""

    def __init__(self) -> None:
        self.paths: list[str] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Read the paths; at this point all options are known."""
        self.paths = list(config.option.file_or_dir)
        return 0


class _Taker:
    """A plug-in that collects the cases of a side's session without measuring them."""

    def __init__(self) -> None:
        self.cases: list[TakenCase] = []
        self.failures: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect tests that do not use the fixture."""
        ours = [item for item in items if "op_benchmark" in getattr(item, "fixturenames", ())]
        others = [item for item in items if item not in ours]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = ours

    @pytest.hookimpl(optionalhook=True)
    def pytest_mnistbench_take_case(self, item: pytest.Item, params: Any, build: Callable[[], Any]) -> bool:
        """Store the case; True tells the fixture to measure nothing."""
        self.cases.append(TakenCase(item.nodeid, f"{params.label} on {params.dataset}", params, build))
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store why a file could not be imported."""
        if report.failed:
            self.failures.append(f"{report.nodeid} cannot be imported: {_last_line(report)}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store why a test failed before it had named its case."""
        if report.failed:
            self.failures.append(f"{report.nodeid} fails: {_last_line(report)}")


def _last_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return the error of a report without its traceback."""
    return _error_of(report.longreprtext) or "no reason given"


def _error_of(text: str) -> str:
    """Return the error in the output of pytest: of its lines marked E the one that names an exception, or the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[2:].strip() for line in lines if line.startswith("E ")]
    named = [line for line in marked if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt|Warning)\b", line)]
    return (named or marked or lines[-1:] or [""])[0]


def _refusal(text: str) -> str:
    """Return why pytest did not start: conftest.py raises, or an option is unknown."""
    if "ImportError while loading conftest" in text:
        return f"conftest.py cannot be imported: {_error_of(text)}"
    for line in text.splitlines():
        if line.startswith("ERROR: ") and "usage: " not in line:
            return line.removeprefix("ERROR: ")
        if ": error: " in line:
            return line.partition(": error: ")[2]
    return ""


def wanted(job: Mapping[str, Any], case: TakenCase) -> bool:
    """Whether a job selects a case, by its node id or its phase."""
    if job["only"] is not None:
        return case.node_id in job["only"]
    return not job["phases"] or case.params.phase in job["phases"]


# ---- Whether two sides can share a process ---------------------------------------------------------------------------


def added_to_torch(state: Fingerprint, registered: Sequence[str], sides: Sequence[Side]) -> Fingerprint:
    """Return a fingerprint with the registered operators and compiled modules of the sides as additions."""
    native = [name for side in sides for name in side.native]
    added = {"operators registered with torch": registered, "compiled modules": native}
    return replace(state, additions={**state.additions, **{key: ", ".join(dict.fromkeys(v)) for key, v in added.items() if v}})


def watch_registrations(trees: Sequence[Path]) -> list[str]:
    """Return a list that from now on receives the operators which code of these trees registers with torch.

    torch has one registry per process, in which the second side silently replaces the operators of the first. A side may
    register operators late, when a model is built.
    """
    found: list[str] = []
    registry: Any = library.Library
    original = registry.__init__

    def watching(self: Any, ns: str, *arguments: Any, **keywords: Any) -> None:
        if _caller_outside_torch().startswith(tuple(f"{tree}{os.sep}" for tree in trees)):
            found.append(ns)
        original(self, ns, *arguments, **keywords)

    registry.__init__ = watching
    return found


def _caller_outside_torch() -> str:
    torch_directory = os.path.dirname(torch.__file__)  # noqa: PTH120  # compared with frames' plain strings
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # the only way to find the caller
    while frame is not None and frame.f_code.co_filename.startswith(torch_directory):
        frame = frame.f_back
    return frame.f_code.co_filename if frame else ""


def stray_modules(repository: Path, sides: Sequence[Side]) -> dict[str, str]:
    """Return loaded modules of the project that are not from its copies, because both sides would run the same code.

    Their files are in the user's repository (an editable install), or belong to the installed distribution of the project.
    """
    trees = tuple(f"{side.tree}{os.sep}" for side in sides)
    project = set().union(*(_installed_files(side.directory) for side in sides))
    environment = Path(sys.prefix)
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if environment.is_relative_to(repository) and environment != repository:  # a virtual environment inside it
        paths.append(sys.prefix)
    apart = (*(f"{path}{os.sep}" for path in paths), *trees)
    found = {}
    for name, module in list(sys.modules.items()):
        for path in _paths(module)[:1]:
            if path in project or (path.startswith(f"{repository}{os.sep}") and not path.startswith(apart)):
                found[name] = path
    return found


def _installed_files(directory: Path) -> set[str]:
    """Return the files of the installed distribution with the name of the project in a folder."""
    try:
        distribution = importlib.metadata.distribution(_project(directory)["name"])
    except (ValueError, KeyError, TypeError, importlib.metadata.PackageNotFoundError):
        return set()
    return {str(distribution.locate_file(file)) for file in distribution.files or ()}


def _moved_plugins(directory: Path) -> list[str]:
    """Return pytest's options for the plug-ins that the project in a folder declares in another module than is installed.

    pytest finds plug-ins by the metadata of installed distributions. Both sides may share one installation, but a plug-in's
    module may have been renamed between the two.
    """
    try:
        declared = dict(_project(directory)["entry-points"]["pytest11"])
    except (KeyError, TypeError, ValueError):
        return []
    installed = {point.name: point.value for point in importlib.metadata.entry_points(group="pytest11")}
    moved = {name: module for name, module in declared.items() if installed.get(name, module) != module}
    return [option for name, module in moved.items() for option in ("-p", f"no:{name}", "-p", str(module))]


def _project(directory: Path) -> dict[str, Any]:
    """Return the table ``project`` of a folder's pyproject.toml; empty if there is none."""
    try:
        found = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return {}
    return found if isinstance(found, dict) else {}
