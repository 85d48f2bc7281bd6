"""The peak of an iteration, from shapes.

It runs on tensors without data, whose storages count while they exist.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mnistbench.course.studies.memory.layers import (
    Iteration,
    Ledger,
    Places,
    n_bytes,
    run_and_divide,
    storages,
)
from mnistbench.course.studies.memory.study import LayerMemory, Peak, Site
from mnistbench.suite.measuring.profiling import in_ranges
from mnistbench.suite.workloads.step import Inference, Step
from mnistbench.suite.workloads.workload import Workload


def predicted_peak(
    workload: Workload, phase: str, batch_size: int, device: str
) -> tuple[Peak, tuple[LayerMemory, ...]]:
    """Return the peak of an iteration that is not the first, and its layers.

    It is of ``forward`` or ``step``. Nothing is computed. Buffers that an operation allocates and
    frees inside are not predicted: the dispatcher sees only its result.
    """
    sample = workload.make_batch(1, torch.device("cpu"), torch.Generator())
    with FakeTensorMode():
        with torch.device(device) as on:
            model = workload.make_model()
            inputs, targets = (
                torch.empty((batch_size, *part.shape[1:]), dtype=part.dtype) for part in sample
            )
        runner = (
            Inference(model)
            if phase == "forward"
            else Step(model, workload.loss, workload.make_optimizer(model.parameters()))
        )
        iteration = Iteration(model, runner, (inputs, targets), on)
        with _WithoutCopies():  # type: ignore[no-untyped-call]
            layers = run_and_divide(iteration)
        places = Places(splits_backward=on.type == "cpu")  # as it can be measured
        ledger = Ledger(iteration.held_bytes())
        following = _Following(places, ledger, on)
        # Kept by no name: that would keep the gradients that the iteration drops.
        following.follow(iteration.held())
        with in_ranges(runner, model, places.within), following:
            iteration()
    peak = Peak(ledger.peak, iteration.held_bytes(), ledger.site)
    names = {layer.name for layer in layers}
    outside_layers = [LayerMemory(name) for name in ledger.peaks if name not in names]
    return peak, tuple(
        replace(layer, peak=ledger.peaks.get(layer.name)) for layer in (*layers, *outside_layers)
    )


def _is_its_input(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operation returns its input: dropout that is switched off.

    The decomposition of torch 2.11 copies it.
    """
    return func is torch.ops.aten.dropout.default and not args[2]


class _WithoutCopies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Returns the input of operations that do nothing, as PyTorch's kernels do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if _is_its_input(func, args) else func(*args, **(kwargs or {}))


class _Following(TorchDispatchMode):
    """Enters each new storage into a ledger, and takes it out when its last tensor is gone."""

    def __init__(self, places: Places, ledger: Ledger, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = places
        self._ledger = ledger
        self._device = device
        self._live: set[int] = set()

    def follow(self, new: Mapping[int, torch.UntypedStorage]) -> None:
        """Note the frees of storages: address in C++ -> storage."""
        for address, storage in new.items():
            self._live.add(address)
            weakref.finalize(
                storage, self._free, address, n_bytes(storage, self._device)
            ).atexit = False

    def _free(self, address: int, size: int) -> None:
        self._live.discard(address)
        self._ledger.change(-size, Site())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten":  # a question of a tensor's device
            return func(*args, **kwargs)
        if _is_its_input(func, args):
            return args[0]
        if torch.is_inference_mode_enabled():
            with self:  # without autograd aten::conv2d is not decomposed yet
                decomposed = func.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
        site = self._places.site(func._schema.name)  # noqa: SLF001  # the only way to the schema
        out = func(*args, **kwargs)
        new = {
            address: storage
            for address, storage in storages(out, self._device).items()
            if address not in self._live
        }
        for storage in new.values():
            self._ledger.change(n_bytes(storage, self._device), site)
        self.follow(new)
        return out
