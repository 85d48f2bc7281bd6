"""Judgement -> its report: sentences and tables, which every format draws, and the JSON.

In JSON times are nanoseconds, and shares are fractions of 1.
"""

from __future__ import annotations

import itertools
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from mnistbench.compare.criteria import DEFAULT_SHARE, Criteria
from mnistbench.compare.diff import (
    BUSY_TIME,
    Breakdown,
    CaseComparison,
    Comparison,
    OpChange,
    Samples,
)
from mnistbench.compare.exact import exact_differences, final_value, final_values, is_exact
from mnistbench.compare.judge import CaseJudgement, Finding, Judgement, Ruling, acceptance_for
from mnistbench.compare.prediction_interval import FALSE_ALARM, RUNS_NEEDED
from mnistbench.compare.quantities import Measurement
from mnistbench.compare.replacements import ModuleGroup, module_groups
from mnistbench.core import units
from mnistbench.core.compiled.compilation import Compilation, time_differences
from mnistbench.core.operation import operation_cells, operation_name
from mnistbench.core.record import finite
from mnistbench.judging.acceptance import WARN
from mnistbench.judging.exact import TOLERANCE
from mnistbench.judging.kinds import OPERATION, OTHER, OUTSIDE_KIND, REPLACED
from mnistbench.judging.verdicts import (
    GRAVITY,
    IMPROVED,
    INCONCLUSIVE,
    MISSING,
    NONE,
    REGRESSED,
    SUSPECT,
    WITHIN,
)
from mnistbench.saved_runs.compatibility import described
from mnistbench.saved_runs.run import Run
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Table, text_table
from mnistbench.showing.text import uneven

#: Operations in the list at the top.
RANKED = 3

#: Tests with several benchmarks that are named.
MAX_REPEATED = 5

#: Exact differences below a table, those of the largest changes first.
MAX_DIFFERENCES = 10

#: Below this share of the base, the change of an iteration is too small to be divided among
#: operations.
MIN_CHANGE_TO_SHARE = 0.01

#: Share of its case from which operations that are all too small to be judged by themselves deserve
#: a hint, and the hint.
SHARE_OF_SMALL = 0.1
_NONE_ALONE = (
    "no operation is large enough to be judged by itself; {by} op sums over modules, "
    "--op-min-share 0.5% shows more"
)

#: What is counted of a case with operations.
_COUNTED = "operations, calls, bytes and parameters"

#: Operations of a replacement that all have rows of their own.
MAX_MEMBERS = 5

#: Smallest change, as a share of the case, that has a row of its own in a replacement of more
#: operations.
MIN_MEMBER = 0.01

#: Verdict of the rows of a replacement after its first row.
_INCLUDED = "included above"
#: Verdict of the rows of modules that are judged together with other small operations.
_IN_OTHER = "included in other"


def report(judgement: Judgement, top: int) -> Report:
    """Return the report; a case shows ``top`` operations, and all that fail."""
    return Report(
        heading=list(verdict_lines(judgement))[-1],
        blocks=blocks(judgement, top),
        data=_data(judgement),
    )


def blocks(judgement: Judgement, top: int) -> list[Block]:
    """Return the sentences and tables, the most important blocks first."""
    tables = [_ledger(case, top, judgement.criteria) for case in judgement.cases if case.operations]
    if whole_cases := [case for case in judgement.cases if not case.operations]:
        tables.append(_whole_cases(whole_cases))
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
        yield f"base: {bases[-1].label}{_older(bases[:-1])}"
        if len(bases) > 1:
            yield from _runs_used(
                "base", len(bases), [(case, case.bases) for case in comparison.cases]
            )
    yield f"head: {comparison.head.label}{_older(comparison.older_heads)}"
    if comparison.older_heads and bases:
        yield from _runs_used(
            "head",
            len(comparison.older_heads) + 1,
            [(case, case.heads) for case in comparison.cases],
        )
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
    new = [case.node_id for case in comparison.only_head]
    if new and bases:
        yield f"new, not compared: {', '.join(new)}"


def _repeated(comparison: Comparison) -> Iterable[str]:
    """Yield the tests that a run has several benchmarks of, which are compared in their order."""
    counts: dict[str, list[int]] = {}
    for position, run in enumerate((*comparison.bases[-1:], comparison.head)):
        for case in run.cases:
            test = case.node_id.removesuffix(f" ({case.repetition})")
            sides = counts.setdefault(test, [0, 0])
            sides[position] = max(sides[position], case.repetition)
    repeated = {test: sides for test, sides in counts.items() if max(sides) > 1}
    for test, (base, head) in itertools.islice(repeated.items(), MAX_REPEATED):
        yield (
            f"several benchmarks of one name, compared in their order: {test} ({base} in the "
            f"base, {head} in the head)"
        )
    if len(repeated) > MAX_REPEATED:
        yield (
            "several benchmarks of one name: "
            f"{units.counted(len(repeated) - MAX_REPEATED, 'more test')}"
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
    elif iterations.mixed_calls:
        yield (
            f"different numbers of calls ({case.head.label}): {iterations.mixed_calls}; "
            "without steps the times are those of the whole trace, and an operation with more "
            "calls takes more time"
        )


def _older(runs: Sequence[Run]) -> str:
    return f" and {units.counted(len(runs), 'older saved run')}" if runs else ""


def _runs_used(
    side: str, n_runs: int, samples_of_cases: Iterable[tuple[CaseComparison, Samples]]
) -> Iterable[str]:
    """Yield how many runs of a side are samples and why the others are not.

    There is one line if all cases agree.
    """
    cases_of_text: dict[str, list[str]] = defaultdict(list)
    for case, samples in samples_of_cases:
        runs = samples.runs
        commits = {run.commit: run.short_commit for run in runs}
        of = f", commit {runs[-1].short_commit}" if any(commits) else ""
        if len(commits) > 1:
            of = f", {len(commits)} commits"
        reasons = ", ".join(
            f"{count} ({reason})" for reason, count in sorted(samples.left_out.items())
        )
        left_out = f"; left out: {reasons}" if reasons else ""
        cases_of_text[f"{len(runs)} of {n_runs}{of}{left_out}"].append(case.head.label)
    for text, cases in cases_of_text.items():
        which = (
            f" for {cases[0] if len(cases) == 1 else f'{len(cases)} cases'}"
            if len(cases_of_text) > 1
            else ""
        )
        yield f"{side} runs used{which}: {text}"


# ---- Which operations to look at first -----------------------------------------------------------


def _ranked(judgement: Judgement) -> Iterable[str]:
    """Yield the most serious verdicts first, and of one verdict the largest shares of the case."""
    serious = (REGRESSED, SUSPECT, INCONCLUSIVE, IMPROVED)
    serious_changes = [
        finding
        for case in judgement.cases
        for finding in case.operations
        if finding.verdict in serious
    ]
    pooled = (OUTSIDE_KIND, OTHER)  # last, because they name no operation
    serious_changes.sort(
        key=lambda finding: (
            finding.measured.kind in pooled,
            GRAVITY.index(finding.verdict),
            -abs(_share_of_whole(finding.measured)),
        )
    )
    for position, finding in enumerate(serious_changes[:RANKED], 1):
        yield (
            f"{position}. {_name_and_case(finding)}: {finding.text}: {_numbers(finding.measured)}"
        )


def _share_of_whole(measured: Measurement) -> float:
    whole_ns = measured.whole.base_ns
    return measured.change_ns / whole_ns if whole_ns else 0.0


def _name_and_case(finding: Finding) -> str:
    return f"{finding.measured.name} ({finding.measured.case.head.label})"


def _numbers(measured: Measurement) -> str:
    reasons = [
        f"{units.duration(measured.base_ns)} -> {units.duration(measured.head_ns)}"
        + (f", {units.percent(measured.change, signed=True)}" if measured.base_ns > 0 else ""),
        f"{units.percent(_share_of_whole(measured), signed=True)} of the {measured.whole.name}",
    ]
    if len(measured.members) == 1:
        [change] = measured.members
        calls = _calls(change)
        if change.base and change.head and "->" in calls:
            reasons.append(f"{calls} calls")
    return "; ".join(reasons)


# ---- Tables --------------------------------------------------------------------------------------


#: A row of a ledger: the text of each cell.
Row = tuple[str, ...]

_LEDGER = (
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
)


def _ledger(judged: CaseJudgement, top: int, criteria: Criteria) -> Table:
    """Return the table of a case: operations by size of change, then sums below the line.

    The sums are the other operations, the unexplained rest and the iteration.
    """
    case = judged.case
    alone = _of_kinds(judged, OPERATION, REPLACED)
    pooled = _of_kinds(judged, OTHER)
    outside = _of_kinds(judged, OUTSIDE_KIND)
    shown = alone[:top]
    hidden = list[Finding]()
    for finding in alone[top:]:
        has_row = finding.verdict in (REGRESSED, SUSPECT) or finding.is_noise
        (shown if has_row else hidden).append(finding)
    hidden_operations = [finding for finding in hidden if not finding.measured.is_function]
    hidden_functions = [finding for finding in hidden if finding.measured.is_function]
    pooled_modules = _pooled_modules(case, pooled, top - len(shown))
    are_large = any(
        finding.measured.head_ns >= SHARE_OF_SMALL * finding.measured.whole.head_ns
        for finding in pooled
    )
    none_alone = [_NONE_ALONE.format(by=criteria.flag("--by"))] if not alone and are_large else []
    sums = [
        *(_hidden_row(findings) for findings in (hidden_operations, hidden_functions) if findings),
        *(row for finding in pooled for row in _pooled_rows(finding, pooled_modules)),
        *(_finding_row(finding, finding.measured.name) for finding in outside),
        *_whole_rows(judged),
    ]
    return text_table(
        title=case_title(case),
        headings=_LEDGER,
        rows=[
            *(row for finding in shown for row in _rows(finding, top)),
            *(_modules_row(group, case.operations, _IN_OTHER) for group in pooled_modules),
        ],
        sums=sums,
        lines=(*none_alone, *_lines(case)),
        numbers_from=3,
        words_after=1,
    )


def _of_kinds(judged: CaseJudgement, *kinds: str) -> list[Finding]:
    return [finding for finding in judged.operations if finding.measured.kind in kinds]


def _pooled_modules(
    case: CaseComparison, pooled: Sequence[Finding], most: int
) -> list[ModuleGroup]:
    """Return the modules whose replaced operations are too small to be judged by themselves.

    They have rows all the same, because the table shows what compilation does to each module.
    """
    pools = [set(map(id, finding.measured.members)) for finding in pooled]
    groups = [
        group
        for group in module_groups(case, case.operations.parts)
        if any(pool.issuperset(map(id, group.members)) for pool in pools)
    ]
    groups.sort(key=lambda group: (-abs((group.head_ns or 0) - (group.base_ns or 0)), group.title))
    return groups[: max(0, most)]


def _pooled_rows(finding: Finding, with_rows: Iterable[ModuleGroup]) -> Iterable[Row]:
    """Yield the row of a pool, without the members that have rows of their own."""
    elsewhere = {id(change) for group in with_rows for change in group.members}
    measured = finding.measured
    members = [change for change in measured.members if id(change) not in elsewhere]
    counted = _counted(measured, len(members))
    if above := len(measured.members) - len(members):
        counted = f"{counted} and {above} above"
    yield _sum_row(f"{measured.name} ({counted})", members, measured.whole, finding.text)


def _whole_rows(judged: CaseJudgement) -> Iterable[Row]:
    """Yield the rest that no operation explains, busy time if it is known, and the iteration."""
    case = judged.case
    operations = case.operations
    if case.functions.parts:
        yield _whole_row("sum of the functions, with cProfile", case.functions)
    if any(not finding.measured.is_function for finding in judged.operations):
        yield _row(
            "not explained by operations",
            ("", "", units.duration(operations.remainder_ns, signed=True), ""),
            "",
            share=_share(operations.remainder_ns, operations),
        )
    has_both = operations.name == BUSY_TIME and not case.is_busy_time
    if has_both:
        yield _whole_row("device busy time of one iteration", operations)
    yield _row(
        f"{_clock(case)} time of one iteration",
        _time_cells(case.base_ns, case.head_ns),
        judged.iteration.text,
        share="" if has_both else _share(case.change_ns, operations),
    )


def case_title(case: CaseComparison) -> str:
    """Return the name of a case, with its machines if they differ."""
    return units.printable(case.head.label) + across_machines([case])


def across_machines(cases: Iterable[CaseComparison]) -> str:
    """Return ``, across machines: devices A -> B``; empty if the machines do not differ."""
    differences = {machines(case) for case in cases if case.across_machines}
    return (
        units.printable(f", across machines: {' or '.join(sorted(differences))}")
        if differences
        else ""
    )


def machines(case: CaseComparison) -> str:
    """Return what differs between the machines: ``cpu model A -> B; cpu count 2 -> 4``."""
    return "; ".join(described(case.across_machines))


def _rows(finding: Finding, top: int) -> Iterable[Row]:
    """Yield a row per operation.

    Operations that replace each other have one verdict, in the first of their rows; those of
    modules that are compiled on one side alone have one row. Of more than MAX_MEMBERS operations,
    those with small changes are one row, and so are all after the first ``top``.
    """
    members = finding.measured.members
    operations = finding.measured.case.operations
    whole = finding.measured.whole
    if finding.measured.modules:
        yield _modules_row(finding.measured.modules, whole, finding.text)
        return
    shown = members
    if len(members) > MAX_MEMBERS:
        min_ns = MIN_MEMBER * max(operations.base_ns, operations.head_ns)
        large = sum(abs(change.change_ns) >= min_ns for change in members)  # they come first
        shown = members[: max(1, min(large, top - 1))]
    for position, change in enumerate(shown):
        yield _operation_row(change, whole, finding.text if position == 0 else _INCLUDED)
    if rest := members[len(shown) :]:
        title = units.counted(len(rest), "more operation")
        yield _sum_row(title, rest, whole, _INCLUDED, place=units.MISSING)


def _operation_row(change: OpChange, whole: Breakdown, verdict: str) -> Row:
    title, _, _ = operation_cells(*change.key)
    return _row(
        title,
        _time_cells(change.base_ns, change.head_ns),
        verdict,
        phase=change.phase or units.MISSING,
        module=change.module or units.MISSING,
        calls=_calls(change),
        share=_share(change.change_ns, whole),
    )


def _modules_row(group: ModuleGroup, whole: Breakdown, verdict: str) -> Row:
    return _row(
        group.operations,
        _time_cells(group.base_ns, group.head_ns),
        verdict,
        phase=group.phase or units.MISSING,
        module=group.module or units.MISSING,
        share=_share((group.head_ns or 0) - (group.base_ns or 0), whole),
    )


def _sum_row(
    title: str, members: Sequence[OpChange], whole: Breakdown, verdict: str, place: str = ""
) -> Row:
    """Sum the times of the table, so that the column adds up.

    The verdict is of the sums of single runs; ``place`` is the text of phase and module.
    """
    base_ns = sum(change.base_ns or 0 for change in members)
    head_ns = sum(change.head_ns or 0 for change in members)
    return _row(
        title,
        _time_cells(base_ns, head_ns),
        verdict,
        phase=place,
        module=place,
        share=_share(head_ns - base_ns, whole),
    )


def _finding_row(finding: Finding, title: str) -> Row:
    return _sum_row(title, finding.measured.members, finding.measured.whole, finding.text)


def _whole_row(title: str, whole: Breakdown) -> Row:
    times = _time_cells(whole.base_ns, whole.head_ns)
    return _row(title, times, "", share=_share(whole.change_ns, whole))


def _row(
    title: str,
    times: tuple[str, str, str, str],
    verdict: str,
    *,
    phase: str = "",
    module: str = "",
    calls: str = "",
    share: str = "",
) -> Row:
    """Return a row of a ledger; ``times`` are the cells from base to change."""
    return (title, phase, module, *times, calls, share, verdict)


def _share(change_ns: float, whole: Breakdown) -> str:
    """Return the share of the change of the whole, if that is large enough to be divided."""
    whole_ns = whole.change_ns
    if abs(whole_ns) < MIN_CHANGE_TO_SHARE * whole.base_ns or not whole_ns:
        return units.MISSING
    return units.percent(change_ns / whole_ns)


def _hidden_row(hidden: Sequence[Finding]) -> Row:
    worst = min(
        hidden, key=lambda finding: (GRAVITY.index(finding.verdict), -finding.ruling.within)
    )
    which = "all" if all(finding.verdict == worst.verdict for finding in hidden) else "some"
    members = [change for finding in hidden for change in finding.measured.members]
    title = f"not shown ({_counted(worst.measured, len(members))})"
    return _sum_row(title, members, worst.measured.whole, f"{which} {worst.text}")


def _counted(measured: Measurement, number: int | None = None) -> str:
    """Return the number of the members of a quantity, or another one, of the same kind."""
    name = "function" if measured.is_function else "operation"
    return units.counted(len(measured.members) if number is None else number, name)


def _clock(case: CaseComparison) -> str:
    if case.is_busy_time:
        return "device busy"
    if case.clock == "device":
        return "device elapsed"
    return case.head.timing.clock if case.head.timing else "wall"


def _whole_cases(cases: Sequence[CaseJudgement]) -> Table:
    clocks = " or ".join(sorted({_clock(judged.case) for judged in cases}))
    return text_table(
        title=(
            f"cases without operation tables: {clocks} time of one "
            f"iteration{across_machines(judged.case for judged in cases)}"
        ),
        headings=("case", "operations in", "base", "head", "difference", "change", "verdict"),
        rows=tuple(
            (
                judged.case.head.label,
                judged.case.head.tables_in or units.MISSING,
                *_time_cells(judged.case.base_ns, judged.case.head_ns),
                judged.iteration.text,
            )
            for judged in cases
        ),
        numbers_from=2,
        words_after=1,
        lines=tuple(
            f"{judged.case.head.label}: {text}"
            for judged in cases
            for text in (
                *exact_differences(judged.case),
                *time_differences(judged.case.base.compilation, judged.case.head.compilation),
            )
        ),
    )


def _time_cells(base_ns: float | None, head_ns: float | None) -> tuple[str, str, str, str]:
    """Return the cells base, head, difference and change; a side may not have the operation."""
    if base_ns is None or head_ns is None:
        relative = "new" if base_ns is None else "gone"
    elif base_ns > 0:
        relative = units.percent((head_ns - base_ns) / base_ns, signed=True)
    else:
        relative = units.MISSING
    return (
        units.MISSING if base_ns is None else units.duration(base_ns),
        units.MISSING if head_ns is None else units.duration(head_ns),
        units.duration((head_ns or 0) - (base_ns or 0), signed=True),
        relative,
    )


def _calls(change: OpChange) -> str:
    sides = [
        units.MISSING if side is None else units.count(side.calls)
        for side in (change.base, change.head)
    ]
    return sides[0] if sides[0] == sides[1] else " -> ".join(sides)


def _lines(case: CaseComparison) -> Iterable[str]:
    """Yield the change of each phase, the exact differences, and the final training values."""
    changes_of_phases: dict[str, float] = defaultdict(float)
    for change in case.operations.parts:
        changes_of_phases[change.phase] += change.change_ns
    if any(changes_of_phases):
        shown = (
            f"{name or 'between phases'} {units.duration(ns, signed=True)}"
            for name, ns in changes_of_phases.items()
        )
        yield f"by phase: {', '.join(shown)}"
    different = exact_differences(case, brief=True)
    for text in units.first_lines(different, MAX_DIFFERENCES, "--format json has all"):
        yield f"exact: {text}"
    yield from time_differences(case.base.compilation, case.head.compilation)
    operations = case.operations.parts
    functions = case.functions.parts
    average_operations = sum(change.is_operation and _varies(change) for change in operations)
    average_functions = sum(map(_varies, functions))
    if not different:
        counted = "functions and calls" if functions and not operations else _COUNTED
        are_averages = average_operations or average_functions
        yield f"exact: the same {counted}{', apart from averages' if are_averages else ''}"
    if average_operations:
        yield (
            f"calls or bytes of {units.counted(average_operations, 'operation')} are averages, "
            "because they differ from iteration to iteration"
        )
    if functions:
        yield uneven(average_functions)
    elif lacking := _without_functions(case):
        yield lacking
    finals = [
        f"{tag} {final_value(tag, value)}"
        for tag, (_, value) in final_values(case).items()
        if not any(f"final {tag}:" in text for text in different)
    ]
    if finals and case.head.scalars:
        how = (
            "identical to the bit" if is_exact(case) else f"equal within {units.percent(TOLERANCE)}"
        )
        yield f"training on {case.head.scalars.dataset}, {how}: {', '.join(finals)}"


def _varies(change: OpChange) -> bool:
    """Return whether a count of an operation is an average on a side."""
    return any(side.varying for side in (change.base, change.head) if side)


def _without_functions(case: CaseComparison) -> str:
    """Return that only one side has a table of functions; empty otherwise."""
    having = [
        name for name, side in (("base", case.base), ("head", case.head)) if side.function_columns
    ]
    if len(having) != 1:
        return ""
    return (
        f"functions are not compared: only the {having[0]} spends most of its time outside of "
        "operations"
    )


# ---- Verdict -------------------------------------------------------------------------------------


def verdict_lines(judgement: Judgement) -> Iterable[str]:
    """Yield other machines, the rules, problems, accepted changes, regressions and the outcome."""
    for which, count in Counter(
        machines(case.case) for case in judgement.cases if case.case.across_machines
    ).items():
        option = judgement.criteria.flag("--across-machines")
        yield f"across machines ({option}): {units.counted(count, 'case')}: {which}"
    yield from _rules(judgement)
    for problem in judgement.problems:
        is_missing = problem.kind == MISSING
        option = judgement.criteria.flag(
            "--allow-missing" if is_missing else "--allow-incomparable"
        )
        yield (
            f"{problem.kind}: "
            f"{problem.text}{f' (passed over: {option})' if problem.excused else ''}"
        )
    for finding in judgement.accepted:
        limit = units.percent(finding.accept_limit or 0)
        yield f"accepted up to {limit}: {_described(finding)}; reason: {judgement.criteria.reason}"
    for text in judgement.unused:
        option = judgement.criteria.flag("--accept")
        yield f"unused: {option} {text!r} matches no regression; remove it"
    for finding in judgement.noise:
        criteria = judgement.criteria
        option = criteria.flag("--inconclusive")
        excuse = f" (passed over: {option} {WARN})" if criteria.inconclusive == WARN else ""
        yield (
            f"inconclusive: {_described(finding)}; "
            f"the limit is {units.percent(finding.measured.threshold)}, "
            f"the {_uncertainty(finding.ruling)}{excuse or _way_out(finding, option)}"
        )
    for finding in judgement.regressions:
        limit = f"the limit is {units.percent(finding.measured.threshold)}{_exceeded(finding)}"
        yield f"regressed: {_described(finding)}; {limit}{_vanished_elsewhere(judgement, finding)}"
    yield f"thresholds: {_outcome(judgement)}"


def _described(finding: Finding) -> str:
    return f"{_name_and_case(finding)}, {_numbers(finding.measured)}"


def _vanished_elsewhere(judgement: Judgement, finding: Finding) -> str:
    """Return what vanished in other places, for a new operation that replaces nothing there."""
    measured = finding.measured
    if measured.kind != REPLACED or any(change.base for change in measured.members):
        return ""
    vanished = [
        change for change in measured.case.changes if change.is_operation and change.head is None
    ]
    if not vanished:
        return ""
    vanished.sort(key=lambda change: -(change.base_ns or 0))
    names = [operation_name(*change.key) for change in vanished]
    total = units.duration(sum(change.base_ns or 0 for change in vanished))
    return (
        f"; nothing vanished in its place, but {total} of operations in other places "
        f"({units.and_more(names, separator='; ', last='; ')}): "
        f"if it replaces them, add {_option(judgement, finding)}"
    )


def _uncertainty(ruling: Ruling, how: str = "") -> str:
    measure = "minimum detectable change" if ruling.by_runs else "spread of the runs"
    return f"{measure}{how} {units.growth(ruling.uncertainty)}"


def _exceeded(finding: Finding) -> str:
    limit = finding.exceeded_limit
    return "" if limit is None else f"; it exceeds the accepted limit of {units.percent(limit)}"


def _option(judgement: Judgement, finding: Finding) -> str:
    value = shlex.quote(acceptance_for(judgement, finding))
    return f"{judgement.criteria.flag('--accept')} {value}"


def _way_out(finding: Finding, option: str) -> str:
    """Return what a user can do about noise; ``option`` is the spelling of --inconclusive."""
    is_above = finding.measured.change > finding.measured.threshold
    larger = "" if is_above else " give a larger limit,"
    return (
        f"{_exceeded(finding)}; save more base runs or measure on a quieter machine,{larger} or "
        f"add {option} {WARN}"
    )


def _outcome(judgement: Judgement) -> str:
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
        finding.ruling
        for finding in judgement.findings
        if finding.measured.has_limit and not finding.is_open and finding.ruling.uncertainty > 0
    ]
    largest_known = max(known, key=lambda ruling: ruling.uncertainty, default=None)
    up_to = f" ({_uncertainty(largest_known, ' up to')})" if largest_known else ""
    open_operations = judgement.open_operations
    if not open_operations:
        return f"{passed}{up_to}"
    largest = open_operations[0]
    limits = {units.percent(finding.measured.threshold) for finding in open_operations}
    count = units.counted(len(open_operations), "small operation")
    at = f"at {limits.pop()}" if len(limits) == 1 else "at their limits"
    return (
        f"{passed}{up_to}; {count} cannot be judged {at}, the largest being "
        f"{_name_and_case(largest)}: {_uncertainty(largest.ruling)}"
    )


def _advised_threshold(judgement: Judgement) -> str:
    """Return a threshold that the compared cases can have."""
    if any(case.case.changes for case in judgement.cases):
        return "for operations with --op-fail 10%"
    return f"with {judgement.criteria.flag('--case-fail')} 10%"


def _rules(judgement: Judgement) -> Iterable[str]:
    comparable = [finding for finding in judgement.findings if finding.measured.case.is_comparable]
    judged_by_runs = [finding for finding in comparable if finding.ruling.by_runs]
    if judged_by_runs:
        runs = sorted({len(finding.measured.base_runs) for finding in judged_by_runs})
        shown = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        largest = max(judged_by_runs, key=lambda finding: finding.ruling.uncertainty)
        yield (
            f"judged by runs: {units.counted(len(judged_by_runs), 'verdict')}, by the prediction "
            f"interval of {shown} base runs with false alarms in {units.percent(FALSE_ALARM)} of "
            "reports; largest minimum detectable change "
            f"{units.growth(largest.ruling.uncertainty)}: {_name_and_case(largest)}"
        )
    if len(comparable) > len(judged_by_runs):
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
            "judged by threshold: "
            f"{units.counted(len(comparable) - len(judged_by_runs), 'verdict')}{limit}; "
            f"{few} cannot separate machine drift from a code change"
        )


# ---- JSON ----------------------------------------------------------------------------------------


def _data(judgement: Judgement) -> dict[str, Any]:
    """Return the whole judgement, as docs/schema/comparison.json describes it."""
    comparison = judgement.comparison
    return document(
        "comparison",
        outcome=judgement.outcome,
        by=comparison.by,
        base=list(map(_run, comparison.bases)),
        head=_run(comparison.head),
        older_heads=list(map(_run, comparison.older_heads)),
        environment=comparison.environment,
        problems=[problem._asdict() for problem in judgement.problems],
        new=[case.node_id for case in comparison.only_head],
        accepted=[
            {"case": finding.measured.case.head.label, "name": finding.measured.name}
            for finding in judgement.accepted
        ],
        reason=judgement.criteria.reason,
        cases=list(map(_case, judgement.cases)),
    )


def _fields(record: object, *names: str) -> dict[str, Any]:
    """Return attributes by name. Numbers that are not finite become None: JSON has none."""
    values = {name: getattr(record, name) for name in names}
    return {
        name: finite(value) if isinstance(value, float) else value for name, value in values.items()
    }


def _run(run: Run) -> dict[str, Any]:
    return _fields(run, "saved_at", "commit", "dirty", "branch", "trace")


def _case(judged: CaseJudgement) -> dict[str, Any]:
    case = judged.case
    operations = case.operations
    return {
        "case": case.head.label,
        "node_id": case.head.node_id,
        "params": asdict(case.head.params) if case.head.params else None,
        "busy": _fields(operations, "base_ns", "head_ns", "change_ns")
        if operations.name == BUSY_TIME
        else None,
        **_fields(case, "renamed_from", "clock"),
        **_fields(operations, "remainder_ns"),
        **_fields(case, "profiler_ns", "incomparable", "across_machines"),
        **_fields(case.bases, "left_out"),
        "exact": list(exact_differences(case)),
        "compilation": _compilations(case),
        "modules": [_group_data(group) for group in module_groups(case, case.operations.parts)],
        "iterations": {"base": case.iterations.bases[-1], "head": case.iterations.head}
        if case.iterations.are_divided
        else None,
        "iteration": _finding_data(judged.iteration),
        "operations": list(map(_finding_data, judged.operations)),
    }


def _compilations(case: CaseComparison) -> dict[str, Any] | None:
    """Return what torch.compile made of both sides; None if it made nothing of either."""
    sides = {"base": case.base.compilation, "head": case.head.compilation}
    if not any(sides.values()):
        return None
    return {name: compilation and _compilation(compilation) for name, compilation in sides.items()}


def _compilation(compilation: Compilation) -> dict[str, Any]:
    data = asdict(compilation)
    for name in ("cold", "warm"):
        time = getattr(compilation, name)
        data[name] = time and {**asdict(time), "total_ns": time.total_ns}
    return data


def _group_data(group: ModuleGroup) -> dict[str, Any]:
    base_ns = group.base_ns or 0
    head_ns = group.head_ns or 0
    base, head = group.names
    return {
        "modules": list(group.modules),
        "phase": group.phase,
        "base": list(base),
        "head": list(head),
        "base_ns": base_ns,
        "head_ns": head_ns,
        "change_ns": head_ns - base_ns,
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    measured = finding.measured
    ruling = finding.ruling
    is_within = ruling.verdict == WITHIN
    return {
        **_fields(measured, "name", "kind", "base_ns", "head_ns", "change_ns", "change"),
        "verdict": ruling.verdict,
        "within": finite(ruling.within) if is_within else None,
        **_fields(measured, "threshold"),
        "given": measured.has_limit,
        **_fields(finding, "fails", "accepted", "accept_limit"),
        "smallest": finite(ruling.uncertainty) if ruling.by_runs else None,
        "noise": finding.is_noise,
        "base_runs": len(measured.base_runs),
        "head_runs": len(measured.head_runs),
        "rule": "runs" if ruling.by_runs else "threshold",
        "members": [
            _member(change, is_function=measured.is_function) for change in measured.members
        ],
    }


def _member(change: OpChange, *, is_function: bool) -> dict[str, Any]:
    sides = {
        name: None if side is None else {"ns": ns, **_fields(side, "calls", "memory_bytes")}
        for name, side, ns in (
            ("base", change.base, change.base_ns),
            ("head", change.head, change.head_ns),
        )
    }
    newest = change.head or change.base
    return {
        "operation": change.name,
        **_fields(change, "phase", "module"),
        "is_function": is_function,
        **_fields(change, "change_ns"),
        **sides,
        "sources": list(newest.sources) if newest else [],
    }
