"""Peak rates of accelerators, by the name and the memory that a trace records.

Rates are those of dense matrices, the highest of a number format: those of tensor or matrix cores where they have it. FLOPs are
counted for matrix products, convolutions and attention only. Data sheets since that of the H100 list the rates of matrices
with 2:4 sparsity, which are twice as high; the rates here are half of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True)
class Peaks:
    """Peak rates of an accelerator. None, or no entry: not known."""

    flops_per_s: Mapping[str, float] = field(default_factory=dict)  # by number format: bfloat16, tf32
    flops_per_s_of_all: float | None = None  # of any number format
    bytes_per_s: float | None = None
    source: str = ""

    def of(self, dtype: str) -> float | None:
        """Return the peak of a number format in FLOP/s."""
        return self.flops_per_s_of_all or self.flops_per_s.get(dtype)


@dataclass(frozen=True)
class _Entry:
    """Accelerators that have the same peaks."""

    names: str  # a regular expression for the whole name
    memory_gb: tuple[float, float]  # bounds in 10**9 bytes; they exclude parts of a partitioned accelerator
    teraflops: Mapping[str, float]
    gigabytes: float  # per second
    source: str


_H100_TERAFLOPS = {"float64": 66.9, "float32": 66.9, "tf32": 494.7, "bfloat16": 989.4, "float16": 989.4}
_A100_TERAFLOPS = {"float64": 19.5, "float32": 19.5, "tf32": 156.0, "bfloat16": 312.0, "float16": 312.0}
_A100_SHEET = "NVIDIA A100 data sheet nvidia-1758950-r4"
_HOPPER = "white paper on the Hopper architecture"

_ENTRIES = (
    _Entry(
        r"(NVIDIA )?(Tesla )?V100-SXM2-(16|32)GB", (15, 35),
        {"float64": 7.8, "float32": 15.7, "float16": 125.0}, 900, "NVIDIA V100 data sheet, V100 SXM2",
    ),
    _Entry(r"(NVIDIA )?A100[- ].*", (39, 44), _A100_TERAFLOPS, 1555, f"{_A100_SHEET}, 40 GB"),
    _Entry(r"(NVIDIA )?A100-SXM.*", (79, 87), _A100_TERAFLOPS, 2039, f"{_A100_SHEET}, 80 GB SXM"),
    _Entry(r"NVIDIA H100 80GB HBM3", (79, 87), _H100_TERAFLOPS, 3350, f"NVIDIA H100 SXM data sheet, {_HOPPER}"),
    _Entry(r"NVIDIA H200", (140, 152), _H100_TERAFLOPS, 4800, f"NVIDIA H200 SXM data sheet, {_HOPPER}"),
    _Entry(
        r"NVIDIA B200", (178, 195),
        {"float64": 37.0, "float32": 75.0, "tf32": 1125.0, "bfloat16": 2250.0, "float16": 2250.0}, 7700,
        "NVIDIA Blackwell data sheet, HGX B200",
    ),
    _Entry(  # ROCm shows each of the two dies as a device, and gives the MI250 and the MI250X this name
        r"AMD Instinct MI250X / MI250", (63, 70),
        {"float64": 47.85, "float32": 47.85, "bfloat16": 191.5, "float16": 191.5}, 1600,
        "AMD Instinct MI250X data sheet, half of it for one of two dies; an MI250 has 5 % less FLOP/s and the same name",
    ),
    _Entry(
        r"AMD Instinct MI300X( VF| HF)?", (190, 210),
        {"float64": 163.4, "float32": 163.4, "tf32": 653.7, "bfloat16": 1307.4, "float16": 1307.4}, 5300,
        "AMD Instinct MI300X data sheet",
    ),
)  # fmt: skip


def peaks_of_all(machine: Iterable[tuple[str, int]]) -> Peaks | None:
    """Return the peaks of accelerators, by name and bytes of memory; None if they are not known here, or not the same."""
    found = [peaks_of(name, memory) for name, memory in machine]
    return found[0] if found and all(peaks == found[0] for peaks in found) else None


def peaks_of(name: str, memory_bytes: int) -> Peaks | None:
    """Return the peaks of an accelerator; None if they are not known here."""
    for entry in _ENTRIES:
        least, most = entry.memory_gb
        if re.fullmatch(entry.names, name) and least * _GIGA <= memory_bytes <= most * _GIGA:
            rates = {dtype: rate * _TERA for dtype, rate in entry.teraflops.items()}
            return Peaks(rates, None, entry.gigabytes * _GIGA, entry.source)
    return None
