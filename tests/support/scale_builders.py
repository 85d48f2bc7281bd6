"""Results of ``mnistbench scale`` made by hand.

Steps on one, two and four ranks of a machine with two cores.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import environment

from mnistbench.suite.train.scale.result import Launched, Scaling, Settings

SETTINGS = Settings(strong=True, ranks=(1, 2, 4), iterations=4)

MS = 1_000_000


def launched(ranks: int, step_ms: int, no_sync_ms: int = 0, samples: int = 64) -> Launched:
    """Rank 0 is the slowest one of even steps, the last rank of odd ones.

    The others need 1 ms less.
    """
    parts = tuple(samples // ranks + (rank < samples % ranks) for rank in range(ranks))

    def times(ms: int) -> tuple[tuple[int, ...], ...]:
        slowest = [ms * MS + offset * MS // 2 for offset in (-1, 0, 0, 1)]
        return tuple(
            tuple(
                ns - (0 if rank == (0 if step % 2 == 0 else ranks - 1) else MS)
                for step, ns in enumerate(slowest)
            )
            for rank in range(ranks)
        )

    return Launched(
        batch_sizes=parts, step_ns=times(step_ms), no_sync_ns=times(no_sync_ms) if ranks > 1 else ()
    )


def scaling(*launches: Launched, cores: int = 2, weak: bool = False, **changes: Any) -> Scaling:
    """Strong scaling: 80, 50 and 60 ms for one, two and four ranks.

    Four are too many for two cores.
    """
    launches = launches or (launched(1, 80), launched(2, 50, 45), launched(4, 60, 48))
    ranks = tuple(launch.ranks for launch in launches)
    settings = dataclasses.replace(SETTINGS, ranks=ranks, strong=not weak, weak=weak, **changes)
    return Scaling(settings, environment(cpu_count=cores), launches)
