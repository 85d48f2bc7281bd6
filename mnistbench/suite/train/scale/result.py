"""The settings and the result of ``mnistbench scale``.

Times of training steps for each number of ranks.

This module does not import torch. Times are integer nanoseconds, batch sizes are samples, shares
are fractions of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.core.options import one_of, option, several, switch, whole
from mnistbench.core.params import FAST
from mnistbench.core.reading import Positive
from mnistbench.core.record import Environment
from mnistbench.suite import case_options
from mnistbench.suite.profile.result import RankTimes

#: The largest number of ranks on one machine.
_MAX_RANKS = 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all launches have in common."""

    ranks: tuple[int, ...] = option(
        "--ranks",
        several(whole(1, _MAX_RANKS)),
        "1,2",
        "comma list of numbers of ranks",
        "NUMBERS",
    )
    strong: bool = switch(
        "--strong", "strong scaling: the batch of all ranks stays the same (--batch-size)"
    )
    weak: bool = switch(
        "--weak", "weak scaling: the batch of each rank stays the same (--batch-size-per-rank)"
    )
    batch_size: int = case_options.batch_size("with --strong: samples per step, of all ranks")
    batch_size_per_rank: int = case_options.batch_size_per_rank(
        "with --weak: samples per step, of each rank", "64"
    )
    model: str = case_options.model()
    device: str = case_options.device(
        "cpu, or cuda: a GPU for each rank", kind=one_of("cpu", "cuda")
    )
    threads: int = case_options.threads(text="intra-op threads of torch on the CPU, of each rank")
    dataset: str = case_options.dataset(text="digits or mnist")
    data_dir: Path | str | None = case_options.data_dir()
    step: str = case_options.step("reference, or fast, on cpu")
    dtype: str = case_options.dtype()
    seed: int = case_options.seed("seed of weights, batches and dropout")
    iterations: int = options.iterations(
        text="timed steps with and without communication", default="50"
    )
    format: str = options.output_format(("csv",))
    output: Path | None = options.output()
    given_fields: frozenset[str] = frozenset()  # fields whose options were given

    def __post_init__(self) -> None:
        if self.strong == self.weak:
            fault = "exclude each other" if self.strong else "are both missing"
            raise UsageError(f"--strong and --weak {fault}; give one of them")
        unused, size = (
            ("--batch-size-per-rank", "--batch-size")
            if self.strong
            else ("--batch-size", "--batch-size-per-rank")
        )
        if unused.removeprefix("--").replace("-", "_") in self.given_fields:
            raise UsageError(f"{unused}: cannot be used with --{self.scaling}; give {size}")
        if self.strong and self.batch_size < max(self.ranks):
            most = max(self.ranks)
            raise UsageError(
                f"--batch-size: {self.batch_size} has no sample for each of {most} ranks; give "
                f"{most} at least"
            )
        if self.step == FAST and self.device != "cpu":
            raise UsageError(
                f"--step: the fast step is for the CPU, not for {self.device}; give --step "
                "reference"
            )

    @property
    def scaling(self) -> str:
        """The kind of scaling: strong or weak."""
        return "strong" if self.strong else "weak"

    def global_batch_size(self, ranks: int) -> int:
        """Return the samples of one step of all ranks."""
        return self.batch_size if self.strong else self.batch_size_per_rank * ranks


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
    """The launches of all numbers of ranks, in ascending order."""

    settings: Settings
    environment: Environment  # of the ranks
    launches: tuple[Launched, ...]

    def oversubscribed(self, launch: Launched) -> bool:
        """Return whether the ranks have more threads than there are cores.

        They then wait for each other.

        A rank on an accelerator has a device of its own.
        """
        return (
            self.settings.device == "cpu"
            and launch.ranks * self.settings.threads > self.environment.cpu_count
        )

    @property
    def alone(self) -> Launched | None:
        """The launch of one rank, with which the others are compared; None if there is none."""
        return next((launch for launch in self.launches if launch.ranks == 1), None)

    def speedup(self, launch: Launched) -> float | None:
        """Return how many times the samples per second of one rank these ranks reach.

        The result is None without a launch of one rank.

        With strong scaling, where the batch is fixed, it is T1 / TN.
        """
        return launch.samples_per_s / self.alone.samples_per_s if self.alone else None

    def efficiency(self, launch: Launched) -> float | None:
        """Return the speedup per rank: strong T1 / (N TN), weak rateN / (N rate1).

        None without a launch of one rank, and where the ranks are oversubscribed: it would describe
        the machine's lack of cores, not the training.
        """
        speedup = self.speedup(launch)
        return None if speedup is None or self.oversubscribed(launch) else speedup / launch.ranks
