"""Compare the order of loop nests by misses with that by time. Does not import torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnistbench.course.studies.locality.measured import Measured

#: Misses or times that differ by at most this share count as the same.
SAME = 0.05

#: Of two nests, one is faster if at most this share of the rounds says the opposite.
CONTRARY = 0.1

#: A number is a cause if it explains at least this share of the difference in time.
EXPLAINS = 0.5

#: Causes of a disagreement.
INSTRUCTIONS, L2_MISSES, UNKNOWN = "instructions", "l2_misses", "unknown"


@dataclass(frozen=True)
class Disagreement:
    """Two nests, of which the slower one does not have more L1 misses."""

    slower: Measured
    faster: Measured

    @property
    def fewer(self) -> bool:
        """Whether the slower one has fewer L1 misses, not as many."""
        return has_fewer(self.slower.counts.l1_misses, self.faster.counts.l1_misses)

    @property
    def in_l1(self) -> float | None:
        """The difference in time with all data in L1, as a share of the difference; None if it was not measured."""
        slow, fast = self.slower, self.faster
        if slow.ns is None or fast.ns is None or slow.in_l1_ns is None or fast.in_l1_ns is None:
            return None
        return (slow.in_l1_ns - fast.in_l1_ns) / (slow.ns - fast.ns)

    @property
    def cause(self) -> str:
        """The instructions, if they make most of the difference without misses; else more L2 misses; else unknown."""
        if self.in_l1 is not None and self.in_l1 >= EXPLAINS:
            return INSTRUCTIONS
        return L2_MISSES if has_fewer(self.faster.counts.l2_misses, self.slower.counts.l2_misses) else UNKNOWN


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
        """Kendall's tau-b, with what counts as the same as a tie: 1 for the same order, -1 for the opposite one.

        None if no pair differs in misses, or none in time. Source: Kendall, "The treatment of ties in ranking problems",
        Biometrika 33 (1945) 239.
        """
        differ = self.same + self.opposite
        scale = math.sqrt((differ + self.only_times_differ) * (differ + self.only_misses_differ))
        return (self.same - self.opposite) / scale if scale else None


def has_fewer(one: float, other: float) -> bool:
    """Whether a number is smaller by more than ``SAME``."""
    return one * (1 + SAME) < other


def is_faster(one: Measured, other: Measured) -> bool:
    """Whether the median of a nest is smaller by more than ``SAME``, and nearly all rounds say the same."""
    if one.ns is None or other.ns is None or not has_fewer(one.ns, other.ns):
        return False
    contrary = sum(mine >= its for mine, its in zip(one.rounds_ns, other.rounds_ns, strict=True))
    return contrary <= CONTRARY * len(one.rounds_ns)


def disagreements(nests: Sequence[Measured]) -> list[Disagreement]:
    """Return the pairs whose slower nest does not have more L1 misses than the faster one."""
    return [
        Disagreement(slower, faster)
        for slower, faster in itertools.permutations(nests, 2)
        if is_faster(faster, slower) and not has_fewer(faster.counts.l1_misses, slower.counts.l1_misses)
    ]


def agreement(nests: Sequence[Measured]) -> Agreement:
    """Compare all pairs of nests that have times."""
    pairs = list(_signs([nest for nest in nests if nest.ns is not None]))
    return Agreement(
        same=sum(misses * times > 0 for misses, times in pairs),
        opposite=sum(misses * times < 0 for misses, times in pairs),
        only_times_differ=sum(misses == 0 != times for misses, times in pairs),
        only_misses_differ=sum(times == 0 != misses for misses, times in pairs),
        neither_differs=pairs.count((0, 0)),
    )


def _signs(nests: Sequence[Measured]) -> Iterator[tuple[int, int]]:
    """Yield for each pair whether the first has more misses (1), fewer (-1) or as many (0), and the same of its time."""
    for one, other in itertools.combinations(nests, 2):
        mine, its = one.counts.l1_misses, other.counts.l1_misses
        yield has_fewer(its, mine) - has_fewer(mine, its), is_faster(other, one) - is_faster(one, other)


def rank_by_misses(nest: Measured, nests: Sequence[Measured]) -> int:
    """Return 1 and how many nests have fewer L1 misses."""
    return 1 + sum(has_fewer(other.counts.l1_misses, nest.counts.l1_misses) for other in nests)


def rank_by_time(nest: Measured, nests: Sequence[Measured]) -> int | None:
    """Return 1 and how many nests are faster; None without a time."""
    return None if nest.ns is None else 1 + sum(is_faster(other, nest) for other in nests)
