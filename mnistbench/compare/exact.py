"""What differs exactly between two runs of a case: facts that no noise can make, apart from timings.

Calls, bytes, shapes, kernels and the set of operations are counted, not measured. On one thread of a CPU the same code
reaches the same loss to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from mnistbench.compare.diff import CaseComparison, OpChange, Side
from mnistbench.core import units
from mnistbench.core.operation import operation_name

#: Where results are not the same to the bit (several threads, an accelerator), final values may differ by this share. A
#: choice: on two threads of a CPU runs of the same code differed by less; no accelerator has been seen yet.
TOLERANCE = 0.01


def exact_differences(case: CaseComparison) -> tuple[str, ...]:
    """Return what differs exactly, a sentence each, the operations of the largest changes first; empty where nothing does."""
    return (*_of_the_model(case), *_of_training(case), *_of_operations(case))


def _of_the_model(case: CaseComparison) -> Iterable[str]:
    before, after = case.base.parameter_count, case.now.parameter_count
    if before and after and before != after:  # a plain benchmark says nothing of a model
        yield f"parameters: {before:,} -> {after:,}"
    if case.operations:
        bytes_before, bytes_after = (
            sum(side.memory_bytes for change in case.operations if (side := getattr(change, name))) for name in ("base", "now")
        )
        if bytes_before != bytes_after:
            yield f"bytes allocated less freed per iteration: {bytes_before:,} -> {bytes_after:,}"


def _of_operations(case: CaseComparison) -> Iterable[str]:
    operations = [change for change in case.operations if change.is_operation]
    renamed = {id(old): new for old, new in renamed_operations(operations)}
    renames = {id(new) for new in renamed.values()}
    for change in operations:
        name = operation_name(*change.key)
        if id(change) in renamed:
            yield f"{name}: is now {renamed[id(change)].name}, with the same calls and bytes"
        elif change.now is None:
            yield f"{name}: vanished"
        elif change.base is None:
            if id(change) not in renames:
                yield f"{name}: new, {units.count(change.now.calls)} call{'' if change.now.calls == 1 else 's'}"
        elif different := list(_of_sides(change.base, change.now)):
            yield f"{name}: {', '.join(different)}"


def _of_sides(base: Side, now: Side) -> Iterable[str]:
    if base.calls != now.calls:
        yield f"{_arrow(base.calls, now.calls, units.count)} calls"
    if base.memory_bytes != now.memory_bytes:
        yield f"{base.memory_bytes:,} -> {now.memory_bytes:,} bytes"
    for what in ("shapes", "kernels"):
        before, after = getattr(base, what), getattr(now, what)
        if before and after and before != after:
            yield f"{'input ' if what == 'shapes' else ''}{what} {'; '.join(before)} -> {'; '.join(after)}"


def _arrow(before: float, after: float, text: Callable[[float], str]) -> str:
    """Return both with as many digits as it takes to see that they differ."""
    rounded = (text(before), text(after))
    return " -> ".join(rounded if rounded[0] != rounded[1] else map(repr, (before, after)))


def renamed_operations(operations: Iterable[OpChange]) -> list[tuple[OpChange, OpChange]]:
    """Pair a vanished operation with the new one of its place, where both are the only ones and calls and bytes agree."""
    places: dict[tuple[str, str], tuple[list[OpChange], list[OpChange]]] = {}
    for change in operations:
        if change.name and (change.base is None or change.now is None):
            places.setdefault((change.phase, change.module), ([], []))[change.base is None].append(change)
    return [
        (old[0], new[0])
        for old, new in places.values()
        if len(old) == len(new) == 1
        and (old[0].base and new[0].now)
        and (old[0].base.calls, old[0].base.memory_bytes) == (new[0].now.calls, new[0].now.memory_bytes)
    ]


def _of_training(case: CaseComparison) -> Iterable[str]:
    if not case.base.curves_of or case.base.curves_of != case.now.curves_of:
        return
    for tag, after in case.now.final.items():
        before = case.base.final.get(tag)
        if tag.startswith("timing/") or tag not in case.base.final or _same(before, after, exact=is_exact(case)):
            continue
        if before is None or after is None:
            yield f"final {tag}: {final_value(tag, before)} -> {final_value(tag, after)}"
        else:
            yield f"final {tag}: {_arrow(before, after, functools.partial(final_value, tag))}"


def is_exact(case: CaseComparison) -> bool:
    """Whether the same code reaches the same final loss and accuracy to the bit: on one thread of a CPU."""
    params = case.now.params
    return params is not None and params.device == "cpu" and params.threads == 1


def _same(before: float | None, after: float | None, *, exact: bool) -> bool:
    if before is None or after is None or exact:
        return before == after
    return abs(after - before) <= TOLERANCE * max(abs(before), abs(after))


def final_value(tag: str, value: float | None) -> str:
    """Return a final loss or accuracy as text."""
    if value is None:
        return "not finite"
    return units.percent(value / 100) if tag.endswith("accuracy") else f"{value:.6g}"
