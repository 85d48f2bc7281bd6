"""Exact differences: sentences about counts, which noise cannot affect, never about timings.

Calls, bytes, shapes, kernels and the set of operations are counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from mnistbench.core import units
from mnistbench.core.operation import BYTES, CALLS, NOT_OPERATIONS, OpKey, operation_name

#: Largest relative difference of final values where results are not reproducible bit for bit
#: (several threads, an accelerator). Runs of the same code on two threads of a CPU differed by
#: less; no accelerator has been measured yet.
TOLERANCE = 0.01

#: Shapes or kernels of one side in a brief sentence.
FEW = 2
#: The longest text of a shape or kernel in a brief sentence, in characters.
LONGEST = 80


class Counts(NamedTuple):
    """What is counted of an operation."""

    calls: float  # per iteration
    memory_bytes: int  # allocated less freed per iteration
    shapes: tuple[str, ...] = ()  # of the inputs; empty if they were not recorded
    kernels: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()  # which counts are averages: CALLS, BYTES


#: The counts of an operation in the base and in the head; None on a side without it.
BothCounts = tuple[Counts | None, Counts | None]


def model_differences(
    parameters: tuple[int, int], operations: Mapping[OpKey, BothCounts]
) -> Iterable[str]:
    """Yield the differences of the whole model.

    Args:
        parameters: number of trainable parameters in the base and in the head; 0 if unknown.
        operations: all operations of both sides.
    """
    before, after = parameters
    if before and after and before != after:  # a plain benchmark has no model
        yield f"parameters: {before:,} -> {after:,}"
    sides = [side for pair in operations.values() for side in pair if side]
    if any(BYTES in side.varying for side in sides):
        return
    bytes_before = sum(base.memory_bytes for base, _ in operations.values() if base)
    bytes_after = sum(head.memory_bytes for _, head in operations.values() if head)
    if bytes_before != bytes_after:
        yield f"bytes allocated less freed per iteration: {bytes_before:,} -> {bytes_after:,}"


def operation_differences(
    operations: Mapping[OpKey, BothCounts], *, with_kernels: bool = True, brief: bool = False
) -> Iterable[str]:
    """Yield a sentence for each operation that differs.

    Args:
        operations: all operations of both sides, in the order of the sentences.
        with_kernels: also compare kernels.
        brief: shorten long lists of shapes and kernels.
    """
    operations = {key: sides for key, sides in operations.items() if key[0] not in NOT_OPERATIONS}
    renamed = dict(_renamed(operations))
    for key, (base, head) in operations.items():
        name = operation_name(*key)
        if key in renamed:
            yield f"{name}: is now {renamed[key][0]}, with the same calls and bytes"
        elif base is None and head is not None:
            if key not in renamed.values() and _always_runs(head):
                about = "about " if CALLS in head.varying else ""
                calls = units.count(head.calls)
                yield f"{name}: new, {about}{calls} call{'' if head.calls == 1 else 's'}"
        elif head is None:
            if base and _always_runs(base):
                yield f"{name}: vanished"
        elif base is not None:
            different = list(_differences(base, head, with_kernels=with_kernels, brief=brief))
            if different:
                yield f"{name}: {', '.join(different)}"


def _always_runs(counts: Counts) -> bool:
    """Return whether the operation runs in every iteration, as far as its number of calls tells.

    One that runs now and then can be missing on a side by chance.
    """
    return CALLS not in counts.varying or counts.calls >= 1


def _differences(base: Counts, head: Counts, *, with_kernels: bool, brief: bool) -> Iterable[str]:
    varying = {*base.varying, *head.varying}
    if base.calls != head.calls and CALLS not in varying:
        yield f"{arrow(base.calls, head.calls, units.count)} calls"
    if base.memory_bytes != head.memory_bytes and BYTES not in varying:
        yield f"{base.memory_bytes:,} -> {head.memory_bytes:,} bytes"
    lists = [("input shapes", base.shapes, head.shapes)]
    if with_kernels:
        lists.append(("kernels", base.kernels, head.kernels))
    for name, before, after in lists:
        if before and after and before != after:
            yield (
                _brief(name, before, after)
                if brief
                else f"{name} {'; '.join(before)} -> {'; '.join(after)}"
            )


def _brief(name: str, before: Sequence[str], after: Sequence[str]) -> str:
    """Return the shapes or kernels that one side alone has, a few of each."""
    gone = _few([text for text in before if text not in after])
    new = _few([text for text in after if text not in before])
    if gone and new:
        return f"{name} {gone} -> {new}"
    return f"{name} also {new}" if new else f"{name} no longer {gone}"


def _few(texts: Sequence[str]) -> str:
    return units.and_more([units.cut(text, LONGEST) for text in texts], FEW, "; ", "; ")


def arrow(before: float, after: float, text: Callable[[float], str]) -> str:
    """Return both values, with as many digits as are needed to tell them apart."""
    rounded = (text(before), text(after))
    return " -> ".join(rounded if rounded[0] != rounded[1] else map(repr, (before, after)))


def _renamed(operations: Mapping[OpKey, BothCounts]) -> Iterable[tuple[OpKey, OpKey]]:
    """Yield pairs (gone, new) of operations that were probably renamed.

    Both are the only one of their kind in their phase and module, and have the same number of calls
    and bytes.
    """
    gone: dict[tuple[str, str], list[OpKey]] = {}
    new: dict[tuple[str, str], list[OpKey]] = {}
    for key, (base, head) in operations.items():
        if base is None:
            new.setdefault(key[1:], []).append(key)
        elif head is None:
            gone.setdefault(key[1:], []).append(key)
    for place in gone.keys() & new.keys():
        if len(gone[place]) == len(new[place]) == 1:
            old_key = gone[place][0]
            new_key = new[place][0]
            before = operations[old_key][0]
            after = operations[new_key][1]
            are_known = before and after and not (before.varying or after.varying)
            if are_known and before and after and before[:2] == after[:2]:
                yield old_key, new_key
