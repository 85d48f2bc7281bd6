"""Operations of a case: which are compared together, and their difference in a build."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mnistbench.core.operation import NOT_OPERATIONS, OpKey, operation_name, place_name
from mnistbench.gate.statistics.differences import Difference, Times, case_difference, difference
from mnistbench.gate.statistics.permutation import Array
from mnistbench.gate.statistics.raw_samples import Build, SideSample
from mnistbench.gate.words import BASE, BUSY, HEAD, WALL
from mnistbench.judging.grouping import is_judged_alone
from mnistbench.judging.kinds import ADDED, ITERATION, OPERATION, OTHER, OUTSIDE_KIND, REPLACED

# ---- Groups --------------------------------------------------------------------------------------


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


# ---- Differences of operations -------------------------------------------------------------------


def group_log(group: OperationGroup, build: Build) -> float:
    """Return log(head / base) of a group; of ADDED that of its case."""
    if group.kind == REPLACED:
        return _replaced_log(build, group.members)
    if group.kind == ADDED:
        return _added_log(build, group.members)
    return _operation_difference(build, group.members).log


def summed_ns(side: SideSample, keys: Iterable[OpKey]) -> Array:
    """Return the sum over operations for each profiled iteration, ns.

    0 for operations that the side does not have.
    """
    rows = [side.operations[key].self_ns for key in keys if key in side.operations]
    iterations = max((len(operation.self_ns) for operation in side.operations.values()), default=0)
    return np.sum(rows, axis=0, dtype=np.float64) if rows else np.zeros(iterations)


def whole_ns(side: SideSample) -> Times:
    """Return the times that operations have shares of.

    Busy times of an accelerator, else the sums of all operations.
    """
    return side.times[BUSY] if BUSY in side.times else summed_ns(side, side.operations)


def _operation_difference(build: Build, keys: Collection[OpKey]) -> Difference:
    """Return the difference of operations that both sides have.

    If both sides ran blocks at once, it is the mean of two estimates: the change of the operations
    over pairs of profiled iterations, and the change of their share of the iteration plus that of
    the untraced case. The share does not depend on a change of the machine's speed between the
    iterations of a pair. The overhead of the profiler has to be the same on both sides, so they
    have to have the same number of calls, and small, which it is not for the short call of a plain
    test.
    """
    base = build[BASE]
    head = build[HEAD]
    has_shares = all(side.block_ns and side.by_share for side in (base, head))
    if not has_shares or _calls(base) != _calls(head):
        return difference(summed_ns(base, keys), summed_ns(head, keys))
    operations = difference(_mean_with_share(base, keys), _mean_with_share(head, keys))
    case = case_difference(build, WALL, ITERATION)
    return Difference(
        operations.log + case.log / 2, operations.squared_error + case.squared_error / 2
    )


def _mean_with_share(side: SideSample, keys: Iterable[OpKey]) -> Array:
    """Return exp of half of log(time) + log(time / whole) of each iteration."""
    time = summed_ns(side, keys)
    whole = summed_ns(side, side.operations)
    return np.divide(time, np.sqrt(whole), out=np.zeros_like(time), where=whole != 0)


def _calls(side: SideSample) -> float:
    """Return the number of calls of all operations in an iteration."""
    return sum(
        operation.calls
        for key, operation in side.operations.items()
        if key[0] not in NOT_OPERATIONS
    )


# ---- Operations of one side ----------------------------------------------------------------------


def _replaced_log(build: Build, keys: Collection[OpKey]) -> float:
    """Return the change of the sum of replaced operations, as a logarithm.

    Without the part that moved within their places.
    """
    change = difference(summed_ns(build[BASE], keys), summed_ns(build[HEAD], keys)).log
    alone = _log_added(build, keys)
    return change * (_added_log(build, keys) / alone) if alone else change


def _added_log(build: Build, keys: Collection[OpKey]) -> float:
    """Return the change of a case by new and gone operations, as a logarithm.

    Limited by the change of their places.

    Without the limit, work that moves from a remaining operation to a new one of the same place
    would look like a slowdown. Returns the value closer to 0 of the two, and 0 if their signs
    differ.
    """
    places = {key[1:] for key in keys}
    around = {
        key
        for side in build.values()
        for key in side.operations
        if key[1:] in places and key[0] not in NOT_OPERATIONS
    }
    alone = _log_added(build, keys)
    with_places = _log_added(build, around)
    if math.isnan(alone) or math.isnan(with_places):
        return math.nan
    return min(alone, with_places, key=abs) if alone * with_places > 0 else 0.0


def _log_added(build: Build, keys: Collection[OpKey]) -> float:
    """Return the median over pairs of log((rest + new) / (rest + gone)).

    An operation takes no time on a side that does not have it. The rest of an iteration is the mean
    of both iterations of a pair: exchanging the sides then only changes the sign, and the speed of
    the machine cancels.
    """
    gone = summed_ns(build[BASE], keys)
    new = summed_ns(build[HEAD], keys)
    count = min(len(gone), len(new))
    rests = [summed_ns(side, side.operations.keys() - keys)[:count] for side in build.values()]
    rest = sum(rests) / 2
    return difference(rest + gone[:count], rest + new[:count]).log
