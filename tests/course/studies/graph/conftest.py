"""What a test changes in torch's compiler is undone."""

import pytest


@pytest.fixture
def fresh_dynamo():
    """Restore the random state after a test, and forget what was compiled."""
    import torch

    with torch.random.fork_rng(devices=[]):
        yield
    torch.compiler.reset()


@pytest.fixture
def without_compiler(monkeypatch):
    """Name a compiler that there is not."""
    import torch._inductor.config  # noqa: F401  # it keeps the variable of its first import

    monkeypatch.setenv("CXX", "no-such-compiler")
