"""Quantities that are compared between the sides, with their differences in all launches."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mnistbench.core.operation import OpKey, replacement_title
from mnistbench.gate.statistics.differences import Times, case_difference
from mnistbench.gate.statistics.operations import (
    OperationGroup,
    group_log,
    groups,
    summed_ns,
    total_ns,
    whole_ns,
)
from mnistbench.gate.statistics.raw_samples import Build, Launch
from mnistbench.gate.words import (
    ALL_CASES,
    BASE,
    BUSY,
    CLOCK_TITLES,
    CPU,
    DEVICE,
    HEAD,
    NO_CLOCK,
    RESIDENT,
    WALL,
)
from mnistbench.judging.kinds import ADDED, ITERATION, MEAN, MEMORY, ONCE, REPLACED

#: Costs that occur once and have a smaller mean, of both sides over all launches, are not tested;
#: nanoseconds (5 ms). It is also added to the times of both sides before their ratio is taken, so
#: a change from 0 to 3 ms is small and finite.
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
        gone = any(
            operation.head_ns is None
            for operation in self.replaced
            if operation.base_ns is not None
        )
        new = any(
            operation.base_ns is None
            for operation in self.replaced
            if operation.head_ns is not None
        )
        return "replaced" if gone and new else "gone" if gone else "new" if new else "irregular"


# ---- Quantities ----------------------------------------------------------------------------------


def quantities(
    launches: Sequence[Launch], grouping: Mapping[str, Sequence[OperationGroup]] | None = None
) -> list[Quantity]:
    """Return all quantities of the cases that are in all these launches.

    Args:
        launches: of one stage, or of both.
        grouping: groups of operations per case, as :func:`groups` returns them; those of these
            launches if not given.
    """
    if not launches:
        return []
    cases = [case for case in launches[0].cases if all(case in launch.cases for launch in launches)]
    measured: list[Quantity] = []
    for case in cases:
        builds = [launch.cases[case] for launch in launches]
        measured += _case_quantities(case, builds)
        case_groups = (grouping or {}).get(case)
        if case_groups is None:
            case_groups = groups(_flat(builds))
        measured += _operation_quantities(case, builds, case_groups)
    return [*measured, *_once_quantities(launches, LEAST_ONCE_NS if grouping is None else 0)]


def quantities_of_stages(launches: Sequence[Launch]) -> tuple[list[Quantity], list[Quantity]]:
    """Return the quantities of the first stage and of the fresh launches.

    Operations of the latter are grouped as in the first.
    """
    first_launches = [launch for launch in launches if launch.stage == 1]
    fresh_launches = [launch for launch in launches if launch.stage == 2]
    first = quantities(first_launches)
    grouping: dict[str, list[OperationGroup]] = {}
    for quantity in first:
        if quantity.is_operation:
            grouping.setdefault(quantity.case, []).append(
                OperationGroup(quantity.kind, quantity.name, quantity.members)
            )
    # Costs of the whole process depend on its cases, but not its memory, which is measured with one
    # of them.
    has_all_cases = all(
        fresh.cases.keys() == launch.cases.keys()
        for fresh in fresh_launches
        for launch in first_launches
    )
    fresh_quantities = [
        quantity
        for quantity in quantities(fresh_launches, grouping)
        if has_all_cases or quantity.case != ALL_CASES or quantity.kind == MEMORY
    ]
    return first, fresh_quantities


def _flat(launches: Sequence[Sequence[Build]]) -> list[Build]:
    return [build for builds in launches for build in builds]


def _once_quantities(launches: Sequence[Launch], least_ns: float) -> Iterable[Quantity]:
    """Yield the costs that occur once, whose mean is at least ``least_ns``.

    A rule that does not depend on the roles.
    """
    sides = [side for launch in launches for side in launch.once.values()]
    for name, case in sorted(
        {(name, case) for side in sides for name, cases in side.items() for case in cases}
    ):
        is_complete = all(
            launch.once and (case == ALL_CASES or case in launch.cases) for launch in launches
        )
        # Two columns: of the base and of the head.
        values = np.array(
            [
                [launch.once.get(side, {}).get(name, {}).get(case, 0) for side in (BASE, HEAD)]
                for launch in launches
            ],
            dtype=np.float64,
        )
        if not is_complete or values.mean() < least_ns:
            continue
        is_memory = name == RESIDENT
        # A cost of one of several cases is in a part of the launches only, where the median may
        # be 0.
        base_ns, head_ns = (np.median if is_memory else np.mean)(values, axis=0)
        quantity = Quantity(
            case,
            MEMORY if is_memory else ONCE,
            name,
            NO_CLOCK if is_memory else CPU,
            members=(),
            logs=(),
            base_ns=float(base_ns),
            head_ns=float(head_ns),
            share=0.0,
        )
        logs = np.log((values[:, 1] + quantity.added) / (values[:, 0] + quantity.added))
        yield replace(quantity, logs=tuple(logs.tolist()))


def _case_quantities(case: str, launches: Sequence[Sequence[Build]]) -> Iterable[Quantity]:
    """Yield the median and the mean of a case by each clock that all builds have."""
    builds = _flat(launches)
    sides = [side for build in builds for side in build.values()]
    for clock in (WALL, CPU, DEVICE, BUSY):
        is_measured = all(clock in side.times for side in sides)
        if not is_measured or not any(any(side.times[clock]) for side in sides):
            continue
        for kind, typical in ((ITERATION, np.median), (MEAN, np.mean)):
            base_ns, head_ns = (
                statistics.median(
                    float(typical(build[side].times[clock] or (0,))) for build in builds
                )
                for side in (BASE, HEAD)
            )
            yield Quantity(
                case,
                kind,
                name=clock,
                clock=clock,
                members=(),
                logs=_mean_logs(
                    [case_difference(build, clock, kind).log for build in launch]
                    for launch in launches
                ),
                base_ns=base_ns,
                head_ns=head_ns,
                share=1.0,
            )


def _operation_quantities(
    case: str, launches: Sequence[Sequence[Build]], case_groups: Sequence[OperationGroup]
) -> Iterable[Quantity]:
    """Yield a quantity for each group of operations that took time."""
    builds = _flat(launches)
    whole = _typical_ns(whole_ns(build[BASE]) for build in builds) or 1.0
    for group in case_groups:
        keys = group.members
        if not any(total_ns(side, keys) for build in builds for side in build.values()):
            continue  # a device table has no time outside operations
        base_ns, head_ns = (
            _typical_ns(summed_ns(build[side], keys) for build in builds) for side in (BASE, HEAD)
        )
        larger_ns = max(base_ns, head_ns) if group.kind == ADDED else base_ns
        is_one_sided = group.kind in (REPLACED, ADDED)
        yield Quantity(
            case,
            group.kind,
            group.name,
            clock="",
            members=tuple(keys),
            logs=_mean_logs([group_log(group, build) for build in launch] for launch in launches),
            base_ns=base_ns,
            head_ns=head_ns,
            share=larger_ns / whole,
            replaced=tuple(_replaced(builds, key) for key in keys) if is_one_sided else (),
        )


def _mean_logs(logs_of_launches: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the difference of each launch: the mean over its builds."""
    return tuple(statistics.fmean(logs) for logs in logs_of_launches)


def _typical_ns(times_of_builds: Iterable[Times]) -> float:
    """Return the median over all builds of the median of each build's times, ns."""
    return statistics.median(
        float(np.median(times)) if len(times) else 0.0 for times in times_of_builds
    )


def _replaced(builds: Sequence[Build], key: OpKey) -> Replaced:
    """Return the times of an operation on the sides that have it in any build."""

    def side_ns(side: str) -> float | None:
        if not any(key in build[side].operations for build in builds):
            return None
        return _typical_ns(summed_ns(build[side], (key,)) for build in builds)

    return Replaced(key, side_ns(BASE), side_ns(HEAD))
