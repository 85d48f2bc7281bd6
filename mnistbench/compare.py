"""(base run, new run) -> Comparison. Pure: reads records, knows no files, no terminal and no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mnistbench.record import OUTSIDE, CaseRecord, OpRow, OpTable, Run, median_ns


@dataclass(frozen=True)
class OpChange:
    """One operation of a case in both runs; None on the side where it does not exist. Times are per iteration."""

    name: str
    phase: str
    module: str
    base_ns: int | None  # median self time
    now_ns: int | None
    base_calls: float | None
    now_calls: float | None

    @property
    def is_operation(self) -> bool:
        """False for the time of a phase outside any operation."""
        return self.name != OUTSIDE

    @property
    def change_ns(self) -> int:
        """What the operation added to the iteration; negative where it took time away."""
        return (self.now_ns or 0) - (self.base_ns or 0)

    @property
    def relative(self) -> float | None:
        """The change as a share of the base; None where there is no base to share."""
        return self.change_ns / self.base_ns if self.base_ns and self.now_ns is not None else None


@dataclass(frozen=True)
class CaseComparison:
    """One case that both runs have."""

    base: CaseRecord
    now: CaseRecord
    clock: str  # cpu: untraced wall time and host self times. device: the accelerator's own
    base_ns: int  # median time of one call, untraced
    now_ns: int
    operations: tuple[OpChange, ...]  # by size of change, the largest first

    @property
    def change_ns(self) -> int:
        """Change of the time of one call."""
        return self.now_ns - self.base_ns

    @property
    def explained_ns(self) -> int:
        """Sum of what the operations changed."""
        return sum(operation.change_ns for operation in self.operations)

    @property
    def remainder_ns(self) -> int:
        """What the operations do not explain; with their changes it adds up to the change of the call."""
        return self.change_ns - self.explained_ns


@dataclass(frozen=True)
class Comparison:
    """Two runs, case by case."""

    base_label: str
    now_label: str
    environment: Mapping[str, tuple[Any, Any]]  # what differs: field -> (base, now)
    cases: tuple[CaseComparison, ...]
    only_base: tuple[CaseRecord, ...]
    only_now: tuple[CaseRecord, ...]

    @property
    def redefined(self) -> tuple[tuple[str, Mapping[str, tuple[Any, Any]]], ...]:
        """Tests of one name on both sides whose Params differ: (node id, field -> (base, now)). Not the same case."""
        now = {record.node_id: record for record in self.only_now}
        return tuple(
            (record.node_id, record.params.differences(now[record.node_id].params))
            for record in self.only_base
            if record.node_id in now and record.params != now[record.node_id].params
        )


def compare(base: Run, now: Run) -> Comparison:
    """Match the cases of two runs by test and Params, and their operations by name, phase and module."""
    base_cases = {record.key: record for record in base.cases}
    now_cases = {record.key: record for record in now.cases}
    return Comparison(
        base_label=base.label,
        now_label=now.label,
        environment=base.environment.differences(now.environment) if base.environment and now.environment else {},
        cases=tuple(_compare_case(base_cases[key], record) for key, record in now_cases.items() if key in base_cases),
        only_base=tuple(record for key, record in base_cases.items() if key not in now_cases),
        only_now=tuple(record for key, record in now_cases.items() if key not in base_cases),
    )


def _compare_case(base: CaseRecord, now: CaseRecord) -> CaseComparison:
    base_table, now_table = base.table("warm"), now.table("warm")
    on_device = all(table is not None and table.view == "device" for table in (base_table, now_table))
    clock = "device" if on_device and base.device_ns and now.device_ns else "cpu"
    if clock == "cpu":
        base_table, now_table = base.table("warm", "host"), now.table("warm", "host")
    operations = _compare_operations(base_table, now_table, clock) if base_table and now_table else ()
    return CaseComparison(base, now, clock, _call_ns(base, clock), _call_ns(now, clock), operations)


def _call_ns(record: CaseRecord, clock: str) -> int:
    if clock == "device":
        return median_ns(record.device_ns)
    return record.timing.median_ns if record.timing else 0


def _compare_operations(base: OpTable, now: OpTable, clock: str) -> tuple[OpChange, ...]:
    base_rows = {row.key: row for row in base.rows}
    now_rows = {row.key: row for row in now.rows}
    changes = [_change(base_rows.get(key), now_rows.get(key), clock) for key in {**base_rows, **now_rows}]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_ns), change.name, change.phase, change.module)))


def _change(base: OpRow | None, now: OpRow | None, clock: str) -> OpChange:
    either = now or base
    assert either is not None, "a key comes from one of the tables"
    return OpChange(
        *either.key,
        base_ns=base.self_ns(clock) if base else None,
        now_ns=now.self_ns(clock) if now else None,
        base_calls=base.calls if base else None,
        now_calls=now.calls if now else None,
    )
