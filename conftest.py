"""Load the plug-in from a checkout, attach to every record, and write curves for TensorBoard.

Copy the last hook into a project of your own to change what is attached.
"""

from collections.abc import Mapping
from typing import Any

import pytest

PLUGIN = "mnistbench.pytest_plugin.plugin"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.has_plugin("mnistbench") and not pluginmanager.is_blocked("mnistbench"):
        pluginmanager.import_plugin(PLUGIN)


@pytest.hookimpl(tryfirst=True)  # before the plug-in reads its options
def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config.option, "bench_tensorboard", "off")
    if given is None and not config.getini("bench_tensorboard"):
        config.option.bench_tensorboard = ".benchmarks/tensorboard"


@pytest.hookimpl(optionalhook=True)  # so that pytest -p no:mnistbench still runs
def pytest_mnistbench_attach(config: pytest.Config, case: Any, timed: Any) -> Mapping[str, Any]:
    # Not above, because they import torch.
    from mnistbench.suite.op_benchmark.fixture import operation_tables, training_scalars

    return {**operation_tables(config, case, timed), **training_scalars(config, case, timed)}
