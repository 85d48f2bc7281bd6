"""Collect the benchmarks of asv suites as tests that use pytest-benchmark's fixture.

The names of tests are the same in each process: they have the parameters as asv shows them, which
are their ``repr``. Does not import asv-runner unless a suite is collected.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import pytest

from mnistbench.core import units
from mnistbench.gate.processes.asv.suites import AsvSuite, suite_of

#: Most characters of a parameter in the name of a test.
_LONGEST = 60


class AsvSuites:
    """A plug-in of pytest that collects the suites in a tree."""

    def __init__(self, tree: Path) -> None:
        """Prepare; nothing is read until pytest comes to a file of a suite."""
        self._tree = tree
        #: Suite that is not collected because asv-runner is missing -> what to do.
        self.unread: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Collect a folder of a suite, which asv-runner imports and pytest does not."""
        return pytest.Dir.from_parent(parent, path=path) if suite_of(path, self._tree) else None

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Collect a file of a suite, whatever its name is."""
        if file_path.suffix != ".py" or file_path.name == "conftest.py":
            return None
        suite = suite_of(file_path, self._tree)
        if suite is None or not (name := suite.module_of(file_path.resolve())):
            return None
        if importlib.util.find_spec("asv_runner") is None:
            folder = suite.folder.relative_to(self._tree.resolve()).as_posix()
            self.unread[folder] = (
                f"is an asv suite ({suite.configuration.name}): install mnistbench[asv], or "
                f"asv-runner for {sys.executable}"
            )
            return None
        module: AsvModule = AsvModule.from_parent(parent, path=file_path)
        module.suite = suite
        module.module_name = name
        return module


class AsvModule(pytest.Module):
    """A module of a suite."""

    suite: AsvSuite
    module_name: str  # by which asv imports it

    def collect(self) -> Iterable[pytest.Item]:
        """Import the module as asv does, and yield its benchmarks."""
        self.obj = _imported(self.suite, self.module_name, self.path)
        from mnistbench.gate.processes.asv.benchmarks import discovered

        benchmarks = list(discovered(self.obj))
        prefix = "".join(f"{name}." for name in self.module_name.split(".")[1:])
        names = _numbered([found.name.removeprefix(prefix) for found in benchmarks])
        for name, found in zip(names, benchmarks, strict=True):
            yield from self._tests(name, found)

    def _tests(self, name: str, found: Any) -> Iterator[pytest.Item]:
        """Yield the test of each set of parameters of a benchmark.

        Yield one test of a benchmark that the gate does not measure, whatever its parameters are.
        """
        from mnistbench.gate.processes.asv import benchmarks

        if why := benchmarks.why_kind_left_out(found):
            yield AsvTest.left_out_for(self, name, why)
            return
        cache = self._fixture_of_cache(found)
        parameters = _names_of_parameters(found.params)
        for position, values in enumerate(benchmarks.parameter_sets(found)):
            test = f"{name}{parameters[position]}"
            if why := benchmarks.why_skipped(found, values):
                yield AsvTest.left_out_for(self, test, why)
                continue
            function = _measuring(found, position, cache)
            item: AsvTest = AsvTest.from_parent(self, name=test, callobj=function)
            item.parameters = values
            yield item

    def _fixture_of_cache(self, found: Any) -> str:
        """Return the name of the fixture that calls the ``setup_cache`` of a benchmark.

        It is called once in a process. What it runs belongs to all tests that use it. Empty if
        there is none.
        """
        from mnistbench.gate.processes.asv.benchmarks import MeasuredBenchmark

        if found.setup_cache_key is None:
            return ""
        name = f"setup_cache of {self.module_name.split('.')[0]}.{found.setup_cache_key}"
        plugins = self.config.pluginmanager
        if not plugins.has_plugin(name):
            holder = types.ModuleType(name)

            @pytest.fixture(scope="session", name=name)
            def pickled_cache() -> bytes:
                return MeasuredBenchmark.of(found, 0).pickled_cache()

            holder.pickled_cache = pickled_cache  # type: ignore[attr-defined]
            plugins.register(holder, name)
        return name


def _measuring(found: Any, position: int, cache: str) -> Callable[..., None]:
    """Return the function of a test.

    Args:
        found: the benchmark.
        position: of its parameters.
        cache: name of the fixture of its ``setup_cache``; empty without one.
    """
    from mnistbench.gate.processes.asv.benchmarks import MeasuredBenchmark

    def measure(benchmark: Any, request: pytest.FixtureRequest) -> None:
        pickled = request.getfixturevalue(cache) if cache else None
        MeasuredBenchmark.of(found, position).measure(benchmark, pickled)

    return pytest.mark.usefixtures(cache)(measure) if cache else measure


class AsvTest(pytest.Function):
    """A benchmark with one set of parameters."""

    parameters: Sequence[Any] = ()
    left_out = ""  # why it is not measured

    @classmethod
    def left_out_for(cls, parent: AsvModule, name: str, why: str) -> AsvTest:
        """Return a test that is not measured, and uses no fixture."""
        item: AsvTest = cls.from_parent(parent, name=name, callobj=lambda: None)
        item.left_out = why
        return item


# ---- Names ---------------------------------------------------------------------------------------


def _names_of_parameters(axes: Sequence[Sequence[str]]) -> list[str]:
    """Return the part of a test's name for each set of parameters, in asv's order.

    Args:
        axes: the values of each parameter, as asv shows them.
    """
    named = [_numbered([_short(text) for text in axis]) for axis in axes]
    return [f"[{'-'.join(texts)}]" if texts else "" for texts in itertools.product(*named)]


def _short(text: str) -> str:
    """Return the text of a parameter on a line, without addresses."""
    return units.cut(" ".join(units.without_addresses(text).split()), _LONGEST)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, with numbers behind those that occur several times, as asv writes them."""
    counted = Counter(names)
    numbers: dict[str, Iterator[int]] = {}
    return [
        f"{name} ({next(numbers.setdefault(name, itertools.count()))})"
        if counted[name] > 1
        else name
        for name in names
    ]


# ---- Import --------------------------------------------------------------------------------------


class _Finder:
    """Finds the package of a suite, and leaves out the folder that it is in, as asv does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the package if it is asked for."""
        if path is not None or name != self._folder.name:
            return None
        return PathFinder.find_spec(name, [str(self._folder.parent)], target)


@functools.cache
def _make_importable(folder: Path) -> None:
    sys.meta_path.insert(0, _Finder(folder))


def _imported(suite: AsvSuite, name: str, path: Path) -> types.ModuleType:
    """Import a module of a suite.

    Raises:
        pytest.Collector.CollectError: another module has its name.
    """
    _make_importable(suite.folder)
    module = importlib.import_module(name)
    file = module.__file__
    if file is None or Path(file).resolve() != path.resolve():
        raise pytest.Collector.CollectError(
            f"{name} is imported from {file}, too; measure one suite of this name at a time"
        )
    return module
