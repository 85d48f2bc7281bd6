"""The rank of this process among those that a launcher such as torchrun started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mnistbench.core.errors import UsageError


@dataclass(frozen=True)
class Rank:
    """Rank and number of processes, of all nodes and of this one.

    The defaults are those of a process by itself.
    """

    rank: int = 0
    world_size: int = 1  # number of ranks
    local_rank: int = 0  # on this node
    local_world_size: int = 1  # number of ranks of this node
    restarts: int = 0  # how often the launcher started all ranks again


def own_rank(environ: Mapping[str, str]) -> Rank:
    """Read the variables of torchrun (https://docs.pytorch.org/docs/stable/elastic/run.html).

    Returns the defaults where RANK and WORLD_SIZE are not set.
    """
    if not (environ.get("RANK") and environ.get("WORLD_SIZE")):
        return Rank()

    def number(name: str, otherwise: str | None = None) -> int:
        text = environ.get(name) or otherwise
        if text is None or not text.isdecimal():
            problem = "is not set" if text is None else f"is {text!r}"
            raise UsageError(
                f"RANK is set, but {name} {problem}: start the ranks with torchrun, which sets all "
                "variables"
            )
        return int(text)

    own = Rank(
        rank=number("RANK"),
        world_size=number("WORLD_SIZE"),
        local_rank=number("LOCAL_RANK"),
        local_world_size=number("LOCAL_WORLD_SIZE"),
        restarts=number("TORCHELASTIC_RESTART_COUNT", "0"),
    )
    if own.world_size > 1:
        number("MASTER_PORT")
        if not environ.get("MASTER_ADDR"):
            raise UsageError(
                "RANK is set, but MASTER_ADDR is not: start the ranks with torchrun, which sets "
                "all variables"
            )
    return own
