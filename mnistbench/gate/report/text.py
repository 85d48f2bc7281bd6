"""The report of a gate as text: blocks of lines and tables.

What was found comes first, then what it rests on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mnistbench.core import units
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.report.notes import (
    exact_differences,
    head_lines,
    note_lines,
    reach_lines,
    reproducers,
)
from mnistbench.gate.report.outcome import (
    bounds_of_once,
    covered,
    excluded_text,
    not_decided,
    not_seen,
    sentence,
)
from mnistbench.gate.report.rows import (
    CLOCKS,
    CONFIDENT,
    SEE_ALL,
    CaseRow,
    EstimateRow,
    FindingGroup,
    Rows,
    amounts,
    clocks_of,
    signed,
    table_name,
)
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.showing.report import INDENT, Block
from mnistbench.showing.table import Column, Table

#: Width of a forest plot in characters; odd, so that zero has its own column.
WIDTH = 31


#: Largest change that a forest plot shows, as a share; larger ones are cut off at its edge.
MAX_SCALE = 10.0


#: Share of a case from which on an operation is large; the bounds of large operations are a family
#: of their own.
_LARGE = units.percent(LARGE_SHARE)


def blocks(rows: Rows) -> list[Block]:
    """Return the parts of a report; ``--top`` and ``--verbose`` limit what has no finding."""
    return [
        Block("", tuple(head_lines(rows.verdict))),
        Block("Found", tuple(finding_lines(rows))),
        Block("Not decided", tuple(not_decided(rows))),
        cases_block(rows),
        operations_block(rows),
        Block("Replaced operations", tuple(rows.limited(rows.replacements, always=True))),
        Block("Exact differences", tuple(exact_differences(rows))),
        Block("Reproducers", tuple(rows.limited(reproducers(rows.verdict)))),
        Block("Changed code", tuple(reach_lines(rows))),
        Block("Notes", tuple(note_lines(rows))),
        Block("Verdict", (*bounds_of_once(rows), *not_seen(rows.verdict), sentence(rows))),
    ]


# ---- Findings ------------------------------------------------------------------------------------


def finding_lines(rows: Rows) -> list[str]:
    """Return the lines of all findings, regressions first; those of one cause are below it.

    A long report has those of the first --top causes, and about as many findings.
    """
    top = rows.verdict.options.top if rows.is_long else sys.maxsize
    groups = rows.groups[:top]
    most = max(1, top // max(1, len(groups)))
    lines = [line for group in groups for line in _group_lines(group, most)]
    if more := len(rows.groups) - len(groups):
        lines.append(f"{more} more; {SEE_ALL}")
    return lines


def _group_lines(group: FindingGroup, most: int) -> Iterator[str]:
    """Yield the line of a finding and that of its cause; of several findings the cause first."""
    if len(group.rows) == 1:
        [row] = group.rows
        yield from filter(None, (row.line, row.cause))
        return
    yield group.heading
    for row in group.rows[:most]:
        yield f"{INDENT}{row.line}"
        if row.detail:
            yield f"{INDENT}{INDENT}{row.detail}"
    if len(group.rows) > most:
        yield f"{INDENT}{len(group.rows) - most} more of this cause; {SEE_ALL}"


# ---- Tables --------------------------------------------------------------------------------------


def cases_block(rows: Rows) -> Block:
    """Return the tables of cases and of one-time costs.

    A long report has those with a finding, or with the largest bounds.
    """
    lines, shown = _chosen_cases(rows) if rows.is_long else ([], rows.cases)
    tables = []
    if shown:
        limit = rows.verdict.options.case
        scale = _scale([row.estimate for row in shown], limit)
        columns: tuple[Column[CaseRow], ...] = (
            Column("case", lambda row: row.name),
            Column("base", lambda row: row.estimate.quantity.base, units.duration),
            Column("head", lambda row: row.estimate.quantity.head, units.duration),
            *_columns_of_change(scale),
            *(_change_by(clock) for clock in clocks_of(rows.cases)),
            Column("slowdown below", lambda row: row.high, units.percent_up),
            Column("mean below", lambda row: row.high_of_mean, units.percent_up, spare=2),
            Column("verdict", lambda row: row.verdict or None),
        )
        title = f"cases: change of the median wall time, head relative to base; {CONFIDENT}"
        tables.append(Table(title, columns if rows.verdicts else columns[:-1], shown))
    if once := [row for row in rows.once if not rows.is_long or row.verdict]:
        scale = _scale([row.estimate for row in once], rows.verdict.options.once)
        columns_of_once: tuple[Column[EstimateRow], ...] = (
            Column("what", lambda row: row.estimate.quantity.title),
            Column("case", lambda row: row.case_name),
            Column("base -> head", lambda row: amounts(row.estimate.quantity)),
            *_columns_of_change(scale),
            Column("growth below", lambda row: excluded_text(row.estimate)),
        )
        title = f"once in a process: CPU time, memory at its peak; {CONFIDENT}"
        tables.append(Table(title, columns_of_once, once))
    return Block("Cases", tuple(lines), tuple(tables))


def _chosen_cases(rows: Rows) -> tuple[list[str], list[CaseRow]]:
    """Return the cases that a long report has, and the lines about the others."""
    lines = []
    row_of_case = {row.case: row for row in rows.cases}
    notable = [row_of_case[case] for case in rows.notable if case in row_of_case]
    top = rows.verdict.options.top
    shown = [row for rank, row in enumerate(notable) if rank < top or row.verdict]
    if quiet := [row for row in rows.cases if row.verdict is None]:
        bounds = (
            max(row.high or 0.0 for row in quiet),
            max(row.high_of_mean or 0.0 for row in quiet),
        )
        lines.append(
            f"{units.counted(len(quiet), 'case')} without a finding: "
            f"{covered(bounds, 'any of them', rows.shown.floor_ns)}"
        )
    if len(notable) > len(shown):
        more = units.counted(len(notable) - len(shown), "more case")
        lines.append(f"{more} in which a slowdown is not ruled out; {SEE_ALL}")
    return lines, shown


def _change_by(clock: str) -> Column[CaseRow]:
    return Column(CLOCKS[clock], lambda row: row.changes.get(clock), signed)


def operations_block(rows: Rows) -> Block:
    """Return a table for each case; of a long report, for those with the largest findings."""
    top = rows.verdict.options.top
    chosen = (
        [case for case in rows.notable if case in rows.operations][:top]
        if rows.is_long
        else [*rows.operations]
    )
    tables = []
    for case in chosen:
        ranked = sorted(
            rows.operations[case],
            key=lambda row: (not row.verdict, -row.estimate.quantity.share),
        )
        shown = [row for rank, row in enumerate(ranked) if rank < top or row.verdict]
        scale = _scale([row.estimate for row in shown], rows.verdict.options.operation)
        columns: tuple[Column[EstimateRow], ...] = (
            Column("operation", lambda row: table_name(row.estimate.quantity)),
            Column("base", lambda row: row.estimate.quantity.base, units.duration),
            Column("share", lambda row: row.estimate.quantity.share, units.percent),
            *_columns_of_change(scale),
            Column("verdict", lambda row: row.verdict or f"below {excluded_text(row.estimate)}"),
        )
        title = (
            f"{rows.names[case]}: change of self times; {CONFIDENT}, separately for shares of "
            f"{_LARGE} and more"
        )
        tables.append(Table(units.printable(title), columns, shown))
    more = len(rows.operations) - len(tables)
    lines = (f"tables of {more} more cases; {SEE_ALL}",) if more else ()
    return Block("Operations", lines, tuple(tables))


def _columns_of_change(scale: float) -> tuple[Column[Any], ...]:
    """Return the columns of rows with an estimate: change, bounds, plot from -scale to +scale."""
    edge = units.percent(scale)
    half = (WIDTH + 1) // 2
    return (
        Column("change", lambda row: row.estimate.change, signed),
        Column("from", lambda row: _bound(row.estimate, row.estimate.low), signed, spare=1),
        Column("to", lambda row: _bound(row.estimate, row.estimate.high), signed, spare=1),
        Column(
            f"-{edge}".ljust(half) + "0" + f"+{edge}".rjust(half),
            lambda row: forest(row.estimate, scale),
            spare=3,
        ),
    )


def _bound(estimate: Estimate, bound: float) -> float | None:
    """Return a bound; None if the change is no share, because the base has no such time."""
    return bound if estimate.change < math.inf else None


def _scale(estimates: Sequence[Estimate], threshold: float) -> float:
    """Return the change at the edges of a plot.

    It shows every estimate up to MAX_SCALE, and at least twice the threshold.
    """
    reaches = (
        max(
            min(abs(estimate.change), MAX_SCALE),
            min(max(abs(estimate.low), abs(estimate.high)), 1.0),
        )
        for estimate in estimates
    )
    widest = max(reaches, default=0.0)
    return max(2 * threshold, math.ceil(widest * 100) / 100)


def forest(estimate: Estimate, scale: float) -> str:
    """Return an interval as text: ``(----*----)`` on a line from -scale to +scale.

    The line has ``|`` at no change.

    Square brackets enclose the line, because some renderers of tables strip blanks from cells.
    """

    def column(change: float) -> int:
        half = (WIDTH - 1) // 2
        return half + round(max(-1.0, min(1.0, change / scale)) * half)

    line = [" "] * WIDTH
    low, middle, high = (column(value) for value in (estimate.low, estimate.change, estimate.high))
    for position in range(low, high + 1):
        line[position] = "-"
    line[(WIDTH - 1) // 2] = "|"
    line[low] = "(" if estimate.low > -scale else "<"
    line[high] = ")" if estimate.high < scale else ">"
    line[middle] = "*"
    return f"[{''.join(line)}]"
