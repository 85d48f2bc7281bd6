"""What the HTML page shows of each run.

Cases, facts, tables, curves, batch sizes as stacked bars, and the comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mnistbench.compare.exact import final_value
from mnistbench.compare.judge import CaseJudgement, Judgement
from mnistbench.compare.report import blocks, case_title
from mnistbench.core import units
from mnistbench.core.compiled.compilation import lines_of
from mnistbench.core.operation import operation_name
from mnistbench.core.params import CALL
from mnistbench.core.record import (
    CaseRecord,
    Environment,
    OpTable,
    Scalars,
    finite,
    median_ns,
)
from mnistbench.saved_runs.case_tables import batch_groups, batch_size_table
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.showing.environment import environment_rows
from mnistbench.showing.page import charts
from mnistbench.showing.report import Block
from mnistbench.showing.side_by_side import OperationColumn, SideBySide
from mnistbench.showing.table import Table

#: Operations of a comparison before the rest is summed.
TOP = 10

#: Operations with a colour of their own in stacked bars; more colours could not be told apart.
STACKED = 7

#: A shorter time of an iteration is damage, and a rate may be infinite.
_MIN_NS = 1e-3

#: Accuracies for the table of cases; it shows the first that exists.
_ACCURACIES = ("test/accuracy", "train/accuracy")

#: A cell of the table of cases: its text, and the number that it is sorted by.
Cell = tuple[str, float | None]

#: A compared case: its table, and a summary.
Ledger = tuple[Table, str]


@dataclass(frozen=True)
class PageRun:
    """A saved run with its samples, and its judgement against other runs."""

    saved: SavedRun
    run: Run
    judgement: Judgement | None


def run_view(number: int, shown: PageRun) -> dict[str, Any]:
    """Return what the template shows of the run that is the nth of the page."""
    run = shown.run
    is_trace = bool(run.trace)
    key = f"r{number}"
    judged = {case.case.head.key: case for case in shown.judgement.cases} if shown.judgement else {}
    cases = [
        {
            "id": f"{key}c{position}",
            "label": case.label,
            **_case_view(case, judged.get(case.key), is_trace=is_trace),
        }
        for position, case in enumerate(run.cases)
    ]
    recorded = _recorded_environment(run)
    if recorded is None:  # what its file has
        machine = units.listed(
            run.environment.get("devices") or run.environment.get("cpu_model") or ""
        )
        environment = [
            (name.replace("_", " "), units.listed(value)) for name, value in run.environment.items()
        ]
    else:
        machine = f"{recorded.cpu_model} x {recorded.cpu_count}, torch {recorded.torch}"
        environment = environment_rows(recorded)
    report, ledgers = _report(shown.judgement)
    return {
        "id": key,
        "saved": shown.saved,
        "machine": machine,
        "about": _about(run),
        "columns": [
            name for name in _COLUMNS if any(case["cells"][name][1] is not None for case in cases)
        ],
        "cases": cases,
        "groups": [_group_view(group) for group in batch_groups(run.cases) if len(group) > 1],
        "environment": environment,
        "report": report,
        "ledgers": ledgers,
    }


def _recorded_environment(run: Run) -> Environment | None:
    """Return the environment that a record has; None of a trace or a run of plain benchmarks."""
    names = {field.name for field in fields(Environment)}
    return Environment(**run.environment) if run.environment.keys() == names else None


def _about(run: Run) -> str:
    """Return what the times of the table of cases are, and what a click on a case shows."""
    if run.trace:
        return (
            "Times of one step, with the profiler; of the device its busy time. Open a case for "
            "its operations."
        )
    clocks = {case.timing.clock for case in run.cases if case.timing} - {"wall"}
    times = "Times" if not clocks else f"Times ({' or '.join(sorted(clocks))} time)"
    if run.plain:
        return f"{times} of one iteration. Open a case for its statistics."
    return f"{times} of one iteration without the profiler. Open a case for its operations."


# ---- One case ------------------------------------------------------------------------------------

_COLUMNS = (
    "median",
    "IQR",
    "samples/s",
    "device elapsed",
    "device busy",
    "first call",
    "final accuracy",
    "change",
)


def _case_view(case: CaseRecord, judged: CaseJudgement | None, *, is_trace: bool) -> dict[str, Any]:
    times_ns = _times_ns(case)
    rounds = case.timing.rounds if case.timing else None
    final = case.scalars.final if case.scalars else {}
    accuracy = next((tag for tag in _ACCURACIES if tag in final), None)
    change, change_share = _change(judged)
    if judged and judged.case.across_machines:  # the table of cases has no title that says it
        change = f"{change}, across machines"
    warm = case.table("warm", "device")
    median = times_ns["median"]
    has_samples = case.params is not None and case.params.phase != CALL
    rate = finite(case.samples * 1e9 / median) if median >= _MIN_NS and has_samples else None
    cells = {
        "median": _time(median),
        "IQR": _time(times_ns.get("IQR") if rounds != 1 else None),
        "samples/s": (units.MISSING if rate is None else units.count(round(rate)), rate),
        # The time of a trace's device is its busy time.
        "device elapsed": _time(
            median_ns(case.device_ns) if case.device_ns and not is_trace else None
        ),
        "device busy": _time(
            median_ns(warm.busy_ns) if warm and warm.busy_ns and not is_trace else None
        ),
        "first call": _time(case.first_call_ns),
        "final accuracy": (final_value(accuracy, final[accuracy]), final[accuracy])
        if accuracy
        else (units.MISSING, None),
        "change": (change, change_share),
    }
    unit = "step" if is_trace else "round"
    counted = f"number of {unit}s not saved" if rounds is None else units.counted(rounds, unit)
    drawn = "" if len(case.rounds_ns) == rounds else f", {len(case.rounds_ns)} of them drawn"
    facts = _times_and_tables(case, counted) if is_trace else _facts(case, counted)
    return {
        "record": case,
        "cells": cells,
        "rounds": (
            (
                f"{counted}{drawn}: {units.duration(min(case.rounds_ns))} to "
                f"{units.duration(max(case.rounds_ns))}"
            )
            if case.rounds_ns
            else f"{counted}, none of them saved"
        ),
        "facts": [*facts],
        "curves": [*_curves(case.scalars)] if case.scalars else [],
        "attached": [
            (name, json.dumps(value, ensure_ascii=False)) for name, value in case.attached.items()
        ],
    }


def _times_ns(case: CaseRecord) -> dict[str, float]:
    """Return the times that are known, by their names on the page."""
    timing = case.timing
    assert timing is not None, "a saved case has its timing"
    times_ns = {
        "median": timing.median_ns,
        "IQR": timing.iqr_ns,
        "min": timing.min_ns,
        "mean": timing.mean_ns,
        "SD": timing.stddev_ns,
    }
    return {name: ns for name, ns in times_ns.items() if ns is not None}


def _time(nanoseconds: float | None) -> Cell:
    return (units.MISSING if nanoseconds is None else units.duration(nanoseconds), nanoseconds)


def _change(judged: CaseJudgement | None) -> Cell:
    if judged is None or not judged.case.base_ns:
        return (units.MISSING, None)
    share = judged.case.change_ns / judged.case.base_ns
    return (f"{units.percent(share, signed=True)}, {judged.iteration.text}", share)


def _facts(case: CaseRecord, rounds: str) -> Iterable[tuple[str, str]]:
    """Yield the facts of a case besides its tables: (name, text)."""
    params = case.params
    yield "test", case.node_id
    if params is None:
        yield from _times_and_tables(case, rounds, "times")
        return
    if params.phase != CALL:
        yield "model", f"{params.workload}, {case.parameter_count:,} parameters"
        yield "samples per iteration", units.count(case.samples)
    threads = units.threads(params.threads)
    workload_settings = f", {params.dtype}, {threads}, seed {params.seed}{params.variant}"
    yield (
        "run with",
        f"{params.device}, {threads}"
        if params.phase == CALL
        else f"{params.device}{workload_settings}",
    )
    yield from _times_and_tables(case, rounds, "without the profiler")
    if case.tables_in:
        yield "operations", f"see {case.tables_in}"
    if case.op_fail or case.case_fail:
        yield (
            "thresholds of the test",
            ", ".join(
                [*case.op_fail, *([f"iteration {case.case_fail}"] if case.case_fail else [])]
            ),
        )


def _times_and_tables(
    case: CaseRecord, rounds: str, how: str = "with the profiler"
) -> Iterable[tuple[str, str]]:
    has_one_round = case.timing is not None and case.timing.rounds == 1
    times = [
        f"{name} {units.duration(ns)}"
        for name, ns in _times_ns(case).items()
        if not has_one_round or name == "median"
    ]
    if case.timing is not None and case.timing.clock != "wall":
        how = f"{how}, {case.timing.clock} time"
    yield how, ", ".join([*times, rounds])
    if case.compilation:
        for line in lines_of(case.compilation):
            yield "torch.compile", line
    for table in case.whole_tables:
        yield f"{table.temperature}, {_VIEWS[table.view]}", _of_table(table)


_VIEWS = {
    "host": "host activities",
    "device": "host and device activities",
    "functions": "functions of Python",
}


def _of_table(table: OpTable) -> str:
    count = len(table.iteration_ns)
    iteration = units.duration(median_ns(table.iteration_ns))
    parts_of_sum = "functions" if table.view == "functions" else "operations"
    parts = [
        f"{count} profiled iterations of {iteration} (median)"
        if count != 1
        else f"1 profiled iteration of {iteration}",
        f"sum of its {parts_of_sum} {units.duration(table.total_ns)}",
    ]
    if table.temperature == "cold":
        parts.append(
            "the first of its process" if table.first_of_process else "not the first of its process"
        )
    if table.busy_ns:
        parts.append(f"accelerator busy for {units.duration(median_ns(table.busy_ns))}")
    if table.profiler_ns:
        parts.append(f"profiler overhead {units.duration(table.profiler_ns)} per operation call")
    return "; ".join(parts)


# ---- What changed --------------------------------------------------------------------------------


def _report(judgement: Judgement | None) -> tuple[tuple[Block, ...], tuple[Ledger, ...]]:
    """Return the report of ``mnistbench compare``: its sentences, and the table of each case."""
    if judgement is None:
        return (), ()
    judged = [case for case in judgement.cases if case.operations]
    report: list[Block] = []
    ledgers: list[Ledger] = []
    for block in blocks(judgement, TOP):
        # A table per case with operations comes first, then one table of the other cases.
        ledgers += [
            (table, f"{case_title(case.case)}: {_change(case)[0]}")
            for case, table in zip(judged, block.tables, strict=False)
        ]
        report.append(Block(block.title, block.lines, block.tables[len(judged) :]))
    return tuple(block for block in report if block.lines or block.tables), tuple(ledgers)


# ---- Curves and batch sizes ----------------------------------------------------------------------


def _curves(scalars: Scalars) -> Iterable[charts.LineChart]:
    """Yield a chart per quantity: train and test loss share one."""
    quantities = dict.fromkeys(tag.rpartition("/")[2] for tag in scalars.curves)
    for quantity in quantities:
        tags = [tag for tag in scalars.curves if tag.rpartition("/")[2] == quantity]
        across = "round" if tags[0].startswith("timing/") else "step"
        named = [
            (
                tag.rpartition("/")[0] or tag,
                scalars.curves[tag],
                final_value(tag, scalars.final.get(tag)),
            )
            for tag in tags
        ]
        if chart := charts.line_chart(_title(quantity), across, named):
            yield chart


def _title(quantity: str) -> str:
    return quantity.replace("_", " ") + (" (%)" if quantity.endswith("accuracy") else "")


def _group_view(group: Sequence[CaseRecord]) -> dict[str, Any]:
    """Return the operations of cases that differ only in batch size.

    They are a table, and bars of three measures.
    """
    tables = [table for case in group if (table := case.table("warm"))]
    columns = [OperationColumn.from_table(table) for table in tables]
    keys = SideBySide(columns).ranked
    samples = [case.samples for case in group]
    totals = [column.total for column in columns]
    measures = (
        ("share of an iteration", totals, [units.duration(total) for total in totals]),
        ("time per iteration", [1] * len(group), [units.duration(total) for total in totals]),
        (
            "time per sample",
            samples,
            [
                units.duration(total / count) if count else units.MISSING
                for total, count in zip(totals, samples, strict=True)
            ],
        ),
    )
    return {
        "table": batch_size_table(group, STACKED),
        "bars": [
            charts.bar_chart(
                name,
                [
                    (
                        f"b{case.known_params.batch_size}",
                        list(_stacked(column, keys, divisor)),
                        total,
                    )
                    for case, column, divisor, total in zip(
                        group, columns, divisors, texts, strict=True
                    )
                ],
            )
            for name, divisors, texts in measures
        ],
        "curves": [*_curves_of_sizes(group)],
    }


def _curves_of_sizes(group: Sequence[CaseRecord]) -> Iterable[charts.LineChart]:
    """Yield charts of loss and accuracy, a curve per batch size."""
    for tag in ("train/loss", "train/accuracy"):
        named = [
            (
                f"b{case.known_params.batch_size}",
                case.scalars.curves[tag],
                final_value(tag, case.scalars.final.get(tag)),
            )
            for case in group
            if case.scalars and tag in case.scalars.curves
        ]
        if chart := charts.line_chart(_title(tag.replace("/", " ")), "step", named):
            yield chart


def _stacked(
    column: OperationColumn, keys: Sequence[tuple[str, str, str]], divisor: float
) -> Iterable[tuple[str, float, str]]:
    """Yield the parts of a bar.

    Numbered operations, the other operations together, and what is no operation.
    """
    parts = [
        *(
            (str(number), operation_name(*key), column.sum([key]) or 0)
            for number, key in enumerate(keys[:STACKED], 1)
        ),
        (
            "other",
            f"other ({units.counted(len(keys[STACKED:]), 'operation')})",
            column.sum(keys[STACKED:]) or 0,
        ),
        *(
            ("outside", operation_name(name, "", ""), column.rest[name])
            for name in SideBySide([column]).rest_names
        ),
    ]
    for kind, name, nanoseconds in parts:
        if nanoseconds and divisor:
            share = units.percent(nanoseconds / column.total)
            yield kind, nanoseconds / divisor, f"{name}: {units.duration(nanoseconds)}, {share}"
