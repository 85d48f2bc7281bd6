"""This suite measures the built-in workloads. The conftest.py of another project returns its own from the same hook."""

import pytest


@pytest.hookimpl(optionalhook=True)  # so that pytest -p no:mnistbench still runs
def pytest_mnistbench_workloads(config):
    from mnistbench.pytest_plugin.workloads import builtin_workloads  # here: the root conftest.py may load the plug-in first

    return builtin_workloads(config)
