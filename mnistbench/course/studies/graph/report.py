"""The study of a program -> its graphs, code, times and schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mnistbench.core import units
from mnistbench.course.studies.graph.result import (
    BACKWARD_PART,
    COMPILED,
    EAGER,
    EXPRESSION,
    FORWARD,
    FORWARD_PART,
    JOINT,
    PARTS,
    Graph,
    Kernel,
    Loading,
    Study,
)
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table

#: Texts that can be shown in full.
TEXTS = ("forward", "joint", "code", "schedule")

#: Distinct operations of a graph in its row; the text of the graph has all of them.
_NAMED = 5

#: Longest name of a kernel in a table.
_WIDTH = 40


def blocks(study: Study, texts: Collection[str] | None = None) -> list[Block]:
    """Return the report.

    Args:
        study: of a program.
        texts: of TEXTS, those that are shown in full; None: all of them for the expression, and none for a workload.
    """
    shown = (TEXTS if study.settings.program == EXPRESSION else ()) if texts is None else texts
    found = [Block("", tables=(_graphs(study),))] if study.graphs else []
    found += [_drawing(study, kind) for kind in (FORWARD, JOINT) if kind in shown and study.of_kind(kind)]
    if study.code:
        found.append(Block("", tables=(_kernels(study),)))
    if "code" in shown:
        found += [
            Block(f"Generated code, {each.part}, {each.name}", drawing=each.code.strip()) for each in study.kernels if each.code
        ]
    found.append(Block("", tables=(_times(study),)))
    if "schedule" in shown and study.schedule:
        found.append(Block("", tables=(_schedule(study),)))
    if study.loading:
        found.append(Block("", tables=(_loading(study),)))
    return [*found, Block("Left out", lines=study.left_out)] if study.left_out else found


def _drawing(study: Study, kind: str) -> Block:
    return Block(f"{kind.capitalize()} graph", drawing="\n".join(graph.text.rstrip() for graph in study.of_kind(kind)))


# ---- Graphs ----------------------------------------------------------------------------------------------------------


def _graphs(study: Study) -> Table:
    return text_table(
        title=f"{study.source}: graphs",
        headings=("graph", "inputs", "nodes", "outputs", "MB in and out", "operations"),
        rows=tuple(_graph_row(graph) for graph in study.graphs),
        sums=(),
        numbers_from=1,
        words_after=1,
        lines=tuple(_graph_lines(study)),
    )


def _graph_row(graph: Graph) -> tuple[str, ...]:
    return (
        graph.kind,
        units.count(graph.inputs),
        units.count(len(graph.operations)),
        units.count(graph.outputs),
        units.MISSING if graph.moved_bytes is None else _megabytes(graph.moved_bytes),
        _counted(graph),
    )


def _counted(graph: Graph) -> str:
    named = [f"{name} x{number}" if number > 1 else name for name, number in graph.counts.most_common()]
    rest = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _graph_lines(study: Study) -> Iterator[str]:
    if (breaks := len(study.of_kind(FORWARD)) - 1) > 0:
        yield (
            f"Dynamo cannot trace the program as a whole: it has {breaks} graph break{'s' if breaks > 1 else ''}. "
            "The code between the graphs runs as eager operations, which are not among the kernels below."
        )
    if study.of_kind(FORWARD_PART) and study.of_kind(BACKWARD_PART):
        yield "The two parts are the joint graph, divided: what the backward part needs is an output of the forward part."


# ---- Kernels ---------------------------------------------------------------------------------------------------------


def _kernels(study: Study) -> Table:
    fusions, generated = (sum(getattr(kernel, kind) for kernel in study.kernels) for kind in ("is_fusion", "generated"))
    return text_table(
        title="kernels that the generated code calls",
        headings=("part", "kernel", "calls", "operations"),
        rows=tuple(_kernel_row(kernel) for kernel in study.kernels),
        sums=(),
        numbers_from=2,
        words_after=1,
        lines=(
            f"{fusions} of {generated} generated kernels fuse different operations.",
            "A name lists each operation once, also where the kernel computes it several times.",
        ),
    )


def _kernel_row(kernel: Kernel) -> tuple[str, ...]:
    name = kernel.name if len(kernel.name) <= _WIDTH else f"{kernel.name[: _WIDTH - 6]}...{kernel.name[-3:]}"
    operations = (", ".join(kernel.operations) or "copies only") if kernel.generated else "call of a library"
    return (kernel.part, name, units.count(kernel.launches), operations)


# ---- Times -----------------------------------------------------------------------------------------------------------


def _times(study: Study) -> Table:
    parts = [part for part in PARTS if part != "update" or study.settings.program != EXPRESSION]  # which has no weights
    settings = study.settings
    threads = f", {units.threads(settings.threads)}" if settings.device == "cpu" else ""
    return text_table(
        title=f"{study.source}, {settings.device}{threads}: eager and compiled",
        headings=(
            "part",
            "eager operations",
            "generated kernels",
            "library calls",
            "eager us",
            "compiled us",
            "times as fast",
            "quartiles",
        ),
        rows=tuple(_times_row(study, part) for part in parts),
        sums=(_times_row(study, "step"),),
        numbers_from=1,
        lines=tuple(_time_lines(study)),
    )


def _times_row(study: Study, part: str) -> tuple[str, ...]:
    ratio = study.ratio(part)
    return (
        part,
        *_numbers(study, part),
        units.microseconds(study.typical_ns(EAGER, part)),
        units.microseconds(study.typical_ns(COMPILED, part)) if study.compiled else units.MISSING,
        f"{ratio.median:.2f}" if ratio else units.MISSING,
        f"{ratio.first_quartile:.2f} to {ratio.third_quartile:.2f}" if ratio else units.MISSING,
    )


def _numbers(study: Study, part: str) -> tuple[str, str, str]:
    """Return the operations of eager execution, and the generated kernels and library calls of compiled execution."""
    passes = ("forward", "backward") if part == "step" else (part,)
    if part == "update":
        return (units.MISSING,) * 3
    eager = sum(len(getattr(study.dispatched, each)) for each in passes)
    if not study.code:
        return (units.count(eager), units.MISSING, units.MISSING)
    generated, library = (sum(study.launches(each, generated=kind) for each in passes) for kind in (True, False))
    return (units.count(eager), units.count(generated), units.count(library))


def _time_lines(study: Study) -> Iterator[str]:
    n_bytes = study.dispatched.moved_bytes
    least = study.least_bytes
    yield f"Eager operations read and write {_megabytes(n_bytes)} MB in the forward and the backward pass." + (
        f" One kernel for each pass would move {_megabytes(least)} MB, {units.factor(n_bytes / least)} times less."
        if least
        else ""
    )
    if study.compile_ns is None or study.start_ns is None:
        return
    yield (
        f"Compile time: {units.duration(study.compile_ns)}, after {units.duration(study.start_ns)} for a first tiny program, "
        "which starts the compiler with empty caches."
    )
    saved = study.typical_ns(EAGER) - study.typical_ns(COMPILED)
    if saved <= 0:
        yield f"A compiled step takes {units.duration(-saved)} more than an eager one."
        return
    steps = units.count(-(-study.compile_ns // saved))
    yield f"A compiled step takes {units.duration(saved)} less than an eager one: {steps} steps make up for the compile time."


# ---- Schedule --------------------------------------------------------------------------------------------------------


def _schedule(study: Study) -> Table:
    return text_table(
        title="schedule of one step, profiled",
        headings=("way", "start us", "us", "operation or kernel"),
        rows=tuple(
            (each.way, units.microseconds(each.start_ns), units.microseconds(each.duration_ns), each.name)
            for each in study.schedule
        ),
        sums=(),
        numbers_from=1,
        words_after=1,
    )


def _loading(study: Study) -> Table:
    return text_table(
        title=f"eager steps with batches of {study.settings.batch_size}, by how they are loaded",
        headings=("loading", "step us", "waiting us", "computing us"),
        rows=tuple(_loading_row(each) for each in study.loading),
        sums=(),
        numbers_from=1,
        lines=tuple(_loading_lines(study)),
    )


def _loading_row(each: Loading) -> tuple[str, ...]:
    return (
        each.name,
        units.microseconds(each.typical_ns),
        units.microseconds(each.typical_wait_ns),
        units.microseconds(each.typical_compute_ns),
    )


def _loading_lines(study: Study) -> Iterator[str]:
    resident, alone, loaded = study.loaded(None), study.loaded(0), study.loaded(study.settings.workers)
    if study.overlap is None or not resident or not alone or not loaded:
        return
    load = units.duration(alone.typical_wait_ns)
    yield f"{loaded.name}: {units.percent(study.overlap)} of the {load} in which a batch is loaded overlap with compute."
    change = loaded.typical_compute_ns / resident.typical_compute_ns - 1
    yield f"Computing takes {units.percent(abs(change))} {'more' if change > 0 else 'less'} time than with resident data."


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f}"
