"""What the HTML page shows of each run: its cases, their facts and tables, and the report of its comparison."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mnistbench.compare.diff import OpChange
from mnistbench.compare.exact import final_value
from mnistbench.compare.judge import CaseJudgement, Judgement
from mnistbench.compare.report import blocks, case_title
from mnistbench.core import units
from mnistbench.core.machine import allocator_status
from mnistbench.core.params import CALL, REFERENCE
from mnistbench.core.record import CaseRecord, OpTable, Scalars, median_ns
from mnistbench.measuring.command import environment_rows
from mnistbench.page import charts
from mnistbench.page.operation_charts import GroupView, curves, group_view
from mnistbench.page.runs import Shown
from mnistbench.saved_runs.operation_tables import batch_groups
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table

#: Operations of a comparison before the rest is summed.
TOP = 10

#: Accuracies for the table of cases; it shows the first that exists.
_ACCURACIES = ("test/accuracy", "train/accuracy")


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and the number that it is sorted by."""

    text: str
    value: float | None


@dataclass(frozen=True)
class _CaseView:
    id: str
    label: str
    cells: Mapping[str, Cell]  # column -> cell
    spark: str
    spark_median: float
    spark_text: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[OpTable, ...]
    curves: tuple[charts.LineChart, ...]
    curves_of: str
    notes: tuple[str, ...]
    attached: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _LedgerView:
    """One compared case: its table, and all operations for searching."""

    id: str
    table: Table
    summary: str
    operations: tuple[OpChange, ...]


@dataclass(frozen=True)
class RunView:
    """One run as the templates take it."""

    id: str
    name: str
    number: str
    label: str
    machine: str
    is_trace: bool
    columns: tuple[str, ...]
    cases: tuple[_CaseView, ...]
    groups: tuple[GroupView, ...]
    environment: tuple[tuple[str, str], ...]
    report: tuple[Block, ...]  # without the tables of ledgers
    ledgers: tuple[_LedgerView, ...]


def run_view(number: int, shown: Shown) -> RunView:
    """Return the view of the run that is the nth of the page."""
    run, key = shown.run, f"r{number}"
    labels = Counter(_label(case) for case in run.cases)
    judged = {id(case.case.head): case for case in shown.judgement.cases} if shown.judgement else {}
    # The summary has the same cases in the same order: both leave out plain benchmarks.
    pairs = zip(run.cases, shown.summary.cases, strict=True)
    cases = tuple(
        _case_view(
            f"{key}c{position}",
            case,
            _label(case) if labels[_label(case)] == 1 else f"{_label(case)} ({case.node_id})",
            judged.get(id(summary)),
            is_trace=bool(shown.summary.trace),
        )
        for position, (case, summary) in enumerate(pairs)
    )
    machine, environment = _machine(shown)
    report, ledgers = _report(key, shown.judgement)
    return RunView(
        id=key,
        name=shown.name,
        number=shown.number,
        label=shown.summary.label,
        machine=machine,
        is_trace=bool(shown.summary.trace),
        columns=tuple(name for name in _COLUMNS if any(case.cells[name].value is not None for case in cases)),
        cases=cases,
        groups=tuple(group_view(group) for group in batch_groups(run.cases) if len(group) > 1),
        environment=environment,
        report=report,
        ledgers=ledgers,
    )


def _machine(shown: Shown) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the machine in short, and the rows of the environment."""
    environment, recorded = shown.run.environment, shown.summary.environment
    if environment:
        short = f"{environment.cpu_model} x {environment.cpu_count}, torch {environment.torch}"
        return short, tuple(environment_rows(environment, allocator_status(environment.allocator)))
    if shown.summary.trace:
        rows = tuple((name.replace("_", " "), units.listed(value)) for name, value in recorded.items())
        return units.listed(recorded["devices"]), rows
    return "", ()


def _label(case: CaseRecord) -> str:
    return case.params.title


# ---- One case --------------------------------------------------------------------------------------------------------

_COLUMNS = ("median", "IQR", "samples/s", "device elapsed", "device busy", "first call", "final accuracy", "change")


def _case_view(key: str, case: CaseRecord, label: str, judged: CaseJudgement | None, *, is_trace: bool) -> _CaseView:
    timing, accuracy = case.timing, _accuracy(case.scalars)
    assert timing is not None, "a saved case has its timing"
    warm = case.table("warm", "device")
    rate = case.samples * 1e9 / timing.median_ns if timing.median_ns and case.params.phase != CALL else None
    cells = {
        "median": _time(timing.median_ns),
        "IQR": _time(timing.iqr_ns if timing.rounds > 1 else None),
        "samples/s": Cell(units.MISSING if rate is None else units.count(round(rate)), rate),
        # The time of a trace's device is its busy time.
        "device elapsed": _time(median_ns(case.device_ns) if case.device_ns and not is_trace else None),
        "device busy": _time(median_ns(warm.busy_ns) if warm and warm.busy_ns and not is_trace else None),
        "first call": _time(case.first_call_ns),
        "final accuracy": Cell(final_value(*accuracy), accuracy[1]) if accuracy else Cell(units.MISSING, None),
        "change": _change_of_table(judged),
    }
    rounds = "step" if is_trace else "round"
    rounds = f"{timing.rounds} {rounds}{'s' if timing.rounds > 1 else ''}"
    drawn = "" if len(case.rounds_ns) == timing.rounds else f", {len(case.rounds_ns)} of them drawn"
    return _CaseView(
        id=key,
        label=label,
        cells=cells,
        spark=charts.sparkline(case.rounds_ns),
        spark_median=charts.median_at(case.rounds_ns),
        spark_text=(
            f"{rounds}{drawn}: {units.duration(min(case.rounds_ns))} to {units.duration(max(case.rounds_ns))}"
            if case.rounds_ns
            else f"{rounds}, none of them saved"
        ),
        facts=tuple(_times_and_tables(case, rounds) if is_trace else _facts(case, rounds)),
        tables=case.tables,
        curves=tuple(curves(case.scalars)) if case.scalars else (),
        curves_of=case.scalars.dataset if case.scalars else "",
        notes=case.notes,
        attached=tuple((name, json.dumps(value, ensure_ascii=False)) for name, value in case.attached.items()),
    )


def _time(nanoseconds: int | None) -> Cell:
    return Cell(units.MISSING if nanoseconds is None else units.duration(nanoseconds), nanoseconds)


def _change(judged: CaseJudgement | None) -> Cell:
    if judged is None or not judged.case.base_ns:
        return Cell(units.MISSING, None)
    share = judged.case.change_ns / judged.case.base_ns
    return Cell(f"{units.percent(share, signed=True)}, {judged.iteration.text}", share)


def _change_of_table(judged: CaseJudgement | None) -> Cell:
    """Return the change for the table of cases, which has no title that names the machines."""
    cell = _change(judged)
    return replace(cell, text=f"{cell.text}, across machines") if judged and judged.case.across_machines else cell


def _accuracy(scalars: Scalars | None) -> tuple[str, float | None] | None:
    final = scalars.final if scalars else {}
    return next(((tag, final[tag]) for tag in _ACCURACIES if tag in final), None)


def _facts(case: CaseRecord, rounds: str) -> Iterable[tuple[str, str]]:
    """Yield the facts of a case besides its tables: (name, text)."""
    params = case.params
    yield "test", case.node_id
    if params.phase != CALL:
        yield "model", f"{params.workload}, {case.parameter_count:,} parameters"
        yield "samples per iteration", units.count(case.samples)
    threads = units.threads(params.threads)
    others = (", compiled" if params.compile else "") + (f", {params.step} step" if params.step != REFERENCE else "")
    of_workload = f", {params.dtype}, {threads}, seed {params.seed}{others}"
    yield "run with", f"{params.device}, {threads}" if params.phase == CALL else f"{params.device}{of_workload}"
    yield from _times_and_tables(case, rounds, "without the profiler")
    if case.tables_in:
        yield "operations", f"see {case.tables_in}"
    if case.op_fail or case.case_fail:
        yield "thresholds of the test", ", ".join([*case.op_fail, *([f"iteration {case.case_fail}"] if case.case_fail else [])])


def _times_and_tables(case: CaseRecord, rounds: str, how: str = "with the profiler") -> Iterable[tuple[str, str]]:
    if case.timing:
        timing = case.timing
        times = {
            "median": timing.median_ns,
            "IQR": timing.iqr_ns,
            "min": timing.min_ns,
            "mean": timing.mean_ns,
            "SD": timing.stddev_ns,
        }
        shown = [f"{name} {units.duration(ns)}" for name, ns in times.items() if timing.rounds > 1 or name == "median"]
        yield how, ", ".join([*shown, rounds])
    for table in case.tables:
        yield f"{table.temperature}, {_VIEWS[table.view]}", _of_table(table)


_VIEWS = {"host": "host activities", "device": "host and device activities"}


def _of_table(table: OpTable) -> str:
    count, iteration = len(table.iteration_ns), units.duration(median_ns(table.iteration_ns))
    parts = [
        f"{count} profiled iterations of {iteration} (median)" if count != 1 else f"1 profiled iteration of {iteration}",
        f"sum of its operations {units.duration(table.total_ns)}",
    ]
    if table.temperature == "cold":
        parts.append("the first of its process" if table.first_of_process else "not the first of its process")
    if table.busy_ns:
        parts.append(f"accelerator busy for {units.duration(median_ns(table.busy_ns))}")
    if table.profiler_ns:
        parts.append(f"profiler overhead {units.duration(table.profiler_ns)} per operation call")
    return "; ".join(parts)


# ---- What changed ----------------------------------------------------------------------------------------------------


def _report(key: str, judgement: Judgement | None) -> tuple[tuple[Block, ...], tuple[_LedgerView, ...]]:
    """Return the report of ``mnistbench compare``: its sentences, and the table of each case."""
    if judgement is None:
        return (), ()
    judged = [case for case in judgement.cases if case.operations]
    report, ledgers = [], []
    for block in blocks(judgement, TOP):
        # A table per case with operations comes first, then one table of the other cases.
        for position, (case, table) in enumerate(zip(judged, block.tables, strict=False)):
            ledgers.append(
                _LedgerView(
                    id=f"{key}d{position}",
                    table=table,
                    summary=f"{case_title(case.case)}: {_change(case).text}",
                    operations=case.case.operations,
                )
            )
        report.append(Block(block.title, block.lines, block.tables[len(judged) :]))
    return tuple(block for block in report if block.lines or block.tables), tuple(ledgers)
