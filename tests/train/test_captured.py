"""Captured steps do what plain steps do.

A capture is faked: the CPU has no graphs, so the work is called again instead.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from builders import environment
from torch_builders import sgd, tiny_model, tiny_set, tiny_workload, whole_tiny_set

from mnistbench.core.errors import UsageError
from mnistbench.train import run as training
from mnistbench.train.captured import WARM_UP_STEPS, CapturedSteps, captures
from mnistbench.train.result import Result, Settings
from mnistbench.workloads.step import Step

Work = Callable[[], None]

SETTINGS = Settings(
    model="tiny",
    dataset="tiny",
    device="cpu",
    step="reference",
    batch_size=6,
    epochs=3,
    lr=0.5,
    log_interval=2,
    threads=1,
)


@pytest.mark.parametrize("make_optimizer", [sgd, torch.optim.Adadelta])
def test_training_is_the_same_with_a_short_last_batch(
    monkeypatch: pytest.MonkeyPatch, make_optimizer: Callable[..., torch.optim.Optimizer]
) -> None:
    captured: list[Work] = []

    def repeat_after_warm_up(work: Work, restore: Work) -> Work:
        captured.append(work)
        for _ in range(WARM_UP_STEPS):
            work()
        restore()
        return work

    def trained(*, is_captured: bool) -> Result:
        monkeypatch.setattr(training, "captures", lambda *_: is_captured)
        workload = tiny_workload(load=whole_tiny_set, dataset="tiny", make_optimizer=make_optimizer)
        return training.run(SETTINGS, workload=workload)

    def counts(result: Result) -> list[tuple[Any, ...]]:
        return [
            (each.step, each.train_samples, each.train_accuracy, each.test_accuracy)
            for each in result.epochs
        ]

    def losses(result: Result) -> list[float | None]:
        return [loss for each in result.epochs for loss in (each.train_loss, each.test_loss)]

    monkeypatch.setattr(training, "read", lambda threads: environment(threads=threads))
    monkeypatch.setattr(
        training, "CapturedSteps", functools.partial(CapturedSteps, capture=repeat_after_warm_up)
    )
    adadelta = importlib.import_module("torch.optim.adadelta")
    monkeypatch.setattr(adadelta, "_get_capturable_supported_devices", lambda **_: ["cpu"])
    plain, repeated = (trained(is_captured=is_captured) for is_captured in (False, True))
    assert len(captured) == 2  # 20 samples: batches of 6, and one of 2
    assert counts(repeated) == counts(plain)
    # A rate in a tensor is rounded to single precision.
    assert losses(repeated) == pytest.approx(losses(plain), rel=1e-6)


def test_fast_steps_on_a_cuda_device_are_captured() -> None:
    cases = [("fast", "cuda:1"), ("reference", "cuda"), ("fast", "cpu")]
    assert [captures(step, torch.device(device)) for step, device in cases] == [True, False, False]


def test_a_step_that_cannot_be_captured_is_one_line() -> None:
    def capture(work: Work, restore: Work) -> Work:
        raise RuntimeError(
            "operation not permitted when stream is capturing\nCUDA kernel errors might be ..."
        )

    model = tiny_model()
    workload = tiny_workload()
    step = Step(model, workload.loss, workload.make_optimizer(model.parameters()))
    steps = CapturedSteps(tiny_set(), step, workload.metric, capture)
    with pytest.raises(UsageError) as refusal:
        steps.train(torch.tensor([0, 1]))
    assert str(refusal.value) == (
        "the step cannot be captured as a CUDA graph (operation not permitted when stream is "
        "capturing): use --step reference"
    )
