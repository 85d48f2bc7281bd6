"""Quantities that are compared between the sides, with their differences in all trials."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from mnistbench.core.operation import (
    NOT_OPERATIONS,
    OpKey,
    operation_name,
    place_name,
    replacement_title,
)
from mnistbench.gate.decide.statistics.differences import (
    Times,
    case_difference,
    difference,
    operations_log,
    summed_ns,
    total_ns,
    whole_ns,
)
from mnistbench.gate.samples.raw_samples import FIRST_STAGE, FRESH_STAGE, Build, Trial
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
from mnistbench.judging.grouping import is_judged_alone
from mnistbench.judging.kinds import (
    ADDED,
    ITERATION,
    MEAN,
    MEMORY,
    ONCE,
    OPERATION,
    OTHER,
    OUTSIDE_KIND,
    REPLACED,
)

#: One-time costs that have a smaller mean, of both sides over all trials, are not tested;
#: nanoseconds (5 ms). It is also added to the times of both sides before their ratio is taken, so
#: a change from 0 to 3 ms is small and finite.
MIN_ONCE_NS = 5_000_000


class Replaced(NamedTuple):
    """An operation that is new, gone, or not in every build of both sides."""

    key: OpKey
    base_ns: float | None  # median over builds; None if the base never calls it
    head_ns: float | None  # the same of the head


def how_replaced(operations: Sequence[Replaced]) -> str:
    """Return ``replaced``, ``new``, ``gone``, or ``irregular``; empty if there are no operations.

    Both sides have irregular ones, but not in every build.
    """
    gone = any(
        operation.head_ns is None for operation in operations if operation.base_ns is not None
    )
    new = any(
        operation.base_ns is None for operation in operations if operation.head_ns is not None
    )
    if gone or new:
        return "replaced" if gone and new else "gone" if gone else "new"
    return "irregular" if operations else ""


@dataclass(frozen=True)
class _Quantity:
    """What all quantities that are compared between the sides have."""

    case: str  # node id, or ALL_CASES
    kind: str  # one of judging.kinds
    name: str
    # Per trial: log(head / base), mean over builds; NaN if there are too few usable times.
    logs: tuple[float, ...]
    base: float  # median over builds or trials, ns; see the classes for exceptions
    head: float

    is_case: ClassVar[bool] = False
    is_operation: ClassVar[bool] = False
    is_once: ClassVar[bool] = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the quantity across trials."""
        return (self.case, self.kind, self.name)


@dataclass(frozen=True)
class CaseTime(_Quantity):
    """The time of a call by a clock, which is its name: the median (ITERATION) or the mean."""

    is_case: ClassVar[bool] = True
    members: ClassVar[tuple[OpKey, ...]] = ()
    replaced: ClassVar[tuple[Replaced, ...]] = ()
    added: ClassVar[float] = 0.0
    share: ClassVar[float] = 1.0
    weight: ClassVar[float] = 1.0

    @property
    def clock(self) -> str:
        return self.name

    @property
    def reference_ns(self) -> float:
        """The time that its change is a share of, ns."""
        return self.base

    @property
    def title(self) -> str:
        """Name in reports, without the case."""
        return f"{'mean ' if self.kind == MEAN else ''}{CLOCK_TITLES[self.name]}"


@dataclass(frozen=True)
class OperationTime(_Quantity):
    """The time of operations of a case, or of a part of an iteration that is none.

    Kinds: OPERATION, REPLACED, ADDED, OUTSIDE_KIND or OTHER. The difference of ADDED is that of the
    time of the case.
    """

    members: tuple[OpKey, ...]  # whose times are summed
    # Of the time of the case in the base, on an accelerator of its busy time; for ADDED that of
    # the side on which the operations take longer.
    share: float
    replaced: tuple[Replaced, ...] = ()  # for REPLACED and ADDED: all members

    is_operation: ClassVar[bool] = True
    added: ClassVar[float] = 0.0
    clock: ClassVar[str] = ""

    @property
    def weight(self) -> float:
        """Factor that converts its change into a share of its case."""
        return 1.0 if self.kind == ADDED else self.share

    @property
    def reference_ns(self) -> float:
        """The time that its change is a share of, ns; that of ADDED is the case's."""
        if self.kind != ADDED:
            return self.base
        return max(self.base, self.head) / self.share if self.share else 0.0

    @property
    def title(self) -> str:
        """Name in reports, without the case."""
        return replacement_title(self.replaced) if self.replaced else self.name


@dataclass(frozen=True)
class OneTimeCost(_Quantity):
    """What occurs once in a process: CPU time (ONCE), or memory at its peak (MEMORY).

    ``base`` and ``head`` of ONCE are means over trials; those of MEMORY are in bytes.
    """

    is_once: ClassVar[bool] = True
    members: ClassVar[tuple[OpKey, ...]] = ()
    replaced: ClassVar[tuple[Replaced, ...]] = ()
    share: ClassVar[float] = 0.0
    weight: ClassVar[float] = 0.0
    reference_ns: ClassVar[float] = 0.0  # no change of it is one of a call

    @property
    def added(self) -> float:
        """What is added to both sides, so that small costs have small changes."""
        return MIN_ONCE_NS if self.kind == ONCE else 1.0

    @property
    def clock(self) -> str:
        return CPU if self.kind == ONCE else NO_CLOCK

    @property
    def title(self) -> str:
        """Name in reports, without the case."""
        return self.name


#: What is compared between the sides. All have ``members``, ``share`` and ``weight`` (the factor
#: that converts a change into a share of the case).
Quantity = CaseTime | OperationTime | OneTimeCost


# ---- Groups of operations ------------------------------------------------------------------------


class OperationGroup(NamedTuple):
    """Operations of a case that are one quantity."""

    kind: str  # OPERATION, REPLACED, ADDED, OUTSIDE_KIND or OTHER
    name: str
    members: tuple[OpKey, ...]


def groups(builds: Sequence[Build]) -> list[OperationGroup]:
    """Return the groups to test: large operations, operations of one side by place, and the rest.

    The grouping is symmetric in the two sides and uses all trials together. It therefore does not
    depend on the roles in any trial, as the permutation test requires.

    Args:
        builds: all builds of the case in all trials.
    """
    sides = [side for build in builds for side in build.values()]
    if not all(side.operations for side in sides):
        return []
    everywhere = set.intersection(*(set(side.operations) for side in sides))
    anywhere = set().union(*(side.operations for side in sides))
    all_ns = sum(total_ns(side, side.operations) for side in sides)
    single: list[OperationGroup] = []
    small: list[OpKey] = []
    for key in sorted(key for key in everywhere if key[0] not in NOT_OPERATIONS):
        if is_judged_alone(sum(total_ns(side, (key,)) for side in sides), all_ns):
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


def _one_sided_groups(
    builds: Sequence[Build], one_sided: Sequence[OpKey]
) -> Iterable[OperationGroup]:
    """Yield new and gone operations, grouped by phase and module.

    Those of all new and gone modules are one group.

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
    all_ns = sum(total_ns(side, side.operations) for build in builds for side in build.values())
    return is_judged_alone(len((BASE, HEAD)) * smaller_ns, all_ns)


# ---- Quantities ----------------------------------------------------------------------------------


def quantities(
    trials: Sequence[Trial], grouping: Mapping[str, Sequence[OperationGroup]] | None = None
) -> list[Quantity]:
    """Return all quantities of the cases that are in all these trials.

    Args:
        trials: of one stage, or of both.
        grouping: groups of operations per case, as :func:`groups` returns them; those of these
            trials if not given.
    """
    if not trials:
        return []
    cases = [case for case in trials[0].cases if all(case in trial.cases for trial in trials)]
    measured: list[Quantity] = []
    for case in cases:
        builds = [trial.cases[case] for trial in trials]
        measured += _case_quantities(case, builds)
        case_groups = (grouping or {}).get(case)
        if case_groups is None:
            case_groups = groups(_flat(builds))
        measured += _operation_quantities(case, builds, case_groups)
    return [*measured, *_once_quantities(trials, MIN_ONCE_NS if grouping is None else 0)]


def quantities_of_stages(trials: Sequence[Trial]) -> tuple[list[Quantity], list[Quantity]]:
    """Return the quantities of the first stage and of the fresh trials.

    Operations of the latter are grouped as in the first.
    """
    first_trials = [trial for trial in trials if trial.stage == FIRST_STAGE]
    fresh_trials = [trial for trial in trials if trial.stage == FRESH_STAGE]
    first = quantities(first_trials)
    grouping: dict[str, list[OperationGroup]] = {}
    for quantity in first:
        if quantity.is_operation:
            grouping.setdefault(quantity.case, []).append(
                OperationGroup(quantity.kind, quantity.name, quantity.members)
            )
    # Costs of the whole process depend on its cases, but not its memory, which is measured with one
    # of them.
    has_all_cases = all(
        fresh.cases.keys() == trial.cases.keys() for fresh in fresh_trials for trial in first_trials
    )
    fresh_quantities = [
        quantity
        for quantity in quantities(fresh_trials, grouping)
        if has_all_cases or quantity.case != ALL_CASES or quantity.kind == MEMORY
    ]
    return first, fresh_quantities


def _flat(trials: Sequence[Sequence[Build]]) -> list[Build]:
    return [build for builds in trials for build in builds]


def _once_quantities(trials: Sequence[Trial], least_ns: float) -> Iterable[OneTimeCost]:
    """Yield the one-time costs whose mean over both sides is at least ``least_ns``."""
    sides = [side for trial in trials for side in trial.once.values()]
    for name, case in sorted(
        {(name, case) for side in sides for name, cases in side.items() for case in cases}
    ):
        is_complete = all(
            trial.once and (case == ALL_CASES or case in trial.cases) for trial in trials
        )
        # Two columns: of the base and of the head.
        values = np.array(
            [
                [trial.once.get(side, {}).get(name, {}).get(case, 0) for side in (BASE, HEAD)]
                for trial in trials
            ],
            dtype=np.float64,
        )
        if not is_complete or values.mean() < least_ns:
            continue
        is_memory = name == RESIDENT
        # A cost of one of several cases is in a part of the trials only, where the median may
        # be 0.
        base, head = (np.median if is_memory else np.mean)(values, axis=0)
        cost = OneTimeCost(
            case, MEMORY if is_memory else ONCE, name, (), base=float(base), head=float(head)
        )
        logs = np.log((values[:, 1] + cost.added) / (values[:, 0] + cost.added))
        yield replace(cost, logs=tuple(logs.tolist()))


def _case_quantities(case: str, trials: Sequence[Sequence[Build]]) -> Iterable[CaseTime]:
    """Yield the median and the mean of a case by each clock that all builds have."""
    builds = _flat(trials)
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
            yield CaseTime(
                case,
                kind,
                clock,
                logs=_mean_logs(
                    [case_difference(build, clock, kind).log for build in trial] for trial in trials
                ),
                base=base_ns,
                head=head_ns,
            )


def _operation_quantities(
    case: str, trials: Sequence[Sequence[Build]], case_groups: Sequence[OperationGroup]
) -> Iterable[OperationTime]:
    """Yield a quantity for each group of operations that took time."""
    builds = _flat(trials)
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
        yield OperationTime(
            case,
            group.kind,
            group.name,
            logs=_mean_logs(
                [operations_log(group.kind, keys, build) for build in trial] for trial in trials
            ),
            base=base_ns,
            head=head_ns,
            members=tuple(keys),
            share=larger_ns / whole,
            replaced=tuple(_replaced(builds, key) for key in keys) if is_one_sided else (),
        )


def _mean_logs(logs_of_trials: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the difference of each trial: the mean over its builds."""
    return tuple(statistics.fmean(logs) for logs in logs_of_trials)


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
