"""Train a model on its whole dataset: epochs, learning-rate schedule, test. Measures no time and prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn

from mnistbench.train.captured import CapturedSteps
from mnistbench.workloads.data import Dataset
from mnistbench.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.workloads.step import windows as windows_of
from mnistbench.workloads.workload import Optimizer, Workload

#: Learning rate after each epoch, as a share of the epoch before: pytorch/examples ``mnist/main.py --gamma``.
GAMMA = 0.7


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch of :func:`train`."""

    number: int  # from 1
    train: tuple[Window, ...]
    test: Window | None  # None: stopped before the end of the test

    @property
    def whole(self) -> Window:
        """Return the training windows as one, with means over all samples."""
        samples = sum(window.samples for window in self.train)
        correct = [window.accuracy * window.samples for window in self.train if window.accuracy is not None]
        return Window(
            step=self.train[-1].step,
            samples=samples,
            loss=sum(window.loss * window.samples for window in self.train) / samples,
            accuracy=sum(correct) / samples if correct else None,
        )


class Watch:
    """Callbacks of :func:`train`. The defaults do nothing and never stop training."""

    def begin(self, epoch: int, learning_rate: float) -> None:
        """Handle the start of an epoch."""

    def batch(self, samples: int) -> None:
        """Handle the end of a training batch on the host; an accelerator may still be computing."""

    def window(self, window: Window) -> None:
        """Handle the end of a window, which the device has finished."""

    def test_batch(self, output: Tensor, targets: Tensor) -> None:
        """Handle the output of the model for a test batch, in file order. Shapes: [B, classes], [B]."""

    def stop(self) -> bool:
        """Return whether to stop. Called after each batch, in training and in testing."""
        return False


def train(
    workload: Workload,
    model: nn.Module,
    optimizer: Optimizer,
    *,
    device: torch.device,
    batch_size: int,
    epochs: int,
    seed: int,
    test_batch_size: int = 1000,
    window: int = 10,
    gamma: float = GAMMA,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    batches: int | None = None,
    captured: bool = False,
    watch: Watch | None = None,
) -> Iterator[Epoch]:
    """Train a model on its workload's whole set, test it after each epoch, and yield the epoch.

    Args:
        workload: has a whole set.
        model: on the device.
        optimizer: of the model's parameters, with the learning rate of the first epoch.
        device: holds the set.
        batch_size: samples per training step.
        epochs: number of epochs.
        seed: determines the order of the samples.
        test_batch_size: samples per test batch.
        window: batches per window.
        gamma: factor of the learning rate after each epoch.
        autocast: context of forward pass and loss.
        batches: maximum number of training batches and of test batches per epoch.
        captured: run the training steps as CUDA graphs.
        watch: callbacks.

    Raises:
        UsageError: a step cannot be captured.
    """
    assert workload.load is not None, "a workload without a whole set has no epochs"
    whole, watch = workload.load(device), watch or Watch()
    step = Step(model, workload.loss, optimizer, autocast)
    fit_epoch = _fitter(whole, step, workload, window, captured=captured)
    generator = torch.Generator().manual_seed(seed)
    seen = 0
    for number in range(1, epochs + 1):
        watch.begin(number, float(optimizer.param_groups[0]["lr"]))
        model.train()
        order = _watched(islice(whole.order(whole.train, batch_size, generator), batches), watch, watch.batch)
        windows = []
        for each in fit_epoch(order, first_step=seen):
            watch.window(each)
            windows.append(each)
        seen = windows[-1].step
        test = None
        if not watch.stop():
            test_order = _watched(islice(whole.order(whole.test, test_batch_size), batches), watch)
            test_batches = (whole.batch(whole.test, indices) for indices in test_order)
            inference = Inference(model, autocast)  # switches the model to evaluation mode
            test = evaluate(
                inference, test_batches, loss=workload.loss, metric=workload.metric, step=seen, each=watch.test_batch
            )
        for group in optimizer.param_groups:
            group["lr"] *= gamma
        stopped = watch.stop()
        yield Epoch(number, tuple(windows), None if stopped else test)  # an incomplete test does not count
        if stopped:
            return


def _fitter(whole: Dataset, step: Step, workload: Workload, window: int, *, captured: bool) -> Callable[..., Iterator[Window]]:
    """Return a function that trains on the indices of an epoch's batches and yields its windows."""
    if captured:
        steps = CapturedSteps(whole, step, workload.metric)
        return partial(windows_of, train=steps.train, read=steps.window, window=window)

    def fit_epoch(order: Iterable[Tensor], *, first_step: int) -> Iterator[Window]:
        batches = (whole.batch(whole.train, indices) for indices in order)
        return fit(step, batches, metric=workload.metric, window=window, first_step=first_step)

    return fit_epoch


def _watched(order: Iterable[Tensor], watch: Watch, done: Callable[[int], None] = lambda _: None) -> Iterator[Tensor]:
    """Yield the indices of batches until the watch stops; call ``done`` with the samples of each before the next one."""
    for indices in order:
        yield indices
        done(len(indices))
        if watch.stop():
            return
