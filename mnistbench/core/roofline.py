"""Work of operations and the roofline limit: FLOPs, bytes, and the rates that a machine reaches.

Williams, Waterman and Patterson, "Roofline", CACM 52 (2009) 65. Times are nanoseconds, sizes are bytes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from mnistbench.core.document import Within

_Rate = Annotated[float, Within(sys.float_info.min, sys.float_info.max, "a rate above 0")]


@dataclass(frozen=True)
class Cost:
    """Work of an operation, derived from the shapes of its tensors."""

    flops: int | None  # a multiply-add counts as two; None if there is no formula for the operation
    n_bytes: int  # every tensor read plus every tensor written, ignoring caches


@dataclass(frozen=True)
class Ceilings:
    """Peak rates of a machine: measured with the threads and the precision of a case, or those of a data sheet."""

    flops_per_s: _Rate  # if measured: of a large matrix product or convolution, whichever is faster
    bytes_per_s: _Rate  # if measured: of a large copy, bytes read plus bytes written
    precision: str  # of both: float32, tf32 or bfloat16

    def attainable(self, flops: int, n_bytes: int) -> float:
        """Return the roofline limit in FLOP/s."""
        return min(self.flops_per_s, self.bytes_per_s * flops / n_bytes) if n_bytes else self.flops_per_s


class Point(NamedTuple):
    """One operation of a roofline plot."""

    name: str
    x: float  # FLOP per byte
    y: float  # FLOP/s
    of_roof: float  # y as a share of the attainable FLOP/s


def point(name: str, cost: Cost | None, ns: float, ceilings: Ceilings) -> Point | None:
    """Return the point of an operation; None where its time, FLOPs or bytes are not known."""
    share = of_roof(ceilings, cost, ns)
    if share is None or cost is None or not cost.flops or not cost.n_bytes:
        return None
    return Point(name, cost.flops / cost.n_bytes, cost.flops / (ns / 1e9), share)


def of_roof(ceilings: Ceilings | None, cost: Cost | None, ns: float) -> float | None:
    """Return achieved as a share of attainable FLOP/s, or bytes/s where FLOPs are not counted; None if not known.

    A share above 1 means that the data came from a cache: the bandwidth is that of a copy too large for one.
    """
    if cost is None or ceilings is None or ns <= 0:
        return None
    if cost.flops:
        return cost.flops / (ns / 1e9) / ceilings.attainable(cost.flops, cost.n_bytes)
    return cost.n_bytes / (ns / 1e9) / ceilings.bytes_per_s
