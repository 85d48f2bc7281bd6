"""The rank of this process among those that a launcher such as torchrun started, and the times of training steps on ranks.

Times are integer nanoseconds, shares are fractions of 1.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mnistbench.core.document import Nanoseconds
from mnistbench.core.errors import UsageError
from mnistbench.core.record import median_ns, quartiles_ns

# ---- Rank of this process --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rank:
    """Rank and number of processes, of all nodes and of this one. The defaults are those of a process by itself."""

    rank: int = 0
    world_size: int = 1  # number of ranks
    local_rank: int = 0  # on this node
    local_world_size: int = 1  # number of ranks of this node
    restarts: int = 0  # how often the launcher started all ranks again


def own_rank(environ: Mapping[str, str]) -> Rank:
    """Read the variables of torchrun (https://docs.pytorch.org/docs/stable/elastic/run.html).

    Returns the defaults where RANK and WORLD_SIZE are not set.

    Raises:
        UsageError: a variable is missing or not a number.
    """
    if not (environ.get("RANK") and environ.get("WORLD_SIZE")):
        return Rank()

    def number(name: str, otherwise: str | None = None) -> int:
        text = environ.get(name) or otherwise
        if text is None or not text.isdecimal():
            given = "is not set" if text is None else f"is {text!r}"
            raise UsageError(f"RANK is set, but {name} {given}: start the ranks with torchrun, which sets all variables")
        return int(text)

    found = Rank(
        rank=number("RANK"),
        world_size=number("WORLD_SIZE"),
        local_rank=number("LOCAL_RANK"),
        local_world_size=number("LOCAL_WORLD_SIZE"),
        restarts=number("TORCHELASTIC_RESTART_COUNT", "0"),
    )
    if found.world_size > 1:
        number("MASTER_PORT")
        if not environ.get("MASTER_ADDR"):
            raise UsageError("RANK is set, but MASTER_ADDR is not: start the ranks with torchrun, which sets all variables")
    return found


# ---- Times -----------------------------------------------------------------------------------------------------------


#: A row for each rank, in it the wall time of each step.
TimesOfRanks = tuple[tuple[Nanoseconds, ...], ...]


@dataclass(frozen=True)
class RankTimes:
    """Raw times: a row for each rank, in it each step. All ranks began a step together."""

    step_ns: TimesOfRanks
    no_sync_ns: TimesOfRanks  # of steps without communication; empty for one rank

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.step_ns)

    @functools.cached_property
    def slowest_ns(self) -> tuple[int, ...]:
        """The time of each step on its slowest rank."""
        return _slowest(self.step_ns)

    @property
    def typical_ns(self) -> int:
        """Median over the steps of the slowest rank's time."""
        return median_ns(self.slowest_ns)

    @property
    def quartiles_ns(self) -> tuple[int, int]:
        """First and third quartile over the steps of the slowest rank's time."""
        return quartiles_ns(self.slowest_ns)

    @property
    def no_sync_typical_ns(self) -> int | None:
        """Median time of a step without communication on its slowest rank; None for one rank."""
        return median_ns(_slowest(self.no_sync_ns)) if self.no_sync_ns else None

    @property
    def exposed_ns(self) -> int | None:
        """Exposed communication: what a step takes longer than one without communication; None for one rank.

        Communication that overlaps with computation is not part of it. Noise can make it negative.
        """
        without = self.no_sync_typical_ns
        return None if without is None else self.typical_ns - without

    @property
    def exposed_share(self) -> float | None:
        """Exposed communication as a share of the step; None for one rank."""
        return None if self.exposed_ns is None else self.exposed_ns / self.typical_ns

    @property
    def of_each_rank_ns(self) -> tuple[int, ...]:
        """Median step time of each rank."""
        return tuple(median_ns(times) for times in self.step_ns)


def _slowest(times: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the largest time of each step. ``times`` has a row for each rank."""
    return tuple(max(step) for step in zip(*times, strict=True))
