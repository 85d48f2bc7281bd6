"""The hooks that a user's conftest.py may implement.

Mark them ``@pytest.hookimpl(optionalhook=True)``: pytest refuses a hook that it does not know, and with
``-p no:mnistbench`` it knows none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mnistbench.core.params import Params
    from mnistbench.core.record import CaseRecord
    from mnistbench.measuring.case import Case
    from mnistbench.workloads.workload import Workload


def pytest_mnistbench_workloads(config: pytest.Config) -> Iterable[Workload]:  # type: ignore[empty-body]
    """Return ``mnistbench.Workload`` objects to measure beside the built-in ones.

    Every registered workload becomes a value of ``bench_workload`` in the tests that use ``op_benchmark``; choose with
    ``--bench-model``.
    """


def pytest_mnistbench_attach(config: pytest.Config, case: Case, record: CaseRecord) -> Mapping[str, Any] | None:
    """Return what to hang on the record of a case that was just measured.

    Keys ``operation_tables`` (OpTable objects) and ``training_scalars`` (a Scalars) go into the fields of those names,
    and the functions of these names in ``mnistbench.pytest_plugin.attachments`` supply them; any other key is kept as it is
    and needs a JSON value. All that several conftest.py return is merged. Where no conftest.py implements this hook, both
    standard attachments are made. What raises here costs the record that part, never the timing.
    """


@pytest.hookspec(firstresult=True)
def pytest_mnistbench_take_case(
    config: pytest.Config, item: pytest.Item, params: Params, build: Callable[[], Case]
) -> bool | None:
    """Return True to measure a case in another way: the fixture then does nothing more, and saves nothing.

    ``mnistbench gate`` takes the cases of both sides by this hook. ``build`` makes the case, as often as it is called.
    """
