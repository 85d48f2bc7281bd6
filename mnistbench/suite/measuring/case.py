"""A workload and ``Params`` -> a case.

A callable that runs one iteration and waits for the device.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from mnistbench.core.compiled.settings import arguments_of, settings_text
from mnistbench.core.errors import UsageError
from mnistbench.core.params import FAST, REFERENCE, Params
from mnistbench.suite.workloads import data
from mnistbench.suite.workloads.adadelta import Optimizer
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.step import Inference, Step, evaluate
from mnistbench.suite.workloads.workload import Workload

#: Below this batch size an epoch case runs on the share batch_size / EPOCH_WHOLE_FROM of the
#: dataset: at batch size 1 a whole epoch of digits would take 20 times as long as at 64. The record
#: has the number of samples per iteration.
EPOCH_WHOLE_FROM = 8


@dataclass(frozen=True)
class Case:
    """One case, ready to run. Calling it runs one iteration and waits for the device.

    ``runner`` is the object whose methods are the parts of the iteration; the profiled pass marks
    them. It is None for cases that are not profiled per operation (whole epochs, data).
    """

    params: Params
    workload: Workload
    model: nn.Module  # the one that runs, uncompiled, on the device
    inputs: torch.Tensor | None  # the batch of a forward or step case
    runner: Step | Inference | None
    samples: int  # processed per iteration
    # Samples that an epoch case processes at a larger batch size; for other cases the same as
    # samples.
    whole_set: int
    _run: Callable[[], object]
    _synchronize: Callable[[], None]
    _restore: Callable[[], None]

    def __call__(self) -> None:
        """Run one iteration and wait for the device."""
        self._run()
        self._synchronize()

    def reset(self) -> None:
        """Restore the initial weights, optimizer state and random state.

        Operation times depend on the data, so a pass must not depend on the number of rounds before
        it.
        """
        self._restore()

    @property
    def parameter_count(self) -> int:
        """Number of trainable parameters of the model."""
        return sum(
            parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad
        )

    @property
    def tables_in(self) -> str:
        """Label of the case whose operation tables stand for this one.

        Empty if it has its own; whole epochs and data are not profiled.
        """
        if self.runner is not None:
            return ""
        return replace(
            self.params, phase="forward" if self.params.phase == "eval" else "step"
        ).label


def build(params: Params, workload: Workload) -> Case:
    """Build the case that ``params`` names.

    Seeds the global generators of the CPU and of the case's device: the caller restores their state
    (:func:`fork_random`).

    Raises:
        UsageError: the phase needs a whole dataset, and the workload has none.
        DataError: a dataset is missing or damaged.
    """
    device = torch.device(params.device)
    model = in_step(params, workload, seeded_model(params, workload))
    generator = torch.Generator().manual_seed(params.seed)
    # Only if it is needed: the first optimizer of a process imports torch._dynamo, which takes
    # seconds.
    optimizer = optimizer_maker(params, workload)(model.parameters()) if params.trains else None
    weights = copy.deepcopy(model.state_dict())
    optimizer_state = copy.deepcopy(optimizer.state_dict()) if optimizer else {}

    def restore() -> None:
        model.load_state_dict(weights)
        if optimizer:
            # It keeps a reference to its argument and changes it.
            optimizer.load_state_dict(copy.deepcopy(optimizer_state))
            optimizer.zero_grad()
        seed(device, params.seed)
        generator.manual_seed(params.seed)

    work = _work(params, workload, model, optimizer, generator, device)
    case = Case(
        params=params,
        workload=workload,
        model=model,
        inputs=work.inputs,
        runner=work.runner,
        samples=work.samples,
        whole_set=work.whole_set,
        _run=work.run,
        _synchronize=synchronizer(device),
        _restore=restore,
    )
    case.reset()  # make_batch of a user may have drawn from the global generator
    return case


def seeded_model(params: Params, workload: Workload) -> nn.Module:
    """Return the workload's model on its device; the seed sets its weights and the random state."""
    device = torch.device(params.device)
    seed(device, params.seed)
    model = workload.make_model().to(device)
    # So that the first iteration draws the same dropout masks as after a reset.
    seed(device, params.seed)
    return model


def in_step(params: Params, workload: Workload, model: nn.Module) -> nn.Module:
    """Return the model that the step of ``params`` runs, with the same parameters."""
    if params.step == REFERENCE:
        return model
    otherwise = "; choose the reference step"
    if workload.make_fast_model is None:
        raise UsageError(
            f"workload {workload.name!r} has no fast step: give it make_fast_model=...{otherwise}"
        )
    if torch.device(params.device).type != "cpu":
        raise UsageError(
            f"the fast step of {workload.name!r} is for the CPU, not for {params.device}{otherwise}"
        )
    if params.compile:
        raise UsageError(f"the fast step of {workload.name!r} cannot be compiled{otherwise}")
    return workload.make_fast_model(model)


def optimizer_maker(
    params: Params, workload: Workload
) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """Return what makes the optimizer of the step of ``params``."""
    fast = workload.make_fast_optimizer if params.step == FAST else None
    return fast or workload.make_optimizer


def compile_arguments(params: Params, workload: Workload) -> dict[str, Any]:
    """Return the arguments of ``torch.compile``, besides the model, of a case.

    They are the workload's if it has the settings of ``params``, else these settings alone.
    """
    arguments = workload.compile or {}
    if settings_text(arguments) == params.compile_with:
        return dict(arguments)
    return arguments_of(params.compile_with)


@dataclass(frozen=True)
class _Work:
    """What one iteration of a case does. The fields are those of ``Case``."""

    run: Callable[[], object]
    samples: int
    whole_set: int
    inputs: torch.Tensor | None = None
    runner: Step | Inference | None = None


def _work(
    params: Params,
    workload: Workload,
    model: nn.Module,
    optimizer: Optimizer | None,  # for phases that train
    generator: torch.Generator,
    device: torch.device,
) -> _Work:
    """Return the iteration of a phase."""
    autocast = autocaster(device, params.dtype)
    measured = model
    if params.compile:
        measured = cast("nn.Module", torch.compile(model, **compile_arguments(params, workload)))
    size = params.batch_size
    match params.phase:
        case "forward":
            inference = Inference(measured, autocast)
            inputs, _ = workload.make_batch(size, device, generator)
            return _Work(partial(inference, inputs), size, size, inputs, inference)
        case "step":
            assert optimizer is not None
            step = Step(measured, workload.loss, optimizer, autocast)
            inputs, targets = workload.make_batch(size, device, generator)
            return _Work(partial(step, inputs, targets), size, size, inputs, step)
        case "train":
            assert optimizer is not None
            whole, fraction = _whole_set(workload, device, params)
            step = Step(measured, workload.loss, optimizer, autocast)

            def train_epoch() -> None:
                for inputs, targets in whole.epoch(whole.train, size, generator, fraction):
                    step(inputs, targets)

            samples = len(whole.train)
            return _Work(train_epoch, math.ceil(fraction * samples), samples)
        case "eval":
            whole, fraction = _whole_set(workload, device, params)
            inference = Inference(measured, autocast)

            def eval_epoch() -> None:
                batches = whole.epoch(whole.test, size, fraction=fraction)
                evaluate(inference, batches, loss=workload.loss, metric=workload.metric)

            samples = len(whole.test)
            return _Work(eval_epoch, math.ceil(fraction * samples), samples)
        case _:  # batch
            batches: Iterator[Batch]
            if workload.load is None:  # drawn one by one
                batches = (workload.make_batch(size, device, generator) for _ in itertools.count())
            else:  # epoch after epoch, shuffled once per epoch
                whole = workload.load(device)
                batches = itertools.chain.from_iterable(
                    whole.epoch(whole.train, size, generator) for _ in itertools.count()
                )
            return _Work(partial(next, batches), size, size)


def _whole_set(
    workload: Workload, device: torch.device, params: Params
) -> tuple[data.Dataset, float]:
    """Return the dataset of an epoch case, and the share of it that the case runs on."""
    if workload.load is None:
        raise UsageError(
            f"workload {workload.name!r} has no whole set, which the phase {params.phase!r} needs: "
            "give it load=..., or measure its step and forward"
        )
    return workload.load(device), min(1.0, params.batch_size / EPOCH_WHOLE_FROM)


def autocaster(device: torch.device, dtype: str) -> Callable[[], AbstractContextManager[object]]:
    """Return a context manager for forward and loss.

    Autocast to bfloat16, or no effect for float32.
    """
    if dtype == "float32":
        return nullcontext
    return partial(torch.autocast, device.type, dtype=getattr(torch, dtype))


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until the device has finished; on a CPU it returns at once."""
    if device.type == "cpu":
        return lambda: None  # a CPU operation has finished when it returns
    return partial(torch.accelerator.synchronize, device)


@contextmanager
def memory_suffices(otherwise: str) -> Iterator[None]:
    """Run the body; turn an out-of-memory error into a UsageError with this text."""
    try:
        yield
    # The base class of torch.OutOfMemoryError; the CPU allocator raises it directly.
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(
            error
        ):
            raise
        raise UsageError(otherwise) from None


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Run the body with this number of intra-op threads; restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make an accelerator the current one while the body runs, because events are recorded there.

    Nothing on a CPU.
    """
    if device.type in ("cpu", "mps"):
        return nullcontext()
    context: AbstractContextManager[object] = torch.get_device_module(device).device(
        device.index or 0
    )
    return context


def seed(device: torch.device, number: int) -> None:
    """Seed the global generators of the CPU and of one device.

    ``torch.manual_seed`` would also seed every other accelerator, whose state :func:`fork_random`
    does not restore.
    """
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        with on_device(device):
            torch.get_device_module(device).manual_seed(number)


def fork_random(device: torch.device) -> AbstractContextManager[None]:
    """Run the body and restore the random state that :func:`seed` sets.

    A case must not affect other tests.
    """
    if device.type in ("cpu", "mps"):  # fork_rng cannot read the state of mps, which stays changed
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)
