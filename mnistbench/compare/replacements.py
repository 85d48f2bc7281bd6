"""Which operations replaced which: a new one may be an old one renamed, fused or split.

Replacements are found by place (phase and module), whatever the share of an operation is: four
small operations that are fused into a large one are as much a replacement as one large operation
with a new name. If the sides are exchanged, the operations that only one side has are in the same
groups.

Where one side alone is compiled, replacements are found by the modules of its kernels. A generated
kernel computes operations of several modules (``norm + act``), so modules that share a kernel are
compared by their sums. What compiled code adds is in no module: the time outside its kernels, and
that of guards.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mnistbench.compare.diff import CaseComparison, OpChange
from mnistbench.core import units
from mnistbench.core.compiled.names import COMPILED, FUSED, LOOKUP
from mnistbench.core.operation import (
    NAMED,
    NO_MODULE,
    names_of_sides,
    replacement_title,
    shortened,
)

#: Share of the change of the operations that only one side has from which on the operations of
#: their place that have other numbers of calls explain it: then work moved between them.
MIN_MOVED = 0.5

#: Multiple of the time that vanished up to which remaining operations of the place may have taken
#: it over. If they gained more, they got slower by themselves.
MAX_MOVED = 2.0

#: Between the modules of a kernel.
_JOINS = " + "

#: The modules of a kernel that its row does not name: ``2 others``.
_UNNAMED = re.compile(r"\d+ others")

#: Stands for all modules of a phase that rows do not name.
_OTHERS = "others"

#: What is no name of a module.
_NO_NAMES = (NO_MODULE, _OTHERS)

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


# ---- Eager operations and compiled code ----------------------------------------------------------


@dataclass(frozen=True)
class ModuleGroup:
    """The operations of modules in a phase, eager ones and those that replaced them."""

    modules: tuple[str, ...]  # those that a kernel names, in its order, then the others
    phase: str
    members: tuple[OpChange, ...]  # in the order of the operations of the case

    @property
    def module(self) -> str:
        """The modules as tables show them: ``norm + act``."""
        return _JOINS.join(units.and_others(self.modules, NAMED))

    @property
    def operations(self) -> str:
        """What replaced what: ``aten::native_layer_norm + aten::gelu -> fused gelu``."""
        base, head = self.names
        if not any((*base, *head)):  # the operations of a module are summed
            return replacement_title(
                (change.key, change.base_ns, change.head_ns) for change in self.members
            )
        return names_of_sides(base, head)

    @property
    def names(self) -> tuple[dict[str, float], dict[str, float]]:
        """The operations of base and head: their names and times."""
        base: dict[str, float] = defaultdict(float)
        head: dict[str, float] = defaultdict(float)
        for change in self.members:
            for names, ns in ((base, change.base_ns), (head, change.head_ns)):
                if ns is not None:
                    names[shortened(change.name)] += ns
        return dict(base), dict(head)

    @property
    def title(self) -> str:
        """``norm + act, forward: aten::native_layer_norm + aten::gelu -> fused gelu``."""
        place = ", ".join(filter(None, (self.module, self.phase)))
        return f"{place}: {self.operations}" if place else self.operations

    @property
    def base_ns(self) -> float | None:
        """Sum over the members; None if the base has none of them."""
        return _sum_of_known(change.base_ns for change in self.members)

    @property
    def head_ns(self) -> float | None:
        """Sum over the members; None if the head has none of them."""
        return _sum_of_known(change.head_ns for change in self.members)


def module_groups(
    case: CaseComparison, operations: Sequence[OpChange], named: Collection[int] = ()
) -> list[ModuleGroup]:
    """Return the modules whose operations compilation replaced, phase by phase.

    Modules that share a kernel are one group. So are those of which only eager code has operations,
    with a kernel that does not name all of its modules. Operations outside of modules are a group
    of their phase if one side alone has them. What compiled code adds is in no group.

    Args:
        case: the case; there are no groups unless one of its sides alone is compiled, and its
            kernels have modules, which a recorded trace does not tell.
        operations: all operations of the case.
        named: ids of the operations that are judged by themselves, because a threshold names them.
    """
    if not case.compiled_side:
        return []
    compiled = [change for change in operations if getattr(change, case.compiled_side)]
    kernels = [change for change in compiled if change.name.startswith(FUSED)]
    if not any(change.module for change in kernels or compiled):
        return []
    changes_of_phase: dict[str, list[OpChange]] = defaultdict(list)
    for change in operations:
        is_on_both = bool(change.base and change.head)
        is_alone = is_on_both and (id(change) in named or change.module == NO_MODULE)
        if change.name not in (COMPILED, LOOKUP) and not is_alone:
            changes_of_phase[change.phase].append(change)
    groups = []
    for phase, changes in changes_of_phase.items():
        for modules in _connected(changes, case.compiled_side):
            members = [change for change in changes if modules.intersection(_modules_of(change))]
            if any(change.base is None or change.head is None for change in members):
                groups.append(ModuleGroup(_in_order(modules, members), phase, tuple(members)))
    return groups


def _modules_of(change: OpChange) -> list[str]:
    """Return the modules of an operation, or of the operations that a kernel computes."""
    return [
        _OTHERS if _UNNAMED.fullmatch(module) else module for module in change.module.split(_JOINS)
    ]


def _connected(changes: Sequence[OpChange], compiled_side: str) -> list[set[str]]:
    """Return the sets of modules of a phase that share kernels."""
    groups: list[set[str]] = []
    for change in changes:
        groups = _joined(groups, set(_modules_of(change)))
    if not any(_OTHERS in modules for modules in groups):
        return groups
    compiled = {
        module
        for change in changes
        if getattr(change, compiled_side)
        for module in _modules_of(change)
    }
    eager_alone = {module for modules in groups for module in modules} - compiled - {NO_MODULE}
    return _joined(groups, eager_alone | {_OTHERS})


def _joined(groups: Sequence[set[str]], modules: set[str]) -> list[set[str]]:
    """Return groups of modules, those with one of these modules as one group."""
    apart = [group for group in groups if not group & modules]
    return [*apart, modules.union(*(group for group in groups if group & modules))]


def _in_order(modules: Collection[str], members: Sequence[OpChange]) -> tuple[str, ...]:
    """Return the modules, those of the kernel with the most modules first, in its order.

    The order of the members depends on their times, so it is not that of the modules.
    """
    by_kernel = sorted(map(_modules_of, members), key=lambda names: (-len(names), names))
    ordered = dict.fromkeys(module for of_kernel in by_kernel for module in of_kernel)
    return tuple(module for module in ordered if module in modules and module not in _NO_NAMES)


def _sum_of_known(times_ns: Iterable[float | None]) -> float | None:
    known = [ns for ns in times_ns if ns is not None]
    return sum(known) if known else None
