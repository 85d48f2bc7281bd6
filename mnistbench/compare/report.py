"""Judgement -> its report.

Sentences and tables, which every format draws, and the data of JSON and CSV.

In JSON and CSV times are nanoseconds, and shares are fractions of 1.
"""

from __future__ import annotations

import itertools
import math
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import methodcaller
from typing import Any

from mnistbench.compare import judge
from mnistbench.compare.criteria import DEFAULT_SHARE
from mnistbench.compare.diff import CaseComparison, Comparison, OpChange
from mnistbench.compare.exact import exact_differences, final_value, is_exact
from mnistbench.compare.prediction_interval import FALSE_ALARM, RUNS_NEEDED
from mnistbench.core import units
from mnistbench.core.operation import NAMED, operation_cells, operation_name
from mnistbench.judging.exact import TOLERANCE
from mnistbench.judging.verdicts import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    MISSING,
    NONE,
    REGRESSED,
    SUSPECT,
    WITHIN,
)
from mnistbench.saved_runs.compatibility import described
from mnistbench.saved_runs.summary import RunSummary
from mnistbench.showing.output import append_text_to_step_summary, render
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table, text_table

#: Operations in the list at the top.
RANKED = 3

#: Tests with several benchmarks that are named.
MOST_REPEATED = 5

#: Exact differences below a table, those of the largest changes first.
MOST_DIFFERENCES = 10

#: Below this share of the base, the change of an iteration is too small to be divided among
#: operations.
LEAST_CHANGE_TO_SHARE = 0.01

#: Share of its case from which operations that are all too small to be judged by themselves deserve
#: a hint, and the hint.
SHARE_OF_SMALL = 0.1
_NONE_ALONE = (
    "no operation is large enough to be judged by itself; --by op sums over modules, "
    "--op-min-share 0.5% shows more"
)

#: Operations of a replacement that all have rows of their own.
MOST_MEMBERS = 5

#: Smallest change, as a share of the case, that has a row of its own in a replacement of more
#: operations.
LEAST_MEMBER = 0.01

#: Verdict of the rows of a replacement after its first row.
_INCLUDED = "included above"

_GRAVITY = (
    REGRESSED,
    SUSPECT,
    INCONCLUSIVE,
    IMPROVED,
    WITHIN,
    INCOMPARABLE,
)


def report(judgement: judge.Judgement, top: int) -> Report:
    """Return the report; a case shows ``top`` operations, and all that fail."""
    return Report(
        heading=list(verdict_lines(judgement))[-1],
        blocks=blocks(judgement, top),
        data=_data(judgement),
        table=Table("", _CSV, [row for judged in judgement.cases for row in _csv_rows(judged)]),
    )


def append_step_summary(judgement: judge.Judgement, top: int) -> str:
    """Append Markdown to the file that GitHub shows with a job.

    Return an error message, or nothing.
    """
    if not os.environ.get("GITHUB_STEP_SUMMARY"):
        return ""
    return append_text_to_step_summary(render(report(judgement, top), "markdown"))


def blocks(judgement: judge.Judgement, top: int) -> list[Block]:
    """Return the sentences and tables, the most important blocks first."""
    tables = [_ledger(case, top) for case in judgement.cases if case.operations]
    if others := [case for case in judgement.cases if not case.operations]:
        tables.append(_whole_cases(others))
    return [
        Block("", tuple(_sides(judgement.comparison))),
        Block("Look first at", tuple(_ranked(judgement))),
        Block("Cases", tables=tuple(tables)),
        Block("Verdict", tuple(verdict_lines(judgement))),
    ]


# ---- Which runs ----------------------------------------------------------------------------------


def _sides(comparison: Comparison) -> Iterable[str]:
    """Yield the runs, and all differences between them other than the code."""
    bases = comparison.bases
    if bases:
        others = (
            f" and {len(bases) - 1} older saved run{'s' if len(bases) > 2 else ''}"
            if len(bases) > 1
            else ""
        )
        yield f"base: {bases[-1].label}{others}"
        if len(bases) > 1:
            yield from _runs_used(comparison)
    yield f"head: {comparison.head.label}"
    if comparison.head.trace:
        yield (
            "times of a trace: median over its steps, with the profiler's overhead; device time "
            "is busy time; its CPU and its version of PyTorch are not known"
        )
    for name, (base, head) in comparison.environment.items():
        yield (
            f"different {name.replace('_', ' ')}: {units.listed(base)} -> {units.listed(head)}; "
            "this alone may change times"
        )
    if bases and (comparison.head.plain or any(run.plain for run in comparison.newest_used)):
        yield "a run without operation records is compared by case only"
    for case in comparison.cases:
        yield from _iterations(case)
        if case.renamed_from:
            yield f"renamed: {case.renamed_from} -> {case.head.node_id}"
    yield from _repeated(comparison)
    redefined = {id(head) for _, head, _ in comparison.redefined}
    new = [case.node_id for case in comparison.only_head if id(case) not in redefined]
    if new and bases:
        yield f"new, not compared: {', '.join(new)}"


def _repeated(comparison: Comparison) -> Iterable[str]:
    """Yield the tests that a run has several benchmarks of.

    Their times are compared in the order of their files.
    """
    counts: dict[str, list[int]] = {}
    for position, run in enumerate((*comparison.bases[-1:], comparison.head)):
        for case in run.cases:
            test = case.node_id.removesuffix(f" ({case.repetition})")
            sides = counts.setdefault(test, [0, 0])
            sides[position] = max(sides[position], case.repetition)
    repeated = {test: sides for test, sides in counts.items() if max(sides) > 1}
    for test, (base, head) in itertools.islice(repeated.items(), MOST_REPEATED):
        yield (
            f"several benchmarks of one name, compared in their order: {test} ({base} in the "
            f"base, {head} in the head)"
        )
    if len(repeated) > MOST_REPEATED:
        yield (
            "several benchmarks of one name: "
            f"{units.counted(len(repeated) - MOST_REPEATED, 'more test')}"
        )


def _iterations(case: CaseComparison) -> Iterable[str]:
    """Yield what was done about the numbers of calls in traces without steps, if they differ."""
    iterations = case.iterations
    if iterations.are_divided:
        base = iterations.bases[-1]
        head = iterations.head
        divided = [
            f"of the {side} by {divisor}"
            for side, divisor in (("base", base), ("head", head))
            if divisor != 1
        ]
        yield (
            f"different numbers of iterations ({case.head.label}): every operation has "
            f"{units.counted(base, 'call')} in the base for {units.counted(head, 'call')} in the "
            "head; the traces have no steps, so times and calls are divided: those "
            f"{' and '.join(divided)}"
        )
    elif iterations.others:
        yield (
            f"different numbers of calls ({case.head.label}): {iterations.others}; without steps "
            "the times are those of the whole trace, and an operation with more calls takes more "
            "time"
        )


def _runs_used(comparison: Comparison) -> Iterable[str]:
    """Yield the number of base runs that are samples and why the others are left out.

    One line if all cases agree.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for case in comparison.cases:
        commits = {run.commit: run.short_commit for run in case.used}
        of = f", commit {case.used[-1].short_commit}" if any(commits) else ""
        if len(commits) > 1:
            of = f", {len(commits)} commits"
        reasons = ", ".join(
            f"{count} ({reason})" for reason, count in sorted(case.left_out.items())
        )
        left_out = f"; left out: {reasons}" if reasons else ""
        found[f"{len(case.used)} of {len(comparison.bases)}{of}{left_out}"].append(case.head.label)
    for text, cases in found.items():
        which = (
            f" for {cases[0] if len(cases) == 1 else f'{len(cases)} cases'}"
            if len(found) > 1
            else ""
        )
        yield f"base runs used{which}: {text}"


# ---- Which operations to look at first -----------------------------------------------------------


def _ranked(judgement: judge.Judgement) -> Iterable[str]:
    """Yield the most serious verdicts first.

    Of one verdict, the largest changes as shares of the iteration first.
    """
    serious = (REGRESSED, SUSPECT, INCONCLUSIVE, IMPROVED)
    found = [
        checked
        for case in judgement.cases
        for checked in case.operations
        if checked.verdict in serious
    ]
    pooled = ("outside", "other")  # last, because they name no operation
    found.sort(
        key=lambda one: (
            one.kind in pooled,
            serious.index(one.verdict),
            -abs(_share_of_iteration(one)),
        )
    )
    for position, checked in enumerate(found[:RANKED], 1):
        yield (
            f"{position}. {checked.name} ({checked.case.head.label}): {checked.text}: "
            f"{_numbers(checked)}"
        )


def _share_of_iteration(checked: judge.CheckedQuantity) -> float:
    return checked.change_ns / checked.case.whole_base_ns if checked.case.whole_base_ns else 0.0


def _numbers(checked: judge.CheckedQuantity) -> str:
    whole = "device busy time" if checked.case.has_busy_time else "iteration"
    reasons = [
        f"{units.duration(checked.base_ns)} -> {units.duration(checked.head_ns)}"
        + (f", {units.percent(checked.change, signed=True)}" if checked.base_ns > 0 else ""),
        f"{units.percent(_share_of_iteration(checked), signed=True)} of the {whole}",
    ]
    if len(checked.members) == 1:
        [change] = checked.members
        calls = _calls(change)
        if change.base and change.head and "->" in calls:
            reasons.append(f"{calls} calls")
    return "; ".join(reasons)


# ---- Tables --------------------------------------------------------------------------------------


def _ledger(judged: judge.CaseJudgement, top: int) -> Table:
    """Return single operations by size of change.

    Below the line the others, the unexplained rest and the iteration.
    """
    case = judged.case
    alone = [checked for checked in judged.operations if checked.kind in ("operation", "replaced")]
    shown = alone[:top]
    hidden = list[judge.CheckedQuantity]()
    for checked in alone[top:]:
        (shown if checked.verdict in (REGRESSED, SUSPECT) or checked.is_noise else hidden).append(
            checked
        )
    others = [checked for checked in judged.operations if checked.kind == "other"]
    outside = [checked for checked in judged.operations if checked.kind == "outside"]
    has_both = case.has_busy_time and not case.is_busy_time
    busy = _change_cells(case.whole_base_ns, case.whole_head_ns)
    iteration = judged.iteration
    unexplained = units.duration(case.remainder_ns, signed=True)
    whole_change_ns = (
        case.whole_change_ns
        if abs(case.whole_change_ns) >= LEAST_CHANGE_TO_SHARE * case.whole_base_ns
        else 0
    )

    def share(nanoseconds: float) -> str:
        """Return the share of the change, if that is large enough to be divided."""
        return units.percent(nanoseconds / whole_change_ns) if whole_change_ns else units.MISSING

    are_large = sum(checked.head_ns for checked in others) >= SHARE_OF_SMALL * case.whole_head_ns
    sums = [
        *([_hidden_row(hidden, share)] if hidden else []),
        *(
            _pooled_row(
                f"{checked.name} ({_counted(checked.members)})", [checked], share, checked.text
            )
            for checked in others
        ),
        *(_pooled_row(checked.name, [checked], share, checked.text) for checked in outside),
        (
            "not explained by operations",
            "",
            "",
            "",
            "",
            unexplained,
            "",
            "",
            share(case.remainder_ns),
            "",
        ),
        *(
            [
                (
                    "device busy time of one iteration",
                    "",
                    "",
                    *busy,
                    "",
                    share(case.whole_change_ns),
                    "",
                )
            ]
            if has_both
            else []
        ),
        (
            f"{_clock(case)} time of one iteration",
            "",
            "",
            *_change_cells(iteration.base_ns, iteration.head_ns),
            "",
            "" if has_both else share(iteration.change_ns),
            iteration.text,
        ),
    ]
    return text_table(
        title=case_title(case),
        headings=(
            "operation",
            "phase",
            "module",
            "base",
            "head",
            "difference",
            "change",
            "calls",
            "of change",
            "verdict",
        ),
        rows=tuple(row for checked in shown for row in _rows(checked, share, top)),
        sums=tuple(sums),
        numbers_from=3,
        words_after=1,
        lines=(*([_NONE_ALONE] if not alone and are_large else []), *_lines(case)),
    )


def case_title(case: CaseComparison) -> str:
    """Return the name of a case, with its machines if they differ."""
    return units.printable(case.head.label) + across_machines([case])


def across_machines(cases: Iterable[CaseComparison]) -> str:
    """Return ``, across machines: devices A -> B`` for cases that are compared all the same.

    Empty if there is none.
    """
    found = {machines(case) for case in cases if case.across_machines}
    return units.printable(f", across machines: {' or '.join(sorted(found))}") if found else ""


def machines(case: CaseComparison) -> str:
    """Return what differs between the machines: ``cpu model A -> B; cpu count 2 -> 4``."""
    return "; ".join(described(case.across_machines))


def _rows(
    checked: judge.CheckedQuantity, share: Callable[[float], str], top: int
) -> Iterable[tuple[str, ...]]:
    """Yield a row per operation.

    Operations that replace each other have one verdict, in the first of their rows.

    Of more than MOST_MEMBERS operations, those with small changes are one row, and so are all after
    the first ``top``.
    """
    members = checked.members
    shown = members
    if len(members) > MOST_MEMBERS:
        least_ns = LEAST_MEMBER * max(checked.case.whole_base_ns, checked.case.whole_head_ns)
        large = sum(abs(change.change_ns) >= least_ns for change in members)  # they come first
        shown = members[: max(1, min(large, top - 1))]
    for position, change in enumerate(shown):
        yield (
            *operation_cells(*change.key),
            *_change_cells(change.base_ns, change.head_ns),
            _calls(change),
            share(change.change_ns),
            checked.text if position == 0 else _INCLUDED,
        )
    if rest := members[len(shown) :]:
        base_ns, head_ns = (
            sum(getattr(change, side) or 0 for change in rest) for side in ("base_ns", "head_ns")
        )
        cells = operation_cells(units.counted(len(rest), "more operation"), "", "")
        yield (*cells, *_change_cells(base_ns, head_ns), "", share(head_ns - base_ns), _INCLUDED)


def _pooled_row(
    name: str, pooled: Sequence[judge.CheckedQuantity], share: Callable[[float], str], text: str
) -> tuple[str, ...]:
    """Sum the times of the table, so that the column adds up.

    The verdict is of the sums of single runs.
    """
    members = [change for checked in pooled for change in checked.members]
    base, head = (
        sum(getattr(change, side) or 0 for change in members) for side in ("base_ns", "head_ns")
    )
    return (name, "", "", *_change_cells(base, head), "", share(head - base), text)


def _hidden_row(
    hidden: Sequence[judge.CheckedQuantity], share: Callable[[float], str]
) -> tuple[str, ...]:
    worst = min(hidden, key=lambda checked: (_GRAVITY.index(checked.verdict), -checked.within))
    which = "all" if all(checked.verdict == worst.verdict for checked in hidden) else "some"
    members = [change for checked in hidden for change in checked.members]
    return _pooled_row(f"not shown ({_counted(members)})", hidden, share, f"{which} {worst.text}")


def _counted(operations: Sequence[object]) -> str:
    return units.counted(len(operations), "operation")


def _clock(case: CaseComparison) -> str:
    if case.is_busy_time:
        return "device busy"
    return "device elapsed" if case.clock == "device" else "wall"


def _whole_cases(cases: Sequence[judge.CaseJudgement]) -> Table:
    clocks = " or ".join(sorted({_clock(judged.case) for judged in cases}))
    return text_table(
        title=(
            f"cases without operation tables: {clocks} time of one "
            f"iteration{across_machines(one.case for one in cases)}"
        ),
        headings=("case", "operations in", "base", "head", "difference", "change", "verdict"),
        rows=tuple(
            (
                judged.case.head.label,
                judged.case.head.tables_in or units.MISSING,
                *_change_cells(judged.case.base_ns, judged.case.head_ns),
                judged.iteration.text,
            )
            for judged in cases
        ),
        numbers_from=2,
        words_after=1,
        lines=tuple(
            f"{one.case.head.label}: {text}"
            for one in cases
            for text in exact_differences(one.case)
        ),
    )


def _change_cells(base: float | None, head: float | None) -> tuple[str, str, str, str]:
    if base is None or head is None:
        relative = "new" if base is None else "gone"
    else:
        relative = units.percent((head - base) / base, signed=True) if base > 0 else units.MISSING
    return (
        units.MISSING if base is None else units.duration(base),
        units.MISSING if head is None else units.duration(head),
        units.duration((head or 0) - (base or 0), signed=True),
        relative,
    )


def _calls(change: OpChange) -> str:
    sides = [
        units.MISSING if side is None else units.count(side.calls)
        for side in (change.base, change.head)
    ]
    return sides[0] if sides[0] == sides[1] else " -> ".join(sides)


def _lines(case: CaseComparison) -> Iterable[str]:
    """Yield the change of each phase, the exact differences, and the final training values.

    The final values are those of both sides.
    """
    if any(case.phases):
        shown = (
            f"{name or 'between phases'} {units.duration(ns, signed=True)}"
            for name, ns in case.phases.items()
        )
        yield f"by phase: {', '.join(shown)}"
    different = exact_differences(case, brief=True)
    for text in different[:MOST_DIFFERENCES]:
        yield f"exact: {text}"
    if len(different) > MOST_DIFFERENCES:
        yield f"exact: {len(different) - MOST_DIFFERENCES} more; --format json has all"
    if not different:
        yield "exact: the same operations, calls, bytes and parameters"
    if case.base.curves_of and case.base.curves_of == case.head.curves_of:
        finals = [
            f"{tag} {final_value(tag, value)}"
            for tag, value in case.head.final.items()
            if tag in case.base.final
            and not tag.startswith("timing/")
            and not any(f"final {tag}:" in text for text in different)
        ]
        how = (
            "identical to the bit" if is_exact(case) else f"equal within {units.percent(TOLERANCE)}"
        )
        if finals:
            yield f"training on {case.head.curves_of}, {how}: {', '.join(finals)}"


# ---- Verdict -------------------------------------------------------------------------------------


def verdict_lines(judgement: judge.Judgement) -> Iterable[str]:
    """Yield the machines if they differ, the rules, problems, accepted changes and regressions.

    At last the outcome.
    """
    for which, count in Counter(
        machines(case.case) for case in judgement.cases if case.case.across_machines
    ).items():
        yield f"across machines (--across-machines): {units.counted(count, 'case')}: {which}"
    yield from _rules(judgement)
    for problem in judgement.problems:
        option = "--allow-missing" if problem.kind == MISSING else "--allow-incomparable"
        yield (
            f"{problem.kind}: "
            f"{problem.text}{f' (passed over: {option})' if problem.excused else ''}"
        )
    for checked in judgement.accepted:
        limit = units.percent(checked.accept_limit or 0)
        yield f"accepted up to {limit}: {_finding(checked)}; reason: {judgement.criteria.reason}"
    for text in judgement.unused:
        yield f"unused: --accept {text!r} matches no regression; remove it"
    for checked in judgement.noise:
        excuse = (
            " (passed over: --inconclusive ok)" if judgement.criteria.inconclusive == "ok" else ""
        )
        yield (
            f"inconclusive: {_finding(checked)}; the limit is {units.percent(checked.threshold)}, "
            f"the {_uncertainty(checked)}{excuse or _way_out(checked)}"
        )
    for checked in judgement.regressions:
        limit = f"the limit is {units.percent(checked.threshold)}{_exceeded(checked)}"
        yield f"regressed: {_finding(checked)}; {limit}{_vanished_elsewhere(judgement, checked)}"
    yield f"thresholds: {_outcome(judgement)}"


def _finding(checked: judge.CheckedQuantity) -> str:
    return f"{checked.name} ({checked.case.head.label}), {_numbers(checked)}"


def _vanished_elsewhere(judgement: judge.Judgement, checked: judge.CheckedQuantity) -> str:
    """Return what vanished in other places of the case of an operation that replaces nothing.

    Empty if nothing did.
    """
    if checked.kind != "replaced" or any(change.base for change in checked.members):
        return ""
    vanished = [
        change for change in checked.case.operations if change.is_operation and change.head is None
    ]
    if not vanished:
        return ""
    vanished.sort(key=lambda change: -(change.base_ns or 0))
    names = "; ".join(operation_name(*change.key) for change in vanished[:NAMED])
    more = f"; {len(vanished) - NAMED} more" if len(vanished) > NAMED else ""
    total = units.duration(sum(change.base_ns or 0 for change in vanished))
    return (
        f"; nothing vanished in its place, but {total} of operations in other places "
        f"({names}{more}): if it replaces them, add {_option(judgement, checked)}"
    )


def _uncertainty(checked: judge.CheckedQuantity, how: str = "") -> str:
    what = "minimum detectable change" if checked.by_runs else "spread of the runs"
    return f"{what}{how} {units.percent(checked.uncertainty)}"


def _exceeded(checked: judge.CheckedQuantity) -> str:
    limit = checked.accept_limit
    return "" if limit is None else f"; it exceeds the accepted limit of {units.percent(limit)}"


def _option(judgement: judge.Judgement, checked: judge.CheckedQuantity) -> str:
    return f"--accept {shlex.quote(judge.acceptance_for(judgement, checked))}"


def _way_out(checked: judge.CheckedQuantity) -> str:
    """Return how to resolve a change that the base runs vary too much to judge."""
    larger = "" if checked.is_above_given else " give a larger limit,"
    return (
        f"{_exceeded(checked)}; save more base runs or measure on a quieter machine,{larger} or "
        "add --inconclusive ok"
    )


def _outcome(judgement: judge.Judgement) -> str:
    """Return the outcome with the numbers behind it."""
    undecided = f"inconclusive: {judgement.open_questions}"
    if judgement.outcome == NONE:
        return f"none given, so nothing fails; set one {_advised_threshold(judgement)}"
    if judgement.outcome == REGRESSED:
        return (
            f"regressed: {len(judgement.regressions)}"
            f"{f', {undecided}' if judgement.open_questions else ''}"
        )
    if judgement.outcome == INCONCLUSIVE:
        return undecided
    passed = f"passed, {len(judgement.noise)} inconclusive" if judgement.noise else "passed"
    known = [
        one for one in judgement.checked if one.given and not one.is_open and one.uncertainty > 0
    ]
    up_to = (
        f" ({_uncertainty(max(known, key=lambda one: one.uncertainty), ' up to')})" if known else ""
    )
    found = judgement.open_operations
    if not found:
        return f"{passed}{up_to}"
    largest = found[0]
    limits = {units.percent(one.threshold) for one in found}
    count = units.counted(len(found), "small operation")
    at = f"at {limits.pop()}" if len(limits) == 1 else "at their limits"
    which = f"the largest being {largest.name} ({largest.case.head.label})"
    return f"{passed}{up_to}; {count} cannot be judged {at}, {which}: {_uncertainty(largest)}"


def _advised_threshold(judgement: judge.Judgement) -> str:
    """Return a threshold that the compared cases can have."""
    if any(case.case.operations for case in judgement.cases):
        return "for operations with --op-fail 10%"
    return "with --case-fail 10%"


def _rules(judgement: judge.Judgement) -> Iterable[str]:
    checked = [one for one in judgement.checked if one.case.is_comparable]
    by_runs = [one for one in checked if one.by_runs]
    if by_runs:
        runs = sorted({len(one.base_runs) for one in by_runs})
        shown = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        largest = max(by_runs, key=lambda one: one.smallest or 0.0)
        yield (
            f"judged by runs: {units.counted(len(by_runs), 'verdict')}, by the prediction "
            f"interval of {shown} base runs with false alarms in {units.percent(FALSE_ALARM)} of "
            f"reports; largest minimum detectable change {units.percent(largest.smallest or 0)}: "
            f"{largest.name} ({largest.case.head.label})"
        )
    if len(checked) > len(by_runs):
        limit = (
            ""
            if judgement.asked
            else f", with the default threshold of {units.percent(DEFAULT_SHARE)}"
        )
        traces = judgement.comparison.head.trace
        few = (
            "a trace is one process: it"
            if traces
            else f"fewer than {RUNS_NEEDED} base runs of one commit"
        )
        yield (
            f"judged by threshold: {units.counted(len(checked) - len(by_runs), 'verdict')}{limit}; "
            f"{few} cannot separate machine drift from a code change"
        )


# ---- JSON ----------------------------------------------------------------------------------------


def _data(judgement: judge.Judgement) -> dict[str, Any]:
    """Return the whole judgement, as docs/schema/comparison.json describes it."""
    comparison = judgement.comparison
    return document(
        "comparison",
        outcome=judgement.outcome,
        by=comparison.by,
        base=list(map(_run, comparison.bases)),
        head=_run(comparison.head),
        environment=comparison.environment,
        problems=[problem._asdict() for problem in judgement.problems],
        new=[case.node_id for case in comparison.only_head],
        accepted=[
            {"case": checked.case.head.label, "name": checked.name}
            for checked in judgement.accepted
        ],
        reason=judgement.criteria.reason,
        cases=list(map(_case, judgement.cases)),
    )


def _fields(found: object, *names: str) -> dict[str, Any]:
    """Return attributes by name. Numbers that are not finite become None: JSON has none."""
    values = {name: getattr(found, name) for name in names}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def _run(run: RunSummary) -> dict[str, Any]:
    return _fields(run, "saved_at", "commit", "dirty", "branch", "trace")


def _case(judged: judge.CaseJudgement) -> dict[str, Any]:
    case = judged.case
    busy = {
        "base_ns": case.whole_base_ns,
        "head_ns": case.whole_head_ns,
        "change_ns": case.whole_change_ns,
    }
    return {
        "case": case.head.label,
        "node_id": case.head.node_id,
        "params": asdict(case.head.params) if case.head.params else None,
        "busy": busy if case.has_busy_time else None,
        **_fields(
            case,
            "renamed_from",
            "clock",
            "remainder_ns",
            "profiler_ns",
            "incomparable",
            "across_machines",
            "left_out",
        ),
        "exact": list(exact_differences(case)),
        "iterations": {"base": case.iterations.bases[-1], "head": case.iterations.head}
        if case.iterations.are_divided
        else None,
        "iteration": _checked(judged.iteration),
        "operations": list(map(_checked, judged.operations)),
    }


def _checked(checked: judge.CheckedQuantity) -> dict[str, Any]:
    return {
        **_fields(
            checked,
            "name",
            "kind",
            "base_ns",
            "head_ns",
            "change_ns",
            "change",
            "verdict",
            "within",
            "threshold",
            "given",
            "fails",
            "accepted",
            "accept_limit",
            "smallest",
        ),
        **({} if checked.verdict == WITHIN else {"within": None}),
        "noise": checked.is_noise,
        "base_runs": len(checked.base_runs),
        "rule": "runs" if checked.by_runs else "threshold",
        "members": list(map(_member, checked.members)),
    }


def _member(change: OpChange) -> dict[str, Any]:
    sides = {
        name: None if side is None else {"ns": ns, **_fields(side, "calls", "memory_bytes")}
        for name, side, ns in (
            ("base", change.base, change.base_ns),
            ("head", change.head, change.head_ns),
        )
    }
    return {"operation": change.name, **_fields(change, "phase", "module", "change_ns"), **sides}


# ---- CSV -----------------------------------------------------------------------------------------

#: A row per operation, the unexplained rest and the iteration, whose ``change_ns`` is the sum of
#: the others. On an accelerator a row of its busy time is that sum, and the iteration has the
#: elapsed time.
_CSV_KEYS = (
    "case",
    "operation",
    "phase",
    "module",
    "base_ns",
    "head_ns",
    "change_ns",
    "base_calls",
    "head_calls",
    "verdict",
    "across_machines",
)

_CSV = tuple(
    Column[Mapping[str, Any]](None, methodcaller("get", key), key=key) for key in _CSV_KEYS
)


def _csv_rows(judged: judge.CaseJudgement) -> Iterable[Mapping[str, Any]]:
    case = judged.case
    common = {"case": case.head.label, "across_machines": machines(case)}
    for checked in judged.operations:
        for change in checked.members:
            calls = {
                "base_calls": change.base and change.base.calls,
                "head_calls": change.head and change.head.calls,
            }
            times = _fields(change, "phase", "module", "base_ns", "head_ns", "change_ns")
            yield {**common, "operation": change.name, **times, **calls, "verdict": checked.text}
    if judged.operations:
        yield {
            **common,
            "operation": "(not explained by operations)",
            "change_ns": case.remainder_ns,
        }
    if case.has_busy_time and not case.is_busy_time:
        busy = {
            "base_ns": case.whole_base_ns,
            "head_ns": case.whole_head_ns,
            "change_ns": case.whole_change_ns,
        }
        yield {**common, "operation": "(device busy time)", **busy}
    whole = _fields(case, "base_ns", "head_ns", "change_ns")
    yield {**common, "operation": "(iteration)", **whole, "verdict": judged.iteration.text}
