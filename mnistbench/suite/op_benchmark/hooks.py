"""The hooks that a user's conftest.py can implement, and the built-in workloads for it.

Mark an implementation ``@pytest.hookimpl(optionalhook=True)``: otherwise ``pytest -p
no:mnistbench`` refuses it as an unknown hook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.suite.op_benchmark.cases import CASES
from mnistbench.suite.workloads.builtin import SUITE_MODELS

if TYPE_CHECKING:
    from mnistbench.core.record import CaseRecord
    from mnistbench.suite.measuring.case import Case
    from mnistbench.suite.op_benchmark.fixture import Timed
    from mnistbench.suite.workloads.workload import Workload


def pytest_mnistbench_workloads(config: pytest.Config) -> Iterable[Workload]:  # type: ignore[empty-body]
    """Return the workloads of a project.

    ::

        from mnistbench import Workload

        def pytest_mnistbench_workloads(config):
            return [
                Workload(
                    name="mlp", make_model=..., make_batch=..., loss=..., make_optimizer=...
                )
            ]

    Tests that use ``op_benchmark`` are parametrized over all registered workloads, or over those
    that ``--bench-model`` names. The built-in workloads, convnet and lenet5, are measured if
    ``--bench-model`` names them or if a conftest.py returns
    ``mnistbench.suite.op_benchmark.hooks.builtin_workloads(config)``.
    """


def pytest_mnistbench_attach(
    config: pytest.Config, case: Case, record: CaseRecord, timed: Timed
) -> Mapping[str, Any] | None:
    """Return attachments for the record of a case that was just measured.

    ``timed`` has the times of the case and the operations of its first iteration. An implementation
    may leave out arguments that it does not use.

    The keys ``operation_tables`` (OpTable objects) and ``training_scalars`` (a Scalars object) set
    the fields of these names; the functions of these names in
    ``mnistbench.suite.op_benchmark.fixture`` return them. Any other key needs a JSON value and is
    saved as it is. The attachments of several conftest.py files are merged. If no conftest.py
    implements this hook, the record gets the operation tables, and with ``--bench-tensorboard DIR``
    the curves of a short training. An exception becomes a note in the record; the timing is kept.
    """


def builtin_workloads(config: pytest.Config) -> list[Workload]:
    """Return ConvNet and LeNet5 on ``--bench-dataset``.

    A ``pytest_mnistbench_workloads`` that returns them has every test measure them without
    ``--bench-model``.
    """
    return [
        workload
        for workload in config.stash[CASES].builtin_workloads
        if workload.name in SUITE_MODELS
    ]
