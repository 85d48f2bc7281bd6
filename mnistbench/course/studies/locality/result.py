"""What ``mnistbench study locality`` measures, and its result.

With the order of loop nests by misses and by time.

Imports neither torch nor numba.
"""

from __future__ import annotations

import itertools
import math
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
        found = of_this_machine()
        return replace(found, l1=self.l1 or found.l1, l2=self.l2 or found.l2)


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


# ---- The order by misses and the order by time ---------------------------------------------------

#: Misses or times that differ by at most this share count as the same.
SAME = 0.05

#: Of two nests, one is faster if at most this share of the rounds says the opposite.
CONTRARY = 0.1

#: A number is a cause if it explains at least this share of the difference in time.
EXPLAINS = 0.5

#: Cause of a disagreement: the instructions of the loops.
INSTRUCTIONS = "instructions"
#: Cause of a disagreement: misses of the second cache.
L2_MISSES = "l2_misses"
#: No cause of a disagreement is known.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Disagreement:
    """Two nests, of which the slower one does not have more L1 misses."""

    slower: NestResult
    faster: NestResult

    @property
    def fewer(self) -> bool:
        """Whether the slower one has fewer L1 misses, not as many."""
        return has_fewer(self.slower.counts.l1_misses, self.faster.counts.l1_misses)

    @property
    def in_l1(self) -> float | None:
        """The difference in time with all data in L1, as a share of the difference.

        None if it was not measured.
        """
        slow = self.slower
        fast = self.faster
        if slow.ns is None or fast.ns is None or slow.in_l1_ns is None or fast.in_l1_ns is None:
            return None
        return (slow.in_l1_ns - fast.in_l1_ns) / (slow.ns - fast.ns)

    @property
    def cause(self) -> str:
        """The instructions, if they make most of the difference without misses.

        Else more L2 misses; else unknown.
        """
        if self.in_l1 is not None and self.in_l1 >= EXPLAINS:
            return INSTRUCTIONS
        return (
            L2_MISSES
            if has_fewer(self.faster.counts.l2_misses, self.slower.counts.l2_misses)
            else UNKNOWN
        )


@dataclass(frozen=True)
class Agreement:
    """How many pairs of nests are in the same order by L1 misses and by time."""

    same: int
    opposite: int
    only_times_differ: int
    only_misses_differ: int
    neither_differs: int

    @property
    def kendall_tau(self) -> float | None:
        """Kendall's tau-b, with what counts as the same as a tie.

        1 for the same order, -1 for the opposite one.

        None if no pair differs in misses, or none in time. Source: Kendall, "The treatment of ties
        in ranking problems", Biometrika 33 (1945) 239.
        """
        differ = self.same + self.opposite
        scale = math.sqrt((differ + self.only_times_differ) * (differ + self.only_misses_differ))
        return (self.same - self.opposite) / scale if scale else None


def has_fewer(one: float, other: float) -> bool:
    """Whether a number is smaller by more than ``SAME``."""
    return one * (1 + SAME) < other


def is_faster(one: NestResult, other: NestResult) -> bool:
    """Whether the median of a nest is smaller by more than ``SAME``.

    And nearly all rounds say the same.
    """
    if one.ns is None or other.ns is None or not has_fewer(one.ns, other.ns):
        return False
    contrary = sum(mine >= its for mine, its in zip(one.rounds_ns, other.rounds_ns, strict=True))
    return contrary <= CONTRARY * len(one.rounds_ns)


def disagreements(nests: Sequence[NestResult]) -> list[Disagreement]:
    """Return the pairs whose slower nest does not have more L1 misses than the faster one."""
    return [
        Disagreement(slower, faster)
        for slower, faster in itertools.permutations(nests, 2)
        if is_faster(faster, slower)
        and not has_fewer(faster.counts.l1_misses, slower.counts.l1_misses)
    ]


def agreement(nests: Sequence[NestResult]) -> Agreement:
    """Compare all pairs of nests that have times."""
    # Whether the first has more misses (1), fewer (-1) or as many (0), and the same of its time.
    pairs = []
    for one, other in itertools.combinations([nest for nest in nests if nest.ns is not None], 2):
        mine = one.counts.l1_misses
        its = other.counts.l1_misses
        pairs.append(
            (
                has_fewer(its, mine) - has_fewer(mine, its),
                is_faster(other, one) - is_faster(one, other),
            )
        )
    return Agreement(
        same=sum(misses * times > 0 for misses, times in pairs),
        opposite=sum(misses * times < 0 for misses, times in pairs),
        only_times_differ=sum(misses == 0 != times for misses, times in pairs),
        only_misses_differ=sum(times == 0 != misses for misses, times in pairs),
        neither_differs=pairs.count((0, 0)),
    )


def rank_by_misses(nest: NestResult, nests: Sequence[NestResult]) -> int:
    """Return 1 and how many nests have fewer L1 misses."""
    return 1 + sum(has_fewer(other.counts.l1_misses, nest.counts.l1_misses) for other in nests)


def rank_by_time(nest: NestResult, nests: Sequence[NestResult]) -> int | None:
    """Return 1 and how many nests are faster; None without a time."""
    return None if nest.ns is None else 1 + sum(is_faster(other, nest) for other in nests)
