"""Saved runs -> one HTML file that shows them: cases, operations, curves, what changed. Needs no network.

Everything that is written once is made here and by the templates in ``web/``; ``web/page.js`` only sorts, filters and
draws the rows of operation tables, which would be most of the page, when a case is opened.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined

from mnistbench import __version__
from mnistbench.compare.diff import OpChange, compare
from mnistbench.compare.exact import final_value
from mnistbench.compare.judge import CaseJudgement, Judgement, judge
from mnistbench.compare.thresholds import Criteria
from mnistbench.core import units
from mnistbench.core.allocator import status
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.record import CaseRecord, OpTable, Run, Scalars, median_ns
from mnistbench.report import charts
from mnistbench.report.comparison import blocks
from mnistbench.report.environment import environment_rows
from mnistbench.report.rows import Block, Column, Table, batch_groups, operation_cells, operation_table, ranked
from mnistbench.saved_runs.storage import SavedRun, read_json
from mnistbench.saved_runs.summary import RunSummary

#: Operations that stacked bars tell apart: as many colours as can be, and one for the rest.
STACKED = 7

#: Operations of a ledger before the rest is summed.
TOP = 10

#: Accuracies that the table of cases may show, the first there is.
_ACCURACIES = ("test/accuracy", "train/accuracy")


@dataclass(frozen=True)
class Shown:
    """A saved run with its samples, and how it is judged against others."""

    name: str  # of its file
    number: str  # of its file, or its name
    run: Run
    summary: RunSummary
    judgement: Judgement | None


def shown_runs(found: Iterable[SavedRun], bases: Sequence[SavedRun], criteria: Criteria) -> tuple[list[Shown], list[str]]:
    """Read the runs and judge each against the bases or, without any, against the one before it on the page.

    Returns:
        The runs, oldest first, and a line for each file that has nothing to show.

    Raises:
        UsageError: no run has anything to show.
    """
    unique = {saved.path.resolve(): saved for saved in found}
    ordered = sorted(unique.values(), key=lambda saved: (saved.run.saved_at, saved.path.name))
    shown: list[Shown] = []
    passed_over = []
    for saved in ordered:
        try:
            run = _whole(saved)
            before = [one.summary for one in shown[-1:]]
            others = [base.run for base in bases if base.path.resolve() != saved.path.resolve()] if bases else before
            judgement = _judgement(others, saved.run, criteria)
        except RecordError as error:
            passed_over.append(str(error))
            continue
        shown.append(
            Shown(
                name=saved.path.name,
                number=saved.number or saved.path.name,
                run=run,
                summary=saved.run,
                judgement=judgement,
            )
        )
    if not shown:
        several = f"none of {len(ordered)} saved runs can be shown, the first of them: " if len(ordered) > 1 else ""
        advice = "; save a run with: pytest bench --benchmark-autosave" if all(saved.run.plain for saved in ordered) else ""
        raise UsageError(f"{several}{passed_over[0]}{advice}")
    return shown, passed_over


def _whole(saved: SavedRun) -> Run:
    """Read a run with the samples and curves that its summary leaves out, where the file may be spoiled as well."""
    if saved.run.plain:
        raise RecordError(f"{saved.path}: no benchmark in it has an operation record")
    return Run.from_json(read_json(saved.path), str(saved.path))


def _judgement(bases: Sequence[RunSummary], now: RunSummary, criteria: Criteria) -> Judgement | None:
    if not bases:
        return None
    return judge(compare(bases, now, **criteria.of_comparison), criteria)


def page(runs: Sequence[Shown]) -> str:
    """Return the page, a whole HTML document."""
    templates = _templates()
    style, script = (templates.loader.get_source(templates, name)[0] for name in ("page.css", "page.js"))  # type: ignore[union-attr]
    text = templates.get_template("page.html").render(
        version=__version__,
        style=style,
        script=script,
        style_hash=_source_hash(style),
        script_hash=_source_hash(script),
        charts=charts,
        runs=[_run_view(number, shown) for number, shown in enumerate(runs)],
    )
    return text.rstrip("\n") + "\n"


@functools.cache
def _templates() -> Templates:
    templates = Templates(
        loader=PackageLoader("mnistbench", "report/web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    # ``tojson`` writes <, >, & and ' as \uXXXX, so no text can end the element that it stands in.
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return templates


def _printable(value: Any) -> Any:
    """Spell out what no page should get of a name: control characters, marks that turn the direction of text."""
    return units.printable(value) if type(value) is str else value


def _source_hash(text: str) -> str:
    """Return a hash-source of the Content Security Policy (https://www.w3.org/TR/CSP3/#grammardef-hash-source)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- One run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Text of a table with the number that it is sorted by."""

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
    data: dict[str, Any] | None  # what page.js draws; None for a case without tables
    curves: tuple[charts.LineChart, ...]
    curves_of: str
    notes: tuple[str, ...]
    attached: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _GroupView:
    table: Table
    bars: tuple[charts.BarChart, ...]
    curves: tuple[charts.LineChart, ...]


@dataclass(frozen=True)
class _LedgerView:
    """One compared case: its ledger, and every operation for who wants to search them."""

    id: str
    table: Table
    summary: str
    changes: list[list[Any]]


@dataclass(frozen=True)
class _RunView:
    id: str
    name: str
    number: str
    label: str
    machine: str
    columns: tuple[str, ...]
    cases: tuple[_CaseView, ...]
    groups: tuple[_GroupView, ...]
    environment: tuple[tuple[str, str], ...]
    report: tuple[Block, ...]  # lines and tables that are no ledger
    ledgers: tuple[_LedgerView, ...]


def _run_view(number: int, shown: Shown) -> _RunView:
    run, key = shown.run, f"r{number}"
    labels = Counter(_label(case) for case in run.cases)
    judged = {id(case.case.now): case for case in shown.judgement.cases} if shown.judgement else {}
    # The summary has the same cases in the same order: both leave out what is not ours.
    pairs = zip(run.cases, shown.summary.cases, strict=True)
    cases = tuple(
        _case_view(
            f"{key}c{position}",
            case,
            _label(case) if labels[_label(case)] == 1 else f"{_label(case)} ({case.node_id})",
            judged.get(id(summary)),
        )
        for position, (case, summary) in enumerate(pairs)
    )
    environment = run.environment
    report, ledgers = _report(key, shown.judgement)
    return _RunView(
        id=key,
        name=shown.name,
        number=shown.number,
        label=shown.summary.label,
        machine=f"{environment.cpu_model} x {environment.cpu_count}, torch {environment.torch}" if environment else "",
        columns=tuple(name for name in _COLUMNS if any(case.cells[name].value is not None for case in cases)),
        cases=cases,
        groups=tuple(_group_view(group) for group in batch_groups(run.cases) if len(group) > 1),
        environment=tuple(environment_rows(environment, status(environment.allocator))) if environment else (),
        report=report,
        ledgers=ledgers,
    )


def _label(case: CaseRecord) -> str:
    return f"{case.params.label} on {case.params.dataset}"


# ---- One case --------------------------------------------------------------------------------------------------------

_COLUMNS = ("median", "IQR", "samples/s", "device time", "first call", "final accuracy", "change")


def _case_view(key: str, case: CaseRecord, label: str, judged: CaseJudgement | None) -> _CaseView:
    timing, accuracy = case.timing, _accuracy(case.scalars)
    assert timing is not None, "a saved case has its timing"
    rate = case.samples * 1e9 / timing.median_ns if timing.median_ns else None
    cells = {
        "median": _time(timing.median_ns),
        "IQR": _time(timing.iqr_ns),
        "samples/s": Cell(units.MISSING if rate is None else units.count(round(rate)), rate),
        "device time": _time(median_ns(case.device_ns) if case.device_ns else None),
        "first call": _time(case.first_call_ns),
        "final accuracy": Cell(final_value(*accuracy), accuracy[1]) if accuracy else Cell(units.MISSING, None),
        "change": _change(judged),
    }
    drawn = "" if len(case.rounds_ns) == timing.rounds else f", {len(case.rounds_ns)} of them drawn"
    return _CaseView(
        id=key,
        label=label,
        cells=cells,
        spark=charts.sparkline(case.rounds_ns),
        spark_median=charts.median_at(case.rounds_ns),
        spark_text=(
            f"{timing.rounds} rounds{drawn}: {units.duration(min(case.rounds_ns))} to {units.duration(max(case.rounds_ns))}"
            if case.rounds_ns
            else f"{timing.rounds} rounds, none of them saved"
        ),
        facts=tuple(_facts(case)),
        data=_operations_data(case) if case.tables else None,
        curves=tuple(_curves(case.scalars)) if case.scalars else (),
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
    return Cell(f"{units.percent(share, signed=True)}, {judged.call.text}", share)


def _accuracy(scalars: Scalars | None) -> tuple[str, float | None] | None:
    final = scalars.final if scalars else {}
    return next(((tag, final[tag]) for tag in _ACCURACIES if tag in final), None)


def _facts(case: CaseRecord) -> Iterable[tuple[str, str]]:
    """Yield what is known of the case beside its tables: (name, text)."""
    params = case.params
    yield "test", case.node_id
    yield "model", f"{params.workload}, {case.parameter_count:,} parameters"
    yield "samples per call", units.count(case.samples)
    threads = f"{params.threads} thread{'s' if params.threads > 1 else ''}"
    compiled = ", compiled" if params.compile else ""
    yield "run with", f"{params.device}, {params.dtype}, {threads}, seed {params.seed}{compiled}"
    if case.timing:
        timing = case.timing
        times = {
            "median": timing.median_ns,
            "IQR": timing.iqr_ns,
            "min": timing.min_ns,
            "mean": timing.mean_ns,
            "SD": timing.stddev_ns,
        }
        shown = [f"{name} {units.duration(nanoseconds)}" for name, nanoseconds in times.items()]
        yield "untraced call", ", ".join([*shown, f"{units.count(timing.rounds)} rounds"])
    for table in case.tables:
        yield f"{table.temperature}, {_VIEWS[table.view]}", _of_table(table)
    if case.tables_in:
        yield "operations", f"see {case.tables_in}"
    if case.op_fail or case.case_fail:
        yield "its own limits", ", ".join([*case.op_fail, *([f"call {case.case_fail}"] if case.case_fail else [])])


_VIEWS = {"host": "host activities", "device": "host and device activities"}


def _of_table(table: OpTable) -> str:
    count, iteration = len(table.iteration_ns), units.duration(median_ns(table.iteration_ns))
    parts = [
        f"{count} profiled iterations of {iteration} (median)" if count != 1 else f"1 profiled iteration of {iteration}",
        f"sum of its operations {units.duration(table.total_ns)}",
    ]
    if table.temperature == "cold":
        parts.append("the first of its process" if table.first_of_process else "not the first of its process")
    if table.profiler_ns:
        parts.append(f"the profiler adds {units.duration(table.profiler_ns)} per call")
    return "; ".join(parts)


# ---- Operations, for page.js -----------------------------------------------------------------------------------------


def _operations_data(case: CaseRecord) -> dict[str, Any]:
    """Return the tables as rows of numbers, in the order that ``page.js`` names; names stand once for all tables."""
    keys: dict[tuple[str, str, str], int] = {}
    details: dict[tuple[str, str, str], set[str]] = {}
    tables = []
    for table in case.tables:
        rows = []
        for row in table.rows:
            position = keys.setdefault(row.key, len(keys))
            details.setdefault(row.key, set()).update(row.shapes, row.kernels)
            rows.append(
                [
                    position,
                    row.calls,
                    row.self_ns("cpu"),
                    row.spread_ns(table.clock),
                    median_ns(row.total_cpu_ns),
                    row.self_ns("device") if table.view == "device" else None,
                    row.memory_bytes,
                ]
            )
        tables.append({"temperature": table.temperature, "view": table.view, "rows": rows})
    return {
        "operations": [[*map(units.printable, (*operation_cells(*key), "; ".join(sorted(details[key]))))] for key in keys],
        "tables": tables,
    }


def _changes_data(operations: Iterable[OpChange]) -> list[list[Any]]:
    """Return a row per compared operation, in the order that ``page.js`` names."""
    return [
        [
            *map(units.printable, operation_cells(change.name, change.phase, change.module)),
            change.base_ns,
            change.now_ns,
            change.change_ns,
            change.base.calls if change.base else None,
            change.now.calls if change.now else None,
        ]
        for change in operations
    ]


# ---- Curves and batch sizes ------------------------------------------------------------------------------------------


def _curves(scalars: Scalars) -> Iterable[charts.LineChart]:
    """Yield a chart per quantity: train and test loss share one."""
    quantities = dict.fromkeys(tag.rpartition("/")[2] for tag in scalars.curves)
    for quantity in quantities:
        tags = [tag for tag in scalars.curves if tag.rpartition("/")[2] == quantity]
        across = "round" if tags[0].startswith("timing/") else "step"
        curves = [
            (tag.rpartition("/")[0] or tag, scalars.curves[tag], final_value(tag, scalars.final.get(tag))) for tag in tags
        ]
        if chart := charts.line_chart(_title(quantity), across, curves):
            yield chart


def _title(quantity: str) -> str:
    return quantity.replace("_", " ") + (" (%)" if quantity.endswith("accuracy") else "")


def _group_view(group: Sequence[CaseRecord]) -> _GroupView:
    """Return the operations of cases that differ only in batch size: as a table, and stacked by three measures."""
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
    return _GroupView(
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
    """Yield what training reached, a curve per batch size."""
    for tag in ("train/loss", "train/accuracy"):
        curves = [
            (
                f"b{case.params.batch_size}",
                case.scalars.curves[tag],
                final_value(tag, case.scalars.final.get(tag)),
            )
            for case in group
            if case.scalars and tag in case.scalars.curves
        ]
        if chart := charts.line_chart(_title(tag.replace("/", " ")), "step", curves):
            yield chart


def _stacked(column: Column, keys: Sequence[tuple[str, str, str]], divisor: float) -> Iterable[tuple[str, float, str]]:
    """Yield the parts of a bar: the first operations by number, the others together, and what lies outside."""
    parts = [
        *((str(number), operation_place(key), column.sum([key]) or 0) for number, key in enumerate(keys[:STACKED], 1)),
        ("other", f"other ({len(keys[STACKED:])} operations)", column.sum(keys[STACKED:]) or 0),
        ("outside", "outside operations", column.outside),
    ]
    for kind, name, nanoseconds in parts:
        if nanoseconds and divisor:
            share = units.percent(nanoseconds / column.total)
            yield kind, nanoseconds / divisor, f"{name}: {units.duration(nanoseconds)}, {share}"


def operation_place(key: tuple[str, str, str]) -> str:
    """Return an operation with its place: ``aten::mm, backward fc1``."""
    name, phase, module = operation_cells(*key)
    place = " ".join(part for part in (phase, module) if part != units.MISSING)
    return f"{name}, {place}" if place else name


# ---- What changed ----------------------------------------------------------------------------------------------------


def _report(key: str, judgement: Judgement | None) -> tuple[tuple[Block, ...], tuple[_LedgerView, ...]]:
    """Return the report of ``mnistbench compare``: its sentences, and the ledger of each case."""
    if judgement is None:
        return (), ()
    judged = [case for case in judgement.cases if case.operations]
    report, ledgers = [], []
    for block in blocks(judgement, TOP):
        # A ledger per case with operations comes first, then one table of the other cases.
        for position, (case, table) in enumerate(zip(judged, block.tables, strict=False)):
            ledgers.append(
                _LedgerView(
                    id=f"{key}d{position}",
                    table=table,
                    summary=f"{case.case.now.label}: {_change(case).text}",
                    changes=_changes_data(case.case.operations),
                )
            )
        report.append(Block(block.title, block.lines, block.tables[len(judged) :]))
    return tuple(block for block in report if block.lines or block.tables), tuple(ledgers)
