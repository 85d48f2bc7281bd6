"""What ``mnistbench profile`` measures.

Operations with their times, FLOPs and bytes, and the ceilings of the machine.

This module does not import torch, so that results can be drawn anywhere. Times are integer
nanoseconds, sizes are bytes.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mnistbench.core import options
from mnistbench.core.operation import OpKey
from mnistbench.core.options import one_of, option, share, switch
from mnistbench.core.params import Params
from mnistbench.core.reading import Nanoseconds, read
from mnistbench.core.record import OpTable, median_ns, quartiles_ns
from mnistbench.events.work.roofline import Ceilings, Cost
from mnistbench.suite import case_options

#: Sort keys, and the titles of their columns.
SORTS = {
    "self-cpu": "self CPU time",
    "self-device": "self device time",
    "total": "total CPU time",
    "memory": "memory allocated less freed",
    "calls": "calls",
}


class OperationCosts(dict[OpKey, Cost]):
    """The work of each operation of one iteration."""

    @classmethod
    def from_saved(cls, saved: object) -> OperationCosts:
        """Read the result of :meth:`to_json`."""
        rows = read(saved, tuple[tuple[str, str, str, int | None, int], ...])
        return cls(
            ((name, phase, module), Cost(flops, n_bytes))
            for name, phase, module, flops, n_bytes in rows
        )

    def to_json(self) -> list[tuple[str, str, str, int | None, int]]:
        """Return the costs as they are saved: operation, phase, module, FLOPs and bytes."""
        return [(*key, cost.flops, cost.n_bytes) for key, cost in self.items()]


def _trace_file(text: str) -> Path:
    if not text.endswith((".json", ".json.gz")):
        raise ValueError("does not end in .json or .json.gz; name such a file")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options: what is profiled, and what the report shows."""

    model: str = case_options.model()
    batch_sizes: tuple[int, ...] = case_options.batch_sizes(
        text="comma list; samples of all ranks under torchrun (default: 1,16,64)", default=None
    )
    devices: tuple[str, ...] = case_options.devices()
    phases: tuple[str, ...] = case_options.phases("step")
    dtype: str = case_options.dtype()
    threads: int = case_options.threads()
    dataset: str = case_options.dataset()
    data_dir: Path | None = case_options.data_dir()
    seed: int = case_options.seed("seed of weights, batch and dropout")
    iterations: int = options.iterations()
    top: int = options.top()
    min_share: float = option(
        "--min-share",
        share(zero=True),
        "1%",
        "hide operations below this share of their case",
        "SHARE",
    )
    sort: str | None = option(
        "--sort",
        one_of(*SORTS),
        None,
        f"{', '.join(list(SORTS)[:-1])} or {list(SORTS)[-1]} (default: self time)",
        "KEY",
    )
    by: str = options.by()
    shapes: bool = switch("--shapes", "show input shapes")
    memory: bool = switch("--memory", "show allocated minus freed memory")
    cold: bool = switch("--cold", "also measure first iterations, each in a new process")
    trace: Path | None = option(
        "--trace",
        _trace_file,
        None,
        "write a trace for https://ui.perfetto.dev, such as trace.json.gz",
        "FILE",
    )
    format: str = options.output_format(("csv",))
    output: Path | None = options.output()


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
        """Exposed communication: what a step takes longer than one without communication.

        It is None for one rank.

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


@dataclass(frozen=True)
class Layer:
    """One module without submodules, in the forward pass of one sample."""

    name: str
    kind: str  # class name: Conv2d
    output_shape: tuple[int, ...]  # without the batch dimension
    parameters: int
    parameter_bytes: int
    flops: int | None  # None if there is no formula for the module
    output_bytes: int


@dataclass(frozen=True)
class ColdCall:
    """One cold iteration, profiled."""

    trained: bool  # with trained weights
    first: bool  # first iteration of its process
    table: OpTable

    @property
    def ns(self) -> int:
        """Wall time in nanoseconds, profiler overhead included."""
        return median_ns(self.table.iteration_ns)


@dataclass(frozen=True)
class Profiled:
    """One case, profiled."""

    params: Params
    parameter_count: int
    samples: int  # per iteration
    # Wall time of single iterations without the profiler; empty if they were not timed.
    calls_ns: tuple[Nanoseconds, ...]
    tables: tuple[OpTable, ...]  # warm: a host table, and a device table if there is an accelerator
    costs: OperationCosts = field(default_factory=OperationCosts)
    ceilings: Ceilings | None = None  # None if they could not be measured
    layers: tuple[Layer, ...] = ()
    cold: tuple[ColdCall, ...] = ()
    trained_steps: int = 0  # training steps between the cold iterations
    ranks: RankTimes | None = None  # of several ranks, of which this is number 0; None: one process

    def table(self, view: str) -> OpTable | None:
        """Return the warm table of a view."""
        return next((table for table in self.tables if table.view == view), None)

    @property
    def busy_ns(self) -> tuple[int, ...]:
        """Time in which the accelerator ran kernels or copies, of each profiled iteration.

        The tuple is empty on a CPU.
        """
        device = self.table("device")
        return device.busy_ns if device else ()

    @property
    def call_ns(self) -> int:
        """Median wall time of an iteration without the profiler."""
        return median_ns(self.calls_ns)

    @property
    def flops(self) -> int | None:
        """FLOPs of one iteration; None if there is a formula for none of its operations."""
        counted = [cost.flops for cost in self.costs.values() if cost.flops is not None]
        return sum(counted) if counted else None

    @property
    def n_bytes(self) -> int:
        """Bytes that the operations of one iteration read and write."""
        return sum(cost.n_bytes for cost in self.costs.values())

    @property
    def utilisation(self) -> float | None:
        """Model FLOP utilisation: FLOP/s of an iteration divided by the measured peak.

        None if either is unknown.

        Chowdhery et al., PaLM (2022), appendix B.
        """
        if self.flops is None or self.ceilings is None or not self.call_ns:
            return None
        return self.flops / (self.call_ns / 1e9) / self.ceilings.flops_per_s

    @property
    def idle(self) -> float | None:
        """Share of an untraced iteration in which the accelerator ran no kernel.

        It is None without an accelerator.
        """
        if not self.busy_ns or not self.call_ns:
            return None
        return max(0.0, 1 - statistics.median(self.busy_ns) / self.call_ns)

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON; records in them are left as they are."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "costs": self.costs.to_json()}
