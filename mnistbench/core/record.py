"""What is saved with a benchmark, and how it is read back.

A record lies in ``benchmark.extra_info["mnistbench"]`` of an ordinary pytest-benchmark file, so other tools still read
that file. Tables and curves are one compact JSON string each: pytest-benchmark indents by four, and 1,000 files of
indented tables take 9 s to parse where compact ones take 0.6 s. Samples are kept raw and statistics are derived.

Times are integer nanoseconds, sizes are bytes, and a sample is always one iteration of the case.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from mnistbench.core.errors import MnistbenchError, RecordError
from mnistbench.core.json_reader import LARGEST, Reader, in_path
from mnistbench.core.params import Params

#: Version of what is written below the key "mnistbench".
#:
#: 1 (0.1.0): the first.
SCHEMA = 1

KEY = "mnistbench"

#: Name of the row that holds what a phase spends outside any operation: Python, and the profiler itself.
OUTSIDE = "(outside operations)"

#: Module of an operation that no module can be named for. See ``profiling`` for why.
UNTIED = ""

#: What an attachment of this name is merged into; any other name is kept as it is.
_ATTACHED_FIELDS = ("operation_tables", "training_scalars", "notes")

#: A curve holds at most this many points per tag; a page draws no more and a file stays small.
MAX_POINTS = 100

_Point = TypeVar("_Point")


@dataclass(frozen=True)
class OpRow:
    """One operation of one phase and module, with one sample per profiled iteration."""

    name: str  # as PyTorch names it: aten::addmm
    phase: str  # forward, backward or optimizer; empty between them
    module: str  # qualified name of the module it belongs to (conv1); UNTIED where none can be named
    calls: float  # per iteration, mean over iterations; a whole number wherever all iterations agree
    self_cpu_ns: tuple[int, ...]  # host time less that of the operations it calls
    total_cpu_ns: tuple[int, ...]  # host time, those it calls included
    self_device_ns: tuple[int, ...]  # time of the kernels it launched itself; empty without an accelerator's view
    memory_bytes: int  # allocated on the device of the case less freed, per iteration, median
    shapes: tuple[str, ...] = ()  # distinct input shapes, where they were asked for
    kernels: tuple[str, ...] = ()  # distinct kernels that it launched itself, in the view of a device

    @property
    def key(self) -> tuple[str, str, str]:
        """What the same operation has in another run."""
        return (self.name, self.phase, self.module)

    @property
    def is_operation(self) -> bool:
        """False for the row of what lies outside any operation."""
        return self.name != OUTSIDE

    def self_ns(self, clock: str) -> int:
        """Return the median self time per iteration by the given clock (``cpu`` or ``device``)."""
        return median_ns(self._self_samples(clock))

    def spread_ns(self, clock: str) -> int:
        """Return the interquartile range of the self time over the iterations."""
        first, third = quartiles_ns(self._self_samples(clock))
        return third - first

    def _self_samples(self, clock: str) -> tuple[int, ...]:
        return self.self_cpu_ns if clock == "cpu" else self.self_device_ns


@dataclass(frozen=True)
class OpTable:
    """All operations of a case as one profiled pass saw them.

    ``view`` is ``host`` (host activities alone) or ``device`` (host and device activities): the two views of the lab.
    """

    temperature: str  # cold: the case's first call in this process. warm: later iterations
    view: str  # host or device
    iteration_ns: tuple[int, ...]  # wall time of each profiled iteration, the profiler's cost included
    rows: tuple[OpRow, ...]
    first_of_process: bool = False  # of a cold table: no case had run before, so libraries were initialised too
    profiler_ns: int = 0  # what the profiler adds per call of an operation, measured in this process; 0: not measured

    @property
    def clock(self) -> str:
        """The clock that ranks this table: device time where the device was watched, else host time."""
        return "device" if self.view == "device" else "cpu"

    @property
    def total_ns(self) -> int:
        """Sum of the rows' self times per iteration: what shares are shares of."""
        return sum(row.self_ns(self.clock) for row in self.rows)


@dataclass(frozen=True)
class Scalars:
    """What TensorBoard was given for a case: curves thinned to MAX_POINTS a tag, final values, and where they lie.

    A value that is not finite (a loss that blew up) is None: JSON has no NaN.
    """

    dataset: str
    curves: Mapping[str, tuple[tuple[int, float | None], ...]]  # tag -> (global step in batches or round number, value)
    final: Mapping[str, float | None]
    directory: str  # of the TensorBoard run; empty where TensorBoard was off


@dataclass(frozen=True)
class Timing:
    """Untraced wall time of one call, from pytest-benchmark's own statistics."""

    median_ns: int
    iqr_ns: int  # interquartile range
    min_ns: int
    mean_ns: int
    stddev_ns: int
    rounds: int

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> Timing:
        """Convert pytest-benchmark's statistics, which are float seconds."""
        to_ns: Callable[[str], int] = lambda name: round(stats[name] * 1e9)  # noqa: E731
        return cls(to_ns("median"), to_ns("iqr"), to_ns("min"), to_ns("mean"), to_ns("stddev"), stats["rounds"])


@dataclass(frozen=True)
class Environment:
    """The machine and the software of a run: what decides whether two runs can be compared."""

    mnistbench: str
    python: str
    torch: str
    torchvision: str
    platform: str  # operating system and its release
    cpu_model: str
    cpu_count: int  # logical CPUs this process may use
    threads: int  # intra-op threads the cases ran with
    blas: str
    allocator: Mapping[str, str]  # thresholds set for the process; empty where the C library decides
    devices: tuple[Mapping[str, str], ...]  # accelerators: name, memory, driver, CUDA, cuDNN, TF32 settings

    def differences(self, other: Environment) -> dict[str, tuple[Any, Any]]:
        """Return what differs: field name -> (mine, the other's)."""
        mine, others = asdict(self), asdict(other)
        return {name: (mine[name], others[name]) for name in mine if mine[name] != others[name]}


@dataclass(frozen=True)
class CaseRecord:
    """Everything known of one measured case."""

    test: str  # path::function of the test, without parameters
    node_id: str  # for display only
    params: Params
    parameter_count: int  # of the model
    samples: int  # processed per call: the batch, or what an epoch case ran over
    first_call_ns: int | None = None  # wall time of the cold call, profiled unless profiling was off
    device_ns: tuple[int, ...] = ()  # device time of single calls by events, on an accelerator
    rounds_ns: tuple[int, ...] = ()  # wall time per call of each round in order, thinned to MAX_POINTS
    tables: tuple[OpTable, ...] = ()
    tables_in: str = ""  # for cases without tables of their own: the label of the case that has them
    scalars: Scalars | None = None
    notes: tuple[str, ...] = ()  # what could not be attached, and why
    attached: Mapping[str, Any] = field(default_factory=dict)  # what a conftest.py hung on, as JSON values
    op_fail: tuple[str, ...] = ()  # thresholds of the test's own opgate mark, as it wrote them
    case_fail: str = ""  # the same for the whole call
    timing: Timing | None = None  # from the benchmark's own statistics; not stored a second time

    @property
    def key(self) -> tuple[str, Params]:
        """What the same case has in another run."""
        return (self.test, self.params)

    def table(self, temperature: str, view: str | None = None) -> OpTable | None:
        """Return the table of that temperature; without a view, the device's where there is one."""
        found = {table.view: table for table in self.tables if table.temperature == temperature}
        return found.get(view) if view else found.get("device") or found.get("host")

    def with_attachments(self, attachments: Mapping[str, Any]) -> CaseRecord:
        """Merge what one ``pytest_mnistbench_attach`` returned: known names into their fields, others kept as they are.

        Raises:
            RecordError: a value is not what its name says, or cannot be written as JSON.
        """
        if not isinstance(attachments, Mapping):
            raise RecordError(f"attachments need a dict of names and values, not {type(attachments).__name__}")
        tables = attachments.get("operation_tables", ())
        if not isinstance(tables, list | tuple) or not all(isinstance(table, OpTable) for table in tables):
            raise RecordError("operation_tables needs a list of OpTable objects")
        scalars = attachments.get("training_scalars", self.scalars)
        if not (scalars is None or isinstance(scalars, Scalars)):
            raise RecordError(f"training_scalars needs a Scalars object, not {type(scalars).__name__}")
        notes = attachments.get("notes", ())
        if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
            raise RecordError("notes needs a list of texts")
        others = {name: value for name, value in attachments.items() if name not in _ATTACHED_FIELDS}
        try:
            merged = replace(
                self,
                tables=(*self.tables, *tables),
                scalars=scalars,
                notes=(*self.notes, *notes),
                attached={**self.attached, **others},
            )
            return CaseRecord.from_json(merged.to_json(), self.timing)  # what would spoil the saved file is refused now
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RecordError(f"{', '.join(sorted(map(str, attachments)))}: not JSON ({error})") from None

    def to_json(self) -> dict[str, Any]:
        """Return what ``extra_info["mnistbench"]`` holds."""
        return {
            "schema": SCHEMA,
            "test": self.test,
            "node_id": self.node_id,
            "params": asdict(self.params),
            "parameter_count": self.parameter_count,
            "samples": self.samples,
            "first_call_ns": self.first_call_ns,
            "device_ns": _compact(self.device_ns),
            "rounds_ns": _compact(self.rounds_ns),
            "tables": [table_to_json(table) for table in self.tables],
            "tables_in": self.tables_in,
            **scalars_to_json(self.scalars),
            "notes": list(self.notes),
            "attached": _compact(self.attached),
            "op_fail": list(self.op_fail),
            "case_fail": self.case_fail,
        }

    @classmethod
    def from_json(cls, data: object, timing: Timing | None = None) -> CaseRecord:
        """Read what :meth:`to_json` wrote.

        Raises:
            RecordError: names the field that is missing or wrong, or a schema this version does not know.
        """
        check_schema(data)
        return RecordReader(data).case(timing)


@dataclass(frozen=True)
class Run:
    """One pytest-benchmark file: its cases that carry our record, with samples and curves (``digest`` leaves them out)."""

    environment: Environment | None
    cases: tuple[CaseRecord, ...]
    saved_at: str = ""  # ISO 8601, UTC
    commit: str = ""  # short id, with "+" where the tree had changes

    @classmethod
    def from_json(cls, data: object, source: str) -> Run:
        """Read a parsed pytest-benchmark file. Benchmarks that are not ours are passed over.

        Raises:
            RecordError: names ``source`` and the field.
        """
        try:
            return RecordReader(data).run()
        except RecordError as error:
            raise RecordError(f"{source}: {error}; save the run again or leave the file out") from None


def run_header(environment: Environment) -> dict[str, Any]:
    """Return what stands once per file below the key "mnistbench"."""
    return {"schema": SCHEMA, "environment": asdict(environment)}


def median_ns(samples: Iterable[int]) -> int:
    """Return the median in whole nanoseconds; 0 for no samples."""
    values = list(samples)
    return round(statistics.median(values)) if values else 0


def quartiles_ns(samples: Iterable[int]) -> tuple[int, int]:
    """Return the first and third quartile, linear between samples (method "inclusive" of ``statistics.quantiles``)."""
    values = list(samples)
    if len(values) < 2:
        return (median_ns(values), median_ns(values))
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return (round(first), round(third))


def finite(value: float) -> float | None:
    """Return the value, or None for infinities and NaN."""
    return value if math.isfinite(value) else None


def thin(points: Sequence[_Point]) -> tuple[_Point, ...]:
    """Keep at most MAX_POINTS points of a series, evenly spread, the first and the last among them."""
    if len(points) <= MAX_POINTS:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(position * last / (MAX_POINTS - 1))] for position in range(MAX_POINTS))


# ---- JSON ------------------------------------------------------------------------------------------------------------

#: A table is three sets of columns: what is counted, which runs of the same code share to the byte; what is measured,
#: in medians; and the samples.
COUNTED = ("name", "phase", "module", "calls", "memory_bytes", "shapes", "kernels")
MEASURED = ("self_ns", "spread_ns")
_SAMPLED = ("self_cpu_ns", "total_cpu_ns", "self_device_ns")

#: What pytest-benchmark writes for a commit outside a repository, and where git failed.
NO_COMMIT = ("unversioned", "unknown")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def table_to_json(table: OpTable) -> dict[str, str]:
    """Write columns: a third of the bytes of objects, and a column is checked in one go when it is read.

    Comparing 1,000 saved runs needs only the medians, so they are written although they follow from the samples, which
    are most of a table and stay unread.
    """
    rows, clock = table.rows, table.clock
    times = {
        "first_of_process": table.first_of_process,
        "profiler_ns": table.profiler_ns,
        "iteration_ns": table.iteration_ns,
        "self_ns": [row.self_ns(clock) for row in rows],
        "spread_ns": [row.spread_ns(clock) for row in rows],
    }
    return {
        "temperature": table.temperature,
        "view": table.view,
        "operations": _compact({name: [getattr(row, name) for row in rows] for name in COUNTED}),
        "times": _compact(times),
        "samples": _compact({name: [getattr(row, name) for row in rows] for name in _SAMPLED}),
    }


def scalars_to_json(scalars: Scalars | None) -> dict[str, str | None]:
    """Write final values apart from the curves that led to them: comparing needs the former alone."""
    if scalars is None:
        return {"scalars": None, "curves": None}
    final = asdict(scalars)
    return {"curves": _compact(final.pop("curves")), "scalars": _compact(final)}


def check_schema(data: object) -> None:
    """Refuse a record of a schema that this version does not know."""
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if type(schema) is not int or schema < 1:
        raise RecordError(f"schema: {schema!r} is not a version of a mnistbench record")
    if schema > SCHEMA:
        raise RecordError(f"schema: {schema} is newer than the {SCHEMA} that this mnistbench reads: upgrade mnistbench")


class RecordReader(Reader):
    """Reads what a saved file holds."""

    def run(self) -> Run:
        """Return the cases of a pytest-benchmark file that carry our record."""
        cases = []
        for benchmark in self["benchmarks"].items():
            extra = benchmark["extra_info"].mapping()
            if KEY in extra:
                record = extra[KEY]
                in_path(record, check_schema)
                cases.append(record.case(benchmark["stats"].timing()))
        header = self.mapping().get(KEY)
        if header is not None:
            in_path(header, check_schema)
        commit = self.mapping().get("commit_info", type(self)({})).mapping()
        changed = commit["dirty"].value is True if "dirty" in commit else False
        identity = commit["id"].value if "id" in commit else None
        short_id = identity[:7] if isinstance(identity, str) and identity not in NO_COMMIT else ""
        saved_at = self.mapping().get("datetime")
        return Run(
            environment=None if header is None else header["environment"].environment(),
            cases=tuple(cases),
            saved_at=saved_at.text() if saved_at else "",
            commit=f"{short_id}{'+' if changed and short_id else ''}",
        )

    def timing(self) -> Timing:
        """Return pytest-benchmark's statistics."""
        for name in ("median", "iqr", "min", "mean", "stddev"):
            if not 0 <= self[name].number() * 1e9 <= LARGEST:
                raise self[name].wrong("a time in seconds")
        self["rounds"].whole()
        assert isinstance(self.value, Mapping)
        return Timing.from_stats(self.value)

    def case(self, timing: Timing | None) -> CaseRecord:
        """Return a case."""
        first_call, scalars = self["first_call_ns"], self["scalars"]
        return CaseRecord(
            test=self["test"].text(),
            node_id=self["node_id"].text(),
            params=self["params"].params(),
            parameter_count=self["parameter_count"].whole(),
            samples=self["samples"].whole(),
            first_call_ns=None if first_call.value is None else first_call.nanoseconds(),
            device_ns=self["device_ns"].parsed().all_nanoseconds(),
            rounds_ns=self["rounds_ns"].parsed().all_nanoseconds(),
            tables=tuple(item.table() for item in self["tables"].items()),
            tables_in=self["tables_in"].text(),
            scalars=None if scalars.value is None else scalars.parsed().scalars(self["curves"].parsed()),
            notes=self["notes"].texts(),
            attached={name: item.value for name, item in self["attached"].parsed().mapping().items()},
            op_fail=self["op_fail"].texts(),
            case_fail=self["case_fail"].text(),
            timing=timing,
        )

    def params(self) -> Params:
        """Return the identity of a case."""
        try:
            return Params(**{f.name: self[f.name].value for f in fields(Params)})  # type: ignore[arg-type]  # Params checks
        except RecordError:
            raise
        except MnistbenchError as error:
            raise RecordError(f"{self.path}: {error}") from None

    def table(self) -> OpTable:
        """Return an operation table with its samples."""
        operations, times, samples = (self[name].parsed() for name in ("operations", "times", "samples"))
        columns = [
            *(operations[name].items() for name in COUNTED),
            *(samples[name].items() for name in _SAMPLED),
            *(times[name].items() for name in MEASURED),
        ]
        if len({len(column) for column in columns}) > 1:
            raise RecordError(f"{self.path}: has columns of different length")
        return OpTable(
            temperature=self["temperature"].one_of("cold", "warm"),
            view=self["view"].one_of("host", "device"),
            iteration_ns=times["iteration_ns"].all_nanoseconds(),
            rows=tuple(self.row(*cells) for cells in zip(*columns, strict=True)),
            first_of_process=times["first_of_process"].flag(),
            profiler_ns=times["profiler_ns"].nanoseconds(),
        )

    def row(self, *cells: RecordReader) -> OpRow:
        """Return an operation of its cells in the order of the columns."""
        name, phase, module, calls, memory, shapes, kernels, self_cpu, total_cpu, self_device, median, spread = cells
        (
            median.nanoseconds(),
            spread.nanoseconds(),
        )  # both follow from the samples; a file that has others is spoiled all the same
        return OpRow(
            name.text(), phase.text(), module.text(), calls.number(), self_cpu.all_nanoseconds(),
            total_cpu.all_nanoseconds(), self_device.all_nanoseconds(), memory.whole(), shapes.texts(), kernels.texts(),
        )  # fmt: skip

    def scalars(self, curves: RecordReader) -> Scalars:
        """Return final values with the curves that lie beside them."""
        return Scalars(
            dataset=self["dataset"].text(),
            curves={tag: tuple(point.point() for point in curve.items()) for tag, curve in curves.mapping().items()},
            final={tag: value.number_or_none() for tag, value in self["final"].mapping().items()},
            directory=self["directory"].text(),
        )

    def point(self) -> tuple[int, float | None]:
        """Return a point of a curve."""
        cells = self.items()
        if len(cells) != 2:
            raise self.wrong("a step and a value")
        return (cells[0].whole(), cells[1].number_or_none())

    def environment(self) -> Environment:
        """Return the environment of a run."""
        return Environment(
            mnistbench=self["mnistbench"].text(),
            python=self["python"].text(),
            torch=self["torch"].text(),
            torchvision=self["torchvision"].text(),
            platform=self["platform"].text(),
            cpu_model=self["cpu_model"].text(),
            cpu_count=self["cpu_count"].whole(),
            threads=self["threads"].whole(),
            blas=self["blas"].text(),
            allocator={name: value.text() for name, value in self["allocator"].mapping().items()},
            devices=tuple(
                {name: value.text() for name, value in device.mapping().items()} for device in self["devices"].items()
            ),
        )
