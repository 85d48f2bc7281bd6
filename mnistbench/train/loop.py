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
from mnistbench.workloads.fast import Optimizer
from mnistbench.workloads.ranks import Alone
from mnistbench.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.workloads.step import windows as windows_of
from mnistbench.workloads.workload import Workload

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


@dataclass
class Position:
    """How far :func:`train` has come, beside the states of model and optimizer."""

    generator: torch.Generator  # of the order of the samples
    epochs: int = 0
    steps: int = 0


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
    ranks: Alone | None = None,
    position: Position | None = None,
) -> Iterator[Epoch]:
    """Train a model on its workload's whole set, test it after each epoch, and yield the epoch.

    Of several ranks, each computes a part of every batch, and the epochs are those of all ranks.

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
        ranks: of which this process is one.
        position: where to continue, kept up to date after each epoch; None: at the beginning.

    Raises:
        UsageError: a step cannot be captured.
    """
    assert workload.load is not None, "a workload without a whole set has no epochs"
    whole, watch, ranks = workload.load(device), watch or Watch(), ranks or Alone()
    position = position or Position(torch.Generator().manual_seed(seed))
    step = Step(ranks.model(model), workload.loss, optimizer, autocast)
    fit_epoch = _fitter(whole, step, workload, window, ranks, captured=captured)

    def stop() -> bool:
        return ranks.agree_to_stop(watch.stop)

    for number in range(position.epochs + 1, epochs + 1):
        watch.begin(number, float(optimizer.param_groups[0]["lr"]))
        model.train()
        order = _watched(islice(whole.order(whole.train, batch_size, position.generator), batches), stop, watch.batch)
        windows = []
        for each in fit_epoch(order, first_step=position.steps):
            watch.window(each)
            windows.append(each)
        test = None
        if not stop():
            test_order = _watched(islice(whole.order(whole.test, test_batch_size), batches), stop)
            test_batches = (whole.batch(whole.test, ranks.part(indices)) for indices in test_order)
            inference = Inference(model, autocast)  # switches the model to evaluation mode
            test = evaluate(
                inference, test_batches, loss=workload.loss, metric=workload.metric, step=windows[-1].step,
                each=watch.test_batch, ranks=ranks,
            )  # fmt: skip
        for group in optimizer.param_groups:
            group["lr"] *= gamma
        stopped = stop()
        position.epochs, position.steps = number, windows[-1].step
        yield Epoch(number, tuple(windows), None if stopped else test)  # an incomplete test does not count
        if stopped:
            return


def _fitter(
    whole: Dataset, step: Step, workload: Workload, window: int, ranks: Alone, *, captured: bool
) -> Callable[..., Iterator[Window]]:
    """Return a function that trains on the indices of an epoch's batches and yields its windows."""
    if captured:
        steps = CapturedSteps(whole, step, workload.metric)
        return partial(windows_of, train=steps.train, read=steps.window, window=window)

    def fit_epoch(order: Iterable[Tensor], *, first_step: int) -> Iterator[Window]:
        batches = (whole.batch(whole.train, ranks.part(indices)) for indices in order)
        return fit(step, batches, metric=workload.metric, window=window, first_step=first_step, ranks=ranks)

    return fit_epoch


def _watched(
    order: Iterable[Tensor], stop: Callable[[], bool], done: Callable[[int], None] = lambda _: None
) -> Iterator[Tensor]:
    """Yield the indices of batches until ``stop``; call ``done`` with the samples of each before the next one."""
    for indices in order:
        yield indices
        done(len(indices))
        if stop():
            return
