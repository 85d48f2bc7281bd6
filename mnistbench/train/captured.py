"""Training steps on a CUDA device as CUDA graphs: the host starts a whole step with one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mnistbench.core.errors import UsageError, first_line
from mnistbench.core.params import FAST
from mnistbench.workloads.data import Dataset
from mnistbench.workloads.step import Step, Window

#: Steps before a capture: libraries choose their algorithms in the first ones. The number is
#: PyTorch's own example's.
WARM_UP_STEPS = 3

#: Runs work for the warm-up and returns what repeats it.
Capture = Callable[[Callable[[], None], Callable[[], None]], Callable[[], None]]


def captures(step: str, device: torch.device) -> bool:
    """Return whether steps of this kind are captured: fast ones on a CUDA device."""
    return step == FAST and device.type == "cuda"


class CapturedSteps:
    """Training steps by the indices of their samples.

    Gather, normalise, forward, loss, backward, update and sums.

    Each batch size is captured when it first occurs: the ordinary one, and that of a short last
    batch. The warm-up before a capture leaves weights, optimizer and random numbers as they were.
    """

    def __init__(
        self,
        whole: Dataset,
        step: Step,
        metric: Callable[[Tensor, Tensor], Tensor] | None,
        capture: Capture | None = None,
    ) -> None:
        """Prepare the steps; nothing is captured yet.

        Args:
            whole: dataset on the device.
            step: its optimizer is made capturable: its learning rate becomes a tensor, which a
                schedule may change in place.
            metric: number of correct samples of a batch.
            capture: for tests; by default ``capture_cuda``.
        """
        self._whole = whole
        self._step = step
        self._metric = metric
        self._capture = capture or capture_cuda
        device = whole.train.images.device
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._samples = 0  # of the current window
        # Batch size -> indices, and the step on them.
        self._captured: dict[int, tuple[Tensor, Callable[[], None]]] = {}
        for group in step.optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
            if "capturable" in group:
                group["capturable"] = True

    def train(self, indices: Tensor) -> None:
        """Start a step on the samples with these indices, int64 [B] on the device."""
        size = len(indices)
        if size not in self._captured:
            fixed = indices.clone()
            try:
                self._captured[size] = (
                    fixed,
                    self._capture(lambda: self._work(fixed), self._saved()),
                )
            except RuntimeError as error:
                problem = f"the step cannot be captured as a CUDA graph ({first_line(error)})"
                raise UsageError(f"{problem}: use --step reference") from error
        fixed, start = self._captured[size]
        fixed.copy_(indices)
        start()
        self._samples += size

    def window(self, step: int) -> Window:
        """Wait for the device.

        Return loss and accuracy since the last window, and begin a new one.
        """
        samples = self._samples
        self._samples = 0
        loss = float(self._loss) / samples
        correct = int(self._correct)
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
        of_optimizer = [
            value
            for values in state.values()
            for value in values.values()
            if isinstance(value, Tensor)
        ]
        return [
            *self._step.model.state_dict(keep_vars=True).values(),
            *of_optimizer,
            self._loss,
            self._correct,
        ]


def capture_cuda(work: Callable[[], None], restore: Callable[[], None]) -> Callable[[], None]:
    """Capture work as a CUDA graph and return the graph's replay.

    It runs a few times first, and what it changed is restored.
    """
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
