"""Captured steps do what plain steps do. A capture is faked: the CPU has no graphs, so the work is called again instead."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_builders import CPU, tiny_model, tiny_set, tiny_workload, whole_tiny_set

from mnistbench.core.errors import UsageError
from mnistbench.measuring.case import fork_random, thread_count
from mnistbench.train import loop
from mnistbench.train.loop import WARM_UP_STEPS, CapturedSteps, Epoch, train
from mnistbench.workloads.step import Step

Work = Callable[[], None]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with thread_count(1), fork_random(CPU):
        yield


def repeat_after_warm_up(work: Work, restore: Work) -> Work:
    for _ in range(WARM_UP_STEPS):
        work()
    restore()
    return work


def trained(*, captured: bool, make_optimizer: Any = None) -> list[Epoch]:
    torch.manual_seed(1)  # weights and dropout
    changes = {"make_optimizer": make_optimizer} if make_optimizer else {}
    workload, model = tiny_workload(load=whole_tiny_set, **changes), tiny_model()
    optimizer = workload.make_optimizer(model.parameters())
    options = {"device": CPU, "batch_size": 6, "epochs": 3, "seed": 1, "window": 2, "captured": captured}
    return list(train(workload, model, optimizer, **options))


@pytest.mark.parametrize("make_optimizer", [None, torch.optim.Adadelta])
def test_training_is_the_same_with_a_short_last_batch(
    monkeypatch: pytest.MonkeyPatch, make_optimizer: type[torch.optim.Optimizer] | None
) -> None:
    captures: list[Work] = []

    def fake(whole: Any, step: Step, metric: Any) -> CapturedSteps:
        def capture(work: Work, restore: Work) -> Work:
            captures.append(work)
            return repeat_after_warm_up(work, restore)

        return CapturedSteps(whole, step, metric, capture)

    monkeypatch.setattr(loop, "CapturedSteps", fake)
    adadelta = importlib.import_module("torch.optim.adadelta")
    monkeypatch.setattr(adadelta, "_get_capturable_supported_devices", lambda **_: ["cpu"])
    plain, captured = (trained(captured=captured, make_optimizer=make_optimizer) for captured in (False, True))
    assert len(captures) == 2  # 20 samples: batches of 6, and one of 2
    assert [epoch.number for epoch in captured] == [1, 2, 3]
    for one, other in zip(plain, captured, strict=True):
        assert [(each.step, each.samples, each.accuracy) for each in (*one.train, one.test)] == [
            (each.step, each.samples, each.accuracy) for each in (*other.train, other.test)
        ]
        losses = [[each.loss for each in (*epoch.train, epoch.test)] for epoch in (one, other)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-6)  # a learning rate in a tensor is rounded to single precision


def test_a_step_that_cannot_be_captured_is_one_line() -> None:
    def capture(work: Work, restore: Work) -> Work:
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors might be ...")

    model, workload = tiny_model(), tiny_workload()
    step = Step(model, workload.loss, workload.make_optimizer(model.parameters()))
    steps = CapturedSteps(tiny_set(), step, workload.metric, capture)
    with pytest.raises(UsageError) as refusal:
        steps.train(torch.tensor([0, 1]))
    assert str(refusal.value) == (
        "the step cannot be captured as a CUDA graph (operation not permitted when stream is capturing): use --step reference"
    )
