"""Exact differences between two runs of a case.

Counts and final values, which noise cannot affect, never timings.

Calls, bytes, shapes, kernels and the set of operations are counted, not timed. On one thread of a
CPU the same code reaches the same loss bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mnistbench.compare.diff import CaseComparison, OpChange, OpTotals
from mnistbench.core import units
from mnistbench.core.operation import NOT_OPERATIONS, operation_name
from mnistbench.saved_runs.compatibility import MACHINES

#: Largest relative difference of final values where results are not reproducible bit for bit
#: (several threads, an accelerator). Runs of the same code on two threads of a CPU differed by
#: less; no accelerator has been measured yet.
TOLERANCE = 0.01

#: Shapes or kernels of one side in a brief sentence.
FEW = 2
#: The longest text of a shape or kernel in a brief sentence, in characters.
LONGEST = 80

#: The counted fields that are lists.
_COUNTED_LISTS = ("shapes", "kernels")


def exact_differences(case: CaseComparison, *, brief: bool = False) -> tuple[str, ...]:
    """Return a sentence for each exact difference, in the order of the operations of the case.

    If it is ``brief``, long lists of shapes and kernels are shortened, and kernels of different
    machines only counted.
    """
    parameters = (case.base.parameter_count, case.head.parameter_count)
    same_machine = not case.across_machines and not set(MACHINES).intersection(case.incomparable)
    listed = _COUNTED_LISTS if same_machine or not brief else ("shapes",)
    kernels = [
        (change.base.kernels, change.head.kernels)
        for change in case.operations
        if change.base and change.head
    ]
    left_out = sum(
        bool(before and after and before != after)
        for before, after in kernels
        if "kernels" not in listed
    )
    return (
        *_of_the_model(parameters, case.operations),
        *_of_training(case),
        *(
            [
                (
                    f"kernels of {left_out} operation{'s' if left_out > 1 else ''} differ between "
                    "the machines"
                )
            ]
            if left_out
            else []
        ),
        *_of_operations(case.operations, listed, brief=brief),
    )


def counted_differences(parameters: tuple[int, int], changes: Sequence[Any]) -> tuple[str, ...]:
    """Return a sentence for each exact difference of a model and its operations.

    Args:
        parameters: number of trainable parameters in the base and in the new run; 0 if unknown.
        changes: all operations of both sides, in the order of the sentences; each has the name,
            phase, module, base and head of an ``OpChange``, and each side the counts of an
            ``OpTotals``: times are not read.
    """
    return (*_of_the_model(parameters, changes), *_of_operations(changes))


def _of_the_model(parameters: tuple[int, int], changes: Sequence[OpChange]) -> Iterable[str]:
    before, after = parameters
    if before and after and before != after:  # a plain benchmark has no model
        yield f"parameters: {before:,} -> {after:,}"
    bytes_before = sum(change.base.memory_bytes for change in changes if change.base)
    bytes_after = sum(change.head.memory_bytes for change in changes if change.head)
    if bytes_before != bytes_after:
        yield f"bytes allocated less freed per iteration: {bytes_before:,} -> {bytes_after:,}"


def _of_operations(
    changes: Iterable[OpChange], listed: Sequence[str] = _COUNTED_LISTS, *, brief: bool = False
) -> Iterable[str]:
    operations = [change for change in changes if change.name not in NOT_OPERATIONS]
    renamed = {id(old): new for old, new in _renamed(operations)}
    renames = {id(new) for new in renamed.values()}
    for change in operations:
        name = operation_name(change.name, change.phase, change.module)
        if id(change) in renamed:
            yield f"{name}: is now {renamed[id(change)].name}, with the same calls and bytes"
        elif change.head is None:
            yield f"{name}: vanished"
        elif change.base is None:
            if id(change) not in renames:
                yield (
                    f"{name}: new, {units.count(change.head.calls)} "
                    f"call{'' if change.head.calls == 1 else 's'}"
                )
        elif different := list(_of_sides(change.base, change.head, listed, brief=brief)):
            yield f"{name}: {', '.join(different)}"


def _of_sides(
    base: OpTotals, head: OpTotals, listed: Sequence[str], *, brief: bool
) -> Iterable[str]:
    if base.calls != head.calls:
        yield f"{_arrow(base.calls, head.calls, units.count)} calls"
    if base.memory_bytes != head.memory_bytes:
        yield f"{base.memory_bytes:,} -> {head.memory_bytes:,} bytes"
    for what in listed:
        before = getattr(base, what)
        after = getattr(head, what)
        if before and after and before != after:
            name = f"{'input ' if what == 'shapes' else ''}{what}"
            yield (
                _of_lists(name, before, after)
                if brief
                else f"{name} {'; '.join(before)} -> {'; '.join(after)}"
            )


def _of_lists(name: str, before: Sequence[str], after: Sequence[str]) -> str:
    """Return the shapes or kernels that one side alone has, a few of each."""
    sides = []
    for mine, others in ((before, after), (after, before)):
        texts = [units.cut(text, LONGEST) for text in mine if text not in others]
        sides.append(
            "; ".join([*texts[:FEW], *([f"{len(texts) - FEW} more"] if len(texts) > FEW else [])])
        )
    gone, new = sides
    return (
        f"{name} {gone} -> {new}"
        if gone and new
        else f"{name} also {new}"
        if new
        else f"{name} no longer {gone}"
    )


def _arrow(before: float, after: float, text: Callable[[float], str]) -> str:
    """Return both values, with as many digits as are needed to tell them apart."""
    rounded = (text(before), text(after))
    return " -> ".join(rounded if rounded[0] != rounded[1] else map(repr, (before, after)))


def _renamed(operations: Iterable[OpChange]) -> list[tuple[OpChange, OpChange]]:
    """Return pairs (gone, new) of operations that were probably renamed.

    Both are the only one of their kind in their phase and module, and have the same number of calls
    and bytes.
    """
    places: dict[tuple[str, str], tuple[list[OpChange], list[OpChange]]] = {}
    for change in operations:
        if change.base is None or change.head is None:
            places.setdefault((change.phase, change.module), ([], []))[change.base is None].append(
                change
            )
    return [
        (old[0], new[0])
        for old, new in places.values()
        if len(old) == len(new) == 1
        and (old[0].base and new[0].head)
        and (old[0].base.calls, old[0].base.memory_bytes)
        == (new[0].head.calls, new[0].head.memory_bytes)
    ]


def _of_training(case: CaseComparison) -> Iterable[str]:
    for tag, (before, after) in case.final_values.items():
        if before == after:
            continue
        if before is None or after is None:
            yield f"final {tag}: {final_value(tag, before)} -> {final_value(tag, after)}"
        elif is_exact(case) or abs(after - before) > TOLERANCE * max(abs(before), abs(after)):
            yield f"final {tag}: {_arrow(before, after, functools.partial(final_value, tag))}"


def is_exact(case: CaseComparison) -> bool:
    """Whether the same code reaches the same final loss and accuracy bit for bit.

    On one thread of a CPU.
    """
    params = case.head.params
    return params is not None and params.device == "cpu" and params.threads == 1


def final_value(tag: str, value: float | None) -> str:
    """Return a final loss or accuracy as text."""
    if value is None:
        return "not finite"
    return units.percent(value / 100) if tag.endswith("accuracy") else f"{value:.6g}"
