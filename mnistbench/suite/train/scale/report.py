"""Scaling over ranks -> a table, a figure made of characters, and data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from mnistbench.core import units
from mnistbench.core.options import plain
from mnistbench.core.params import device_label
from mnistbench.showing.plot import WIDTH, Plot
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table
from mnistbench.suite.train.scale.result import Launched, Scaling

_IDEAL = "."
_MEASURED = "o"
_OVERSUBSCRIBED = "x"


def report(scaling: Scaling) -> Report:
    """Return the whole report; the data have the time of every step."""
    drawn = table(scaling)
    records = [
        {
            **row,
            "batch_sizes": launch.batch_sizes,
            "steps_ns": launch.step_ns,
            "no_sync_steps_ns": launch.no_sync_ns,
        }
        for row, launch in zip(drawn.records(), scaling.launches, strict=True)
    ]
    data = document(
        "scale",
        settings=plain(scaling.settings, leave_out=("format", "output")),
        environment=asdict(scaling.environment),
        launches=records,
    )
    kind = scaling.settings.scaling
    title = f"{'Speedup' if scaling.alone else 'Samples per second'} over ranks, {kind} scaling"
    blocks = [Block("", tables=(drawn,)), Block(title, drawing=figure(scaling))]
    return Report(f"{kind} scaling over ranks", blocks, data, drawn)


def table(scaling: Scaling) -> Table:
    """Return a row for each number of ranks."""
    settings = scaling.settings
    device = device_label(settings.device, settings.dtype, compiled=False, step=settings.step)
    size = (
        f"{settings.batch_size} of all ranks"
        if settings.strong
        else f"{settings.batch_size_per_rank} of each rank"
    )
    title = (
        f"{settings.scaling} scaling, step {settings.model} on {settings.dataset}, {device}, "
        f"batch {size}"
    )
    columns: Sequence[Column[Launched]] = (
        Column("ranks", lambda launch: launch.ranks, units.count, key="ranks"),
        Column("threads", lambda _: settings.threads, units.count, key="threads"),
        Column(
            "batch per rank",
            lambda launch: sorted({min(launch.batch_sizes), max(launch.batch_sizes)}),
            _to(units.count),
        ),
        Column(None, lambda launch: " ".join(map(str, launch.batch_sizes)), key="batch_sizes"),
        Column(None, lambda launch: launch.samples, key="samples"),
        Column(
            "samples/s",
            lambda launch: launch.samples_per_s,
            lambda rate: units.count(round(rate)),
            key="samples_per_s",
        ),
        Column("step", lambda launch: launch.typical_ns, units.duration, key="step_ns"),
        Column("quartiles", lambda launch: launch.quartiles_ns, _to(units.duration)),
        Column(None, lambda launch: launch.quartiles_ns[0], key="step_first_quartile_ns"),
        Column(None, lambda launch: launch.quartiles_ns[1], key="step_third_quartile_ns"),
        Column(None, lambda launch: launch.no_sync_typical_ns, key="no_sync_step_ns"),
        Column(None, scaling.speedup, key="speedup"),
        Column("efficiency", scaling.efficiency, units.percent, key="efficiency"),
        Column(
            "exposed communication",
            lambda launch: launch.exposed_ns,
            units.duration,
            key="exposed_ns",
        ),
        Column("of step", lambda launch: launch.exposed_share, units.percent, key="exposed_share"),
        Column("note", lambda launch: "oversubscribed" if scaling.oversubscribed(launch) else ""),
        Column(None, scaling.oversubscribed, key="oversubscribed"),
    )
    return Table(title, columns, scaling.launches, lines=tuple(_sentences(scaling)))


def _to(shown: Callable[[int], str]) -> Callable[[Sequence[int]], str]:
    """Return a function that shows the bounds of a range: ``21 to 22``."""
    return lambda bounds: " to ".join(map(shown, bounds))


def _sentences(scaling: Scaling) -> Iterator[str]:
    """Yield what the columns mean, and why a number is missing."""
    steps = scaling.settings.iterations
    yield (
        f"A step's time is that of its slowest rank, the median of {steps} steps with quartiles; "
        "batches are made before it."
    )
    if any(launch.exposed_ns is not None for launch in scaling.launches):
        yield (
            "Exposed communication: step time minus the time of a step without communication "
            "(no_sync)."
        )
    if scaling.alone is None:
        yield "No efficiency, because it compares with one rank: --ranks must contain 1."
    if any(scaling.oversubscribed(launch) for launch in scaling.launches):
        cores = scaling.environment.cpu_count
        yield (
            f"Oversubscribed: more threads than the {cores} cores that can be used, so ranks wait "
            "for each other; such a row has no efficiency."
        )


def figure(scaling: Scaling) -> str:
    """Return the speedup over the number of ranks and the ideal line.

    Without a launch of one rank the figure shows the rate, and no line.

    Both axes are linear and begin at 0.
    """
    points = [
        (launch, scaling.speedup(launch) or launch.samples_per_s) for launch in scaling.launches
    ]
    most = max(launch.ranks for launch, _ in points)
    highest = max([value for _, value in points] + ([float(most)] if scaling.alone else []))
    plot = Plot((0, most), (0, highest))
    if scaling.alone:
        for column in range(0, WIDTH, 2):
            plot.put(most * column / (WIDTH - 1), most * column / (WIDTH - 1), _IDEAL)
    for launch, value in points:
        plot.put(
            launch.ranks, value, _OVERSUBSCRIBED if scaling.oversubscribed(launch) else _MEASURED
        )
    oversubscribed = [scaling.oversubscribed(launch) for launch in scaling.launches]
    legend = {
        f"{_MEASURED}  measured": not all(oversubscribed),
        f"{_OVERSUBSCRIBED}  measured, oversubscribed": any(oversubscribed),
        f"{_IDEAL}  ideal: N ranks are N times as fast as one": scaling.alone is not None,
    }
    top = units.factor(highest) if scaling.alone else units.count(round(highest))
    right = units.counted(most, "rank")
    return plot.drawn("0", top, "0", right, [line for line, is_shown in legend.items() if is_shown])
