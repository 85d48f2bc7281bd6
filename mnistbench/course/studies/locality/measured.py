"""The counts and the times of loop nests. Does not import torch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Accesses to elements, and those whose line was not in a cache. Only misses of L1 reach L2."""

    accesses: int
    l1_misses: int
    l2_misses: int

    @property
    def l1_hits(self) -> int:
        """Accesses whose line was in L1."""
        return self.accesses - self.l1_misses

    @property
    def l2_hits(self) -> int:
        """Misses of L1 whose line was in L2."""
        return self.l1_misses - self.l2_misses


@dataclass(frozen=True)
class Measured:
    """One loop nest."""

    order: str
    multiply_adds: int
    arrays: Mapping[str, Counts]  # of one run that begins with empty caches
    rounds_ns: tuple[float, ...] = ()  # time of a multiply-add in each round; empty without numba
    in_l1_ns: float | None = None  # median, of the same innermost loop with its data in L1; None if not measured

    @property
    def counts(self) -> Counts:
        """The sums over all arrays."""
        every = self.arrays.values()
        return Counts(
            sum(one.accesses for one in every), sum(one.l1_misses for one in every), sum(one.l2_misses for one in every)
        )

    @property
    def ns(self) -> float | None:
        """Median time of a multiply-add."""
        return statistics.median(self.rounds_ns) if self.rounds_ns else None


@dataclass(frozen=True)
class Problem:
    """One computation by several loop nests, each on the same arrays."""

    name: str
    text: str  # with its sizes
    n_bytes: int  # of all arrays
    lines: int  # of L1 that the arrays occupy; each nest misses at least as often
    nests: tuple[Measured, ...]
