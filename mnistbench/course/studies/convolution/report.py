"""Operator studies -> tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mnistbench.core import units
from mnistbench.course.studies.convolution.result import Cost, Study
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table


def blocks(study: Study) -> list[Block]:
    """Return a table for each convolution, and what was refused."""
    found = [Block("", tables=(table(study, costs),)) for costs in study.by_convolution().values()]
    return [*found, Block("Left out", lines=study.refused)] if study.refused else found


def table(study: Study, costs: Sequence[Cost]) -> Table:
    """Return a row for each way of a convolution, the fastest first."""
    one = costs[0]
    settings = "".join(f", {name} {value}" for name, value in study.settings.items())
    threads = f", {units.threads(study.threads)}" if study.device == "cpu" else ""
    return text_table(
        title=f"{one.convolution}: {one.sizes}, {study.device}{threads}{settings}",
        headings=(
            "way", "dtype", "us", "MFLOP", "of definition", "GFLOP/s", "MB moved", "FLOP/byte", "of ceiling", "error", "bound",
            "algorithm",
        ),
        rows=tuple(_row(study, cost) for cost in costs),
        sums=(),
        numbers_from=2,
        lines=tuple(_sentences(study, costs)),
        words_after=1,
    )  # fmt: skip


def _row(study: Study, cost: Cost) -> tuple[str, ...]:
    return (
        cost.way,
        cost.dtype,
        units.microseconds(1e9 * cost.seconds),
        f"{cost.flops / 1e6:,.2f}",
        units.percent(cost.flops / cost.flops_by_definition),
        f"{cost.flops_per_s / 1e9:,.2f}",
        f"{cost.n_bytes / 1e6:,.2f}",
        f"{cost.intensity:,.2f}",
        units.percent(cost.of_ceiling(study.ceilings[cost.dtype])),
        _error(cost.error),
        _error(cost.bound),
        cost.algorithm or units.MISSING,
    )


def _error(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.1e}"


def _sentences(study: Study, costs: Sequence[Cost]) -> Iterator[str]:
    for dtype in dict.fromkeys(cost.dtype for cost in costs):
        found = study.ceilings[dtype]
        yield (
            f"Ceilings in {found.precision}: {units.flops_per_s(found.flops_per_s)} (a large matrix product or convolution), "
            f"{units.bytes_per_s(found.bytes_per_s)} (a large copy)."
        )
