"""Base runs and a new run -> Comparison, without files, terminal or torch.

Times are nanoseconds: whole ones of the profiler, and with fractions those of pytest-benchmark. The
changes of the operations and the remainder add up to the change of the iteration without the
profiler, on an accelerator to the change of its busy time. The time of an operation is its self
time minus the profiler's overhead on its calls, so that more calls do not look slower because of
the profiler.

Functions of Python are compared as operations are, but their times are those under cProfile: they
are parts of an iteration with cProfile, and no parts of the time of the case.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mnistbench.compare.iterations import SAME, Iterations, iterations_of
from mnistbench.compare.pairing import (
    CaseKey,
    CaseOfRun,
    ChosenSamples,
    blocking,
    chosen_samples,
    paired_cases,
)
from mnistbench.core.compiled.names import is_compiled_name
from mnistbench.core.operation import (
    BYTES,
    CALLS,
    NOT_OPERATIONS,
    OpKey,
    grouped,
    is_named,
    names_of,
)
from mnistbench.core.record import CaseRecord, OpColumns, median, median_ns
from mnistbench.saved_runs.compatibility import (
    MACHINES,
    VERSIONS,
    blocking_differences,
    differences,
)
from mnistbench.saved_runs.run import Run


class OpTotals(NamedTuple):
    """One operation of one side, or a sum of operations, per iteration."""

    calls: float
    self_ns: int  # median over iterations, without the profiler's overhead
    spread_ns: int  # interquartile range over iterations; of a sum an upper bound
    memory_bytes: int
    shapes: tuple[str, ...]
    kernels: tuple[str, ...]
    sources: tuple[str, ...]
    # Which counts are averages, because they differ between iterations or base runs: CALLS, BYTES.
    varying: tuple[str, ...]


@dataclass(frozen=True)
class OpChange:
    """One operation of a case, or the sum over an operation name or a module."""

    name: str  # empty where operations of a module are summed
    phase: str  # empty where phases are summed
    module: str  # empty where modules are summed, or none can be named
    # Self time minus the profiler's overhead in every base run; none where it is new.
    base_runs: tuple[float, ...]
    base: OpTotals | None  # in the last base run that has it; None where it is new
    head: OpTotals | None  # in the last run of the head that has it
    # Self time minus the profiler's overhead in every run of the head; none where it vanished.
    head_runs: tuple[float, ...] = ()

    @property
    def key(self) -> OpKey:
        """Operation, phase and module."""
        return (self.name, self.phase, self.module)

    @property
    def is_operation(self) -> bool:
        """False for time outside operations, runtime calls and unattributed kernels."""
        return self.name not in NOT_OPERATIONS

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the operation."""
        return names_of(self.key)

    def is_named(self, name: str) -> bool:
        """Whether a user's name is that of the operation or of its module."""
        return self.is_operation and is_named(self.key, name)

    @functools.cached_property  # a median, asked for in every format
    def base_ns(self) -> float | None:
        """Median over the base runs."""
        return median(self.base_runs) if self.base_runs else None

    @functools.cached_property
    def head_ns(self) -> float | None:
        """Median over the runs of the head."""
        return median(self.head_runs) if self.head_runs else None

    @property
    def change_ns(self) -> float:
        """Change of the time of the operation; positive if it got slower."""
        return (self.head_ns or 0) - (self.base_ns or 0)


#: What operations or functions are parts of, as reports name it: the time of one iteration.
ITERATION_TIME = "iteration"
#: The time of one iteration in which the accelerator ran kernels or copies. Elapsed time also has
#: the gaps between kernels.
BUSY_TIME = "device busy time"
#: The time of one iteration under cProfile.
FUNCTIONS_TIME = "functions"


@dataclass(frozen=True)
class Breakdown:
    """A time of one iteration on both sides, and the changes of the parts that it consists of."""

    name: str  # ITERATION_TIME, BUSY_TIME or FUNCTIONS_TIME
    base_ns: float
    head_ns: float
    parts: tuple[OpChange, ...] = ()  # by size of change, the largest first

    @property
    def change_ns(self) -> float:
        return self.head_ns - self.base_ns

    @property
    def remainder_ns(self) -> float:
        """The change that the parts do not explain."""
        return self.change_ns - sum(part.change_ns for part in self.parts)


@dataclass(frozen=True)
class Samples:
    """The runs of a side that are samples of a case."""

    times_ns: tuple[float, ...]  # time of one iteration without the profiler, in each of them
    runs: tuple[Run, ...]  # oldest first; none where the case is incomparable
    left_out: Mapping[str, int]  # the other runs of the side: reason -> how many

    @functools.cached_property  # asked for in every format
    def median_ns(self) -> float:
        """Median over the runs."""
        return median(self.times_ns)


@dataclass(frozen=True)
class CaseComparison:
    """One case that both sides have."""

    base: CaseRecord  # in the newest base run that counts
    head: CaseRecord
    # cpu: wall time and host self times. device: elapsed time on the accelerator's clock and times
    # of its kernels.
    clock: str
    bases: Samples
    heads: Samples
    operations: Breakdown  # of the busy time if both sides have one, else of the iteration
    functions: Breakdown  # of an iteration under cProfile, which is no part of the case's time
    profiler_ns: int  # overhead per call of an operation; 0 for device times
    # Why times cannot be compared: field -> (base, head).
    incomparable: Mapping[str, tuple[Any, Any]]
    # Compared all the same: field -> (base, head).
    across_machines: Mapping[str, tuple[Any, Any]]
    # Of traces without steps: what the times and calls of both sides are divided by.
    iterations: Iterations

    @property
    def is_comparable(self) -> bool:
        """Whether times can be compared: the same environment, known numbers of iterations."""
        return not self.incomparable and not self.iterations.unknown

    @property
    def base_ns(self) -> float:
        """Time of one iteration without the profiler: median over the base runs."""
        return self.bases.median_ns

    @property
    def head_ns(self) -> float:
        """Time of one iteration without the profiler: median over the runs of the head."""
        return self.heads.median_ns

    @property
    def change_ns(self) -> float:
        return self.head_ns - self.base_ns

    @property
    def is_busy_time(self) -> bool:
        """Whether the time of the case is busy time itself, as of a trace, and not elapsed time."""
        busy_ns = (self.operations.base_ns, self.operations.head_ns)
        return self.operations.name == BUSY_TIME and busy_ns == (self.base_ns, self.head_ns)

    @functools.cached_property
    def changes(self) -> tuple[OpChange, ...]:
        """Operations and functions by size of change, the largest first."""
        return _largest_first((*self.operations.parts, *self.functions.parts))

    @functools.cached_property  # it reads all names of both sides
    def compiled_side(self) -> str:
        """The side whose case torch.compile compiled, if the other one ran eagerly: base or head.

        Empty otherwise, and if it is not known of a side, which then has no table of operations.
        """
        is_known = self.base.columns("warm") and self.head.columns("warm")
        is_base, is_head = map(_is_compiled, (self.base, self.head))
        if not is_known or is_base == is_head:
            return ""
        return "base" if is_base else "head"

    @property
    def renamed_from(self) -> str:
        """The name of the test in the base, if a test with another name has the same Params now."""
        return self.base.node_id if self.base.test != self.head.test else ""


def _is_compiled(case: CaseRecord) -> bool:
    columns = case.columns("warm")
    names = (name for name, _, _ in columns.keys) if columns else ()
    return case.compilation is not None or any(map(is_compiled_name, names))


@dataclass(frozen=True)
class Comparison:
    """A new run and one or more base runs, case by case."""

    bases: tuple[Run, ...]  # the last is the newest
    older_heads: tuple[Run, ...]  # other runs of the head
    head: Run  # the newest run of the head
    cases: tuple[CaseComparison, ...]
    only_base: tuple[CaseOfRun, ...]  # with the newest base run that has it
    only_head: tuple[CaseRecord, ...]
    by: str

    @functools.cached_property
    def newest_used(self) -> tuple[Run, ...]:
        """The newest base run of each case; the newest of all if no case has one."""
        newest_runs = {
            id(case.bases.runs[-1]): case.bases.runs[-1] for case in self.cases if case.bases.runs
        }
        return tuple(newest_runs.values()) or self.bases[-1:]

    @property
    def environment(self) -> dict[str, tuple[Any, Any]]:
        """Differences between the environments: field -> (base, head)."""
        different_fields: dict[str, tuple[Any, Any]] = {}
        for run in self.newest_used:
            different_fields = {
                **differences(run.environment, self.head.environment),
                **different_fields,
            }
        return different_fields


def compare(
    bases: Sequence[Run],
    head: Run,
    older_heads: Sequence[Run] = (),
    *,
    by: str = "op,module",
    across_versions: bool = False,
    across_machines: bool = False,
    pool_commits: bool = False,
) -> Comparison:
    """Match cases by test and Params, and their operations by name, phase and module.

    Each case has a base of its own: the newest base run that has the case and can be compared with
    the new run, and the runs of the same commit. If no base run can be compared, the newest is
    used, and the case has the reason. The base runs are oldest first; ``by`` is how operations are
    summed. With ``pool_commits`` all comparable base runs count.

    Runs of the commit of the new run are samples of it, as those of the base are.
    """
    cases_by_key = [{case.key: case for case in run.cases} for run in bases]
    head_cases_by_key = [{case.key: case for case in run.cases} for run in older_heads]
    pairs, only_base = paired_cases(bases, cases_by_key, head)
    allowed = {"across_versions": across_versions, "across_machines": across_machines}
    compared_cases = []
    for case, base in pairs:
        of_head = (head, case)
        with_base = _runs_with(base.key, bases, cases_by_key)
        with_head = [*_runs_with(case.key, older_heads, head_cases_by_key), of_head]
        base_side = chosen_samples(
            with_base,
            of_head,
            allowed,
            absent=len(bases) - len(with_base),
            pool_commits=pool_commits,
        )
        absent_heads = len(older_heads) + 1 - len(with_head)
        head_side = chosen_samples(with_head, of_head, {}, absent=absent_heads)
        incomparable: Mapping[str, tuple[Any, Any]] = {}
        if not base_side.samples:
            base_side = base_side._replace(samples=with_base[-1:])
            incomparable = blocking(with_base[-1], of_head, allowed)
        compared_cases.append(_compare_case(base_side, head_side, by, incomparable))
    paired = {id(case) for case, _ in pairs}
    return Comparison(
        bases=tuple(bases),
        older_heads=tuple(older_heads),
        head=head,
        cases=tuple(compared_cases),
        only_base=only_base,
        only_head=tuple(case for case in head.cases if id(case) not in paired),
        by=by,
    )


def _runs_with(
    key: CaseKey, runs: Sequence[Run], cases_by_key: Sequence[Mapping[CaseKey, CaseRecord]]
) -> list[CaseOfRun]:
    """Return the runs that have a case, each with its record."""
    return [
        (run, cases[key]) for run, cases in zip(runs, cases_by_key, strict=True) if key in cases
    ]


# ---- One case ------------------------------------------------------------------------------------


def _compare_case(
    base_side: ChosenSamples,
    head_side: ChosenSamples,
    by: str,
    incomparable: Mapping[str, tuple[Any, Any]],
) -> CaseComparison:
    samples = base_side.samples
    head_samples = head_side.samples
    last_run, last = samples[-1]
    head_run, head = head_samples[-1]
    clock = (
        "device"
        if all(case.columns("warm", "device") and case.device_ns for case in (last, head))
        else "cpu"
    )
    view = "device" if clock == "device" else "host"
    iterations = _iterations(samples, head_samples[-1], view)
    if iterations.are_divided:
        samples = [
            (run, case.divided_by(divisor))
            for (run, case), divisor in zip(samples, iterations.bases, strict=True)
        ]
        last = samples[-1][1]
        head = head.divided_by(iterations.head)
        head_samples = [(head_run, head)]  # of traces, one is named
    across = (
        {}
        if incomparable
        else blocking_differences(last_run.environment, head_run.environment, head.params)
    )
    bases = _side(samples, base_side.left_out, clock, has_runs=not incomparable)
    heads = _side(head_samples, head_side.left_out, clock, has_runs=not incomparable)
    base_cases = [case for _, case in samples]
    head_cases = [case for _, case in head_samples]
    operations = Breakdown(ITERATION_TIME, bases.median_ns, heads.median_ns)
    functions = Breakdown(FUNCTIONS_TIME, 0, 0)
    if not any(name in incomparable for name in VERSIONS):
        operations = _operations(base_cases, head_cases, view, by, operations)
        functions = _functions(base_cases, head_cases, by)
    mine = table_of(head, view)
    return CaseComparison(
        base=last,
        head=head,
        clock=clock,
        bases=bases,
        heads=heads,
        operations=operations,
        functions=functions,
        profiler_ns=mine.times.profiler_ns if mine and operations.parts and clock == "cpu" else 0,
        incomparable=incomparable,
        across_machines={name: sides for name, sides in across.items() if name in MACHINES},
        iterations=iterations,
    )


def _side(
    samples: Sequence[CaseOfRun], left_out: Mapping[str, int], clock: str, *, has_runs: bool
) -> Samples:
    return Samples(
        times_ns=tuple(_call_ns(case, clock) for _, case in samples),
        runs=tuple(run for run, _ in samples) if has_runs else (),
        left_out=left_out,
    )


def _iterations(samples: Sequence[CaseOfRun], head: CaseOfRun, view: str) -> Iterations:
    """Return how the numbers of iterations of traces differ, if one of them has no steps."""
    if not head[0].trace or all(run.has_steps for run, _ in (*samples, head)):
        return SAME
    bases = [table_of(case, view) for _, case in samples]
    head_table = table_of(head[1], view)
    return (
        iterations_of([_calls(table) for table in bases if table], _calls(head_table))
        if head_table and all(bases)
        else SAME
    )


def _calls(table: OpColumns) -> dict[OpKey, float]:
    """Return the calls of each operation, of those that take most of the time first."""
    rows = sorted(
        zip(table.times.self_ns, table.keys, table.counts.calls, strict=True),
        key=lambda row: (-row[0], row[1]),
    )
    return {key: calls for _, key, calls in rows if key[0] not in NOT_OPERATIONS and calls > 0}


def table_of(case: CaseRecord, view: str) -> OpColumns | None:
    """Return the table of a view; no device table if the profiler recorded no kernel."""
    table = case.columns("warm", view)
    if table and view == "device" and not any(table.times.self_ns):
        return None
    return table


def _call_ns(case: CaseRecord, clock: str) -> float:
    return median_ns(case.device_ns) if clock == "device" and case.device_ns else case.wall_ns


def _operations(
    bases: Sequence[CaseRecord],
    heads: Sequence[CaseRecord],
    view: str,
    by: str,
    iteration: Breakdown,
) -> Breakdown:
    """Compare the operations of a case, if the newest run of each side has a table of them.

    They are parts of the busy time where a base run and the runs of the head have one, and of the
    iteration elsewhere.
    """
    if not (table_of(bases[-1], view) and table_of(heads[-1], view)):
        return iteration
    base_tables, head_tables = (
        [table for case in cases if (table := table_of(case, view))] for cases in (bases, heads)
    )
    parts = _changes(base_tables, head_tables, by)
    if parts and view == "device":
        busy_base_runs = [ns for table in base_tables if (ns := median_ns(table.times.busy_ns))]
        busy_head_ns = median(median_ns(table.times.busy_ns) for table in head_tables)
        if busy_base_runs and busy_head_ns:
            return Breakdown(BUSY_TIME, median(busy_base_runs), busy_head_ns, parts)
    return replace(iteration, parts=parts)


def _functions(bases: Sequence[CaseRecord], heads: Sequence[CaseRecord], by: str) -> Breakdown:
    """Compare the functions of a case, if the newest run of each side has a table of them.

    The time in torch's functions of C is left out, because operations divide it.
    """
    parts: tuple[OpChange, ...] = ()
    if heads[-1].function_columns is not None and bases[-1].function_columns is not None:
        base_tables, head_tables = (
            [columns for case in cases if (columns := case.function_columns)]
            for cases in (bases, heads)
        )
        parts = tuple(
            change for change in _changes(base_tables, head_tables, by) if change.is_operation
        )
    base_ns = sum(change.base_ns or 0 for change in parts)
    head_ns = sum(change.head_ns or 0 for change in parts)
    return Breakdown(FUNCTIONS_TIME, base_ns, head_ns, parts)


def _changes(
    bases: Sequence[OpColumns], heads: Sequence[OpColumns], by: str
) -> tuple[OpChange, ...]:
    """Compare the rows of tables, the largest change first.

    The time of a row is 0 in a run without it. It is new if most base runs are without it.
    """
    base_runs, base = _times_and_totals(bases, by)
    head_runs, head = _times_and_totals(heads, by)
    return _largest_first(
        OpChange(
            *key,
            base_runs=tuple(base_runs[key]) if key in base else (),
            base=base.get(key),
            head=head.get(key),
            head_runs=tuple(head_runs[key]) if key in head else (),
        )
        for key in {**base, **head}
    )


def _times_and_totals(
    tables: Sequence[OpColumns], by: str
) -> tuple[dict[OpKey, list[int]], dict[OpKey, OpTotals]]:
    """Return the times of a side's operations in all runs, and their totals in the newest run.

    The totals of an operation that most runs have, but not the newest, are those of the last run
    that has it.
    """
    runs, newest_with = _times_of_runs(tables, by)
    totals = _sides(tables[-1], by)
    for key, (having, newest) in newest_with.items():
        if having > len(tables) / 2 and key not in totals:
            totals[key] = _sides(tables[newest], by)[key]
    for key, names in _varying_between(tables, by).items():
        if key in totals:
            varying = tuple(sorted({*totals[key].varying, *names}))
            totals[key] = totals[key]._replace(varying=varying)
    return runs, totals


def _largest_first(changes: Iterable[OpChange]) -> tuple[OpChange, ...]:
    return tuple(
        sorted(
            changes,
            key=lambda change: (-abs(change.change_ns), change.name, change.phase, change.module),
        )
    )


def _times_of_runs(
    tables: Sequence[OpColumns], by: str
) -> tuple[dict[OpKey, list[int]], dict[OpKey, tuple[int, int]]]:
    """Return the times of each operation in all runs, and how many and which last run have it.

    The time in a run without the operation is 0. Runs of the same code share one ``OpCounts``;
    their times are transposed together, which takes a third of the time of a dictionary per run.
    """
    positions_by_counts: dict[int, list[int]] = defaultdict(list)
    for position, table in enumerate(tables):
        positions_by_counts[id(table.counts)].append(position)
    runs: dict[OpKey, list[int]] = {}
    having: dict[OpKey, tuple[int, int]] = {}
    for positions in positions_by_counts.values():
        keys = [grouped(key, by) for key in tables[positions[0]].keys]
        columns = zip(*(tables[position].net_ns for position in positions), strict=True)
        for key, column in zip(keys, columns, strict=True):
            times = runs.setdefault(key, [0] * len(tables))
            if by == "op,module" and len(positions) == len(tables):
                times[:] = column
                continue
            for position, ns in zip(positions, column, strict=True):
                times[position] = ns if by == "op,module" else times[position] + ns
        for key in dict.fromkeys(keys):
            count, newest = having.get(key, (0, 0))
            having[key] = (count + len(positions), max(newest, positions[-1]))
    return runs, having


def _varying_between(tables: Sequence[OpColumns], by: str) -> Mapping[OpKey, set[str]]:
    """Return which counts of operations are not the same in all runs that have them."""
    # Runs with the same counts share them.
    distinct = {id(table.counts): table.counts for table in tables}
    if len(distinct) == 1:
        return {}
    seen: dict[OpKey, tuple[float, int]] = {}
    varying: dict[OpKey, set[str]] = defaultdict(set)
    for counts in distinct.values():
        sums: dict[OpKey, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        for key, calls, memory in zip(counts.keys, counts.calls, counts.memory_bytes, strict=True):
            grouped_key = grouped(key, by)
            summed_calls, summed_memory = sums[grouped_key]
            sums[grouped_key] = (summed_calls + calls, summed_memory + memory)
        for key, (calls, memory) in sums.items():
            known_calls, known_memory = seen.setdefault(key, (calls, memory))
            varying[key] |= {CALLS} if calls != known_calls else set()
            varying[key] |= {BYTES} if memory != known_memory else set()
    return varying


def _sides(table: OpColumns, by: str) -> dict[OpKey, OpTotals]:
    """Return the operations of one run, or their sums, without the profiler's overhead."""
    counts = table.counts
    columns = (
        counts.calls,
        table.net_ns,
        table.times.spread_ns,
        counts.memory_bytes,
        counts.shapes,
        counts.kernels,
        counts.sources,
        counts.varying,
    )
    rows_of_key: dict[OpKey, list[OpTotals]] = defaultdict(list)
    for key, row in zip(counts.keys, map(OpTotals, *columns), strict=True):
        rows_of_key[grouped(key, by)].append(row)
    return {
        key: OpTotals(
            calls=sum(row.calls for row in rows),
            self_ns=sum(row.self_ns for row in rows),
            spread_ns=sum(row.spread_ns for row in rows),
            memory_bytes=sum(row.memory_bytes for row in rows),
            shapes=tuple(sorted({shape for row in rows for shape in row.shapes})),
            kernels=tuple(sorted({kernel for row in rows for kernel in row.kernels})),
            sources=tuple(sorted({source for row in rows for source in row.sources})),
            varying=tuple(sorted({name for row in rows for name in row.varying})),
        )
        for key, rows in rows_of_key.items()
    }
