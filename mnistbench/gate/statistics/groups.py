"""Groups of operations that are compared together."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mnistbench.compare.criteria import Criteria
from mnistbench.core.operation import (
    NOT_OPERATIONS,
    OpKey,
    operation_name,
    place_name,
)
from mnistbench.gate.statistics.differences import differ_by, difference, times_of
from mnistbench.gate.statistics.raw_samples import Build, SideSample
from mnistbench.gate.words import ADDED, BASE, HEAD, OPERATION, OTHER, OUTSIDE_KIND, REPLACED

#: A quantity of a case: (kind, name, summed operations).
Group = tuple[str, str, Sequence[OpKey]]


def groups(launches: Sequence[Sequence[Build]]) -> list[Group]:
    """Return the groups to test.

    Large operations singly, operations of one side only by place, and the rest together.

    The grouping is symmetric in the two sides and uses all launches together. It therefore does not
    depend on the roles in any launch, as the permutation test requires.
    """
    sides = [side for builds in launches for build in builds for side in build.values()]
    if not all(side.operations for side in sides):
        return []
    everywhere = set.intersection(*(set(side.operations) for side in sides))
    ever = set().union(*(side.operations for side in sides))
    whole = sum(sum_of(side, side.operations) for side in sides)
    found: list[Group] = []
    rest: list[OpKey] = []
    for key in sorted(key for key in everywhere if key[0] not in NOT_OPERATIONS):
        if Criteria().matters(sum(sum_of(side, (key,)) for side in sides), whole):
            found.append((OPERATION, operation_name(*key), (key,)))
        else:
            rest.append(key)
    found += _replaced(
        launches, sorted(key for key in ever - everywhere if key[0] not in NOT_OPERATIONS)
    )
    for name in sorted({key[0] for key in ever} & NOT_OPERATIONS):
        outside = tuple(sorted(key for key in ever if key[0] == name))
        found.append((OUTSIDE_KIND, operation_name(name, "", ""), outside))
    if rest:
        found.append((OTHER, OTHER, tuple(rest)))
    return found


def _replaced(launches: Sequence[Sequence[Build]], changed: Sequence[OpKey]) -> Iterable[Group]:
    """Yield new and gone operations, grouped by phase and module.

    Those of new or gone modules are one group.

    A renamed module is a gone module and a new one, which have to be compared with each other. The
    name of a group does not contain its operations, because they depend on the roles.
    """
    builds = [build for builds in launches for build in builds]
    in_all = set.intersection(
        *({key[1:] for key in side.operations} for build in builds for side in build.values())
    )
    places: dict[tuple[str, ...], list[OpKey]] = defaultdict(list)
    for key in changed:
        places[key[1:] if key[1:] in in_all else ()].append(key)
    for place, keys in sorted(places.items()):
        where = place_name(*place) or "no module" if place else "new and gone modules"
        yield (
            REPLACED if _are_large(builds, keys) else ADDED,
            f"new and gone operations, {where}",
            tuple(keys),
        )


def _are_large(builds: Sequence[Build], keys: Sequence[OpKey]) -> bool:
    """Whether the sum of operations matters on both sides of a build, on average.

    Then its logarithm is compared.

    The smaller sum of each build counts, so the answer does not depend on the roles.
    """
    if not all(
        math.isfinite(differ_by(difference, functools.partial(times_of, keys), build))
        for build in builds
    ):
        return False
    smaller = sum(min(sum_of(side, keys) for side in build.values()) for build in builds)
    whole = sum(sum_of(side, side.operations) for build in builds for side in build.values())
    return Criteria().matters(len((BASE, HEAD)) * smaller, whole)


def sum_of(side: SideSample, keys: Iterable[OpKey]) -> int:
    """Return the sum of times over operations and iterations, ns.

    0 for an operation that the side does not have.
    """
    return sum(sum(side.operations[key].self_ns) for key in keys if key in side.operations)
