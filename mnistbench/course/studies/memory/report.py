"""The result of ``mnistbench study memory`` as tables."""

from __future__ import annotations

from typing import NamedTuple

from mnistbench.core import units
from mnistbench.course.studies.memory.study import (
    LargestBatch,
    LayerMemory,
    MemoryCase,
    MemoryStudy,
    Peak,
)
from mnistbench.course.studies.study import machine
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table


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
    Column("model", lambda found: found.model, key="model"),
    Column("phase", lambda found: found.phase, key="phase"),
    Column("memory", lambda found: found.memory, units.size, "memory_bytes"),
    Column("largest batch", lambda found: found.batch_size, units.count, "largest_batch_size"),
    Column("predicted peak", lambda found: found.predicted, units.size, "predicted_peak_bytes"),
    Column("tried", lambda found: found.tried, units.count, "tried_batch_size"),
    Column("measured peak", lambda found: found.measured, units.size, "measured_peak_bytes"),
    Column("result", lambda found: found.result, key="result"),
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
