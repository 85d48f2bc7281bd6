"""Which cases of two sides are the same, and which runs are samples of a case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

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
    """Pair the cases of the head with those of the base runs.

    Cases are paired if both have, and no other case of a side has, the same

    1. test and Params,
    2. name, if one of them is a plain benchmark: cases of one name and two Params differ,
    3. Params: the test was renamed.

    Args:
        bases: oldest first.
        cases_by_key: the cases of each base run.
        head: the newest run of the head.

    Returns:
        The pairs (head, base), and the cases that only base runs have, each with the newest of
        these runs.
    """
    pairs: list[tuple[CaseRecord, CaseRecord]] = []
    head_cases = list(head.cases)
    base_cases = list(_latest(bases, cases_by_key))

    def pair(identity: Callable[[CaseRecord], Any], *, plain_only: bool = False) -> None:
        """Pair cases with the same identity, if it is unique on both sides."""
        nonlocal head_cases, base_cases
        groups: dict[Any, tuple[list[CaseRecord], list[CaseRecord]]] = defaultdict(lambda: ([], []))
        for side, cases in enumerate((head_cases, [case for _, case in base_cases])):
            for case in cases:
                groups[identity(case)][side].append(case)
        new_pairs = [
            (of_head[0], of_base[0])
            for of_head, of_base in groups.values()
            if len(of_head) == len(of_base) == 1
            and not (plain_only and of_head[0].params and of_base[0].params)
        ]
        pairs.extend(new_pairs)
        paired_ids = {id(case) for new_pair in new_pairs for case in new_pair}
        head_cases = [case for case in head_cases if id(case) not in paired_ids]
        base_cases = [(run, case) for run, case in base_cases if id(case) not in paired_ids]

    pair(lambda case: case.key)
    pair(lambda case: case.node_id, plain_only=True)
    if base_cases:  # else it would go through all base runs for nothing
        base_cases = _without_replaced(base_cases, [base for _, base in pairs], bases)
    pair(lambda case: case.params or id(case))  # a plain benchmark has none in common with another
    return pairs, tuple(base_cases)


def _latest(
    bases: Sequence[Run], cases_by_key: Sequence[Mapping[CaseKey, CaseRecord]]
) -> Iterable[CaseOfRun]:
    """Yield every case of the base runs once, from the newest run that has it, newer runs first."""
    seen: set[CaseKey] = set()
    for run, cases in zip(reversed(bases), reversed(cases_by_key), strict=True):
        new_cases = {key: case for key, case in cases.items() if key not in seen}
        yield from ((run, case) for case in new_cases.values())
        seen.update(new_cases)


def _without_replaced(
    base_only: Iterable[CaseOfRun], paired: Iterable[CaseRecord], bases: Sequence[Run]
) -> list[CaseOfRun]:
    """Drop cases of older base runs that a newer case replaces.

    The suite may have changed between the base runs: a test was renamed, or its settings changed.
    A newer case, or one that is paired, replaces an older one if both have the same name, test or
    Params, and no base run has both. Cases that one run has are different cases, whatever they have
    in common.
    """
    runs_with: dict[CaseKey, set[int]] = defaultdict(set)  # case -> positions of runs with it
    for position, run in enumerate(bases):
        for case in run.cases:
            runs_with[case.key].add(position)
    # Name, test or Params -> the runs of each newer case that has it. Thousands of cases that have
    # their Params in common are in few different sets of runs.
    newer: dict[Any, set[frozenset[int]]] = defaultdict(set)

    def add_to_newer(case: CaseRecord) -> None:
        for common in _in_common(case):
            newer[common].add(frozenset(runs_with[case.key]))

    for case in paired:
        add_to_newer(case)
    kept = []
    for run, case in base_only:  # the newest run first
        own_runs = runs_with[case.key]
        if all(own_runs & runs for common in _in_common(case) for runs in newer[common]):
            kept.append((run, case))
            add_to_newer(case)
    return kept


def _in_common(case: CaseRecord) -> Iterable[Any]:
    """Yield what a case may have in common with the case that replaces it."""
    yield from _forms(case)
    if case.params:
        yield case.params


# ---- Which base runs count -----------------------------------------------------------------------


class ChosenSamples(NamedTuple):
    """The runs of a side that are samples of a case, and why its other runs are not."""

    samples: list[CaseOfRun]  # oldest first
    left_out: dict[str, int]  # reason -> number of runs


def chosen_samples(
    having: Sequence[CaseOfRun],
    head: CaseOfRun,
    allowed: Mapping[str, bool],
    *,
    absent: int,
    pool_commits: bool = False,
) -> ChosenSamples:
    """Choose the samples of a case among the runs of a side.

    Runs of one commit with a clean tree are replicates. The code of a dirty tree is not known, so
    such a run is alone. Of runs that only ``allowed`` makes comparable, those that can be compared
    with the newest of them are samples.

    Args:
        having: the runs that have the case, oldest first.
        head: the newest run of the head, which they have to be comparable with.
        allowed: the differences that do not matter, as keywords of ``blocking_differences``.
        absent: number of runs of the side that do not have the case.
        pool_commits: take runs of other commits, too.
    """
    comparable = [case_of_run for case_of_run in having if not blocking(case_of_run, head, allowed)]
    if comparable and any(allowed.values()):
        newest = comparable[-1]
        comparable = [
            case_of_run for case_of_run in comparable if not blocking(case_of_run, newest, {})
        ]
    samples = []
    left_out = Counter[str]()
    for run, case in comparable:
        newest_run, _ = comparable[-1]
        reason = "" if pool_commits or run is newest_run else _not_a_replicate(run, newest_run)
        if reason:
            left_out[reason] += 1
        else:
            samples.append((run, case))
    left_out[ELSEWHERE] = len(having) - len(comparable)
    left_out[ABSENT] = absent
    return ChosenSamples(samples, {reason: count for reason, count in left_out.items() if count})


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
