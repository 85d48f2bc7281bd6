"""(base runs, new run) -> Comparison. Pure: reads digests, knows no files, no terminal and no torch.

The *ledger* of a case is in integer nanoseconds: what the operations changed and the remainder add up to the change of
the untraced call. An operation counts with its self time less what the profiler adds per call, so that more calls are
not charged for being watched.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mnistbench.comparable import VERSIONS, decisive, differences
from mnistbench.digest import CaseDigest, OpDigest, OpKey, RunDigest, TableDigest
from mnistbench.record import OUTSIDE, median_ns


@dataclass(frozen=True)
class Side:
    """An operation, or several summed, in one run. Times are per iteration."""

    ns: int  # self time less the profiler's cost
    spread_ns: int  # interquartile range over the iterations; of a sum, the sum: no less than its own
    calls: float
    memory_bytes: int
    shapes: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class OpChange:
    """One operation of a case, or what an operation name or a module sums up to."""

    name: str  # empty where operations of a module are summed
    phase: str  # empty where phases are summed
    module: str  # empty where modules are summed, or none can be named
    base_runs: tuple[int, ...]  # self time less the profiler's cost in every base run; none where it is new
    base: Side | None  # in the last base run that has it; None where it is new
    now: Side | None

    @property
    def is_operation(self) -> bool:
        """False for the time of a phase outside any operation."""
        return self.name != OUTSIDE

    @functools.cached_property  # a median, asked for in every format
    def base_ns(self) -> int | None:
        """Median over the base runs."""
        return median_ns(self.base_runs) if self.base_runs else None

    @property
    def now_ns(self) -> int | None:
        """Self time less the profiler's cost in the new run."""
        return self.now.ns if self.now else None

    @property
    def change_ns(self) -> int:
        """What the operation added to the iteration; negative where it took time away."""
        return (self.now_ns or 0) - (self.base_ns or 0)


@dataclass(frozen=True)
class CaseComparison:
    """One case that both sides have."""

    base: CaseDigest  # in the last base run that has it
    now: CaseDigest
    clock: str  # cpu: untraced wall time and host self times. device: the accelerator's own
    base_runs: tuple[int, ...]  # time of one call in every comparable base run
    now_ns: int
    operations: tuple[OpChange, ...]  # by size of change, the largest first
    profiler_ns: int  # cost per call; 0 on the device's clock
    incomparable: Mapping[str, tuple[Any, Any]]  # why times cannot be compared: field -> (base, now)

    @functools.cached_property  # a median, asked for in every format
    def base_ns(self) -> int:
        """Time of one call, untraced: median over the base runs."""
        return median_ns(self.base_runs)

    @property
    def change_ns(self) -> int:
        """Change of the time of one call."""
        return self.now_ns - self.base_ns

    @property
    def explained_ns(self) -> int:
        """Sum of what the operations changed."""
        return sum(operation.change_ns for operation in self.operations)

    @property
    def remainder_ns(self) -> int:
        """What the operations do not explain; with their changes it adds up to the change of the call."""
        return self.change_ns - self.explained_ns

    @property
    def renamed_from(self) -> str:
        """The test's name in the base, where the same Params go by another name now."""
        return self.base.node_id if self.base.test != self.now.test else ""

    @property
    def phases(self) -> dict[str, int]:
        """What each phase changed, time outside operations included."""
        found: dict[str, int] = defaultdict(int)
        for operation in self.operations:
            found[operation.phase] += operation.change_ns
        return dict(found)


@dataclass(frozen=True)
class Comparison:
    """A new run held against one or more base runs, case by case."""

    bases: tuple[RunDigest, ...]  # the last is the newest
    now: RunDigest
    cases: tuple[CaseComparison, ...]
    only_base: tuple[CaseDigest, ...]  # of the newest base run
    only_now: tuple[CaseDigest, ...]
    by: str

    @property
    def environment(self) -> dict[str, tuple[Any, Any]]:
        """What differs between the newest base run and now: field -> (base, now)."""
        return differences(self.bases[-1].environment, self.now.environment) if self.bases else {}

    @functools.cached_property
    def redefined(self) -> tuple[tuple[CaseDigest, CaseDigest, Mapping[str, tuple[Any, Any]]], ...]:
        """Cases of one name, or that differ only in how they were run: (base, now, field -> (base, now)). Not the same case."""
        found = []
        left = list(self.only_now)
        for case in self.only_base:
            other = next((now for now in left if _run_differently(case, now)), None)
            if other is not None and case.params and other.params:
                left.remove(other)
                found.append((case, other, case.params.differences(other.params)))
        return tuple(found)


#: Fields of Params that say how a case was run, not what it is.
_HOW = ("threads", "dtype", "dataset", "seed")


def _run_differently(base: CaseDigest, now: CaseDigest) -> bool:
    if base.params is None or now.params is None:
        return False
    return base.node_id == now.node_id or (base.test == now.test and set(base.params.differences(now.params)) <= set(_HOW))


def compare(bases: Sequence[RunDigest], now: RunDigest, *, by: str = "op,module", across_versions: bool = False) -> Comparison:
    """Match the cases of two sides by test and Params, and their operations by name, phase and module.

    A base run that a case cannot be compared with does not count for it. Where none is left, the newest stands in, and
    the case says why it is incomparable.

    Args:
        bases: the base runs, oldest first; each is one sample.
        now: the run that is judged.
        by: ``op``, ``module`` or ``op,module``: what operations are summed over.
        across_versions: compare runs of different torch versions.
    """
    newest = bases[-1].cases if bases else ()
    pairs = dict(_matched(newest, now.cases))
    by_key = [{_key(case): case for case in run.cases} for run in bases]
    cases = []
    for case, base in pairs.values():
        having = [(run, found) for run, cases_of in zip(bases, by_key, strict=True) if (found := cases_of.get(_key(base)))]
        cases.append(_compare_case(having, case, now.environment, by, across_versions=across_versions))
    matched_bases = {id(base) for _, base in pairs.values()}
    return Comparison(
        bases=tuple(bases),
        now=now,
        cases=tuple(cases),
        only_base=tuple(case for case in newest if id(case) not in matched_bases),
        only_now=tuple(case for case in now.cases if id(case) not in pairs),
        by=by,
    )


def _key(case: CaseDigest) -> tuple[Any, ...]:
    return (case.test, case.params) if case.params else (case.node_id,)


def _matched(bases: Sequence[CaseDigest], now: Sequence[CaseDigest]) -> Iterable[tuple[int, tuple[CaseDigest, CaseDigest]]]:
    """Pair cases by test and Params; then plain benchmarks by name; then Params that only one test on each side has."""
    rules: tuple[Callable[[CaseDigest], Any], ...] = (
        lambda case: (case.test, case.params) if case.params else None,
        lambda case: case.node_id,
        lambda case: case.params,
    )
    left, right = list(now), list(bases)
    for rule, plain_only in zip(rules, (False, True, False), strict=True):
        for case in list(left):
            found = [base for base in right if rule(case) is not None and rule(base) == rule(case)]
            rivals = [other for other in left if rule(other) == rule(case)]
            if plain_only and case.params and all(base.params for base in found):
                continue  # one name and two Params: not the same case any more
            if len(found) == len(rivals) == 1:
                yield id(case), (case, found[0])
                left.remove(case)
                right.remove(found[0])


def _compare_case(
    bases: Sequence[tuple[RunDigest, CaseDigest]],
    now: CaseDigest,
    environment: Mapping[str, Any],
    by: str,
    *,
    across_versions: bool,
) -> CaseComparison:
    comparable = [
        found for run, found in bases if not decisive(run.environment, environment, now.params, across_versions=across_versions)
    ]
    incomparable = {}
    if not comparable:
        run, newest = bases[-1]
        comparable = [newest]
        incomparable = decisive(run.environment, environment, now.params, across_versions=across_versions)
    last = comparable[-1]
    clock = "device" if _on_device(last) and _on_device(now) else "cpu"
    view = "device" if clock == "device" else "host"
    same_versions = not any(name in incomparable for name in VERSIONS)
    having_tables = [case.tables[view] for case in comparable if view in case.tables]
    operations: tuple[OpChange, ...] = ()
    if view in now.tables and view in last.tables and same_versions:
        operations = _compare_operations(having_tables, now.tables[view], by, clock)
    return CaseComparison(
        base=last,
        now=now,
        clock=clock,
        base_runs=tuple(_call_ns(case, clock) for case in comparable),
        now_ns=_call_ns(now, clock),
        operations=operations,
        profiler_ns=now.tables[view].profiler_ns if operations and clock == "cpu" else 0,
        incomparable=incomparable,
    )


def _on_device(case: CaseDigest) -> bool:
    return "device" in case.tables and bool(case.device_ns)


def _call_ns(case: CaseDigest, clock: str) -> int:
    return median_ns(case.device_ns) if clock == "device" and case.device_ns else case.wall_ns


def _compare_operations(bases: Sequence[TableDigest], now: TableDigest, by: str, clock: str) -> tuple[OpChange, ...]:
    """Count an operation as 0 in a base run that lacks it, and as new where most base runs lack it."""
    runs = [grouped_times(table, by, clock) for table in bases]
    last, new = _sides(bases[-1], by, clock), _sides(now, by, clock)
    seen = Counter(itertools.chain.from_iterable(runs))
    for key, times in seen.items():
        if times > len(runs) / 2 and key not in last:
            having = next(table for table, of_run in zip(reversed(bases), reversed(runs), strict=True) if key in of_run)
            last[key] = _sides(having, by, clock)[key]
    changes = [
        OpChange(*key, tuple(run.get(key, 0) for run in runs) if key in last else (), last.get(key), new.get(key))
        for key in {**last, **new}
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_ns), change.name, change.phase, change.module)))


def grouped_times(table: TableDigest, by: str, clock: str) -> dict[OpKey, int]:
    """Sum self times less the profiler's cost; the cost does not fall on the device's clock."""
    cost = 0 if clock == "device" else table.profiler_ns
    times = [ns - round(calls * cost) for ns, calls in zip(table.self_ns, table.counted.calls, strict=True)]
    if by == "op,module":
        return dict(zip(table.counted.keys, times, strict=True))
    found: dict[OpKey, int] = defaultdict(int)
    for key, ns in zip(table.counted.keys, times, strict=True):
        found[grouped(key, by)] += ns
    return found


def _sides(table: TableDigest, by: str, clock: str) -> dict[OpKey, Side]:
    of_key: dict[OpKey, list[OpDigest]] = defaultdict(list)
    for key, row in table.operations.items():
        of_key[grouped(key, by)].append(row)
    times = grouped_times(table, by, clock)
    return {
        key: Side(
            ns=times[key],
            spread_ns=sum(row.spread_ns for row in rows),
            calls=sum(row.calls for row in rows),
            memory_bytes=sum(row.memory_bytes for row in rows),
            shapes=tuple(sorted({shape for row in rows for shape in row.shapes})),
            kernels=tuple(sorted({kernel for row in rows for kernel in row.kernels})),
        )
        for key, rows in of_key.items()
    }


def grouped(key: OpKey, by: str) -> OpKey:
    """Return what stands for an operation's key where operations are taken together ``op``, ``module`` or ``op,module``."""
    name, phase, module = key
    if by == "op":
        return (name, "", "")
    if by == "module":
        return (OUTSIDE if name == OUTSIDE else "", phase, module)
    return key
