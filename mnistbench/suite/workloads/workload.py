"""``Workload``: a model to measure, with its batches, loss and optimizer; and the built-in ones."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mnistbench.core.compiled.settings import check_arguments, settings_text
from mnistbench.core.errors import UsageError
from mnistbench.core.params import REFERENCE, Params
from mnistbench.suite.workloads import data
from mnistbench.suite.workloads.adadelta import Adadelta, Optimizer
from mnistbench.suite.workloads.builtin import SMALLNET, SUITE_MODELS
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.rewrite import fast_model


@dataclass(frozen=True)
class Workload:
    """A model to measure. Return it from the hook ``pytest_mnistbench_workloads`` in a conftest.py.

    ``make_batch`` must draw random numbers from the generator in its arguments (on the CPU, seeded
    per case) and ``make_model`` from torch's global one, which is seeded too, so that the same seed
    gives the same case.

    ``compile`` is part of the identity of a compiled case, except for ``options`` and a ``backend``
    that is a function: give the workload another name for others of these.
    """

    name: str
    make_model: Callable[[], nn.Module]  # returns it on the CPU
    # Batch size, device, generator.
    make_batch: Callable[[int, torch.device, torch.Generator], Batch]
    loss: Callable[[Tensor, Tensor], Tensor]  # (output, targets) -> 0-d mean over the samples
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    # (output, targets) -> 0-d number of correct samples.
    metric: Callable[[Tensor, Tensor], Tensor] | None = None
    dataset: str = "synthetic"  # name of the data in records, tables and curves
    # The whole dataset, for the phases "train" and "eval".
    load: Callable[[torch.device], data.Dataset] | None = None
    # Shares the parameters; for --bench-step=fast on a CPU.
    make_fast_model: Callable[[nn.Module], nn.Module] | None = None
    # None: make_optimizer.
    make_fast_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None
    # Arguments of torch.compile(model, ...) with --bench-compile: mode, dynamic, fullgraph,
    # backend, options. Settings of the option replace them.
    compile: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.name or not all(
            character.isalnum() or character == "_" for character in self.name
        ):
            raise UsageError(
                f"workload name {self.name!r}: use letters, digits and underscores, so that -k "
                "can select it"
            )
        if self.compile is not None:
            try:
                check_arguments(self.compile)
            except ValueError as error:
                raise UsageError(f"workload {self.name!r}: compile {error}") from None


def params_of(
    workload: Workload,
    phase: str,
    batch_size: int,
    device: str,
    *,
    threads: int,
    seed: int,
    dtype: str = "float32",
    compiled: bool = False,
    step: str = REFERENCE,
) -> Params:
    """Return the identity of a case of a workload.

    It has its name, its dataset and, if the case is compiled, its settings of ``torch.compile``.
    """
    return Params(
        workload=workload.name,
        phase=phase,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        threads=threads,
        compile=compiled,
        seed=seed,
        dataset=workload.dataset,
        step=step,
        compile_with=settings_text(workload.compile or {}) if compiled else "",
    )


def predicted(output: Tensor) -> Tensor:
    """Return the class with the largest output. Shapes: [B, classes] -> int64 [B]."""
    return output.argmax(dim=1)


def number_correct(output: Tensor, targets: Tensor) -> Tensor:
    """Count the samples whose largest output is the target's. Shapes: [B, classes], [B] -> []."""
    return (predicted(output) == targets).sum()


# ---- The built-in networks, made of modules only, so that every operation belongs to one ---------


class ConvNet(nn.Sequential):
    """The network of pytorch/examples ``mnist/main.py`` (77f55b9): 1,199,882 parameters.

    Layers and their order are the same, so the same seed gives the same weights. Input: float32 [B,
    1, 28, 28]; output: log-probabilities [B, 10].
    """

    def __init__(self) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 32, kernel_size=3),  # [B, 32, 26, 26]
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, kernel_size=3),  # [B, 64, 24, 24]
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),  # [B, 64, 12, 12]
            dropout1=nn.Dropout(0.25),
            flatten=nn.Flatten(),  # [B, 9216]
            fc1=nn.Linear(9216, 128),
            relu3=nn.ReLU(),
            dropout2=nn.Dropout(0.5),
            fc2=nn.Linear(128, 10),
            log_softmax=nn.LogSoftmax(dim=1),
        )
        super().__init__(layers)


class LeNet5(nn.Sequential):
    """LeCun et al., "Gradient-based learning applied to document recognition" (1998).

    It is the network as it is taught today.

    ReLU and max-pooling in place of the paper's sigmoids and trainable sub-sampling, full
    connection from the first to the second convolution: 61,706 parameters. Input: float32 [B, 1,
    28, 28]; output: log-probabilities [B, 10].
    """

    def __init__(self) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 6, kernel_size=5, padding=2),  # [B, 6, 28, 28]
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),  # [B, 6, 14, 14]
            conv2=nn.Conv2d(6, 16, kernel_size=5),  # [B, 16, 10, 10]
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),  # [B, 16, 5, 5]
            flatten=nn.Flatten(),  # [B, 400]
            fc1=nn.Linear(400, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
            fc3=nn.Linear(84, 10),
            log_softmax=nn.LogSoftmax(dim=1),
        )
        super().__init__(layers)


class SmallNet(nn.Sequential):
    """A network for the recipe ``fastest``.

    18,442 parameters, and a 14th of the arithmetic of ConvNet.

    The first convolution skips every second pixel. The second one is pooled before normalisation
    and ReLU, which then compute a quarter of its values. Input: float32 [B, 1, 28, 28]; output:
    logits [B, 10].
    """

    def __init__(self) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 16, kernel_size=5, stride=2),  # [B, 16, 12, 12]
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(16, 32, kernel_size=5),  # [B, 32, 8, 8]
            pool=nn.MaxPool2d(2),  # [B, 32, 4, 4]
            norm=nn.BatchNorm2d(32),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),  # [B, 512]
            fc=nn.Linear(512, 10),
        )
        super().__init__(layers)


def builtin_workloads(
    dataset: str, data_dir: str | Path | None, *, sparse_gradients: bool = True
) -> list[Workload]:
    """Return the models of mnistbench on the given dataset.

    ConvNet and LeNet5 have the optimizer of pytorch/examples (Adadelta, lr 1.0); SmallNet has Adam
    and smoothed labels.

    ``sparse_gradients`` is the argument of ``fast_model``. Ranks cannot add sparse gradients of
    different elements.
    """

    @functools.cache  # the dataset is loaded for the first case that needs it, once per device
    def load(device: torch.device) -> data.Dataset:
        return data.load(dataset, data_dir, str(device))

    def make_batch(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
        whole = load(device)
        return whole.batch(whole.train, whole.draw(whole.train, batch_size, generator))

    dataset_workload = functools.partial(
        Workload, make_batch=make_batch, metric=number_correct, dataset=dataset, load=load
    )
    example_workload = functools.partial(
        dataset_workload,
        loss=nn.functional.nll_loss,
        make_optimizer=functools.partial(torch.optim.Adadelta, lr=1.0),
        make_fast_model=functools.partial(fast_model, sparse_gradients=sparse_gradients),
        make_fast_optimizer=Adadelta,
    )
    return [
        *(
            example_workload(name=name, make_model=model)
            for name, model in zip(SUITE_MODELS, (ConvNet, LeNet5), strict=True)
        ),
        dataset_workload(
            name=SMALLNET,
            make_model=SmallNet,
            loss=functools.partial(nn.functional.cross_entropy, label_smoothing=0.05),
            make_optimizer=functools.partial(
                torch.optim.Adam, lr=0.01, betas=(0.9, 0.99), fused=True
            ),
            make_fast_model=lambda model: model.to(memory_format=torch.channels_last),
        ),
    ]


def workload_of_ranks(
    name: str, dataset: str, data_dir: str | Path | None, world_size: int
) -> Workload:
    """Return a workload of :func:`builtin_workloads` for a number of ranks.

    Its dataset is not loaded.
    """
    workloads = {
        workload.name: workload
        for workload in builtin_workloads(dataset, data_dir, sparse_gradients=world_size == 1)
    }
    if name not in workloads:
        raise UsageError(f"model {name!r} is unknown; choose one of {', '.join(workloads)}")
    return workloads[name]
