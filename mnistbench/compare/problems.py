"""What cannot be judged: missing cases and tables, other machines, thresholds without an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import CaseComparison, Comparison, table_of
from mnistbench.compare.pairing import first_with_form, other_settings
from mnistbench.core import units
from mnistbench.judging.verdicts import INCOMPARABLE, MISSING, Reason
from mnistbench.saved_runs.compatibility import REMEDIES, described


def problems(comparison: Comparison, criteria: Criteria) -> Iterable[Reason]:
    """Yield all problems, those of the whole comparison first."""
    if not comparison.head.cases:
        why = comparison.head.why_empty or "the new run has no benchmark in it; name another"
        yield Reason(MISSING, f"no benchmark ran: {why}", excused=False)
        return
    if not comparison.bases:
        yield Reason(
            MISSING,
            "no saved run to compare with; save one with: pytest bench --benchmark-autosave",
            excused=False,
        )
        return
    cases = comparison.cases
    if not cases:
        yield Reason(
            MISSING,
            "no case in common with the base; save a run of these cases first",
            excused=False,
        )
    candidates = first_with_form(comparison.only_head)
    for run, case in comparison.only_base:
        where = f"last saved {run.label}" if run.saved_at else run.label
        text = f"in the base but not in this run: {case.node_id}, {where}"
        if settings := other_settings(case, candidates):
            changed = ", ".join(
                f"{name} {before} -> {after}" for name, (before, after) in settings.items()
            )
            text += f"; this run has it with other settings ({changed}): measure both sides alike"
        yield Reason(MISSING, text, excused=criteria.allow_missing)
    yield from _incomparable(cases, criteria)
    yield from _missing_tables(cases, criteria)
    yield from _unmatched(cases, criteria)


def _incomparable(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Reason]:
    """Yield one problem per difference, not per case: all cases may be of another machine."""
    counts = Counter(name for case in cases for name in case.incomparable)
    fields = {name: sides for case in cases for name, sides in case.incomparable.items()}
    for name, text in zip(fields, described(fields), strict=True):
        field_text = f"{units.counted(counts[name], 'case')}: {text}"
        advice, option = REMEDIES[name]
        remedy = f"{advice}, or add {criteria.flag(option)}" if option else advice
        yield Reason(INCOMPARABLE, f"{field_text}; {remedy}", excused=criteria.allow_incomparable)
    for case in cases:
        if case.iterations.unknown:
            text = (
                f"{case.head.label}: most numbers of calls differ by one factor, but not all "
                f"({case.iterations.unknown}), and the traces have no steps, so their numbers of "
                "iterations are not known; record each iteration as a step "
                "(torch.profiler.profile.step)"
            )
            yield Reason(INCOMPARABLE, text, excused=criteria.allow_incomparable)
        if case.iterations.are_divided and case.clock == "cpu" and criteria.case_fail:
            text = (
                f"{case.head.label}: {criteria.flag('--case-fail')} cannot judge the time of an "
                "iteration, because the traces have no steps and different numbers of iterations; "
                "record each iteration as a step (torch.profiler.profile.step)"
            )
            yield Reason(INCOMPARABLE, text, excused=criteria.allow_incomparable)


def _missing_tables(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Reason]:
    for case in cases:
        if case.changes or not case.is_comparable or not (criteria.op_fail or case.head.op_fail):
            continue
        both = (("the base", case.base), ("this run", case.head))
        lost = [
            name
            for name, side in both
            if case.clock == "device" and table_of(side, "device") is None
        ]
        if lost:
            text = (
                f"no device time in the operation table of {case.head.node_id} in "
                f"{' and in '.join(lost)}"
            )
            yield Reason(
                MISSING, f"{text}: the profiler recorded no kernel", excused=criteria.allow_missing
            )
            continue
        sides = [name for name, side in both if not side.warm_columns]
        is_without = case.head.tables_in or (case.base.params is None and case.head.params is None)
        if is_without and len(sides) == 2 and not case.head.op_fail:
            # Such a case never has a table of its own, and no threshold of its test asks for one.
            continue
        where = " and in ".join(sides) or "both by the same view"
        yield Reason(
            MISSING,
            f"no operation table of {case.head.node_id} in {where}",
            excused=criteria.allow_missing,
        )


def _unmatched(cases: Sequence[CaseComparison], criteria: Criteria) -> Iterable[Reason]:
    """Yield thresholds that apply to nothing: a misspelt name must not pass."""
    compared = [case for case in cases if case.changes]
    for name in sorted({limit.name for limit in criteria.op_fail if limit.name}):
        if compared and not any(
            change.is_named(name) for case in compared for change in case.changes
        ):
            yield Reason(
                MISSING, f"--op-fail {name!r} is no operation or module of any case", excused=False
            )
    for case in compared:
        for limit in map(Threshold.parse, case.head.op_fail):
            if limit.name and not any(change.is_named(limit.name) for change in case.changes):
                text = f"opgate {limit.name!r} is no operation or module of {case.head.node_id}"
                yield Reason(MISSING, text, excused=False)
    if criteria.op_fail and cases and not compared and all(case.is_comparable for case in cases):
        text = "no case has an operation table that --op-fail could apply to"
        yield Reason(
            MISSING,
            f"{text}; give {criteria.flag('--case-fail')} 10%, or save runs with --op-benchmarks",
            excused=False,
        )
