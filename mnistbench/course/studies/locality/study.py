"""What ``mnistbench study locality`` measures, and its result.

With the ranks of loop nests by misses and by time.

Imports neither torch nor numba.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.options import one_of, option, output, output_format, several, some_of, whole
from mnistbench.course.studies.convolution.sizes import GRID
from mnistbench.course.studies.locality.caches import Cache, Caches, cache_of, of_this_machine
from mnistbench.course.studies.locality.nests import CONVOLUTIONS, ORDERS, PRODUCTS

#: Largest side of a matrix or a tile.
_LARGEST = 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of the command."""

    sizes: tuple[int, ...] | None = option(
        "--size",
        several(whole(2, _LARGEST)),
        None,
        "comma list of sides of square matrices (default: 120,128; without numba: 112)",
        "N",
    )
    convolution: str | None = option(
        "--convolution",
        one_of(*GRID),
        None,
        "chapter, conv1-b1, conv2-b16, ... (default: conv2-b1; without numba: conv1-b1)",
        "NAME",
    )
    orders: tuple[str, ...] = option(
        "--order", some_of(*ORDERS), ",".join(ORDERS), "comma list of loop orders", "NAMES"
    )
    tile: int | None = option(
        "--tile",
        whole(1, _LARGEST),
        None,
        "side of a tile (default: the largest of whole lines of which L1 holds three)",
        "N",
    )
    l1: Cache | None = option(
        "--l1",
        cache_of("--l1"),
        None,
        "first cache, such as 32K:64:8 (default: that of this machine)",
        "SIZE:LINE:WAYS",
    )
    l2: Cache | None = option(
        "--l2",
        cache_of("--l2"),
        None,
        "second cache, such as 1M:64:16 (default: that of this machine)",
        "SIZE:LINE:WAYS",
    )
    format: str = output_format(["csv"])
    output: Path | None = output()

    def __post_init__(self) -> None:
        users = {
            "size": (self.sizes, PRODUCTS),
            "tile": (self.tile, ("tiled",)),
            "convolution": (self.convolution, CONVOLUTIONS),
        }
        for name, (value, using) in users.items():
            if value is not None and not set(using) & set(self.orders):
                raise UsageError(
                    f"--{name} is used by none of the orders; add {' or '.join(using)} to --order"
                )

    @property
    def caches(self) -> Caches:
        """The caches to simulate."""
        own = of_this_machine()
        return replace(own, l1=self.l1 or own.l1, l2=self.l2 or own.l2)


@dataclass(frozen=True)
class CacheCounts:
    """Accesses to elements, and those whose line was not in a cache. Only misses of L1 reach L2."""

    accesses: int
    l1_misses: int
    l2_misses: int


@dataclass(frozen=True)
class NestResult:
    """One loop nest."""

    order: str
    multiply_adds: int
    arrays: Mapping[str, CacheCounts]  # of one run that begins with empty caches
    rounds_ns: tuple[float, ...] = ()  # time of a multiply-add in each round; empty without numba
    # Median, of the same innermost loop with its data in L1; None if not measured.
    in_l1_ns: float | None = None

    @property
    def counts(self) -> CacheCounts:
        """The sums over all arrays."""
        return CacheCounts(*map(sum, zip(*map(astuple, self.arrays.values()), strict=True)))

    @property
    def l1_misses(self) -> float:
        """L1 misses for each multiply-add."""
        return self.counts.l1_misses / self.multiply_adds

    @property
    def l2_misses(self) -> float:
        """L2 misses for each multiply-add."""
        return self.counts.l2_misses / self.multiply_adds

    @property
    def ns(self) -> float | None:
        """Median time of a multiply-add."""
        return statistics.median(self.rounds_ns) if self.rounds_ns else None


@dataclass(frozen=True)
class Computation:
    """One computation by several loop nests, each on the same arrays."""

    name: str
    text: str  # with its sizes
    n_bytes: int  # of all arrays
    lines: int  # of L1 that the arrays occupy; each nest misses at least as often
    nests: tuple[NestResult, ...]


@dataclass(frozen=True)
class LocalityStudy:
    """All computations, and the caches that were simulated."""

    caches: Caches
    numba: str  # version; empty if it is not installed, and then there are no times
    computations: tuple[Computation, ...]


# ---- Ranks by misses and by time -----------------------------------------------------------------

#: Misses or times that differ by at most this share count as the same.
SAME = 0.05

#: Of two nests, one is faster if at most this share of the rounds says the opposite.
CONTRARY = 0.1


def has_fewer(few: float, many: float) -> bool:
    """Whether a number is smaller by more than ``SAME``."""
    return few * (1 + SAME) < many


def is_faster(fast: NestResult, slow: NestResult) -> bool:
    """Whether the median of a nest is smaller by more than ``SAME``.

    And nearly all rounds say the same.
    """
    if fast.ns is None or slow.ns is None or not has_fewer(fast.ns, slow.ns):
        return False
    rounds = zip(fast.rounds_ns, slow.rounds_ns, strict=True)
    contrary = sum(fast_ns >= slow_ns for fast_ns, slow_ns in rounds)
    return contrary <= CONTRARY * len(fast.rounds_ns)


def rank_by_misses(nest: NestResult, nests: Sequence[NestResult]) -> int:
    """Return 1 and how many nests have fewer L1 misses."""
    fewer = [rival for rival in nests if has_fewer(rival.counts.l1_misses, nest.counts.l1_misses)]
    return 1 + len(fewer)


def rank_by_time(nest: NestResult, nests: Sequence[NestResult]) -> int | None:
    """Return 1 and how many nests are faster; None without a time."""
    return None if nest.ns is None else 1 + sum(is_faster(rival, nest) for rival in nests)


def slower_than_its_misses(nest: NestResult, nests: Sequence[NestResult]) -> bool:
    """Whether more nests are faster than have fewer L1 misses; False without a time."""
    rank = rank_by_time(nest, nests)
    return rank is not None and rank > rank_by_misses(nest, nests)
