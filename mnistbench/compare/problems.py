"""Comparison -> why some of it cannot be judged: missing cases and tables, other machines, thresholds without an effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import CaseComparison, Comparison, table_of
from mnistbench.core import units
from mnistbench.saved_runs.compatibility import BLOCKING

INCOMPARABLE, MISSING = "incomparable", "missing"


class Problem(NamedTuple):
    """One reason why something could not be judged."""

    verdict: str  # MISSING or INCOMPARABLE
    text: str
    excused: bool  # by --allow-missing or --allow-incomparable


def problems(comparison: Comparison, criteria: Criteria) -> Iterable[Problem]:
    """Yield all problems, those of the whole comparison first."""
    if not comparison.head.cases:
        yield Problem(MISSING, "no benchmark ran that has an operation record", excused=False)
        return
    if not comparison.bases:
        yield Problem(MISSING, "no saved run to compare with; save one with: pytest bench --benchmark-autosave", excused=False)
        return
    cases = comparison.cases
    if not cases:
        yield Problem(MISSING, "no case in common with the base; save a run of these cases first", excused=False)
    for base, _, fields in comparison.redefined:
        changed = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in fields.items())
        text = f"not the same case as in the base: {base.node_id} ({changed}); measure both sides with the same settings"
        yield Problem(INCOMPARABLE, text, excused=criteria.allow_incomparable)
    redefined = {id(base) for base, _, _ in comparison.redefined}
    for run, case in comparison.only_base:
        if id(case) not in redefined:
            where = run.label if run.trace else f"last saved {run.label}"
            text = f"in the base but not in this run: {case.node_id}, {where}"
            yield Problem(MISSING, text, excused=criteria.allow_missing)
    yield from _incomparable(cases, criteria)
    yield from _missing_tables(cases, criteria)
    yield from _unmatched(cases, criteria)


def _incomparable(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Problem]:
    """Yield one problem per difference, not per case: another machine is a difference of all cases."""
    found: dict[str, tuple[object, object, int]] = {}
    for case in cases:
        for name, (base, head) in case.incomparable.items():
            found[name] = (base, head, found.get(name, (0, 0, 0))[2] + 1)
    for name, (base, head, count) in found.items():
        what = f"{count} case{'s' if count > 1 else ''}: {name.replace('_', ' ')} {units.listed(base)} -> {units.listed(head)}"
        yield Problem(INCOMPARABLE, f"{what}; {BLOCKING[name]}", excused=criteria.allow_incomparable)


def _missing_tables(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Problem]:
    for case in cases:
        if case.operations or case.incomparable or not (criteria.op_fail or case.head.op_fail):
            continue
        both = (("the base", case.base), ("this run", case.head))
        lost = [name for name, side in both if case.clock == "device" and table_of(side, "device") is None]
        if lost:
            text = f"no device time in the operation table of {case.head.node_id} in {' and in '.join(lost)}"
            yield Problem(MISSING, f"{text}: the profiler recorded no kernel", excused=criteria.allow_missing)
            continue
        sides = [name for name, side in both if not side.tables]
        if case.head.tables_in and len(sides) == 2 and not case.head.op_fail:
            continue  # such a case never has a table of its own, and no threshold of its test asks for one
        where = " and in ".join(sides) or "both by the same view"
        yield Problem(MISSING, f"no operation table of {case.head.node_id} in {where}", excused=criteria.allow_missing)


def _unmatched(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Problem]:
    """Yield thresholds that apply to nothing: a misspelt name must not pass."""
    compared = [case for case in cases if case.operations]
    for name in sorted({limit.name for limit in criteria.op_fail if limit.name}):
        if compared and not any(change.is_named(name) for case in compared for change in case.operations):
            yield Problem(MISSING, f"--op-fail {name!r} is no operation or module of any case", excused=False)
    for case in compared:
        for limit in map(Threshold.parse, case.head.op_fail):
            if limit.name and not any(change.is_named(limit.name) for change in case.operations):
                text = f"opgate {limit.name!r} is no operation or module of {case.head.node_id}"
                yield Problem(MISSING, text, excused=False)
    if criteria.op_fail and cases and not compared and not any(case.incomparable for case in cases):
        yield Problem(MISSING, "no case has an operation table that --op-fail could apply to", excused=False)
