"""The result of ``mnistbench study graph``.

Its graphs, code, times and schedule as tables and texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from mnistbench.core import units
from mnistbench.course.studies.graph import study as result
from mnistbench.course.studies.study import machine
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table

#: Distinct operations of a graph in its row; the text of the graph has all of them.
_NAMED = 5

#: Longest name of a kernel in a table.
_WIDTH = 40


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f}"


def _counted(graph: result.Graph) -> str:
    counts = Counter(graph.operations)
    named = [f"{name} x{number}" if number > 1 else name for name, number in counts.most_common()]
    rest = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


GRAPHS: tuple[Column[result.Graph], ...] = (
    Column("graph", lambda graph: graph.kind),
    Column("inputs", lambda graph: graph.inputs, units.count),
    Column("nodes", lambda graph: len(graph.operations), units.count),
    Column("outputs", lambda graph: graph.outputs, units.count),
    Column("MB in and out", lambda graph: graph.moved_bytes, _megabytes),
    Column("operations", _counted),
)


KERNELS: tuple[Column[result.CalledKernel], ...] = (
    Column("part", lambda kernel: kernel.part),
    Column(
        "kernel",
        lambda kernel: (
            kernel.name
            if len(kernel.name) <= _WIDTH
            else f"{kernel.name[: _WIDTH - 6]}...{kernel.name[-3:]}"
        ),
    ),
    Column("calls", lambda kernel: kernel.launches, units.count),
    Column(
        "operations",
        lambda kernel: (
            (", ".join(kernel.operations) or "copies only")
            if kernel.generated
            else "call of a library"
        ),
    ),
)


def times_of(study: result.GraphStudy) -> tuple[Column[str], ...]:
    """Return the columns of a table whose rows are parts of a step, or the whole ``step``."""

    def ratio(part: str, quartile: int) -> float | None:
        quartiles = study.ratio_quartiles(part)
        return quartiles[quartile - 1] if quartiles else None

    return (
        Column(None, lambda _: study.settings.program, key="program"),
        Column("part", lambda part: part, key="part"),
        Column("eager operations", study.eager_operations, units.count, "eager_operations"),
        Column(
            "generated kernels",
            lambda part: study.launches(part, generated=True),
            units.count,
            "generated_kernels",
        ),
        Column(
            "library calls",
            lambda part: study.launches(part, generated=False),
            units.count,
            "library_kernels",
        ),
        Column(
            "eager time",
            lambda part: study.typical_ns(result.EAGER, part),
            units.duration,
            "eager_ns",
        ),
        Column(
            "compiled time",
            lambda part: study.typical_ns(result.COMPILED, part) if study.compiled else None,
            units.duration,
            "compiled_ns",
        ),
        Column("times as fast", lambda part: ratio(part, 2), "{:.2f}".format, "ratio"),
        Column(
            "quartiles",
            lambda part: ratio(part, 1) and f"{ratio(part, 1):.2f} to {ratio(part, 3):.2f}",
            str,
        ),
        Column(None, lambda part: ratio(part, 1), key="ratio_first_quartile"),
        Column(None, lambda part: ratio(part, 3), key="ratio_third_quartile"),
    )


SCHEDULE: tuple[Column[result.Scheduled], ...] = (
    Column("way", lambda each: each.way),
    Column("start", lambda each: each.start_ns, units.duration),
    Column("time", lambda each: each.duration_ns, units.duration),
    Column("operation or kernel", lambda each: each.name),
)

LOADING: tuple[Column[result.Loading], ...] = (
    Column("loading", lambda each: each.name),
    Column("step", lambda each: each.typical_ns, units.duration),
    Column("waiting", lambda each: each.typical_wait_ns, units.duration),
    Column("computing", lambda each: each.typical_compute_ns, units.duration),
)


def report_of(study: result.GraphStudy) -> Report:
    """Return the tables, and the texts that are shown in full.

    By default all of the expression, and none of a workload.
    """
    settings = study.settings
    shown = (
        (result.TEXTS if settings.program == result.EXPRESSION else ())
        if settings.show is None
        else settings.show
    )
    # It has no weights.
    parts = [
        part for part in result.PARTS if part != "update" or settings.program != result.EXPRESSION
    ]
    columns = times_of(study)
    where = machine(settings.device, settings.threads)
    graph_lines, time_lines, loading_lines = (
        tuple(of(study)) for of in (_graph_lines, _time_lines, _loading_lines)
    )
    times = Table(
        f"{study.source}, {where}: eager and compiled", columns, parts, ["step"], time_lines
    )
    loading = f"eager steps with batches of {settings.batch_size}, by how they are loaded"
    blocks = [
        *_blocks(Table(f"{study.source}: graphs", GRAPHS, study.graphs, lines=graph_lines)),
        *(
            Block(
                f"{kind.capitalize()} graph",
                drawing="\n".join(graph.text.rstrip() for graph in found),
            )
            for kind in (result.FORWARD, result.JOINT)
            if kind in shown and (found := study.of_kind(kind))
        ),
        *(_blocks(_kernels(study)) if study.code else []),
        *(
            Block(f"Generated code, {each.part}, {each.name}", drawing=each.code.strip())
            for each in study.kernels
            if each.code and "code" in shown
        ),
        *_blocks(times),
        *_blocks(
            Table(
                "schedule of one step, profiled",
                SCHEDULE,
                study.schedule if "schedule" in shown else (),
            )
        ),
        *_blocks(Table(loading, LOADING, study.loading, lines=loading_lines)),
        *([Block("Left out", lines=study.left_out)] if study.left_out else []),
    ]
    names = ("program", "size", "batch_size", "workers", "device", "threads", "dataset", "seconds")
    every = Table("", columns, [*parts, "step"])
    values = asdict(study) | {
        "settings": {name: getattr(settings, name) for name in names},
        "parts": every.records(),
        "compile_ns": study.compile_ns,
        "least_bytes": study.least_bytes,
        "overlap": study.overlap,
    }
    return Report("from program to schedule", blocks, document("graph", **values), every)


def _blocks(table: Table) -> list[Block]:
    """Return a block with the table, if it has rows."""
    return [Block("", tables=(table,))] if table.rows else []


def _graph_lines(study: result.GraphStudy) -> Iterator[str]:
    if (breaks := len(study.of_kind(result.FORWARD)) - 1) > 0:
        yield (
            f"Dynamo cannot trace the program as a whole: it has {breaks} graph "
            f"break{'s' if breaks > 1 else ''}. The code between the graphs runs as eager "
            "operations, which are not among the kernels below."
        )
    if study.of_kind(result.FORWARD_PART) and study.of_kind(result.BACKWARD_PART):
        yield (
            "The two parts are the joint graph, divided: what the backward part needs is an "
            "output of the forward part."
        )


def _kernels(study: result.GraphStudy) -> Table:
    fusions = sum(len(kernel.operations) > 1 for kernel in study.kernels)
    lines = (
        (
            f"{fusions} of {sum(kernel.generated for kernel in study.kernels)} generated kernels "
            "fuse different operations."
        ),
        "A name lists each operation once, also where the kernel computes it several times.",
    )
    return Table("kernels that the generated code calls", KERNELS, study.kernels, lines=lines)


def _time_lines(study: result.GraphStudy) -> Iterator[str]:
    n_bytes = study.dispatched.moved_bytes
    least = study.least_bytes
    yield (
        (
            f"Eager operations read and write {_megabytes(n_bytes)} MB in the forward and the "
            "backward pass."
        )
        + (
            (
                f" One kernel for each pass would move {_megabytes(least)} MB, "
                f"{units.factor(n_bytes / least)} times less."
            )
            if least
            else ""
        )
    )
    if study.compile_ns is None or study.start_ns is None:
        return
    yield (
        f"Compile time: {units.duration(study.compile_ns)}, after "
        f"{units.duration(study.start_ns)} for a first tiny program, which starts the compiler "
        "with empty caches."
    )
    saved = study.typical_ns(result.EAGER) - study.typical_ns(result.COMPILED)
    if saved <= 0:
        yield f"A compiled step takes {units.duration(-saved)} more than an eager one."
        return
    steps = units.count(-(-study.compile_ns // saved))
    yield (
        f"A compiled step takes {units.duration(saved)} less than an eager one: {steps} steps "
        "make up for the compile time."
    )


def _loading_lines(study: result.GraphStudy) -> Iterator[str]:
    resident = study.loaded(None)
    alone = study.loaded(0)
    loaded = study.loaded(study.settings.workers)
    if study.overlap is None or not resident or not alone or not loaded:
        return
    load = units.duration(alone.typical_wait_ns)
    yield (
        f"{loaded.name}: {units.percent(study.overlap)} of the {load} in which a batch is loaded "
        "overlap with compute."
    )
    change = loaded.typical_compute_ns / resident.typical_compute_ns - 1
    yield (
        f"Computing takes {units.percent(abs(change))} {'more' if change > 0 else 'less'} time "
        "than with resident data."
    )
