"""What ``mnistbench profile`` knows of a case: its operations, what they have to do, and what this machine can do.

Free of torch, so that it can be read, drawn and compared anywhere. Times are integer nanoseconds, sizes bytes.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mnistbench.core.errors import RecordError
from mnistbench.core.json_reader import Reader
from mnistbench.core.params import Params
from mnistbench.core.record import SCHEMA, OpTable, RecordReader, check_schema, median_ns, table_to_json

#: (operation, phase, module), as in ``record.OpRow.key``.
OpKey = tuple[str, str, str]


@dataclass(frozen=True)
class Cost:
    """What an operation has to do in one iteration, counted from the shapes of its tensors."""

    flops: int | None  # a multiplication and an addition are two; None where no formula counts it
    n_bytes: int  # each tensor once where it reads it and once where it writes it: what caches save is not known


@dataclass(frozen=True)
class Layer:
    """One module that has no modules inside, in the forward pass of one sample."""

    name: str
    kind: str  # the class: Conv2d
    output_shape: tuple[int, ...]  # without the batch
    parameters: int
    parameter_bytes: int
    flops: int | None  # None where no formula counts it
    output_bytes: int


@dataclass(frozen=True)
class Ceilings:
    """The most that this machine did, measured with the threads and the numbers of the case."""

    flops_per_s: float  # of a large matrix product or convolution, the better of the two
    bytes_per_s: float  # of a large copy, read and written
    precision: str  # of both: float32, tf32 or bfloat16

    def attainable(self, flops: int, n_bytes: int) -> float:
        """Return FLOP/s below the roof: Williams, Waterman and Patterson, CACM 52 (2009) 65."""
        return min(self.flops_per_s, self.bytes_per_s * flops / n_bytes) if n_bytes else self.flops_per_s


@dataclass(frozen=True)
class ColdCall:
    """One call, and what had happened before it."""

    trained: bool  # the weights had been trained
    first: bool  # it was the first call of its process
    table: OpTable

    @property
    def ns(self) -> int:
        """Wall time of the call, profiled."""
        return median_ns(self.table.iteration_ns)


@dataclass(frozen=True)
class Profiled:
    """One case, profiled."""

    params: Params
    parameter_count: int
    samples: int  # per call
    calls_ns: tuple[int, ...]  # wall time of single calls without the profiler
    tables: tuple[OpTable, ...]  # warm: host alone, and host with device where there is an accelerator
    costs: Mapping[OpKey, Cost] = field(default_factory=dict)
    ceilings: Ceilings | None = None  # None where they could not be measured
    layers: tuple[Layer, ...] = ()
    busy_ns: tuple[int, ...] = ()  # of each profiled iteration, time in which the accelerator ran kernels
    cold: tuple[ColdCall, ...] = ()
    trained_steps: int = 0  # between the cold calls

    def table(self, view: str) -> OpTable | None:
        """Return the warm table of a view."""
        return next((table for table in self.tables if table.view == view), None)

    @property
    def call_ns(self) -> int:
        """Median wall time of a call without the profiler."""
        return median_ns(self.calls_ns)

    @property
    def flops(self) -> int | None:
        """FLOPs of one call; None where no operation's could be counted."""
        counted = [cost.flops for cost in self.costs.values() if cost.flops is not None]
        return sum(counted) if counted else None

    @property
    def n_bytes(self) -> int:
        """Bytes of one call: each tensor counts once where an operation reads it and once where it writes it."""
        return sum(cost.n_bytes for cost in self.costs.values())

    @property
    def utilisation(self) -> float | None:
        """Model FLOP utilisation: FLOPs of a call by what the machine could have done in its time.

        Chowdhery et al., PaLM (2022), appendix B; the peak is this machine's measured one.
        """
        if self.flops is None or self.ceilings is None or not self.call_ns:
            return None
        return self.flops / (self.call_ns / 1e9) / self.ceilings.flops_per_s

    @property
    def idle(self) -> float | None:
        """Share of an untraced call in which the accelerator ran nothing; None without an accelerator."""
        if not self.busy_ns or not self.call_ns:
            return None
        return max(0.0, 1 - statistics.median(self.busy_ns) / self.call_ns)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
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
        }


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
        return [_profiled(item) for item in RecordReader(data)["cases"].items()]
    except RecordError as error:
        raise RecordError(f"{source}: {error}") from None


def _profiled(read: RecordReader) -> Profiled:
    return Profiled(
        params=read["params"].params(),
        parameter_count=read["parameter_count"].whole(),
        samples=read["samples"].whole(),
        calls_ns=read["calls_ns"].all_nanoseconds(),
        tables=tuple(item.table() for item in read["tables"].items()),
        costs=dict(map(_cost, read["costs"].items())),
        ceilings=None if read["ceilings"].value is None else read_ceilings(read["ceilings"]),
        layers=tuple(map(_layer, read["layers"].items())),
        busy_ns=read["busy_ns"].all_nanoseconds(),
        cold=tuple(
            ColdCall(item["trained"].flag(), item["first"].flag(), item["table"].table()) for item in read["cold"].items()
        ),
        trained_steps=read["trained_steps"].whole(),
    )


def _cost(item: Reader) -> tuple[OpKey, Cost]:
    cells = item.items()
    if len(cells) != 5:
        raise item.wrong("operation, phase, module, FLOPs and bytes")
    name, phase, module, flops, n_bytes = cells
    return (name.text(), phase.text(), module.text()), Cost(_whole_or_none(flops), n_bytes.whole())


def read_ceilings(item: Reader) -> Ceilings:
    """Return ceilings of an object.

    Raises:
        RecordError: a field is missing or wrong.
    """
    flops, n_bytes = item["flops_per_s"], item["bytes_per_s"]
    for rate in (flops, n_bytes):
        if rate.number() <= 0:
            raise rate.wrong("a rate above 0")
    return Ceilings(flops.number(), n_bytes.number(), item["precision"].text())


def _layer(item: Reader) -> Layer:
    return Layer(
        name=item["name"].text(),
        kind=item["kind"].text(),
        output_shape=tuple(size.whole() for size in item["output_shape"].items()),
        parameters=item["parameters"].whole(),
        parameter_bytes=item["parameter_bytes"].whole(),
        flops=_whole_or_none(item["flops"]),
        output_bytes=item["output_bytes"].whole(),
    )


def _whole_or_none(item: Reader) -> int | None:
    return None if item.value is None else item.whole()
