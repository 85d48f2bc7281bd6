"""The pytest plug-in: tables of operations and functions, and comparisons with saved runs.

Importing it does not import torch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pytest

from mnistbench.compare.criteria import Criteria, thresholds_of
from mnistbench.core.errors import UsageError
from mnistbench.core.options import add_pytest_options
from mnistbench.measuring.calls import BENCHMARK, CODSPEED, has_codspeed, is_marked
from mnistbench.measuring.provider import OWN_FIXTURES, PROVIDERS
from mnistbench.pytest_plugin import hooks
from mnistbench.pytest_plugin.options import Options
from mnistbench.pytest_plugin.session import MARK, SESSION, Session, one_line_errors, printable

#: The plug-ins of the fixtures of providers, which pytest loads with this one.
pytest_plugins = [provider.plugin for provider in PROVIDERS.values()]

#: Of a test that got pytest-benchmark's fixture because it is pytest-codspeed's: whether its body
#: is measured, because it has the mark alone.
_IS_MEASURED_WHOLE = pytest.StashKey[bool]()

#: Exit code of a comparison that is inconclusive. pytest uses 0 to 6.
PYTEST_EXIT_INCONCLUSIVE = 8


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
    with one_line_errors():
        config.stash[SESSION] = Session(config)


# ---- Collection ----------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the marks, and give pytest-benchmark's fixture to tests of pytest-codspeed.

    Only tests that get tables, and that have no other fixture of a benchmark, get it.
    """
    session = config.stash[SESSION]
    if takes_cases(config):
        return
    with one_line_errors():
        for item in items:
            thresholds_of(item)
    if not has_codspeed(config) or config.option.collectonly:
        return
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and not {*OWN_FIXTURES, BENCHMARK}.intersection(item.fixturenames)
            and (CODSPEED in item.fixturenames or is_marked(item))
            and session.wants_table(item)
        ):
            session.attaches_to_plain_tests = True
            if not session.is_measured_by_codspeed and not hasattr(item, "nofuncargs"):
                item.fixturenames = [*item.fixturenames, BENCHMARK]
                item.stash[_IS_MEASURED_WHOLE] = CODSPEED not in item.fixturenames


def takes_cases(config: pytest.Config) -> bool:
    """Return whether a hook measures the cases in place of the fixture.

    The packages that describe the machine and the operations may be absent then.
    """
    return bool(config.hook.pytest_mnistbench_take_case.get_hookimpls())


# ---- One case ------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Measure the body of a test that has pytest-codspeed's mark and no fixture."""
    session = pyfuncitem.config.stash[SESSION]
    if (
        not has_codspeed(pyfuncitem.config)
        and not takes_cases(pyfuncitem.config)
        and not {*OWN_FIXTURES, BENCHMARK, CODSPEED}.intersection(pyfuncitem.fixturenames)
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

    With the option ``--op-benchmarks`` all tests get them, else those with the mark
    ``op_benchmark``.
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
        and OWN_FIXTURES.isdisjoint(request.node.fixturenames)
        and session.wants_table(request.node)
        and not takes_cases(request.config)
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
        output_json[KEY] = run_header(session.environment)


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
            reporter.write_line(f"ERROR: {printable(error)}", red=True)
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
        return
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = {
            "regressed": pytest.ExitCode.TESTS_FAILED,
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
