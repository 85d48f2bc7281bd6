"""A training step (forward, loss, backward, update), inference, and loops over them.

Nothing here times or prints.

The parts are methods, so that the profiled pass can mark them from outside and the timed pass runs
the same code without marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mnistbench.suite.workloads.adadelta import Optimizer
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.ranks import OneProcess, Ranks


class Step:
    """One training step on a batch. Puts the model in train mode."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: Optimizer,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.model = model.train()
        self.optimizer = optimizer
        self._loss = loss
        self._autocast = autocast

    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Update the weights once; return output and loss from before the update."""
        self.zero_grad()
        output = self.forward(inputs)
        loss = self.loss(output, targets)
        self.backward(loss)
        self.update()
        return output, loss

    def zero_grad(self) -> None:
        """Reset the gradients."""
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
        """Run the optimizer."""
        self.optimizer.step()


class Inference:
    """The model without autograd. Puts it in eval mode."""

    def __init__(
        self, model: nn.Module, autocast: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
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

    step: int  # number of batches up to the last one of the window
    samples: int
    loss: float  # mean over the samples of the window
    # Percent of the samples of the window; None for a workload without a metric.
    accuracy: float | None


class _Totals:
    """Sums on the device, so that adding to them does not wait for it."""

    def __init__(self, metric: Callable[[Tensor, Tensor], Tensor] | None, ranks: Ranks) -> None:
        self._metric = metric
        self._ranks = ranks
        self.samples = 0
        self._loss: Tensor | float = 0.0
        self._correct: Tensor | int = 0

    def add(self, output: Tensor, loss: Tensor, targets: Tensor) -> None:
        samples = self._ranks.counted(len(targets))
        self.samples += samples
        # The loss is a mean: weigh it by its batch.
        self._loss = self._loss + loss.detach().float() * samples
        if self._metric:
            if samples < len(targets):
                output = output[:samples]
                targets = targets[:samples]
            self._correct = self._correct + self._metric(output.detach(), targets)

    def window(self, step: int) -> Window:
        """Return the sums over all ranks as means, and begin new ones."""
        if self._ranks.world_size > 1:
            sums = torch.tensor(
                [float(self._loss), int(self._correct), self.samples], dtype=torch.float64
            )
            loss, correct, samples = self._ranks.sum(sums).tolist()
        else:
            loss = float(self._loss)
            correct = int(self._correct)
            samples = self.samples
        self.samples = 0
        self._loss = 0.0
        self._correct = 0
        if not samples:
            raise ValueError("evaluate needs at least one batch")
        return Window(
            step, int(samples), loss / samples, 100.0 * correct / samples if self._metric else None
        )


def fit(
    step: Step,
    batches: Iterable[Batch],
    *,
    metric: Callable[[Tensor, Tensor], Tensor] | None = None,
    window: int = 10,
    first_step: int = 0,
    ranks: Ranks | None = None,
) -> Iterator[Window]:
    """Train on the batches.

    Yield a :class:`Window` after every ``window`` of them and after a last short one.

    Args:
        step: the training step.
        batches: inputs and targets on the model's device.
        metric: number of correct samples of a batch.
        window: batches per window.
        first_step: global step before the first batch.
        ranks: of which this process is one; the batches are its parts.
    """
    totals = _Totals(metric, ranks or OneProcess())
    n_batches = 0
    for inputs, targets in batches:
        output, loss = step(inputs, targets)
        totals.add(output, loss, targets)
        n_batches += 1
        if n_batches % window == 0:
            yield totals.window(first_step + n_batches)
    if n_batches % window:
        yield totals.window(first_step + n_batches)


def evaluate(
    inference: Inference,
    batches: Iterable[Batch],
    *,
    loss: Callable[[Tensor, Tensor], Tensor],
    metric: Callable[[Tensor, Tensor], Tensor] | None = None,
    step: int = 0,
    keep: Callable[[Tensor, Tensor], object] = lambda _output, _targets: None,
    ranks: Ranks | None = None,
) -> Window:
    """Return loss and accuracy over all the batches, in eval mode, at the given global step.

    ``keep`` gets the output and the targets of every batch. The batches of several ``ranks`` are
    the parts of this one.

    Raises:
        ValueError: there is no batch.
    """
    ranks = ranks or OneProcess()
    totals = _Totals(metric, ranks)
    with torch.inference_mode():
        for inputs, targets in batches:
            output = inference(inputs)
            # As in training; without autocast a bfloat16 loss has three digits.
            with inference.autocast():
                mean_loss = loss(output, targets)
            totals.add(output, mean_loss, targets)
            samples = ranks.counted(len(targets))
            keep(output[:samples], targets[:samples])
    return totals.window(step)
