"""``mnistbench study graph``: its settings, its result, its tables and texts.

Does not import torch. Times are integer nanoseconds, sizes are bytes, shares are fractions of 1.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mnistbench.core import options, units
from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch
from mnistbench.core.options import (
    option,
    options_of,
    path,
    some_of,
    whole,
)
from mnistbench.core.record import median_ns
from mnistbench.course.studies.study import machine, run_study
from mnistbench.showing.output import CommandResult, check_directory
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table
from mnistbench.suite import case_options
from mnistbench.suite.measuring.torch_import import import_torch
from mnistbench.suite.workloads.builtin import MODELS

#: The program that is studied unless a workload is given.
EXPRESSION = "x*y + z"

#: Kind of a graph: Dynamo's graph of the program.
FORWARD = "forward"
#: Kind of a graph: AOTAutograd's graph of both passes.
JOINT = "joint"
#: Kind of a graph: the forward part of the joint graph.
FORWARD_PART = "forward part"
#: Kind of a graph: the backward part of the joint graph.
BACKWARD_PART = "backward part"

#: How a program runs: operation by operation.
EAGER = "eager"
#: How a program runs: compiled by ``torch.compile``.
COMPILED = "compiled"

#: What a step consists of.
PARTS = ("forward", "backward", "update")

#: Part of a step, or the whole -> its passes, whose operations are counted.
_PASSES = {"forward": ("forward",), "backward": ("backward",), "step": ("forward", "backward")}

#: Texts that can be shown in full.
TEXTS = ("forward", "joint", "code", "schedule")

_OWN = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")


def program_name(text: str) -> str:
    """Return EXPRESSION or the name of a workload."""
    if text not in (EXPRESSION, *MODELS) and not _OWN.fullmatch(text):
        raise ValueError(
            f"is not known; choose {', '.join(MODELS)}, or give package.module:attribute"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of the command."""

    program: str = option(
        "--workload",
        program_name,
        EXPRESSION,
        "convnet, lenet5, smallnet, or your own: package.module:attribute",
        "NAME",
    )
    size: int = option("--size", whole(1, 2**15), "2048", "rows and columns of x, y and z", "N")
    batch_size: int = case_options.batch_size("samples of a workload's step")
    workers: int = option(
        "--workers", whole(0, 256), "2", "workers of a workload's DataLoader", "N"
    )
    device: str = case_options.device()
    threads: int = case_options.threads()
    dataset: str = case_options.dataset()
    data_dir: Path | None = case_options.data_dir()
    show: tuple[str, ...] | None = option(
        "--show",
        some_of(*TEXTS),
        None,
        (
            f"comma list of texts to show in full: {', '.join(TEXTS)} (default: all, of a "
            "workload none)"
        ),
        "NAMES",
    )
    write: Path | None = option(
        "--write",
        path,
        None,
        "write graphs, generated code, and traces for https://ui.perfetto.dev to this directory",
        "DIR",
    )
    format: str = options.output_format(["csv"])
    output: Path | None = options.output()
    # To fill with timed steps, eager and compiled; the same for each way to load batches.
    seconds: float = 3.0

    def __post_init__(self) -> None:
        usual = {name: declared.empty for name, declared in options_of(Settings).items()}
        is_workload = self.program != EXPRESSION
        for name in ["size"] if is_workload else ["batch_size", "workers"]:
            if (value := getattr(self, name)) != usual[name]:
                why = (
                    "is for x*y + z; leave it out"
                    if is_workload
                    else "needs a workload; give --workload, too"
                )
                raise UsageError(f"--{name.replace('_', '-')}: '{value}' {why}")


@dataclass(frozen=True)
class Graph:
    """A graph of a program; a program with graph breaks has several of each kind."""

    kind: str  # FORWARD, JOINT, FORWARD_PART or BACKWARD_PART
    inputs: int  # placeholders
    operations: tuple[str, ...]  # targets of the nodes that call something, in order
    outputs: int
    # All inputs and all outputs that are no inputs, each once; None where nodes have no shapes.
    moved_bytes: int | None
    text: str  # as code, with shapes and the lines of the program


@dataclass(frozen=True)
class CalledKernel:
    """A kernel that the generated code calls."""

    part: str  # forward or backward
    name: str
    launches: int  # per step
    operations: tuple[str, ...]  # that it computes; empty for one that only copies
    generated: bool  # False: of a library, or of PyTorch
    code: str = ""  # source of a generated one


@dataclass(frozen=True)
class StepTimes:
    """Times of one step."""

    forward_ns: int
    backward_ns: int
    update_ns: int

    @property
    def total_ns(self) -> int:
        return self.forward_ns + self.backward_ns + self.update_ns

    def part_ns(self, part: str) -> int:
        """Return the time of one of PARTS, or of the whole ``step``."""
        return self.total_ns if part == "step" else int(getattr(self, f"{part}_ns"))


@dataclass(frozen=True)
class Dispatched:
    """The operations that eager execution dispatches in one forward and backward pass."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    views: int  # further ones, which return a view and compute nothing
    moved_bytes: int  # read and written, each tensor once for each operation


@dataclass(frozen=True)
class Scheduled:
    """An operation or kernel of one step."""

    way: str  # EAGER or COMPILED
    name: str
    start_ns: int  # since the start of the step
    duration_ns: int


@dataclass(frozen=True)
class Loading:
    """Steps whose batches were loaded in one way. The two tuples have an entry for each step."""

    workers: int | None  # of the DataLoader; 0: the training process loads; None: resident data
    wait_ns: tuple[int, ...]  # until the batch was there
    compute_ns: tuple[int, ...]  # of the step itself

    @property
    def name(self) -> str:
        """The way to load, in words."""
        if self.workers is None:
            return "resident data"
        return f"{self.workers} worker{'' if self.workers == 1 else 's'}"

    @property
    def typical_wait_ns(self) -> int:
        """Median wait."""
        return median_ns(self.wait_ns)

    @property
    def typical_compute_ns(self) -> int:
        """Median time of the step itself."""
        return median_ns(self.compute_ns)

    @property
    def typical_ns(self) -> int:
        """Median time of a step with its wait."""
        return median_ns(
            wait + compute for wait, compute in zip(self.wait_ns, self.compute_ns, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class GraphStudy:
    """What a program becomes. What could not be shown is empty, and ``left_out`` says why."""

    settings: Settings
    torch: str  # version
    source: str  # the program in one line
    graphs: tuple[Graph, ...]
    kernels: tuple[CalledKernel, ...] = ()
    code: tuple[tuple[str, str], ...] = ()  # (part, generated code) in order
    dispatched: Dispatched
    start_ns: int | None = None  # of the compiler: time of a first, tiny program with empty caches
    first_compiled: StepTimes | None = None  # it compiles the program
    eager: tuple[StepTimes, ...]
    compiled: tuple[StepTimes, ...] = ()  # one after each eager one
    schedule: tuple[Scheduled, ...]
    loading: tuple[Loading, ...]  # resident data, no workers, workers; empty for the expression
    left_out: tuple[str, ...] = ()

    def of_kind(self, kind: str) -> list[Graph]:
        """Return the graphs of a kind."""
        return [graph for graph in self.graphs if graph.kind == kind]

    def typical_ns(self, way: str, part: str = "step") -> int:
        """Return the median time of a part in one way; 0 if it was not timed."""
        return median_ns(
            step.part_ns(part) for step in (self.eager if way == EAGER else self.compiled)
        )

    def ratio_quartiles(self, part: str = "step") -> list[float] | None:
        """Return how many times as fast compiled steps are as the eager ones before them.

        First quartile, median, third.

        None without compiled steps or without times.
        """
        pairs = [
            (before.part_ns(part), after.part_ns(part))
            for before, after in zip(self.eager, self.compiled, strict=False)
        ]
        if not pairs or not all(after for _, after in pairs):
            return None
        ratios = [before / after for before, after in pairs]
        return (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        )

    @property
    def compile_ns(self) -> int | None:
        """Time of the first compiled step beyond that of a typical one."""
        return (
            self.first_compiled.total_ns - self.typical_ns(COMPILED)
            if self.first_compiled
            else None
        )

    def eager_operations(self, part: str) -> int | None:
        """Return the number of operations of eager execution of a part or of the ``step``.

        The number is None for the update.
        """
        passes = _PASSES.get(part)
        return (
            sum(len(getattr(self.dispatched, direction)) for direction in passes)
            if passes
            else None
        )

    def launches(self, part: str, *, generated: bool) -> int | None:
        """Return the number of kernels that the generated code calls.

        None for the update, or if there is no code.
        """
        passes = _PASSES.get(part)
        if not passes or not self.code:
            return None
        return sum(
            kernel.launches
            for kernel in self.kernels
            if kernel.part in passes and kernel.generated == generated
        )

    @property
    def least_bytes(self) -> int | None:
        """Bytes of the inputs and outputs of both parts: what one kernel for each would move.

        None if it is unknown.

        It is unknown for a program with graph breaks, a part of whose operations is in no graph.
        """
        moved = [
            graph.moved_bytes
            for kind in (FORWARD_PART, BACKWARD_PART)
            for graph in self.of_kind(kind)
        ]
        return sum(value or 0 for value in moved) if len(moved) == 2 and None not in moved else None

    def loaded(self, workers: int | None) -> Loading | None:
        """Return the steps whose batches a number of workers loaded.

        None: they were not measured.
        """
        return next((loading for loading in self.loading if loading.workers == workers), None)

    @property
    def overlap(self) -> float | None:
        """Share of the loading time of a batch in which the training process does not wait.

        The share is None without workers.
        """
        alone = self.loaded(0)
        loaded = self.loaded(self.settings.workers)
        if not alone or not loaded or loaded is alone or not alone.typical_wait_ns:
            return None
        return min(1.0, max(0.0, 1 - loaded.typical_wait_ns / alone.typical_wait_ns))


# ---- Report --------------------------------------------------------------------------------------

#: Distinct operations of a graph in its row; the text of the graph has all of them.
_NAMED = 5

#: Longest name of a kernel in a table.
_WIDTH = 40


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f}"


def _counted(graph: Graph) -> str:
    counts = Counter(graph.operations)
    named = [f"{name} x{number}" if number > 1 else name for name, number in counts.most_common()]
    rest = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


GRAPHS: tuple[Column[Graph], ...] = (
    Column("graph", lambda graph: graph.kind),
    Column("inputs", lambda graph: graph.inputs, units.count),
    Column("nodes", lambda graph: len(graph.operations), units.count),
    Column("outputs", lambda graph: graph.outputs, units.count),
    Column("MB in and out", lambda graph: graph.moved_bytes, _megabytes),
    Column("operations", _counted),
)


KERNELS: tuple[Column[CalledKernel], ...] = (
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


def times_of(study: GraphStudy) -> tuple[Column[str], ...]:
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
            lambda part: study.typical_ns(EAGER, part),
            units.duration,
            "eager_ns",
        ),
        Column(
            "compiled time",
            lambda part: study.typical_ns(COMPILED, part) if study.compiled else None,
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


SCHEDULE: tuple[Column[Scheduled], ...] = (
    Column("way", lambda call: call.way),
    Column("start", lambda call: call.start_ns, units.duration),
    Column("time", lambda call: call.duration_ns, units.duration),
    Column("operation or kernel", lambda call: call.name),
)

LOADING: tuple[Column[Loading], ...] = (
    Column("loading", lambda loading: loading.name),
    Column("step", lambda loading: loading.typical_ns, units.duration),
    Column("waiting", lambda loading: loading.typical_wait_ns, units.duration),
    Column("computing", lambda loading: loading.typical_compute_ns, units.duration),
)


def report_of(study: GraphStudy) -> Report:
    """Return the tables, and the texts that are shown in full.

    By default those are all texts of an expression, and none of a workload.
    """
    settings = study.settings
    shown = (
        (TEXTS if settings.program == EXPRESSION else ())
        if settings.show is None
        else settings.show
    )
    # It has no weights.
    parts = [part for part in PARTS if part != "update" or settings.program != EXPRESSION]
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
                drawing="\n".join(graph.text.rstrip() for graph in graphs),
            )
            for kind in (FORWARD, JOINT)
            if kind in shown and (graphs := study.of_kind(kind))
        ),
        *(_blocks(_kernels(study)) if study.code else []),
        *(
            Block(f"Generated code, {kernel.part}, {kernel.name}", drawing=kernel.code.strip())
            for kernel in study.kernels
            if kernel.code and "code" in shown
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


def _graph_lines(study: GraphStudy) -> Iterator[str]:
    if (breaks := len(study.of_kind(FORWARD)) - 1) > 0:
        yield (
            f"Dynamo cannot trace the program as a whole: it has {breaks} graph "
            f"break{'s' if breaks > 1 else ''}. The code between the graphs runs as eager "
            "operations, which are not among the kernels below."
        )
    if study.of_kind(FORWARD_PART) and study.of_kind(BACKWARD_PART):
        yield (
            "The two parts are the joint graph, divided: what the backward part needs is an "
            "output of the forward part."
        )


def _kernels(study: GraphStudy) -> Table:
    generated = [kernel for kernel in study.kernels if kernel.generated]
    fusions = sum(len(kernel.operations) > 1 for kernel in generated)
    lines = (
        f"{fusions} of {len(generated)} generated kernels fuse different operations.",
        "A name lists each operation once, also where the kernel computes it several times.",
    )
    return Table("kernels that the generated code calls", KERNELS, study.kernels, lines=lines)


def _time_lines(study: GraphStudy) -> Iterator[str]:
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
    saved = study.typical_ns(EAGER) - study.typical_ns(COMPILED)
    if saved <= 0:
        yield f"A compiled step takes {units.duration(-saved)} more than an eager one."
        return
    steps = units.count(-(-study.compile_ns // saved))
    yield (
        f"A compiled step takes {units.duration(saved)} less than an eager one: {steps} steps "
        "make up for the compile time."
    )


def _loading_lines(study: GraphStudy) -> Iterator[str]:
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


# ---- Command -------------------------------------------------------------------------------------

#: Variables that name the directories in which compilers keep what they compiled.
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def run(settings: Settings) -> CommandResult:
    """Study a program, and return the report.

    Write its graphs, generated code and traces to the directory of the settings. The ``seconds`` of
    the settings bound the timed steps, but not the compile time.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    if settings.write:
        check_directory(settings.write, "--write")
    with empty_caches():  # before torch is imported
        import_torch(quiet=True)
        return run_study("graph", settings, report_of)


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Give the compiler empty caches while the body runs, so that it compiles as at a first use."""
    with scratch("study") as folder:
        inherited = {name: os.environ.get(name) for name in _CACHES}
        os.environ.update({name: str(folder / name) for name in _CACHES})
        try:
            yield
        finally:
            for name, value in inherited.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
