"""Which cases of two sides are the same, and which runs are samples of a case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mnistbench.core.record import CaseRecord
from mnistbench.saved_runs.compatibility import TIMER, blocking_differences, differences
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

# ---- Which cases are the same --------------------------------------------------------------------


def paired_cases(
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


def samples_of(
    having: Sequence[CaseOfRun], head: CaseOfRun, allowed: Mapping[str, bool], *, pool_commits: bool
) -> tuple[list[CaseOfRun], Counter[str]]:
    """Choose the samples of a case among the base runs that have it, oldest first.

    Count why the others are left out.

    Runs of one commit with a clean tree are replicates. The code of a dirty tree is not known, so
    such a run is alone. Of runs that only ``allowed`` makes comparable, those that can be compared
    with the newest of them are samples.
    """
    comparable = [case_of_run for case_of_run in having if not blocking(case_of_run, head, allowed)]
    samples = []
    left_out = Counter[str]()
    if comparable:
        newest = comparable[-1][0]
        if any(allowed.values()):
            comparable = [
                case_of_run
                for case_of_run in comparable
                if not blocking(case_of_run, comparable[-1], {})
            ]
        for run, case in comparable:
            if not pool_commits and run is not newest and (reason := _not_a_replicate(run, newest)):
                left_out[reason] += 1
            else:
                samples.append((run, case))
    left_out[ELSEWHERE] = len(having) - len(comparable)
    return samples, left_out


def blocking(
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


def _not_a_replicate(run: Run, newest: Run) -> str:
    """Return why a run is not a replicate of the newest run; empty if it is one."""
    if run.commit != newest.commit:
        return OTHER_COMMIT
    if not run.commit:
        return UNVERSIONED
    return DIRTY if run.dirty or newest.dirty else ""


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
