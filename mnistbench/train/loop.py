"""Train a model on its whole dataset: epochs, learning-rate schedule, test. Measures no time and prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from mnistbench.core.errors import UsageError
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


# ---- Training steps on a CUDA device as CUDA graphs: the host starts a whole step with one call -----------------------

#: Steps before a capture: libraries choose their algorithms in the first ones. The number is PyTorch's own example's.
WARM_UP_STEPS = 3

#: Runs work for the warm-up and returns what repeats it.
Capture = Callable[[Callable[[], None], Callable[[], None]], Callable[[], None]]


class CapturedSteps:
    """Training steps by the indices of their samples: gather, normalise, forward, loss, backward, update and sums.

    Each batch size is captured when it first occurs: the ordinary one, and that of a short last batch. The warm-up before a
    capture leaves weights, optimizer and random numbers as they were.
    """

    def __init__(
        self, whole: Dataset, step: Step, metric: Callable[[Tensor, Tensor], Tensor] | None, capture: Capture | None = None
    ) -> None:
        """Prepare the steps; nothing is captured yet.

        Args:
            whole: dataset on the device.
            step: its optimizer is made capturable: its learning rate becomes a tensor, which a schedule may change in place.
            metric: number of correct samples of a batch.
            capture: for tests; by default ``capture_cuda``.
        """
        self._whole, self._step, self._metric = whole, step, metric
        self._capture = capture or capture_cuda
        device = whole.train.images.device
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._samples = 0  # of the current window
        self._captured: dict[int, tuple[Tensor, Callable[[], None]]] = {}  # batch size -> indices, and the step on them
        for group in step.optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
            if "capturable" in group:
                group["capturable"] = True

    def train(self, indices: Tensor) -> None:
        """Start a step on the samples with these indices, int64 [B] on the device.

        Raises:
            UsageError: the step cannot be captured.
        """
        size = len(indices)
        if size not in self._captured:
            fixed = indices.clone()
            try:
                self._captured[size] = fixed, self._capture(lambda: self._work(fixed), self._saved())
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise UsageError(f"the step cannot be captured as a CUDA graph ({reason}): use --step reference") from error
        fixed, start = self._captured[size]
        fixed.copy_(indices)
        start()
        self._samples += size

    def window(self, step: int) -> Window:
        """Wait for the device; return loss and accuracy since the last window, and begin a new one."""
        samples, self._samples = self._samples, 0
        loss, correct = float(self._loss) / samples, int(self._correct)
        self._loss.zero_()
        self._correct.zero_()
        return Window(step, samples, loss, 100.0 * correct / samples if self._metric else None)

    def _work(self, indices: Tensor) -> None:
        inputs, targets = self._whole.batch(self._whole.train, indices)
        output, loss = self._step(inputs, targets)
        self._loss.add_(loss.detach().float() * len(indices))
        if self._metric:
            self._correct.add_(self._metric(output.detach(), targets))

    def _saved(self) -> Callable[[], None]:
        """Keep all that a step changes; return a function that restores it in place."""
        device = self._loss.device
        before = [(tensor, tensor.clone()) for tensor in self._tensors()]
        known = {id(tensor) for tensor, _ in before}
        random = torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)

        def restore() -> None:
            with torch.no_grad():
                for tensor in self._tensors():
                    if id(tensor) not in known:
                        tensor.zero_()  # the optimizer made it in its first step
                for tensor, value in before:
                    tensor.copy_(value)
            if device.type == "cpu":
                torch.set_rng_state(random)
            else:
                torch.cuda.set_rng_state(random, device)

        return restore

    def _tensors(self) -> list[Tensor]:
        state: dict[Any, dict[str, Any]] = getattr(self._step.optimizer, "state", {})
        of_optimizer = [value for values in state.values() for value in values.values() if isinstance(value, Tensor)]
        return [*self._step.model.state_dict(keep_vars=True).values(), *of_optimizer, self._loss, self._correct]


def capture_cuda(work: Callable[[], None], restore: Callable[[], None]) -> Callable[[], None]:
    """Run work a few times, restore what it changed, capture it as a CUDA graph and return the graph's replay."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    restore()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
