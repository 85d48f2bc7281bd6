"""This suite measures the built-in workloads.

The conftest.py of another project returns its own from the same hook.
"""

from pathlib import Path

import pytest

#: Number of cases that are left out.
LEFT_OUT = pytest.StashKey[int]()


def pytest_configure():
    # In one line, before the files that import torch are imported.
    from mnistbench.core.errors import UsageError
    from mnistbench.core.extras import require

    try:
        require("the suite", "torch")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)  # so that pytest -p no:mnistbench still runs
def pytest_mnistbench_workloads(config):
    # Here: the root conftest.py may load the plug-in first.
    from mnistbench.suite.op_benchmark.hooks import builtin_workloads

    return builtin_workloads(config)


def pytest_collection_modifyitems(config, items):
    """Leave studies out unless the command line names their file, or ``-m`` their marker."""
    if "study" in config.option.markexpr:
        return
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    left_out = [
        item for item in items if item.get_closest_marker("study") and item.path not in named
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[LEFT_OUT] = len(left_out)


def pytest_report_collectionfinish(config):
    if number := config.stash.get(LEFT_OUT, 0):
        return f"{number} cases of studies are left out; run them with -m study, or name their file"
    return None
