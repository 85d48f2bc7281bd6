"""Every test in this folder runs on one thread and restores the random state."""

from __future__ import annotations

import pytest
from one_thread import alone

from mnistbench.core.extras import has

__all__ = ["alone"]


@pytest.fixture(autouse=True)
def seeded(alone: None) -> None:
    if has("torch"):
        import torch

        torch.manual_seed(3)


@pytest.fixture(params=["one thread", "two threads", "none"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the loops that numba compiles in one thread or in two, or none of them.

    The last is as without numba.
    """
    if request.param == "none":
        monkeypatch.setattr("mnistbench.suite.workloads.compiled.loops", lambda: None)
    if request.param == "two threads":
        import torch

        monkeypatch.setattr(
            "mnistbench.suite.workloads.sparse_gradients.SUM_IN_TWO_THREADS_FROM", 0
        )
        monkeypatch.setattr("mnistbench.suite.workloads.adadelta.UPDATE_IN_TWO_THREADS_FROM", 0)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    return str(request.param)
