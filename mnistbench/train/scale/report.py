"""Scaling over ranks -> a table and a figure made of characters."""

from __future__ import annotations

from collections.abc import Iterator

from mnistbench.core import units
from mnistbench.core.params import device_label
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table
from mnistbench.train.scale.result import STRONG, Launched, Scaling

#: Size of the figure in characters.
_WIDTH, _HEIGHT = 56, 14

_IDEAL, _MEASURED, _OVERSUBSCRIBED = ".", "o", "x"


def blocks(scaling: Scaling) -> list[Block]:
    """Return the whole report."""
    return [Block("", tables=(table(scaling),)), Block(_figure_title(scaling), drawing=figure(scaling))]


def table(scaling: Scaling) -> Table:
    """Return a row for each number of ranks."""
    return text_table(
        title=_title(scaling),
        headings=(
            "ranks", "threads", "batch per rank", "samples/s", "step", "quartiles", "efficiency", "exposed communication",
            "of step", "note",
        ),
        rows=tuple(_row(scaling, launch) for launch in scaling.launches),
        sums=(),
        numbers_from=0,
        lines=tuple(_sentences(scaling)),
        words_after=1,
    )  # fmt: skip


def _title(scaling: Scaling) -> str:
    settings = scaling.settings
    of = "of all ranks" if settings.scaling == STRONG else "of each rank"
    device = device_label(settings.device, settings.dtype, compiled=False, step=settings.step)
    return (
        f"{settings.scaling} scaling, step {settings.model} on {settings.dataset}, {device}, batch {settings.batch_size} {of}"
    )


def _row(scaling: Scaling, launch: Launched) -> tuple[str, ...]:
    fewest, most = min(launch.batch_sizes), max(launch.batch_sizes)
    first, third = launch.quartiles_ns
    return (
        units.count(launch.ranks),
        units.count(scaling.settings.threads),
        units.count(most) if fewest == most else f"{units.count(fewest)} to {units.count(most)}",
        units.count(round(launch.samples_per_s)),
        units.duration(launch.typical_ns),
        f"{units.duration(first)} to {units.duration(third)}",
        _percent(scaling.efficiency(launch)),
        units.MISSING if launch.exposed_ns is None else units.duration(launch.exposed_ns),
        _percent(launch.exposed_share),
        "oversubscribed" if scaling.oversubscribed(launch) else "",
    )


def _percent(share: float | None) -> str:
    return units.MISSING if share is None else units.percent(share)


def _sentences(scaling: Scaling) -> Iterator[str]:
    """Yield what the columns mean, and why a number is missing."""
    steps = scaling.settings.steps
    yield f"A step's time is that of its slowest rank, the median of {steps} steps with quartiles; batches are made before it."
    if any(launch.exposed_ns is not None for launch in scaling.launches):
        yield "Exposed communication: step time minus the time of a step without communication (no_sync)."
    if scaling.alone is None:
        yield "No efficiency, because it compares with one rank: --ranks must contain 1."
    if any(scaling.oversubscribed(launch) for launch in scaling.launches):
        cores = scaling.environment.cpu_count
        yield (
            f"Oversubscribed: more threads than the {cores} cores that can be used, so ranks wait for each other; "
            "such a row has no efficiency."
        )


# ---- Figure ----------------------------------------------------------------------------------------------------------


def _figure_title(scaling: Scaling) -> str:
    return f"{'Speedup' if scaling.alone else 'Samples per second'} over ranks, {scaling.settings.scaling} scaling"


def figure(scaling: Scaling) -> str:
    """Return the speedup over the number of ranks and the ideal line; without one rank the rate, and no line.

    Both axes are linear and begin at 0.
    """
    points = [(launch, scaling.speedup(launch) or launch.samples_per_s) for launch in scaling.launches]
    most = max(launch.ranks for launch, _ in points)
    highest = max([value for _, value in points] + ([float(most)] if scaling.alone else []))
    grid = [[" "] * (_WIDTH + 1) for _ in range(_HEIGHT + 1)]

    def put(ranks: float, value: float, mark: str) -> None:
        grid[_HEIGHT - round(value / highest * _HEIGHT)][round(ranks / most * _WIDTH)] = mark

    if scaling.alone:
        for column in range(0, _WIDTH + 1, 2):
            put(column / _WIDTH * most, column / _WIDTH * most, _IDEAL)
    for launch, value in points:
        put(launch.ranks, value, _OVERSUBSCRIBED if scaling.oversubscribed(launch) else _MEASURED)
    top = units.factor(highest) if scaling.alone else units.count(round(highest))
    labels = [top, *[""] * (_HEIGHT - 1), "0"]
    width = max(map(len, labels))
    lines = [f"{label:>{width}} |{''.join(line).rstrip()}" for label, line in zip(labels, grid, strict=True)]
    right = f"{most} rank{'s' if most > 1 else ''}"
    lines += [f"{'':{width}} +{'-' * (_WIDTH + 1)}", f"{'':{width}}  0{right:>{_WIDTH}}"]
    return "\n".join([*lines, *_legend(scaling)])


def _legend(scaling: Scaling) -> Iterator[str]:
    oversubscribed = [scaling.oversubscribed(launch) for launch in scaling.launches]
    if not all(oversubscribed):
        yield f"{_MEASURED}  measured"
    if any(oversubscribed):
        yield f"{_OVERSUBSCRIBED}  measured, oversubscribed"
    if scaling.alone:
        yield f"{_IDEAL}  ideal: N ranks are N times as fast as one"
