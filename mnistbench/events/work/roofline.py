"""Operations summed into rows, their FLOPs and bytes, and the roofline limit of a machine.

Williams, Waterman and Patterson, "Roofline", CACM 52 (2009) 65. Times are nanoseconds, sizes are
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from mnistbench.core.operation import OpKey

_Rate = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True)
class Cost:
    """Work of an operation, derived from the shapes of its tensors."""

    flops: int | None  # a multiply-add counts as two; None if there is no formula for the operation
    n_bytes: int  # every tensor read plus every tensor written, ignoring caches
    # Number format of the multiplications: float32 and tf32; empty if it is not known.
    precision: str = ""


def total_cost(costs: Iterable[Cost]) -> Cost:
    """Return the sum of works, with the FLOPs of those that have a formula."""
    listed = list(costs)
    flops = [cost.flops for cost in listed if cost.flops is not None]
    return Cost(sum(flops) if flops else None, sum(cost.n_bytes for cost in listed))


@dataclass(frozen=True)
class Ceilings:
    """Peak rates of a machine.

    They were measured with the threads and the precision of a case, or are of a data sheet.
    """

    flops_per_s: _Rate  # if measured: of a large matrix product or convolution, whichever is faster
    bytes_per_s: _Rate  # if measured: of a large copy, bytes read plus bytes written
    precision: str  # of both: float32, tf32 or bfloat16

    def attainable(self, flops: int, n_bytes: int) -> float:
        """Return the roofline limit in FLOP/s."""
        return (
            min(self.flops_per_s, self.bytes_per_s * flops / n_bytes)
            if n_bytes
            else self.flops_per_s
        )


@dataclass(frozen=True, kw_only=True)
class OperationSum:
    """One or more operations, or time that is no operation's, in one row of a table."""

    key: OpKey
    calls: float
    self_cpu_ns: int
    # With the operations that they called; None for a sum of rows that contain each other.
    total_cpu_ns: int | None
    # Of the kernels, copies and fills that they launched; None in a host table.
    self_device_ns: int | None
    memory_bytes: int = 0
    kernels: int = 0  # launched, copies and fills included
    shapes: tuple[str, ...] = ()
    cost: Cost | None = None  # None: not known
    uncounted: str = ""  # why
    ceilings: Ceilings | None = None  # with which their work is compared; None: with none

    @property
    def self_ns(self) -> int:
        """Device time, or host time in a host table."""
        return self.self_cpu_ns if self.self_device_ns is None else self.self_device_ns

    @property
    def flops(self) -> int | None:
        """FLOPs; None if they are not known."""
        return self.cost.flops if self.cost else None

    @property
    def n_bytes(self) -> int | None:
        """Bytes read and written; None if they are not known."""
        return self.cost.n_bytes if self.cost else None

    @property
    def of_roof(self) -> float | None:
        """Achieved as a share of attainable FLOP/s, or of bytes/s without FLOPs; None if not known.

        A share above 1 means that the data came from a cache: the bandwidth is that of a copy too
        large for one.
        """
        if self.cost is None or self.ceilings is None or self.self_ns <= 0:
            return None
        if self.cost.flops:
            return (
                self.cost.flops
                / (self.self_ns / 1e9)
                / self.ceilings.attainable(self.cost.flops, self.cost.n_bytes)
            )
        return self.cost.n_bytes / (self.self_ns / 1e9) / self.ceilings.bytes_per_s

    @property
    def limit(self) -> str | None:
        """What limits them: memory, or multiplication in a number format; None if not known."""
        if self.cost is None or self.ceilings is None or self.of_roof is None:
            return None
        flops = self.cost.flops
        n_bytes = self.cost.n_bytes
        is_memory_bound = (
            not flops or self.ceilings.attainable(flops, n_bytes) < self.ceilings.flops_per_s
        )
        return "memory" if is_memory_bound else self.ceilings.precision


def total(rows: Iterable[OperationSum], name: str) -> OperationSum:
    """Return the sum of rows as a row of this name."""
    listed = list(rows)
    device_times = [row.self_device_ns for row in listed if row.self_device_ns is not None]
    return OperationSum(
        key=(name, "", ""),
        calls=sum(row.calls for row in listed),
        self_cpu_ns=sum(row.self_cpu_ns for row in listed),
        total_cpu_ns=None,
        self_device_ns=sum(device_times) if device_times else None,
        kernels=sum(row.kernels for row in listed),
    )
