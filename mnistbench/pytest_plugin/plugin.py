"""The pytest plug-in: declares options, one fixture and hooks, and delegates. Importing it does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.params import device_label
from mnistbench.pytest_plugin import hookspec
from mnistbench.pytest_plugin.options import Options, add_options, gate_is_configured
from mnistbench.pytest_plugin.session import BATCH_SIZE, DEVICE, SESSION, WORKLOAD, Session, gate_of, registered_workloads

if TYPE_CHECKING:
    from mnistbench.workloads.workload import Workload

FIXTURE = "op_benchmark"

#: Exit codes of a gate: an operation regressed, as a test that failed; it could not be judged. pytest uses 0 to 6.
REGRESSED, UNJUDGED = 1, 8


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspec)


@pytest.hookimpl(tryfirst=True)  # before pytest-benchmark loads baselines, which it hands to us
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", 'opgate("10%", "aten::addmm:5%", case="5%"): how much slower this test\'s operations, and its call, may get'
    )
    with _one_line_errors():
        session = config.stash[SESSION] = Session(config, Options.from_config(config))
        if gate_is_configured(config):
            session.criteria  # noqa: B018  # reads the values: what cannot be used is refused now


def pytest_mnistbench_workloads(config: pytest.Config) -> list[Workload]:
    return config.stash[SESSION].builtin_workloads


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn what a user got wrong into pytest's own usage error: one line, exit code 4."""
    try:
        yield
    except MnistbenchError as error:
        raise pytest.UsageError(str(error)) from None


# ---- Collection ------------------------------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)  # after pytest's own reading of marks: a marked workload stands first in the id, as ours do
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the tests that use our fixture over what was asked for, but for what their own marks decide."""
    if FIXTURE not in metafunc.fixturenames:
        return
    session = metafunc.config.stash[SESSION]
    session.collected = True
    options = session.options
    try:
        devices = session.devices
        workloads = session.select_workloads(registered_workloads(metafunc.definition))
    except MnistbenchError as error:  # raised here it would be a traceback for every test file
        session.usage_error = session.usage_error or error
        return
    marked = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _argument_names(mark)}
    if WORKLOAD not in marked:
        metafunc.parametrize(WORKLOAD, workloads)
    if BATCH_SIZE not in marked:
        metafunc.parametrize(BATCH_SIZE, options.batch_sizes, ids=[f"b{size}" for size in options.batch_sizes])
    if DEVICE not in marked:
        metafunc.parametrize(DEVICE, devices, ids=[device_label(device, options.dtype, options.compile) for device in devices])


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse what cannot be measured before any case runs."""
    session = config.stash[SESSION]
    if not session.collected:
        return
    with _one_line_errors():
        for item in items:
            gate_of(item)
        session.check(dataset=not config.option.collectonly)


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    session = config.stash[SESSION]
    if not session.collected or session.usage_error or config.option.collectonly:
        return None  # pytest asks also when the check above has refused
    from mnistbench.pytest_plugin.terminal_summary import session_line

    return session_line(session.environment, session.options.dataset, session.devices)


# ---- One case --------------------------------------------------------------------------------------------------------


@pytest.fixture
def op_benchmark(
    request: pytest.FixtureRequest,
    benchmark: Any,
    bench_workload: str,
    bench_batch_size: int,
    bench_device: str,
) -> Callable[[str], None]:
    """Measure one phase of a workload, operation by operation: ``op_benchmark("step")``.

    The test is parametrized over ``bench_workload``, ``bench_batch_size`` and ``bench_device``, as the options
    ``--bench-model``, ``--bench-batch-size`` and ``--bench-device`` say; a ``parametrize`` mark of one of these names
    replaces the option. Phases: ``forward``, ``step``, ``train``, ``eval``, ``batch``, ``dataloader``.
    """
    from mnistbench.pytest_plugin.fixture import OpBenchmark

    return OpBenchmark(request, benchmark, bench_workload, bench_batch_size, bench_device)


# ---- What pytest-benchmark saves and compares ------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    session = config.stash[SESSION]
    if not session.records:
        return
    from mnistbench.core.record import KEY, run_header

    if any(KEY in benchmark["extra_info"] for benchmark in output_json["benchmarks"]):
        output_json[KEY] = run_header(session.environment)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_compare_machine_info(config: pytest.Config, compared_benchmark: Mapping[str, Any]) -> None:
    config.stash[SESSION].baselines.append(compared_benchmark)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Judge, where a saved run is compared with; what failed already keeps its exit code."""
    config = session.config
    state = config.stash[SESSION]
    if not config.getoption("benchmark_compare", default=None) or config.option.collectonly or hasattr(config, "workerinput"):
        return
    if state.usage_error or not state.has_something_to_judge:
        return
    outcome = state.judge().outcome
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = {"regressed": REGRESSED, "unjudged": UNJUDGED}.get(outcome, session.exitstatus)


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    """Print beneath pytest-benchmark's table, also where its own regression check raises."""
    try:
        return (yield)
    finally:
        session = config.stash[SESSION]
        if session.records or session.notes or session.judgement:
            from mnistbench.pytest_plugin.terminal_summary import summarize

            summarize(session, terminalreporter, config)
