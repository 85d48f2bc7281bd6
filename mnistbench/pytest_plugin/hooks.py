"""The hook by which the gate measures a case in place of a provider's fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mnistbench.core.params import Params


@pytest.hookspec(firstresult=True)
def pytest_mnistbench_take_case(
    config: pytest.Config, item: pytest.Item, params: Params, build: Callable[[], Any]
) -> bool | None:
    """Return True to measure a case in another way; the fixture then measures and saves nothing.

    ``mnistbench gate`` takes the cases of both sides with this hook. Each call of ``build`` returns
    a new case.
    """
