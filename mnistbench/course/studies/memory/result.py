"""The result of ``mnistbench study memory``. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

#: Version of the JSON. A new one removes or renames a key, or changes its meaning.
SCHEMA = 1

#: What is measured by default.
PHASES = ("forward", "step")
BATCH_SIZES = (1, 16, 64)


@dataclass(frozen=True)
class Place:
    """The operation that allocates."""

    layer: str = ""  # name of a module, (loss), (backward) or (optimizer)
    phase: str = ""  # forward, backward or optimizer
    operation: str = ""

    def __str__(self) -> str:
        phase = "" if self.layer == f"({self.phase})" else self.phase
        where = " ".join(word for word in (self.layer, phase) if word)
        return " in ".join(word for word in (self.operation, where) if word)


@dataclass(frozen=True)
class Layer:
    """Memory of a layer, in bytes. A storage counts in the first layer that has it in the same role."""

    name: str
    kind: str  # class of the module; empty for what is not a module
    input: int = 0
    output: int = 0
    weight: int = 0  # parameters and buffers
    gradient: int = 0  # of the parameters
    state: int = 0  # of the optimizer
    saved: int = 0  # kept for backward, without parameters, buffers and the batch
    peak: int | None = None  # largest number of live bytes while the layer allocates, predicted; None if it allocates nothing
    measured_peak: int | None = None  # None if it allocates nothing, or was not measured

    @property
    def gap(self) -> int:
        """Measured minus predicted peak; 0 if one of them is missing."""
        return 0 if self.peak is None or self.measured_peak is None else self.measured_peak - self.peak


#: Fields of a layer that add up.
ROLES = ("input", "output", "weight", "gradient", "state", "saved")


def total(layers: Iterable[Layer], role: str) -> int:
    """Return the sum of a role over layers."""
    return sum(getattr(layer, role) for layer in layers)


@dataclass(frozen=True)
class Peak:
    """The largest number of live bytes in an iteration."""

    n_bytes: int
    held: int  # of it before the iteration: parameters, gradients and optimizer state of the step before, and the batch
    place: Place  # that allocates last


@dataclass(frozen=True)
class Case:
    """One model, phase and batch size."""

    model: str
    phase: str  # forward or step
    batch_size: int
    predicted: Peak
    measured: Peak
    layers: tuple[Layer, ...]

    @property
    def name(self) -> str:
        """Model, phase and batch size."""
        return f"{self.model} {self.phase} b{self.batch_size}"

    @property
    def difference(self) -> float:
        """Predicted against measured bytes, as a share of the measured ones."""
        return self.predicted.n_bytes / self.measured.n_bytes - 1

    @property
    def furthest(self) -> Layer | None:
        """The layer whose predicted peak is furthest from the measured one; None if all are equal or none was measured."""
        return max((layer for layer in self.layers if layer.gap), key=lambda layer: abs(layer.gap), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return all values, also those that follow from others."""
        return {**asdict(self), "difference": self.difference}


@dataclass(frozen=True)
class Tried:
    """An iteration with a batch size, under a limit of memory."""

    batch_size: int
    fits: bool
    n_bytes: int | None  # measured peak; None if memory ran out


@dataclass(frozen=True)
class Largest:
    """The largest batch size that fits a memory."""

    model: str
    phase: str
    memory: int  # bytes
    batch_size: int  # predicted; 0 if none fits
    predicted: int  # peak at this batch size
    tried: tuple[Tried, ...] = ()
    reason: str = ""  # why it was not tried

    def to_json(self) -> dict[str, Any]:
        """Return all values."""
        return asdict(self)


@dataclass(frozen=True)
class Study:
    """All cases, and the largest batch sizes."""

    device: str
    threads: int
    torch: str  # version
    cases: tuple[Case, ...]
    largest: tuple[Largest, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "threads": self.threads,
            "torch": self.torch,
            "cases": [case.to_json() for case in self.cases],
            "largest": [found.to_json() for found in self.largest],
        }


def dumps(study: Study) -> str:
    """Return the JSON."""
    return json.dumps(study.to_json(), indent=1) + "\n"


#: Columns of the CSV: a row for each layer of a case, and one with the sums and peaks of the case, whose layer is empty.
COLUMNS = (
    "model", "phase", "batch_size", "layer", "kind", "input_bytes", "output_bytes", "weight_bytes", "gradient_bytes",
    "optimizer_state_bytes", "saved_for_backward_bytes", "predicted_peak_bytes", "measured_peak_bytes",
)  # fmt: skip


def csv_rows(study: Study) -> Iterator[Sequence[Any]]:
    """Yield a row for each layer of each case, and one for the case."""
    for case in study.cases:
        key = (case.model, case.phase, case.batch_size)
        for layer in case.layers:
            yield [*key, *astuple(layer)]
        sums = [total(case.layers, role) for role in ROLES]
        yield [*key, "", "", *sums, case.predicted.n_bytes, case.measured.n_bytes]
