"""The result of ``mnistbench study graph``: graphs, kernels, schedules and times of a program. Does not import torch.

Times are integer nanoseconds, sizes are bytes, shares are fractions of 1.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mnistbench.core.record import median_ns

#: Version of the JSON. A new one removes or renames a key, or changes its meaning.
SCHEMA = 1

#: The program that is studied unless a workload is given.
EXPRESSION = "x*y + z"

#: Kinds of graphs: Dynamo's graph of the program; AOTAutograd's graph of both passes, and its two parts.
FORWARD, JOINT, FORWARD_PART, BACKWARD_PART = "forward", "joint", "forward part", "backward part"

#: How a program runs.
EAGER, COMPILED = "eager", "compiled"

#: What a step consists of.
PARTS = ("forward", "backward", "update")


@dataclass(frozen=True)
class Settings:
    """What is studied. The defaults are those of the command."""

    program: str = EXPRESSION  # or a workload: a built-in one, or package.module:attribute
    size: int = 2048  # rows and columns of x, y and z
    batch_size: int = 64  # of a workload
    workers: int = 2  # of the DataLoader of a workload
    device: str = "cpu"
    threads: int = 1  # intra-op threads on the CPU
    dataset: str = "digits"  # of the built-in workloads
    data_dir: str | None = None  # directory of MNIST
    seconds: float = 3.0  # to fill with timed steps, eager and compiled; the same for each way to load batches


@dataclass(frozen=True)
class Graph:
    """A graph of a program; a program with graph breaks has several of each kind."""

    kind: str  # FORWARD, JOINT, FORWARD_PART or BACKWARD_PART
    inputs: int  # placeholders
    operations: tuple[str, ...]  # targets of the nodes that call something, in order
    outputs: int
    moved_bytes: int | None  # all inputs and all outputs that are no inputs, each once; None where nodes have no shapes
    text: str  # as code, with shapes and the lines of the program

    @property
    def counts(self) -> Counter[str]:
        """How often each operation occurs."""
        return Counter(self.operations)


@dataclass(frozen=True)
class Kernel:
    """A kernel that the generated code calls."""

    part: str  # forward or backward
    name: str
    launches: int  # per step
    operations: tuple[str, ...]  # that it computes; empty for one that only copies
    generated: bool  # False: of a library, or of PyTorch
    code: str = ""  # source of a generated one

    @property
    def is_fusion(self) -> bool:
        """Whether it computes more than one kind of operation."""
        return len(self.operations) > 1


@dataclass(frozen=True)
class Step:
    """Times of one step."""

    forward_ns: int
    backward_ns: int
    update_ns: int

    @property
    def total_ns(self) -> int:
        """Time of the whole step."""
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
        return median_ns(wait + compute for wait, compute in zip(self.wait_ns, self.compute_ns, strict=True))


@dataclass(frozen=True)
class Ratio:
    """How many times as fast compiled steps are as the eager steps before them."""

    median: float
    first_quartile: float
    third_quartile: float


@dataclass(frozen=True)
class Study:
    """What a program becomes. What could not be shown is empty, and ``left_out`` says why."""

    settings: Settings
    torch: str  # version
    source: str  # the program in one line
    graphs: tuple[Graph, ...]
    kernels: tuple[Kernel, ...]
    code: tuple[tuple[str, str], ...]  # (part, generated code) in order
    dispatched: Dispatched
    start_ns: int | None  # of the compiler: time of a first, tiny program with empty caches
    first_compiled: Step | None  # it compiles the program
    eager: tuple[Step, ...]
    compiled: tuple[Step, ...]  # one after each eager one
    schedule: tuple[Scheduled, ...]
    loading: tuple[Loading, ...]  # resident data, no workers, workers; empty for the expression
    left_out: tuple[str, ...] = ()

    def of_kind(self, kind: str) -> list[Graph]:
        """Return the graphs of a kind."""
        return [graph for graph in self.graphs if graph.kind == kind]

    def typical_ns(self, way: str, part: str = "step") -> int:
        """Return the median time of a part in one way; 0 if it was not timed."""
        return median_ns(step.part_ns(part) for step in (self.eager if way == EAGER else self.compiled))

    def ratio(self, part: str = "step") -> Ratio | None:
        """Return eager time by compiled time over pairs of neighbouring steps; None without compiled ones or without times."""
        pairs = [(before.part_ns(part), after.part_ns(part)) for before, after in zip(self.eager, self.compiled, strict=False)]
        if not pairs or not all(after for _, after in pairs):
            return None
        ratios = [before / after for before, after in pairs]
        first, median, third = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        return Ratio(median, first, third)

    @property
    def compile_ns(self) -> int | None:
        """Time of the first compiled step beyond that of a typical one."""
        return self.first_compiled.total_ns - self.typical_ns(COMPILED) if self.first_compiled else None

    def launches(self, part: str, *, generated: bool) -> int:
        """Return the number of kernels that the generated code of a part calls."""
        return sum(each.launches for each in self.kernels if each.part == part and each.generated == generated)

    @property
    def least_bytes(self) -> int | None:
        """Bytes of the inputs and outputs of both parts: what one kernel for each would move; None if it is unknown.

        It is unknown for a program with graph breaks, a part of whose operations is in no graph.
        """
        found = [graph.moved_bytes for kind in (FORWARD_PART, BACKWARD_PART) for graph in self.of_kind(kind)]
        return sum(value or 0 for value in found) if len(found) == 2 and None not in found else None

    def loaded(self, workers: int | None) -> Loading | None:
        """Return the steps whose batches a number of workers loaded; None: they were not measured."""
        return next((each for each in self.loading if each.workers == workers), None)

    @property
    def overlap(self) -> float | None:
        """Share of the loading time of a batch in which the training process does not wait; None without workers."""
        alone, loaded = self.loaded(0), self.loaded(self.settings.workers)
        if not alone or not loaded or loaded is alone or not alone.typical_wait_ns:
            return None
        return min(1.0, max(0.0, 1 - loaded.typical_wait_ns / alone.typical_wait_ns))

    def to_json(self) -> dict[str, Any]:
        """Return everything, also what follows from other values."""
        ratio = self.ratio()
        return {
            "schema": SCHEMA,
            **asdict(self),
            "eager_ns": self.typical_ns(EAGER),
            "compiled_ns": self.typical_ns(COMPILED) or None,
            "ratio": asdict(ratio) if ratio else None,
            "compile_ns": self.compile_ns,
            "least_bytes": self.least_bytes,
            "overlap": self.overlap,
        }


def dumps(study: Study) -> str:
    """Return the JSON."""
    return json.dumps(study.to_json(), indent=1) + "\n"


#: Columns of the CSV: what one step consists of.
COLUMNS = (
    "program", "part", "eager_operations", "generated_kernels", "library_kernels", "eager_ns", "compiled_ns", "ratio",
    "ratio_first_quartile", "ratio_third_quartile",
)  # fmt: skip


def csv_rows(study: Study) -> Iterator[Sequence[Any]]:
    """Yield a row for each part of a step, and one for the whole."""
    for part in (*PARTS, "step"):
        ratio = study.ratio(part)
        passes = part in ("forward", "backward")
        yield [
            study.settings.program,
            part,
            len(getattr(study.dispatched, part)) if passes else None,
            *(study.launches(part, generated=generated) if passes and study.code else None for generated in (True, False)),
            study.typical_ns(EAGER, part),
            study.typical_ns(COMPILED, part) if study.compiled else None,
            *((ratio.median, ratio.first_quartile, ratio.third_quartile) if ratio else (None, None, None)),
        ]
