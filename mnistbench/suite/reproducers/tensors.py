"""What a script needs to know of a tensor.

Its place in memory, how its values are distributed, and when it was used before.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Most elements whose distribution is computed; of a larger tensor every nth.
SAMPLE = 1_000_000

#: Most bytes of a tensor that are saved. Of a larger one the first rows are saved, and a script
#: repeats them.
LARGEST_SAVED = 2 * 2**20

#: Share of zeros from which on a script makes zeros, too: those of a ReLU, not a chance one.
MIN_ZEROS = 0.01

#: Bytes to which torch aligns the memory of a tensor on a CPU. An offset matters only by what is
#: left after this multiple.
_ALIGNED = 64

_DIGITS = 3  # of means and standard deviations


def why_not_described(tensor: Tensor) -> str:
    """Return why a script cannot make a tensor like this one; empty if it can."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return f"has an argument of the type {type(tensor).__module__}.{type(tensor).__qualname__}"
    if tensor.layout is not torch.strided:
        return f"has an argument with the layout {tensor.layout}"
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.device.type == "meta":
        return "has an argument that is quantized, conjugated, negated or on the device meta"
    return ""


def description(tensor: Tensor, *, values_matter: bool) -> tuple[dict[str, Any], Tensor | None]:
    """Return the description of a strided tensor, and its values if they have to be saved.

    Args:
        tensor: any shape, dtype and strides. Overlapping ones (of ``expand``) are made from the
            memory that they share.
        values_matter: save values of floating point, too. Integers and truth values are always
            saved, unless all are the same.

    Returns:
        The description: ``shape``, ``stride``, ``offset`` (elements, less what alignment ignores),
        ``elements`` (in memory, from the first one of the tensor to the last), ``dtype``,
        ``device`` and ``values``, the distribution of these elements. The saved values have one
        dimension, are on the CPU, and take at most LARGEST_SAVED bytes.
    """
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    flat = tensor.as_strided((elements,), (1,))  # begins where the tensor does
    values = distribution(flat)
    saved = None
    is_counted = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    if values["kind"] != "constant" and (values_matter or is_counted):
        most = LARGEST_SAVED // tensor.element_size()
        row = max(tensor.stride(), default=0)
        if elements > most and 0 < row <= most:
            most = most // row * row  # whole rows
        saved = flat[:most].cpu().clone()
    described = {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset() % max(1, _ALIGNED // tensor.element_size()),
        "elements": elements,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": tensor.device.type,
        "values": values,
    }
    return described, saved


def distribution(flat: Tensor) -> dict[str, Any]:
    """Return how the values of a tensor of one dimension are distributed.

    Returns:
        ``kind`` and what it needs: ``constant`` (``value``), ``booleans`` (``share`` of true),
        ``integers`` (``least``, ``most``), ``normal`` or, if all are positive, ``lognormal``
        (``mean`` and ``std`` of the values, ``least``, ``most``, and the share of ``zeros``, which
        the other numbers leave out).
    """
    sample = flat[:: max(1, flat.numel() // SAMPLE)]
    if not sample.numel():
        return {"kind": "constant", "value": 0}
    if sample.dtype == torch.bool:
        share = float(sample.double().mean())
        if share in (0.0, 1.0):
            return {"kind": "constant", "value": bool(share)}
        return {"kind": "booleans", "share": _short(share)}
    if sample.dtype.is_complex:
        sample = torch.view_as_real(sample).reshape(-1)
    if not sample.dtype.is_floating_point:
        smallest = int(flat.min())
        largest = int(flat.max())
        if smallest == largest:
            return {"kind": "constant", "value": smallest}
        return {"kind": "integers", "least": smallest, "most": largest}
    finite = sample.double()
    finite = finite[finite.isfinite()]
    nonzero = finite[finite != 0]
    zeros = 1 - nonzero.numel() / max(1, finite.numel())
    if not nonzero.numel():
        return {"kind": "constant", "value": 0.0}
    least = float(nonzero.min())
    most = float(nonzero.max())
    if least == most and not zeros:
        return {"kind": "constant", "value": least}
    mean = float(nonzero.mean())
    std = float(nonzero.std(correction=0))
    return {
        "kind": "lognormal" if least > 0 else "normal",
        "mean": _short(mean),
        "std": _short(std),
        "least": _short(least),
        "most": _short(most),
        "zeros": round(zeros, 2) if zeros >= MIN_ZEROS else 0.0,
    }


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else value


# ---- Use of memory -------------------------------------------------------------------------------
# An operation on memory that was used just before is up to three times as fast as on memory that
# was used an iteration before.

#: Between two iterations of one side the gate runs one of the other side, which uses about as much
#: memory in the same caches.
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
        return cls(
            storage.data_ptr(), min(tensor.numel() * tensor.element_size(), storage.nbytes())
        )


def before_calls(
    wanted: Sequence[Sequence[HostBlock | None]],
    used: Sequence[Iterable[HostBlock]],
    total_ns: Mapping[int, int],
) -> list[list[tuple[int, int]]]:
    """Return for each call the bytes used, and the ns since the last uses of its blocks.

    The bytes are those that the program uses until the call.

    The last use of what a call uses first in the iteration was in the iteration before.

    Args:
        wanted: for each call, in order, blocks before whose use it is asked; for None, nothing is
            between.
        used: the blocks that each call uses.
        total_ns: time of each call, in nanoseconds, by its number; 0 if it is missing.
    """
    start_ns = [
        0,
        *itertools.accumulate(total_ns.get(number, 0) for number in range(len(used))),
    ]
    # Address -> bytes, and the number of the last call that used them; the latest last.
    last: dict[int, tuple[int, int]] = {}
    last_uses: list[list[tuple[int, int] | None]] = []
    for number, (asked, blocks) in enumerate(zip(wanted, used, strict=True)):
        last_uses.append(
            [_after(block, last) if block and block.n_bytes else (0, number - 1) for block in asked]
        )
        for block in blocks:
            n_bytes, _ = last.pop(block.address, (0, 0))
            last[block.address] = max(n_bytes, block.n_bytes), number
    iteration_bytes = sum(n_bytes for n_bytes, _ in last.values())
    iterations_ago = (_SIDES * iteration_bytes, _SIDES * start_ns[-1])
    return [
        [
            (use[0], max(0, start_ns[number] - start_ns[use[1] + 1])) if use else iterations_ago
            for use in call_uses
        ]
        for number, call_uses in enumerate(last_uses)
    ]


def _after(wanted: HostBlock, last: dict[int, tuple[int, int]]) -> tuple[int, int] | None:
    """Return the bytes that were used after a block, and the number of the call that used it.

    None if none did.
    """
    later = 0
    for address, (n_bytes, number) in reversed(last.items()):
        common = min(wanted.address + wanted.n_bytes, address + n_bytes) - max(
            wanted.address, address
        )
        if common >= _MOSTLY * wanted.n_bytes:
            return later, number
        later += n_bytes
    return None


def allocated(recorded: torch.profiler.profile, call: str) -> dict[int, list[HostBlock]]:
    """Return the host's memory that each call allocates, by the number of the call.

    What the call frees again counts as well.

    Operations such as convolutions copy tensors into memory that they free before they end. The
    result of the next operation often takes this memory, which is then in the cache. ``call``
    begins the name of a range around a call; the number of the call follows.
    """
    assert recorded.profiler is not None, "the profile has ended"
    assert recorded.profiler.kineto_results is not None, "the profile has ended"
    blocks: dict[int, list[HostBlock]] = defaultdict(list)
    waiting: list[tuple[Any, int]] = [
        (node, -1) for node in recorded.profiler.kineto_results.experimental_event_tree()
    ]
    while waiting:
        node, number = waiting.pop()
        if node.name.startswith(call):
            number = int(node.name.removeprefix(call))
        kind, values = node.typed
        # Nothing public has addresses.
        is_allocation = kind == torch._C._profiler._EventType.Allocation  # noqa: SLF001
        if (
            is_allocation
            and number >= 0
            and values.alloc_size > 0
            and values.ptr
            and values.device.type == "cpu"
        ):
            blocks[number].append(HostBlock(values.ptr, values.alloc_size))
        waiting += [(child, number) for child in node.children]
    return blocks
