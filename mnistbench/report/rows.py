"""The tables that every format draws: cells are text already, through ``units``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mnistbench import units
from mnistbench.compare import CaseComparison, Comparison, OpChange
from mnistbench.record import CaseRecord, OpTable, median_ns

#: A change of the call below this share is too small a denominator for shares of it.
LEAST_CHANGE_TO_SHARE = 0.01

_ENGINE = "autograd::engine::"


@dataclass(frozen=True)
class Table:
    """A title, column heads, rows of cells, and rows below the line (sums). Columns from ``numbers_from`` hold numbers."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sums: tuple[tuple[str, ...], ...]
    numbers_from: int
    lines: tuple[str, ...] = ()  # sentences under the table


# ---- Operations of one run -------------------------------------------------------------------------------------------


def operation_tables(records: Iterable[CaseRecord], top: int) -> list[Table]:
    """Return a table per phase, workload and device, a column pair per batch size."""
    groups: dict[tuple[str, ...], list[CaseRecord]] = defaultdict(list)
    for record in records:
        if record.table("warm"):
            params = record.params
            groups[record.test, params.phase, params.workload, params.device, params.dtype, params.dataset].append(record)
    return [_operation_table(sorted(group, key=lambda record: record.params.batch_size), top) for group in groups.values()]


def _operation_table(records: Sequence[CaseRecord], top: int) -> Table:
    """Rows: the ``top`` operations by their largest share in any column; the rest as ``other``, so that columns add up."""
    tables = [table for record in records if (table := record.table("warm"))]
    columns = [_Column(table) for table in tables]
    keys = sorted(
        {key for column in columns for key in column.operations}, key=lambda key: (-max(c.share(key) for c in columns), key)
    )
    shown, rest = keys[:top], keys[top:]
    params, clock = records[0].params, tables[0].clock
    sums = [
        (f"other ({len(rest)} operations)", "", "", *_cells(columns, lambda column: column.sum(rest))),
        ("outside operations", "", "", *_cells(columns, lambda column: column.outside)),
        ("sum of one profiled iteration", "", "", *_cells(columns, lambda column: column.total)),
        ("device time without the profiler", "", "", *_times(median_ns(record.device_ns) or None for record in records)),
        (
            "wall time without the profiler",
            "",
            "",
            *_times(record.timing.median_ns if record.timing else None for record in records),
        ),
        ("first call", "", "", *_times(record.first_call_ns for record in records)),
    ]
    return Table(
        title=f"{params.phase} {params.workload} on {params.dataset}, {params.device}, {params.dtype}: "
        f"self {'device' if clock == 'device' else 'CPU'} time per iteration",
        headers=("operation", "phase", "module", *(head for r in records for head in (f"b{r.params.batch_size} us", "share"))),
        rows=tuple(_operation_row(key, columns) for key in shown),
        sums=tuple(row for row in sums if any(cell not in ("", units.MISSING) for cell in row[3:])),
        numbers_from=3,
    )


def _operation_row(key: tuple[str, str, str], columns: Sequence[_Column]) -> tuple[str, ...]:
    return (*_operation_cells(*key), *_cells(columns, lambda column: column.sum([key])))


class _Column:
    """One case's warm table, by operation."""

    def __init__(self, table: OpTable) -> None:
        self._ns = {row.key: row.self_ns(table.clock) for row in table.rows if row.is_operation}
        self.operations = set(self._ns)
        self.total = table.total_ns
        self.outside = self.total - sum(self._ns.values())

    def sum(self, keys: Iterable[tuple[str, str, str]]) -> int | None:
        """Sum over those of the operations that the case has; None if it has none of them."""
        found = [self._ns[key] for key in keys if key in self._ns]
        return sum(found) if found else None

    def share(self, key: tuple[str, str, str]) -> float:
        return self._ns.get(key, 0) / self.total if self.total else 0.0


def _cells(columns: Iterable[_Column], value: Callable[[_Column], int | None]) -> list[str]:
    """Return time and share of each column."""
    cells = []
    for column in columns:
        nanoseconds = value(column)
        if nanoseconds is None:
            cells += [units.MISSING, units.MISSING]
        else:
            cells += [
                units.microseconds(nanoseconds),
                units.percent(nanoseconds / column.total) if column.total else units.MISSING,
            ]
    return cells


def _times(nanoseconds: Iterable[int | None]) -> list[str]:
    return [cell for value in nanoseconds for cell in (units.MISSING if value is None else units.microseconds(value), "")]


def _operation_cells(name: str, phase: str, module: str) -> tuple[str, str, str]:
    return (name.removeprefix(_ENGINE), phase or units.MISSING, module or units.MISSING)


# ---- Two runs --------------------------------------------------------------------------------------------------------


def comparison_tables(comparison: Comparison, top: int) -> list[Table]:
    """Return a table per case whose operations both runs have, and one of the whole calls of the other cases."""
    with_operations = [case for case in comparison.cases if case.operations]
    others = [case for case in comparison.cases if not case.operations]
    return [*(_comparison_table(case, top) for case in with_operations), *([_whole_calls(others)] if others else [])]


def _comparison_table(case: CaseComparison, top: int) -> Table:
    """Rows: the ``top`` operations by size of change; sums: the rest, what nothing explains, and the call itself."""
    operations = [change for change in case.operations if change.is_operation]
    outside = [change for change in case.operations if not change.is_operation]
    shown, rest = operations[:top], operations[top:]
    share = _Shares(case)
    sums = [
        _sum_row(f"other ({len(rest)} operations)", rest, share),
        _sum_row("outside operations", outside, share),
        _row(
            "not explained by operations",
            ("", "", units.microseconds(case.remainder_ns, signed=True), ""),
            share(case.remainder_ns),
        ),
        _row(_clock_name(case.clock), _change_cells(case.base_ns, case.now_ns), share(case.change_ns)),
    ]
    return Table(
        title=f"{case.now.params.label} on {case.now.params.dataset}",
        headers=("operation", "phase", "module", "base us", "now us", "change us", "change", "calls", "of change"),
        rows=tuple(
            (
                *_operation_cells(change.name, change.phase, change.module),
                *_change_cells(change.base_ns, change.now_ns),
                _calls(change),
                share(change.change_ns),
            )
            for change in shown
        ),
        sums=tuple(row for row in sums if row),
        numbers_from=3,
        lines=tuple(_training_line(case)),
    )


def _sum_row(name: str, changes: Sequence[OpChange], share: _Shares) -> tuple[str, ...]:
    if not changes:
        return ()
    base, now = (sum(getattr(change, side) or 0 for change in changes) for side in ("base_ns", "now_ns"))
    return _row(name, _change_cells(base, now), share(now - base))


def _row(name: str, change_cells: tuple[str, str, str, str], share: str) -> tuple[str, ...]:
    return (name, "", "", *change_cells, "", share)


def _whole_calls(cases: Sequence[CaseComparison]) -> Table:
    return Table(
        title="cases without operation tables: wall time of one call",
        headers=("case", "operations in", "base us", "now us", "change us", "change"),
        rows=tuple(
            (
                f"{case.now.params.label} on {case.now.params.dataset}",
                case.now.tables_in or units.MISSING,
                *_change_cells(case.base_ns, case.now_ns),
            )
            for case in cases
        ),
        sums=(),
        numbers_from=2,
    )


def _clock_name(clock: str) -> str:
    return "device time of one call" if clock == "device" else "wall time of one call"


class _Shares:
    """Shares of the change of the call, where that is large enough to share."""

    def __init__(self, case: CaseComparison) -> None:
        self._whole = case.change_ns if abs(case.change_ns) >= LEAST_CHANGE_TO_SHARE * case.base_ns else 0

    def __call__(self, nanoseconds: int) -> str:
        return units.percent(nanoseconds / self._whole) if self._whole else units.MISSING


def _change_cells(base: int | None, now: int | None) -> tuple[str, str, str, str]:
    if base is None or now is None:
        relative = "new" if base is None else "gone"
    else:
        relative = units.percent((now - base) / base, signed=True) if base else units.MISSING
    return (
        units.MISSING if base is None else units.microseconds(base),
        units.MISSING if now is None else units.microseconds(now),
        units.microseconds((now or 0) - (base or 0), signed=True),
        relative,
    )


def _calls(change: OpChange) -> str:
    if not (change.base_calls or change.now_calls):
        return ""
    sides = [units.MISSING if calls is None else units.count(calls) for calls in (change.base_calls, change.now_calls)]
    return sides[0] if sides[0] == sides[1] else " -> ".join(sides)


def _training_line(case: CaseComparison) -> Iterable[str]:
    """Say what training reached on both sides: the same code must reach the same."""
    if not (case.base.scalars and case.now.scalars):
        return
    base, now = case.base.scalars.final, case.now.scalars.final
    finals = [
        f"{tag} {_value(tag, base[tag])} -> {_value(tag, now[tag])}"
        for tag in now
        if tag in base and not tag.startswith("timing/")
    ]
    if finals:
        yield f"training on {case.now.scalars.dataset}: " + ", ".join(finals)


def _value(tag: str, value: float | None) -> str:
    if value is None:
        return "not finite"
    return units.percent(value / 100) if tag.endswith("accuracy") else units.scalar(value)


def comparison_head(comparison: Comparison) -> list[str]:
    """Return what must be known before the tables are read: which runs, and what differs beside the code."""
    lines = [f"base: {comparison.base_label}", f"now:  {comparison.now_label}"]
    for name, (base, now) in comparison.environment.items():
        lines.append(f"different {name.replace('_', ' ')}: {_shown(base)} -> {_shown(now)}; times may differ for this alone")
    for node_id, differences in comparison.redefined:
        changed = ", ".join(f"{name} {base} -> {now}" for name, (base, now) in differences.items())
        lines.append(f"not the same case any more: {node_id} ({changed})")
    redefined = {node_id for node_id, _ in comparison.redefined}
    for records, side in ((comparison.only_base, "base"), (comparison.only_now, "now")):
        names = [record.node_id for record in records if record.node_id not in redefined]
        if names:
            lines.append(f"only in {side}: {', '.join(names)}")
    return lines


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(_shown(item) for item in value) or "none"
    return str(value)
