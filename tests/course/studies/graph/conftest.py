"""What a test changes in torch's compiler is undone."""

import pytest


@pytest.fixture
def fresh_dynamo():
    """Restore the random state after a test, and forget what was compiled."""
    import torch

    with torch.random.fork_rng(devices=[]):
        yield
    torch.compiler.reset()
