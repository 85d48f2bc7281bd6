"""Pooled values and their sparse gradients are those of PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mnistbench.suite.workloads.sparse_gradients import Pooling

pytestmark = [
    pytest.mark.versions,
    # torch 2.11 warns in the first backward pass of a process that makes a sparse tensor.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_pooled_values_and_their_gradients_are_those_of_pytorch(
    threads: int, is_flat: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr("mnistbench.suite.workloads.sparse_gradients.POOL_IN_TWO_THREADS_FROM", 0)
    # Most windows have equal ones.
    values = torch.randint(-3, 3, (5, 7, 9, 13)).to(dtype).to(memory_format=torch.channels_last)
    values[0, 0, 0, 0] = torch.inf
    values[0, 1, 3, 2] = -torch.inf
    values[2, 1, 0, 3] = -0.0
    fast, plain = (values.clone().requires_grad_() for _ in range(2))
    pooled = Pooling.apply(fast, (2, 3), 0.0, is_flat)
    expected = nn.functional.max_pool2d(plain, (2, 3)).relu()
    expected = expected.flatten(1) if is_flat else expected
    assert torch.equal(pooled, expected)
    slopes = torch.randn(expected.shape).to(dtype)
    pooled.backward(slopes)
    expected.backward(slopes)
    assert torch.equal(fast.grad.to_dense(), plain.grad)
