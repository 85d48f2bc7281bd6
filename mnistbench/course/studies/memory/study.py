"""``mnistbench study memory``: its settings, its result and its tables. Does not import torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.core import options, units
from mnistbench.core.options import (
    option,
    some_of,
)
from mnistbench.course.studies.study import machine, run_study
from mnistbench.showing.output import CommandResult
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table
from mnistbench.suite import case_options
from mnistbench.suite.measuring.torch_import import import_torch
from mnistbench.suite.workloads.builtin import SUITE_MODELS

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def one_device(text: str) -> str:
    """Return a device: a prediction is for one of them, and ``auto`` may be several."""
    if text == "auto" or "," in text:
        raise ValueError("is not one device; give cpu or cuda")
    return text


def size(text: str) -> int:
    """Return bytes; the units are binary, as in the report."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) ?([KMGT])(?:i?B)?", text, re.IGNORECASE)
    n_bytes = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
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
    batch_sizes: tuple[int, ...] = case_options.batch_sizes(text="comma list of numbers of samples")
    phases: tuple[str, ...] = case_options.phases("forward,step")
    device: str = case_options.device("cpu, cuda or cuda:1", kind=one_device)
    memory: int | None = option(
        "--memory",
        size,
        None,
        "find the largest batch that fits: 512M or 2G (default: a CUDA device's memory)",
        "SIZE",
    )
    threads: int = case_options.threads()
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

    It also has an iteration that was tried under this limit.
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


# ---- Report --------------------------------------------------------------------------------------


class LayerRow(NamedTuple):
    """A layer of a case, or all layers."""

    case: MemoryCase
    layer: LayerMemory


#: Terminal and Markdown leave out columns that no layer of a case has.
LAYERS: tuple[Column[LayerRow], ...] = (
    Column(None, lambda row: row.case.model, key="model"),
    Column(None, lambda row: row.case.phase, key="phase"),
    Column(None, lambda row: row.case.batch_size, key="batch_size"),
    Column("layer", lambda row: row.layer.name, key="layer"),
    Column("kind", lambda row: row.layer.kind or None, key="kind"),
    Column("input", lambda row: row.layer.input, units.kibibytes, "input_bytes"),
    Column("output", lambda row: row.layer.output, units.kibibytes, "output_bytes"),
    Column("weight", lambda row: row.layer.weight, units.kibibytes, "weight_bytes"),
    Column("gradient", lambda row: row.layer.gradient, units.kibibytes, "gradient_bytes"),
    Column(
        "optimizer state", lambda row: row.layer.state, units.kibibytes, "optimizer_state_bytes"
    ),
    Column(
        "saved for backward",
        lambda row: row.layer.saved,
        units.kibibytes,
        "saved_for_backward_bytes",
    ),
    Column(
        "live peak, predicted", lambda row: row.layer.peak, units.kibibytes, "predicted_peak_bytes"
    ),
    Column("measured", lambda row: row.layer.measured_peak, units.kibibytes, "measured_peak_bytes"),
    Column(
        "of peak",
        lambda row: row.layer.peak and row.layer.peak / row.case.predicted.n_bytes,
        units.percent,
        "of_peak",
    ),
)


def _furthest(case: MemoryCase) -> str | None:
    """Return the layer whose predicted peak is furthest from the measured one.

    None if all are equal or none was measured.
    """
    layer = max(
        (layer for layer in case.layers if layer.gap),
        key=lambda layer: abs(layer.gap),
        default=None,
    )
    return f"{layer.name}: {units.size(layer.gap, signed=True)}" if layer else None


PEAKS: tuple[Column[MemoryCase], ...] = (
    Column("model", lambda case: case.model, key="model"),
    Column("phase", lambda case: case.phase, key="phase"),
    Column("batch", lambda case: case.batch_size, units.count, "batch_size"),
    Column("held before", lambda case: case.predicted.held, units.size, "held_bytes"),
    Column(
        "predicted peak", lambda case: case.predicted.n_bytes, units.size, "predicted_peak_bytes"
    ),
    Column("measured peak", lambda case: case.measured.n_bytes, units.size, "measured_peak_bytes"),
    Column(
        "difference",
        lambda case: case.difference,
        lambda share: units.percent(share, signed=True),
        "difference",
    ),
    Column("predicted in", lambda case: str(case.predicted.site) or None, key="predicted_in"),
    Column("measured in", lambda case: str(case.measured.site) or None, key="measured_in"),
    Column("largest difference in a layer", _furthest),
)

LARGEST: tuple[Column[LargestBatch], ...] = (
    Column("model", lambda batch: batch.model, key="model"),
    Column("phase", lambda batch: batch.phase, key="phase"),
    Column("memory", lambda batch: batch.memory, units.size, "memory_bytes"),
    Column("largest batch", lambda batch: batch.batch_size, units.count, "largest_batch_size"),
    Column("predicted peak", lambda batch: batch.predicted, units.size, "predicted_peak_bytes"),
    Column("tried", lambda batch: batch.tried, units.count, "tried_batch_size"),
    Column("measured peak", lambda batch: batch.measured, units.size, "measured_peak_bytes"),
    Column("result", lambda batch: batch.result, key="result"),
)


def report_of(study: MemoryStudy) -> Report:
    """Return layers, peaks of all cases, and the largest batch sizes.

    The layers are those of the largest batch of each model and phase.

    The CSV has the layers of all cases, and a row with the sums and the peaks of each.
    """
    device = study.settings.device
    threads = study.settings.threads
    where = machine(device, threads)
    largest = {
        (case.model, case.phase): case
        for case in sorted(study.cases, key=lambda case: case.batch_size)
    }
    shown = [
        largest[key] for key in dict.fromkeys((case.model, case.phase) for case in study.cases)
    ]
    every = Table(
        "",
        LAYERS,
        [LayerRow(case, layer) for case in study.cases for layer in (*case.layers, case.whole)],
    )
    peaks = Table(f"Peaks of live memory, {where}", PEAKS, study.cases)
    batches = Table("Largest batch that fits", LARGEST, study.largest)
    data = document(
        "memory",
        device=device,
        threads=threads,
        torch=study.torch,
        layers=every.records(),
        cases=peaks.records(),
        largest=batches.records(),
    )
    tables = (
        *(_layers(case, where) for case in shown),
        peaks,
        *([batches] if study.largest else []),
    )
    return Report("memory of a network", [Block("", tables=tables)], data, every)


def _layers(case: MemoryCase, where: str) -> Table:
    rows = [LayerRow(case, layer) for layer in case.layers]
    columns = [column for column in LAYERS if any(column.value(row) for row in rows)]
    title = f"{case.model} {case.phase} b{case.batch_size}: KiB in each layer, {where}"
    lines = (_sentence("Predicted", case.predicted), _sentence("Measured", case.measured))
    return Table(title, columns, rows, [LayerRow(case, case.whole)], lines)


def _sentence(word: str, peak: Peak) -> str:
    site = f" in {peak.site}" if peak.site.layer else ""
    return (
        f"{word}: {units.size(peak.held)} before the iteration, peak "
        f"{units.size(peak.n_bytes)}{site}."
    )


# ---- Command -------------------------------------------------------------------------------------


def run(settings: Settings) -> CommandResult:
    """Predict, measure, and return the report.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    import_torch(quiet=True)
    return run_study("memory", settings, report_of)
