"""Profiled cases -> one row of numbers per operation, as tables show them and as CSV."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mnistbench.core.operation import OpKey, grouped
from mnistbench.core.record import OpRow, OpTable, median_ns
from mnistbench.core.roofline import Cost, of_roof
from mnistbench.profile.result import Profiled


@dataclass(frozen=True)
class Row:
    """One or more operations of a case in one row, per iteration."""

    key: OpKey
    calls: float
    self_cpu_ns: int
    self_device_ns: int
    total_ns: int
    memory_bytes: int
    cost: Cost | None
    shapes: tuple[str, ...]

    def self_ns(self, clock: str) -> int:
        """Return the self time by ``cpu`` or ``device``."""
        return self.self_device_ns if clock == "device" else self.self_cpu_ns

    def value(self, sort: str) -> float:
        """Return the value of a key of ``profile.SORTS``."""
        values = {"self-cpu": self.self_cpu_ns, "self-device": self.self_device_ns, "total": self.total_ns,
                  "memory": abs(self.memory_bytes), "calls": self.calls}  # fmt: skip
        return values[sort]


def rows_of(table: OpTable, costs: Mapping[OpKey, Cost], by: str) -> dict[OpKey, Row]:
    """Return the operations of a table, grouped ``op``, ``module`` or ``op,module``, without the time outside operations."""
    found: dict[OpKey, list[OpRow]] = defaultdict(list)
    for row in table.rows:
        if row.is_operation:
            found[grouped(row.key, by)].append(row)
    return {
        key: Row(
            key=key,
            calls=sum(row.calls for row in rows),
            self_cpu_ns=sum(median_ns(row.self_cpu_ns) for row in rows),
            self_device_ns=sum(median_ns(row.self_device_ns) for row in rows),
            # Operations of a module call each other, so the sum of their totals would count time twice.
            total_ns=sum(median_ns(row.self_cpu_ns if by == "module" else row.total_cpu_ns) for row in rows),
            memory_bytes=sum(row.memory_bytes for row in rows),
            cost=_sum(costs[row.key] for row in rows if row.key in costs),
            shapes=tuple(sorted({shape for row in rows for shape in row.shapes})),
        )
        for key, rows in found.items()
    }


def _sum(costs: Iterable[Cost]) -> Cost | None:
    listed = list(costs)
    flops = [cost.flops for cost in listed if cost.flops is not None]
    return Cost(sum(flops) if flops else None, sum(cost.n_bytes for cost in listed)) if listed else None


def worked_in(case: Profiled, table: OpTable) -> bool:
    """Whether the times of a table are those of the work itself. The host of an accelerator only launches it."""
    return table.view == "device" or case.params.device == "cpu"


CSV_COLUMNS = (
    "workload", "phase_of_case", "batch_size", "device", "dtype", "threads", "dataset", "view", "operation", "phase", "module",
    "calls", "self_cpu_ns", "self_device_ns", "total_cpu_ns", "memory_bytes", "flops", "bytes", "of_roof",
)  # fmt: skip


def csv_rows(cases: Iterable[Profiled], by: str) -> Iterator[tuple[object, ...]]:
    """Yield every operation of every case."""
    for case in cases:
        params = case.params
        for table in case.tables:
            for row in sorted(rows_of(table, case.costs, by).values(), key=lambda row: -row.self_ns(table.clock)):
                share = of_roof(case.ceilings, row.cost, row.self_ns(table.clock)) if worked_in(case, table) else None
                yield (
                    params.workload, params.phase, params.batch_size, params.device, params.dtype, params.threads,
                    params.dataset, table.view, *row.key, row.calls, row.self_cpu_ns,
                    row.self_device_ns if table.view == "device" else None, row.total_ns, row.memory_bytes,
                    row.cost.flops if row.cost else None, row.cost.n_bytes if row.cost else None,
                    None if share is None else round(share, 4),
                )  # fmt: skip
