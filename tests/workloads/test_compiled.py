"""The compiled step learns what the fast step learns; without a compiler there is the fast step."""

from __future__ import annotations

import copy
import logging
import shutil

import pytest
import torch
from torch import Tensor, nn

from mnistbench.workloads import compiled, fast
from mnistbench.workloads.compiled import compiled_step
from mnistbench.workloads.fast import Adadelta, fast_model
from mnistbench.workloads.step import Step

pytestmark = pytest.mark.versions


@pytest.fixture(autouse=True)
def seeded(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    monkeypatch.setattr(compiled, "LARGE", 200)  # the first linear layer of the models here


def model_of(outputs: int = 30) -> nn.Sequential:
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, outputs), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(outputs, 2))


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, targets)


def step_of(model: nn.Module) -> Step:
    changed = fast_model(model, sparse_gradients=True)
    return Step(changed, loss, Adadelta(changed.parameters(), lr=0.5))


def batch(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 1, 12, 12), torch.randint(2, (size,))


def beside(model: nn.Sequential, size: int) -> tuple[Step, Step]:
    """Return the compiled step of a model, for batches of a size, and the fast step of a copy."""
    plain, own = step_of(copy.deepcopy(model)), step_of(model)
    found = compiled_step(own, model, loss, batch(size))
    assert found is not own
    return found, plain


def assert_learn_the_same(steps: tuple[Step, Step], *sizes: int) -> None:
    """Run both steps on a batch of each size; compare their results, and the weights afterwards."""
    for size in sizes:
        given = batch(size)
        for found, expected in zip(*(step(*given) for step in steps), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    for found, expected in zip(*(step.model.parameters() for step in steps), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


@pytest.mark.parametrize("smallest_factor", [1e-8, 0.2])
def test_it_learns_what_the_fast_step_learns(smallest_factor: float, uncompiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "SMALLEST_FACTOR", smallest_factor)
    assert_learn_the_same(beside(model_of(), 2), *[2] * 20, 1, 3, *[2] * 20)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_outputs_of_a_large_layer_have_a_gradient(rows: int, uncompiled: None) -> None:
    model = model_of()
    with torch.no_grad():
        model[4].bias[: 30 - rows] = -100
        model[4].bias[30 - rows :] = 100
    before = model[4].weight.clone()
    assert_learn_the_same(beside(model, 1), 1)
    assert ((model[4].weight != before).any(1)).sum() == rows


def test_each_model_has_its_own_compiled_code() -> None:
    if not shutil.which("g++"):
        pytest.skip("torch.compile needs a C++ compiler, g++")
    steps = beside(model_of(), 1), beside(model_of(), 1), beside(model_of(20), 1)
    for _ in range(3):
        for each in steps:
            assert_learn_the_same(each, 1, 1)


def test_it_continues_what_the_fast_step_began(uncompiled: None) -> None:
    model = model_of()
    own, plain = step_of(model), step_of(copy.deepcopy(model))
    plain.model.load_state_dict(own.model.state_dict())
    for _ in range(3):
        given = batch(2)
        own(*given), plain(*given)
    assert_learn_the_same((compiled_step(own, model, loss, batch(2)), plain), 2, 2)


def test_dropout_has_its_probability_and_keeps_the_mean() -> None:
    found = compiled._dropout(torch.ones(100_000), 0.25)
    assert found.unique().tolist() == pytest.approx([0, 4 / 3])
    assert found.mean().item() == pytest.approx(1, abs=0.01)


def test_without_a_compiler_there_is_the_fast_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        torch.rand(1)
        raise RuntimeError("no compiler was found")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
    model = model_of()
    weights, step, given = copy.deepcopy(model.state_dict()), step_of(model), batch(1)
    state = torch.random.get_rng_state()
    assert compiled_step(step, model, loss, given) is step
    assert torch.equal(torch.random.get_rng_state(), state)
    assert logging.root.manager.disable == logging.NOTSET
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)


def test_only_a_sequence_of_modules_is_compiled(uncompiled: None) -> None:
    step = step_of(model_of())
    assert compiled_step(step, nn.ModuleList(model_of()), loss, batch(1)) is step
