"""A trace -> one row of numbers per operation, as tables show them and as CSV."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mnistbench.core.operation import OpKey, grouped
from mnistbench.traces.analysis import Analysis


@dataclass(frozen=True)
class Row:
    """One or more operations, or time that is no operation's, in all steps. Times are nanoseconds."""

    key: OpKey
    calls: int
    host_self_ns: int
    host_total_ns: int  # with the operations that it called
    device_ns: int | None  # of the kernels, copies and fills that it launched; None without an accelerator
    kernels: int  # their number

    @property
    def size(self) -> int:
        """The time that tables sort by: device time, or host time without an accelerator."""
        return self.host_self_ns if self.device_ns is None else self.device_ns


def rows_of(trace: Analysis, by: str) -> list[Row]:
    """Return the rows of a trace, the longest first, grouped ``op``, ``module`` or ``op,module``."""
    numbers: dict[OpKey, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for row in trace.host.rows:
        of_key = numbers[grouped(row.key, by)]
        of_key[0] += round(row.calls * len(trace.steps))
        of_key[1] += sum(row.self_cpu_ns)
        # Operations of a module call each other, so the sum of their totals would count time twice.
        of_key[2] += sum(row.self_cpu_ns if by == "module" else row.total_cpu_ns)
    for row in trace.device.rows if trace.device else ():
        numbers[grouped(row.key, by)][3] += sum(row.self_device_ns)
    for key, count in trace.kernel_counts().items():
        numbers[grouped(key, by)][4] += count
    found = [
        Row(key, calls, own, total, device if trace.device else None, kernels)
        for key, (calls, own, total, device, kernels) in numbers.items()
    ]
    return sorted(found, key=lambda row: (-row.size, -row.host_self_ns, row.key))


CSV_COLUMNS = ("operation", "phase", "module", "calls", "host_self_ns", "host_total_ns", "device_self_ns", "kernels")


def csv_columns(traces: Sequence[Analysis]) -> tuple[str, ...]:
    """Return the columns of :func:`csv_rows`: the file first if there are several."""
    return (*(("trace",) if len(traces) > 1 else ()), *CSV_COLUMNS)


def csv_rows(traces: Sequence[Analysis], by: str) -> Iterator[tuple[object, ...]]:
    """Yield the rows of every trace: sums over all of its steps."""
    for trace in traces:
        for row in rows_of(trace, by):
            cells = (*row.key, row.calls, row.host_self_ns, row.host_total_ns, row.device_ns, row.kernels)
            yield (trace.source, *cells) if len(traces) > 1 else cells


def summed(rows: Iterable[Row]) -> Row:
    """Return the sum of rows."""
    listed = list(rows)
    of_device = [row.device_ns for row in listed if row.device_ns is not None]
    return Row(
        ("", "", ""),
        sum(row.calls for row in listed),
        sum(row.host_self_ns for row in listed),
        sum(row.host_total_ns for row in listed),
        sum(of_device) if of_device else None,
        sum(row.kernels for row in listed),
    )
