"""Training of a model on its whole dataset: epochs, learning-rate schedule, test. Nothing here times or prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

from mnistbench.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.workloads.workload import Batch, Workload

#: Learning rate after each epoch, as a share of the epoch before: pytorch/examples ``mnist/main.py --gamma``.
GAMMA = 0.7


@dataclass(frozen=True)
class Epoch:
    """What one epoch of :func:`train` reached."""

    number: int  # from 1
    train: tuple[Window, ...]
    test: Window | None  # None: stopped before the test was over

    @property
    def whole(self) -> Window:
        """The training windows as one: means over all its samples."""
        samples = sum(window.samples for window in self.train)
        correct = [window.accuracy * window.samples for window in self.train if window.accuracy is not None]
        return Window(
            step=self.train[-1].step,
            samples=samples,
            loss=sum(window.loss * window.samples for window in self.train) / samples,
            accuracy=sum(correct) / samples if correct else None,
        )


class Watch:
    """Is told how :func:`train` goes, and may stop it. This one does neither."""

    def begin(self, epoch: int, learning_rate: float) -> None:
        """Hear that an epoch begins."""

    def batch(self, samples: int) -> None:
        """Hear of a batch that was trained on, as far as the host knows: an accelerator may still be at it."""

    def window(self, window: Window) -> None:
        """Hear that a window is over, and that the device has finished it."""

    def stop(self) -> bool:
        """Say whether to stop; asked after every batch, in training and in testing."""
        return False


def train(
    workload: Workload,
    model: nn.Module,
    *,
    device: torch.device,
    batch_size: int,
    epochs: int,
    seed: int,
    test_batch_size: int = 1000,
    window: int = 10,
    lr: float | None = None,
    gamma: float = GAMMA,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    batches: int | None = None,
    watch: Watch | None = None,
) -> Iterator[Epoch]:
    """Train a model on its workload's whole set, epoch by epoch, and test it after each.

    Yields after each epoch, so that the caller can report or stop. The device is waited for once a window.

    Args:
        workload: one with a whole set.
        model: on the device.
        device: where the set is put.
        batch_size: samples per training step.
        epochs: how many.
        seed: of the order of samples.
        test_batch_size: samples per batch of the test.
        window: batches per window.
        lr: learning rate of the first epoch; None: the optimizer's own.
        gamma: learning rate after each epoch, as a share of the epoch before.
        autocast: what wraps forward and loss.
        batches: train and test on no more than so many an epoch.
        watch: is told, and may stop.
    """
    assert workload.load is not None, "a workload without a whole set has no epochs"
    watch = watch or Watch()
    whole = workload.load(device)
    optimizer = workload.make_optimizer(model.parameters())
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] if lr is None else lr
    step = Step(model, workload.loss, optimizer, autocast)
    schedule = StepLR(optimizer, step_size=1, gamma=gamma)
    generator = torch.Generator().manual_seed(seed)
    seen = 0
    for number in range(1, epochs + 1):
        watch.begin(number, float(schedule.get_last_lr()[0]))
        model.train()
        train_batches = _watched(islice(whole.epoch(whole.train, batch_size, generator), batches), watch, watch.batch)
        windows = []
        for each in fit(step, train_batches, metric=workload.metric, window=window, first_step=seen):
            watch.window(each)
            windows.append(each)
        seen = windows[-1].step
        test = None
        if not watch.stop():
            test = evaluate(
                Inference(model, autocast),
                _watched(islice(whole.epoch(whole.test, test_batch_size), batches), watch),
                loss=workload.loss,
                metric=workload.metric,
                step=seen,
            )
        stopped = watch.stop()  # a test that was cut short is none
        schedule.step()
        yield Epoch(number, tuple(windows), None if stopped else test)
        if stopped:
            return


def _watched(batches: Iterable[Batch], watch: Watch, done: Callable[[int], None] = lambda _: None) -> Iterator[Batch]:
    """Yield batches until the watch stops; say of each how many samples it had when the next is asked for."""
    for batch in batches:
        yield batch
        done(len(batch[1]))
        if watch.stop():
            return
