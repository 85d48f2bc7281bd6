"""What the HTML page draws: curves over steps, and the operations of several batch sizes as stacked bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mnistbench.compare.exact import final_value
from mnistbench.core import units
from mnistbench.core.operation import operation_name
from mnistbench.core.record import CaseRecord, Scalars
from mnistbench.page import charts
from mnistbench.saved_runs.operation_tables import Column, operation_table, ranked, rest_names
from mnistbench.showing.table import Table

#: Operations with a colour of their own in stacked bars; more colours could not be told apart.
STACKED = 7


@dataclass(frozen=True)
class GroupView:
    """Cases that differ only in batch size."""

    table: Table
    bars: tuple[charts.BarChart, ...]
    curves: tuple[charts.LineChart, ...]


def curves(scalars: Scalars) -> Iterable[charts.LineChart]:
    """Yield a chart per quantity: train and test loss share one."""
    quantities = dict.fromkeys(tag.rpartition("/")[2] for tag in scalars.curves)
    for quantity in quantities:
        tags = [tag for tag in scalars.curves if tag.rpartition("/")[2] == quantity]
        across = "round" if tags[0].startswith("timing/") else "step"
        named = [(tag.rpartition("/")[0] or tag, scalars.curves[tag], final_value(tag, scalars.final.get(tag))) for tag in tags]
        if chart := charts.line_chart(_title(quantity), across, named):
            yield chart


def _title(quantity: str) -> str:
    return quantity.replace("_", " ") + (" (%)" if quantity.endswith("accuracy") else "")


def group_view(group: Sequence[CaseRecord]) -> GroupView:
    """Return the operations of cases that differ only in batch size, as a table and as bars of three measures."""
    columns = [Column(table) for case in group if (table := case.table("warm"))]
    keys = ranked(columns)
    samples = [case.samples for case in group]
    totals = [column.total for column in columns]
    measures = (
        ("share of an iteration", totals, [units.duration(total) for total in totals]),
        ("time per iteration", [1] * len(group), [units.duration(total) for total in totals]),
        (
            "time per sample",
            samples,
            [units.duration(total / count) if count else units.MISSING for total, count in zip(totals, samples, strict=True)],
        ),
    )
    return GroupView(
        table=operation_table(group, STACKED),
        bars=tuple(
            charts.bar_chart(
                name,
                [
                    charts.Stack(f"b{case.params.batch_size}", tuple(_stacked(column, keys, divisor)), total)
                    for case, column, divisor, total in zip(group, columns, divisors, texts, strict=True)
                ],
            )
            for name, divisors, texts in measures
        ),
        curves=tuple(_curves_of_sizes(group)),
    )


def _curves_of_sizes(group: Sequence[CaseRecord]) -> Iterable[charts.LineChart]:
    """Yield charts of loss and accuracy, a curve per batch size."""
    for tag in ("train/loss", "train/accuracy"):
        named = [
            (
                f"b{case.params.batch_size}",
                case.scalars.curves[tag],
                final_value(tag, case.scalars.final.get(tag)),
            )
            for case in group
            if case.scalars and tag in case.scalars.curves
        ]
        if chart := charts.line_chart(_title(tag.replace("/", " ")), "step", named):
            yield chart


def _stacked(column: Column, keys: Sequence[tuple[str, str, str]], divisor: float) -> Iterable[tuple[str, float, str]]:
    """Yield the parts of a bar: numbered operations, the other operations together, and what is no operation."""
    parts = [
        *((str(number), operation_name(*key), column.sum([key]) or 0) for number, key in enumerate(keys[:STACKED], 1)),
        ("other", f"other ({len(keys[STACKED:])} operations)", column.sum(keys[STACKED:]) or 0),
        *(("outside", operation_name(name, "", ""), column.rest[name]) for name in rest_names([column])),
    ]
    for kind, name, nanoseconds in parts:
        if nanoseconds and divisor:
            share = units.percent(nanoseconds / column.total)
            yield kind, nanoseconds / divisor, f"{name}: {units.duration(nanoseconds)}, {share}"
