"""Which operations are judged by themselves; the others of a case are judged together."""

from __future__ import annotations

#: Smallest operation that is judged by itself, as a share of its case, unless a user gives another.
MIN_SHARE = 0.02

#: Shortest operation that is judged by itself, as a multiple of the profiler's overhead on its
#: calls.
MIN_COST = 20

#: An operation is large from this share of its case on. A pass rules out a slowdown of every large
#: operation. In the gate, new operations may add this share times ``--op-threshold`` to their case.
LARGE_SHARE = 0.10


def is_judged_alone(
    ns: float,
    whole_ns: float,
    *,
    least_share: float = MIN_SHARE,
    calls: float = 0,
    profiler_ns: int = 0,
) -> bool:
    """Return whether an operation is judged by itself.

    A saved run is judged by the operations that matter in either run: one that grows from a small
    time is a regression. The gate gives the sums over both sides, and no overhead: its permutation
    test requires groups that stay the same when the sides are exchanged, and both of its sides have
    the overhead.

    Args:
        ns: self time of the operation.
        whole_ns: time of its case.
        least_share: smallest share of the case.
        calls: calls of the operation in that time.
        profiler_ns: overhead of the profiler per call.
    """
    return ns >= least_share * whole_ns and ns >= MIN_COST * profiler_ns * calls
