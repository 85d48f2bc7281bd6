"""The result of ``mnistbench scale``: times of training steps for each number of ranks.

This module does not import torch. Times are integer nanoseconds, batch sizes are samples, shares are fractions of 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from mnistbench import __version__
from mnistbench.core.document import Positive
from mnistbench.core.ranks import RankTimes
from mnistbench.core.record import Environment

#: Version of the JSON file.
#:
#: 1: the first.
SCHEMA = 1

STRONG, WEAK = "strong", "weak"


@dataclass(frozen=True)
class Settings:
    """What all launches have in common."""

    scaling: Annotated[str, Literal["strong", "weak"]]  # strong: the batch of all ranks is fixed; weak: that of each rank is
    ranks: tuple[int, ...]  # numbers of ranks, ascending
    batch_size: int  # samples per step: of all ranks if strong, of each rank if weak
    model: str
    device: str  # cpu or cuda, where each rank has a device of its own
    threads: int  # intra-op threads of each rank
    dataset: str
    data_dir: str | None
    step: str  # reference or fast
    dtype: str
    seed: int
    steps: int  # timed steps of each kind

    def global_batch_size(self, ranks: int) -> int:
        """Return the samples of one step of all ranks."""
        return self.batch_size if self.scaling == STRONG else self.batch_size * ranks


@dataclass(frozen=True)
class Launched(RankTimes):
    """Times of one launch."""

    batch_sizes: tuple[Positive, ...]  # samples of each rank in one step

    @property
    def samples(self) -> int:
        """Samples of one step of all ranks."""
        return sum(self.batch_sizes)

    @property
    def samples_per_s(self) -> float:
        """Samples of all ranks per second, at the median step time."""
        return self.samples * 1e9 / self.typical_ns


@dataclass(frozen=True)
class Scaling:
    """The launches of all numbers of ranks, in the order of the settings."""

    settings: Settings
    environment: Environment  # of the ranks
    launches: tuple[Launched, ...]

    def oversubscribed(self, launch: Launched) -> bool:
        """Return whether the ranks have more threads than there are cores, so that they wait for each other.

        A rank on an accelerator has a device of its own.
        """
        return self.settings.device == "cpu" and launch.ranks * self.settings.threads > self.environment.cpu_count

    @property
    def alone(self) -> Launched | None:
        """The launch of one rank, with which the others are compared; None if there is none."""
        return next((launch for launch in self.launches if launch.ranks == 1), None)

    def speedup(self, launch: Launched) -> float | None:
        """Return how many times the samples per second of one rank these ranks reach; None without a launch of one rank.

        With strong scaling, where the batch is fixed, it is T1 / TN.
        """
        return launch.samples_per_s / self.alone.samples_per_s if self.alone else None

    def efficiency(self, launch: Launched) -> float | None:
        """Return the speedup per rank: strong T1 / (N TN), weak rateN / (N rate1).

        None without a launch of one rank, and where the ranks are oversubscribed: it would describe the machine's lack of
        cores, not the training.
        """
        speedup = self.speedup(launch)
        return None if speedup is None or self.oversubscribed(launch) else speedup / launch.ranks


# ---- Data for programs -----------------------------------------------------------------------------------------------

#: Of a table with a row for each number of ranks.
COLUMNS = (
    "ranks", "threads", "batch_sizes", "samples", "samples_per_s", "step_ns", "step_first_quartile_ns",
    "step_third_quartile_ns", "no_sync_step_ns", "exposed_ns", "exposed_share", "speedup", "efficiency", "oversubscribed",
)  # fmt: skip


def row_of(scaling: Scaling, launch: Launched) -> dict[str, Any]:
    """Return the statistics of a launch by name, in the order of the columns."""
    first, third = launch.quartiles_ns
    cells = (
        launch.ranks, scaling.settings.threads, list(launch.batch_sizes), launch.samples, launch.samples_per_s,
        launch.typical_ns, first, third, launch.no_sync_typical_ns, launch.exposed_ns, launch.exposed_share,
        scaling.speedup(launch), scaling.efficiency(launch), scaling.oversubscribed(launch),
    )  # fmt: skip
    return dict(zip(COLUMNS, cells, strict=True))


def csv_rows(scaling: Scaling) -> Iterator[Sequence[Any]]:
    """Yield the cells of ``COLUMNS`` for each number of ranks; the samples of the ranks in one cell."""
    for launch in scaling.launches:
        row = row_of(scaling, launch)
        yield tuple((row | {"batch_sizes": " ".join(map(str, launch.batch_sizes))}).values())


def dumps(scaling: Scaling) -> str:
    """Return the result as the text of a JSON file: settings, environment, statistics and the time of every step."""
    launches = [
        {**row_of(scaling, launch), "steps_ns": launch.step_ns, "no_sync_steps_ns": launch.no_sync_ns}
        for launch in scaling.launches
    ]
    found = {
        "schema": SCHEMA,
        "mnistbench": __version__,
        "settings": asdict(scaling.settings),
        "environment": asdict(scaling.environment),
        "launches": launches,
    }
    return json.dumps(found, indent=1, allow_nan=False) + "\n"
