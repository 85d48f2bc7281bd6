"""The change of each quantity, with bounds that hold for all together.

Pure and seeded; does not import torch. See ``docs/gate-statistics.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mnistbench.gate.decide.statistics.permutation import (
    CONFIDENCE,
    Array,
    directed_test,
    simultaneous_bounds,
)
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ADDED, OPERATION
from mnistbench.judging.ratios import change_of


@dataclass(frozen=True)
class Estimate:
    """Change of one quantity as a share (0.05 is 5 % slower), with simultaneous bounds."""

    quantity: Quantity
    change: float
    low: float
    high: float
    p: float  # adjusted over all quantities that were tested together
    trials: int


def as_shown(estimate: Estimate) -> Estimate:
    """Return an estimate for a reader: with a base and a head that give its change.

    The change is that of pairs of iterations, which is tested. The medians of each side over all
    trials give another one if the speed of the machine changes between trials: a row could show
    38.2 -> 40.7 us next to -12.6 %. So the base is its median (of one-time costs their mean), and
    the head is what the change makes of it.

    The change of a one-time cost, which is tested with 5 ms added to both sides, becomes a share
    of the base alone; it is infinite if the base is 0. If the change is a share of the case
    (ADDED), it gives the difference of both times.
    """
    quantity = estimate.quantity
    change = estimate.change
    if not -1 < change < math.inf:
        return estimate
    if quantity.kind == ADDED:
        case_ns = max(quantity.base, quantity.head) / quantity.share if quantity.share else 0.0
        base, head = _with_difference(quantity.base, quantity.head, change * case_ns)
        return replace(estimate, quantity=replace(quantity, base=base, head=head))
    added = quantity.added
    base = quantity.base
    head = (quantity.base + added) * (1 + change) - added
    # The head is known, and the base is what the change was made of.
    if head < 0 or base + added == 0:
        head = max(0.0, quantity.head) if base + added == 0 else 0.0
        base = (head + added) / (1 + change) - added

    def as_share_of_base(share: float) -> float:
        if base == 0:
            return math.inf if share > 0 else 0.0
        return max(-1.0, share * (base + added) / base)

    shown = replace(estimate, quantity=replace(quantity, base=base, head=head))
    if not added:
        return shown
    return replace(
        shown,
        change=as_share_of_base(change),
        low=as_share_of_base(estimate.low),
        high=as_share_of_base(estimate.high),
    )


def _with_difference(base: float, head: float, difference: float) -> tuple[float, float]:
    """Return times of both sides with this difference.

    The time of the base is kept if it fits. A side without the operation has 0.
    """
    if head == 0 or base + difference < 0:
        return max(0.0, -difference), max(0.0, difference)
    return base, base + difference


def is_usable(quantity: Quantity) -> bool:
    """Return whether the quantity has a difference in every trial."""
    return all(map(math.isfinite, quantity.logs))


def confidence_of(shards: int) -> float:
    """Return the confidence of the bounds of one of several shards.

    Those of all shards then hold together with CONFIDENCE, because machines are independent
    (Sidak, Rectangular confidence regions, J. Am. Stat. Assoc. 62 (1967) 626).
    """
    return float(CONFIDENCE ** (1 / shards))


# Those of the first stage are needed again at each checkpoint.
@functools.lru_cache(maxsize=1)
def estimates_of(quantities: tuple[Quantity, ...], seed: int, shards: int) -> Sequence[Estimate]:
    """Return estimates with p-values adjusted over all quantities, and bounds for each family."""
    if not quantities:
        return []
    logs = matrix(quantities)
    slower, faster = (
        directed_test(logs, kinds_of(quantities), np.full(len(quantities), sign), seed)
        for sign in (1.0, -1.0)
    )
    smaller = np.minimum(slower, faster)  # the direction of the change has the smaller one
    p = dict(zip((quantity.key for quantity in quantities), smaller, strict=True))
    return [
        replace(estimate, p=float(p[estimate.quantity.key]))
        for family in _families(quantities)
        for estimate in bounded(family, seed, confidence_of(shards))
    ]


def _families(quantities: Iterable[Quantity]) -> list[list[Quantity]]:
    """Return the families: cases, large operations, small ones, and one-time costs.

    Bounds hold together within a family.

    Large operations vary less and matter more. In one family with dozens of small ones their bounds
    would be twice as wide.
    """
    cases: list[Quantity] = []
    large: list[Quantity] = []
    small: list[Quantity] = []
    once: list[Quantity] = []
    for quantity in quantities:
        if quantity.is_case:
            cases.append(quantity)
        elif quantity.is_once:
            once.append(quantity)
        else:
            (small if quantity.share < LARGE_SHARE else large).append(quantity)
    return [cases, large, small, once]


def bounded(quantities: Sequence[Quantity], seed: int, confidence: float) -> list[Estimate]:
    """Return estimates with simultaneous bounds; quantities of one kind share an s0."""
    if not quantities:
        return []
    logs = matrix(quantities)
    # The result promises the bounds of cases. Those of operations would be wider, and leave twice
    # as many gates undecided.
    skewed = all(quantity.is_case for quantity in quantities)
    low, high = simultaneous_bounds(logs, seed, confidence, kinds_of(quantities), skewed=skewed)
    means = logs.mean(axis=1)
    return [
        Estimate(
            quantity, change_of(mean), change_of(least), change_of(most), 1.0, len(quantity.logs)
        )
        for quantity, mean, least, most in zip(quantities, means, low, high, strict=True)
    ]


def matrix(quantities: Sequence[Quantity]) -> Array:
    """Return the differences: a row for each quantity, a column for each trial."""
    return np.array([quantity.logs for quantity in quantities], dtype=np.float64)


def kinds_of(quantities: Sequence[Quantity]) -> list[str]:
    """Return the kinds that share an s0.

    ADDED has its own: its changes are shares of a case, so they are much smaller.
    """
    return [
        OPERATION if quantity.is_operation and quantity.kind != ADDED else quantity.kind
        for quantity in quantities
    ]


def with_fresh(
    estimates: Sequence[Estimate],
    of_fresh: dict[tuple[str, str, str], Quantity],
    seed: int,
    shards: int,
) -> list[Estimate]:
    """Return estimates whose bounds are from the trials of both stages.

    Quantities that were measured once and those measured again are two groups; each takes half of
    the risk of a wrong bound.
    """
    if not of_fresh:
        return list(estimates)
    risk = (1 - confidence_of(shards)) / 2
    bounds: dict[tuple[str, str, str], Estimate] = {}
    for family in _families(estimate.quantity for estimate in estimates):
        once = [quantity for quantity in family if quantity.key not in of_fresh]
        again = [
            replace(quantity, logs=quantity.logs + of_fresh[quantity.key].logs)
            for quantity in family
            if quantity.key in of_fresh
        ]
        for group in (once, again):
            bounds |= {
                estimate.quantity.key: estimate for estimate in bounded(group, seed, 1 - risk)
            }
    return [replace(bounds[estimate.quantity.key], p=estimate.p) for estimate in estimates]
