"""The tables of cases, of operations, and of one-time costs.

Intervals are also drawn as text, in a forest plot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.gate.report.outcome import covered, excluded_text
from mnistbench.gate.report.selection import SEE_ALL, is_long, notable_cases, verdicts_of_quantities
from mnistbench.gate.report.texts import amounts, signed, table_name
from mnistbench.gate.statistics.permutation import CONFIDENCE
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.gate.words import BUSY, CPU, DEVICE
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ITERATION, MEAN
from mnistbench.showing.report import Block
from mnistbench.showing.table import Column, Table

#: Width of a forest plot in characters; odd, so that zero has its own column.
WIDTH = 31


#: Largest change that a forest plot shows, as a share; larger ones are cut off at its edge.
WIDEST = 10.0


#: Share of a case from which on an operation is large; the bounds of large operations are a family
#: of their own.
_LARGE = units.percent(LARGE_SHARE)


#: Clocks of an accelerator, as the table of cases names them.
_CLOCKS = {CPU: "CPU", DEVICE: "device elapsed", BUSY: "device busy"}


@dataclass(frozen=True)
class CaseRow:
    """A case in the table of cases."""

    name: str
    estimates: Sequence[Estimate]  # medians and means by all clocks, that of wall time first
    # The worst finding, or empty if a slowdown is not ruled out; None if neither holds.
    verdict: str | None

    @property
    def case(self) -> str:
        """Its node id."""
        return self.estimate.quantity.case

    @property
    def estimate(self) -> Estimate:
        """The median of the wall time."""
        return self.estimates[0]

    @property
    def changes(self) -> dict[str, float]:
        """Clock -> change of the median."""
        return {
            estimate.quantity.clock: estimate.change
            for estimate in self.estimates
            if estimate.quantity.kind != MEAN
        }

    @property
    def high(self) -> float | None:
        """Largest upper bound of the medians by all clocks."""
        return self._high(ITERATION)

    @property
    def high_of_mean(self) -> float | None:
        """Largest upper bound of the means by all clocks."""
        return self._high(MEAN)

    def _high(self, kind: str) -> float | None:
        highs = [estimate.high for estimate in self.estimates if estimate.quantity.kind == kind]
        return max(0.0, *highs) if highs else None


def case_rows(verdict: Verdict) -> list[CaseRow]:
    """Return a row for each measured case, in the order of the base."""
    notable = notable_cases(verdict)
    estimates: dict[str, list[Estimate]] = {}
    for estimate in verdict.shown.cases:
        estimates.setdefault(estimate.quantity.case, []).append(estimate)
    return [
        CaseRow(verdict.names[case], of_case, notable.get(case))
        for case, of_case in estimates.items()
    ]


def cases_block(verdict: Verdict) -> Block:
    """Return the tables of cases and of one-time costs.

    Of many cases those with a finding, or with the largest bounds.
    """
    decision = verdict.shown
    is_shortened = is_long(verdict)
    shown = rows = case_rows(verdict)
    lines = []
    if is_shortened:
        by_case = {row.case: row for row in rows}
        named_cases = [by_case[case] for case in notable_cases(verdict) if case in by_case]
        shown = [
            row for rank, row in enumerate(named_cases) if rank < verdict.options.top or row.verdict
        ]
        if quiet := [row for row in rows if row.verdict is None]:
            bounds = (
                max(row.high or 0.0 for row in quiet),
                max(row.high_of_mean or 0.0 for row in quiet),
            )
            lines.append(
                f"{units.counted(len(quiet), 'case')} without a finding: "
                f"{covered(bounds, 'any of them')}"
            )
        if len(named_cases) > len(shown):
            more = units.counted(len(named_cases) - len(shown), "more case")
            lines.append(f"{more} in which a slowdown is not ruled out; {SEE_ALL}")

    tables = []
    if shown:
        clocks = clocks_of(rows)
        scale = _scale([row.estimate for row in shown], verdict.options.case)
        columns_of_rows = (
            Column[CaseRow]("case", lambda row: row.name),
            Column[CaseRow]("base", lambda row: row.estimate.quantity.base_ns, units.duration),
            Column[CaseRow]("head", lambda row: row.estimate.quantity.head_ns, units.duration),
            *(_of_estimate(column) for column in _columns_of_change(scale)),
            *(_change_by(clock) for clock in clocks),
            Column[CaseRow]("slowdown below", lambda row: row.high, units.percent_up),
            Column[CaseRow]("mean below", lambda row: row.high_of_mean, units.percent_up, spare=2),
            Column[CaseRow]("verdict", lambda row: row.verdict or None),
        )
        title = f"cases: change of the median wall time, head relative to base; {CONFIDENT}"
        tables.append(
            Table(title, columns_of_rows if decision.findings else columns_of_rows[:-1], shown)
        )
    verdicts = verdicts_of_quantities(verdict)
    if ranked := sorted(
        (
            estimate
            for estimate in decision.once
            if not is_shortened or estimate.quantity.key in verdicts
        ),
        key=lambda estimate: -estimate.high,
    ):
        columns = (
            Column[Estimate]("what", lambda estimate: estimate.quantity.title),
            Column[Estimate]("case", lambda estimate: verdict.names[estimate.quantity.case]),
            Column[Estimate]("base -> head", lambda estimate: amounts(estimate.quantity)),
            *_columns_of_change(_scale(ranked, verdict.options.once)),
            Column[Estimate]("growth below", excluded_text),
        )
        tables.append(
            Table(f"once in a process: CPU time, memory at its peak; {CONFIDENT}", columns, ranked)
        )
    return Block("Cases", tuple(lines), tuple(tables))


def clocks_of(rows: Sequence[CaseRow]) -> dict[str, str]:
    """Return the clocks beside wall time that any case was measured by, with their headings."""
    return {
        clock: heading
        for clock, heading in _CLOCKS.items()
        if any(clock in row.changes for row in rows)
    }


def _change_by(clock: str) -> Column[CaseRow]:
    return Column(_CLOCKS[clock], lambda row: row.changes.get(clock), signed)


def _of_estimate(column: Column[Estimate]) -> Column[CaseRow]:
    """Return a column of estimates as one of cases."""
    return Column(
        column.heading, lambda row: column.value(row.estimate), column.shown, spare=column.spare
    )


def operations_block(verdict: Verdict) -> Block:
    """Return a table for each case; of many cases, for those with the largest findings."""
    verdicts = verdicts_of_quantities(verdict)
    cases: dict[str, list[Estimate]] = {}
    for estimate in verdict.shown.operations:
        cases.setdefault(estimate.quantity.case, []).append(estimate)
    chosen = (
        [case for case in notable_cases(verdict) if case in cases][: verdict.options.top]
        if is_long(verdict)
        else [*cases]
    )
    tables = []
    for case in chosen:
        ranked = sorted(
            cases[case],
            key=lambda estimate: (estimate.quantity.key not in verdicts, -estimate.quantity.share),
        )
        shown = [
            estimate
            for rank, estimate in enumerate(ranked)
            if rank < verdict.options.top or estimate.quantity.key in verdicts
        ]
        columns = (
            Column[Estimate]("operation", lambda estimate: table_name(estimate.quantity)),
            Column[Estimate]("base", lambda estimate: estimate.quantity.base_ns, units.duration),
            Column[Estimate]("share", lambda estimate: estimate.quantity.share, units.percent),
            *_columns_of_change(_scale(shown, verdict.options.operation)),
            Column[Estimate](
                "verdict",
                lambda estimate: verdicts.get(
                    estimate.quantity.key, f"below {excluded_text(estimate)}"
                ),
            ),
        )
        title = (
            f"{verdict.names[case]}: change of self times; {CONFIDENT}, separately for shares of "
            f"{_LARGE} and more"
        )
        tables.append(Table(units.printable(title), columns, shown))
    lines = (
        (f"tables of {len(cases) - len(tables)} more cases; {SEE_ALL}",)
        if len(tables) < len(cases)
        else ()
    )
    return Block("Operations", lines, tuple(tables))


def _columns_of_change(scale: float) -> tuple[Column[Estimate], ...]:
    """Return the columns of a change.

    The estimate, its bounds, and a forest plot from -scale to +scale.
    """
    edge = units.percent(scale)
    half = (WIDTH + 1) // 2
    return (
        Column("change", lambda estimate: estimate.change, signed),
        Column("from", lambda estimate: _bound(estimate, estimate.low), signed, spare=1),
        Column("to", lambda estimate: _bound(estimate, estimate.high), signed, spare=1),
        Column(
            f"-{edge}".ljust(half) + "0" + f"+{edge}".rjust(half),
            lambda estimate: forest(estimate, scale),
            spare=3,
        ),
    )


#: How titles call the intervals.
CONFIDENT = f"simultaneous {CONFIDENCE:.0%} confidence intervals".replace("%", " %")


def _bound(estimate: Estimate, bound: float) -> float | None:
    """Return a bound; None if the change is no share, because the base has no such time."""
    return bound if estimate.change < math.inf else None


def _scale(estimates: Sequence[Estimate], threshold: float) -> float:
    """Return the change at the edges of a plot.

    It shows every estimate up to WIDEST, and at least twice the threshold.
    """
    reaches = (
        max(min(abs(estimate.change), WIDEST), min(max(abs(estimate.low), abs(estimate.high)), 1.0))
        for estimate in estimates
    )
    widest = max(reaches, default=0.0)
    return max(2 * threshold, math.ceil(widest * 100) / 100)


def forest(estimate: Estimate, scale: float) -> str:
    """Return an interval as text.

    ``(----*----)`` on a line from -scale to +scale, ``|`` at no change.

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
