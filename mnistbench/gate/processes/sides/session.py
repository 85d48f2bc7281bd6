"""Run the tests of a side by its pytest, once in this process.

A case is measured inside the fixture of its test, so that all fixtures of the test are set up. Does
not import torch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import io
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mnistbench.core import units
from mnistbench.core.errors import MnistbenchError
from mnistbench.core.params import CALL
from mnistbench.gate.processes.asv.collecting import AsvSuites, AsvTest
from mnistbench.gate.processes.sides import failures
from mnistbench.gate.processes.sides.case import PlainCase, own_threads, seed_all
from mnistbench.gate.processes.sides.fingerprint import Limits, fingerprint
from mnistbench.gate.processes.sides.requested import Requested
from mnistbench.gate.processes.sides.side import Side, SideError
from mnistbench.gate.processes.sides.stray import project_table
from mnistbench.gate.words import FIXTURES, HEAD, SETUP
from mnistbench.measuring.awaiting import (
    AwaitedCall,
    make_stoppable,
    while_stopped,
    why_unstoppable,
)
from mnistbench.measuring.calls import (
    BENCHMARK,
    CODSPEED,
    NEEDS_CODSPEED,
    Call,
    has_codspeed,
    intercept,
    is_awaited,
    is_marked,
    params_of_test,
    refuse_weave,
)
from mnistbench.measuring.provider import OWN_FIXTURES, imported_provider
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
    "maxfail": 0,  # a survey finds all tests that fail
    "numprocesses": 0,  # processes of pytest-xdist cannot be measured
    "no_cov": True,  # coverage takes time
    # pytest-randomly draws one for each process, and seeds generators by it and by the test's id.
    "randomly_seed": 0,
    "session_timeout": math.inf,  # of pytest-timeout, for tests that run once
}

#: What is read of the parameters of a test, to know them again in another process: of all tests of
#: a suite.
_OF_PARAMETERS = Limits(objects=500, n_bytes=2**20, seconds=1.0)

#: The fixtures of the tests that are measured.
_FIXTURES = OWN_FIXTURES | {BENCHMARK, CODSPEED}

#: The plug-ins that ``op_benchmark`` needs, by the names of their entry points. The folder
#: ``fallback`` has copies of both.
_FIXTURE_PLUGINS = {
    "benchmark": "pytest_benchmark.plugin",
    "mnistbench": "mnistbench.pytest_plugin.plugin",
}


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


def run_tests(
    side: Side,
    arguments: Sequence[str],
    order: Callable[[list[str]], list[str]],
    take: Callable[[TakenCase], None],
) -> dict[str, str]:
    """Run the tests that use ``op_benchmark`` or ``benchmark``, once in this process.

    Return the node ids of those that fail, with the reason of each.

    Args:
        side: whose tests run.
        arguments: for pytest.
        order: gets the node ids of the tests, and returns those to run, in their order.
        take: called inside the fixture of each test.

    Raises:
        SideError: files cannot be imported, or pytest refuses the arguments.
        MnistbenchError: ``order`` or ``take`` raises it.
    """
    session = _Session(side, order, take)
    suites = AsvSuites(side.tree)
    failure = _run_pytest(side, arguments, session, suites, *side.plugins)
    side.left_out.update(suites.unread)
    if not side.parameters:  # there is nothing else to measure
        session.failures += [f"{folder} {why}" for folder, why in suites.unread.items()]
    if session.failures:
        raise SideError(f"{side.name}: {units.and_more(session.failures, 1)}")
    if session.raised:
        raise session.raised
    if session.stopped_by:
        raise SideError(
            f"{side.name}: {failures.describe_exception(session.stopped_by, side.tree)}"
        )
    if failure and not session.failed:
        raise SideError(f"{side.name}: {failure}")
    return session.failed


def paths_among(side: Side, arguments: list[str]) -> list[str] | None:
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
            _run_pytest(side, arguments, reader)
            os.write(writing, json.dumps(reader.paths).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    paths: list[str] | None = json.loads(text or "null")
    return paths


class _PathReader:
    """A plug-in that reads which arguments are paths and ends the session before collection."""

    def __init__(self) -> None:
        self.paths: list[str] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Read the paths; at this point all options are known."""
        self.paths = list(config.option.file_or_dir)
        return 0


def _run_pytest(side: Side, arguments: Sequence[str], *plugins: object) -> str:
    """Run the side's pytest; return why it failed, else "".

    The process keeps the side's modules and folder.
    """
    side.enter_tree()
    errors = io.StringIO()
    output = io.StringIO()
    # Not in the tree; a project may ask for --ff.
    cache = f"cache_dir={side.tree.parent / 'pytest_cache'}"
    command = [*arguments, *_plugins(side.directory), *_QUIET, "-o", cache]
    options = _PluginOptions()
    raised: BaseException | None = None
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    with (
        contextlib.redirect_stderr(errors),
        contextlib.redirect_stdout(output),
        failures.exits_named(side.tree),
    ):
        try:
            code = int(pytest.main(command, plugins=[options, *plugins]))
        # A hook after the tests, a conftest.py that calls sys.exit.
        except BaseException as error:  # noqa: BLE001
            traceback.print_exc()
            raised = error
    sys.stderr.write(output.getvalue() + errors.getvalue())  # the log of the trial
    if raised:
        return failures.describe_exception(raised, side.tree)
    if options.unloaded:
        return failures.describe_unloaded(options.unloaded, side.tree)
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    return failures.describe_output(code, output.getvalue(), errors.getvalue(), side.tree)


class _PluginOptions:
    """A plug-in that sets the options of others, before these read them."""

    def __init__(self) -> None:
        self.unloaded: Exception | None = None  # why a conftest.py cannot be imported

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Iterator[None]:
        """Set them for pytest-cov, which starts here."""
        _set_options(early_config.known_args_namespace)
        try:
            return (yield)
        except Exception as error:
            if error.__cause__:  # pytest prints it
                self.unloaded = error
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Iterator[Any]:
        """Set them for all others."""
        _set_options(config.option)
        return (yield)


def _set_options(options: object) -> None:
    for name, value in _OPTIONS.items():
        if hasattr(options, name):
            setattr(options, name, value)


class _Session:
    """A plug-in that runs the tests of cases, and calls a function inside the fixture of each."""

    def __init__(
        self, side: Side, order: Callable[[list[str]], list[str]], take: Callable[[TakenCase], None]
    ) -> None:
        self.side = side
        self.order = order
        self.take = take
        self.failures: list[str] = []  # files that cannot be collected
        self.failed: dict[str, str] = {}  # node id of a test -> why
        self.raised: MnistbenchError | None = None  # by one of the functions
        self.stopped_by: BaseException | None = None  # what a hook raised, or pytest.exit
        self._requested = Requested(side.directory)
        self._taken: set[str] = set()
        self._excinfo: pytest.ExceptionInfo[BaseException] | None = None  # of the last report
        self._called_ns = 0  # when the fixture calls its function
        self._is_awaited = False  # the test that runs
        # What the fixture has returned for a coroutine function, and the test has not awaited yet.
        self._unawaited: Coroutine[Any, Any, Any] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Count imports from here on.

        pytest has installed its loader of tests and of conftest.py.
        """
        self.side.count_imports()

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
        self.side.tests_carried = {
            node_id for node_id, item in named.items() if self.side.is_carried(item.path)
        }
        measures_marked = has_codspeed(config)
        ours: dict[str, pytest.Item] = {}
        for node_id, item in named.items():
            code = getattr(getattr(item, "function", None), "__code__", None)
            if _FIXTURES.intersection(getattr(item, "fixturenames", ())) or (
                measures_marked and is_marked(item)
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
            elif is_marked(item):
                self.side.left_out[node_id] = NEEDS_CODSPEED
            elif isinstance(item, AsvTest):
                self.side.left_out[node_id] = item.left_out
        self.side.parameters = {
            node_id: _hash_of_parameters(item) for node_id, item in ours.items()
        }
        if self.side.name == HEAD:  # the base may have another threshold, or a wrong one
            self._read_thresholds(ours)
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

    def _read_thresholds(self, items: Mapping[str, pytest.Item]) -> None:
        for node_id, item in items.items():
            if not item.get_closest_marker("opgate"):
                continue
            from mnistbench.compare.criteria import thresholds_of  # loads the options

            try:
                self.side.thresholds[node_id] = thresholds_of(item)
            except MnistbenchError as error:
                self.failures.append(f"{node_id}: {error}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_mnistbench_take_case(
        self, item: pytest.Item, params: Any, build: Callable[[], Any]
    ) -> bool:
        """Measure the case; True tells the fixture to measure nothing."""
        threads = self.side.threads_of(params)

        def make() -> Any:
            return imported_provider().case(build, params, threads)

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
        is_plain = OWN_FIXTURES.isdisjoint(getattr(request.node, "fixturenames", ()))
        if fixturedef.argname == CODSPEED:
            value = request.getfixturevalue(BENCHMARK)
            fixturedef.cached_result = (value, *fixturedef.cached_result[1:])  # type: ignore[index]
        if fixturedef.argname == BENCHMARK:
            before: Callable[[Call], object] = self._note_start
            if is_plain:
                value.disabled = False  # what a test asks of it is as in a run that measures
                before = functools.partial(self._take_call, request.node, value)
                refuse_weave(value)
            after = functools.partial(self._give_stats, value)
            awaited = functools.partial(self._awaited, request.node, value) if is_plain else None
            intercept(value, before, after, awaited, tears_down=is_plain)
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Count what a test does before its case is measured.

        A coroutine that is marked as a whole is replaced by one that is measured.
        """
        self._unawaited = None
        function: Any = getattr(item, "obj", None)
        self._is_awaited = is_awaited(function)
        make_stoppable(imports=self._is_awaited)
        if self._is_awaited and not _FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.obj = self._measured_whole(item, function)  # type: ignore[attr-defined]
        with self.side.counted(SETUP, self.side.case_id(item.nodeid)):
            result = yield
            self._leave_out_unawaited(item)
            return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> None:
        """Set the threads, which the test may change.

        Measure a test that is marked as a whole, which then runs as usual.
        """
        self.side.say(at=self.side.case_id(pyfuncitem.nodeid))
        # Whatever imports, fixtures and other tests have set.
        imported_provider().set_threads(own_threads())
        if not self._is_awaited and not _FIXTURES.intersection(pyfuncitem.fixturenames):
            arguments = {
                name: pyfuncitem.funcargs[name]
                for name in pyfuncitem._fixtureinfo.argnames  # noqa: SLF001
            }
            self._take_call(pyfuncitem, SimpleNamespace(), Call(pyfuncitem.obj, (), arguments))

    @pytest.hookimpl(specname="pytest_pyfunc_call")
    def pytest_coroutine_call(self, pyfuncitem: pytest.Function) -> None:
        """Skip a coroutine that no plug-in has run: their hooks are called before this one."""
        if is_awaited(pyfuncitem.obj):
            pytest.skip(
                "no plug-in runs this coroutine: install pytest-asyncio or anyio, and mark the test"
            )

    def _take_call(self, item: pytest.Item, benchmark: Any, call: Call) -> None:
        case_id = self.side.case_id(item.nodeid)
        provider = imported_provider()
        params = params_of_test(case_id, provider.device(), provider.threads() or own_threads())
        threads = self.side.threads_of(params)

        def make() -> PlainCase:
            return PlainCase(call, threads)

        self._take(item, TakenCase(case_id, params.title, params, make))
        benchmark.disabled = True  # it calls the function once
        self._note_start(call)

    def _measured_whole(
        self, item: pytest.Item, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return a test that measures a marked one in its loop and then runs it as usual."""

        @functools.wraps(function)
        async def whole(**arguments: Any) -> None:
            await self._take_awaited(item, SimpleNamespace(), Call(function, (), arguments))
            await function(**arguments)

        return whole

    def _awaited(self, item: pytest.Item, benchmark: Any, call: Call) -> Coroutine[Any, Any, Any]:
        """Return what the test awaits: then the call of its coroutine function is measured."""
        make_stoppable(imports=True)

        async def measured() -> Any:
            self._unawaited = None
            await self._take_awaited(item, benchmark, call)
            self._note_start(call)
            args, kwargs = call.arguments()
            try:
                result = await call.function(*args, **kwargs)
            finally:
                call.tear_down(args, kwargs)
            self._give_stats(benchmark)
            return result

        self._unawaited = coroutine = measured()
        return coroutine

    async def _take_awaited(self, item: pytest.Item, benchmark: Any, call: Call) -> None:
        if why := why_unstoppable():
            self._leave_out(item, why)
            return
        awaited = AwaitedCall.of(call)
        await while_stopped(lambda: self._take_call(item, benchmark, awaited))

    def _leave_out_unawaited(self, item: pytest.Item) -> None:
        """Leave out a test that has dropped the coroutine of its benchmark.

        When the test has ended, what it has opened or patched for the call is gone.
        """
        if coroutine := self._unawaited:
            coroutine.close()
            self._leave_out(
                item,
                "does not await its benchmark; write: await benchmark(...), or in a function that "
                "is no coroutine: asyncio.run(benchmark(...))",
            )

    def _leave_out(self, item: pytest.Item, why: str) -> None:
        case_id = self.side.case_id(item.nodeid)
        self._taken.add(case_id)
        self.side.left_out[case_id] = why

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
        self.side.running = case.node_id
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
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> Any:
        """Store the exception of a test, whose report follows."""
        self._excinfo = call.excinfo
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Store why a file could not be imported, or was skipped if it may have cases."""
        report: pytest.CollectReport = yield
        if report.failed:
            call: pytest.CallInfo[Any] | None = getattr(report, "call", None)
            excinfo = call.excinfo if call else None
            why = failures.describe_report(report, excinfo, self.side.tree)
            if self.side.is_carried(collector.path):
                self.side.cannot_run[self.side.case_id(report.nodeid)] = why
                report.outcome = "skipped"
                report.longrepr = (str(collector.path), 0, why)
            else:
                self.failures.append(f"{report.nodeid} cannot be collected: {why}")
        elif (
            report.skipped
            and isinstance(report.longrepr, tuple)
            and (collector.path.is_dir() or b"benchmark" in collector.path.read_bytes())
        ):
            self.side.left_out[report.nodeid] = (
                f"is skipped: {report.longrepr[2].removeprefix('Skipped: ')}"
            )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store why a test failed outside of the fixture, or why it is left out."""
        node_id = self.side.case_id(report.nodeid)
        if report.failed:
            why = failures.describe_report(report, self._excinfo, self.side.tree)
            self.failed.setdefault(node_id, why)
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
    values = item.parameters if isinstance(item, AsvTest) else ()
    if callspec is not None:
        values = tuple(callspec.params.values())
    if not values:
        return ""
    parameters = fingerprint(*values, limits=_OF_PARAMETERS)
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
