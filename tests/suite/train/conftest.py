"""Every test in this folder runs on one thread and restores the random state."""

import pytest
from builders import environment
from one_thread import alone

__all__ = ["alone"]


@pytest.fixture
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask what the processor is called takes a second."""
    pytest.importorskip("torch")
    monkeypatch.setattr(
        "mnistbench.suite.train.run.read", lambda threads: environment(threads=threads)
    )
