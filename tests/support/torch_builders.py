"""A workload that needs no file and a fraction of a millisecond per step.

For whatever does not depend on the network.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders import params
from torch import Tensor, nn

from mnistbench.core.params import Params
from mnistbench.suite.workloads.data import Batch, Dataset, Split
from mnistbench.suite.workloads.workload import Workload, number_correct

CLASSES = 3
IMAGE = (1, 4, 4)
PIXELS = 16
CPU = torch.device("cpu")

#: Training samples of the whole set of ``tiny_set``, not a multiple of 8.
TRAIN_SAMPLES = 20
#: Test samples of the whole set of ``tiny_set``, not a multiple of 8.
TEST_SAMPLES = 12


def tiny_model() -> nn.Module:
    """Two layers with dropout between them: [B, 1, 4, 4] -> log-probabilities [B, 3]."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden=nn.Linear(PIXELS, 8),
            relu=nn.ReLU(),
            dropout=nn.Dropout(0.5),
            out=nn.Linear(8, CLASSES),
            log_softmax=nn.LogSoftmax(dim=1),
        )
    )


class Untraceable(nn.Module):
    """A model of the images of ``tiny_batch`` of which TensorBoard shows no graph."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(PIXELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_tracing():
            raise RuntimeError("cannot be traced\nfor reasons that fill a page")
        output: Tensor = self.out(x.flatten(1)).log_softmax(dim=1)
        return output


def tiny_batch(
    batch_size: int, device: torch.device, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Noise and labels that have nothing to do with it."""
    images = torch.randn(batch_size, *IMAGE, generator=generator)
    labels = torch.randint(CLASSES, (batch_size,), generator=generator)
    return images.to(device), labels.to(device)


def digit_batch(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
    """Noise of the size of the digits, and labels."""
    inputs = torch.randn(batch_size, 1, 28, 28, generator=generator, device=device)
    return inputs, torch.randint(10, (batch_size,), generator=generator, device=device)


def tiny_set() -> Dataset:
    """Every image is filled with a value of its own, so that a sample is known by any pixel."""

    def split(first: int, samples: int) -> Split:
        values = torch.arange(first, first + samples, dtype=torch.uint8)
        return Split(
            values.view(-1, 1, 1, 1).expand(-1, *IMAGE).contiguous(),
            torch.arange(samples) % CLASSES,
        )

    return Dataset("tiny", split(0, TRAIN_SAMPLES), split(100, TEST_SAMPLES), mean=0.25, std=0.5)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5)


def tiny_workload(**changes: Any) -> Workload:
    """A workload without a whole set; ``load=whole_tiny_set`` gives it one."""
    workload = Workload(
        name="tiny",
        make_model=tiny_model,
        make_batch=tiny_batch,
        loss=nn.functional.nll_loss,
        make_optimizer=sgd,
        metric=number_correct,
    )
    return dataclasses.replace(workload, **changes)


def whole_tiny_set(device: torch.device) -> Dataset:
    return tiny_set().to(device)


def tiny_params(**changes: Any) -> Params:
    """A training step of the tiny workload at batch 4."""
    return params(**{"workload": "tiny", "batch_size": 4, "dataset": "synthetic", **changes})


class LossSpy:
    """A loss that keeps the value of every call, and how the output came in."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.output_dtypes: list[torch.dtype] = []
        self.dtypes: list[torch.dtype] = []

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        loss = nn.functional.nll_loss(output, targets)
        self.values.append(loss.item())
        self.output_dtypes.append(output.dtype)
        self.dtypes.append(loss.dtype)
        return loss


class FakeCase:
    """Keeps what was done with it, and in which order."""

    def __init__(self, log: list[str], *, runner: object = object(), device: str = "cpu") -> None:
        self.log = log
        self.runner = runner
        self.params = tiny_params(device=device)

    def __call__(self) -> None:
        self.log.append("call")

    def reset(self) -> None:
        self.log.append("reset")


def fake_accelerator(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put in place of torch's an accelerator whose n-th pair of events lies n + 0.25 ms apart.

    Returns what happens on it.
    """
    happened: list[str] = []
    timed = iter(range(1_000))

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            happened.append("record")

        def synchronize(self) -> None:
            happened.append("wait for event")

        def elapsed_time(self, end: Event) -> float:
            return next(timed) + 0.25

    @contextmanager
    def on(index: int) -> Iterator[None]:
        happened.append(f"on {index}")
        yield
        happened.append(f"off {index}")

    def get_device_module(device: torch.device) -> Any:
        assert device.type in ("cuda", "mps")
        return SimpleNamespace(Event=Event, device=on)

    monkeypatch.setattr(torch, "get_device_module", get_device_module)
    return happened


@contextmanager
# Progress's.
def no_bar(batches: Iterable[Batch], total: int, description: str) -> Iterator[Iterable[Batch]]:
    """Show no progress."""
    yield batches


def read_back(directory: str | Path) -> Any:
    """Return TensorBoard's EventAccumulator of a run's directory."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(
        str(directory), size_guidance={"scalars": 0, "images": 0, "tensors": 0}
    )
    reader.Reload()
    return reader


def scalars_in(directory: str | Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves in a run's directory: tag -> (step, value)."""
    reader = read_back(directory)
    return {
        tag: [(point.step, point.value) for point in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def generator(seed: int) -> torch.Generator:
    """Return a generator of random numbers with this seed."""
    return torch.Generator().manual_seed(seed)
