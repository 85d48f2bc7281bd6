"""Sums over the events of a profile or a trace, which become the rows of an operation table."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from mnistbench.core.operation import OpKey
from mnistbench.core.record import NO_MODULE, OUTSIDE, OpRow, median_ns


@dataclass
class RowSums:
    """Sums over the events of a row, one slot per iteration. All times have one unit."""

    slots: int
    calls: int = 0
    self_cpu: list[float] = field(default_factory=list)
    total_cpu: list[float] = field(default_factory=list)
    self_device: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for times in (self.self_cpu, self.total_cpu, self.self_device):
            times.extend([0] * self.slots)
        self.memory.extend([0] * self.slots)

    def op_row(self, key: OpKey, view: str, unit_ns: int) -> OpRow:
        """Return the row of a table of the view ``host`` or ``device``; ``unit_ns`` is the length of the unit of the times."""

        def whole_ns(times: list[float]) -> tuple[int, ...]:
            return tuple(max(0, round(value * unit_ns)) for value in times)  # a difference of rounded times can be below 0

        name, phase, module = key
        on_device = view == "device"
        return OpRow(
            name=name,
            phase=phase,
            module=module,
            calls=self.calls / self.slots,
            self_cpu_ns=whole_ns(self.self_cpu),
            total_cpu_ns=whole_ns(self.total_cpu),
            self_device_ns=whole_ns(self.self_device) if on_device else (),
            memory_bytes=median_ns(self.memory),
            shapes=tuple(sorted(self.shapes)),
            kernels=tuple(sorted(self.kernels)) if on_device else (),
        )


def subtract_waiting(rows: MutableMapping[OpKey, RowSums], elsewhere: Mapping[tuple[str, int], float]) -> None:
    """Subtract what other threads ran from the time outside operations, because the thread of the iterations waits for them.

    Args:
        rows: the rows of a table.
        elsewhere: (phase of the waiting thread, iteration) -> self time on other threads.
    """
    for (phase, slot), waited in elsewhere.items():
        outside = rows.get((OUTSIDE, phase, NO_MODULE))
        if outside is not None:
            outside.self_cpu[slot] = outside.total_cpu[slot] = max(0, outside.self_cpu[slot] - waited)
