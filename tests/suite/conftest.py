"""Every test in this folder runs on one thread and restores the random state.

What one test compiles is not compiled code of the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from one_thread import alone

__all__ = ["alone"]


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """Afterwards, this process has compiled nothing."""
    yield
    if utils := sys.modules.get("torch._dynamo.utils"):
        utils.counters.clear()
