"""The records that are saved with benchmarks, and how they are read back.

A record is saved in ``benchmark.extra_info["mnistbench"]`` of an ordinary pytest-benchmark file, so
other tools can still read that file. Tables and curves are one compact JSON text each:
pytest-benchmark indents by four, and 1,000 files of indented tables take 9 s to parse; compact ones
take 0.6 s. Samples are saved raw; statistics are derived from them.

Times that the profiler or an accelerator recorded are integer nanoseconds. Times of
pytest-benchmark are means over the iterations of a round, and are float nanoseconds. Sizes are
bytes, and a sample is always one iteration of the case.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from mnistbench.core.errors import RecordError
from mnistbench.core.operation import NO_MODULE, NOT_OPERATIONS, OUTSIDE, OpKey
from mnistbench.core.params import Params
from mnistbench.core.reading import (
    LARGEST,
    FieldError,
    FloatNanoseconds,
    Members,
    Nanoseconds,
    Packed,
    Positive,
    Reader,
    Seconds,
    Within,
)

#: Version of what is written below the key "mnistbench".
SCHEMA = 1

KEY = "mnistbench"

#: A curve has at most this many points per tag: a page draws no more, and files stay small.
MAX_POINTS = 100

_Point = TypeVar("_Point")
_Times = tuple[Nanoseconds, ...]


@dataclass(frozen=True)
class OpRow:
    """One operation of one phase and module, with one sample per profiled iteration."""

    name: str  # as PyTorch names it: aten::addmm
    phase: str  # forward, backward or optimizer; empty between them
    module: str  # qualified name of its module (conv1); NO_MODULE if it has none
    calls: Annotated[float, Within(0, LARGEST, "a number of calls")]  # per iteration, mean
    self_cpu_ns: _Times  # host time without the operations it calls
    total_cpu_ns: _Times  # host time with the operations it calls
    self_device_ns: _Times  # time of the kernels it launched itself; empty in a host table
    memory_bytes: int  # allocated minus freed on the device of the case, per iteration, median
    shapes: tuple[str, ...] = ()  # distinct input shapes; empty unless they were recorded
    kernels: tuple[str, ...] = ()  # distinct kernels that it launched itself; empty in a host table

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the operation: equal in other runs."""
        return (self.name, self.phase, self.module)

    @property
    def is_operation(self) -> bool:
        """Whether the row is an operation, and not the rest of the time."""
        return self.name not in NOT_OPERATIONS

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
    """All operations of a case in one profiled pass."""

    temperature: Annotated[str, Literal["cold", "warm"]]  # cold: first iteration in a process
    # host: host activities only. device: host and device activities.
    view: Annotated[str, Literal["host", "device"]]
    iteration_ns: _Times  # wall time of each profiled iteration, profiler overhead included
    rows: tuple[OpRow, ...]
    # Cold tables: no case had run before, so libraries were initialised too.
    first_of_process: bool = False
    # Profiler overhead per operation call, measured in this process; 0: not measured.
    profiler_ns: Nanoseconds = 0
    # Time of each iteration in which the accelerator ran at least one kernel or copy; empty in a
    # host table. Of kernels that run at once it counts one, so it is at most the sum of the rows.
    busy_ns: _Times = ()

    @property
    def clock(self) -> str:
        """The clock of ``self_ns``: ``device`` in a device table, else ``cpu``."""
        return "device" if self.view == "device" else "cpu"

    def rest_ns(self, clock: str) -> dict[str, int]:
        """Return the median self time of what is no operation, by name, summed over phases.

        Without those of no time.
        """
        found: dict[str, int] = {}
        for row in self.rows:
            if not row.is_operation and (ns := row.self_ns(clock)):
                found[row.name] = found.get(row.name, 0) + ns
        return found

    @property
    def total_ns(self) -> int:
        """Sum of the self times of all rows per iteration: the base of shares."""
        return sum(row.self_ns(self.clock) for row in self.rows)

    def of_one_call(self, calls: int) -> OpTable:
        """Return the table of one call, if every iteration repeated it this number of times."""
        if calls == 1:
            return self

        def each(times: _Times) -> _Times:
            return tuple(round(ns / calls) for ns in times)

        rows = (
            replace(
                row,
                calls=row.calls / calls,
                self_cpu_ns=each(row.self_cpu_ns),
                total_cpu_ns=each(row.total_cpu_ns),
                self_device_ns=each(row.self_device_ns),
                memory_bytes=round(row.memory_bytes / calls),
            )
            for row in self.rows
        )
        return replace(
            self, iteration_ns=each(self.iteration_ns), rows=tuple(rows), busy_ns=each(self.busy_ns)
        )

    @classmethod
    def from_stored(cls, stored: Any) -> OpTable:
        """Read the result of :func:`table_to_json`.

        Raises:
            RecordError: names the field that is missing or wrong.
        """
        table = Reader(stored)
        operations, times, samples = (
            table[name].parsed() for name in ("operations", "times", "samples")
        )
        columns = {**operations.columns(OpRow, COUNTED), **samples.columns(OpRow, _SAMPLED)}
        # They follow from the samples, but must be sound too.
        medians = [times[name].read(_Times) for name in MEASURED]
        if len(set(map(len, [*columns.values(), *medians]))) > 1:
            raise FieldError("has columns of different length")
        return cls(
            rows=tuple(
                OpRow(**dict(zip(columns, cells, strict=True)))
                for cells in zip(*columns.values(), strict=True)
            ),
            **table.members(cls, ("temperature", "view")),
            **times.members(cls, ("iteration_ns", "first_of_process", "profiler_ns", "busy_ns")),
        )


#: Tag -> points: global step in batches or number of the round, and value.
Curves = Mapping[
    str, tuple[Annotated[tuple[int, float | None], Members("a step and a value")], ...]
]


@dataclass(frozen=True)
class Scalars:
    """TensorBoard scalars of a case.

    A value that is not finite (a diverged loss) is None: JSON has no NaN.
    """

    dataset: str
    curves: Curves  # at most MAX_POINTS points per tag
    final: Mapping[str, float | None]  # by tag
    directory: str  # of the TensorBoard run; empty if TensorBoard was off


@dataclass(frozen=True)
class Timing:
    """Untraced wall time of one iteration: pytest-benchmark's own statistics."""

    median_ns: float
    iqr_ns: float  # interquartile range
    min_ns: float
    mean_ns: float
    stddev_ns: float
    rounds: int

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> Timing:
        """Convert pytest-benchmark's statistics, which are float seconds."""
        return cls(
            median_ns=nanoseconds(stats["median"]),
            iqr_ns=nanoseconds(stats["iqr"]),
            min_ns=nanoseconds(stats["min"]),
            mean_ns=nanoseconds(stats["mean"]),
            stddev_ns=nanoseconds(stats["stddev"]),
            rounds=stats["rounds"],
        )


@dataclass(frozen=True)
class Environment:
    """Machine and software of a run. They decide whether two runs can be compared."""

    mnistbench: str
    python: str
    torch: str
    torchvision: str
    platform: str  # operating system and its release
    cpu_model: str
    cpu_count: int  # logical CPUs available to the process
    threads: Positive  # intra-op threads of torch
    blas: str
    # Malloc thresholds of the process; empty for the defaults of the C library.
    allocator: Mapping[str, str]
    # accelerators: name, memory, driver, CUDA, cuDNN, TF32 settings.
    devices: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class CaseRecord:
    """One measured case."""

    test: str  # path::function of the test, without parameters
    node_id: str  # for display only
    params: Params
    parameter_count: int  # of the model
    samples: int  # processed per iteration: the batch, or the whole set for a pass over a dataset
    # Wall time of the cold iteration, profiled unless profiling was off.
    first_call_ns: Nanoseconds | None = None
    device_ns: Packed[_Times] = ()  # device time of single iterations, from events; empty on a CPU
    # Wall time per iteration of each round in order, at most MAX_POINTS.
    rounds_ns: Packed[tuple[FloatNanoseconds, ...]] = ()
    tables: tuple[OpTable, ...] = ()
    # Label of the case that has the tables, for cases without tables of their own.
    tables_in: str = ""
    scalars: Scalars | None = None
    notes: tuple[str, ...] = ()  # what could not be attached, and why
    # JSON values that a conftest.py attached.
    attached: Packed[Mapping[str, Any]] = field(default_factory=dict)
    op_fail: tuple[str, ...] = ()  # thresholds of the test's own opgate mark, as written there
    case_fail: str = ""  # the same for the time of the case
    timing: Timing | None = None  # pytest-benchmark's statistics; not saved a second time

    @property
    def key(self) -> tuple[str, Params]:
        """Identity of the case: equal in other runs."""
        return (self.test, self.params)

    def table(self, temperature: str, view: str | None = None) -> OpTable | None:
        """Return the table of a temperature; without a view, the device table if there is one."""
        found = {table.view: table for table in self.tables if table.temperature == temperature}
        return found.get(view) if view else found.get("device") or found.get("host")

    def with_attachments(self, attachments: Mapping[str, Any]) -> CaseRecord:
        """Add the result of a ``pytest_mnistbench_attach`` hook.

        Known names go into their fields, others into ``attached``.

        Raises:
            RecordError: a value has the wrong type for its name, or cannot be written as JSON.
        """
        if not isinstance(attachments, Mapping):
            raise RecordError(
                f"attachments need a dict of names and values, not {type(attachments).__name__}"
            )
        others = dict(attachments)
        tables = others.pop("operation_tables", ())
        notes = others.pop("notes", ())
        for name, members, kind, needed in (
            ("operation_tables", tables, OpTable, "OpTable objects"),
            ("notes", notes, str, "texts"),
        ):
            if not isinstance(members, list | tuple) or not all(
                isinstance(member, kind) for member in members
            ):
                raise RecordError(f"{name} needs a list of {needed}")
        scalars = others.pop("training_scalars", self.scalars)
        if not (scalars is None or isinstance(scalars, Scalars)):
            raise RecordError(
                f"training_scalars needs a Scalars object, not {type(scalars).__name__}"
            )
        try:
            merged = replace(
                self,
                tables=(*self.tables, *tables),
                scalars=scalars,
                notes=(*self.notes, *notes),
                attached={**self.attached, **others},
            )
            # A value that cannot be read back is an error now.
            return CaseRecord.from_json(merged.to_json(), self.timing)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RecordError(
                f"{', '.join(sorted(map(str, attachments)))}: not JSON ({error})"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return the value of ``extra_info["mnistbench"]``."""
        return {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in _CASE_FIELDS},
            **{
                name: _compact(getattr(self, name))
                for name in ("device_ns", "rounds_ns", "attached")
            },
            **{name: list(getattr(self, name)) for name in ("notes", "op_fail")},
            "params": asdict(self.params),
            "tables": [table_to_json(table) for table in self.tables],
            # Final values and curves are two texts: a comparison parses the final values only.
            "scalars": self.scalars
            and _compact({name: getattr(self.scalars, name) for name in FINAL}),
            "curves": self.scalars and _compact(self.scalars.curves),
        }

    @classmethod
    def from_json(cls, data: object, timing: Timing | None = None) -> CaseRecord:
        """Read the result of :meth:`to_json`.

        Raises:
            RecordError: names the field that is missing or wrong, or a schema that this version
                does not know.
        """
        check_schema(data)
        record = Reader(data)
        scalars = None
        if record["scalars"].value is not None:
            curves = record["curves"].read(Packed[Curves])
            scalars = Scalars(curves=curves, **record["scalars"].parsed().members(Scalars, FINAL))
        return cls(**record.members(cls, _CASE_FIELDS), scalars=scalars, timing=timing)


#: Fields of a case that are read by their type hints alone.
_CASE_FIELDS = tuple(
    field.name for field in fields(CaseRecord) if field.name not in ("scalars", "timing")
)


@dataclass(frozen=True)
class Run:
    """A pytest-benchmark file.

    Its cases that have a record, with samples and curves, which ``RunSummary`` leaves out.
    """

    environment: Environment | None
    cases: tuple[CaseRecord, ...]
    saved_at: str = ""  # ISO 8601, UTC
    commit: str = ""  # short id, with "+" if the tree had changes

    @classmethod
    def from_json(cls, data: object, source: str) -> Run:
        """Read a parsed pytest-benchmark file. Benchmarks without a record are left out.

        Raises:
            RecordError: names ``source`` and the field.
        """
        try:
            file = Reader(data)
            cases = [
                record.convert(
                    functools.partial(CaseRecord.from_json, timing=timing_of(benchmark["stats"]))
                )
                for benchmark in file["benchmarks"].items()
                if (record := record_of(benchmark))
            ]
            origin = read_origin(file)
        except RecordError as error:
            raise RecordError(
                f"{source}: {error}; save the run again or leave the file out"
            ) from None
        return cls(
            origin.environment,
            tuple(cases),
            origin.saved_at,
            short_commit(origin.commit, dirty=origin.dirty),
        )


def run_header(environment: Environment) -> dict[str, Any]:
    """Return the value of the key "mnistbench" at the top of a file."""
    return {"schema": SCHEMA, "environment": asdict(environment)}


def nanoseconds(seconds: float) -> float:
    """Return pytest-benchmark's seconds in nanoseconds with the same digits.

    4.14e-08 s is 41.4 ns, not 41.400000000000006.
    """
    return float(Decimal(repr(float(seconds))).scaleb(9))


def median(samples: Iterable[float]) -> float:
    """Return the median; 0 for no samples."""
    values = list(samples)
    return statistics.median(values) if values else 0


def median_ns(samples: Iterable[int]) -> int:
    """Return the median of times that a clock read, in whole nanoseconds; 0 for no samples.

    The profiler's and the accelerator's clock have no fractions, and their shortest times are some
    hundred nanoseconds.
    """
    return round(median(samples))


def quartiles_ns(samples: Iterable[int]) -> tuple[int, int]:
    """Return the first and third quartile, linear between samples.

    It is the method "inclusive" of ``statistics.quantiles``.
    """
    values = list(samples)
    if len(values) < 2:
        return (median_ns(values), median_ns(values))
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return (round(first), round(third))


def finite(value: float) -> float | None:
    """Return the value, or None for infinities and NaN."""
    return value if math.isfinite(value) else None


def thin(points: Sequence[_Point], most: int = MAX_POINTS) -> tuple[_Point, ...]:
    """Return at most ``most`` evenly spread points of a series, with the first and the last."""
    if len(points) <= most:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(position * last / (most - 1))] for position in range(most))


# ---- JSON ----------------------------------------------------------------------------------------

#: The columns of a table: counts, which runs of the same code share; medians, which a comparison
#: reads; samples.
COUNTED = ("name", "phase", "module", "calls", "memory_bytes", "shapes", "kernels")
MEASURED = ("self_ns", "spread_ns")
_SAMPLED = ("self_cpu_ns", "total_cpu_ns", "self_device_ns")

#: Fields of Scalars that a comparison reads. Curves are saved beside them.
FINAL = ("dataset", "final", "directory")


def record_of(benchmark: Reader) -> Reader | None:
    """Return the record of a saved benchmark.

    None for a plain one, which may have no ``extra_info`` at all.
    """
    members = benchmark.value
    extra_info = members.get("extra_info") if isinstance(members, Mapping) else None
    is_recorded = isinstance(extra_info, Mapping) and isinstance(extra_info.get(KEY), Mapping)
    return benchmark["extra_info"][KEY] if is_recorded else None


class Origin(NamedTuple):
    """The origin of a saved file: when, where and from which commit it was saved."""

    environment: Environment | None
    saved_at: str  # ISO 8601, UTC; empty if unknown
    commit: str  # whole id; empty if unknown
    dirty: bool  # the tree had changes
    branch: str  # empty if unknown


#: What pytest-benchmark writes for a commit outside a repository, and if git failed.
_NO_COMMIT = ("unversioned", "unknown")


def read_origin(file: Reader) -> Origin:
    """Return the origin of a pytest-benchmark file; only the record's own header must be complete.

    Raises:
        RecordError: names the field.
    """
    top = file.read(Mapping[str, Any])
    if KEY in top:
        file[KEY].convert(check_schema)
    commit = top.get("commit_info")
    commit = commit if isinstance(commit, Mapping) else {}
    identity, branch = (
        name if isinstance(name, str) else "" for name in map(commit.get, ("id", "branch"))
    )
    return Origin(
        environment=file[KEY]["environment"].read(Environment) if KEY in top else None,
        saved_at=_utc(top.get("datetime")),
        commit="" if identity in _NO_COMMIT else identity,
        dirty=commit.get("dirty") is True,
        branch="" if branch in _NO_COMMIT or branch.startswith("(") else branch,
    )


def _utc(value: object) -> str:
    """Return a time as ISO 8601 in UTC: runs are ordered by this text. Empty for what is no time.

    Old versions of pytest-benchmark leave out the offset of UTC; other programs write other
    offsets, or seconds since 1970.
    """
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat()
        if not isinstance(value, str):
            return ""
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            return time.isoformat()
        return time.astimezone(UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def short_commit(identity: str, *, dirty: bool) -> str:
    """Return the first seven digits of a commit, with ``+`` if the tree had changes."""
    return identity[:7] + ("+" if identity and dirty else "")


def timing_of(stats: Reader) -> Timing:
    """Return the statistics of a saved benchmark.

    Raises:
        FieldError: one is missing or no time.
    """
    seconds = {
        name: stats[name].read(Seconds) for name in ("median", "iqr", "min", "mean", "stddev")
    }
    return Timing.from_stats({**seconds, "rounds": stats["rounds"].read(int)})


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def table_to_json(table: OpTable) -> dict[str, str]:
    """Return a table in columns, which take a third of the bytes of objects.

    The medians are saved although they follow from the samples: comparing 1,000 saved runs needs
    nothing else, and the samples, which are most of a table, are not parsed then.
    """
    rows = table.rows
    clock = table.clock
    times = {
        "first_of_process": table.first_of_process,
        "profiler_ns": table.profiler_ns,
        "iteration_ns": table.iteration_ns,
        "busy_ns": table.busy_ns,
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


def check_schema(data: object) -> None:
    """Check that this version can read a record.

    Raises:
        RecordError: the record has no schema, or a newer one.
    """
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if type(schema) is not int or schema < 1:
        raise FieldError(f"{schema!r} is not a version of a mnistbench record", "schema")
    if schema > SCHEMA:
        raise FieldError(
            f"{schema} is newer than the {SCHEMA} that this mnistbench reads: upgrade mnistbench",
            "schema",
        )


# ---- Sums over the events of a trace, which become the rows of an operation table ----------------


@dataclass
class RowSums:
    """Sums over the events of a row, one slot per iteration. Times are nanoseconds."""

    slots: int
    calls: int = 0
    self_cpu: list[int] = field(default_factory=list)
    total_cpu: list[int] = field(default_factory=list)
    self_device: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for times in (self.self_cpu, self.total_cpu, self.self_device):
            times.extend([0] * self.slots)
        self.memory.extend([0] * self.slots)

    def op_row(self, key: OpKey, view: str) -> OpRow:
        """Return the row of a table of the view ``host`` or ``device``."""

        def possible(times: list[int]) -> tuple[int, ...]:
            # Where calls of a thread overlap, a self time can be below 0.
            return tuple(max(0, ns) for ns in times)

        name, phase, module = key
        on_device = view == "device"
        return OpRow(
            name=name,
            phase=phase,
            module=module,
            calls=self.calls / self.slots,
            self_cpu_ns=possible(self.self_cpu),
            total_cpu_ns=possible(self.total_cpu),
            self_device_ns=possible(self.self_device) if on_device else (),
            memory_bytes=median_ns(self.memory),
            shapes=tuple(sorted(self.shapes)),
            kernels=tuple(sorted(self.kernels)) if on_device else (),
        )


def subtract_waiting(
    rows: MutableMapping[OpKey, RowSums], elsewhere: Mapping[tuple[str, int], int]
) -> None:
    """Subtract what other threads ran from the time outside operations.

    The thread of the iterations waits for them.

    ``elsewhere`` maps (phase of the waiting thread, iteration) to the self time on other threads.
    """
    for (phase, slot), waited in elsewhere.items():
        outside = rows.get((OUTSIDE, phase, NO_MODULE))
        if outside is not None:
            outside.self_cpu[slot] = outside.total_cpu[slot] = max(
                0, outside.self_cpu[slot] - waited
            )
