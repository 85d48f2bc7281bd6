"""Quantities that are compared between the sides, with their differences in all launches."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mnistbench.core.operation import (
    OpKey,
    replacement_title,
)
from mnistbench.gate.statistics.differences import (
    added_share,
    changed_sum,
    differ_in_build,
    differ_in_profile,
    difference,
    difference_of_means,
    squared_error_by_pairs,
    times_by,
    times_of,
    whole_times,
)
from mnistbench.gate.statistics.groups import Group, groups, sum_of
from mnistbench.gate.statistics.raw_samples import Build, Launch, SideSample
from mnistbench.gate.words import (
    ADDED,
    ALL_CASES,
    BASE,
    BUSY,
    CLOCK_TITLES,
    CPU,
    DEVICE,
    HEAD,
    ITERATION,
    MEAN,
    MEMORY,
    NO_CLOCK,
    ONCE,
    REPLACED,
    RESIDENT,
    WALL,
)

#: A cost that takes less, as the mean of both sides over all launches, is not tested. This is also
#: added to the times of both sides before they are compared, so a cost that one side does not have
#: has a change, and small ones have small changes.
LEAST_ONCE_NS = 5_000_000


class Replaced(NamedTuple):
    """An operation that is new, gone, or not in every build of both sides."""

    key: OpKey
    base_ns: float | None  # median over builds; None if the base never calls it
    head_ns: float | None  # the same of the head


@dataclass(frozen=True)
class Quantity:
    """A quantity that is compared between the sides: the time of a case, or of operations of it."""

    case: str  # node id
    kind: str  # ITERATION, MEAN, OPERATION, REPLACED, ADDED, OUTSIDE_KIND, OTHER, ONCE or MEMORY
    name: str  # the clock for a case, else the operation
    clock: str
    members: tuple[OpKey, ...]  # summed operations; none for a case
    # Per launch: log(head / base), mean over builds; NaN if there are too few usable times.
    logs: tuple[float, ...]
    base_ns: float  # median over builds or launches, of ONCE the mean; of MEMORY in bytes
    head_ns: float
    # Of its case in the base, on an accelerator of its busy time; 1 for a case; for ADDED on the
    # larger side; 0 if it is once
    share: float
    replaced: tuple[Replaced, ...] = ()  # for REPLACED and ADDED: all members

    @property
    def is_case(self) -> bool:
        """Whether this is the time of a whole case."""
        return self.kind in (ITERATION, MEAN)

    @property
    def is_once(self) -> bool:
        """Whether this is a cost that occurs once in a process, or its memory."""
        return self.kind in (ONCE, MEMORY)

    @property
    def is_operation(self) -> bool:
        """Whether this is the time of operations, or of a part of an iteration that is none."""
        return not self.is_case and not self.is_once

    @property
    def added(self) -> float:
        """What is added to both sides, so that small costs have small changes.

        In ns, and for MEMORY in bytes.
        """
        return LEAST_ONCE_NS if self.kind == ONCE else 1 if self.kind == MEMORY else 0

    @property
    def weight(self) -> float:
        """Factor that converts its change into a share of its case."""
        return 1.0 if self.kind == ADDED else self.share

    @property
    def title(self) -> str:
        """Name in reports, without the case."""
        if self.is_case:
            return f"{'mean ' if self.kind == MEAN else ''}{CLOCK_TITLES[self.clock]}"
        return replacement_title(self.replaced) if self.replaced else self.name

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the quantity across launches."""
        return (self.case, self.kind, self.name)

    @property
    def how_replaced(self) -> str:
        """Return ``replaced``, ``new``, ``gone``, or ``irregular``.

        The last is of operations that both sides have, but not in every build.
        """
        gone = any(one.head_ns is None for one in self.replaced if one.base_ns is not None)
        new = any(one.base_ns is None for one in self.replaced if one.head_ns is not None)
        return "replaced" if gone and new else "gone" if gone else "new" if new else "irregular"


def quantities(
    launches: Sequence[Launch], grouping: Mapping[str, Sequence[Group]] | None = None
) -> list[Quantity]:
    """Return all quantities of the cases that are in all these launches.

    Args:
        launches: of one stage, or of both.
        grouping: groups of operations per case, as :func:`groups` returns them; those of these
            launches if not given.
    """
    if not launches:
        return []
    found: list[Quantity] = []
    for case in launches[0].cases:
        if all(case in launch.cases for launch in launches):
            builds = [launch.cases[case] for launch in launches]
            found += _of_case(case, builds)
            found += _of_operations(
                case, builds, grouping[case] if grouping and case in grouping else groups(builds)
            )
    return [*found, *_of_once(launches, LEAST_ONCE_NS if grouping is None else 0)]


def quantities_of_stages(launches: Sequence[Launch]) -> tuple[list[Quantity], list[Quantity]]:
    """Return the quantities of the first stage and of the fresh launches.

    Operations of the latter are grouped as in the first.
    """
    stages = [[launch for launch in launches if launch.stage == stage] for stage in (1, 2)]
    first = quantities(stages[0])
    grouping: dict[str, list[Group]] = {}
    for quantity in first:
        if quantity.is_operation:
            grouping.setdefault(quantity.case, []).append(
                (quantity.kind, quantity.name, quantity.members)
            )
    # Costs of the whole process depend on its cases, but not its memory, which is measured with one
    # of them.
    is_whole = all(
        again.cases.keys() == launch.cases.keys() for again in stages[1] for launch in stages[0]
    )
    found = quantities(stages[1], grouping)
    return first, [one for one in found if is_whole or one.case != ALL_CASES or one.kind == MEMORY]


def _of_once(launches: Sequence[Launch], least_ns: float) -> Iterable[Quantity]:
    """Yield the costs that occur once, whose mean is at least ``least_ns``.

    A rule that does not depend on the roles.
    """
    sides = [side for each in launches for side in each.once.values()]
    for name, case in sorted(
        {(name, case) for side in sides for name, cases in side.items() for case in cases}
    ):
        values = [
            [each.once.get(side, {}).get(name, {}).get(case, 0) for side in (BASE, HEAD)]
            for each in launches
        ]
        kind, clock = (MEMORY, NO_CLOCK) if name == RESIDENT else (ONCE, CPU)
        is_complete = all(
            each.once and (case == ALL_CASES or case in each.cases) for each in launches
        )
        if is_complete and statistics.fmean(map(statistics.fmean, values)) >= least_ns:
            # A cost of one of several cases is in a part of the launches only, where the median may
            # be 0.
            typical = statistics.median if kind == MEMORY else statistics.fmean
            base_ns, head_ns = (float(typical(column)) for column in zip(*values, strict=True))
            quantity = Quantity(case, kind, name, clock, (), (), base_ns, head_ns, 0.0)
            logs = tuple(
                math.log((head + quantity.added) / (base + quantity.added)) for base, head in values
            )
            yield replace(quantity, logs=logs)


def _of_case(case: str, launches: Sequence[Sequence[Build]]) -> Iterable[Quantity]:
    sides = [side for builds in launches for build in builds for side in build.values()]
    for clock in (WALL, CPU, DEVICE, BUSY):
        if all(clock in side.times for side in sides) and any(
            any(side.times[clock]) for side in sides
        ):
            times = functools.partial(times_by, clock)
            for kind, differ, summed in (
                (ITERATION, difference, statistics.median),
                (MEAN, difference_of_means, statistics.fmean),
            ):
                logs = _logs(launches, functools.partial(differ_in_build, differ, clock))
                base_ns, head_ns = (
                    _typical(launches, side, times, summed) for side in (BASE, HEAD)
                )
                yield Quantity(case, kind, clock, clock, (), logs, base_ns, head_ns, 1.0)


def _logs(
    launches: Sequence[Sequence[Build]], of_build: Callable[[Build], float]
) -> tuple[float, ...]:
    """Return the difference of each launch: the mean over its builds."""
    return tuple(statistics.fmean(map(of_build, builds)) for builds in launches)


def _typical(
    launches: Sequence[Sequence[Build]],
    side: str,
    times: Callable[[SideSample], Sequence[float]],
    summed: Callable[[Sequence[float]], float] = statistics.median,
) -> float:
    """Return the median over all builds of a summary of each build's times, ns."""
    return statistics.median(
        summed(times(build[side]) or (0,)) for builds in launches for build in builds
    )


def _of_operations(
    case: str, launches: Sequence[Sequence[Build]], grouping: Sequence[Group]
) -> Iterable[Quantity]:
    for kind, name, keys in grouping:
        times = functools.partial(times_of, keys)
        if not any(
            sum_of(side, keys) for builds in launches for build in builds for side in build.values()
        ):
            continue  # a device table has no time outside operations
        base_ns, head_ns = (_typical(launches, side, times) for side in (BASE, HEAD))
        whole = _typical(launches, BASE, whole_times) or 1.0
        differ = (
            functools.partial(changed_sum, keys)
            if kind == REPLACED
            else functools.partial(added_share, keys)
            if kind == ADDED
            else functools.partial(differ_in_profile, keys)
        )
        share = max(base_ns, head_ns) / whole if kind == ADDED else base_ns / whole
        replaced = (
            tuple(_of_sides(launches, key) for key in keys) if kind in (REPLACED, ADDED) else ()
        )
        yield Quantity(
            case,
            kind,
            name,
            "",
            tuple(keys),
            _logs(launches, differ),
            base_ns,
            head_ns,
            share,
            replaced,
        )


def _of_sides(launches: Sequence[Sequence[Build]], key: OpKey) -> Replaced:
    """Return the times of an operation on the sides that have it in any build."""
    has = [
        any(key in build[side].operations for builds in launches for build in builds)
        for side in (BASE, HEAD)
    ]
    base_ns, head_ns = (
        _typical(launches, side, functools.partial(times_of, (key,))) if found else None
        for side, found in zip((BASE, HEAD), has, strict=True)
    )
    return Replaced(key, base_ns, head_ns)


def squared_error(quantity: Quantity, launch: Launch) -> float:
    """Return the squared standard error of a quantity's difference in a launch.

    From the spread of pairs or blocks in it.

    Exchanging the sides does not change it. Only of ITERATION and OPERATION.
    """
    builds = launch.cases[quantity.case]
    if quantity.is_case:
        each = [differ_in_build(squared_error_by_pairs, quantity.clock, build) for build in builds]
    else:
        each = [
            differ_in_profile(quantity.members, build, squared_error_by_pairs) for build in builds
        ]
    return sum(each) / len(each) ** 2
