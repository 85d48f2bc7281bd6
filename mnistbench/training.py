"""Forward, loss, backward and update as one step, and what is built on it. Nothing here times or prints.

The parts are methods, so that each can be called alone, and so that the profiled pass can mark them from outside
while the timed pass runs the very same code without marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from mnistbench.workload import Batch, Workload

#: Learning rate after each epoch, as a share of the epoch before: pytorch/examples ``mnist/main.py --gamma``.
GAMMA = 0.7


class Step:
    """One training step on a batch. Puts the model in train mode."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.model = model.train()
        self.optimizer = optimizer
        self._loss = loss
        self._autocast = autocast

    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Update the weights once; return output and loss as they were before the update."""
        self.zero_grad()
        output = self.forward(inputs)
        loss = self.loss(output, targets)
        self.backward(loss)
        self.update()
        return output, loss

    def zero_grad(self) -> None:
        """Drop the gradients of the step before."""
        self.optimizer.zero_grad()

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the model."""
        with self._autocast():
            output: Tensor = self.model(inputs)
        return output

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the samples, shape []."""
        with self._autocast():
            return self._loss(output, targets)

    def backward(self, loss: Tensor) -> None:
        """Accumulate gradients."""
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def update(self) -> None:
        """Let the optimizer change the weights."""
        self.optimizer.step()


class Inference:
    """The model without autograd. Puts it in eval mode."""

    def __init__(self, model: nn.Module, autocast: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.model = model.eval()
        self.autocast = autocast

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the output for a batch."""
        with torch.inference_mode():
            return self.forward(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the model."""
        with self.autocast():
            output: Tensor = self.model(inputs)
        return output


@dataclass(frozen=True)
class Window:
    """Loss and accuracy over consecutive batches."""

    step: int  # global step of the last batch: how many batches had been seen, this one included
    samples: int
    loss: float  # mean over the samples of the window
    accuracy: float | None  # percent of the samples of the window; None for a workload without a metric


class _Totals:
    """Sums that stay on the device until they are read, so that accumulating them does not wait for it."""

    def __init__(self, metric: Callable[[Tensor, Tensor], Tensor] | None) -> None:
        self._metric = metric
        self.samples = 0
        self._loss: Tensor | float = 0.0
        self._correct: Tensor | int = 0

    def add(self, output: Tensor, loss: Tensor, targets: Tensor) -> None:
        samples = len(targets)
        self.samples += samples
        self._loss = self._loss + loss.detach().float() * samples  # the loss is a mean: weigh it by its batch
        if self._metric:
            self._correct = self._correct + self._metric(output.detach(), targets)

    def window(self, step: int) -> Window:
        accuracy = 100.0 * int(self._correct) / self.samples if self._metric else None
        return Window(step, self.samples, float(self._loss) / self.samples, accuracy)


def fit(
    step: Step,
    batches: Iterable[Batch],
    *,
    metric: Callable[[Tensor, Tensor], Tensor] | None = None,
    window: int = 10,
    first_step: int = 0,
) -> Iterator[Window]:
    """Train on the batches; yield a :class:`Window` after every ``window`` of them and after a last short one.

    Args:
        step: what trains.
        batches: inputs and targets on the model's device.
        metric: number of correct samples of a batch.
        window: batches per window.
        first_step: global step before the first batch.
    """
    totals, global_step = _Totals(metric), first_step
    for inputs, targets in batches:
        output, loss = step(inputs, targets)
        totals.add(output, loss, targets)
        global_step += 1
        if (global_step - first_step) % window == 0:
            yield totals.window(global_step)
            totals = _Totals(metric)
    if totals.samples:
        yield totals.window(global_step)


def evaluate(
    inference: Inference,
    batches: Iterable[Batch],
    *,
    loss: Callable[[Tensor, Tensor], Tensor],
    metric: Callable[[Tensor, Tensor], Tensor] | None = None,
    step: int = 0,
) -> Window:
    """Return loss and accuracy over all the batches, in eval mode, at the given global step.

    Raises:
        ValueError: there is no batch.
    """
    totals = _Totals(metric)
    with torch.inference_mode():
        for inputs, targets in batches:
            output = inference(inputs)
            with inference.autocast():  # as in training: in bfloat16 the loss would keep three digits
                mean_loss = loss(output, targets)
            totals.add(output, mean_loss, targets)
    if not totals.samples:
        raise ValueError("evaluate needs at least one batch")
    return totals.window(step)


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
