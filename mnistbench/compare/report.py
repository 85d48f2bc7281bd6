"""Judgement -> its report.

Sentences and tables, which every format draws, and the data of JSON and CSV.

In JSON and CSV times are nanoseconds, and shares are fractions of 1.
"""

from __future__ import annotations

import functools
import itertools
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mnistbench.compare import judge
from mnistbench.compare.criteria import DEFAULT_SHARE, Criteria
from mnistbench.compare.diff import CaseComparison, Comparison, OpChange, OpTotals
from mnistbench.compare.exact import exact_differences, final_value, is_exact
from mnistbench.compare.prediction_interval import FALSE_ALARM, RUNS_NEEDED
from mnistbench.core import units
from mnistbench.core.operation import operation_cells, operation_name
from mnistbench.core.record import finite
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
from mnistbench.showing.table import Column, Table, text_table
from mnistbench.showing.text import uneven

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
    "no operation is large enough to be judged by itself; {by} op sums over modules, "
    "--op-min-share 0.5% shows more"
)

#: What is counted of a case with operations.
_COUNTED = "operations, calls, bytes and parameters"

#: Operations of a replacement that all have rows of their own.
MOST_MEMBERS = 5

#: Smallest change, as a share of the case, that has a row of its own in a replacement of more
#: operations.
LEAST_MEMBER = 0.01

#: Verdict of the rows of a replacement after its first row.
_INCLUDED = "included above"


def report(judgement: judge.Judgement, top: int) -> Report:
    """Return the report; a case shows ``top`` operations, and all that fail."""
    return Report(
        heading=list(verdict_lines(judgement))[-1],
        blocks=blocks(judgement, top),
        data=_data(judgement),
        table=Table("", LEDGER, list(_all_rows(judgement))),
    )


def blocks(judgement: judge.Judgement, top: int) -> list[Block]:
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
                "base", len(bases), [(case, case.used, case.left_out) for case in comparison.cases]
            )
    yield f"head: {comparison.head.label}{_older(comparison.older_heads)}"
    if comparison.older_heads and bases:
        yield from _runs_used(
            "head",
            len(comparison.older_heads) + 1,
            [(case, case.used_heads, case.left_out_heads) for case in comparison.cases],
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
    elif iterations.mixed_calls:
        yield (
            f"different numbers of calls ({case.head.label}): {iterations.mixed_calls}; "
            "without steps the times are those of the whole trace, and an operation with more "
            "calls takes more time"
        )


def _older(runs: Sequence[Run]) -> str:
    return f" and {units.counted(len(runs), 'older saved run')}" if runs else ""


def _runs_used(
    side: str,
    n_runs: int,
    used_by_case: Iterable[tuple[CaseComparison, Sequence[Run], Mapping[str, int]]],
) -> Iterable[str]:
    """Yield the number of runs of a side that are samples and why the others are left out.

    One line if all cases agree. Each case has the runs that are, and how many are not, by reason.
    """
    cases_of_text: dict[str, list[str]] = defaultdict(list)
    for case, used, left_out_runs in used_by_case:
        commits = {run.commit: run.short_commit for run in used}
        of = f", commit {used[-1].short_commit}" if any(commits) else ""
        if len(commits) > 1:
            of = f", {len(commits)} commits"
        reasons = ", ".join(
            f"{count} ({reason})" for reason, count in sorted(left_out_runs.items())
        )
        left_out = f"; left out: {reasons}" if reasons else ""
        cases_of_text[f"{len(used)} of {n_runs}{of}{left_out}"].append(case.head.label)
    for text, cases in cases_of_text.items():
        which = (
            f" for {cases[0] if len(cases) == 1 else f'{len(cases)} cases'}"
            if len(cases_of_text) > 1
            else ""
        )
        yield f"{side} runs used{which}: {text}"


# ---- Which operations to look at first -----------------------------------------------------------


def _ranked(judgement: judge.Judgement) -> Iterable[str]:
    """Yield the most serious verdicts first.

    Of one verdict, the largest changes as shares of the iteration first.
    """
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
            finding.kind in pooled,
            GRAVITY.index(finding.verdict),
            -abs(_share_of_iteration(finding)),
        )
    )
    for position, finding in enumerate(serious_changes[:RANKED], 1):
        yield (
            f"{position}. {finding.name} ({finding.case.head.label}): {finding.text}: "
            f"{_numbers(finding)}"
        )


def _share_of_iteration(finding: judge.RunFinding) -> float:
    return finding.change_ns / finding.whole_base_ns if finding.whole_base_ns else 0.0


def _numbers(finding: judge.RunFinding) -> str:
    whole = "device busy time" if finding.case.has_busy_time else "iteration"
    if finding.is_function:
        whole = "functions"
    reasons = [
        f"{units.duration(finding.base_ns)} -> {units.duration(finding.head_ns)}"
        + (f", {units.percent(finding.change, signed=True)}" if finding.base_ns > 0 else ""),
        f"{units.percent(_share_of_iteration(finding), signed=True)} of the {whole}",
    ]
    if len(finding.members) == 1:
        [change] = finding.members
        calls = _calls(change)
        if change.base and change.head and "->" in calls:
            reasons.append(f"{calls} calls")
    return "; ".join(reasons)


# ---- Tables --------------------------------------------------------------------------------------


Cell = float | str | None  # a text stands for itself; None: missing


@dataclass(frozen=True)
class LedgerRow:
    """One row of the ledger of a case: an operation, a sum of operations, or the iteration."""

    case: CaseComparison
    title: str  # as tables show it
    base_ns: Cell  # None: the base does not have it
    head_ns: Cell
    change_ns: float
    verdict: str
    name: str = ""  # in CSV
    phase: str | None = ""
    module: str | None = ""
    operation: OpChange | None = None  # of the row; None: a sum, or a time of the whole case
    has_share: bool = True  # of the change of the case, or of all functions
    is_function: bool = False  # or a sum of functions, with times under cProfile

    @property
    def base(self) -> OpTotals | None:
        """The operation in the base."""
        return self.operation.base if self.operation else None

    @property
    def head(self) -> OpTotals | None:
        """The operation in the head."""
        return self.operation.head if self.operation else None

    @property
    def change(self) -> Cell:
        """Change as a share of the base."""
        if isinstance(self.base_ns, str) or isinstance(self.head_ns, str):
            return ""
        if self.base_ns is None:
            return "new"
        if self.head_ns is None:
            return "gone"
        return (self.head_ns - self.base_ns) / self.base_ns if self.base_ns > 0 else None

    @property
    def share(self) -> Cell:
        """Share of the change of the case, if that is large enough to be divided."""
        if not self.has_share:
            return ""
        base_ns, head_ns = self.case.whole_ns(is_function=self.is_function)
        whole_ns = head_ns - base_ns
        if abs(whole_ns) < LEAST_CHANGE_TO_SHARE * base_ns or not whole_ns:
            return None
        return self.change_ns / whole_ns


def _or_text(shown: Callable[[float], str]) -> Callable[[Cell], str]:
    return lambda cell: cell if isinstance(cell, str) else shown(cell or 0.0)


_signed_duration = functools.partial(units.duration, signed=True)
_signed_percent = functools.partial(units.percent, signed=True)

#: The columns of a ledger. In CSV there is a row per operation, the unexplained rest and the
#: iteration, whose ``change_ns`` is the sum of the others; on an accelerator a row of its busy time
#: is that sum, and the iteration has the elapsed time. Functions have a sum of their own.
LEDGER = (
    Column[LedgerRow](None, lambda row: row.case.head.label, key="case"),
    Column[LedgerRow]("operation", lambda row: row.title),
    Column[LedgerRow](None, lambda row: row.name, key="operation"),
    Column[LedgerRow]("phase", lambda row: row.phase, key="phase"),
    Column[LedgerRow]("module", lambda row: row.module, key="module"),
    Column[LedgerRow]("base", lambda row: row.base_ns, _or_text(units.duration), "base_ns"),
    Column[LedgerRow]("head", lambda row: row.head_ns, _or_text(units.duration), "head_ns"),
    Column[LedgerRow]("difference", lambda row: row.change_ns, _signed_duration, "change_ns"),
    Column[LedgerRow]("change", lambda row: row.change, _or_text(_signed_percent)),
    Column[LedgerRow]("calls", lambda row: _calls(row.operation) if row.operation else "", str),
    Column[LedgerRow](None, lambda row: row.base.calls if row.base else None, key="base_calls"),
    Column[LedgerRow](None, lambda row: row.head.calls if row.head else None, key="head_calls"),
    Column[LedgerRow]("of change", lambda row: row.share, _or_text(units.percent)),
    Column[LedgerRow]("verdict", lambda row: row.verdict, key="verdict"),
    Column[LedgerRow](None, lambda row: machines(row.case), key="across_machines"),
)


def _ledger(judged: judge.CaseJudgement, top: int, criteria: Criteria) -> Table:
    """Return single operations by size of change.

    Below the line the others, the unexplained rest and the iteration.
    """
    case = judged.case
    alone = [finding for finding in judged.operations if finding.kind in (OPERATION, REPLACED)]
    shown = alone[:top]
    hidden = list[judge.RunFinding]()
    for finding in alone[top:]:
        (shown if finding.verdict in (REGRESSED, SUSPECT) or finding.is_noise else hidden).append(
            finding
        )
    pooled = [finding for finding in judged.operations if finding.kind == OTHER]
    outside = [finding for finding in judged.operations if finding.kind == OUTSIDE_KIND]
    are_large = any(
        finding.head_ns >= SHARE_OF_SMALL * case.whole_ns(is_function=finding.is_function)[1]
        for finding in pooled
    )
    none_alone = [_NONE_ALONE.format(by=criteria.flag("--by"))] if not alone and are_large else []
    sums = [
        *(
            _hidden_row(findings)
            for is_function in (False, True)
            if (findings := [finding for finding in hidden if finding.is_function is is_function])
        ),
        *(
            _sum_row(
                case, f"{finding.name} ({_counted(finding.members)})", finding.members, finding.text
            )
            for finding in pooled
        ),
        *(_sum_row(case, finding.name, finding.members, finding.text) for finding in outside),
        *_whole_rows(judged),
    ]
    return Table(
        title=case_title(case),
        columns=LEDGER,
        rows=tuple(row for finding in shown for row in _rows(finding, top)),
        sums=tuple(sums),
        lines=(*none_alone, *_lines(case)),
    )


def _all_rows(judgement: judge.Judgement) -> Iterable[LedgerRow]:
    """Yield every row of every case, for CSV."""
    for judged in judgement.cases:
        for finding in judged.operations:
            for change in finding.members:
                yield _operation_row(judged.case, change, finding.text)
        yield from _whole_rows(judged)


def _whole_rows(judged: judge.CaseJudgement) -> Iterable[LedgerRow]:
    """Yield the rest that no operation explains, busy time if it is known, and the iteration."""
    case = judged.case
    if case.functions:
        base_ns, head_ns = case.functions_ns
        yield LedgerRow(
            case,
            "sum of the functions, with cProfile",
            base_ns,
            head_ns,
            head_ns - base_ns,
            "",
            name="(functions)",
            is_function=True,
        )
    if any(not finding.is_function for finding in judged.operations):
        yield LedgerRow(
            case,
            "not explained by operations",
            "",
            "",
            case.remainder_ns,
            "",
            name="(not explained by operations)",
        )
    has_both = case.has_busy_time and not case.is_busy_time
    if has_both:
        yield LedgerRow(
            case,
            "device busy time of one iteration",
            case.whole_base_ns,
            case.whole_head_ns,
            case.whole_change_ns,
            "",
            name="(device busy time)",
        )
    yield LedgerRow(
        case,
        f"{_clock(case)} time of one iteration",
        case.base_ns,
        case.head_ns,
        case.change_ns,
        judged.iteration.text,
        name="(iteration)",
        has_share=not has_both,
    )


def case_title(case: CaseComparison) -> str:
    """Return the name of a case, with its machines if they differ."""
    return units.printable(case.head.label) + across_machines([case])


def across_machines(cases: Iterable[CaseComparison]) -> str:
    """Return ``, across machines: devices A -> B`` for cases that are compared all the same.

    Empty if there is none.
    """
    differences = {machines(case) for case in cases if case.across_machines}
    return (
        units.printable(f", across machines: {' or '.join(sorted(differences))}")
        if differences
        else ""
    )


def machines(case: CaseComparison) -> str:
    """Return what differs between the machines: ``cpu model A -> B; cpu count 2 -> 4``."""
    return "; ".join(described(case.across_machines))


def _rows(finding: judge.RunFinding, top: int) -> Iterable[LedgerRow]:
    """Yield a row per operation.

    Operations that replace each other have one verdict, in the first of their rows.

    Of more than MOST_MEMBERS operations, those with small changes are one row, and so are all after
    the first ``top``.
    """
    case = finding.case
    members = finding.members
    shown = members
    if len(members) > MOST_MEMBERS:
        least_ns = LEAST_MEMBER * max(case.whole_base_ns, case.whole_head_ns)
        large = sum(abs(change.change_ns) >= least_ns for change in members)  # they come first
        shown = members[: max(1, min(large, top - 1))]
    for position, change in enumerate(shown):
        yield _operation_row(case, change, finding.text if position == 0 else _INCLUDED)
    if rest := members[len(shown) :]:
        row = _sum_row(case, units.counted(len(rest), "more operation"), rest, _INCLUDED)
        yield replace(row, phase=None, module=None)


def _operation_row(case: CaseComparison, change: OpChange, verdict: str) -> LedgerRow:
    title, _, _ = operation_cells(*change.key)
    return LedgerRow(
        case,
        title,
        change.base_ns,
        change.head_ns,
        change.change_ns,
        verdict,
        name=change.name,
        phase=change.phase or None,
        module=change.module or None,
        operation=change,
        is_function=change.is_function,
    )


def _sum_row(
    case: CaseComparison, title: str, members: Iterable[OpChange], verdict: str
) -> LedgerRow:
    """Sum the times of the table, so that the column adds up.

    The verdict is of the sums of single runs.
    """
    changes = list(members)
    base_ns = sum(change.base_ns or 0 for change in changes)
    head_ns = sum(change.head_ns or 0 for change in changes)
    return LedgerRow(
        case,
        title,
        base_ns,
        head_ns,
        head_ns - base_ns,
        verdict,
        is_function=all(change.is_function for change in changes),
    )


def _hidden_row(hidden: Sequence[judge.RunFinding]) -> LedgerRow:
    worst = min(hidden, key=lambda finding: (GRAVITY.index(finding.verdict), -finding.within))
    which = "all" if all(finding.verdict == worst.verdict for finding in hidden) else "some"
    members = [change for finding in hidden for change in finding.members]
    title = f"not shown ({_counted(members)})"
    return _sum_row(worst.case, title, members, f"{which} {worst.text}")


def _counted(operations: Sequence[OpChange]) -> str:
    functions = sum(change.is_function for change in operations)
    counts = {"operation": len(operations) - functions, "function": functions}
    return ", ".join(units.counted(count, name) for name, count in counts.items() if count)


def _clock(case: CaseComparison) -> str:
    if case.is_busy_time:
        return "device busy"
    if case.clock == "device":
        return "device elapsed"
    return case.head.timing.clock if case.head.timing else "wall"


def _whole_cases(cases: Sequence[judge.CaseJudgement]) -> Table:
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
                *_change_cells(judged.case.base_ns, judged.case.head_ns),
                judged.iteration.text,
            )
            for judged in cases
        ),
        numbers_from=2,
        words_after=1,
        lines=tuple(
            f"{judged.case.head.label}: {text}"
            for judged in cases
            for text in exact_differences(judged.case)
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
    for text in units.first_lines(different, MOST_DIFFERENCES, "--format json has all"):
        yield f"exact: {text}"
    averages = [change for change in case.operations if change.is_operation and _varies(change)]
    if not different:
        only_functions = 0 < len(case.functions) == len(case.operations)
        counted = "functions and calls" if only_functions else _COUNTED
        yield f"exact: the same {counted}{', apart from averages' if averages else ''}"
    operations = sum(not change.is_function for change in averages)
    if operations:
        yield (
            f"calls or bytes of {units.counted(operations, 'operation')} are averages, because "
            "they differ from iteration to iteration"
        )
    if case.functions:
        yield uneven(len(averages) - operations)
    elif lacking := _without_functions(case):
        yield lacking
    finals = [
        f"{tag} {final_value(tag, value)}"
        for tag, (_, value) in case.final_values.items()
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


def verdict_lines(judgement: judge.Judgement) -> Iterable[str]:
    """Yield the machines if they differ, the rules, problems, accepted changes and regressions.

    At last the outcome.
    """
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
        excuse = f" (passed over: {option} ok)" if criteria.inconclusive == "ok" else ""
        yield (
            f"inconclusive: {_described(finding)}; "
            f"the limit is {units.percent(finding.threshold)}, "
            f"the {_uncertainty(finding)}{excuse or _way_out(finding, option)}"
        )
    for finding in judgement.regressions:
        limit = f"the limit is {units.percent(finding.threshold)}{_exceeded(finding)}"
        yield f"regressed: {_described(finding)}; {limit}{_vanished_elsewhere(judgement, finding)}"
    yield f"thresholds: {_outcome(judgement)}"


def _described(finding: judge.RunFinding) -> str:
    return f"{finding.name} ({finding.case.head.label}), {_numbers(finding)}"


def _vanished_elsewhere(judgement: judge.Judgement, finding: judge.RunFinding) -> str:
    """Return what vanished in other places of the case of an operation that replaces nothing.

    Empty if nothing did.
    """
    if finding.kind != REPLACED or any(change.base for change in finding.members):
        return ""
    vanished = [
        change for change in finding.case.operations if change.is_operation and change.head is None
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


def _uncertainty(finding: judge.RunFinding, how: str = "") -> str:
    measure = "minimum detectable change" if finding.by_runs else "spread of the runs"
    return f"{measure}{how} {units.growth(finding.uncertainty)}"


def _exceeded(finding: judge.RunFinding) -> str:
    limit = finding.exceeded_limit
    return "" if limit is None else f"; it exceeds the accepted limit of {units.percent(limit)}"


def _option(judgement: judge.Judgement, finding: judge.RunFinding) -> str:
    value = shlex.quote(judge.acceptance_for(judgement, finding))
    return f"{judgement.criteria.flag('--accept')} {value}"


def _way_out(finding: judge.RunFinding, option: str) -> str:
    """Return how to resolve a change that the base runs vary too much to judge.

    ``option`` is the spelling of ``--inconclusive``.
    """
    larger = "" if finding.is_above_given else " give a larger limit,"
    return (
        f"{_exceeded(finding)}; save more base runs or measure on a quieter machine,{larger} or "
        f"add {option} ok"
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
        finding
        for finding in judgement.findings
        if finding.has_limit and not finding.is_open and finding.uncertainty > 0
    ]
    up_to = (
        f" ({_uncertainty(max(known, key=lambda finding: finding.uncertainty), ' up to')})"
        if known
        else ""
    )
    open_operations = judgement.open_operations
    if not open_operations:
        return f"{passed}{up_to}"
    largest = open_operations[0]
    limits = {units.percent(finding.threshold) for finding in open_operations}
    count = units.counted(len(open_operations), "small operation")
    at = f"at {limits.pop()}" if len(limits) == 1 else "at their limits"
    which = f"the largest being {largest.name} ({largest.case.head.label})"
    return f"{passed}{up_to}; {count} cannot be judged {at}, {which}: {_uncertainty(largest)}"


def _advised_threshold(judgement: judge.Judgement) -> str:
    """Return a threshold that the compared cases can have."""
    if any(case.case.operations for case in judgement.cases):
        return "for operations with --op-fail 10%"
    return f"with {judgement.criteria.flag('--case-fail')} 10%"


def _rules(judgement: judge.Judgement) -> Iterable[str]:
    comparable = [quantity for quantity in judgement.findings if quantity.case.is_comparable]
    judged_by_runs = [quantity for quantity in comparable if quantity.by_runs]
    if judged_by_runs:
        runs = sorted({len(quantity.base_runs) for quantity in judged_by_runs})
        shown = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        largest = max(judged_by_runs, key=lambda quantity: quantity.smallest or 0.0)
        yield (
            f"judged by runs: {units.counted(len(judged_by_runs), 'verdict')}, by the prediction "
            f"interval of {shown} base runs with false alarms in {units.percent(FALSE_ALARM)} of "
            f"reports; largest minimum detectable change {units.growth(largest.smallest or 0)}: "
            f"{largest.name} ({largest.case.head.label})"
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


def _data(judgement: judge.Judgement) -> dict[str, Any]:
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
            {"case": finding.case.head.label, "name": finding.name}
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
        "iteration": _finding_data(judged.iteration),
        "operations": list(map(_finding_data, judged.operations)),
    }


def _finding_data(finding: judge.RunFinding) -> dict[str, Any]:
    return {
        **_fields(
            finding,
            "name",
            "kind",
            "base_ns",
            "head_ns",
            "change_ns",
            "change",
            "verdict",
            "within",
            "threshold",
        ),
        **({} if finding.verdict == WITHIN else {"within": None}),
        "given": finding.has_limit,
        **_fields(finding, "fails", "accepted", "accept_limit", "smallest"),
        "noise": finding.is_noise,
        "base_runs": len(finding.base_runs),
        "head_runs": len(finding.head_runs),
        "rule": "runs" if finding.by_runs else "threshold",
        "members": list(map(_member, finding.members)),
    }


def _member(change: OpChange) -> dict[str, Any]:
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
        **_fields(change, "phase", "module", "is_function", "change_ns"),
        **sides,
        "sources": list(newest.sources) if newest else [],
    }
