"""Which operations replaced which: a new one may be an old one renamed, fused or split.

Replacements are found by place (phase and module), whatever the share of an operation is: four
small operations that are fused into a large one are as much a replacement as one large operation
with a new name. If the sides are exchanged, the operations that only one side has are in the same
groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from mnistbench.compare.diff import OpChange

#: Share of the change of the operations that only one side has from which on the operations of
#: their place that have other numbers of calls explain it: then work moved between them.
MIN_MOVED = 0.5

#: Multiple of the time that vanished up to which remaining operations of the place may have taken
#: it over. If they gained more, they got slower by themselves.
MAX_MOVED = 2.0

#: Phase and module.
Place = tuple[str, str]


def replacements(
    operations: Sequence[OpChange], named: Collection[int] = ()
) -> list[list[OpChange]]:
    """Return the groups of operations that are compared with each other by their sums.

    A group has the operations of one place that vanished and those that are new there. Work may
    also have moved between them and an operation of the place that both sides have: it belongs to
    the group if its calls and its time changed in the direction that explains the change of the
    others. A module that only one side has may have been renamed: such modules of one phase are
    compared with each other, else those of all phases.

    Args:
        operations: all operations of a case.
        named: ids of the operations that are judged by themselves, because a threshold names them.

    Returns:
        Groups with at least one operation that only one side has, each in the order of
        ``operations``.
    """
    shared = _places(change for change in operations if change.base) & _places(
        change for change in operations if change.head
    )
    changes_of_place: dict[Place, list[OpChange]] = defaultdict(list)
    remaining: dict[Place, list[OpChange]] = defaultdict(list)
    in_one_sided_places: list[OpChange] = []
    for change in operations:
        place = _place(change)
        if change.base and change.head:
            if id(change) not in named:
                remaining[place].append(change)
        elif place in shared:
            changes_of_place[place].append(change)
        else:
            in_one_sided_places.append(change)
    groups = [
        [*changes, *_moved(changes, remaining[place])]
        for place, changes in changes_of_place.items()
    ]
    groups += _of_renamed_modules(in_one_sided_places)
    position = {id(change): number for number, change in enumerate(operations)}
    return [sorted(group, key=lambda change: position[id(change)]) for group in groups]


def _place(change: OpChange) -> Place:
    return (change.phase, change.module)


def _places(changes: Iterable[OpChange]) -> set[Place]:
    return set(map(_place, changes))


def _moved(one_sided: Sequence[OpChange], remaining: Sequence[OpChange]) -> list[OpChange]:
    """Return the operations of a place, on both sides, that work was moved from or to."""
    rise_ns = sum(change.change_ns for change in one_sided)
    if rise_ns > 0:
        gave = [change for change in remaining if _calls_risen(change) < 0 and change.change_ns < 0]
        saved_ns = -sum(change.change_ns for change in gave)
        return gave if saved_ns >= MIN_MOVED * rise_ns else []
    took = [change for change in remaining if _calls_risen(change) > 0 and change.change_ns > 0]
    gained_ns = sum(change.change_ns for change in took)
    return took if MIN_MOVED * -rise_ns <= gained_ns <= MAX_MOVED * -rise_ns else []


def _calls_risen(change: OpChange) -> float:
    return change.head.calls - change.base.calls if change.base and change.head else 0.0


def _of_renamed_modules(changes: Iterable[OpChange]) -> Iterable[list[OpChange]]:
    changes_of_phase: dict[str, list[OpChange]] = defaultdict(list)
    for change in changes:
        changes_of_phase[change.phase].append(change)
    one_sided: list[OpChange] = []
    for phase_changes in changes_of_phase.values():
        if _has_both(phase_changes):
            yield phase_changes
        else:
            one_sided += phase_changes
    if _has_both(one_sided):
        yield one_sided
        return
    changes_of_place: dict[Place, list[OpChange]] = defaultdict(list)
    for change in one_sided:
        changes_of_place[_place(change)].append(change)
    yield from changes_of_place.values()


def _has_both(changes: Collection[OpChange]) -> bool:
    """Whether some operations vanished and others are new."""
    return any(change.head is None for change in changes) and any(
        change.base is None for change in changes
    )
