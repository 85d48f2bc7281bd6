"""Raw samples of launches, and the differences between the sides that follow from them.

One JSON line per launch.

The file consists of gzipped lines (``.jsonl.gz``), each written at the end of its launch, so a
crash loses no earlier launch. Its name keeps it out of the list of saved runs. The first line is
the header.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import math
import operator
import statistics
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from mnistbench import __version__
from mnistbench.compare.criteria import Criteria
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.operation import (
    NOT_OPERATIONS,
    OpKey,
    operation_name,
    place_name,
    replacement_title,
)
from mnistbench.core.reading import (
    OPTIONAL,
    FieldError,
    Members,
    Nanoseconds,
    Positive,
    Reader,
    Within,
    wrong,
)

#: Version of the file. 1 (0.1.0): the first.
SCHEMA = 1

BASE = "base"
HEAD = "head"

#: Oldest version of torch that a side may have. That of other commands is in pyproject.toml.
OLDEST_TORCH = "2.6"

#: Clock of a case: wall time.
WALL = "wall"
#: Clock of a case: CPU time.
CPU = "cpu"
#: Clock of a case: between two events on an accelerator, so with the gaps between its kernels.
DEVICE = "device"
#: Clock of a case: the time in which an accelerator ran kernels or copies, of profiled iterations.
BUSY = "busy"
#: Memory has no clock.
NO_CLOCK = "none"
_CLOCK_TITLES = {
    WALL: "wall time",
    CPU: "CPU time",
    DEVICE: "device elapsed time",
    BUSY: "device busy time",
}

_Times = tuple[Nanoseconds, ...]
_Key = Annotated[OpKey, Members("an operation, its phase and its module")]
_Versions = Annotated[tuple[str, str], Members("the versions of both sides")]
_Types = Annotated[tuple[str, str], Members("the types of both sides")]
_Outcome = Annotated[tuple[str, float | None], Members("a hash and a number")]  # None: not finite

#: Stage of the one long launch, the soak.
SOAK = 3
#: Parts of equal time of a case in the soak, its builds, in one process of each side.
PARTS = 10

#: Stage of launches of a qualification in which each iteration of the head is made longer.
LONGER = 4

#: Fewest pairs of usable times that a difference is computed from.
LEAST_PAIRS = 3
#: Least squared error of a difference: some clocks advance in steps.
_LEAST_SQUARE = 1e-12

#: Kind of a quantity: the median of the iterations of a case.
ITERATION = "iteration"
#: Kind of a quantity: the mean of the iterations of a case.
MEAN = "mean"
#: Kind of a quantity: a single operation.
OPERATION = "operation"
#: Kind of a quantity: operations of one place that only one side has, whose sums are compared if
#: both are large.
REPLACED = "replaced"
#: Kind of a quantity: such operations that are judged by the share of the case that they add.
ADDED = "added"
#: Kind of a quantity: what is no operation (time outside operations, runtime calls, unattributed
#: kernels).
OUTSIDE_KIND = "outside"
#: Kind of a quantity: the group of small operations.
OTHER = "other"
#: Kind of a quantity: CPU time that a process spends once.
ONCE = "once"
#: Kind of a quantity: peak memory of a process.
MEMORY = "memory"

#: Name of a kind ONCE: the first iteration of a case in the process.
FIRST = "first iteration"
#: Name of a kind ONCE: what has to happen before the first iteration of a case (fixtures of the
#: test alone, its own code, the build, the setup of the first iteration).
SETUP = "setup"
#: Name of a kind ONCE: imports of conftest.py, of the tests and of their modules, with what these
#: import.
IMPORT = "import"
#: Name of a kind ONCE: fixtures that several tests share.
FIXTURES = "shared fixtures"
#: Name of a kind MEMORY: memory of the process after the first case has run.
RESIDENT = "resident memory"

#: Name of the whole process among the cases.
ALL_CASES = "all cases"

#: A cost that takes less, as the mean of both sides over all launches, is not tested. This is also
#: added to the times of both sides before they are compared, so a cost that one side does not have
#: has a change, and small ones have small changes.
LEAST_ONCE_NS = 5_000_000


class Operation(NamedTuple):
    """One operation of one side in one build."""

    self_ns: _Times  # one sample per profiled iteration
    calls: float
    memory_bytes: int
    kernels: tuple[str, ...]

    @property
    def shapes(self) -> tuple[str, ...]:
        """Return no input shapes: the gate does not record them."""
        return ()


class SideSample(NamedTuple):
    """One side of a case in one build."""

    # Clock -> ns of each untraced iteration, for BUSY of each profiled one; the nth of both sides
    # are a pair. Of calls that were repeated, the mean.
    times: Mapping[str, tuple[float, ...]]
    # CPU time of an iteration in each block, which both sides run at once on one core; empty if
    # they cannot
    block_ns: tuple[float, ...]
    outcome: _Outcome
    parameters: int
    operations: Mapping[OpKey, Operation]
    by_share: bool = True  # operations are compared by their share of the iteration as well
    queued: float = 0.0  # share of the wall time in which another process had the core
    iterations: int = 0  # untraced; repeated calls count
    # Wall times of the slowest iterations in turn; of long times the above are means.
    slowest_ns: tuple[float, ...] = ()

    @classmethod
    def from_stored(cls, stored: _StoredSide) -> SideSample:
        """Return a side of a build from the form in which it is saved."""
        times = {WALL: stored.wall_ns, CPU: stored.cpu_ns, DEVICE: stored.device_ns}
        for name in ("queued_ns", *(("cpu_ns",) if stored.block_ns else ())):
            column = getattr(stored, name)
            if column and len(column) != len(stored.wall_ns):
                raise wrong(list(column), f"{len(stored.wall_ns)} times", name)
        if stored.queued_ns:
            times[WALL] = _without_queue(stored.wall_ns, stored.queued_ns, stored.cpu_ns)
        busy_ns = {BUSY: stored.busy_ns} if stored.busy_ns else {}
        return cls(
            times={
                clock: _of_one_call(column, stored.loops)
                for clock, column in times.items()
                if column
            }
            | busy_ns,
            block_ns=_of_one_call(stored.block_ns, stored.loops) if stored.cpu_ns else (),
            outcome=stored.outcome,
            parameters=stored.parameters,
            operations=stored.operations(),
            by_share=stored.by_share,
            queued=sum(stored.queued_ns) / max(1, sum(stored.wall_ns)),
            iterations=stored.iterations * stored.loops,
            slowest_ns=_of_one_call(stored.slowest_ns, stored.loops),
        )


class _StoredSide(NamedTuple):
    """A side of a build as a file has it.

    The columns of operations are missing if nothing was profiled.
    """

    wall_ns: _Times
    cpu_ns: _Times
    device_ns: _Times
    outcome: _Outcome
    parameters: int
    queued_ns: Annotated[_Times, OPTIONAL] = ()
    block_ns: Annotated[_Times, OPTIONAL] = ()
    busy_ns: Annotated[_Times, OPTIONAL] = ()
    loops: Annotated[int, OPTIONAL] = 1
    by_share: Annotated[bool, OPTIONAL] = True
    iterations: Annotated[int, OPTIONAL] = 0
    slowest_ns: Annotated[_Times, OPTIONAL] = ()
    keys: Annotated[tuple[_Key, ...], OPTIONAL] = ()
    self_ns: Annotated[tuple[_Times, ...], OPTIONAL] = ()
    calls: Annotated[tuple[float, ...], OPTIONAL] = ()
    memory_bytes: Annotated[tuple[int, ...], OPTIONAL] = ()
    kernels: Annotated[tuple[tuple[str, ...], ...], OPTIONAL] = ()

    def operations(self) -> dict[OpKey, Operation]:
        """Return the rows of the table of operations."""
        columns = (self.self_ns, self.calls, self.memory_bytes, self.kernels)
        if {len(self.keys)} != set(map(len, columns)):
            raise FieldError("has columns of different length")
        iterations = max(map(len, self.self_ns), default=0)
        for position, times in enumerate(self.self_ns):
            if len(times) != iterations:
                raise wrong(list(times), f"{iterations} times", f"self_ns[{position}]")
        return dict(zip(self.keys, map(Operation, *columns), strict=True))


def _without_queue(wall_ns: _Times, queued_ns: _Times, cpu_ns: _Times) -> _Times:
    """Return wall times without the time in which another process had the core.

    That time is longer than wall time minus CPU time if the process lost its core between the
    readings of the queue and of the clock.
    """
    computed_ns = cpu_ns if len(cpu_ns) == len(wall_ns) else (0,) * len(wall_ns)
    return tuple(
        wall - min(queued, max(0, wall - computed))
        for wall, queued, computed in zip(wall_ns, queued_ns, computed_ns, strict=True)
    )


def _of_one_call(column: _Times, loops: int) -> tuple[float, ...]:
    """Return times of iterations that repeat a call as times of one call."""
    return tuple(ns / loops for ns in column) if loops > 1 else column


#: One build of a case: side -> sample.
Build = Mapping[str, SideSample]


@dataclass(frozen=True)
class Launch:
    """One launch with both sides, or one pair of launches with a side each."""

    # 1: all cases. 2: candidates measured again. SOAK: one long launch. LONGER: of a qualification,
    # with time added to the head
    stage: Annotated[int, Within(1, LONGER, "1, 2, 3 or 4")]
    cases: Mapping[str, Sequence[Build]]  # node id -> builds -> side -> sample
    seconds: float
    # Side -> name of a cost -> node id or ALL_CASES -> CPU time in ns; of RESIDENT bytes.
    once: Annotated[Mapping[str, Mapping[str, Mapping[str, Nanoseconds]]], OPTIONAL] = field(
        default_factory=dict
    )
    # Node id of a missing case -> why.
    unmeasurable: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)

    @classmethod
    def from_stored(cls, stored: Any) -> Launch:
        """Read a line of a file."""
        line = Reader(stored)
        cases = {}
        for case in line["cases"].read(Mapping[str, Any]):
            builds = line["cases"][case]
            read = [
                {side: build["sides"][side].read(SideSample) for side in (BASE, HEAD)}
                for build in builds.items()
            ]
            if not read:
                raise builds.wrong("a build or more")
            cases[case] = read
        return cls(cases=cases, **line.members(cls, ("stage", "seconds", "once", "unmeasurable")))


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
            return f"{'mean ' if self.kind == MEAN else ''}{_CLOCK_TITLES[self.clock]}"
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


# ---- Quantities ----------------------------------------------------------------------------------


#: A quantity of a case: (kind, name, summed operations).
Group = tuple[str, str, Sequence[OpKey]]


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
            times = functools.partial(_times_by, clock)
            for kind, differ, summed in (
                (ITERATION, difference, statistics.median),
                (MEAN, difference_of_means, statistics.fmean),
            ):
                logs = _logs(launches, functools.partial(_differ_in_build, differ, clock))
                base_ns, head_ns = (
                    _typical(launches, side, times, summed) for side in (BASE, HEAD)
                )
                yield Quantity(case, kind, clock, clock, (), logs, base_ns, head_ns, 1.0)


def _times_by(clock: str, side: SideSample) -> Sequence[float]:
    return side.times[clock]


def _differ_in_build(
    differ: Callable[[Sequence[float], Sequence[float]], float], clock: str, build: Build
) -> float:
    """Return the difference of a case by a clock.

    CPU time is compared over blocks and over pairs, if there are blocks. Wall time is then the
    product of this CPU time and of the factor by which the wall time of an iteration is longer.
    That factor hardly varies: both clocks of an iteration see the same speed.
    """
    if clock in (DEVICE, BUSY) or not all(side.block_ns for side in build.values()):
        return _differ_by(differ, functools.partial(_times_by, clock), build)
    of_cpu = _differ_by_cpu(differ, build)
    return of_cpu + _differ_by(differ, _wall_by_cpu, build) if clock == WALL else of_cpu


def _differ_by_cpu(
    differ: Callable[[Sequence[float], Sequence[float]], float], build: Build
) -> float:
    """Return the mean of the differences over blocks and over pairs.

    Weighted by the inverse squares of their errors.

    A long iteration varies less in blocks. Of a short one both are as exact, and their errors are
    independent.
    """
    ways = operator.attrgetter("block_ns"), functools.partial(_times_by, CPU)
    of_blocks, of_pairs = (_differ_by(differ, way, build) for way in ways)
    weights = [1 / max(_differ_by(_squared_error, way, build), _LEAST_SQUARE) for way in ways]
    if not all(map(math.isfinite, (*weights, of_pairs))):
        return of_blocks
    if differ is _squared_error:
        return 1 / sum(weights)
    return (weights[0] * of_blocks + weights[1] * of_pairs) / sum(weights)


def _wall_by_cpu(side: SideSample) -> list[float]:
    """Return wall time / CPU time of each iteration; 0 if the CPU clock did not advance."""
    return [
        wall / cpu if cpu else 0.0
        for wall, cpu in zip(side.times[WALL], side.times[CPU], strict=True)
    ]


def _differ_by(
    differ: Callable[[Sequence[float], Sequence[float]], float],
    times: Callable[[SideSample], Sequence[float]],
    build: Build,
) -> float:
    return differ(times(build[BASE]), times(build[HEAD]))


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
    whole = sum(_sum(side, side.operations) for side in sides)
    found: list[Group] = []
    rest: list[OpKey] = []
    for key in sorted(key for key in everywhere if key[0] not in NOT_OPERATIONS):
        if Criteria().matters(sum(_sum(side, (key,)) for side in sides), whole):
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
        math.isfinite(_differ_by(difference, functools.partial(_times_of, keys), build))
        for build in builds
    ):
        return False
    smaller = sum(min(_sum(side, keys) for side in build.values()) for build in builds)
    whole = sum(_sum(side, side.operations) for build in builds for side in build.values())
    return Criteria().matters(len((BASE, HEAD)) * smaller, whole)


def _sum(side: SideSample, keys: Iterable[OpKey]) -> int:
    """Return the sum of times over operations and iterations, ns.

    0 for an operation that the side does not have.
    """
    return sum(sum(side.operations[key].self_ns) for key in keys if key in side.operations)


def _of_operations(
    case: str, launches: Sequence[Sequence[Build]], grouping: Sequence[Group]
) -> Iterable[Quantity]:
    for kind, name, keys in grouping:
        times = functools.partial(_times_of, keys)
        if not any(
            _sum(side, keys) for builds in launches for build in builds for side in build.values()
        ):
            continue  # a device table has no time outside operations
        base_ns, head_ns = (_typical(launches, side, times) for side in (BASE, HEAD))
        whole = _typical(launches, BASE, _whole_times) or 1.0
        differ = (
            functools.partial(_changed_sum, keys)
            if kind == REPLACED
            else functools.partial(_added, keys)
            if kind == ADDED
            else functools.partial(_differ_in_profile, keys)
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


def _whole_times(side: SideSample) -> Sequence[float]:
    """Return the times that operations have shares of.

    Busy times of an accelerator, else the sums of all operations.
    """
    return side.times[BUSY] if BUSY in side.times else _times_of(side.operations, side)


def _differ_in_profile(
    keys: Sequence[OpKey],
    build: Build,
    differ: Callable[[Sequence[float], Sequence[float]], float] | None = None,
) -> float:
    """Return the difference of operations, or another summary of their pairs.

    If both sides ran blocks at once, it is the mean of two estimates: the change of the operations
    over pairs of profiled iterations, and the change of their share of the iteration plus that of
    the untraced case. The share does not depend on a change of the machine's speed between the
    iterations of a pair. The overhead of the profiler has to be the same on both sides, so they
    have to have the same number of calls, and small, which it is not for the short call of a plain
    test.
    """
    comparable = all(side.block_ns and side.by_share for side in build.values())
    differ = differ or difference
    if not comparable or len({_calls(side) for side in build.values()}) > 1:
        return _differ_by(differ, functools.partial(_times_of, keys), build)

    def mean_with_share(side: SideSample) -> list[float]:
        # Half of log(time) + log(time / whole).
        return [
            time / math.sqrt(whole) if whole else 0.0
            for time, whole in zip(
                _times_of(keys, side), _times_of(side.operations, side), strict=True
            )
        ]

    return _differ_by(differ, mean_with_share, build) + _differ_in_build(differ, WALL, build) / 2


def _calls(side: SideSample) -> float:
    """Return the number of calls of all operations in an iteration."""
    return sum(
        operation.calls
        for key, operation in side.operations.items()
        if key[0] not in NOT_OPERATIONS
    )


def _of_sides(launches: Sequence[Sequence[Build]], key: OpKey) -> Replaced:
    """Return the times of an operation on the sides that have it in any build."""
    has = [
        any(key in build[side].operations for builds in launches for build in builds)
        for side in (BASE, HEAD)
    ]
    base_ns, head_ns = (
        _typical(launches, side, functools.partial(_times_of, (key,))) if found else None
        for side, found in zip((BASE, HEAD), has, strict=True)
    )
    return Replaced(key, base_ns, head_ns)


def _times_of(keys: Iterable[OpKey], side: SideSample) -> list[int]:
    """Return the sum over operations for each iteration, ns.

    0 for operations that the side does not have.
    """
    rows = [side.operations[key].self_ns for key in keys if key in side.operations]
    iterations = max((len(operation.self_ns) for operation in side.operations.values()), default=0)
    return list(map(sum, zip(*rows, strict=True))) if rows else [0] * iterations


def _changed_sum(keys: Sequence[OpKey], build: Build) -> float:
    """Return the change of the sum of replaced operations, as a logarithm.

    Without the part that moved within their places.

    Exchanging the sides only changes the sign.
    """
    change = _differ_by(difference, functools.partial(_times_of, keys), build)
    alone = _share_added(set(keys), build)
    return change * (_added(keys, build) / alone) if alone else change


def _added(keys: Sequence[OpKey], build: Build) -> float:
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
    alone = _share_added(set(keys), build)
    in_place = _share_added(around, build)
    if math.isnan(alone) or math.isnan(in_place):
        return math.nan
    return min(alone, in_place, key=abs) if alone * in_place > 0 else 0.0


def _share_added(keys: AbstractSet[OpKey], build: Build) -> float:
    """Return the median over pairs of log((rest + new) / (rest + gone)).

    An operation takes no time on a side that does not have it. The rest of an iteration is the mean
    of both iterations of a pair: exchanging the sides then only changes the sign, and the speed of
    the machine cancels.
    """
    gone, new = (_times_of(keys, build[side]) for side in (BASE, HEAD))
    others = [_times_of(side.operations.keys() - keys, side) for side in build.values()]
    rest = [(one + other) / 2 for one, other in zip(*others, strict=False)]
    return difference(
        [remains + time for remains, time in zip(rest, gone, strict=False)],
        [remains + time for remains, time in zip(rest, new, strict=False)],
    )


def difference(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the median over pairs of log(new / base); NaN if too few pairs are usable.

    The iterations of a pair follow each other. The speed of a shared machine changes by up to a
    factor of two for seconds at a time, so both iterations of most pairs have the same speed, and
    the median ignores the others. Pairs with a time of 0 are left out. Too few pairs are usable if
    fewer than LEAST_PAIRS remain, or if the number of pairs with a 0 on one side only is at least
    half of those that remain (an operation that does not run in every iteration).
    """
    pairs = list(zip(base, new, strict=False))
    usable = _log_ratios(base, new)
    one_sided = sum((earlier > 0) != (later > 0) for earlier, later in pairs)
    if len(usable) < LEAST_PAIRS or 2 * one_sided >= len(usable):
        return math.nan
    return statistics.median(usable)


def _log_ratios(base: Sequence[float], new: Sequence[float]) -> list[float]:
    return [
        math.log(later / earlier)
        for earlier, later in zip(base, new, strict=False)
        if earlier > 0 and later > 0
    ]


def _squared_error(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the squared standard error of ``difference``.

    Of a median of normal numbers, pi / 2 times that of their mean.
    """
    usable = _log_ratios(base, new)
    return math.pi / 2 * statistics.variance(usable) / len(usable) if len(usable) > 1 else math.nan


def squared_error(quantity: Quantity, launch: Launch) -> float:
    """Return the squared standard error of a quantity's difference in a launch.

    From the spread of pairs or blocks in it.

    Exchanging the sides does not change it. Only of ITERATION and OPERATION.
    """
    builds = launch.cases[quantity.case]
    if quantity.is_case:
        each = [_differ_in_build(_squared_error, quantity.clock, build) for build in builds]
    else:
        each = [_differ_in_profile(quantity.members, build, _squared_error) for build in builds]
    return sum(each) / len(each) ** 2


def difference_of_means(base: Sequence[float], new: Sequence[float]) -> float:
    """Return log(mean of new / mean of base); NaN if there is no time.

    Unlike the median, the mean changes with events in fewer than half of the iterations.
    """
    if not base or not new or sum(base) <= 0 or sum(new) <= 0:
        return math.nan
    return math.log(statistics.fmean(new) / statistics.fmean(base))


# ---- The file ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shard:
    """One of the parts into which several machines divide a gate.

    The other fields identify the whole gate.
    """

    number: Positive
    of: Positive
    # Node ids of all tests that either side has, sorted.
    tests: Annotated[tuple[str, ...], OPTIONAL] = ()
    # Package -> version of each side.
    installed: Annotated[Mapping[str, _Versions], OPTIONAL] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the value of ``--shard``."""
        return f"{self.number}/{self.of}"

    @property
    def prefix(self) -> str:
        """Start of the names of its files; empty for a whole gate."""
        return f"shard-{self.number}-of-{self.of}_" if self.of > 1 else ""

    def own(self) -> list[str]:
        """Return its tests.

        Tests are dealt out in turn, in the order of a hash of their node ids. Every machine
        computes the same, and sizes differ by one at most. In the order of their names, all large
        parameters of a test would often be those of one shard.
        """
        dealt = sorted(self.tests, key=lambda test: (hashlib.sha256(test.encode()).digest(), test))
        return sorted(dealt[self.number - 1 :: self.of])


WHOLE = Shard(1, 1)


@dataclass(frozen=True, kw_only=True)
class GateHeader:
    """The first line of a file."""

    started: Annotated[str, OPTIONAL] = ""
    base: str
    head: str
    arguments: tuple[str, ...]
    seed: Nanoseconds  # at least 0
    labels: Mapping[str, str]  # node id -> label of the case
    exact: Mapping[str, bool]  # node id -> whether results of the same code are equal bit for bit
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]
    changed: tuple[str, ...]  # cases whose Params differ between the sides
    torch: str
    allocator: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)  # its settings
    # Side -> module -> file.
    files: Annotated[Mapping[str, Mapping[str, str]], OPTIONAL] = field(default_factory=dict)
    # Side -> environment variables of it alone.
    variables: Annotated[Mapping[str, Mapping[str, str]], OPTIONAL] = field(default_factory=dict)
    # Side -> what decides which code runs on a CPU: name -> value; nothing without torch.
    cpu: Annotated[Mapping[str, Mapping[str, str]], OPTIONAL] = field(default_factory=dict)
    # Node id -> side -> implementation of oneDNN -> how often an iteration runs it.
    onednn: Annotated[Mapping[str, Mapping[str, Mapping[str, int]]], OPTIONAL] = field(
        default_factory=dict
    )
    # Packages that differ -> version of each side, or "".
    packages: Annotated[Mapping[str, _Versions], OPTIONAL] = field(default_factory=dict)
    # Node id, or ALL_CASES -> other code that one side runs for want of a package that the other
    # side has.
    one_sided: Annotated[Mapping[str, tuple[str, ...]], OPTIONAL] = field(default_factory=dict)
    # Node id -> side -> peak memory of tensors, bytes.
    memory: Annotated[Mapping[str, Mapping[str, int]], OPTIONAL] = field(default_factory=dict)
    # Side -> peak memory of its process, bytes.
    resident: Annotated[Mapping[str, int], OPTIONAL] = field(default_factory=dict)
    # Files that git ignores, copied to the sides.
    generated: Annotated[tuple[str, ...], OPTIONAL] = ()
    # Side -> node id -> why the test is no case.
    left_out: Annotated[Mapping[str, Mapping[str, str]], OPTIONAL] = field(default_factory=dict)
    # Node id -> why it cannot be measured.
    unmeasurable: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    # Node id -> what a reader has to know of it.
    notes: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    # Node id -> why the results of the sides are not compared.
    uncompared: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    # Node id -> types of both results, and files of the test, its fixtures and its data, if they
    # differ.
    returned: Annotated[Mapping[str, _Types], OPTIONAL] = field(default_factory=dict)
    sources: Annotated[Mapping[str, tuple[str, ...]], OPTIONAL] = field(default_factory=dict)
    remarks: Annotated[tuple[str, ...], OPTIONAL] = ()  # what a reader has to know of the sides
    machine: Annotated[str, OPTIONAL] = ""  # processor and number of cores
    # What the newest qualification of this machine found; empty if there is none.
    qualified: Annotated[str, OPTIONAL] = ""
    shard: Annotated[Shard, OPTIONAL] = WHOLE

    @functools.cached_property
    def _uses(self) -> Mapping[str, int]:
        return Counter(self.labels.values())

    def name(self, case: str) -> str:
        """Return the name of a case in reports.

        Its label, or its node id if the label is not unique.
        """
        label = self.labels.get(case, ALL_CASES)
        return label if self._uses.get(label) == 1 else case

    def line(self) -> dict[str, Any]:
        """Return the line of the file."""
        return {"schema": SCHEMA, "mnistbench": __version__, **asdict(self)}


@dataclass(frozen=True)
class Reproducer:
    """The script of an operation that was found slower, or why there is none."""

    # Of its quantity; the case is a node id.
    key: Annotated[tuple[str, str, str], Members("case, kind and name of a quantity")]
    script: str  # path; empty if there is none
    why_not: str


@dataclass(frozen=True)
class End:
    """How a run ended: the last line of a file."""

    cut_short: str = ""  # why the run is incomplete; empty for a complete run
    broken_off: bool = False  # by an error or a user, not by a time limit
    elapsed_s: float = 0.0  # from start to finish, in seconds
    # What most of it went to -> seconds.
    parts_s: Annotated[Mapping[str, float], OPTIONAL] = field(default_factory=dict)
    # Of the operations that were found slower.
    reproducers: Annotated[tuple[Reproducer, ...], OPTIONAL] = ()
    # What a machine finds; empty if none.
    qualification: Annotated[Mapping[str, Any], OPTIONAL] = field(default_factory=dict)

    def line(self) -> dict[str, Any]:
        """Return the line of the file."""
        return {"end": asdict(self)}


#: The end of a complete run.
COMPLETE = End()
#: The end of a run that the user stopped.
INTERRUPTED = End("interrupted", broken_off=True)
#: The end of a file without a last line: the process was killed.
NO_END = End("the run that was measured did not come to its end; measure again", broken_off=True)


@dataclass
class Recorded:
    """The samples of a gate, and how the measurement ended: the content of a file."""

    path: Path
    header: GateHeader
    launches: list[Launch]
    end: End = COMPLETE
    # Of a gate whose parts were measured by several machines; the rest is of all together.
    shards: tuple[Recorded, ...] = ()

    @property
    def seconds(self) -> float:
        """Duration of all launches."""
        return sum(launch.seconds for launch in self.launches)

    @property
    def unmeasurable(self) -> dict[str, str]:
        """Node id -> why the case cannot be measured.

        Of the surveys, and of cases that some launches did not find again.
        """
        return {
            **self.header.unmeasurable,
            **{case: why for one in self.launches for case, why in one.unmeasurable.items()},
        }

    @property
    def are_all_new(self) -> bool:
        """Whether the base has no case, so that there is nothing to compare.

        It may have those of a shard that is not here.
        """
        header = self.header
        is_whole = len(self.shards or (self,)) == header.shard.of
        # A gate without shards ends before it writes a file if the base has only cases that cannot
        # be measured.
        has_unmeasurable = bool(self.shards and self.unmeasurable)
        of_base = header.labels or header.only_base or header.changed or has_unmeasurable
        return bool(is_whole and header.only_head and not of_base)

    def measurable(self) -> Recorded:
        """Return the samples of the other cases."""
        left_out = self.unmeasurable.keys()
        header = replace(
            self.header,
            labels={
                case: label for case, label in self.header.labels.items() if case not in left_out
            },
            exact={
                case: is_exact
                for case, is_exact in self.header.exact.items()
                if case not in left_out
            },
        )
        launches = [
            replace(
                launch,
                cases={
                    case: builds for case, builds in launch.cases.items() if case not in left_out
                },
            )
            for launch in self.launches
        ]
        shards = tuple(shard.measurable() for shard in self.shards)
        return replace(self, header=header, launches=launches, shards=shards)


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line as a gzip member of its own, so that a truncated file lacks only the last line."""
    text = json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(gzip.compress(text.encode(), mtime=0))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); make room, or start where it can be"
        ) from None


def load(path: Path) -> Recorded:
    """Read a file; an incomplete last line is left out.

    Raises:
        RecordError: the file is not one of :func:`append`, or a line is damaged.
    """
    try:
        first, *others = [Reader(_parsed(line)) for line in _lines(path)]
        if (schema := first["schema"].read(int)) != SCHEMA:
            raise RecordError(  # noqa: TRY301
                f"schema: {schema} is not known to this version, which reads {SCHEMA}; update "
                "mnistbench"
            )
        header = first.read(GateHeader)
        for case in header.labels:
            first["exact"][case].read(bool)
        ended = bool(others) and isinstance(others[-1].value, dict) and "end" in others[-1].value
        end = others.pop()["end"].read(End) if ended else NO_END
        launches = [line.read(Launch) for line in others]
        if unknown := [
            case for launch in launches for case in launch.cases if case not in header.labels
        ]:
            raise RecordError(f"a launch has a case that the header does not name: {unknown[0]}")  # noqa: TRY301
        return Recorded(path, header, launches, end)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot be read ({error.strerror})") from None
    text = b""
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            part = member.decompress(data)
        except zlib.error:
            whole = len(text.splitlines())
            what = (
                f"is spoiled after {whole} lines; measure again"
                if whole
                else f"is not gzip; {_NAME_ONE}"
            )
            raise RecordError(what) from None
        if not member.eof:
            break  # the last line is incomplete
        text += part
        data = member.unused_data
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        raise RecordError("is not text") from None
    if not lines:
        raise RecordError(f"is empty; {_NAME_ONE}")
    return lines


_NAME_ONE = "name a file that mnistbench gate has written"


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise RecordError("has a line that is not JSON") from None
