"""The result of ``mnistbench study convolution``: what each way of a convolution costs. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mnistbench.core.roofline import Ceilings

#: Version of the JSON. A new one removes or renames a key, or changes its meaning.
SCHEMA = 1


@dataclass(frozen=True)
class Cost:
    """The work of one call, its time and its error."""

    convolution: str  # name of its sizes
    sizes: str
    way: str
    dtype: str
    flops: int  # done; a multiply-add counts as two
    flops_by_definition: int
    n_bytes: int  # read and written by operations, ignoring caches; at least inputs, weights and output, each once
    seconds: float  # median
    error: float | None = None  # largest difference from the result in double precision; None for gradients
    bound: float | None = None  # of the error
    algorithm: str = ""  # that the library took; empty if it does not say

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.n_bytes

    @property
    def flops_per_s(self) -> float:
        """Rate of the FLOPs that are done."""
        return self.flops / self.seconds

    def of_ceiling(self, ceilings: Ceilings) -> float:
        """Return the rate as a share of the roofline limit at this intensity."""
        return self.flops_per_s / ceilings.attainable(self.flops, self.n_bytes)

    def to_json(self, ceilings: Ceilings) -> dict[str, Any]:
        """Return all values, also those that follow from others."""
        found = {"intensity": self.intensity, "flops_per_s": self.flops_per_s, "of_ceiling": self.of_ceiling(ceilings)}
        return {**asdict(self), **found}


@dataclass(frozen=True)
class Study:
    """All ways of all sizes, and what could not be computed."""

    device: str
    threads: int
    torch: str  # version
    costs: tuple[Cost, ...]
    refused: tuple[str, ...]  # a sentence for each way that cannot compute a size
    ceilings: Mapping[str, Ceilings]  # by dtype
    settings: Mapping[str, str] = field(default_factory=dict)  # of oneDNN and cuDNN, those that are given

    def by_convolution(self) -> dict[str, list[Cost]]:
        """Return the costs of each convolution, the shortest first."""
        found: dict[str, list[Cost]] = {}
        for cost in sorted(self.costs, key=lambda cost: cost.seconds):
            found.setdefault(cost.convolution, []).append(cost)
        return {name: found[name] for name in dict.fromkeys(cost.convolution for cost in self.costs)}

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "threads": self.threads,
            "torch": self.torch,
            "settings": dict(self.settings),
            "ceilings": {dtype: asdict(found) for dtype, found in self.ceilings.items()},
            "costs": [cost.to_json(self.ceilings[cost.dtype]) for cost in self.costs],
            "refused": list(self.refused),
        }


def dumps(study: Study) -> str:
    """Return the JSON."""
    return json.dumps(study.to_json(), indent=1) + "\n"


#: Columns of the CSV.
COLUMNS = (
    "convolution", "sizes", "way", "dtype", "seconds", "flops", "flops_by_definition", "n_bytes", "intensity", "flops_per_s",
    "of_ceiling", "error", "bound", "algorithm",
)  # fmt: skip


def csv_rows(study: Study) -> Iterator[Sequence[Any]]:
    """Yield a row for each cost."""
    for cost in study.costs:
        values = cost.to_json(study.ceilings[cost.dtype])
        yield [values[column] for column in COLUMNS]
