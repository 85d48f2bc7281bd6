"""One step and its parts; loss and accuracy against a plain recomputation."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import ANY_SPEED
from torch import Tensor, nn
from torch_builders import CPU, sgd, tiny_batch, tiny_model

from mnistbench.suite.measuring.case import autocaster
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.suite.workloads.workload import number_correct

pytestmark = pytest.mark.versions

nll = nn.functional.nll_loss


@pytest.fixture(autouse=True)
def seeded(alone: None) -> None:
    torch.manual_seed(11)


def linear_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.LogSoftmax(dim=1))


def batches_of(sizes: Sequence[int], seed: int = 0) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [tiny_batch(size, CPU, generator) for size in sizes]


def same_weights(model: nn.Module, twin: nn.Module) -> bool:
    theirs = twin.state_dict()
    return all(torch.equal(weights, theirs[name]) for name, weights in model.state_dict().items())


# ---- One step ------------------------------------------------------------------------------------


class TestStep:
    def test_a_step_is_the_same_as_plain_torch_code(self) -> None:
        model = tiny_model()
        plain = tiny_model()
        plain.load_state_dict(model.state_dict())
        optimizer = torch.optim.Adadelta(plain.parameters(), lr=1.0)
        step = Step(model, nll, torch.optim.Adadelta(model.parameters(), lr=1.0))
        for seed, (inputs, targets) in enumerate(batches_of([4, 4, 2])):
            torch.manual_seed(seed)  # the same dropout masks
            output, loss = step(inputs, targets)
            torch.manual_seed(seed)
            optimizer.zero_grad()
            plain_output = plain(inputs)
            plain_loss = nll(plain_output, targets)
            plain_loss.backward()
            optimizer.step()
            assert torch.equal(output, plain_output)
            assert torch.equal(loss, plain_loss)
            assert same_weights(model, plain)

    def test_each_part_changes_only_gradients_or_weights(self) -> None:
        model = linear_model()
        before = copy.deepcopy(model)
        step = Step(model, nll, sgd(model.parameters()))
        (inputs, targets) = batches_of([4])[0]
        loss = step.loss(step.forward(inputs), targets)
        assert all(parameter.grad is None for parameter in model.parameters())
        step.backward(loss)
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert same_weights(model, before)
        step.update()
        assert not same_weights(model, before)
        step.zero_grad()
        assert not any(
            parameter.grad is not None and parameter.grad.any() for parameter in model.parameters()
        )

    def test_model_is_put_in_train_mode(self) -> None:
        model = tiny_model().eval()
        Step(model, nll, sgd(model.parameters()))
        assert all(module.training for module in model.modules())

    def test_forward_and_loss_run_under_autocast_and_nothing_else_does(self) -> None:
        inside: list[str] = []
        model = linear_model()

        @contextmanager
        def autocast() -> Iterator[None]:
            inside.append("enter")
            yield
            inside.append("leave")

        def loss(output: Tensor, targets: Tensor) -> Tensor:
            inside.append("loss")
            return nll(output, targets)

        class Optimizer(torch.optim.SGD):
            def step(self, closure: Any = None) -> None:
                inside.append("update")

        model.register_forward_hook(lambda *_: inside.append("forward"))
        Step(model, loss, Optimizer(model.parameters(), lr=0.1), autocast)(*batches_of([2])[0])
        assert inside == ["enter", "forward", "leave", "enter", "loss", "leave", "update"]


class TestInference:
    def test_model_is_put_in_eval_mode(self) -> None:
        model = tiny_model().train()
        Inference(model)
        assert not any(module.training for module in model.modules())

    def test_output_is_the_models_without_autograd(self) -> None:
        model = tiny_model()
        (inputs, _) = batches_of([4])[0]
        output = Inference(model)(inputs)
        assert output.is_inference()
        assert torch.equal(output, model.eval()(inputs))


# ---- Windows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayed:
    """One batch trained on with plain torch code.

    What each of its samples was worth before the update.
    """

    losses: list[float]
    hits: list[bool]


def replay(model: nn.Module, batches: Sequence[Batch]) -> list[Replayed]:
    """Train a copy of the model with SGD, lr 0.5.

    Keep every sample's loss and whether it was right.
    """
    model = copy.deepcopy(model)
    seen = []
    for inputs, targets in batches:
        model.zero_grad()
        output = model(inputs)
        losses = [-output[sample, target] for sample, target in enumerate(targets.tolist())]
        hits = [
            int(row.argmax()) == target
            for row, target in zip(output, targets.tolist(), strict=True)
        ]
        seen.append(Replayed([loss.item() for loss in losses], hits))
        (sum(losses) / len(losses)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.5 * parameter.grad)
    return seen


def expected_window(seen: Sequence[Replayed], step: int) -> Window:
    losses = [loss for batch in seen for loss in batch.losses]
    hits = [hit for batch in seen for hit in batch.hits]
    return Window(
        step,
        len(losses),
        pytest.approx(sum(losses) / len(losses), rel=1e-4),
        pytest.approx(100 * sum(hits) / len(hits)),
    )


@given(
    sizes=st.lists(st.integers(1, 6), max_size=12),
    window=st.integers(1, 5),
    first_step=st.integers(0, 1000),
    seed=st.integers(0, 9),
)
@ANY_SPEED
def test_windows_are_means_over_their_samples(
    sizes: list[int], window: int, first_step: int, seed: int
) -> None:
    torch.manual_seed(seed)
    model = linear_model()
    batches = batches_of(sizes, seed)
    seen = replay(model, batches)
    windows = list(
        fit(
            Step(model, nll, sgd(model.parameters())),
            batches,
            metric=number_correct,
            window=window,
            first_step=first_step,
        )
    )
    ends = [*range(window, len(sizes), window), len(sizes)] if sizes else []
    starts = [0, *ends]
    assert windows == [
        expected_window(seen[start:end], first_step + end)
        for start, end in zip(starts, ends, strict=False)
    ]


def test_fit_trains_when_its_windows_are_read() -> None:
    model = linear_model()
    drawn = []

    def batches() -> Iterator[Batch]:
        for batch in batches_of([2] * 6):
            drawn.append(batch)
            yield batch

    next(fit(Step(model, nll, sgd(model.parameters())), batches(), window=2))
    assert len(drawn) == 2


# ---- Evaluation ----------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    step=st.integers(0, 1000),
    seed=st.integers(0, 9),
)
@ANY_SPEED
def test_evaluation_is_the_mean_over_all_samples(sizes: list[int], step: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = linear_model()
    batches = batches_of(sizes, seed)
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    output = model(inputs)
    expected = Window(
        step,
        sum(sizes),
        pytest.approx(nll(output, targets).item(), rel=1e-4),
        pytest.approx(100 * (output.argmax(dim=1) == targets).double().mean().item()),
    )
    assert (
        evaluate(Inference(model), batches, loss=nll, metric=number_correct, step=step) == expected
    )


def test_evaluation_drops_nothing_out_and_changes_no_weight() -> None:
    model = tiny_model()
    batches = batches_of([4, 3])
    before = copy.deepcopy(model)
    first, again = (
        evaluate(Inference(model.train()), batches, loss=nll, metric=number_correct)
        for _ in range(2)
    )
    assert first == again
    assert same_weights(model, before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_evaluation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^evaluate needs at least one batch$"):
        evaluate(Inference(linear_model()), [], loss=nll)


def test_bfloat16_rounds_the_outputs_but_not_the_loss() -> None:
    model = linear_model()
    batches = batches_of([1000])
    autocast = autocaster(CPU, "bfloat16")
    output = Inference(model, autocast)(batches[0][0])
    expected = nll(output.double(), batches[0][1]).item()
    assert evaluate(Inference(model, autocast), batches, loss=nll).loss == pytest.approx(
        expected, rel=1e-5
    )
