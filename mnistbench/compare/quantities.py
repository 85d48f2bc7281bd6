"""Which quantities of a case are judged, and what was measured of each.

They are the iteration, each operation and function that is large enough, those that replaced each
other, the time outside operations, and the small ones together.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mnistbench.compare.criteria import DEFAULT_SHARE, Criteria, Threshold
from mnistbench.compare.diff import FUNCTIONS_TIME, Breakdown, CaseComparison, OpChange
from mnistbench.compare.replacements import ModuleGroup, module_groups, replacements
from mnistbench.core.operation import operation_name, replacement_title
from mnistbench.core.record import median, quartiles_ns
from mnistbench.judging.acceptance import LARGEST_LIMIT
from mnistbench.judging.grouping import LARGE_SHARE, is_judged_alone
from mnistbench.judging.kinds import (
    ITERATION,
    OPERATION,
    OTHER,
    OTHER_FUNCTIONS,
    OUTSIDE_KIND,
    REPLACED,
)


@dataclass(frozen=True)
class Measurement:
    """One quantity of a case: what differs between the runs of both sides."""

    case: CaseComparison
    whole: Breakdown  # that it is a part of
    name: str
    kind: str  # operation, replaced, outside (not an operation), other or iteration
    members: tuple[OpChange, ...]  # the operations that are summed; none for the iteration
    base_runs: tuple[float, ...]  # ns in every base run
    head_runs: tuple[float, ...]  # ns in every run of the head
    spread_ns: float  # change that the spread of the runs can explain
    limit: Threshold | None  # the user's
    modules: ModuleGroup | None = None  # whose operations compilation replaced, of kind REPLACED

    @property
    def has_limit(self) -> bool:
        """Whether the threshold is the user's."""
        return self.limit is not None

    @property
    def threshold(self) -> float:
        """The largest slowdown that passes, as a share of the base."""
        return self.limit.share if self.limit else DEFAULT_SHARE

    @functools.cached_property  # a median that every format asks for
    def base_ns(self) -> float:
        """Median over the base runs; 0 for a new operation."""
        return median(self.base_runs)

    @functools.cached_property
    def head_ns(self) -> float:
        """Median over the runs of the head; 0 for an operation that vanished."""
        return median(self.head_runs)

    @property
    def change_ns(self) -> float:
        return self.head_ns - self.base_ns

    @property
    def change(self) -> float:
        """Difference as a share of the base; infinite for a new operation."""
        if self.base_ns > 0:
            return self.change_ns / self.base_ns
        return math.inf if self.head_ns > 0 else 0.0

    @property
    def spread(self) -> float:
        """The spread of the runs as a share of the base."""
        return self.spread_ns / self.base_ns if self.base_ns > 0 else 0.0

    @property
    def is_function(self) -> bool:
        """Whether it is one function or several, whose times are those under cProfile."""
        return self.whole.name == FUNCTIONS_TIME

    @property
    def is_decisive(self) -> bool:
        """Whether a pass has to rule out a slowdown of it.

        It has to for a case, for an operation of LARGE_SHARE of its case or more, and for one that
        the threshold names.
        """
        if self.kind == ITERATION:
            return True
        if self.kind not in (OPERATION, REPLACED):
            return False
        name = self.limit.name if self.limit else ""
        is_named = bool(name) and any(name in change.names for change in self.members)
        return is_named or self.base_ns >= LARGE_SHARE * self.whole.base_ns

    @property
    def names(self) -> Collection[str]:
        """What ``--accept`` may call it: its name, its operations and their modules."""
        if self.kind == OTHER:
            # Also of a module; the name of one operation does not accept those pooled with it.
            return {self.name, OTHER}
        members = (name for change in self.members for name in (*change.names, change.module))
        return {self.name, *filter(None, members)}

    @property
    def share_to_accept(self) -> float:
        """The change as a share of the base, or of the whole case for a new operation."""
        is_new = self.change > LARGEST_LIMIT
        return self.change_ns / ((self.whole.base_ns or 1.0) if is_new else self.base_ns)


def iteration_of(case: CaseComparison, criteria: Criteria) -> Measurement:
    """Return the time of one iteration.

    Its spread is that of the rounds of each side or, on a device, of the times on its clock.
    """
    spreads_ns: list[float] = [side.wall_spread_ns for side in (case.base, case.head)]
    if case.clock == "device":
        quartiles = (quartiles_ns(side.device_ns) for side in (case.base, case.head))
        spreads_ns = [third - first for first, third in quartiles]
    base_runs = case.bases.times_ns
    head_runs = case.heads.times_ns
    return Measurement(
        case=case,
        whole=case.operations,
        name=ITERATION,
        kind=ITERATION,
        members=(),
        base_runs=base_runs,
        head_runs=head_runs,
        spread_ns=_spread(base_runs, head_runs, *spreads_ns),
        limit=Threshold.parse(case.head.case_fail) if case.head.case_fail else criteria.case_fail,
    )


def operations_of(case: CaseComparison, criteria: Criteria) -> Iterable[Measurement]:
    """Yield the operations and functions that are judged.

    Those that matter come first, by the size of their change, alone or with what they replace; then
    the time outside operations, and the small ones together.
    """
    limits = _Limits(case, criteria)
    named = {id(change) for change in case.changes if limits.name_operation(change)}
    alone: list[Measurement] = []
    # By the name that a threshold has; operations and functions by themselves.
    pools: dict[tuple[str, bool], list[OpChange]] = defaultdict(list)
    for whole in (case.operations, case.functions):
        changes = [change for change in whole.parts if change.is_operation]
        of_modules = module_groups(case, changes, named) if whole is case.operations else []
        candidates: list[_Candidate] = [
            _Candidate(group.members, group.title, REPLACED, group) for group in of_modules
        ]
        if not of_modules:
            candidates += [
                _Candidate(group, _title(group), REPLACED) for group in replacements(changes, named)
            ]
        in_a_group = {id(change) for candidate in candidates for change in candidate.members}
        candidates += [
            _Candidate([change], operation_name(*change.key), OPERATION)
            for change in changes
            if id(change) not in in_a_group
        ]
        for group, name, kind, modules in candidates:
            if named.intersection(map(id, group)) or _matter(group, case, whole, criteria):
                quantity = _sum(group, whole, name, kind, limits)
                alone.append(replace(quantity, modules=modules))
                continue
            for change in group:
                limit = limits.named(change)
                pool = (limit.name if limit else "", whole is case.functions)
                pools[pool].append(change)
    yield from sorted(alone, key=lambda quantity: (-abs(quantity.change_ns), quantity.name))

    rest = [change for change in case.operations.parts if not change.is_operation]
    for name in dict.fromkeys(change.name for change in rest):
        outside = [change for change in rest if change.name == name]
        # The host has no device time.
        if case.clock == "cpu" or any(change.base_ns or change.head_ns for change in outside):
            title = operation_name(name, "", "")
            yield _sum(outside, case.operations, title, OUTSIDE_KIND, limits)

    for (name, is_function), changes in sorted(pools.items(), reverse=True):
        other = OTHER_FUNCTIONS if is_function else OTHER
        whole = case.functions if is_function else case.operations
        yield _sum(changes, whole, f"{other} in {name}" if name else other, OTHER, limits)


class _Candidate(NamedTuple):
    """Operations that are judged by themselves if they are large enough."""

    members: Sequence[OpChange]
    name: str
    kind: str
    modules: ModuleGroup | None = None


def _matter(
    changes: Sequence[OpChange], case: CaseComparison, whole: Breakdown, criteria: Criteria
) -> bool:
    """Whether the sum of operations, or a single one of several, is large enough to be judged.

    It may be in either run, because a large increase starts from a small time.
    """
    if len(changes) > 1 and any(_matter([change], case, whole, criteria) for change in changes):
        return True
    for side, whole_ns in (("base", whole.base_ns), ("head", whole.head_ns)):
        present = [change for change in changes if getattr(change, side)]
        total_ns = sum(getattr(change, f"{side}_ns") or 0 for change in present)
        calls = sum(getattr(change, side).calls for change in present)
        if present and is_judged_alone(
            total_ns,
            whole_ns,
            least_share=criteria.min_share,
            calls=calls,
            # The overhead of cProfile is not subtracted, and both sides have it.
            profiler_ns=0 if whole is case.functions else case.profiler_ns,
        ):
            return True
    return False


def _title(group: Sequence[OpChange]) -> str:
    """Return what replaced what: ``aten::mm -> aten::addmm, forward fc1``."""
    sides = (
        (change.key, change.base and change.base_ns, change.head and change.head_ns)
        for change in group
    )
    return replacement_title(sides)


class _Limits:
    """Thresholds of a case.

    Those of its test come before the general ones, those with a name before those without.
    """

    def __init__(self, case: CaseComparison, criteria: Criteria) -> None:
        self.case = case
        self._all = [*map(Threshold.parse, case.head.op_fail), *criteria.op_fail]

    def named(self, change: OpChange) -> Threshold | None:
        return next(
            (limit for limit in self._all if limit.name and change.is_named(limit.name)), None
        )

    def name_operation(self, change: OpChange) -> bool:
        """Whether a threshold names the operation itself, not its module: it may then be small."""
        return any(limit.name in change.names for limit in self._all if limit.name)

    def of(self, changes: Sequence[OpChange]) -> Threshold | None:
        named = [limit for change in changes if (limit := self.named(change))]
        if named:  # the threshold of an operation also applies to its replacement
            return min(named, key=lambda limit: limit.share)
        return next((limit for limit in self._all if not limit.name), None)


def _sum(
    changes: Sequence[OpChange], whole: Breakdown, name: str, kind: str, limits: _Limits
) -> Measurement:
    """Return one quantity for several operations, summed run by run; no runs if all are new."""
    base_runs, head_runs = (
        tuple(map(sum, zip(*filter(None, columns), strict=True)))
        for columns in (
            [change.base_runs for change in changes],
            [change.head_runs for change in changes],
        )
    )
    spread_ns = _spread(
        base_runs,
        head_runs,
        sum(change.base.spread_ns for change in changes if change.base),
        sum(change.head.spread_ns for change in changes if change.head),
    )
    return Measurement(
        case=limits.case,
        whole=whole,
        name=name,
        kind=kind,
        members=tuple(changes),
        base_runs=base_runs,
        head_runs=head_runs,
        spread_ns=spread_ns,
        limit=limits.of(changes),
    )


def _spread(
    base_runs: Sequence[float], head_runs: Sequence[float], base_ns: float, head_ns: float
) -> float:
    """Return the spread of a time over the runs of both sides and inside them.

    It is the root of the sum of squares of the ranges over runs and the interquartile ranges.
    """
    ranges = (max(runs) - min(runs) if runs else 0 for runs in (base_runs, head_runs))
    return math.hypot(base_ns, head_ns, *ranges)
