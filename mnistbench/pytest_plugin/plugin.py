"""The pytest plug-in: options, the fixture ``op_benchmark`` and hooks.

Importing it does not import torch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.compare.criteria import Criteria
from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.options import add_pytest_options
from mnistbench.core.params import REFERENCE, device_label
from mnistbench.measuring.calls import BENCHMARK, CODSPEED, has_codspeed, is_marked
from mnistbench.pytest_plugin import hooks
from mnistbench.pytest_plugin.options import Options
from mnistbench.pytest_plugin.session import (
    BATCH_SIZE,
    DEVICE,
    MARK,
    SESSION,
    STEP,
    WORKLOAD,
    Session,
    thresholds_of,
)

if TYPE_CHECKING:
    from mnistbench.pytest_plugin.fixture import OpBenchmark

#: The fixture of a test that measures a phase of a workload.
FIXTURE = "op_benchmark"

#: Of a test that got pytest-benchmark's fixture because it is pytest-codspeed's: whether its body
#: is measured, because it has the mark alone.
_IS_MEASURED_WHOLE = pytest.StashKey[bool]()

#: Exit code of a comparison that regressed, the code of a failed test.
EXIT_REGRESSED = 1
#: Exit code of a comparison that is inconclusive. pytest uses 0 to 6.
PYTEST_EXIT_INCONCLUSIVE = 8

#: A filter for warnings of torch's own modules. Where warnings are errors, torch 2.11 could compile
#: no model: it imports deprecated code of its own, and advises TF32 on devices that have it.
SHOW_WARNINGS_OF_TORCH = r"default:::torch\."


def pytest_addoption(parser: pytest.Parser) -> None:
    add_pytest_options(parser, "mnistbench", "mnistbench: operation tables of benchmarks", Options)
    about = "mnistbench: thresholds and limits for --benchmark-compare"
    add_pytest_options(parser, "mnistbench thresholds", about, Criteria)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


@pytest.hookimpl(tryfirst=True)  # before pytest-benchmark loads baselines, which it hands to us
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        (
            'opgate("10%", "aten::addmm:5%", case="5%"): the largest slowdown of this test\'s '
            "operations, and of its iteration"
        ),
    )
    config.addinivalue_line(
        "markers",
        f"{MARK}: attach a table of operations or functions to this test of pytest-benchmark's "
        "fixture",
    )
    with _one_line_errors():
        config.stash[SESSION] = Session(config)
    if config.stash[SESSION].options.compile:
        config.addinivalue_line("filterwarnings", SHOW_WARNINGS_OF_TORCH)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn a user's mistake into pytest's usage error: one line, exit code 4."""
    try:
        yield
    except MnistbenchError as error:
        raise pytest.UsageError(_printable(error)) from None


# ---- Collection ----------------------------------------------------------------------------------


# After pytest's own marks, so that a marked workload comes first in the id, too.
@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the tests that measure a phase of a workload.

    A parameter that a test's own mark sets is left alone.
    """
    if FIXTURE not in metafunc.fixturenames:
        return
    marked = {
        name
        for mark in metafunc.definition.iter_markers("parametrize")
        for name in _argument_names(mark)
    }
    session = metafunc.config.stash[SESSION]
    session.measures_workloads = True
    options = session.options
    from mnistbench.core.extras import require  # here: importing the plug-in loads few modules

    try:
        require(f"the fixture {FIXTURE}", "torch")
        devices = session.devices
        registered = session.registered_workloads(metafunc.definition)
        if WORKLOAD not in marked:
            metafunc.parametrize(WORKLOAD, session.select_workloads(registered))
    except MnistbenchError as error:  # raised here, it would be a traceback for every test file
        session.usage_error = session.usage_error or error
        return
    if BATCH_SIZE not in marked:
        metafunc.parametrize(
            BATCH_SIZE, options.batch_sizes, ids=[f"b{size}" for size in options.batch_sizes]
        )
    if DEVICE not in marked:
        metafunc.parametrize(
            DEVICE,
            devices,
            ids=[device_label(device, options.dtype, options.compile) for device in devices],
        )
    # The ids of the default stay as they are.
    if STEP not in marked and options.steps != (REFERENCE,):
        metafunc.parametrize(STEP, options.steps)


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse marks, options and datasets that cannot be used, before any case runs.

    Give pytest-benchmark's fixture to tests of pytest-codspeed that get tables.
    """
    session = config.stash[SESSION]
    _add_fixture(session, config, items)
    if not session.measures_workloads:
        return
    with _one_line_errors():
        for item in items:
            thresholds_of(item)
        callspecs = (
            [] if config.option.collectonly else [getattr(item, "callspec", None) for item in items]
        )
        session.check(callspec.params.get(WORKLOAD, "") for callspec in callspecs if callspec)


def _add_fixture(session: Session, config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Add the fixture to tests that have pytest-codspeed's fixture or mark alone."""
    if not has_codspeed(config) or _takes_cases(config) or config.option.collectonly:
        return
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and not {FIXTURE, BENCHMARK}.intersection(item.fixturenames)
            and (CODSPEED in item.fixturenames or is_marked(item))
            and session.wants_table(item)
        ):
            session.attaches_to_plain_tests = True
            if not session.is_measured_by_codspeed and not hasattr(item, "nofuncargs"):
                item.fixturenames = [*item.fixturenames, BENCHMARK]
                item.stash[_IS_MEASURED_WHOLE] = CODSPEED not in item.fixturenames


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    session = config.stash[SESSION]
    if not session.measures_workloads or session.usage_error or config.option.collectonly:
        return None  # pytest calls this even if the check above raised
    if _takes_cases(config):
        return None
    from mnistbench.pytest_plugin.terminal_summary import session_line

    return session_line(session.environment, session.options.dataset, session.devices)


def _takes_cases(config: pytest.Config) -> bool:
    """Whether a hook measures the cases in place of the fixture.

    The packages that describe the machine and the operations may be absent then.
    """
    return bool(config.hook.pytest_mnistbench_take_case.get_hookimpls())


# ---- One case ------------------------------------------------------------------------------------


@pytest.fixture
def bench_workload() -> str:
    """Raise: pytest parametrizes only tests that have the fixture among their arguments."""
    raise UsageError(
        f"{FIXTURE}: name it as an argument of the test, which is then parametrized over workloads"
    )


@pytest.fixture
def bench_step() -> str:
    """Return the step of a test that is not parametrized over ``--bench-step``."""
    return REFERENCE


@pytest.fixture
def op_benchmark(
    request: pytest.FixtureRequest,
    benchmark: Any,
    bench_workload: str,
    bench_batch_size: int,
    bench_device: str,
    bench_step: str,
) -> OpBenchmark:
    """Measure one phase of a workload, operation by operation: ``op_benchmark("step")``.

    Phases: ``forward``, ``step``, ``train``, ``eval``, ``batch``. The options ``--bench-model``,
    ``--bench-batch-size``, ``--bench-device`` and ``--bench-step`` parametrize the test over
    ``bench_workload``, ``bench_batch_size``, ``bench_device`` and ``bench_step``; a ``parametrize``
    mark of one of these names replaces the option.

    To measure a function, use ``benchmark``. Its operations are recorded too if the test has the
    mark ``op_benchmark``, or with the option ``--op-benchmarks``.
    """
    from mnistbench.pytest_plugin.fixture import OpBenchmark

    return OpBenchmark(
        request, benchmark, bench_workload, bench_batch_size, bench_device, bench_step
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Measure the body of a test that has pytest-codspeed's mark and no fixture."""
    session = pyfuncitem.config.stash[SESSION]
    if (
        not has_codspeed(pyfuncitem.config)
        and not _takes_cases(pyfuncitem.config)
        and not {FIXTURE, BENCHMARK, CODSPEED}.intersection(pyfuncitem.fixturenames)
        and is_marked(pyfuncitem)
        and session.wants_table(pyfuncitem)
    ):
        session.marked_alone.append(pyfuncitem.nodeid)
    if not pyfuncitem.stash.get(_IS_MEASURED_WHOLE, False):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name]
        for name in pyfuncitem._fixtureinfo.argnames  # noqa: SLF001  # as pytest calls it
    }
    benchmark: Any = pyfuncitem.funcargs[BENCHMARK]
    benchmark(pyfuncitem.obj, **arguments)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Attach operations to tests that use pytest-benchmark's own fixture.

    With the option ``--op-benchmarks`` to all, else to those with the mark ``op_benchmark``.
    pytest-codspeed's fixture is then pytest-benchmark's, which measures and saves.
    """
    value = yield
    session = request.config.stash[SESSION]
    if fixturedef.argname == CODSPEED and _IS_MEASURED_WHOLE in request.node.stash:
        value = request.getfixturevalue(BENCHMARK)
        # A fixture of the test may ask for it again.
        fixturedef.cached_result = (value, *fixturedef.cached_result[1:])  # type: ignore[index]
    if (
        fixturedef.argname == BENCHMARK
        and FIXTURE not in request.node.fixturenames
        and session.wants_table(request.node)
        and not _takes_cases(request.config)
    ):
        from mnistbench.pytest_plugin.plain_tests import attach_operations

        attach_operations(session, value, request.node)
    return value


# ---- What pytest-benchmark saves and compares ----------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    session = config.stash[SESSION]
    if not session.records:
        return
    from mnistbench.core.record import KEY, run_header

    if any(KEY in benchmark["extra_info"] for benchmark in output_json["benchmarks"]):
        output_json[KEY] = run_header(session.environment_of_records)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, compared_benchmark: Mapping[str, Any]
) -> None:
    config.stash[SESSION].baselines.append(compared_benchmark)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Judge the comparison with a saved run; a session that failed before keeps its exit code."""
    config = session.config
    state = config.stash[SESSION]
    if (
        not config.getoption("benchmark_compare", default=None)
        or config.option.collectonly
        or hasattr(config, "workerinput")
    ):
        return
    if state.usage_error or not state.has_something_to_judge:
        return
    try:
        outcome = state.judge(has_tests=session.testscollected > 0).outcome
    except UsageError as error:  # about the names of cases, which only records have
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"ERROR: {_printable(error)}", red=True)
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
        return
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = {
            "regressed": EXIT_REGRESSED,
            "inconclusive": PYTEST_EXIT_INCONCLUSIVE,
        }.get(outcome, session.exitstatus)


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Iterator[None]:
    """Print below pytest-benchmark's table, even if its own regression check raises."""
    try:
        return (yield)
    finally:
        session = config.stash[SESSION]
        if session.records or session.notes or session.judgement:
            from mnistbench.pytest_plugin.terminal_summary import summarize

            summarize(session, terminalreporter, config)


def _printable(error: Exception) -> str:
    """Return the text of an error without control characters, which a file may have put in it."""
    from mnistbench.core.units import printable  # here: importing the plug-in loads few modules

    return printable(str(error))
