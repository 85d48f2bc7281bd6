"""The fixture ``alone``, which the folders of tests with torch import in their conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mnistbench.core.extras import has


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Run a test on one thread of torch, and restore the random state."""
    if not has("torch"):  # this test needs none
        yield
        return
    import torch

    from mnistbench.suite.measuring.case import fork_random, thread_count

    with thread_count(1), fork_random(torch.device("cpu")):
        yield
