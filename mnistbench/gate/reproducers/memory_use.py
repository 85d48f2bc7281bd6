"""What caches may have lost of a block of memory between its last use in an iteration and a call.

An operation on memory that was used just before is up to three times as fast as on memory that was used an iteration before.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Between two iterations of one side the gate runs one of the other side, which uses about as much memory in the same caches.
_SIDES = 2

#: A block was used before if at least this share of it was.
_MOSTLY = 0.5


class HostBlock(NamedTuple):
    """A part of the host's memory."""

    address: int
    n_bytes: int

    @classmethod
    def of(cls, tensor: Tensor) -> HostBlock:
        """Return the part of a storage that a tensor uses."""
        storage = tensor.untyped_storage()
        return cls(storage.data_ptr(), min(tensor.numel() * tensor.element_size(), storage.nbytes()))

    def is_mostly_in(self, other: HostBlock) -> bool:
        """Whether most of it is a part of another block."""
        common = min(self.address + self.n_bytes, other.address + other.n_bytes) - max(self.address, other.address)
        return common >= _MOSTLY * self.n_bytes > 0


class Since(NamedTuple):
    """What a program does between the last use of a block and a call."""

    n_bytes: int = 0  # that it uses
    ns: int = 0  # that it takes


def before_calls(
    wanted: Sequence[Sequence[HostBlock | None]], used: Sequence[Iterable[HostBlock]], total_us: Mapping[int, float]
) -> list[list[Since]]:
    """Return for each call what is between it and the last uses of blocks.

    The last use of what a call uses first in the iteration was in the iteration before.

    Args:
        wanted: for each call, in order, blocks before whose use it is asked; for None, nothing is between.
        used: the blocks that each call uses.
        total_us: time of each call, in microseconds, by its number; 0 if it is missing.
    """
    start_us = [0.0, *itertools.accumulate(total_us.get(number, 0.0) for number in range(len(used)))]
    uses = _Uses()
    found: list[list[tuple[int, int] | None]] = []
    for number, (asked, blocks) in enumerate(zip(wanted, used, strict=True)):
        found.append([uses.after(block) if block and block.n_bytes else (0, number - 1) for block in asked])
        for block in blocks:
            uses.add(block, number)
    iterations_ago = Since(_SIDES * uses.n_bytes, round(1_000 * _SIDES * start_us[-1]))
    return [
        [
            Since(use[0], round(1_000 * max(0.0, start_us[number] - start_us[use[1] + 1]))) if use else iterations_ago
            for use in of_call
        ]
        for number, of_call in enumerate(found)
    ]


class _Uses:
    """The blocks that calls have used so far, the latest last."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}  # address -> bytes, and the number of the last call that used them

    @property
    def n_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(n_bytes for n_bytes, _ in self._last.values())

    def add(self, block: HostBlock, number: int) -> None:
        """Take note that a call uses a block."""
        before, _ = self._last.pop(block.address, (0, 0))
        self._last[block.address] = max(before, block.n_bytes), number

    def after(self, wanted: HostBlock) -> tuple[int, int] | None:
        """Return the bytes that were used after a block, and the number of the call that used it; None if none did."""
        later = 0
        for address, (n_bytes, number) in reversed(self._last.items()):
            if wanted.is_mostly_in(HostBlock(address, n_bytes)):
                return later, number
            later += n_bytes
        return None


def allocated(recorded: torch.profiler.profile, call: str) -> dict[int, list[HostBlock]]:
    """Return the host's memory that each call allocates, also what it frees again, by the number of the call.

    Operations such as convolutions copy tensors into memory that they free before they end. The result of the next operation
    often takes this memory, which is then in the cache.

    Args:
        recorded: a profile with memory.
        call: beginning of the name of a range around a call; its number follows.
    """
    assert recorded.profiler is not None, "the profile has ended"
    assert recorded.profiler.kineto_results is not None, "the profile has ended"
    found: dict[int, list[HostBlock]] = defaultdict(list)
    waiting: list[tuple[Any, int]] = [(node, -1) for node in recorded.profiler.kineto_results.experimental_event_tree()]
    while waiting:
        node, number = waiting.pop()
        if node.name.startswith(call):
            number = int(node.name.removeprefix(call))
        kind, values = node.typed
        is_allocation = kind == torch._C._profiler._EventType.Allocation  # noqa: SLF001  # nothing public has addresses
        if is_allocation and number >= 0 and values.alloc_size > 0 and values.ptr and values.device.type == "cpu":
            found[number].append(HostBlock(values.ptr, values.alloc_size))
        waiting += [(child, number) for child in node.children]
    return found
