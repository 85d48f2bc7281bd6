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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from mnistbench.compare.iterations import SAME, Iterations, iterations_of
from mnistbench.core.operation import (
    BYTES,
    CALLS,
    NOT_OPERATIONS,
    OpKey,
    grouped,
    operation_name,
    shortened,
)
from mnistbench.core.record import CaseRecord, OpColumns, median, median_ns
from mnistbench.saved_runs.compatibility import (
    MACHINES,
    TIMER,
    VERSIONS,
    blocking_differences,
    differences,
)
from mnistbench.saved_runs.run import Run

#: A case with its run.
CaseOfRun = tuple[Run, CaseRecord]

#: Identity of a case: ``CaseRecord.key``.
CaseKey = tuple[Any, ...]

#: Why a base run is left out of a case: it does not have the case.
ABSENT = "without the case"
#: It is of another machine or software.
ELSEWHERE = "another machine or software"
#: It is of another commit.
OTHER_COMMIT = "other commit"
#: Its working tree was changed.
DIRTY = "dirty tree"
#: It is of no commit.
UNVERSIONED = "no commit"


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
    is_function: bool = False  # of Python, with the time that it takes under cProfile

    @property
    def key(self) -> OpKey:
        """Operation, phase and module."""
        return (self.name, self.phase, self.module)

    @property
    def is_operation(self) -> bool:
        """False for the rest of the time.

        Outside operations, runtime calls, unattributed kernels.
        """
        return self.name not in NOT_OPERATIONS

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the operation: as torch names it, as tables shorten it, with its place."""
        return (self.name, shortened(self.name), operation_name(*self.key))

    def is_named(self, name: str) -> bool:
        """Whether a user's name is that of the operation or of its module."""
        return self.is_operation and name in (*self.names, self.module)

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


@dataclass(frozen=True)
class CaseComparison:
    """One case that both sides have."""

    base: CaseRecord  # in the newest base run that counts
    head: CaseRecord
    # cpu: wall time and host self times. device: elapsed time on the accelerator's clock and times
    # of its kernels.
    clock: str
    base_runs: tuple[float, ...]  # elapsed time of one iteration in every base run that counts
    head_runs: tuple[float, ...]  # and in every run of the head that counts
    operations: tuple[OpChange, ...]  # and functions; by size of change, the largest first
    profiler_ns: int  # overhead per call; 0 for device times
    # Why times cannot be compared: field -> (base, head).
    incomparable: Mapping[str, tuple[Any, Any]]
    # The base runs that count, oldest first; none where the case is incomparable.
    used: tuple[Run, ...] = ()
    # The other base runs: reason -> how many.
    left_out: Mapping[str, int] = field(default_factory=dict)
    # Compared all the same: field -> (base, head).
    across_machines: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    # Time of one iteration in which the accelerator ran kernels or copies, in every base run that
    # has it. Elapsed time also has the gaps between kernels. Empty and 0 where the clock is the
    # CPU's, or one side is of a version that did not save it.
    busy_base_runs: tuple[int, ...] = ()
    busy_head_ns: float = 0
    # The runs of the head that count, oldest first, and why the others are left out.
    used_heads: tuple[Run, ...] = ()
    left_out_heads: Mapping[str, int] = field(default_factory=dict)
    # Of traces without steps: what the times and calls of both sides are divided by.
    iterations: Iterations = SAME

    @property
    def is_comparable(self) -> bool:
        """Whether the times of both sides can be compared.

        The same environment, and as many iterations or known numbers.
        """
        return not self.incomparable and not self.iterations.unknown

    @functools.cached_property  # a median, asked for in every format
    def base_ns(self) -> float:
        """Time of one iteration without the profiler: median over the base runs."""
        return median(self.base_runs)

    @functools.cached_property
    def head_ns(self) -> float:
        """Time of one iteration without the profiler: median over the runs of the head."""
        return median(self.head_runs)

    @property
    def change_ns(self) -> float:
        return self.head_ns - self.base_ns

    @property
    def has_busy_time(self) -> bool:
        """Whether the operations are compared with busy time, because both sides have it."""
        return bool(self.busy_base_runs)

    @property
    def is_busy_time(self) -> bool:
        """Whether the time of the case is busy time itself, as of a trace, and not elapsed time."""
        return self.has_busy_time and (self.busy_base_runs, self.busy_head_ns) == (
            self.base_runs,
            self.head_ns,
        )

    @functools.cached_property
    def whole_base_ns(self) -> float:
        """Time that the operations of the base are parts of.

        Busy time on an accelerator, else the iteration.
        """
        return median(self.busy_base_runs) if self.has_busy_time else self.base_ns

    @property
    def whole_head_ns(self) -> float:
        """Time that the operations of the new run are parts of."""
        return self.busy_head_ns if self.has_busy_time else self.head_ns

    @property
    def whole_change_ns(self) -> float:
        """Change of the time that the operations are parts of."""
        return self.whole_head_ns - self.whole_base_ns

    @functools.cached_property
    def functions(self) -> tuple[OpChange, ...]:
        """The functions among the operations."""
        return tuple(change for change in self.operations if change.is_function)

    @functools.cached_property
    def functions_ns(self) -> tuple[float, float]:
        """Self times of all functions under cProfile, in the base and in the head."""
        base_ns = sum(change.base_ns or 0 for change in self.functions)
        return (base_ns, sum(change.head_ns or 0 for change in self.functions))

    def whole_ns(self, *, is_function: bool) -> tuple[float, float]:
        """Return the times in base and head that an operation, or a function, is part of."""
        return self.functions_ns if is_function else (self.whole_base_ns, self.whole_head_ns)

    @property
    def remainder_ns(self) -> float:
        """Change of the time that the operations are parts of, without their own changes."""
        return self.whole_change_ns - sum(
            change.change_ns for change in self.operations if not change.is_function
        )

    @property
    def renamed_from(self) -> str:
        """The name of the test in the base, if a test with another name has the same Params now."""
        return self.base.node_id if self.base.test != self.head.test else ""

    @functools.cached_property
    def final_values(self) -> dict[str, tuple[float | None, float | None]]:
        """Final losses and accuracies of both sides, by tag; none if they used other datasets."""
        base = self.base.scalars
        head = self.head.scalars
        if not base or not head or not base.dataset or base.dataset != head.dataset:
            return {}
        return {
            tag: (base.final[tag], value)
            for tag, value in head.final.items()
            if tag in base.final and not tag.startswith("timing/")
        }

    @property
    def phases(self) -> dict[str, float]:
        """Change of each phase, including time outside operations."""
        changes_ns: dict[str, float] = defaultdict(float)
        for operation in self.operations:
            if not operation.is_function:
                changes_ns[operation.phase] += operation.change_ns
        return dict(changes_ns)


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
        newest_runs = {id(case.used[-1]): case.used[-1] for case in self.cases if case.used}
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


#: Fields of Params that are settings of a case, not its identity.
_SETTINGS = ("threads", "dtype", "dataset", "seed")


def other_settings(
    case: CaseRecord, candidates: Mapping[Any, CaseRecord]
) -> dict[str, tuple[Any, Any]]:
    """Return how the first candidate with the name or the test of a case differs from it.

    It is a hint where a case is missing: field of Params -> (of the case, of the candidate). The
    candidates are those of :func:`first_with_form`.
    """
    for candidate in filter(None, map(candidates.get, _forms(case))):
        if case.params and candidate.params:
            return differences(asdict(case.params), asdict(candidate.params))
    return {}


def first_with_form(cases: Iterable[CaseRecord]) -> dict[Any, CaseRecord]:
    """Return the first case of each name, and of each test with all params but settings."""
    first: dict[Any, CaseRecord] = {}
    for case in cases:
        for form in _forms(case) if case.params else ():
            first.setdefault(form, case)
    return first


def _forms(case: CaseRecord) -> tuple[tuple[Any, ...], ...]:
    """Return the name of a case, and its test with all params that are not settings.

    Two cases that share one of them may be one case before and after a change of its settings.
    """
    if case.params is None:
        return ((case.node_id,),)
    identity = (value for name, value in vars(case.params).items() if name not in _SETTINGS)
    return (case.node_id,), (case.test, *identity)


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
    pairs, only_base = _paired(bases, cases_by_key, head)
    allowed = {"across_versions": across_versions, "across_machines": across_machines}
    compared_cases = []
    for case, base in pairs:
        key = base.key
        having = [
            (run, base_case)
            for run, cases in zip(bases, cases_by_key, strict=True)
            if (base_case := cases.get(key))
        ]
        samples, left_out = _samples(having, (head, case), allowed, pool_commits=pool_commits)
        left_out[ABSENT] = len(bases) - len(having)
        heads = [
            (run, older_case)
            for run, cases in zip(older_heads, head_cases_by_key, strict=True)
            if (older_case := cases.get(case.key))
        ]
        head_samples, left_out_heads = _samples(
            [*heads, (head, case)], (head, case), {}, pool_commits=False
        )
        left_out_heads[ABSENT] = len(older_heads) - len(heads)
        incomparable = {} if samples else _blocking(having[-1], (head, case), allowed)
        compared_case = _compare_case(
            samples or having[-1:], head_samples, by, left_out, incomparable
        )
        compared_cases.append(replace(compared_case, left_out_heads=_counted(left_out_heads)))
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


# ---- Which cases are the same --------------------------------------------------------------------


def _paired(
    bases: Sequence[Run], cases_by_key: Sequence[Mapping[CaseKey, CaseRecord]], head: Run
) -> tuple[list[tuple[CaseRecord, CaseRecord]], tuple[CaseOfRun, ...]]:
    """Pair cases by test and Params, then by other names.

    Plain benchmarks are paired by name, then Params that only one test of each side has.
    ``cases_by_key`` has the cases of each base run.

    Returns:
        The pairs (head, base), and the cases that only base runs have, each with the newest of
        these runs.
    """
    left = list(head.cases)
    right = list(_latest(bases, cases_by_key))
    pairs: list[tuple[CaseRecord, CaseRecord]] = []

    def pair(rule: Callable[[CaseRecord], Any], *, plain_only: bool = False) -> None:
        """Pair cases with the same value of the rule, if it is unique on both sides."""
        groups: dict[Any, tuple[list[CaseRecord], list[CaseRecord]]] = defaultdict(lambda: ([], []))
        for side, cases in enumerate((left, [case for _, case in right])):
            for case in cases:
                groups[rule(case)][side].append(case)
        new_pairs = [
            (head_cases[0], base_cases[0])
            for head_cases, base_cases in groups.values()
            if len(head_cases) == len(base_cases) == 1
        ]
        if plain_only:  # one name and two Params: not the same case any more
            new_pairs = [
                (head_case, base_case)
                for head_case, base_case in new_pairs
                if not (head_case.params and base_case.params)
            ]
        pairs.extend(new_pairs)
        paired_ids = {id(case) for new_pair in new_pairs for case in new_pair}
        left[:] = [case for case in left if id(case) not in paired_ids]
        right[:] = [(run, case) for run, case in right if id(case) not in paired_ids]

    pair(lambda case: case.key)
    pair(lambda case: case.node_id, plain_only=True)
    if right:  # else it would go through all base runs for nothing
        right = _without_replaced(right, [base for _, base in pairs], bases)
    pair(lambda case: case.params or id(case))  # a plain benchmark has none in common with another
    return pairs, tuple(right)


def _latest(
    bases: Sequence[Run], cases_by_key: Sequence[Mapping[CaseKey, CaseRecord]]
) -> Iterable[CaseOfRun]:
    """Yield every case of the base runs once, from the newest run that has it.

    Cases of newer runs first.
    """
    seen: set[CaseKey] = set()
    for run, cases in zip(reversed(bases), reversed(cases_by_key), strict=True):
        new_cases = {key: case for key, case in cases.items() if key not in seen}
        yield from ((run, case) for case in new_cases.values())
        seen.update(new_cases)


def _without_replaced(
    base_only: Iterable[CaseOfRun], paired: Iterable[CaseRecord], bases: Sequence[Run]
) -> list[CaseOfRun]:
    """Drop cases that a paired case, or a case of a newer base run, replaces.

    The suite may have changed between the base runs: a test was renamed, or its settings changed.
    Cases that occur together in one run are different cases, whatever they have in common.
    """
    runs_with: dict[CaseKey, set[int]] = defaultdict(set)  # key of a case -> positions
    for position, run in enumerate(bases):
        for case in run.cases:
            runs_with[case.key].add(position)
    # What cases may have in common -> the runs of each newer case that has it.
    newer: dict[Any, set[frozenset[int]]] = defaultdict(set)

    def add(case: CaseRecord) -> None:
        for common in (*_forms(case), *filter(None, (case.params,))):
            newer[common].add(frozenset(runs_with[case.key]))

    for case in paired:
        add(case)
    kept = []
    for run, case in base_only:  # the newest run first
        commons = (*_forms(case), *filter(None, (case.params,)))
        if all(runs & runs_with[case.key] for common in commons for runs in newer[common]):
            kept.append((run, case))
            add(case)
    return kept


# ---- Which base runs count -----------------------------------------------------------------------


def _samples(
    having: Sequence[CaseOfRun], head: CaseOfRun, allowed: Mapping[str, bool], *, pool_commits: bool
) -> tuple[list[CaseOfRun], Counter[str]]:
    """Choose the samples of a case among the base runs that have it, oldest first.

    Count why the others are left out.

    Runs of one commit with a clean tree are replicates. The code of a dirty tree is not known, so
    such a run is alone. Of runs that only ``allowed`` makes comparable, those that can be compared
    with the newest of them are samples.
    """
    comparable = [
        case_of_run for case_of_run in having if not _blocking(case_of_run, head, allowed)
    ]
    samples = []
    left_out = Counter[str]()
    if comparable:
        newest = comparable[-1][0]
        if any(allowed.values()):
            comparable = [
                case_of_run
                for case_of_run in comparable
                if not _blocking(case_of_run, comparable[-1], {})
            ]
        for run, case in comparable:
            if not pool_commits and run is not newest and (reason := _not_a_replicate(run, newest)):
                left_out[reason] += 1
            else:
                samples.append((run, case))
    left_out[ELSEWHERE] = len(having) - len(comparable)
    return samples, left_out


def _blocking(
    base: CaseOfRun, head: CaseOfRun, allowed: Mapping[str, bool]
) -> dict[str, tuple[Any, Any]]:
    """Return why the times of a case cannot be compared: field -> (base, head)."""
    base_run, base_case = base
    head_run, head_case = head
    timers = tuple(
        case.timing.clock if case.timing and case.timing.timer else ""
        for case in (base_case, head_case)
    )
    return {
        **blocking_differences(
            base_run.environment, head_run.environment, head_case.params, **allowed
        ),
        **({TIMER: timers} if all(timers) and len(set(timers)) > 1 else {}),
    }


def _counted(left_out: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in left_out.items() if count}


def _not_a_replicate(run: Run, newest: Run) -> str:
    """Return why a run is not a replicate of the newest run; empty if it is one."""
    if run.commit != newest.commit:
        return OTHER_COMMIT
    if not run.commit:
        return UNVERSIONED
    return DIRTY if run.dirty or newest.dirty else ""


# ---- One case ------------------------------------------------------------------------------------


def _compare_case(
    samples: Sequence[CaseOfRun],
    head_samples: Sequence[CaseOfRun],
    by: str,
    left_out: Mapping[str, int],
    incomparable: Mapping[str, tuple[Any, Any]],
) -> CaseComparison:
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
    same_versions = not any(name in incomparable for name in VERSIONS)
    across = (
        {}
        if incomparable
        else blocking_differences(last_run.environment, head_run.environment, head.params)
    )
    tables = [table for _, case in samples if (table := table_of(case, view))]
    head_tables = [table for _, case in head_samples if (table := table_of(case, view))]
    mine = table_of(head, view)
    operations: tuple[OpChange, ...] = ()
    if mine and table_of(last, view) and same_versions:
        operations = _compare_operations(tables, head_tables, by)
    busy_base_runs = (
        tuple(filter(None, (median_ns(table.times.busy_ns) for table in tables)))
        if operations and clock == "device"
        else ()
    )
    busy_head_ns = (
        median(median_ns(table.times.busy_ns) for table in head_tables) if busy_base_runs else 0
    )
    functions: tuple[OpChange, ...] = ()
    if same_versions:
        functions = _compare_functions(
            [case for _, case in samples], [case for _, case in head_samples], by
        )
    return CaseComparison(
        base=last,
        head=head,
        clock=clock,
        base_runs=tuple(_call_ns(case, clock) for _, case in samples),
        head_runs=tuple(_call_ns(case, clock) for _, case in head_samples),
        operations=_largest_first((*operations, *functions)),
        profiler_ns=mine.times.profiler_ns if mine and operations and clock == "cpu" else 0,
        incomparable=incomparable,
        used=() if incomparable else tuple(run for run, _ in samples),
        used_heads=() if incomparable else tuple(run for run, _ in head_samples),
        left_out=_counted(left_out),
        across_machines={name: sides for name, sides in across.items() if name in MACHINES},
        busy_base_runs=busy_base_runs if busy_head_ns else (),
        busy_head_ns=busy_head_ns,
        iterations=iterations,
    )


def _iterations(samples: Sequence[CaseOfRun], head: CaseOfRun, view: str) -> Iterations:
    """Return how the numbers of iterations of traces differ.

    Only one without steps can have several in its times.
    """
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
    """Return the table of a view, but no device table without device times.

    The profiler recorded no kernel.
    """
    table = case.columns("warm", view)
    if table and view == "device" and not any(table.times.self_ns):
        return None
    return table


def _call_ns(case: CaseRecord, clock: str) -> float:
    return median_ns(case.device_ns) if clock == "device" and case.device_ns else case.wall_ns


def _compare_operations(
    bases: Sequence[OpColumns], heads: Sequence[OpColumns], by: str
) -> tuple[OpChange, ...]:
    """Compare operations.

    One is 0 in a run without it, and new if most base runs are without it.
    """
    base_runs, base = _times_and_totals(bases, by)
    head_runs, head = _times_and_totals(heads, by)
    return tuple(
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
    """Return the times of a side's operations in all runs, and what the newest run has of them.

    That of an operation which most runs have, but not the newest, is of the last one that does.
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


def _compare_functions(
    samples: Sequence[CaseRecord], heads: Sequence[CaseRecord], by: str
) -> tuple[OpChange, ...]:
    """Compare the functions of a case; none if the newest run of a side has no table of them.

    Without the time in torch's functions of C, which operations divide.
    """
    if heads[-1].function_columns is None or samples[-1].function_columns is None:
        return ()
    tables, head_tables = (
        [columns for case in cases if (columns := case.function_columns)]
        for cases in (samples, heads)
    )
    return tuple(
        replace(change, is_function=True)
        for change in _compare_operations(tables, head_tables, by)
        if change.is_operation
    )


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
    """Return for each operation its times in all runs, 0 where a run is without it.

    And how many have it and the last of them.

    Runs of the same code share one ``OpCounts``; their times are transposed together, which
    takes a third of the time of a dictionary per run.
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
