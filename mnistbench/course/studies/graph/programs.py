"""The programs that are studied: ``x * y + z``, and the training step of a workload."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.graph.study import EXPRESSION, Settings, StepTimes
from mnistbench.suite.measuring.case import synchronizer
from mnistbench.suite.workloads.step import Step
from mnistbench.suite.workloads.workload import Workload, builtin_workloads

_SEED = 1


@dataclass(frozen=True)
class Program:
    """A step.

    ``zero_grad``, then ``compute`` on the arguments, ``backward`` of its result, and ``update``.
    """

    source: str  # in one line
    compute: Callable[..., Tensor]  # what is compiled
    arguments: tuple[Tensor, ...]
    zero_grad: Callable[[], object]
    backward: Callable[[Tensor], object]
    update: Callable[[], object]
    synchronize: Callable[[], None]  # waits for the device
    workload: Workload | None = None

    def step(
        self, compute: Callable[..., Tensor] | None = None, arguments: tuple[Tensor, ...] = ()
    ) -> None:
        """Run a step, with a forward pass and a batch in place of the program's own.

        It replaces only those that are given.
        """
        self.zero_grad()
        self.backward((compute or self.compute)(*(arguments or self.arguments)))
        self.update()
        self.synchronize()

    def timed_step(self, compute: Callable[..., Tensor]) -> StepTimes:
        """Run a step with a forward pass, eager or compiled, and return its times.

        Dropping gradients is a part of the update.
        """
        readings = [time.perf_counter_ns()]

        def read() -> None:
            self.synchronize()
            readings.append(time.perf_counter_ns())

        result = compute(*self.arguments)
        read()
        self.backward(result)
        read()
        self.update()
        self.zero_grad()
        read()
        forward, backward, update = (end - start for start, end in itertools.pairwise(readings))
        return StepTimes(forward, backward, update)


def program(settings: Settings) -> Program:
    """Return the program of the settings.

    Raises:
        UsageError: there is no such workload.
        DataError: its dataset is missing or damaged.
    """
    device = torch.device(settings.device)
    if settings.program == EXPRESSION:
        return _expression(settings.size, device)
    return _training_step(workload(settings), settings.batch_size, device)


def multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Return ``x * y + z``."""
    return x * y + z


def _expression(size: int, device: torch.device) -> Program:
    """Return the program whose backward pass computes the gradients of x, y and z.

    All are float32 [size, size].
    """
    generator = torch.Generator().manual_seed(_SEED)
    x, y, z, gradient = (torch.randn(size, size, generator=generator).to(device) for _ in range(4))
    variables = tuple(variable.requires_grad_() for variable in (x, y, z))
    return Program(
        source=f"{EXPRESSION}, float32 [{size}, {size}], and the gradients of x, y and z",
        compute=multiply_add,
        arguments=variables,
        zero_grad=lambda: None,
        backward=lambda result: torch.autograd.grad(result, variables, gradient),
        update=lambda: None,
        synchronize=synchronizer(device),
    )


def _training_step(workload: Workload, batch_size: int, device: torch.device) -> Program:
    """Return a training step; the model and the loss are compiled, the optimizer is not."""
    torch.manual_seed(_SEED)
    model = workload.make_model().to(device)
    step = Step(model, workload.loss, workload.make_optimizer(model.parameters()))
    batch = workload.make_batch(batch_size, device, torch.Generator().manual_seed(_SEED))

    def compute(inputs: Tensor, targets: Tensor) -> Tensor:
        return workload.loss(model(inputs), targets)

    return Program(
        source=f"training step of {workload.name}, batch {batch_size}",
        compute=compute,
        arguments=batch,
        zero_grad=step.zero_grad,
        backward=step.backward,
        update=step.update,
        synchronize=synchronizer(device),
        workload=workload,
    )


def workload(settings: Settings) -> Workload:
    """Return a built-in workload, or one of ``package.module:attribute``.

    A Workload, or a function that returns one.
    """
    builtin = {
        known.name: known for known in builtin_workloads(settings.dataset, settings.data_dir)
    }
    if settings.program in builtin:
        return builtin[settings.program]
    module, _, attribute = settings.program.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does; a path on it is text
    try:
        imported: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"--workload: {settings.program!r} cannot be imported ({error}); name a Workload there"
        ) from None
    if callable(imported) and not isinstance(imported, Workload):
        imported = imported()
    if not isinstance(imported, Workload):
        raise UsageError(
            f"--workload: {settings.program!r} is {type(imported).__name__}; name a Workload, or a "
            "function of one"
        )
    return imported
