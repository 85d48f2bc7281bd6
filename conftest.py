"""Load the plug-in from a checkout, which need not be installed."""

import pytest

PLUGIN = "mnistbench.pytest_plugin.plugin"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.has_plugin("mnistbench") and not pluginmanager.is_blocked("mnistbench"):
        pluginmanager.import_plugin(PLUGIN)
