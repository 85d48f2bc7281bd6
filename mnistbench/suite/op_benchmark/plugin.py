"""The pytest plug-in of the fixture ``op_benchmark``; ``mnistbench.pytest_plugin.plugin`` loads it.

Importing it does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.options import add_pytest_options, keep_paths
from mnistbench.core.params import REFERENCE
from mnistbench.measuring.provider import PROVIDERS
from mnistbench.pytest_plugin.plugin import takes_cases
from mnistbench.pytest_plugin.session import SESSION, one_line_errors
from mnistbench.suite.op_benchmark import hooks
from mnistbench.suite.op_benchmark.cases import (
    BATCH_SIZE,
    CASES,
    DEVICE,
    STEP,
    WORKLOAD,
    Cases,
)
from mnistbench.suite.op_benchmark.options import CaseOptions

if TYPE_CHECKING:
    from mnistbench.core.record import Environment
    from mnistbench.suite.op_benchmark.fixture import OpBenchmark

#: The fixture of a test that measures a phase of a workload.
FIXTURE = PROVIDERS["torch"].fixture

#: A filter for warnings of torch's own modules. Where warnings are errors, torch 2.11 could compile
#: no model: it imports deprecated code of its own, and advises TF32 on devices that have it.
SHOW_WARNINGS_OF_TORCH = r"default:::torch\."


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "mnistbench: cases of op_benchmark"
    add_pytest_options(parser, "mnistbench cases", about, CaseOptions)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    keep_paths(CaseOptions, early_config, parser, args)


def pytest_configure(config: pytest.Config) -> None:
    with one_line_errors():
        cases = config.stash[CASES] = Cases(config)
    if cases.options.compile:
        config.addinivalue_line("filterwarnings", SHOW_WARNINGS_OF_TORCH)


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
    cases = metafunc.config.stash[CASES]
    cases.are_collected = True
    options = cases.options
    from mnistbench.core.extras import require  # here: importing the plug-in loads few modules

    try:
        require(f"the fixture {FIXTURE}", "torch")
        devices = cases.devices
        registered = cases.registered_workloads(metafunc.definition)
        if WORKLOAD not in marked:
            metafunc.parametrize(WORKLOAD, cases.select_workloads(registered))
    except MnistbenchError as error:  # raised here, it would be a traceback for every test file
        session = metafunc.config.stash[SESSION]
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
            ids=[options.device_label(device) for device in devices],
        )
    # The ids of the default stay as they are.
    if STEP not in marked and options.steps != (REFERENCE,):
        metafunc.parametrize(STEP, options.steps)


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse options and datasets that cannot be used, before any case runs."""
    cases = config.stash[CASES]
    if not cases.are_collected:
        return
    with one_line_errors():
        callspecs = (
            [] if config.option.collectonly else [getattr(item, "callspec", None) for item in items]
        )
        cases.check(callspec.params.get(WORKLOAD, "") for callspec in callspecs if callspec)


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    cases = config.stash[CASES]
    is_refused = config.stash[SESSION].usage_error  # pytest calls this even if the check raised
    if not cases.are_collected or is_refused or config.option.collectonly or takes_cases(config):
        return None
    return session_line(cases.environment, cases.options.dataset, cases.devices)


def session_line(environment: Environment, dataset: str, devices: Sequence[str]) -> str:
    """Return one line on torch, devices, threads, dataset and the noise of the allocator."""
    from mnistbench.core import units  # here: importing the plug-in loads few modules
    from mnistbench.core.machine import allocator_status

    threads = units.threads(environment.threads)
    return (
        f"mnistbench: torch {environment.torch}, {', '.join(devices)}, {threads}, {dataset}; "
        f"{allocator_status(environment.allocator)}"
    )


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
    from mnistbench.suite.op_benchmark.fixture import OpBenchmark

    return OpBenchmark(
        request, benchmark, bench_workload, bench_batch_size, bench_device, bench_step
    )


# ---- Curves --------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Iterator[None]:
    """Print the command for TensorBoard below all tables."""
    try:
        return (yield)
    finally:
        if directory := config.stash[CASES].tracked_in:
            from mnistbench.core.units import printable  # here: importing loads few modules

            shown = printable(os.path.relpath(directory))
            terminalreporter.write_line(f"\nTensorBoard: tensorboard --logdir {shown}")
