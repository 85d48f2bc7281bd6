"""Run the pytest session of a side, which has this process to itself.

A side is a tree on disk. A case is measured inside the fixture of its test, so that all fixtures of
the test are set up. The modules of mnistbench that this process has imported before are those of
the gate; the side imports its own. Does not import torch: only the side may.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import io
import json
import math
import os
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.abc import Loader
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mnistbench.core.errors import MnistbenchError, first_line
from mnistbench.core.machine import ended_children_s, gc_paused
from mnistbench.core.params import CALL
from mnistbench.gate.messages import Job
from mnistbench.gate.sides import failures
from mnistbench.gate.sides.case import PlainCase, own_threads, seed_all
from mnistbench.gate.sides.fingerprint import Limits, fingerprint
from mnistbench.gate.sides.own_modules import PACKAGE, OwnModules
from mnistbench.gate.sides.requested import Requested
from mnistbench.gate.sides.stray import (
    Imports,
    Outside,
    outside_modules,
    paths_of,
    project_table,
    with_copies,
)
from mnistbench.gate.words import ALL_CASES, FIXTURES, IMPORT, SETUP
from mnistbench.measuring.calls import Call, intercept, params_of_test, refuse_weave
from mnistbench.measuring.timing import Clock

#: Arguments for pytest after the user's: the session leaves the standard streams of the process
#: alone.
_QUIET = ("-q", "-s")

#: Options of other plug-ins and of our own in a session of the gate, whatever the user's are. They
#: are set where they exist: a plug-in that is installed need not be loaded.
_OPTIONS = {
    # pytest-benchmark and pytest-codspeed neither measure nor save nor compare.
    "benchmark_disable": True,
    "benchmark_enable": False,
    "benchmark_only": False,
    "benchmark_skip": False,
    "benchmark_autosave": False,
    "benchmark_save": None,
    "benchmark_save_data": False,
    "benchmark_json": None,
    "benchmark_compare": None,
    "benchmark_compare_fail": None,
    "benchmark_histogram": None,
    "benchmark_cprofile": None,
    "codspeed": False,
    "bench_tensorboard": "off",
    "numprocesses": 0,  # processes of pytest-xdist cannot be measured
    "no_cov": True,  # coverage takes time
    # pytest-randomly draws one for each process, and seeds generators by it and by the test's id.
    "randomly_seed": 0,
    "session_timeout": math.inf,  # of pytest-timeout, for tests that run once
}

#: What is read of the parameters of a test, to know them again in another process: of all tests of
#: a suite.
_OF_PARAMETERS = Limits(objects=500, n_bytes=2**20, seconds=1.0)

#: The module for cases of workloads, which needs torch.
WORKLOAD_CASE = "mnistbench.gate.sides.workload_case"

#: The fixture of a case of a workload.
FIXTURE = "op_benchmark"
#: The fixture of a plain test; in pytest-codspeed it is a mark, too.
_BENCHMARK = "benchmark"
#: The other name of this fixture in pytest-codspeed, where it is a mark, too.
_CODSPEED = "codspeed_benchmark"
_FIXTURES = {FIXTURE, _BENCHMARK, _CODSPEED}

#: The parameter of a test that measures a phase of a workload.
_WORKLOAD = "bench_workload"

#: The plug-ins that ``op_benchmark`` needs, by the names of their entry points. The folder
#: ``fallback`` has copies of both.
_FIXTURE_PLUGINS = {
    "benchmark": "pytest_benchmark.plugin",
    PACKAGE: "mnistbench.pytest_plugin.plugin",
}


class SideError(MnistbenchError):
    """The code of a side cannot be measured; the message names the side and the reason."""


@dataclass
class TakenCase:
    """A case of a side's tests, and the function that makes it."""

    node_id: str
    label: str
    params: Any  # Params: the side's own, or of a plain test the gate's
    make: Callable[[], Any]  # returns a SideCase

    @property
    def is_plain(self) -> bool:
        """Whether it is a call of pytest-benchmark's own fixture."""
        return bool(self.params.phase == CALL)

    def is_selected(self, phases: Sequence[str]) -> bool:
        """Whether the case is measured if only these phases are; a plain test has no phase."""
        return self.is_plain or not phases or self.params.phase in phases


@dataclass
class Side:
    """One tree, whose tests run in this process."""

    name: str
    tree: Path  # of the snapshot
    directory: Path  # in it: where pytest runs
    # Folder with mnistbench and pytest-benchmark, for a side whose environment does not have them.
    fallback: str
    threads: int = 0  # of all its cases; 0: each case has its own number
    # Node id of a test that was not taken -> why.
    left_out: dict[str, str] = field(default_factory=dict)
    # Node id of a collected test -> hash of its parameters.
    parameters: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # arguments of pytest that name nothing on this side
    repository: Path | None = None  # the user's own tree, which must not be measured
    say: Callable[..., None] = lambda **_: None  # sends a message of the process
    plugins: list[object] = field(default_factory=list)  # more of pytest's
    # Surrounds the import of each module.
    importing: Callable[..., AbstractContextManager[None]] = lambda **_: contextlib.nullcontext()
    # Name of a cost that occurs once -> node id or ALL_CASES -> CPU time in ns; of RESIDENT bytes
    once: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    # The cost that is counted now, its case, and the CPU time before.
    _counted: tuple[str, str, int] | None = None
    _earlier: frozenset[str] = frozenset()  # modules that were imported before the session

    def __post_init__(self) -> None:
        """Keep the modules of the gate, which are imported now."""
        self._own_modules = OwnModules(self.fallback)

    @classmethod
    def of(cls, job: Job, say: Callable[..., None] = lambda **_: None) -> Side:
        """Return the side that a job names."""
        return cls(
            job.side,
            Path(job.tree),
            Path(job.directory),
            job.home,
            job.threads,
            repository=Path(job.repository),
            say=say,
        )

    def case_id(self, node_id: str) -> str:
        """Return the id of a test, the same on both sides.

        It may have a path of the tree, for example that of a file of data.
        """
        return node_id.replace(str(self.tree), "<tree>")

    def threads_of(self, params: Any) -> int:
        """Return the number of intra-op threads of a case on this side."""
        return self.threads or int(params.threads)

    def run(
        self,
        arguments: Sequence[str],
        order: Callable[[list[str]], list[str]],
        take: Callable[[TakenCase], None],
    ) -> None:
        """Run the tests that use ``op_benchmark`` or ``benchmark``, once in this process.

        Args:
            arguments: for pytest.
            order: gets the node ids of the tests, and returns those to run, in their order.
            take: called inside the fixture of each test.

        Raises:
            SideError: a file cannot be imported, a test fails, or pytest refuses the arguments.
            MnistbenchError: ``order`` or ``take`` raises it.
        """
        session = _Session(self, order, take)
        failure = self._run_pytest(arguments, session, *self.plugins)
        if session.failures:
            raise SideError(f"{self.name}: {session.failures[0]}")
        if session.raised:
            raise session.raised
        if session.stopped_by:
            raise SideError(f"{self.name}: {failures.of_exception(session.stopped_by, self.tree)}")
        if failure:
            raise SideError(f"{self.name}: {failure}")

    @contextmanager
    def counted(self, name: str, case: str = ALL_CASES) -> Iterator[None]:
        """Add the CPU time of the body to a cost that occurs once.

        Inside another such body it is a part of that one's cost.
        """
        if self._counted:
            yield
            return
        self._counted = name, case, _spent_ns()
        try:
            yield
        finally:
            self.end_count()

    def end_count(self) -> None:
        """End the body that is counted now, if any: what follows belongs to no cost."""
        if self._counted:
            name, case, before_ns = self._counted
            self.once[name][case] = self.once[name].get(case, 0) + _spent_ns() - before_ns
            self._counted = None

    def paths_among(self, arguments: list[str]) -> list[str] | None:
        """Return the arguments that the side's pytest takes for paths.

        None if it does not accept the arguments.

        Runs in a forked process: pytest imports conftest.py to know its options, and code that runs
        twice in one process may register its operators or hooks twice.
        """
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # About forking with threads: those of imported libraries are idle.
            warnings.simplefilter("ignore")
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
        paths: list[str] | None = json.loads(text or "null")
        return paths

    def _run_pytest(self, arguments: Sequence[str], *plugins: object) -> str:
        """Run the side's pytest; return why it failed, else "".

        The process keeps the side's modules and folder.
        """
        self._own_modules.set_aside()
        self._earlier = self._earlier or frozenset(sys.modules)
        source = [str(self.directory / "src")] if (self.directory / "src").is_dir() else []
        installed = [path for path in sys.path if path and path != self.fallback]
        if self.repository:  # what editable installs and PYTHONPATH name
            installed = list(with_copies(installed, self.tree, self.repository))
        sys.path[:] = list(dict.fromkeys([str(self.directory), *source, *installed, self.fallback]))
        os.chdir(self.directory)
        errors = io.StringIO()
        output = io.StringIO()
        # Not in the tree; a project may ask for --ff.
        cache = f"cache_dir={self.tree.parent / 'pytest_cache'}"
        command = [*arguments, *_plugins(self.directory), *_QUIET, "-o", cache]
        raised: BaseException | None = None
        code = int(pytest.ExitCode.INTERNAL_ERROR)
        with (
            contextlib.redirect_stderr(errors),
            contextlib.redirect_stdout(output),
            failures.exits_named(self.tree),
        ):
            try:
                code = int(pytest.main(command, plugins=[_PluginOptions(), *plugins]))
            # A hook after the tests, a conftest.py that calls sys.exit.
            except BaseException as error:  # noqa: BLE001
                traceback.print_exc()
                raised = error
        sys.stderr.write(output.getvalue() + errors.getvalue())  # the log of the launch
        if raised:
            return failures.of_exception(raised, self.tree)
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return ""
        return failures.of_output(code, output.getvalue(), errors.getvalue(), self.tree)

    def load(self, name: str) -> Any:
        """Return a module of the gate's own mnistbench, also while the side's is imported."""
        return self._own_modules.load(name)

    def import_torch(self) -> None:
        """Import torch and the modules of the gate that need it, and use one thread."""
        with gc_paused():  # saves a fifth of the time
            self.load(WORKLOAD_CASE)
        sys.modules["torch"].set_num_threads(1)

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Turn an exception of the body, which runs code of the side, into a SideError."""
        try:
            yield
        except MnistbenchError:  # of the gate: the side has a class of its own with this name
            raise
        except Exception as error:  # the side's code may raise anything
            traceback.print_exc()  # the log of the launch
            raise SideError(f"{self.name}: {type(error).__name__}: {first_line(error)}") from error

    def outside(self) -> dict[str, Outside]:
        """Return the imported modules of the project that are not from the tree."""
        repository = self.repository or self.tree
        return outside_modules(
            self.tree, self.directory, Path(self.fallback), repository, self._earlier
        )

    def imports(self) -> Imports:
        """Return the modules of the project that this process has imported."""
        files = {
            name: os.path.relpath(path, self.tree)
            for name, module in sorted(sys.modules.items())
            for path in paths_of(module)[:1]
            if path.startswith(f"{self.tree}{os.sep}")
        }
        return Imports(str(self.tree), self.outside(), files)


def _spent_ns() -> int:
    """Return the CPU time of this process and of its ended children, in nanoseconds."""
    return Clock.cpu_ns() + round(1e9 * ended_children_s())


def _count_imports(side: Side) -> None:
    """Count the execution of the modules of a side's tree, with what they import.

    For the rest of this process. All modules are executed by ``exec_module`` of a loader: that of
    Python's sources, that of compiled modules, and pytest's, which rewrites assertions of tests and
    conftest.py and is a finder of ``sys.meta_path`` as well.
    """
    loaders: list[Any] = [type(finder) for finder in sys.meta_path if isinstance(finder, Loader)]
    for loader in (*loaders, SourceFileLoader, ExtensionFileLoader):

        def execute(
            self: Any,
            module: ModuleType,
            original: Callable[[Any, ModuleType], None] = loader.exec_module,
        ) -> None:
            is_own = str(getattr(module, "__file__", "")).startswith(f"{side.tree}{os.sep}")
            with (
                side.importing(is_own=is_own),
                side.counted(IMPORT) if is_own else contextlib.nullcontext(),
            ):
                original(self, module)

        loader.exec_module = execute


class _PluginOptions:
    """A plug-in that sets the options of others, before these read them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Iterator[None]:
        """Set them for pytest-cov, which starts here."""
        _set_options(early_config.known_args_namespace)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Iterator[Any]:
        """Set them for all others."""
        _set_options(config.option)
        return (yield)


def _set_options(options: object) -> None:
    for name, value in _OPTIONS.items():
        if hasattr(options, name):
            setattr(options, name, value)


class _PathReader:
    """A plug-in that reads which arguments are paths and ends the session before collection."""

    def __init__(self) -> None:
        self.paths: list[str] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Read the paths; at this point all options are known."""
        self.paths = list(config.option.file_or_dir)
        return 0


class _Session:
    """A plug-in that runs the tests of cases, and calls a function inside the fixture of each."""

    def __init__(
        self, side: Side, order: Callable[[list[str]], list[str]], take: Callable[[TakenCase], None]
    ) -> None:
        self.side = side
        self.order = order
        self.take = take
        self.failures: list[str] = []
        self.raised: MnistbenchError | None = None  # by one of the functions
        self.stopped_by: BaseException | None = None  # what a hook raised, or pytest.exit
        self._requested = Requested(side.directory)
        self._taken: set[str] = set()
        self._called_ns = 0  # when the fixture calls its function
        self._threads: Callable[[], int] = own_threads  # of a plain test

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Count imports from here on.

        pytest has installed its loader of tests and of conftest.py.
        """
        _count_imports(self.side)

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Iterator[Any]:
        """Leave out arguments that name nothing on this side."""
        if config.option.file_or_dir and not config.option.pyargs:
            config.args = self._requested.existing(config.args)
        try:
            return (yield)
        except pytest.UsageError as error:  # pytest prints its message alone
            if failures.is_of_project(error, self.side.tree):
                self.stopped_by = error
            raise

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note which of the named tests exist."""
        self._requested.note(item)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect tests that use neither fixture, and arrange the others."""
        named = {
            self.side.case_id(item.nodeid): item for item in items if self._requested.selects(item)
        }
        self.side.missing = self._requested.missing
        marks = (_BENCHMARK, _CODSPEED) if config.pluginmanager.hasplugin("codspeed") else ()
        ours: dict[str, pytest.Item] = {}
        for node_id, item in named.items():
            code = getattr(getattr(item, "function", None), "__code__", None)
            if _FIXTURES.intersection(getattr(item, "fixturenames", ())) or any(
                map(item.get_closest_marker, marks)
            ):
                ours[node_id] = item
            elif (
                code
                and "getfixturevalue" in code.co_names
                and _FIXTURES.intersection(code.co_consts)
            ):
                self.side.left_out[node_id] = (
                    "gets its fixture from request.getfixturevalue; name it as an argument"
                )
        self.side.parameters = {
            node_id: _hash_of_parameters(item) for node_id, item in ours.items()
        }
        # pytest runs no test, so there is nothing to agree about with the other side.
        if self.failures:
            return
        kept: dict[str, pytest.Item] = {}
        try:
            kept = {node_id: ours[node_id] for node_id in self.order(list(ours))}
        except MnistbenchError as error:
            self.raised = error
        config.hook.pytest_deselected(
            items=[item for node_id, item in named.items() if node_id not in kept]
        )
        items[:] = kept.values()

    @pytest.hookimpl(optionalhook=True)
    def pytest_mnistbench_take_case(
        self, item: pytest.Item, params: Any, build: Callable[[], Any]
    ) -> bool:
        """Measure the case; True tells the fixture to measure nothing."""
        threads = self.side.threads_of(params)

        def make() -> Any:
            return self.side.load(WORKLOAD_CASE).WorkloadCase(build, params.device, threads)

        self._take(
            item,
            TakenCase(
                self.side.case_id(item.nodeid), f"{params.label} on {params.dataset}", params, make
            ),
        )
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Seed all generators, because many tests draw the arguments of what they measure."""
        self.side.say(at=f"{self.side.case_id(item.nodeid)}, its fixtures")
        seed_all(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Any:
        """Count the fixture, and take over pytest-benchmark's own.

        The latter measures nothing itself.
        """
        is_of_test = fixturedef.scope == "function"
        with (
            self.side.counted(SETUP, self.side.case_id(request.node.nodeid))
            if is_of_test
            else self.side.counted(FIXTURES)
        ):
            value: Any = yield
        measures_workload = _WORKLOAD in getattr(
            getattr(request.node, "callspec", None), "params", ()
        )
        if fixturedef.argname == _CODSPEED:
            value = request.getfixturevalue(_BENCHMARK)
            fixturedef.cached_result = (value, *fixturedef.cached_result[1:])  # type: ignore[index]
        if fixturedef.argname == _BENCHMARK:
            before: Callable[[Call], object] = self._note_start
            if not measures_workload:
                value.disabled = False  # what a test asks of it is as in a run that measures
                before = functools.partial(self._take_call, request.node, value)
                refuse_weave(value)
            after = functools.partial(self._give_stats, value)
            intercept(value, before, after, tears_down=not measures_workload)
        return value

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> None:
        """Set the threads, which the test may change.

        Measure a test that is marked as a whole, which then runs as usual.
        """
        self.side.say(at=self.side.case_id(pyfuncitem.nodeid))
        self._threads = own_threads
        if torch := sys.modules.get("torch"):
            # Whatever imports, fixtures and other tests have set.
            torch.set_num_threads(own_threads())
            self._threads = torch.get_num_threads
        if not _FIXTURES.intersection(pyfuncitem.fixturenames):
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                pytest.skip("a coroutine cannot be measured")
            arguments = {
                name: pyfuncitem.funcargs[name]
                for name in pyfuncitem._fixtureinfo.argnames  # noqa: SLF001
            }
            self._take_call(pyfuncitem, SimpleNamespace(), Call(pyfuncitem.obj, (), arguments))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Count what a test does before its case is measured."""
        with self.side.counted(SETUP, self.side.case_id(item.nodeid)):
            return (yield)

    def _take_call(self, item: pytest.Item, benchmark: Any, call: Call) -> None:
        case_id = self.side.case_id(item.nodeid)
        params = params_of_test(case_id, self._threads())
        threads = self.side.threads_of(params)

        def make() -> PlainCase:
            return PlainCase(call, threads, self.side.load)

        self._take(item, TakenCase(case_id, params.title, params, make))
        benchmark.disabled = True  # it calls the function once
        self._note_start(call)

    def _note_start(self, _: Call) -> None:
        self._called_ns = Clock.wall_ns()

    def _give_stats(self, benchmark: Any, *_: object) -> None:
        """Give the fixture the statistics of its call.

        The test and hooks at the end of the session may read them.
        """
        elapsed_ns = max(1, Clock.wall_ns() - self._called_ns)
        benchmark.disabled = False
        benchmark._make_stats(1).update(elapsed_ns / 1e9)  # noqa: SLF001

    def _take(self, item: pytest.Item, case: TakenCase) -> None:
        self.side.end_count()
        self._taken.add(case.node_id)
        self.side.say(at=f"{case.node_id}, its calls")
        try:
            self.take(case)
        except MnistbenchError as error:
            self.raised = self.raised or error
            # After this test, whose fixtures are torn down as usual.
            item.session.shouldstop = str(error)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Keep pytest-timeout from ending a test that waits in the fixture."""
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[Any]:
        """Store what a hook raises: of pytest.exit, pytest prints the message alone."""
        try:
            return (yield)
        except BaseException as error:
            self.stopped_by = self.stopped_by or error
            raise

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Store what a hook raised."""
        self.stopped_by = self.stopped_by or excinfo.value

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Store that a hook or a test ended the session, also if it asked for exit code 0."""
        self.stopped_by = self.stopped_by or excinfo.value

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Store why a file could not be imported, or was skipped if it may have cases."""
        report: pytest.CollectReport = yield
        if report.failed:
            self.failures.append(
                f"{report.nodeid} cannot be collected: {failures.of_report(report, self.side.tree)}"
            )
        elif (
            report.skipped
            and isinstance(report.longrepr, tuple)
            and b"benchmark" in collector.path.read_bytes()
        ):
            self.side.left_out[report.nodeid] = (
                f"is skipped: {report.longrepr[2].removeprefix('Skipped: ')}"
            )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store why a test failed outside of the fixture, or why it is left out."""
        node_id = self.side.case_id(report.nodeid)
        if report.failed:
            self.failures.append(f"{node_id} fails: {failures.of_report(report, self.side.tree)}")
        elif report.skipped:
            expected = getattr(report, "wasxfail", None)
            reason = (
                report.longrepr[2].removeprefix("Skipped: ")
                if isinstance(report.longrepr, tuple)
                else ""
            )
            words = (
                ("is skipped", reason)
                if expected is None
                else ("xfails", expected.removeprefix("reason: "))
            )
            self.side.left_out[node_id] = ": ".join(filter(None, words))
        elif report.when == "call" and node_id not in self._taken:
            self.side.left_out[node_id] = "does not call its benchmark fixture"


def _hash_of_parameters(item: pytest.Item) -> str:
    """Return the hash of what a test is parametrized with.

    Empty if there is nothing, or reading takes too long.
    """
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return ""
    parameters = fingerprint(*callspec.params.values(), limits=_OF_PARAMETERS)
    return "" if parameters.is_timed_out else parameters.digest


# ---- Options of pytest ---------------------------------------------------------------------------


def _plugins(directory: Path) -> list[str]:
    """Return pytest's options for the plug-ins that it does not find by itself.

    It looks in the metadata of installed distributions.

    These are the ones of the fixture, where the environment of the side lacks them, and those that
    the project in a folder declares in another module than is installed: both sides may share one
    installation, but a plug-in's module may have been renamed between the two.
    """
    try:
        declared = dict(project_table(directory)["entry-points"]["pytest11"])
    except (KeyError, TypeError, ValueError):
        declared = {}
    installed = {
        point.name: point.value for point in importlib.metadata.entry_points(group="pytest11")
    }
    missing = [
        declared.get(name, module)
        for name, module in _FIXTURE_PLUGINS.items()
        if name not in installed
    ]
    moved = {
        name: module for name, module in declared.items() if installed.get(name, module) != module
    }
    return [
        *(option for module in missing for option in ("-p", str(module))),
        *(
            option
            for name, module in moved.items()
            for option in ("-p", f"no:{name}", "-p", str(module))
        ),
    ]
