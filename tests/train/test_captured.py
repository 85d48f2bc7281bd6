"""Captured steps do what plain steps do. A capture is faked: the CPU has no graphs, so the work is called again instead."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_builders import sgd, tiny_model, tiny_set, tiny_workload

from mnistbench.core.errors import UsageError
from mnistbench.train.captured import WARM_UP_STEPS, Capture, CapturedSteps
from mnistbench.workloads.step import Step, Window, fit, windows

Work = Callable[[], None]


def trained(make_optimizer: Any, capture: Capture | None) -> list[Window]:
    """Train two epochs, the second at another learning rate."""
    torch.manual_seed(1)  # weights and dropout
    workload, whole, model, order = tiny_workload(), tiny_set(), tiny_model(), torch.Generator().manual_seed(1)
    step, found = Step(model, workload.loss, make_optimizer(model.parameters())), []
    captured = CapturedSteps(whole, step, workload.metric, capture) if capture else None
    for _ in range(2):
        batches = whole.order(whole.train, 6, order)
        if captured:
            found.extend(windows(batches, captured.train, captured.window, window=2, first_step=0))
        else:
            found.extend(fit(step, [whole.batch(whole.train, each) for each in batches], metric=workload.metric, window=2))
        for group in step.optimizer.param_groups:
            group["lr"] *= 0.7
    return found


@pytest.mark.parametrize("make_optimizer", [sgd, torch.optim.Adadelta])
def test_training_is_the_same_with_a_short_last_batch(
    monkeypatch: pytest.MonkeyPatch, make_optimizer: Callable[..., torch.optim.Optimizer]
) -> None:
    captures: list[Work] = []

    def repeat_after_warm_up(work: Work, restore: Work) -> Work:
        captures.append(work)
        for _ in range(WARM_UP_STEPS):
            work()
        restore()
        return work

    adadelta = importlib.import_module("torch.optim.adadelta")
    monkeypatch.setattr(adadelta, "_get_capturable_supported_devices", lambda **_: ["cpu"])
    plain, captured = (trained(make_optimizer, capture) for capture in (None, repeat_after_warm_up))
    assert len(captures) == 2  # 20 samples: batches of 6, and one of 2
    assert [(each.step, each.samples, each.accuracy) for each in captured] == [
        (each.step, each.samples, each.accuracy) for each in plain
    ]
    # A learning rate in a tensor is rounded to single precision.
    assert [each.loss for each in captured] == pytest.approx([each.loss for each in plain], rel=1e-6)


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
