"""Memory studies -> tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mnistbench.core import units
from mnistbench.course.studies.memory.result import ROLES, Case, Largest, Layer, Peak, Study, total
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table

_HEADERS = {"saved": "saved for backward", "state": "optimizer state"}


def blocks(study: Study) -> list[Block]:
    """Return the layers of the largest batch of each model and phase, the peaks of all cases, and the largest batch sizes."""
    shown = {(case.model, case.phase): case for case in sorted(study.cases, key=lambda case: case.batch_size)}
    order = dict.fromkeys((case.model, case.phase) for case in study.cases)
    tables = [layer_table(study, shown[key]) for key in order]
    tables.append(peak_table(study))
    if study.largest:
        tables.append(largest_table(study.largest))
    return [Block("", tables=tuple(tables))]


def layer_table(study: Study, case: Case) -> Table:
    """Return a row for each layer. Roles that no layer has are left out."""
    roles = [role for role in ROLES if total(case.layers, role)]
    with_measured = any(layer.measured_peak for layer in case.layers)
    heads = ["live peak, predicted", *(["measured"] if with_measured else [])]
    return text_table(
        title=f"{case.name}: KiB in each layer, {_machine(study)}",
        headings=("layer", "kind", *(_HEADERS.get(role, role) for role in roles), *heads),
        rows=tuple(_layer_row(layer, roles, with_measured=with_measured) for layer in case.layers),
        sums=(("sum", "", *(units.kibibytes(total(case.layers, role)) for role in roles), *[""] * len(heads)),),
        numbers_from=2,
        lines=tuple(_sentences(case)),
    )


def _layer_row(layer: Layer, roles: Sequence[str], *, with_measured: bool) -> tuple[str, ...]:
    peaks = [layer.peak, *([layer.measured_peak] if with_measured else [])]
    return (
        layer.name,
        layer.kind or units.MISSING,
        *(units.kibibytes(getattr(layer, role)) for role in roles),
        *(units.MISSING if peak is None else units.kibibytes(peak) for peak in peaks),
    )


def _sentences(case: Case) -> Iterator[str]:
    for word, peak in (("Predicted", case.predicted), ("Measured", case.measured)):
        yield f"{word}: {units.size(peak.held)} before the iteration, peak {units.size(peak.n_bytes)}{_at(peak)}."


def _at(peak: Peak) -> str:
    return f" in {peak.place}" if peak.place.layer else ""


def peak_table(study: Study) -> Table:
    """Return a row for each case."""
    return text_table(
        title=f"Peaks of live memory, {_machine(study)}",
        headings=(
            "model", "phase", "batch", "held before", "predicted peak", "measured peak", "difference", "predicted in",
            "measured in", "largest difference in a layer",
        ),
        rows=tuple(_peak_row(case) for case in study.cases),
        sums=(),
        numbers_from=2,
        words_after=3,
    )  # fmt: skip


def _peak_row(case: Case) -> tuple[str, ...]:
    return (
        case.model,
        case.phase,
        f"{case.batch_size:,}",
        units.size(case.predicted.held),
        units.size(case.predicted.n_bytes),
        units.size(case.measured.n_bytes),
        units.percent(case.difference, signed=True),
        str(case.predicted.place) or units.MISSING,
        str(case.measured.place) or units.MISSING,
        _furthest(case),
    )


def _furthest(case: Case) -> str:
    layer = case.furthest
    if layer is None:
        return units.MISSING
    return f"{layer.name}: {units.size(layer.gap, signed=True)}"


def largest_table(found: Sequence[Largest]) -> Table:
    """Return a row for each batch size that was tried, and for each that was not."""
    return text_table(
        title="Largest batch that fits",
        headings=("model", "phase", "memory", "largest batch", "predicted peak", "tried", "measured peak", "result"),
        rows=tuple(row for each in found for row in _largest_rows(each)),
        sums=(),
        numbers_from=2,
        words_after=1,
    )


def _largest_rows(found: Largest) -> Iterator[tuple[str, ...]]:
    key = (
        found.model, found.phase, units.size(found.memory), f"{found.batch_size:,}", units.size(found.predicted),
    )  # fmt: skip
    if not found.tried:
        yield (*key, units.MISSING, units.MISSING, f"not tried: {found.reason}")
    for tried in found.tried:
        measured = units.MISSING if tried.n_bytes is None else units.size(tried.n_bytes)
        yield (*key, f"{tried.batch_size:,}", measured, "fits" if tried.fits else "does not fit")


def _machine(study: Study) -> str:
    return f"{study.device}, {units.threads(study.threads)}" if study.device == "cpu" else study.device
