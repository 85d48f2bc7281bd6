"""``Workload``: a model to measure, with its batches, loss and optimizer; and the two built-in ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from mnistbench.core.errors import UsageError
from mnistbench.core.params import MODELS
from mnistbench.workloads import data
from mnistbench.workloads.data import Batch
from mnistbench.workloads.fast import Adadelta, Optimizer, fast_model
from mnistbench.workloads.models import ConvNet, LeNet5


@dataclass(frozen=True)
class Workload:
    """A model to measure. Return it from the hook ``pytest_mnistbench_workloads`` in a conftest.py.

    ``make_batch`` must draw random numbers from the generator in its arguments (on the CPU, seeded per case) and
    ``make_model`` from torch's global one, which is seeded too, so that the same seed gives the same case.
    """

    name: str
    make_model: Callable[[], nn.Module]  # returns it on the CPU
    make_batch: Callable[[int, torch.device, torch.Generator], Batch]  # batch size, device, generator
    loss: Callable[[Tensor, Tensor], Tensor]  # (output, targets) -> 0-d mean over the samples
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    metric: Callable[[Tensor, Tensor], Tensor] | None = None  # (output, targets) -> 0-d number of correct samples
    dataset: str = "synthetic"  # name of the data in records, tables and curves
    load: Callable[[torch.device], data.Dataset] | None = None  # the whole dataset, for the phases "train" and "eval"
    make_fast_model: Callable[[nn.Module], nn.Module] | None = None  # shares the parameters; for --bench-step=fast on a CPU
    make_fast_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None  # None: make_optimizer

    def __post_init__(self) -> None:
        if not self.name or not all(character.isalnum() or character == "_" for character in self.name):
            raise UsageError(f"workload name {self.name!r}: use letters, digits and underscores, so that -k can select it")


def predicted(output: Tensor) -> Tensor:
    """Return the class with the largest output. Shapes: [B, classes] -> int64 [B]."""
    return output.argmax(dim=1)


def number_correct(output: Tensor, targets: Tensor) -> Tensor:
    """Count the samples whose largest output is the target's. Shapes: [B, classes], [B] -> []."""
    return (predicted(output) == targets).sum()


def builtin_workloads(dataset: str, data_dir: str | Path | None, *, sparse_gradients: bool = True) -> list[Workload]:
    """Return ConvNet and LeNet5 on the given dataset, with the optimizer of pytorch/examples (Adadelta, lr 1.0).

    ``sparse_gradients`` are those of ``fast_model``. Ranks cannot add gradients that are sparse on some of them only.
    """

    @functools.cache  # the dataset is loaded for the first case that needs it, once per device
    def load(device: torch.device) -> data.Dataset:
        return data.load(dataset, data_dir, str(device))

    def make_batch(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
        whole = load(device)
        return whole.batch(whole.train, whole.draw(whole.train, batch_size, generator))

    return [
        Workload(
            name=name,
            make_model=make_model,
            make_batch=make_batch,
            loss=nn.functional.nll_loss,
            make_optimizer=functools.partial(torch.optim.Adadelta, lr=1.0),
            metric=number_correct,
            dataset=dataset,
            load=load,
            make_fast_model=functools.partial(fast_model, sparse_gradients=sparse_gradients),
            make_fast_optimizer=Adadelta,
        )
        for name, make_model in zip(MODELS, (ConvNet, LeNet5), strict=True)
    ]


def workload_of_ranks(name: str, dataset: str, data_dir: str | Path | None, world_size: int) -> Workload:
    """Return a workload of :func:`builtin_workloads` for a number of ranks, without loading its dataset.

    Raises:
        UsageError: there is no such model.
    """
    workloads = {each.name: each for each in builtin_workloads(dataset, data_dir, sparse_gradients=world_size == 1)}
    if name not in workloads:
        raise UsageError(f"model {name!r} is unknown; choose one of {', '.join(workloads)}")
    return workloads[name]
