"""A workload is what a user brings to be measured: a model, its batches, its loss, its optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mnistbench.core.errors import UsageError
from mnistbench.workloads import data
from mnistbench.workloads.models import ConvNet, LeNet5

#: Inputs and targets; the first dimension of both is the sample.
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Workload:
    """Everything a case needs to know of a model. Register it with the hook ``pytest_mnistbench_workloads``.

    A function that takes random numbers takes them from the generator it is given (a CPU generator, seeded per case)
    or, in ``make_model``, from torch's global one, which is seeded too: the same seed then gives the same case.
    """

    name: str
    make_model: Callable[[], nn.Module]  # on the CPU; the case moves it
    make_batch: Callable[[int, torch.device, torch.Generator], Batch]  # batch size, device, generator
    loss: Callable[[Tensor, Tensor], Tensor]  # (output, targets) -> 0-d mean over the samples
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    metric: Callable[[Tensor, Tensor], Tensor] | None = None  # (output, targets) -> 0-d number of correct samples
    dataset: str = "synthetic"  # what its data is called in records, tables and curves
    load: Callable[[torch.device], data.Dataset] | None = None  # the whole set; cases "train" and "eval" need it

    def __post_init__(self) -> None:
        if not self.name or not all(character.isalnum() or character == "_" for character in self.name):
            raise UsageError(f"workload name {self.name!r}: use letters, digits and underscores, so that -k can select it")


def predicted(output: Tensor) -> Tensor:
    """Return the class with the largest output. Shapes: [B, classes] -> int64 [B]."""
    return output.argmax(dim=1)


def number_correct(output: Tensor, targets: Tensor) -> Tensor:
    """Count the samples whose largest output is the target's. Shapes: [B, classes], [B] -> []."""
    return (predicted(output) == targets).sum()


def builtin_workloads(dataset: str, data_dir: str | None) -> list[Workload]:
    """Return ConvNet and LeNet5 on the given dataset, with the optimizer of pytorch/examples (Adadelta, lr 1.0)."""

    @functools.cache  # the set is loaded when the first case needs it, and once per device
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
        )
        for name, make_model in (("convnet", ConvNet), ("lenet5", LeNet5))
    ]
