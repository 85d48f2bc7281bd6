"""Storages of a model, divided among its layers, and live bytes.

The latter after each allocation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from mnistbench.core.operation import MODULE, PHASE
from mnistbench.course.studies.memory.study import ROLES, LayerMemory, Site
from mnistbench.suite.measuring.profiling import LOSS, in_ranges
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.step import Inference, Step

#: The CUDA allocator rounds every size up to a multiple of this number of bytes: ``kMinBlockSize``
#: in c10's ``CUDACachingAllocator``.
CUDA_ROUNDING = 512


def storages(values: Any, device: torch.device) -> dict[int, torch.UntypedStorage]:
    """Return the storages of all tensors among values on a device, by their address in C++."""
    tensors = (
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, Tensor) and leaf.device.type == device.type
    )
    all_storages = (tensor.untyped_storage() for tensor in tensors)
    # As torch's own StorageWeakRef: data_ptr is 0 without data.
    return {storage._cdata: storage for storage in all_storages}  # noqa: SLF001


def n_bytes(storage: torch.UntypedStorage, device: torch.device) -> int:
    """Return the bytes that the allocator of a device gives to a storage."""
    step = CUDA_ROUNDING if device.type == "cuda" else 1
    return math.ceil(storage.nbytes() / step) * step


@dataclass(frozen=True)
class Iteration:
    """A model that has run an iteration, and everything that an iteration needs."""

    model: nn.Module
    runner: Step | Inference
    batch: Batch
    device: torch.device

    def __call__(self) -> Any:
        """Run once; return what the runner returns."""
        return (
            self.runner(*self.batch)
            if isinstance(self.runner, Step)
            else self.runner(self.batch[0])
        )

    @property
    def model_arguments(self) -> Batch | Tensor:
        """What the runner takes of the batch."""
        return self.batch if isinstance(self.runner, Step) else self.batch[0]

    def states(self) -> dict[int, list[Any]]:
        """Return the optimizer state of each parameter, by the identity of the parameter."""
        if not isinstance(self.runner, Step):
            return {}
        state = self.runner.optimizer.state_dict().get("state", {})
        parameters = chain.from_iterable(
            group["params"] for group in self.runner.optimizer.param_groups
        )
        return {
            id(parameter): tree_leaves(state.get(number, {}))
            for number, parameter in enumerate(parameters)
        }

    def held(self) -> dict[int, torch.UntypedStorage]:
        """Return the storages that exist between two iterations.

        Parameters, gradients, optimizer state and the batch.
        """
        parameters = list(self.model.parameters())
        gradients = [parameter.grad for parameter in parameters]
        buffers = list(self.model.buffers())
        return storages(
            [parameters, gradients, buffers, list(self.states().values()), self.model_arguments],
            self.device,
        )

    def held_bytes(self) -> int:
        """Return the bytes of these storages."""
        return sum(n_bytes(storage, self.device) for storage in self.held().values())


class Places:
    """Where an iteration is: the phase and the layer.

    Backward operations belong to the layers of their forward operations (``splits_backward``), or
    all to one row.
    """

    def __init__(self, *, splits_backward: bool = True) -> None:
        self._splits_backward = splits_backward
        self._names: list[str] = []
        self._layers: dict[int, str] = {}  # number of an autograd node -> the layer that made it

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Be in the range of this name while the body runs."""
        self._names.append(name)
        try:
            yield
        finally:
            self._names.pop()

    def site(self, operation: str = "") -> Site:
        """Return where an operation runs now."""
        phase = ""
        layer = ""
        for name in self._names:
            if name.startswith(PHASE):
                phase = name.removeprefix(PHASE)
                layer = ""
            else:
                layer = name.removeprefix(MODULE)
        if phase == "backward" and self._splits_backward:
            node = torch._C._current_autograd_node()  # noqa: SLF001  # nothing public tells it
            layer = self._layers.get(node._sequence_nr(), "") if node is not None else ""  # noqa: SLF001
        elif phase == "forward" and torch.is_grad_enabled():
            last_node = torch._C._autograd._get_sequence_nr() - 1  # noqa: SLF001  # of the last node
            self._layers.setdefault(last_node, layer)  # operations without a node run after it, too
        return Site(layer or (f"({phase})" if phase else ""), phase, operation)


class Ledger:
    """Adds up allocations and frees, in order, to the bytes that are held before."""

    def __init__(self, held: int) -> None:
        self.live = held  # bytes now
        self.peak = held  # the largest number of live bytes after an allocation
        self.site = Site()  # of the peak
        # Layer -> the largest number of live bytes after an allocation in it.
        self.peaks: dict[str, int] = {}

    def change(self, n_bytes: int, site: Site) -> None:
        """Add the allocation of an operation at a site, or subtract a free.

        The bytes of a free are below 0.
        """
        self.live += n_bytes
        if n_bytes <= 0:
            return
        self.peaks[site.layer] = max(self.live, self.peaks.get(site.layer, 0))
        if self.live > self.peak:
            self.peak = self.live
            self.site = site


def run_and_divide(iteration: Iteration) -> tuple[LayerMemory, ...]:
    """Run an iteration, which makes gradients and optimizer state.

    Return the storages of each layer, without peaks.
    """
    named = {
        name: module
        for name, module in iteration.model.named_modules()
        if not any(True for _ in module.children())
    }
    rows: dict[str, dict[str, int]] = {}  # layer -> role -> bytes
    # Kept, so that no address is used again.
    seen: dict[str, dict[int, torch.UntypedStorage]] = {role: {} for role in ROLES}
    places = Places()
    base = storages(
        [
            list(iteration.model.parameters()),
            list(iteration.model.buffers()),
            iteration.model_arguments,
        ],
        iteration.device,
    )

    def count(layer: str, role: str, values: Any, without: Iterable[int] = ()) -> None:
        row = rows.setdefault(layer, dict.fromkeys(ROLES, 0))
        for address, storage in storages(values, iteration.device).items():
            # A storage counts once in each role.
            if address not in seen[role] and address not in without:
                seen[role][address] = storage
                row[role] += n_bytes(storage, iteration.device)

    def save(tensor: Tensor) -> Tensor:
        count(places.site().layer, "saved", tensor, without=base)
        return tensor

    def enter(name: str, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        count(name, "input", [args, kwargs])
        count(name, "output", output)

    with ExitStack() as undo:
        undo.enter_context(in_ranges(iteration.runner, iteration.model, places.within))
        undo.enter_context(torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor))
        for name, module in named.items():
            undo.callback(
                module.register_forward_hook(partial(enter, name), with_kwargs=True).remove
            )
        returned = iteration()
    if isinstance(iteration.runner, Step):
        output, loss = returned
        count(LOSS, "input", [output, iteration.batch[1]])
        count(LOSS, "output", loss)
    states = iteration.states()
    for name, module in iteration.model.named_modules():
        parameters = list(module.parameters(recurse=False))
        owned = [*parameters, *module.buffers(recurse=False)]
        if owned:
            count(name, "weight", owned)
            count(name, "gradient", [parameter.grad for parameter in parameters])
            count(name, "state", [states.get(id(parameter), []) for parameter in parameters])
    return tuple(
        LayerMemory(name, type(named[name]).__name__ if name in named else "", **row)
        for name, row in rows.items()
    )
