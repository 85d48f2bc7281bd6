"""What ``mnistbench study memory`` measures, and its result. Does not import torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench.core import options
from mnistbench.core.options import (
    option,
    some_of,
)
from mnistbench.core.params import SUITE_MODELS

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def one_device(text: str) -> str:
    """Return a device: a prediction is for one of them, and ``auto`` may be several."""
    if text == "auto" or "," in text:
        raise ValueError("is not one device; give cpu or cuda")
    return text


def size(text: str) -> int:
    """Return bytes; the units are binary, as in the report."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) ?([KMGT])(?:i?B)?", text, re.IGNORECASE)
    n_bytes = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if n_bytes < 1:
        raise ValueError("is not a size; give a number with its unit, such as 512M or 2G")
    return n_bytes


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of the command."""

    models: tuple[str, ...] = option(
        "--model",
        some_of(*SUITE_MODELS),
        ",".join(SUITE_MODELS),
        "comma list of convnet and lenet5",
        "NAMES",
    )
    batch_sizes: tuple[int, ...] = options.batch_sizes(text="comma list of numbers of samples")
    phases: tuple[str, ...] = options.phases("forward,step")
    device: str = options.device("cpu, cuda or cuda:1", kind=one_device)
    memory: int | None = option(
        "--memory",
        size,
        None,
        "find the largest batch that fits: 512M or 2G (default: a CUDA device's memory)",
        "SIZE",
    )
    threads: int = options.threads()
    format: str = options.output_format(["csv"])
    output: Path | None = options.output()


@dataclass(frozen=True)
class Site:
    """The operation that allocates."""

    layer: str = ""  # name of a module, (loss), (backward) or (optimizer)
    phase: str = ""  # forward, backward or optimizer
    operation: str = ""

    def __str__(self) -> str:
        phase = "" if self.layer == f"({self.phase})" else self.phase
        where = " ".join(word for word in (self.layer, phase) if word)
        return " in ".join(word for word in (self.operation, where) if word)


#: Fields of a layer that add up.
ROLES = ("input", "output", "weight", "gradient", "state", "saved")


@dataclass(frozen=True)
class LayerMemory:
    """Memory of a layer, in bytes.

    A storage counts in the first layer that has it in the same role.
    """

    name: str
    kind: str = ""  # class of the module; empty for what is not a module
    input: int = 0
    output: int = 0
    weight: int = 0  # parameters and buffers
    gradient: int = 0  # of the parameters
    state: int = 0  # of the optimizer
    saved: int = 0  # kept for backward, without parameters, buffers and the batch
    # Largest number of live bytes while the layer allocates, predicted; None if it allocates
    # nothing.
    peak: int | None = None
    measured_peak: int | None = None  # None if it allocates nothing, or was not measured

    @property
    def gap(self) -> int:
        """Measured minus predicted peak; 0 if one of them is missing."""
        return (
            0 if self.peak is None or self.measured_peak is None else self.measured_peak - self.peak
        )


@dataclass(frozen=True)
class Peak:
    """The largest number of live bytes in an iteration."""

    n_bytes: int
    # Of it before the iteration: parameters, gradients and optimizer state of the step before, and
    # the batch.
    held: int
    site: Site  # that allocates last


@dataclass(frozen=True)
class MemoryCase:
    """One model, phase and batch size."""

    model: str
    phase: str  # forward or step
    batch_size: int
    predicted: Peak
    measured: Peak
    layers: tuple[LayerMemory, ...]

    @property
    def whole(self) -> LayerMemory:
        """The sums of all layers, and the peaks of the iteration."""
        sums: dict[str, Any] = {
            role: sum(getattr(layer, role) for layer in self.layers) for role in ROLES
        }
        return LayerMemory(
            "all layers", **sums, peak=self.predicted.n_bytes, measured_peak=self.measured.n_bytes
        )

    @property
    def difference(self) -> float:
        """Predicted against measured bytes, as a share of the measured ones."""
        return self.predicted.n_bytes / self.measured.n_bytes - 1


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch size that fits a memory.

    And an iteration that was tried under this limit.
    """

    model: str
    phase: str
    memory: int  # bytes
    batch_size: int  # predicted; 0 if none fits
    predicted: int  # peak at this batch size
    tried: int | None = None  # batch size of the iteration; None if none was tried
    measured: int | None = None  # its peak; None if memory ran out
    reason: str = ""  # why none was tried

    @property
    def result(self) -> str:
        """Whether the iteration that was tried fits."""
        if self.tried is None:
            return f"not tried: {self.reason}"
        return (
            "fits" if self.measured is not None and self.measured <= self.memory else "does not fit"
        )


@dataclass(frozen=True)
class MemoryStudy:
    """All cases, and the largest batch sizes."""

    settings: Settings
    torch: str  # version
    cases: tuple[MemoryCase, ...]
    largest: tuple[LargestBatch, ...] = ()
