"""Groups of operations that are compared together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from mnistbench.core.operation import NOT_OPERATIONS, OpKey, operation_name, place_name
from mnistbench.gate.statistics.differences import difference, summed_ns
from mnistbench.gate.statistics.raw_samples import Build, SideSample
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.grouping import is_judged_alone
from mnistbench.judging.kinds import ADDED, OPERATION, OTHER, OUTSIDE_KIND, REPLACED


class OperationGroup(NamedTuple):
    """Operations of a case that are one quantity."""

    kind: str  # OPERATION, REPLACED, ADDED, OUTSIDE_KIND or OTHER
    name: str
    members: tuple[OpKey, ...]


def groups(builds: Sequence[Build]) -> list[OperationGroup]:
    """Return the groups to test.

    Large operations singly, operations of one side only by place, and the rest together.

    The grouping is symmetric in the two sides and uses all launches together. It therefore does not
    depend on the roles in any launch, as the permutation test requires.

    Args:
        builds: all builds of the case in all launches.
    """
    sides = [side for build in builds for side in build.values()]
    if not all(side.operations for side in sides):
        return []
    everywhere = set.intersection(*(set(side.operations) for side in sides))
    anywhere = set().union(*(side.operations for side in sides))
    whole_ns = sum(total_ns(side, side.operations) for side in sides)
    single: list[OperationGroup] = []
    small: list[OpKey] = []
    for key in sorted(key for key in everywhere if key[0] not in NOT_OPERATIONS):
        if is_judged_alone(sum(total_ns(side, (key,)) for side in sides), whole_ns):
            single.append(OperationGroup(OPERATION, operation_name(*key), (key,)))
        else:
            small.append(key)
    one_sided = sorted(key for key in anywhere - everywhere if key[0] not in NOT_OPERATIONS)
    outside = [
        OperationGroup(
            OUTSIDE_KIND,
            operation_name(name, "", ""),
            tuple(sorted(key for key in anywhere if key[0] == name)),
        )
        for name in sorted({key[0] for key in anywhere} & NOT_OPERATIONS)
    ]
    other = [OperationGroup(OTHER, OTHER, tuple(small))] if small else []
    return [*single, *_one_sided_groups(builds, one_sided), *outside, *other]


def total_ns(side: SideSample, keys: Iterable[OpKey]) -> int:
    """Return the sum of times over operations and iterations, ns.

    0 for an operation that the side does not have.
    """
    return sum(sum(side.operations[key].self_ns) for key in keys if key in side.operations)


def _one_sided_groups(
    builds: Sequence[Build], one_sided: Sequence[OpKey]
) -> Iterable[OperationGroup]:
    """Yield new and gone operations, grouped by phase and module.

    Those of new or gone modules are one group.

    A renamed module is a gone module and a new one, which have to be compared with each other. The
    name of a group does not contain its operations, because they depend on the roles.
    """
    places_of_sides = [
        {key[1:] for key in side.operations} for build in builds for side in build.values()
    ]
    places_everywhere = set.intersection(*places_of_sides)
    keys_of_place: dict[tuple[str, ...], list[OpKey]] = defaultdict(list)
    for key in one_sided:
        keys_of_place[key[1:] if key[1:] in places_everywhere else ()].append(key)
    for place, keys in sorted(keys_of_place.items()):
        where = place_name(*place) or "no module" if place else "new and gone modules"
        kind = REPLACED if _are_large(builds, keys) else ADDED
        yield OperationGroup(kind, f"new and gone operations, {where}", tuple(keys))


def _are_large(builds: Sequence[Build], keys: Collection[OpKey]) -> bool:
    """Whether both sides spend at least 2 % of the case in these operations.

    If so their ratio is tested, otherwise the share of the case that they add. The smaller side of
    each build counts, so exchanging the sides changes nothing.
    """
    has_differences = all(
        math.isfinite(difference(summed_ns(build[BASE], keys), summed_ns(build[HEAD], keys)).log)
        for build in builds
    )
    if not has_differences:
        return False
    smaller_ns = sum(min(total_ns(side, keys) for side in build.values()) for build in builds)
    whole_ns = sum(total_ns(side, side.operations) for build in builds for side in build.values())
    return is_judged_alone(len((BASE, HEAD)) * smaller_ns, whole_ns)
