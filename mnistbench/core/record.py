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
import itertools
import json
import math
import operator
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any, Literal, TypeVar

from mnistbench.core.compiled.compilation import Compilation
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import BYTES, CALLS, NOT_OPERATIONS, OpKey
from mnistbench.core.params import Params
from mnistbench.core.units import LARGEST

#: Version of what is written below the key "mnistbench".
SCHEMA = 1

KEY = "mnistbench"

#: A curve has at most this many points per tag: a page draws no more, and files stay small.
MAX_POINTS = 100

_Point = TypeVar("_Point")
_T = TypeVar("_T")
_Times = tuple[int, ...]  # nanoseconds
Temperature = Literal["cold", "warm"]  # of a profiled pass; cold: first iteration in a process
# Of a table. host: host activities only. device: host and device activities. functions: Python
# functions and built-in ones, with the times that they take under cProfile.
View = Literal["host", "device", "functions"]

#: How much is read of a saved case. ``cases``: no operation table. ``medians``: warm tables without
#: the samples of their rows, all that a comparison needs. ``all``: cold tables, samples and curves,
#: too.
Detail = Literal["cases", "medians", "all"]


# ---- Operation tables ----------------------------------------------------------------------------


@dataclass(frozen=True)
class OpRow:
    """One operation of one phase and module, with one sample per profiled iteration.

    In a table of functions the operation is a function of Python, or a built-in one.
    """

    name: str  # as PyTorch names it: aten::addmm; of a function its qualified name: Parser.read
    phase: str  # forward, backward or optimizer; empty between them, and of a function
    # Qualified name of its module (conv1), NO_MODULE if it has none; of a function the module of
    # Python (package.parse).
    module: str
    calls: float  # per iteration, mean
    self_cpu_ns: _Times  # host time without the operations it calls
    total_cpu_ns: _Times  # host time with the operations it calls
    self_device_ns: _Times  # time of the kernels it launched itself; empty in a host table
    memory_bytes: int  # allocated minus freed on the device of the case, per iteration, median
    shapes: tuple[str, ...] = ()  # distinct input shapes; empty unless they were recorded
    kernels: tuple[str, ...] = ()  # distinct kernels that it launched itself; empty in a host table
    # File and line of the definitions of a Python function; empty for built-in functions and for
    # operations.
    sources: tuple[str, ...] = ()
    # Which counts are averages, because they are not the same in every iteration: CALLS, BYTES.
    varying: tuple[str, ...] = ()

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
class OpCounts:
    """The columns of a table that are no times. Runs of the same code have equal ones."""

    name: tuple[str, ...]
    phase: tuple[str, ...]
    module: tuple[str, ...]
    calls: tuple[float, ...]
    memory_bytes: tuple[int, ...]
    shapes: tuple[tuple[str, ...], ...]
    kernels: tuple[tuple[str, ...], ...]
    sources: tuple[tuple[str, ...], ...]
    varying: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.varying:  # saved before it was known: only an average has a fraction
            varying = tuple(() if count % 1 == 0 else (CALLS,) for count in self.calls)
            object.__setattr__(self, "varying", varying)
        _check_lengths([getattr(self, column.name) for column in fields(self)])
        _check_range("calls", self.calls, _COUNTS)
        _check_range("memory_bytes", tuple(map(abs, self.memory_bytes)), _SIZES)

    @functools.cached_property
    def keys(self) -> tuple[OpKey, ...]:
        """Operation, phase and module of each row."""
        return tuple(zip(self.name, self.phase, self.module, strict=True))


@dataclass(frozen=True)
class OpTimes:
    """The times of a table, without the samples of its rows."""

    first_of_process: bool
    profiler_ns: int
    iteration_ns: _Times
    busy_ns: _Times
    self_ns: _Times  # of each row: median over the iterations
    spread_ns: _Times  # of each row: interquartile range over the iterations

    def __post_init__(self) -> None:
        _check_lengths([self.self_ns, self.spread_ns])
        for name in ("iteration_ns", "self_ns", "spread_ns", "busy_ns"):
            _check_range(name, getattr(self, name), _TIMES)
        _check_range("profiler_ns", (self.profiler_ns,), _TIME)


@dataclass(frozen=True)
class OpSamples:
    """The samples of a table: of each row, a time for each profiled iteration."""

    self_cpu_ns: tuple[_Times, ...]
    total_cpu_ns: tuple[_Times, ...]
    self_device_ns: tuple[_Times, ...]

    def __post_init__(self) -> None:
        _check_lengths([getattr(self, column.name) for column in fields(self)])


#: What a number has to be that is not in its range.
_TIME = "a time of at least 0 ns"
_TIMES = "times of at least 0 ns"
_COUNTS = "numbers of calls"
_SIZES = "sizes"


def _check_lengths(columns: Sequence[Sequence[object]]) -> None:
    if len(set(map(len, columns))) > 1:
        raise ValueError("has columns of different length")


def _check_range(name: str, numbers: Sequence[float], needed: str) -> None:
    if numbers and (min(numbers) < 0 or max(numbers) > LARGEST):
        raise ValueError(f"{name} needs {needed}")


@dataclass(frozen=True)
class OpColumns:
    """What a comparison reads of a table: the counts of its rows and the medians of their times.

    The medians are saved although they follow from the samples: the samples are most of a table,
    and a comparison of 1,000 saved runs does not parse them.
    """

    temperature: Temperature
    view: View
    counts: OpCounts
    times: OpTimes

    @classmethod
    def from_json(cls, data: object) -> OpColumns:
        """Read the result of :meth:`OpTable.to_json` without its samples.

        Raises:
            FieldError: a text is damaged, or its columns do not fit those of another.
        """
        from mnistbench.core.reading import read, read_text

        texts = read(data, TableTexts)
        counts = _shared_counts(texts.operations)
        times = read_text(texts.times, OpTimes, "times")
        _check_fitting(counts.name, times.self_ns)
        return cls(texts.temperature, texts.view, counts, times)

    @property
    def clock(self) -> str:
        """The clock of ``times``: ``device`` in a device table, else ``cpu``."""
        return _clock_of(self.view)

    @property
    def keys(self) -> tuple[OpKey, ...]:
        """Operation, phase and module of each row."""
        return self.counts.keys

    @property
    def net_ns(self) -> Sequence[int]:
        """Median self time of each row minus the profiler's overhead, which device times lack."""
        if self.clock == "device" or not self.times.profiler_ns:
            return self.times.self_ns
        overheads = _overheads(self.counts.calls, self.times.profiler_ns)
        return tuple(map(operator.sub, self.times.self_ns, overheads))


@dataclass(frozen=True)
class OpTable:
    """All operations of a case in one profiled pass."""

    temperature: Temperature
    view: View
    # Wall time of each profiled iteration, profiler overhead included.
    iteration_ns: _Times
    rows: tuple[OpRow, ...]  # with a sample for each of these iterations
    # Of a cold table: no case had run before in the process, so libraries were initialised too.
    first_of_process: bool = False
    # Profiler overhead per operation call, measured in the profiled process; 0: not measured.
    profiler_ns: int = 0
    # Time of each iteration in which the accelerator ran at least one kernel or copy; empty in a
    # host table. Of kernels that run at once it counts one, so it is at most the sum of the rows.
    busy_ns: _Times = ()

    def __post_init__(self) -> None:
        for name in ("iteration_ns", "busy_ns"):
            _check_range(name, getattr(self, name), _TIMES)
        _check_range("calls", [row.calls for row in self.rows], _COUNTS)
        _check_range("memory_bytes", [abs(row.memory_bytes) for row in self.rows], _SIZES)
        for row in self.rows:
            _check_range("self_cpu_ns", row.self_cpu_ns, _TIMES)
            _check_range("total_cpu_ns", row.total_cpu_ns, _TIMES)
            _check_range("self_device_ns", row.self_device_ns, _TIMES)

    @classmethod
    def from_json(cls, data: object) -> OpTable:
        """Read the result of :meth:`to_json`.

        Raises:
            FieldError: a text is damaged, or its columns do not fit those of another.
        """
        from mnistbench.core.reading import FieldError, read, read_text

        texts = read(data, TableTexts)
        counts = read_text(texts.operations, OpCounts, "operations")
        times = read_text(texts.times, OpTimes, "times")
        samples = read_text(texts.samples, OpSamples, "samples")
        _check_fitting(counts.name, times.self_ns, samples.self_cpu_ns)
        rows: Iterable[OpRow] = map(
            OpRow,
            counts.name,
            counts.phase,
            counts.module,
            counts.calls,
            samples.self_cpu_ns,
            samples.total_cpu_ns,
            samples.self_device_ns,
            counts.memory_bytes,
            counts.shapes,
            counts.kernels,
            counts.sources,
            counts.varying,
        )
        try:
            return cls(
                temperature=texts.temperature,
                view=texts.view,
                iteration_ns=times.iteration_ns,
                rows=tuple(rows),
                first_of_process=times.first_of_process,
                profiler_ns=times.profiler_ns,
                busy_ns=times.busy_ns,
            )
        except ValueError as error:  # the numbers of the other texts were checked
            raise FieldError(str(error), "samples") from None

    def to_json(self) -> dict[str, str]:
        """Return the table as it is saved, in columns: they take a third of the bytes of rows."""
        columns = self.columns
        texts = TableTexts(
            temperature=self.temperature,
            view=self.view,
            operations=_compact(columns.counts),
            times=_compact(columns.times),
            samples=_compact(self._columns_of(OpSamples)),
        )
        return dict(vars(texts))

    @functools.cached_property
    def columns(self) -> OpColumns:
        """What a comparison reads of the table."""
        times = OpTimes(
            iteration_ns=self.iteration_ns,
            self_ns=tuple(row.self_ns(self.clock) for row in self.rows),
            spread_ns=tuple(row.spread_ns(self.clock) for row in self.rows),
            first_of_process=self.first_of_process,
            profiler_ns=self.profiler_ns,
            busy_ns=self.busy_ns,
        )
        return OpColumns(self.temperature, self.view, self._columns_of(OpCounts), times)

    def _columns_of(self, kind: type[_T]) -> _T:
        names = [column.name for column in fields(kind)]  # type: ignore[arg-type]
        return kind(**{name: tuple(getattr(row, name) for row in self.rows) for name in names})

    @property
    def clock(self) -> str:
        """The clock of the table: ``device`` in a device table, else ``cpu``."""
        return _clock_of(self.view)

    @property
    def keys(self) -> tuple[OpKey, ...]:
        """Operation, phase and module of each row."""
        return tuple(row.key for row in self.rows)

    def rest_ns(self, clock: str) -> dict[str, int]:
        """Return the median self time of what is no operation, by name, summed over phases.

        Names without any time are left out.
        """
        rest: dict[str, int] = {}
        for row in self.rows:
            if not row.is_operation and (ns := row.self_ns(clock)):
                rest[row.name] = rest.get(row.name, 0) + ns
        return rest

    @property
    def total_ns(self) -> int:
        """Sum of the self times of all rows per iteration: the base of shares."""
        return sum(row.self_ns(self.clock) for row in self.rows)

    @functools.cached_property
    def totals_ns(self) -> tuple[int, ...]:
        """Host time of each row with what it calls, per iteration.

        It is the self time, and the median share of an iteration that the calls take, of the sum of
        the self times. The median of the raw times would exceed that sum where iterations were
        disturbed.
        """
        rows = self.rows
        columns = itertools.zip_longest(*(row.self_cpu_ns for row in rows), fillvalue=0)
        sums_ns = list(map(sum, columns))
        whole_ns = sum(row.self_ns("cpu") for row in rows)
        totals = []
        for row in rows:
            called = [
                max(0, total_ns - self_ns) / sum_ns if sum_ns else 0.0
                for self_ns, total_ns, sum_ns in zip(
                    row.self_cpu_ns, row.total_cpu_ns, sums_ns, strict=False
                )
            ]
            own_ns = row.self_ns("cpu")
            called_ns = round(whole_ns * median(called)) if called else 0
            totals.append(min(whole_ns, own_ns + called_ns))
        return tuple(totals)

    def of_one_call(self, calls: int) -> OpTable:
        """Return the table of one call, if every iteration repeated it this number of times."""
        if calls == 1:
            return self

        def divided(times_ns: _Times) -> _Times:
            return tuple(round(ns / calls) for ns in times_ns)

        rows = tuple(
            replace(
                row,
                calls=row.calls / calls,
                self_cpu_ns=divided(row.self_cpu_ns),
                total_cpu_ns=divided(row.total_cpu_ns),
                self_device_ns=divided(row.self_device_ns),
                memory_bytes=round(row.memory_bytes / calls),
                varying=tuple(
                    name
                    for name, count in ((CALLS, row.calls), (BYTES, row.memory_bytes))
                    if name in row.varying or count % calls
                ),
            )
            for row in self.rows
        )
        return replace(
            self,
            iteration_ns=divided(self.iteration_ns),
            rows=rows,
            busy_ns=divided(self.busy_ns),
        )


@dataclass(frozen=True)
class TableTexts:
    """An operation table in a file: JSON texts of OpCounts, OpTimes and OpSamples."""

    temperature: Temperature
    view: View
    operations: str
    times: str
    samples: str


def _clock_of(view: str) -> str:
    return "device" if view == "device" else "cpu"


def _check_fitting(*columns: Sequence[object]) -> None:
    from mnistbench.core.reading import FieldError

    try:
        _check_lengths(columns)
    except ValueError as error:
        raise FieldError(str(error)) from None


@functools.lru_cache(maxsize=1024)
def _shared_counts(text: str) -> OpCounts:
    """Return the counts of a table: runs of the same code have the same text, and share them."""
    from mnistbench.core.reading import read_text

    return read_text(text, OpCounts, "operations")


# Runs of the same code have the same calls, and whole nanoseconds repeat.
@functools.lru_cache(maxsize=1024)
def _overheads(calls: tuple[float, ...], profiler_ns: int) -> tuple[int, ...]:
    return tuple(round(count * profiler_ns) for count in calls)


# ---- Cases ---------------------------------------------------------------------------------------


#: Tag -> points: global step in batches or number of the round, and value.
Curves = Mapping[str, tuple[tuple[int, float | None], ...]]


def _check_steps(curves: Curves) -> None:
    for tag, points in curves.items():
        _check_range(tag, [step for step, _ in points], "steps of at least 0")


@dataclass(frozen=True)
class Scalars:
    """TensorBoard scalars of a case.

    A value that is not finite (a diverged loss) is None: JSON has no NaN.
    """

    dataset: str
    curves: Curves  # at most MAX_POINTS points per tag
    final: Mapping[str, float | None]  # by tag
    directory: str  # of the TensorBoard run; empty if TensorBoard was off

    def __post_init__(self) -> None:
        _check_steps(self.curves)


#: Clocks of Python that measure wall time.
WALL_TIMERS = frozenset(("perf_counter", "default_timer", "monotonic", "time"))


@dataclass(frozen=True)
class Timing:
    """Untraced wall time of one iteration: pytest-benchmark's own statistics.

    Other programs leave some out, which are None.
    """

    median_ns: float
    iqr_ns: float | None  # interquartile range
    min_ns: float | None
    mean_ns: float | None
    stddev_ns: float | None
    rounds: int | None
    timer: str = ""  # pytest-benchmark's name of the clock; empty if it is not known

    @property
    def clock(self) -> str:
        """What the timer measures the time of, as reports name it: ``wall``, ``process``."""
        is_wall = self.timer in WALL_TIMERS or not self.timer  # the default if it is not known
        return "wall" if is_wall else self.timer.removesuffix("_time")

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any], timer: str) -> Timing:
        """Convert pytest-benchmark's statistics, which are float seconds by the clock ``timer``."""
        return cls(
            median_ns=nanoseconds(stats["median"]),
            iqr_ns=nanoseconds(stats["iqr"]),
            min_ns=nanoseconds(stats["min"]),
            mean_ns=nanoseconds(stats["mean"]),
            stddev_ns=nanoseconds(stats["stddev"]),
            rounds=stats["rounds"],
            timer=timer,
        )


@dataclass(frozen=True)
class Environment:
    """Machine and software of a run. They decide whether two runs can be compared.

    A text is empty if it is not known: those of torch, where nothing has imported it.
    """

    mnistbench: str
    python: str
    torch: str
    torchvision: str
    platform: str  # operating system and its release
    cpu_model: str
    cpu_count: int  # logical CPUs available to the process
    threads: int  # intra-op threads of torch
    blas: str
    # Malloc thresholds of the process; empty for the defaults of the C library.
    allocator: Mapping[str, str]
    # accelerators: name, memory, driver, CUDA, cuDNN, TF32 settings.
    devices: tuple[Mapping[str, str], ...]


def without_torch(threads: int) -> Environment:
    """Describe machine and software where nothing has imported torch."""
    from mnistbench.core.machine import machine_and_python

    return Environment(
        **machine_and_python(), torch="", torchvision="", blas="", threads=threads, devices=()
    )


@dataclass(frozen=True)
class CaseRecord:
    """One measured case."""

    test: str  # path::function of the test, without parameters
    node_id: str  # for display only
    params: Params | None  # None: a benchmark without a record of ours, or a part of a trace
    parameter_count: int = 0  # of the model
    samples: int = 1  # processed per iteration: the batch, or the whole set for a pass over a set
    # Wall time of the cold iteration, profiled unless profiling was off.
    first_call_ns: int | None = None
    device_ns: _Times = ()  # device time of single iterations, from events; empty on a CPU
    # Wall time per iteration of each round in order, at most MAX_POINTS.
    rounds_ns: tuple[float, ...] = ()
    # Of a case that was read for a comparison: its warm tables, without their samples.
    tables: tuple[OpTable | OpColumns, ...] = ()
    # Label of the case that has the tables, for cases without tables of their own.
    tables_in: str = ""
    scalars: Scalars | None = None
    compilation: Compilation | None = None  # what torch.compile made of it; None: nothing
    notes: tuple[str, ...] = ()  # what could not be attached, and why
    # JSON values that a conftest.py attached.
    attached: Mapping[str, Any] = field(default_factory=dict)
    op_fail: tuple[str, ...] = ()  # thresholds of the test's own opgate mark, as written there
    case_fail: str = ""  # the same for the time of the case
    timing: Timing | None = None  # pytest-benchmark's statistics; not saved a second time
    # 2 for the second benchmark of one test in its file, after a rerun or in a merged file.
    repetition: int = 1
    # Another case of the run has the same short name, as two files of one name in two folders have.
    shares_name: bool = False

    def __post_init__(self) -> None:
        for name in ("device_ns", "rounds_ns"):
            _check_range(name, getattr(self, name), _TIMES)
        _check_range("first_call_ns", (self.first_call_ns or 0,), _TIME)

    @property
    def key(self) -> tuple[Any, ...]:
        """Identity of the case: equal in other runs."""
        return (self.test, self.params) if self.params else (self.node_id,)

    @property
    def label(self) -> str:
        """A readable name that no other case of the run has."""
        return self.node_id if self.shares_name else self._title

    @property
    def _title(self) -> str:
        return f"{self.params.title}{self._ending}" if self.params else self.node_id

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the case that a user may give."""
        short = f"{self.params.label}{self._ending}" if self.params else self.node_id
        return (self.label, short, self.node_id, self.node_id.rpartition("::")[2], self._title)

    @property
    def _ending(self) -> str:
        """What the names end in: `` (2)`` for the second benchmark of one test."""
        return f" ({self.repetition})" if self.repetition > 1 else ""

    def repeated(self, repetition: int) -> CaseRecord:
        """Return the nth benchmark of one test, whose names end in `` (2)``."""
        numbered = replace(self, repetition=repetition)
        ending = numbered._ending  # noqa: SLF001
        return replace(numbered, test=f"{self.test}{ending}", node_id=f"{self.node_id}{ending}")

    @property
    def known_params(self) -> Params:
        """The parameters of a case that has them."""
        assert self.params is not None, "a case of ours has its parameters"
        return self.params

    @property
    def wall_ns(self) -> float:
        """Median of the untraced iterations."""
        assert self.timing is not None, "a measured case has its timing"
        return self.timing.median_ns

    @property
    def wall_spread_ns(self) -> float:
        """Interquartile range of the rounds; 0 if it is not known."""
        assert self.timing is not None, "a measured case has its timing"
        return self.timing.iqr_ns or 0.0

    def table(self, temperature: str, view: str | None = None) -> OpTable | None:
        """Return the table of a temperature and a view.

        Without a view it is the device table, or the host table if there is none.
        """
        table = self._table(temperature, view)
        assert not isinstance(table, OpColumns), "read with its samples"
        return table

    def columns(self, temperature: str, view: str | None = None) -> OpColumns | None:
        """Return what a comparison reads of the table that :meth:`table` returns."""
        table = self._table(temperature, view)
        return table.columns if isinstance(table, OpTable) else table

    def _table(self, temperature: str, view: str | None) -> OpTable | OpColumns | None:
        by_view = {table.view: table for table in self.tables if table.temperature == temperature}
        if view:
            return by_view.get(view)  # type: ignore[call-overload, no-any-return]
        return by_view.get("device") or by_view.get("host")

    @property
    def whole_tables(self) -> tuple[OpTable, ...]:
        """The tables of a case that was not read for a comparison."""
        whole = tuple(table for table in self.tables if isinstance(table, OpTable))
        assert len(whole) == len(self.tables), "read with their samples"
        return whole

    @property
    def functions(self) -> OpTable | None:
        """The table of functions; None if the case has none."""
        return self.table("warm", "functions")

    @property
    def function_columns(self) -> OpColumns | None:
        """What a comparison reads of the table of functions."""
        return self.columns("warm", "functions")

    @property
    def warm_columns(self) -> tuple[OpColumns, ...]:
        """Columns of the table of operations and of that of functions, if the case has them."""
        return tuple(filter(None, (self.columns("warm"), self.function_columns)))

    def divided_by(self, number: int) -> CaseRecord:
        """Return the case of one of so many iterations, of which this one is the sum."""
        timing = Timing(
            median_ns=round(self.wall_ns / number),
            iqr_ns=round(self.wall_spread_ns / number),
            min_ns=None,
            mean_ns=None,
            stddev_ns=None,
            rounds=None,
        )
        return replace(
            self,
            timing=timing,
            device_ns=tuple(round(ns / number) for ns in self.device_ns),
            tables=tuple(table.of_one_call(number) for table in self.whole_tables),
        )

    def with_attachments(self, attachments: Mapping[str, Any]) -> CaseRecord:
        """Add attachments: known names go into their fields, all else into ``attached``.

        Raises:
            RecordError: a known name has a value of another type.
        """
        if not isinstance(attachments, Mapping):
            raise RecordError(
                f"attachments need a dict of names and values, not {type(attachments).__name__}"
            )
        own_attachments = dict(attachments)
        tables = own_attachments.pop("operation_tables", ())
        compilation = own_attachments.pop("compilation", self.compilation)
        notes = own_attachments.pop("notes", ())
        for name, members, kind, needed in (
            ("operation_tables", tables, OpTable, "OpTable objects"),
            ("notes", notes, str, "texts"),
        ):
            if not isinstance(members, list | tuple) or not all(
                isinstance(member, kind) for member in members
            ):
                raise RecordError(f"{name} needs a list of {needed}")
        if not (compilation is None or isinstance(compilation, Compilation)):
            raise RecordError(
                f"compilation needs a Compilation object, not {type(compilation).__name__}"
            )
        scalars = own_attachments.pop("training_scalars", self.scalars)
        if not (scalars is None or isinstance(scalars, Scalars)):
            raise RecordError(
                f"training_scalars needs a Scalars object, not {type(scalars).__name__}"
            )
        return replace(
            self,
            tables=(*self.tables, *tables),
            scalars=scalars,
            compilation=compilation,
            notes=(*self.notes, *notes),
            attached={**self.attached, **own_attachments},
        )

    def with_checked_attachments(self, attachments: Mapping[str, Any]) -> CaseRecord:
        """Add the attachments of a user, and check that the record can be saved and read back.

        Raises:
            RecordError: a value has the wrong type for its name, or cannot be written as JSON.
        """
        record = self.with_attachments(attachments)
        try:
            return CaseRecord.from_json(record.to_json(), self.timing)
        except RecordError:
            raise
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RecordError(
                f"{', '.join(sorted(map(str, attachments)))}: not JSON ({error})"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return the value of ``extra_info["mnistbench"]``."""
        scalars = self.scalars
        final = curves = None
        if scalars:
            final = _compact(FinalScalars(scalars.dataset, scalars.final, scalars.directory))
            curves = _compact(scalars.curves)
        saved = SavedCase(
            schema=SCHEMA,
            test=self.test,
            node_id=self.node_id,
            parameter_count=self.parameter_count,
            samples=self.samples,
            first_call_ns=self.first_call_ns,
            tables_in=self.tables_in,
            case_fail=self.case_fail,
            device_ns=_compact(self.device_ns),
            rounds_ns=_compact(self.rounds_ns),
            attached=_compact(self.attached),
            notes=list(self.notes),
            op_fail=list(self.op_fail),
            params=self.params,
            tables=[table.to_json() for table in self.whole_tables],
            scalars=final,
            curves=curves,
            compilation=_compact(self.compilation) if self.compilation else None,
        )
        return {**vars(saved), "params": self.params and asdict(self.params)}

    @classmethod
    def from_json(
        cls, data: object, timing: Timing | None = None, detail: Detail = "all"
    ) -> CaseRecord:
        """Read the result of :meth:`to_json`.

        Raises:
            FieldError: names the field that is missing or wrong, or a schema that this version
                does not know.
        """
        from mnistbench.core.reading import FieldError, read, read_text

        check_schema(data)
        saved = read(data, SavedCase)
        device_ns = read_text(saved.device_ns, _Times, "device_ns")
        rounds_ns: tuple[float, ...] = ()
        attached: Mapping[str, Any] = {}
        if detail == "all":
            rounds_ns = read_text(saved.rounds_ns, tuple[float, ...], "rounds_ns")
            attached = read_text(saved.attached, Mapping[str, Any], "attached")
        scalars = _scalars_of(saved, detail)
        compilation = None
        if saved.compilation is not None:
            compilation = read_text(saved.compilation, Compilation, "compilation")
        tables = _tables_of(saved, detail)
        try:
            return cls(
                test=saved.test,
                node_id=saved.node_id,
                params=saved.params,
                parameter_count=saved.parameter_count,
                samples=saved.samples,
                first_call_ns=saved.first_call_ns,
                device_ns=device_ns,
                rounds_ns=rounds_ns,
                tables=tables,
                tables_in=saved.tables_in,
                scalars=scalars,
                compilation=compilation,
                notes=tuple(saved.notes),
                attached=attached,
                op_fail=tuple(saved.op_fail),
                case_fail=saved.case_fail,
                timing=timing,
            )
        except ValueError as error:
            raise FieldError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class SavedCase:
    """A case in a file: the value of ``extra_info["mnistbench"]``.

    A text has JSON. Fields with a default may be missing in a file.
    """

    schema: int
    test: str
    node_id: str
    parameter_count: int = 0
    samples: int = 1
    first_call_ns: int | None = None
    tables_in: str = ""
    case_fail: str = ""
    device_ns: str = "[]"  # integers
    rounds_ns: str = "[]"  # floats
    attached: str = "{}"  # name -> any value
    notes: Sequence[str] = ()
    op_fail: Sequence[str] = ()
    params: Params | None
    tables: Sequence[Any] = ()  # of TableTexts
    # Two texts, because a comparison parses the final values only.
    scalars: str | None = None  # FinalScalars
    curves: str | None = None  # Curves
    compilation: str | None = None  # Compilation


@dataclass(frozen=True)
class FinalScalars:
    """The fields of Scalars that a comparison reads, as a file has them."""

    dataset: str
    final: Mapping[str, float | None]
    directory: str


def _tables_of(saved: SavedCase, detail: Detail) -> tuple[OpTable | OpColumns, ...]:
    """Return the tables of a saved case, as far as a detail has them."""
    from mnistbench.core.reading import member, place

    tables: list[OpTable | OpColumns] = []
    for position, table in enumerate(saved.tables if detail != "cases" else ()):
        with place(f"tables[{position}]"):
            if detail == "all":
                tables.append(OpTable.from_json(table))
            elif member(table, "temperature", Temperature) == "warm":
                tables.append(OpColumns.from_json(table))
    return tuple(tables)


def _scalars_of(saved: SavedCase, detail: Detail) -> Scalars | None:
    from mnistbench.core.reading import FieldError, read_text

    if saved.scalars is None:
        return None
    final = read_text(saved.scalars, FinalScalars, "scalars")
    curves: Curves = {}
    if detail == "all":
        if saved.curves is None:
            raise FieldError("is missing", "curves")
        curves = read_text(saved.curves, Curves, "curves")
    try:
        return Scalars(final.dataset, curves, final.final, final.directory)
    except ValueError as error:
        raise FieldError(str(error), "curves") from None


def run_header(environment: Environment) -> dict[str, Any]:
    """Return the value of the key "mnistbench" at the top of a file."""
    return {"schema": SCHEMA, "environment": asdict(environment)}


# ---- Numbers -------------------------------------------------------------------------------------


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


def as_data(value: Any) -> Any:
    """Return a dataclass for the JSON of a report, without a copy of each value."""
    if is_dataclass(value):
        return {column.name: as_data(getattr(value, column.name)) for column in fields(value)}
    if isinstance(value, Mapping):
        return {name: as_data(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(member) for member in value]
    return value


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_members)


def _members(record: Any) -> dict[str, Any]:
    return {column.name: getattr(record, column.name) for column in fields(record)}


def check_schema(data: object) -> None:
    """Check that this version can read a record.

    Raises:
        FieldError: the record has no schema, or a newer one.
    """
    from mnistbench.core.reading import FieldError

    schema = data.get("schema") if isinstance(data, Mapping) else None
    if type(schema) is not int or schema < 1:
        raise FieldError(f"{schema!r} is not a version of a mnistbench record", "schema")
    if schema > SCHEMA:
        raise FieldError(
            f"{schema} is newer than the {SCHEMA} that this mnistbench reads: upgrade mnistbench",
            "schema",
        )
