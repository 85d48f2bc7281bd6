"""The result of ``mnistbench study convolution`` as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from mnistbench.core import units
from mnistbench.course.studies.convolution.study import ConvolutionStudy, WayCost
from mnistbench.course.studies.study import machine
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table


def _decimals(scale: float) -> Callable[[float], str]:
    return lambda value: f"{value / scale:,.2f}"


COSTS: tuple[Column[WayCost], ...] = (
    Column(None, lambda cost: cost.case.convolution, key="convolution"),
    Column(None, lambda cost: str(cost.case.sizes), key="sizes"),
    Column("way", lambda cost: cost.case.way, key="way"),
    Column("dtype", lambda cost: cost.case.dtype, key="dtype"),
    Column(
        "time", lambda cost: cost.seconds, lambda seconds: units.duration(1e9 * seconds), "seconds"
    ),
    Column("MFLOP", lambda cost: cost.flops, _decimals(1e6), "flops"),
    Column(None, lambda cost: cost.flops_by_definition, key="flops_by_definition"),
    Column(
        "of definition",
        lambda cost: cost.flops / cost.flops_by_definition,
        units.percent,
        "of_definition",
    ),
    Column("GFLOP/s", lambda cost: cost.flops_per_s, _decimals(1e9), "flops_per_s"),
    Column("MB moved", lambda cost: cost.n_bytes, _decimals(1e6), "n_bytes"),
    Column("FLOP/byte", lambda cost: cost.flops / cost.n_bytes, _decimals(1), "intensity"),
    Column("of ceiling", lambda cost: cost.of_ceiling, units.percent, "of_ceiling"),
    Column("error", lambda cost: cost.error, "{:.1e}".format, "error"),
    Column("bound", lambda cost: cost.bound, "{:.1e}".format, "bound"),
    Column("algorithm", lambda cost: cost.algorithm or None, key="algorithm"),
)


def report_of(study: ConvolutionStudy) -> Report:
    """Return a table for each convolution, the fastest way first, and what was refused."""
    every = Table("", COSTS, study.costs)
    ceilings = {cost.case.dtype: cost.ceilings for cost in study.costs}
    device = study.settings.device
    threads = study.settings.threads
    by_convolution: dict[str, list[WayCost]] = {cost.case.convolution: [] for cost in study.costs}
    for cost in sorted(study.costs, key=lambda cost: cost.seconds):
        by_convolution[cost.case.convolution].append(cost)
    blocks = [
        Block("", tables=(_table(costs, machine(device, threads)),))
        for costs in by_convolution.values()
    ]
    if study.refused:
        blocks.append(Block("Left out", lines=study.refused))
    data = document(
        "convolution",
        device=device,
        threads=threads,
        torch=study.torch,
        ceilings={dtype: asdict(found) for dtype, found in ceilings.items()},
        costs=every.records(),
        refused=study.refused,
    )
    return Report("one convolution, many ways", blocks, data, every)


def _table(costs: Sequence[WayCost], where: str) -> Table:
    case = costs[0].case
    lines = [
        f"Ceilings in {found.precision}: {units.flops_per_s(found.flops_per_s)} (a large matrix "
        f"product or convolution), {units.bytes_per_s(found.bytes_per_s)} (a large copy)."
        for found in {cost.case.dtype: cost.ceilings for cost in costs}.values()
    ]
    return Table(f"{case.convolution}: {case.sizes}, {where}", COSTS, costs, lines=tuple(lines))
