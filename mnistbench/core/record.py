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
from typing import Any, Generic, Literal, TypeVar

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

#: How much is read of a saved case. ``cases``: no operation table. ``medians``: warm tables without
#: the samples of their rows, all that a comparison needs. ``all``: cold tables, samples and curves,
#: too.
Detail = Literal["cases", "medians", "all"]


# ---- Values that are parsed when they are asked for ----------------------------------------------


class Packed(Generic[_T]):
    """A value that a file has as JSON in a text; it is parsed when it is asked for."""

    __slots__ = ("_hint", "_text", "_value")

    def __init__(self, value: _T) -> None:
        self._value: _T | None = value
        self._text = ""
        self._hint: type[_T] | None = None

    @classmethod
    def from_text(cls, text: str, hint: type[_T]) -> Packed[_T]:
        """Return the value of a text, which is read as ``hint``."""
        packed = cls.__new__(cls)
        packed._value = None  # noqa: SLF001
        packed._text = text  # noqa: SLF001
        packed._hint = hint  # noqa: SLF001
        return packed

    @classmethod
    def from_saved(cls, saved: object, hint: type[_T]) -> Packed[_T]:
        """Return the value of what a file has."""
        if not isinstance(saved, str):
            from mnistbench.core.reading import read

            return cls.from_text(read(saved, str), hint)  # it says what is wrong
        return cls.from_text(saved, hint)

    @property
    def value(self) -> _T:
        """The value.

        Raises:
            RecordError: the text is no JSON, or of another type.
        """
        if self._value is None:
            from mnistbench.core.reading import read_text

            assert self._hint is not None, "made of a text"
            self._value = read_text(self._text, self._hint)
            self._text = ""  # it takes several times the memory of the value
        return self._value

    @property
    def text(self) -> str:
        """The text."""
        return self._text or _compact(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Packed({self.value!r})"


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
        _check_range("calls", self.calls, "numbers of calls")
        _check_range("memory_bytes", tuple(map(abs, self.memory_bytes)), "sizes")

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
            _check_range(name, getattr(self, name), "times of at least 0 ns")
        _check_range("profiler_ns", (self.profiler_ns,), "a time of at least 0 ns")


@dataclass(frozen=True)
class OpSamples:
    """The samples of a table: of each row, a time for each profiled iteration."""

    self_cpu_ns: tuple[_Times, ...]
    total_cpu_ns: tuple[_Times, ...]
    self_device_ns: tuple[_Times, ...]

    def __post_init__(self) -> None:
        columns = [getattr(self, column.name) for column in fields(self)]
        _check_lengths(columns)
        for column in fields(self):
            for times_ns in getattr(self, column.name):
                _check_range(column.name, times_ns, "times of at least 0 ns")


def _check_lengths(columns: Sequence[Sequence[object]]) -> None:
    if len(set(map(len, columns))) > 1:
        raise ValueError("has columns of different length")


def _check_range(name: str, numbers: Sequence[float], needed: str) -> None:
    if numbers and (min(numbers) < 0 or max(numbers) > LARGEST):
        raise ValueError(f"{name} needs {needed}")


@dataclass(frozen=True)
class OpTable:
    """All operations of a case in one profiled pass.

    It is saved in columns, which take a third of the bytes of objects. The medians are saved
    although they follow from the samples: a comparison of 1,000 saved runs needs nothing else, and
    the samples, which are most of a table, are not parsed then.
    """

    temperature: Temperature
    # host: host activities only. device: host and device activities. functions: Python functions
    # and built-in ones, with the times that they take under cProfile.
    view: Literal["host", "device", "functions"]
    operations: Packed[OpCounts]
    times: Packed[OpTimes]
    samples: Packed[OpSamples] | None  # None: of a run that was read without samples

    @classmethod
    def from_rows(
        cls,
        temperature: str,
        view: str,
        iteration_ns: _Times,
        rows: Iterable[OpRow],
        first_of_process: bool = False,
        profiler_ns: int = 0,
        busy_ns: _Times = (),
    ) -> OpTable:
        """Return the table of some operations.

        Args:
            temperature: ``cold`` or ``warm``.
            view: ``host``, ``device`` or ``functions``.
            iteration_ns: wall time of each profiled iteration, profiler overhead included.
            rows: the operations, with a sample for each of these iterations.
            first_of_process: of a cold table: no case had run before, so libraries were initialised
                too.
            profiler_ns: profiler overhead per operation call, measured in this process; 0: not
                measured.
            busy_ns: time of each iteration in which the accelerator ran at least one kernel or
                copy; empty in a host table. Of kernels that run at once it counts one, so it is at
                most the sum of the rows.
        """
        rows = tuple(rows)
        clock = "device" if view == "device" else "cpu"

        def columns(kind: type[_T]) -> _T:
            names = [column.name for column in fields(kind)]  # type: ignore[arg-type]
            return kind(**{name: tuple(getattr(row, name) for row in rows) for name in names})

        times = OpTimes(
            iteration_ns=iteration_ns,
            self_ns=tuple(row.self_ns(clock) for row in rows),
            spread_ns=tuple(row.spread_ns(clock) for row in rows),
            first_of_process=first_of_process,
            profiler_ns=profiler_ns,
            busy_ns=busy_ns,
        )
        return cls(
            temperature=temperature,  # type: ignore[arg-type]
            view=view,  # type: ignore[arg-type]
            operations=Packed(columns(OpCounts)),
            times=Packed(times),
            samples=Packed(columns(OpSamples)),
        )

    def changed(self, **changes: Any) -> OpTable:
        """Return the table with other values of these arguments of :meth:`from_rows`."""
        return OpTable.from_rows(**{**self.arguments, **changes})

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of :meth:`from_rows`."""
        return {
            "temperature": self.temperature,
            "view": self.view,
            "iteration_ns": self.iteration_ns,
            "rows": self.rows,
            "first_of_process": self.first_of_process,
            "profiler_ns": self.profiler_ns,
            "busy_ns": self.busy_ns,
        }

    def without_samples(self) -> OpTable:
        """Return what a comparison reads of the table.

        Raises:
            FieldError: a text is damaged.
        """
        counts = _shared_counts(self.operations.text)
        return replace(self, operations=counts, samples=None).checked(has_samples=False)

    def checked(self, *, has_samples: bool = True) -> OpTable:
        """Return the table after all of it was parsed.

        Raises:
            FieldError: a text is damaged, its columns do not fit those of another, or a table that
                has samples is without them.
        """
        from mnistbench.core.reading import FieldError, place, wrong

        with place("operations"):
            counts = self.operations.value
        with place("times"):
            times = self.times.value
        lengths = {len(counts.name), len(times.self_ns)}
        if has_samples:
            if self.samples is None:
                raise wrong(None, "the samples of the rows", "samples")
            with place("samples"):
                lengths.add(len(self.samples.value.self_cpu_ns))
        if len(lengths) > 1:
            raise FieldError("has columns of different length")
        return self

    @property
    def clock(self) -> str:
        """The clock of ``self_ns``: ``device`` in a device table, else ``cpu``."""
        return "device" if self.view == "device" else "cpu"

    @property
    def iteration_ns(self) -> _Times:
        """Wall time of each profiled iteration, profiler overhead included."""
        return self.times.value.iteration_ns

    @property
    def first_of_process(self) -> bool:
        """Whether no case had run before a cold table, so libraries were initialised too."""
        return self.times.value.first_of_process

    @property
    def profiler_ns(self) -> int:
        """Profiler overhead per operation call; 0: not measured."""
        return self.times.value.profiler_ns

    @property
    def busy_ns(self) -> _Times:
        """Time of each iteration in which the accelerator ran; empty in a host table."""
        return self.times.value.busy_ns

    @property
    def keys(self) -> tuple[OpKey, ...]:
        """Operation, phase and module of each row."""
        return self.operations.value.keys

    @functools.cached_property
    def rows(self) -> tuple[OpRow, ...]:
        """The operations with their samples."""
        assert self.samples is not None, "read with its samples"
        parts = (self.operations.value, self.samples.value)
        columns = {
            column.name: getattr(part, column.name) for part in parts for column in fields(part)
        }
        return tuple(
            OpRow(**dict(zip(columns, cells, strict=True)))
            for cells in zip(*columns.values(), strict=True)
        )

    @property
    def net_ns(self) -> Sequence[int]:
        """Median self time of each row minus the profiler's overhead, which device times lack."""
        self_ns = self.times.value.self_ns
        if self.clock == "device" or not self.profiler_ns:
            return self_ns
        overheads = _overheads(self.operations.value.calls, self.profiler_ns)
        return tuple(map(operator.sub, self_ns, overheads))

    def rest_ns(self, clock: str) -> dict[str, int]:
        """Return the median self time of what is no operation, by name, summed over phases.

        Without those of no time.
        """
        rest: dict[str, int] = {}
        for row in self.rows:
            if not row.is_operation and (ns := row.self_ns(clock)):
                rest[row.name] = rest.get(row.name, 0) + ns
        return rest

    @property
    def total_ns(self) -> int:
        """Sum of the self times of all rows per iteration: the base of shares."""
        return sum(self.times.value.self_ns)

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

        return self.changed(
            iteration_ns=divided(self.iteration_ns),
            rows=[
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
            ],
            busy_ns=divided(self.busy_ns),
        )

    def to_json(self) -> dict[str, str]:
        """Return the table as it is saved."""
        assert self.samples is not None, "read with its samples"
        return {
            "temperature": self.temperature,
            "view": self.view,
            "operations": self.operations.text,
            "times": self.times.text,
            "samples": self.samples.text,
        }


@functools.lru_cache(maxsize=1024)
def _shared_counts(text: str) -> Packed[OpCounts]:
    """Return the counts of a table: runs of the same code have the same text, and share them."""
    return Packed.from_text(text, OpCounts)


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
    tables: tuple[OpTable, ...] = ()
    # Label of the case that has the tables, for cases without tables of their own.
    tables_in: str = ""
    scalars: Scalars | None = None
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
            _check_range(name, getattr(self, name), "times of at least 0 ns")
        _check_range("first_call_ns", (self.first_call_ns or 0,), "a time of at least 0 ns")

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
        """Return the table of a temperature; without a view, the device table if there is one.

        Never the table of functions without its view.
        """
        by_view = {table.view: table for table in self.tables if table.temperature == temperature}
        if view:
            return by_view.get(view)  # type: ignore[call-overload, no-any-return]
        return by_view.get("device") or by_view.get("host")

    @property
    def functions(self) -> OpTable | None:
        """The table of functions; None if the case has none."""
        return self.table("warm", "functions")

    @property
    def warm_tables(self) -> tuple[OpTable, ...]:
        """The table of operations and that of functions, as far as the case has them."""
        return tuple(filter(None, (self.table("warm"), self.functions)))

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
            tables=tuple(table.of_one_call(number) for table in self.tables),
        )

    def with_attachments(self, attachments: Mapping[str, Any]) -> CaseRecord:
        """Add the result of a ``pytest_mnistbench_attach`` hook.

        Known names go into their fields, all else into ``attached``.

        Raises:
            RecordError: a value has the wrong type for its name, or cannot be written as JSON.
        """
        if not isinstance(attachments, Mapping):
            raise RecordError(
                f"attachments need a dict of names and values, not {type(attachments).__name__}"
            )
        own_attachments = dict(attachments)
        tables = own_attachments.pop("operation_tables", ())
        notes = own_attachments.pop("notes", ())
        for name, members, kind, needed in (
            ("operation_tables", tables, OpTable, "OpTable objects"),
            ("notes", notes, str, "texts"),
        ):
            if not isinstance(members, list | tuple) or not all(
                isinstance(member, kind) for member in members
            ):
                raise RecordError(f"{name} needs a list of {needed}")
        scalars = own_attachments.pop("training_scalars", self.scalars)
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
                attached={**self.attached, **own_attachments},
            )
            # A value that cannot be read back is an error now.
            return CaseRecord.from_json(merged.to_json(), self.timing)
        except RecordError:
            raise
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RecordError(
                f"{', '.join(sorted(map(str, attachments)))}: not JSON ({error})"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return the value of ``extra_info["mnistbench"]``."""
        scalars = self.scalars
        members = {name: getattr(self, name) for name in _SAVED_AS_THEY_ARE}
        packed = {name: _compact(getattr(self, name)) for name in _SAVED_AS_TEXTS}
        lists = {name: list(getattr(self, name)) for name in ("notes", "op_fail")}
        return {
            "schema": SCHEMA,
            **members,
            **packed,
            **lists,
            "params": self.params and asdict(self.params),
            "tables": [table.to_json() for table in self.tables],
            # Final values and curves are two texts: a comparison parses the final values only.
            "scalars": scalars and _compact({name: getattr(scalars, name) for name in _FINAL}),
            "curves": scalars and _compact(scalars.curves),
        }

    @classmethod
    def from_json(
        cls, data: object, timing: Timing | None = None, detail: Detail = "all"
    ) -> CaseRecord:
        """Read the result of :meth:`to_json`.

        Raises:
            FieldError: names the field that is missing or wrong, or a schema that this version
                does not know.
        """
        from mnistbench.core.reading import FieldError, member, place, read

        check_schema(data)
        assert isinstance(data, Mapping), "it has a schema"
        members = {name: data[name] for name in (*_SAVED_AS_THEY_ARE, *_READ) if name in data}
        for name, kind in _SAVED_AS_TEXTS.items():
            if name in data and (detail == "all" or name == "device_ns"):
                members[name] = _unpacked(data, name, kind)
        if data.get("scalars") is not None:
            final = _unpacked(data, "scalars", dict[str, Any])
            curves = _unpacked(data, "curves", Curves) if detail == "all" else {}
            try:  # here, because the members of Scalars are saved in two
                _check_steps(curves)
            except ValueError as error:
                raise FieldError(str(error), "curves") from None
            members["scalars"] = {**final, "curves": curves}
        saved_tables = data.get("tables", []) if detail != "cases" else []
        tables = []
        for position, table in enumerate(read(saved_tables, list[Any], "tables")):
            with place(f"tables[{position}]"):
                if detail == "all":
                    tables.append(read(table, OpTable).checked())
                elif member(table, "temperature", Temperature) == "warm":
                    tables.append(read(table, OpTable).without_samples())
        # What is made already stays as it is.
        return read({**members, "timing": timing, "tables": tables}, cls)


#: Fields of a case that are saved as they are.
_SAVED_AS_THEY_ARE = (
    "test",
    "node_id",
    "parameter_count",
    "samples",
    "first_call_ns",
    "tables_in",
    "case_fail",
)

#: Fields of a case that are saved as a text each, and their types.
_SAVED_AS_TEXTS: dict[str, Any] = {
    "device_ns": _Times,
    "rounds_ns": tuple[float, ...],
    "attached": Mapping[str, Any],
}

#: Other fields of a case that are read by their type hints alone.
_READ = ("params", "notes", "op_fail")

#: Fields of Scalars that a comparison reads. Curves are saved beside them.
_FINAL = ("dataset", "final", "directory")


def _unpacked(saved: Mapping[str, Any], name: str, hint: Any) -> Any:
    """Return the value of the text in a member."""
    from mnistbench.core.reading import member, read_text

    return read_text(member(saved, name, str), hint, name)


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
    """Return a dataclass for the JSON of a report: as ``asdict``, with the rows of its tables."""
    if isinstance(value, OpTable):
        return as_data(value.arguments)
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
