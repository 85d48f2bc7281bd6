"""The part of a saved run that a comparison reads.

Medians, counts and the environment, without samples and curves.

A thousand saved runs fit into memory this way and are read in seconds. A summary is made of a
parsed file or of the records of the running session, in the same way: a comparison does not depend
on which.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import operator
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench import __version__
from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.files import replace_file
from mnistbench.core.operation import OpKey
from mnistbench.core.params import Params
from mnistbench.core.reading import FieldError, Nanoseconds, Reader, Seconds
from mnistbench.core.record import (
    COUNTED,
    FINAL,
    MEASURED,
    CaseRecord,
    Environment,
    OpRow,
    OpTable,
    Scalars,
    check_schema,
    median_ns,
    nanoseconds,
    read_origin,
    record_of,
    run_header,
    short_commit,
)
from mnistbench.saved_runs.plain import plain_environment, plain_name, plain_stats


class OpSummary(NamedTuple):
    """One operation of one phase and module, per iteration."""

    calls: float
    self_ns: int  # median over iterations, profiler overhead included
    spread_ns: int  # interquartile range over iterations
    memory_bytes: int
    shapes: tuple[str, ...]
    kernels: tuple[str, ...]


class TableCounts(NamedTuple):
    """Counts of a table, in columns. Runs of the same code share one object."""

    keys: tuple[OpKey, ...]
    calls: tuple[float, ...]
    memory_bytes: tuple[int, ...]
    shapes: tuple[tuple[str, ...], ...]
    kernels: tuple[tuple[str, ...], ...]


class TableSummary(NamedTuple):
    """A warm table in columns, with an entry per operation."""

    profiler_ns: int  # profiler overhead per operation call
    counted: TableCounts
    self_ns: tuple[int, ...]
    spread_ns: tuple[int, ...]
    # Median time per iteration in which the accelerator ran; 0 in a host table and if it is
    # unknown.
    busy_ns: int = 0

    @property
    def operations(self) -> dict[OpKey, OpSummary]:
        """All operations by key."""
        keys, calls, memory_bytes, shapes, kernels = self.counted
        rows = map(OpSummary, calls, self.self_ns, self.spread_ns, memory_bytes, shapes, kernels)
        return dict(zip(keys, rows, strict=True))

    def times(self, clock: str) -> Iterable[int]:
        """Return the self time minus the profiler's overhead of each operation.

        Device times have no overhead.
        """
        cost = 0 if clock == "device" else self.profiler_ns
        return (
            map(operator.sub, self.self_ns, _overheads(self.counted.calls, cost))
            if cost
            else self.self_ns
        )

    def divided_by(self, number: int) -> TableSummary:
        """Return the table of one of so many iterations, of which this one is the sum."""
        counted = self.counted
        return self._replace(
            counted=counted._replace(
                calls=tuple(calls / number for calls in counted.calls),
                memory_bytes=tuple(round(n_bytes / number) for n_bytes in counted.memory_bytes),
            ),
            self_ns=tuple(round(ns / number) for ns in self.self_ns),
            spread_ns=tuple(round(ns / number) for ns in self.spread_ns),
            busy_ns=round(self.busy_ns / number),
        )


# Runs of the same code have the same calls, and whole nanoseconds repeat.
@functools.lru_cache(maxsize=1024)
def _overheads(calls: tuple[float, ...], cost: int) -> tuple[int, ...]:
    return tuple(round(count * cost) for count in calls)


@dataclass(frozen=True)
class CaseSummary:
    """One case of one run."""

    test: str
    node_id: str
    params: Params | None  # None: a plain benchmark of pytest-benchmark
    wall_ns: float  # median of the untraced iterations
    wall_spread_ns: float  # interquartile range of the rounds
    device_ns: tuple[int, ...] = ()
    parameter_count: int = 0
    tables: Mapping[str, TableSummary] = field(default_factory=dict)  # by view: host, device
    tables_in: str = ""
    final: Mapping[str, float | None] = field(default_factory=dict)
    curves_of: str = ""  # dataset of the final values
    directory: str = ""  # of the TensorBoard run
    op_fail: tuple[str, ...] = ()  # thresholds of the test's own mark, as written there
    case_fail: str = ""
    # 2 for the second benchmark of one test in its file, after a rerun or in a merged file.
    repetition: int = 1

    @property
    def key(self) -> tuple[Any, ...]:
        """Identity of the case: equal in other runs."""
        return (self.test, self.params) if self.params else (self.node_id,)

    @property
    def table(self) -> TableSummary | None:
        """The device table if there is one, else that of the host."""
        return self.tables.get("device") or self.tables.get("host")

    @property
    def label(self) -> str:
        """A readable name that no other case of the run has."""
        return f"{self.params.title}{_repeated(self.repetition)}" if self.params else self.node_id

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the case that a user may give."""
        short = f"{self.params.label}{_repeated(self.repetition)}" if self.params else self.node_id
        return (self.label, short, self.node_id, self.node_id.rpartition("::")[2])

    def divided_by(self, number: int) -> CaseSummary:
        """Return the case of one of so many iterations, of which this one is the sum."""
        return replace(
            self,
            wall_ns=round(self.wall_ns / number),
            wall_spread_ns=round(self.wall_spread_ns / number),
            device_ns=tuple(round(ns / number) for ns in self.device_ns),
            tables={view: table.divided_by(number) for view, table in self.tables.items()},
        )


def _repeated(repetition: int) -> str:
    """Return what the names of a case end in: `` (2)`` for the second benchmark of one test."""
    return f" ({repetition})" if repetition > 1 else ""


def _numbered(cases: Iterable[CaseSummary]) -> tuple[CaseSummary, ...]:
    """Give each benchmark of a test a name of its own.

    So the nth of two runs are the same case.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    found = []
    for case in cases:
        counts[case.key] += 1
        repetition = counts[case.key]
        if repetition > 1:
            ending = _repeated(repetition)
            numbered = replace(
                case,
                test=f"{case.test}{ending}",
                node_id=f"{case.node_id}{ending}",
                repetition=repetition,
            )
            found.append(numbered)
        else:
            found.append(case)
    return tuple(found)


@dataclass(frozen=True)
class RunSummary:
    """One saved file, or the running session."""

    environment: Mapping[str, Any]  # of a plain file: only what pytest-benchmark saved
    cases: tuple[CaseSummary, ...]
    # ISO 8601, UTC; empty for the running session, and for a file that does not have it.
    saved_at: str = ""
    commit: str = ""  # whole id
    dirty: bool = False  # the tree had changes
    branch: str = ""
    plain: bool = False  # no benchmark has a record: compared by case only
    source: str = ""  # the file, as errors name it; empty for the running session
    # A line for each benchmark of another program that has no usable time.
    left_out: tuple[str, ...] = ()
    trace: str = ""  # of a trace: its file and its steps; empty for a saved run
    why_empty: str = ""  # of the running session: why no benchmark ran; empty if one did
    # False: a trace without steps, whose times and calls are those of the whole trace.
    has_steps: bool = True

    @property
    def label(self) -> str:
        """Time and commit: ``2026-11-20 10:31 UTC, commit 1a2b3c4``; of a trace its file."""
        if self.trace:
            return f"trace {self.trace}"
        without_time = "unknown time" if self.source else "this run"
        when = f"{self.minute} UTC" if self.saved_at else without_time
        return f"{when}, commit {self.short_commit}" if self.commit else when

    @property
    def minute(self) -> str:
        """Time of saving: ``2026-11-20 10:31``; empty if it is not known."""
        return self.saved_at[:16].replace("T", " ")

    @property
    def short_commit(self) -> str:
        """Short id, with ``+`` if the tree had changes."""
        return short_commit(self.commit, dirty=self.dirty)

    def where(self, name: str, value: object, shown_as: object) -> RunSummary:
        """Return the cases in which a field of ``Params`` has a value.

        They have another value in its place.

        Cases of two values can be compared this way, although their parameters differ.
        """
        kept = [
            (case, case.params)
            for case in self.cases
            if case.params and getattr(case.params, name) == value
        ]
        changes: dict[str, Any] = {name: shown_as}
        return replace(
            self,
            cases=tuple(replace(case, params=replace(params, **changes)) for case, params in kept),
        )

    @classmethod
    def of_session(
        cls,
        environment: Environment | None,
        records: Sequence[CaseRecord],
        others: Sequence[Mapping[str, Any]] = (),
        why_empty: str = "",
    ) -> RunSummary:
        """Summarise the running session, as it would be read from its file.

        ``others`` are plain benchmarks: ``fullname`` and ``stats`` as in a file of
        pytest-benchmark. ``why_empty`` is why no benchmark ran, if none did.
        """
        found = run_header(environment)["environment"] if environment else {}
        cases = _numbered((*summarised(records), *(_plain_case(Reader(one)) for one in others)))
        plain = not records and bool(others)
        return cls(
            environment=found, cases=cases, plain=plain, why_empty="" if cases else why_empty
        )

    @classmethod
    def from_json(cls, data: object, source: str, shared: Shared | None = None) -> RunSummary:
        """Read a parsed pytest-benchmark file, with records or without.

        Errors name ``source``; ``shared`` is what other files have in common with this one.

        Raises:
            RecordError: names ``source`` and the field.
        """
        try:
            return _run(Reader(data), source, shared or Shared())
        except RecordError as error:
            complaint = f"{source}: {error}; save the run again or leave the file out"
            # The name of a field may have any character.
            raise RecordError(units.printable(complaint)) from None


def summarised(records: Iterable[CaseRecord]) -> tuple[CaseSummary, ...]:
    """Return the summaries of measured cases, as they would be read from a file."""
    found = []
    shared = Shared()
    for record in records:
        assert record.timing is not None, "a measured case has its timing"
        found.append(
            _case(Reader(record.to_json()), (record.timing.median_ns, record.timing.iqr_ns), shared)
        )
    return tuple(found)


class Shared:
    """Objects that saved runs have in common.

    Runs that are read with one ``Shared`` have one object of each.
    """

    def __init__(self) -> None:
        self.counted: dict[str, TableCounts] = {}  # by the text of a saved table
        self._params: dict[str, Params] = {}
        self._environments: dict[str, Mapping[str, Any]] = {}

    def environment_of(self, environment: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the environment that is equal to this one."""
        return self._environments.setdefault(repr(environment), environment)

    def params_of(self, stored: Reader) -> Params:
        """Return the params of a record.

        Raises:
            FieldError: they cannot be used.
        """
        identity = repr(stored.value)
        if identity not in self._params:
            self._params[identity] = stored.read(Params)
        return self._params[identity]

    def counted_of(self, table: Reader) -> TableCounts:
        """Return the counts of a saved table.

        Raises:
            FieldError: they cannot be used.
        """
        text = table["operations"].read(str)
        if text not in self.counted:
            names, phases, modules, *counts = (
                table["operations"].parsed().columns(OpRow, COUNTED).values()
            )
            _check_lengths(table, names, phases, modules, *counts)
            self.counted[text] = TableCounts(
                tuple(zip(names, phases, modules, strict=True)), *counts
            )
        return self.counted[text]


def _run(file: Reader, source: str, shared: Shared) -> RunSummary:
    cases: list[CaseSummary] = []
    left_out: list[FieldError] = []
    plain = True
    for benchmark in file["benchmarks"].items():
        record = record_of(benchmark)
        if record:
            cases.append(_case(record, _times(benchmark["stats"]), shared))
            plain = False
            continue
        try:
            cases.append(_plain_case(benchmark))
        # Of another program, or of a test that failed: the others can be compared.
        except FieldError as error:
            left_out.append(error)
    if left_out and not cases:
        raise left_out[0]
    origin = read_origin(file)
    environment = (
        asdict(origin.environment) if origin.environment else plain_environment(file.value)
    )
    return RunSummary(
        shared.environment_of(environment),
        _numbered(cases),
        *origin[1:],
        plain=plain,
        source=source,
        left_out=tuple(units.printable(str(error)) for error in left_out),
    )


def _plain_case(benchmark: Reader) -> CaseSummary:
    name = plain_name(benchmark)
    # An interquartile range that is not known counts as 0: the threshold alone judges the case.
    return CaseSummary(name, name, None, *_times(Reader({"iqr": 0.0, **plain_stats(benchmark)})))


def _times(stats: Reader) -> tuple[float, float]:
    """Return median and interquartile range in nanoseconds."""
    median, iqr = (nanoseconds(stats[name].read(Seconds)) for name in ("median", "iqr"))
    return median, iqr


#: Fields that a summary of a case takes from its record as they are.
_AS_RECORDED = (
    "test",
    "node_id",
    "device_ns",
    "parameter_count",
    "tables_in",
    "op_fail",
    "case_fail",
)


def _case(record: Reader, times: tuple[float, float], shared: Shared) -> CaseSummary:
    record.convert(check_schema)
    members = record.members(CaseRecord, _AS_RECORDED)
    if record["scalars"].value is not None:
        final = record["scalars"].parsed().members(Scalars, FINAL)
        members |= {
            "final": final["final"],
            "curves_of": final["dataset"],
            "directory": final["directory"],
        }
    params = shared.params_of(record["params"])
    places = [
        (item.members(OpTable, ("temperature", "view")), item) for item in record["tables"].items()
    ]
    tables = {
        place["view"]: _table(item, shared)
        for place, item in places
        if place["temperature"] == "warm"
    }
    return CaseSummary(
        **members, params=params, wall_ns=times[0], wall_spread_ns=times[1], tables=tables
    )


def _table(table: Reader, shared: Shared) -> TableSummary:
    counted = shared.counted_of(table)
    times = table["times"].parsed()
    self_ns, spread_ns = (times[name].read(tuple[Nanoseconds, ...]) for name in MEASURED)
    _check_lengths(table, counted.keys, self_ns, spread_ns)
    others = times.members(OpTable, ("profiler_ns", "busy_ns"))
    return TableSummary(
        others["profiler_ns"], counted, self_ns, spread_ns, median_ns(others["busy_ns"])
    )


def _check_lengths(table: Reader, *columns: tuple[Any, ...]) -> None:
    if len(set(map(len, columns))) > 1:
        raise FieldError("has columns of different length", table.path)


# ---- The cache -----------------------------------------------------------------------------------
#
# Summaries of saved runs in one file beside them, so that a thousand saved runs are parsed once and
# not in every command. A summary is found by the hash of the content of its file: it cannot be that
# of an earlier content, and it is still found where saved runs were copied or restored. The cache
# is never needed: a run that it does not have is read from its own file, and so are all runs if it
# is damaged, is of another version or cannot be written.

#: Folder of the cache in a folder of saved runs. pytest-benchmark and git ignore it.
FOLDER = ".mnistbench_cache"

#: Fewer runs than these are parsed in a tenth of a second: they are not worth a file.
FEWEST = 32

#: Version of the file. Raise it with every change of what a summary contains or how it is made from
#: a saved run.
_FORMAT = 3

#: Environments, params, texts of counts, and the rows of the runs.
_EMPTY: tuple[Any, ...] = ([], [], [], {})

_CASE_FIELDS = tuple(field.name for field in fields(CaseSummary))


class SummaryCache:
    """The cached summaries of the saved runs below one folder.

    What runs have in common is stored once; the rows of runs name it by its position.
    """

    def __init__(self, root: Path, shared: Shared) -> None:
        self._shared = shared
        self._file = root / FOLDER / "summaries"
        environments, params, operations, self._rows = self._read()
        self._environments = [  # as records have them: JSON has no tuples
            shared.environment_of(
                {
                    name: tuple(value) if isinstance(value, list) else value
                    for name, value in each.items()
                }
            )
            for each in environments
        ]
        self._params = list(map(shared.params_of, map(Reader, params)))
        self._counted = [shared.counted_of(Reader({"operations": text})) for text in operations]
        self._runs: dict[str, RunSummary] = {}  # by hash: those that were asked for or added
        self._fresh = 0

    def get(self, content: bytes, source: str) -> RunSummary | None:
        """Return the summary of a file; None if it is not cached."""
        key = _key(content)
        if key not in self._rows:
            return None
        self._runs[key] = found = self._run(key, source)
        return found

    def add(self, content: bytes, run: RunSummary) -> None:
        """Add the summary of a file."""
        self._runs[_key(content)] = run
        self._fresh += 1

    def save(self) -> None:
        """Write the file if enough summaries were added; do nothing if it cannot be written."""
        if self._fresh < FEWEST:
            return
        for key, (source, *_) in self._rows.items():
            if key not in self._runs and Path(source).exists():
                self._runs[key] = self._run(key, source)
        payload = json.dumps(_content(self._runs, self._shared), separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(exist_ok=True)
            (self._file.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            replace_file(self._file, _header(payload) + payload)
        self._fresh = 0

    def _read(self) -> Any:
        try:
            header, _, payload = self._file.read_bytes().partition(b"\n")
        except OSError:
            return _EMPTY
        return json.loads(payload) if header + b"\n" == _header(payload) else _EMPTY

    def _run(self, key: str, source: str) -> RunSummary:
        _, environment, cases, saved_at, commit, dirty, branch, plain, left_out = self._rows[key]
        cases = tuple(map(self._case, cases))
        origin = (saved_at, commit, dirty, branch)
        return RunSummary(
            self._environments[environment], cases, *origin, plain, source, tuple(left_out)
        )

    def _case(self, row: Sequence[Any]) -> CaseSummary:
        fields = dict(zip(_CASE_FIELDS, row, strict=True))
        fields["params"] = None if fields["params"] is None else self._params[fields["params"]]
        fields["tables"] = {
            view: TableSummary(
                profiler_ns, self._counted[operations], tuple(self_ns), tuple(spread_ns), busy_ns
            )
            for view, profiler_ns, operations, self_ns, spread_ns, busy_ns in fields["tables"]
        }
        for name in ("device_ns", "op_fail"):
            fields[name] = tuple(fields[name])
        return CaseSummary(**fields)


def _key(content: bytes) -> str:
    return hashlib.sha256(content, usedforsecurity=False).hexdigest()


def _header(payload: bytes) -> bytes:
    """Return the first line: of another version or of a damaged file, it differs."""
    return f"mnistbench {__version__} summaries {_FORMAT} {zlib.crc32(payload):08x}\n".encode()


def _content(runs: Mapping[str, RunSummary], shared: Shared) -> list[Any]:
    """Return what :class:`SummaryCache` reads."""
    texts = {id(counted): text for text, counted in shared.counted.items()}
    # Id of an object that runs share -> position, what is stored.
    pools: tuple[dict[int, tuple[int, Any]], ...] = ({}, {}, {})
    environments, params, operations = pools

    def position(pool: dict[int, tuple[int, Any]], one: object, stored: Any) -> int:
        return pool.setdefault(id(one), (len(pool), stored))[0]

    rows = {}
    for key, run in runs.items():
        cases = []
        for case in run.cases:
            tables = [
                (
                    view,
                    table.profiler_ns,
                    position(operations, table.counted, texts[id(table.counted)]),
                    *table[2:],
                )
                for view, table in case.tables.items()
            ]
            of_params = position(params, case.params, vars(case.params)) if case.params else None
            cases.append([*{**vars(case), "params": of_params, "tables": tables}.values()])
        environment = position(environments, run.environment, run.environment)
        rows[key] = [
            run.source,
            environment,
            cases,
            run.saved_at,
            run.commit,
            run.dirty,
            run.branch,
            run.plain,
            run.left_out,
        ]
    return [*([stored for _, stored in pool.values()] for pool in pools), rows]
