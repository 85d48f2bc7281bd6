"""Adadelta updates as PyTorch's does, also by sparse gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mnistbench.suite.workloads.adadelta import Adadelta

pytestmark = pytest.mark.versions


# Never reached, and reached every four steps.
@pytest.mark.parametrize("smallest_factor", [1e-8, 0.7])
def test_adadelta_updates_as_pytorchs_does(
    loops: str, smallest_factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mnistbench.suite.workloads.adadelta.SMALLEST_FACTOR", smallest_factor)
    plain, fast = (nn.Parameter(torch.ones(50)) for _ in range(2))
    unused = nn.Parameter(torch.ones(2))
    optimizers = torch.optim.Adadelta([plain], lr=0.7), Adadelta([fast, unused], lr=0.7)
    for _ in range(30):
        plain.grad = torch.randn(50) * torch.logspace(-6, 3, 50)  # below and above epsilon
        fast.grad = plain.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)
    assert torch.equal(unused, torch.ones(2))


# torch 2.11, once, of the test's own tensors.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("sparse_dim", [1, 2])
def test_elements_without_a_gradient_are_updated_as_by_zeros(
    loops: str, sparse_dim: int, is_transposed: bool
) -> None:
    plain = nn.Parameter(torch.ones(8, 5, dtype=torch.float64))
    fast = nn.Parameter(
        torch.ones(5, 8, dtype=torch.float64).t() if is_transposed else torch.ones_like(plain)
    )
    optimizers = torch.optim.Adadelta([plain], lr=0.7), Adadelta([fast], lr=0.7)
    for number in range(40):
        gradient = torch.randn(8, 5, dtype=torch.float64) * 0.01
        gradient[torch.rand(8) < 0.6] = 0
        plain.grad = gradient
        # A step in between may have a gradient of all elements.
        fast.grad = gradient.clone() if number in (20, 21) else gradient.to_sparse(sparse_dim)
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
        lambda: torch.randn(4, 3, 2, 2).bfloat16(),
        lambda: torch.randn(8, 6)[::2],
        lambda: torch.randn(4, 6, 3, 3)[:, ::2],
        lambda: torch.tensor(2.0),
        lambda: torch.randn(0, 3),
    ],
    ids=[
        "channels last",
        "bfloat16",
        "every second row",
        "every second channel",
        "one number",
        "empty",
    ],
)
def test_weights_in_another_order_or_format_are_updated(
    loops: str, make: Callable[[], Tensor]
) -> None:
    weights = make()
    plain = nn.Parameter(weights.clone())
    fast = nn.Parameter(weights)
    fast.data = weights.detach()
    optimizers = torch.optim.Adadelta([plain]), Adadelta([fast])
    for _ in range(3):
        plain.grad = torch.randn(weights.shape).to(weights.dtype)
        fast.grad = plain.grad.clone(memory_format=torch.contiguous_format)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(fast, plain)


def test_adadelta_continues_from_its_saved_state() -> None:
    def run(n_saved: int) -> Tensor:
        torch.manual_seed(2)
        parameter = nn.Parameter(torch.ones(5))
        optimizer = Adadelta([parameter])
        for number in range(6):
            if number == n_saved:
                state = copy.deepcopy(optimizer.state_dict())
                optimizer = Adadelta([parameter])
                optimizer.load_state_dict(state)
            parameter.grad = torch.randn(5)
            optimizer.step()
        return parameter.detach()

    assert torch.equal(run(3), run(-1))
