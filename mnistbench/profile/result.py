"""The result of ``mnistbench profile``: operations with their times, FLOPs and bytes, and the ceilings of the machine.

This module does not import torch, so that results can be read and drawn anywhere. Times are integer nanoseconds, sizes are
bytes.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

from mnistbench.core.document import OPTIONAL, Members, Nanoseconds, Reader
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import OpKey
from mnistbench.core.params import Params
from mnistbench.core.ranks import RankTimes
from mnistbench.core.record import SCHEMA, OpTable, check_schema, median_ns, table_to_json
from mnistbench.core.roofline import Ceilings, Cost

_Times = tuple[Nanoseconds, ...]
_COST = Annotated[tuple[str, str, str, int | None, int], Members("operation, phase, module, FLOPs and bytes")]


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
    calls_ns: _Times  # wall time of single iterations without the profiler; empty if they were not timed
    tables: tuple[OpTable, ...]  # warm: a host table, and a device table if there is an accelerator
    costs: Mapping[OpKey, Cost] = field(default_factory=dict)
    ceilings: Ceilings | None = None  # None if they could not be measured
    layers: tuple[Layer, ...] = ()
    cold: tuple[ColdCall, ...] = ()
    trained_steps: int = 0  # training steps between the cold iterations
    ranks: Annotated[RankTimes | None, OPTIONAL] = None  # of several ranks, of which this is number 0; None: one process

    def table(self, view: str) -> OpTable | None:
        """Return the warm table of a view."""
        return next((table for table in self.tables if table.view == view), None)

    @property
    def busy_ns(self) -> tuple[int, ...]:
        """Time in which the accelerator ran kernels or copies, of each profiled iteration; empty on a CPU."""
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
        """Model FLOP utilisation: FLOP/s of an iteration divided by the measured peak; None if either is unknown.

        Chowdhery et al., PaLM (2022), appendix B.
        """
        if self.flops is None or self.ceilings is None or not self.call_ns:
            return None
        return self.flops / (self.call_ns / 1e9) / self.ceilings.flops_per_s

    @property
    def idle(self) -> float | None:
        """Share of an untraced iteration in which the accelerator ran no kernel; None without an accelerator."""
        if not self.busy_ns or not self.call_ns:
            return None
        return max(0.0, 1 - statistics.median(self.busy_ns) / self.call_ns)

    def to_json(self) -> dict[str, Any]:
        """Return the case as JSON values."""
        return {
            "params": asdict(self.params),
            "parameter_count": self.parameter_count,
            "samples": self.samples,
            "calls_ns": list(self.calls_ns),
            "tables": [table_to_json(table) for table in self.tables],
            "costs": [[*key, cost.flops, cost.n_bytes] for key, cost in self.costs.items()],
            "ceilings": asdict(self.ceilings) if self.ceilings else None,
            "layers": [asdict(layer) for layer in self.layers],
            "busy_ns": list(self.busy_ns),
            "cold": [{"trained": call.trained, "first": call.first, "table": table_to_json(call.table)} for call in self.cold],
            "trained_steps": self.trained_steps,
            **({"ranks": {"world_size": self.ranks.ranks, **asdict(self.ranks)}} if self.ranks else {}),
        }

    @classmethod
    def from_stored(cls, stored: Any) -> Profiled:
        """Read the result of :meth:`to_json`.

        Raises:
            RecordError: names the field that is missing or wrong.
        """
        case = Reader(stored)
        costs = {cells[:3]: Cost(*cells[3:]) for cells in case["costs"].read(tuple[_COST, ...])}
        return cls(**case.members(cls, [field.name for field in fields(cls) if field.name != "costs"]), costs=costs)


def dumps(cases: Sequence[Profiled]) -> str:
    """Return cases as the text of a JSON file."""
    return json.dumps({"schema": SCHEMA, "cases": [case.to_json() for case in cases]}, indent=1, allow_nan=False) + "\n"


def loads(text: str, source: str) -> list[Profiled]:
    """Read what :func:`dumps` returned.

    Raises:
        RecordError: names ``source`` and the field that is missing or wrong.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{source}: is not JSON ({error})") from None
    try:
        check_schema(data)
        return list(Reader(data)["cases"].read(tuple[Profiled, ...]))
    except RecordError as error:
        raise RecordError(f"{source}: {error}") from None
