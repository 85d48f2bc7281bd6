"""One step and its parts; loss and accuracy against a plain recomputation; what training reaches."""

from __future__ import annotations

import copy
import os
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
from torch_builders import CPU, TEST_SAMPLES, TRAIN_SAMPLES, sgd, tiny_batch, tiny_model, tiny_workload, whole_tiny_set

from mnistbench.measuring.case import autocaster, fork_random, thread_count
from mnistbench.train.loop import Epoch, Watch, train
from mnistbench.workloads.data import Batch
from mnistbench.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.workloads.workload import Workload, builtin_workloads, number_correct

pytestmark = pytest.mark.versions

REAL_MNIST = os.environ.get("MNISTBENCH_DATA")

nll = nn.functional.nll_loss


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with thread_count(1), fork_random(CPU):
        torch.manual_seed(11)
        yield


def linear_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.LogSoftmax(dim=1))


def batches_of(sizes: Sequence[int], seed: int = 0) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [tiny_batch(size, CPU, generator) for size in sizes]


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(weights, theirs[name]) for name, weights in one.state_dict().items())


# ---- One step --------------------------------------------------------------------------------------------------------


class TestStep:
    def test_a_step_is_the_same_as_plain_torch_code(self) -> None:
        model, plain = tiny_model(), tiny_model()
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

    def test_the_parts_called_in_order_are_the_step(self) -> None:
        whole, in_parts = tiny_model(), tiny_model()
        in_parts.load_state_dict(whole.state_dict())
        step, parts = Step(whole, nll, sgd(whole.parameters())), Step(in_parts, nll, sgd(in_parts.parameters()))
        for seed, (inputs, targets) in enumerate(batches_of([4, 4])):
            torch.manual_seed(seed)
            output, loss = step(inputs, targets)
            torch.manual_seed(seed)
            parts.zero_grad()
            own_output = parts.forward(inputs)
            own_loss = parts.loss(own_output, targets)
            parts.backward(own_loss)
            parts.update()
            assert torch.equal(output, own_output)
            assert torch.equal(loss, own_loss)
            assert same_weights(whole, in_parts)

    def test_each_part_changes_only_gradients_or_weights(self) -> None:
        model = linear_model()
        before = copy.deepcopy(model)
        step, (inputs, targets) = Step(model, nll, sgd(model.parameters())), batches_of([4])[0]
        loss = step.loss(step.forward(inputs), targets)
        assert all(parameter.grad is None for parameter in model.parameters())
        step.backward(loss)
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert same_weights(model, before)
        step.update()
        assert not same_weights(model, before)
        step.zero_grad()
        assert not any(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())

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
        model, (inputs, _) = tiny_model(), batches_of([4])[0]
        output = Inference(model)(inputs)
        assert output.is_inference()
        assert torch.equal(output, model.eval()(inputs))

    def test_forward_runs_under_autocast(self) -> None:
        inference = Inference(linear_model(), autocaster(CPU, "bfloat16"))
        assert inference(batches_of([2])[0][0]).dtype == torch.bfloat16


# ---- Windows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayed:
    """One batch trained on with plain torch code: what each of its samples was worth before the update."""

    losses: list[float]
    hits: list[bool]


def replay(model: nn.Module, batches: Sequence[Batch]) -> list[Replayed]:
    """Train a copy of the model with SGD, lr 0.5; keep every sample's loss and whether it was right."""
    model = copy.deepcopy(model)
    seen = []
    for inputs, targets in batches:
        model.zero_grad()
        output = model(inputs)
        losses = [-output[sample, target] for sample, target in enumerate(targets.tolist())]
        hits = [int(row.argmax()) == target for row, target in zip(output, targets.tolist(), strict=True)]
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
        step, len(losses), pytest.approx(sum(losses) / len(losses), rel=1e-4), pytest.approx(100 * sum(hits) / len(hits))
    )


@given(
    sizes=st.lists(st.integers(1, 6), max_size=12),
    window=st.integers(1, 5),
    first_step=st.integers(0, 1000),
    seed=st.integers(0, 9),
)
@ANY_SPEED
def test_windows_are_means_over_their_samples(sizes: list[int], window: int, first_step: int, seed: int) -> None:
    torch.manual_seed(seed)
    model, batches = linear_model(), batches_of(sizes, seed)
    seen = replay(model, batches)
    windows = list(
        fit(Step(model, nll, sgd(model.parameters())), batches, metric=number_correct, window=window, first_step=first_step)
    )
    ends = [*range(window, len(sizes), window), len(sizes)] if sizes else []
    starts = [0, *ends]
    assert windows == [expected_window(seen[start:end], first_step + end) for start, end in zip(starts, ends, strict=False)]


def test_a_loss_is_weighed_by_its_batch() -> None:
    (window,) = fit_on_constant_losses([(1, 4.0), (3, 8.0)])
    assert window == Window(step=2, samples=4, loss=7.0, accuracy=None)  # (1 x 4 + 3 x 8) / 4, not (4 + 8) / 2


def test_a_last_short_window_counts() -> None:
    windows = fit_on_constant_losses([(2, 1.0), (2, 2.0), (2, 3.0), (1, 5.0), (1, 7.0)], window=3)
    assert windows == [Window(3, 6, 2.0, None), Window(5, 2, 6.0, None)]


def test_no_window_is_empty() -> None:
    assert [window.step for window in fit_on_constant_losses([(2, 1.0)] * 4, window=2)] == [2, 4]
    assert fit_on_constant_losses([]) == []


def fit_on_constant_losses(batches: Sequence[tuple[int, float]], window: int = 10) -> list[Window]:
    """Fit on batches of the given sizes whose mean loss is given too."""
    model = nn.Linear(1, 1, bias=False)
    step = Step(model, lambda output, targets: targets.mean() + 0 * output.sum(), sgd(model.parameters()))
    return list(fit(step, [(torch.ones(size, 1), torch.full((size,), loss)) for size, loss in batches], window=window))


def test_fit_trains_when_its_windows_are_read() -> None:
    model, drawn = linear_model(), []

    def batches() -> Iterator[Batch]:
        for batch in batches_of([2] * 6):
            drawn.append(batch)
            yield batch

    next(fit(Step(model, nll, sgd(model.parameters())), batches(), window=2))
    assert len(drawn) == 2


# ---- Evaluation ------------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8), step=st.integers(0, 1000), seed=st.integers(0, 9))
@ANY_SPEED
def test_evaluation_is_the_mean_over_all_samples(sizes: list[int], step: int, seed: int) -> None:
    torch.manual_seed(seed)
    model, batches = linear_model(), batches_of(sizes, seed)
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    output = model(inputs)
    expected = Window(
        step,
        sum(sizes),
        pytest.approx(nll(output, targets).item(), rel=1e-4),
        pytest.approx(100 * (output.argmax(dim=1) == targets).double().mean().item()),
    )
    assert evaluate(Inference(model), batches, loss=nll, metric=number_correct, step=step) == expected


def test_evaluation_drops_nothing_out_and_changes_no_weight() -> None:
    model, batches = tiny_model(), batches_of([4, 3])
    before = copy.deepcopy(model)
    first, again = (evaluate(Inference(model.train()), batches, loss=nll, metric=number_correct) for _ in range(2))
    assert first == again
    assert same_weights(model, before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_evaluation_without_a_metric_has_no_accuracy() -> None:
    assert evaluate(Inference(linear_model()), batches_of([2]), loss=nll).accuracy is None


def test_evaluation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^evaluate needs at least one batch$"):
        evaluate(Inference(linear_model()), [], loss=nll)


def test_bfloat16_rounds_the_outputs_but_not_the_loss() -> None:
    model, batches = linear_model(), batches_of([1000])
    autocast = autocaster(CPU, "bfloat16")
    output = Inference(model, autocast)(batches[0][0])
    expected = nll(output.double(), batches[0][1]).item()
    assert evaluate(Inference(model, autocast), batches, loss=nll).loss == pytest.approx(expected, rel=1e-5)


# ---- Epochs ----------------------------------------------------------------------------------------------------------


class Recording(torch.optim.SGD):
    """Keeps the learning rate of every update."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.5)
        self.rates: list[float] = []

    def step(self, closure: Any = None) -> None:
        self.rates.append(self.param_groups[0]["lr"])
        super().step(closure)


BATCH = 8
BATCHES = 3  # of 20 training samples at batch 8: 8, 8 and 4


def trained(workload: Workload, model: nn.Module | None = None, *, epochs: int, seed: int = 1, **options: Any) -> list[Epoch]:
    options = {"batch_size": BATCH, "window": 2, **options}
    model = workload.make_model() if model is None else model
    optimizer = workload.make_optimizer(model.parameters())
    return list(train(workload, model, optimizer, device=CPU, epochs=epochs, seed=seed, **options))


def test_learning_rate_falls_by_three_tenths_after_each_epoch() -> None:
    made: list[Recording] = []

    def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
        made.append(Recording(parameters))
        return made[0]

    trained(tiny_workload(load=whole_tiny_set, make_optimizer=make_optimizer), epochs=3)
    expected = [0.5] * BATCHES + [0.5 * 0.7] * BATCHES + [0.5 * 0.7 * 0.7] * BATCHES
    assert made[0].rates == pytest.approx(expected)


def test_epochs_count_from_one_and_steps_go_on() -> None:
    epochs = trained(tiny_workload(load=whole_tiny_set), epochs=3)
    assert [epoch.number for epoch in epochs] == [1, 2, 3]
    assert [[window.step for window in epoch.train] for epoch in epochs] == [[2, 3], [5, 6], [8, 9]]
    tests = [epoch.test for epoch in epochs if epoch.test]
    assert [test.step for test in tests] == [3, 6, 9]
    assert [sum(window.samples for window in epoch.train) for epoch in epochs] == [TRAIN_SAMPLES] * 3
    assert [test.samples for test in tests] == [TEST_SAMPLES] * 3


def test_each_epoch_trains_in_train_mode_and_is_tested_in_eval_mode() -> None:
    model, modes = tiny_model().eval(), []
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    trained(tiny_workload(load=whole_tiny_set), model, epochs=2, test_batch_size=5)
    assert modes == ([True] * BATCHES + [False] * 3) * 2


def test_each_epoch_shows_every_sample_once_in_another_order() -> None:
    model, seen = tiny_model(), []
    model.register_forward_pre_hook(lambda module, arguments: seen.extend(arguments[0][:, 0, 0, 0].tolist()))
    trained(tiny_workload(load=whole_tiny_set), model, epochs=2)
    whole, everything = whole_tiny_set(CPU), TRAIN_SAMPLES + TEST_SAMPLES
    train_pixels, test_pixels = (
        whole.batch(split, torch.arange(len(split)))[0][:, 0, 0, 0].tolist() for split in (whole.train, whole.test)
    )
    first, second = seen[:TRAIN_SAMPLES], seen[everything : everything + TRAIN_SAMPLES]
    assert sorted(first) == sorted(second) == sorted(train_pixels)
    assert first != second
    assert seen[TRAIN_SAMPLES:everything] == seen[everything + TRAIN_SAMPLES :] == test_pixels


def test_an_epoch_as_one_window_is_the_mean_over_its_samples() -> None:
    windows = (Window(2, 6, 1.0, 50.0), Window(3, 2, 5.0, 100.0))
    assert Epoch(1, windows, None).whole == Window(3, 8, 2.0, 62.5)
    assert Epoch(1, (Window(1, 4, 1.0, None),), None).whole.accuracy is None


def test_a_caller_can_stop_after_an_epoch() -> None:
    workload = tiny_workload(load=whole_tiny_set)
    model, calls = tiny_model(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    next(train(workload, model, workload.make_optimizer(model.parameters()), device=CPU, batch_size=BATCH, epochs=5, seed=1))
    assert len(calls) == BATCHES + 1


class Told(Watch):
    """Keeps what it is told; stops at a question of its choice."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.told: list[Any] = []
        self.questions, self._stop_at = 0, stop_at

    def begin(self, epoch: int, learning_rate: float) -> None:
        self.told.append((epoch, learning_rate))

    def batch(self, samples: int) -> None:
        self.told.append(samples)

    def window(self, window: Window) -> None:
        self.told.append(window)

    def stop(self) -> bool:
        self.questions += 1
        return self._stop_at is not None and self.questions >= self._stop_at


def test_callbacks_get_epochs_batches_and_windows() -> None:
    told = Told()
    epochs = trained(tiny_workload(load=whole_tiny_set), epochs=2, watch=told)
    (one, two), (three, four) = (epoch.train for epoch in epochs)
    assert told.told == [(1, 0.5), 8, one, 8, 4, two, (2, pytest.approx(0.35)), 8, three, 8, 4, four]


@pytest.mark.parametrize(
    ("stop_at", "steps", "tested"),
    [
        (1, 1, [False]),
        (BATCHES, BATCHES, [False]),
        (BATCHES + 1, BATCHES, [False]),  # after training, before the test
        (BATCHES + 2, BATCHES, [False]),  # in the test
        (BATCHES + 4, BATCHES + 1, [True, False]),  # two questions more: in the test, after it
    ],
)
def test_a_callback_can_stop_after_any_batch(stop_at: int, steps: int, tested: list[bool]) -> None:
    workload, told = tiny_workload(load=whole_tiny_set), Told(stop_at)
    epochs = trained(workload, epochs=5, watch=told, test_batch_size=TEST_SAMPLES)
    assert len([call for call in told.told if isinstance(call, int)]) == steps
    assert epochs[-1].train[-1].step == steps
    assert [epoch.test is not None for epoch in epochs] == tested


def test_learning_rate_and_gamma_can_be_chosen() -> None:
    told = Told()
    workload = tiny_workload(load=whole_tiny_set, make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=2.0))
    trained(workload, epochs=3, watch=told, gamma=0.5)
    assert [call for call in told.told if isinstance(call, tuple)] == [(1, 2.0), (2, 1.0), (3, 0.5)]


def test_the_number_of_batches_is_limited_in_training_and_in_testing() -> None:
    (epoch,) = trained(tiny_workload(load=whole_tiny_set), epochs=1, batches=2, test_batch_size=5)
    assert sum(window.samples for window in epoch.train) == 2 * BATCH
    assert epoch.test is not None
    assert epoch.test.samples == 10


def test_the_test_uses_the_weights_at_the_end_of_the_epoch() -> None:
    workload, model = tiny_workload(load=whole_tiny_set), tiny_model()
    (epoch,) = trained(workload, model, epochs=1)
    whole = whole_tiny_set(CPU)
    inputs, targets = whole.batch(whole.test, torch.arange(TEST_SAMPLES))
    assert epoch.test.loss == pytest.approx(nll(model.eval()(inputs), targets).item(), rel=1e-5)


def test_the_same_seed_gives_the_same_losses_and_weights() -> None:
    workload = next(workload for workload in builtin_workloads("digits", None) if workload.name == "lenet5")
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        model = workload.make_model()
        results.append((trained(workload, model, epochs=1, batch_size=64), model))
    (first, one), (second, other) = results
    assert first == second
    assert same_weights(one, other)


def test_the_seed_decides_the_order_of_samples() -> None:
    model = linear_model()  # without dropout, which other random numbers decide
    first, again, other = (
        trained(tiny_workload(load=whole_tiny_set), copy.deepcopy(model), epochs=1, seed=seed)[0].train for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


# ---- What training reaches: on one thread, so that it reaches the same every time ------------------------------------


def accuracy(dataset: str, epochs: int) -> float:
    workload = next(workload for workload in builtin_workloads(dataset, REAL_MNIST) if workload.name == "convnet")
    torch.manual_seed(1)
    *_, last = trained(workload, epochs=epochs, batch_size=64)
    assert last.test.accuracy is not None
    return last.test.accuracy


def test_two_epochs_of_digits_reach_85_percent() -> None:
    assert accuracy("digits", epochs=2) >= 85.0


@pytest.mark.thorough
def test_ten_epochs_of_digits_reach_95_percent() -> None:
    assert accuracy("digits", epochs=10) >= 95.0


@pytest.mark.thorough
@pytest.mark.skipif(not REAL_MNIST, reason="MNISTBENCH_DATA names no folder with MNIST/raw; one epoch takes a minute")
def test_one_epoch_of_mnist_reaches_98_percent() -> None:
    assert accuracy("mnist", epochs=1) >= 98.0
