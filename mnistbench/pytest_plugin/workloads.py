"""The workloads that a test can measure: those that conftest.py files register, and the built-in ones if they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mnistbench.core.errors import UsageError
from mnistbench.pytest_plugin.session import SESSION

if TYPE_CHECKING:
    from mnistbench.workloads.workload import Workload


def builtin_workloads(config: pytest.Config) -> list[Workload]:
    """Return ConvNet and LeNet5 on ``--bench-dataset``.

    A ``pytest_mnistbench_workloads`` that returns them has every test measure them without ``--bench-model``.
    """
    return config.stash[SESSION].builtin_workloads


def registered_workloads(item: pytest.Item | pytest.Function) -> list[Workload]:
    """Return the workloads of the conftest.py files that apply to a test.

    Raises:
        UsageError: a hook returned something else, or a name is registered twice or is that of a built-in workload.
    """
    from mnistbench.workloads.workload import Workload

    builtin = {workload.name: workload for workload in builtin_workloads(item.config)}
    found: dict[str, Workload] = {}
    for workloads in reversed(item.ihook.pytest_mnistbench_workloads(config=item.config)):
        for workload in workloads:
            if not isinstance(workload, Workload):
                raise UsageError(
                    f"pytest_mnistbench_workloads returned {workload!r}: return a list of mnistbench Workload objects"
                )
            if workload.name in found or builtin.get(workload.name, workload) is not workload:
                raise UsageError(f"workload {workload.name!r} is registered twice: give one of them another name")
            found[workload.name] = workload
    return list(found.values())


def known_workloads(item: pytest.Item) -> dict[str, Workload]:
    """Return all workloads that a test can name, built-in ones included.

    Raises:
        UsageError: a workload is registered wrongly.
    """
    return {workload.name: workload for workload in (*builtin_workloads(item.config), *registered_workloads(item))}
