"""What comparing needs of a saved run: medians, calls, bytes and the environment. Samples and curves stay unread.

A thousand saved runs fit into memory and into seconds this way. A digest is made of a parsed file or of the records of
the session that is running, and is the same for both: a comparison cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from mnistbench.compare.thresholds import Threshold, plain_threshold
from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.json_reader import LARGEST, in_path
from mnistbench.core.params import Params
from mnistbench.core.record import (
    COUNTED,
    KEY,
    MEASURED,
    NO_COMMIT,
    CaseRecord,
    Environment,
    RecordReader,
    check_schema,
    run_header,
)

#: (operation, phase, module)
OpKey = tuple[str, str, str]


class OpSummary(NamedTuple):
    """One operation of one phase and module, per iteration."""

    calls: float
    self_ns: int  # median over iterations, the profiler's cost included
    spread_ns: int  # interquartile range over iterations
    memory_bytes: int
    shapes: tuple[str, ...]
    kernels: tuple[str, ...]


class Counted(NamedTuple):
    """What a table counts, in columns; runs of the same code share one."""

    keys: tuple[OpKey, ...]
    calls: tuple[float, ...]
    memory_bytes: tuple[int, ...]
    shapes: tuple[tuple[str, ...], ...]
    kernels: tuple[tuple[str, ...], ...]


class TableSummary(NamedTuple):
    """A warm table in columns, an entry per operation."""

    profiler_ns: int  # cost per call
    counted: Counted
    self_ns: list[int]
    spread_ns: list[int]

    @property
    def operations(self) -> dict[OpKey, OpSummary]:
        """Every operation by its key."""
        counted = self.counted
        rows = zip(
            counted.calls, self.self_ns, self.spread_ns, counted.memory_bytes, counted.shapes, counted.kernels, strict=True
        )
        return dict(zip(counted.keys, map(OpSummary._make, rows), strict=True))


@dataclass(frozen=True)
class CaseSummary:
    """One case of one run."""

    test: str
    node_id: str
    params: Params | None  # None: a plain benchmark of pytest-benchmark
    wall_ns: int  # median of the untraced call
    wall_spread_ns: int  # interquartile range of the rounds
    device_ns: tuple[int, ...] = ()
    parameter_count: int = 0
    tables: Mapping[str, TableSummary] = field(default_factory=dict)  # by view: host, device
    tables_in: str = ""
    final: Mapping[str, float | None] = field(default_factory=dict)
    curves_of: str = ""  # the dataset that final values were reached on
    directory: str = ""  # of the TensorBoard run
    op_fail: tuple[str, ...] = ()
    case_fail: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What the same case has in other runs."""
        return (self.test, self.params) if self.params else (self.node_id,)

    @property
    def label(self) -> str:
        """A name for people that no other case of the run has."""
        return f"{self.params.label} on {self.params.dataset}" if self.params else self.node_id

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a user may call the case by."""
        short = self.params.label if self.params else self.node_id
        return (self.label, short, self.node_id, self.node_id.rpartition("::")[2])


@dataclass(frozen=True)
class RunSummary:
    """One saved file, or the session that is running."""

    environment: Mapping[str, Any]  # of plain files only what pytest-benchmark wrote
    cases: tuple[CaseSummary, ...]
    saved_at: str = ""  # ISO 8601, UTC; empty for the running session
    commit: str = ""  # whole id
    dirty: bool = False  # the tree had changes
    branch: str = ""
    plain: bool = False  # no benchmark of ours: compared by case only

    @property
    def label(self) -> str:
        """When and of which commit: ``2026-11-20 10:31 UTC, commit 1a2b3c4``."""
        when = f"{self.minute} UTC" if self.saved_at else "this run"
        return f"{when}, commit {self.short_commit}" if self.commit else when

    @property
    def minute(self) -> str:
        """When it was saved: ``2026-11-20 10:31``; empty for the running session."""
        return self.saved_at[:16].replace("T", " ")

    @property
    def short_commit(self) -> str:
        """Short id, with ``+`` where the tree had changes."""
        return self.commit[:7] + ("+" if self.commit and self.dirty else "")

    @classmethod
    def of_session(cls, environment: Environment, records: Iterable[CaseRecord]) -> RunSummary:
        """Digest the records of the session that is running."""
        # Through what would be saved, so that nothing can differ from a comparison of files.
        cases = tuple(_case(RecordReader(record.to_json()), _seconds(record), {}, tables=True) for record in records)
        return cls(environment=run_header(environment)["environment"], cases=cases)

    @classmethod
    def from_json(cls, data: object, source: str, known: dict[Any, Any] | None = None, *, tables: bool = True) -> RunSummary:
        """Read a parsed pytest-benchmark file, with our records or without.

        Args:
            data: the parsed file.
            source: what errors call it.
            known: texts seen in other files; shared between many, they lie in memory once.
            tables: read the operation tables too, which is most of the work.

        Raises:
            RecordError: names ``source`` and the field.
        """
        try:
            return _run(RecordReader(data), {} if known is None else known, tables=tables)
        except RecordError as error:
            complaint = f"{source}: {error}; save the run again or leave the file out"
            raise RecordError(units.printable(complaint)) from None  # a field of any name is named too


def _seconds(record: CaseRecord) -> Mapping[str, float]:
    assert record.timing is not None, "a measured case has its timing"
    return {"median": record.timing.median_ns / 1e9, "iqr": record.timing.iqr_ns / 1e9}


def _run(file: RecordReader, known: dict[Any, Any], *, tables: bool) -> RunSummary:
    benchmarks = file["benchmarks"].items()
    ours = [benchmark for benchmark in benchmarks if _is_ours(benchmark)]
    header = file.mapping().get(KEY)
    if header is not None:
        in_path(header, check_schema)
    commit = file.mapping().get("commit_info", RecordReader({}, "commit_info"))
    identity, branch = _text(commit, "id"), _text(commit, "branch")
    saved_at = file.mapping().get("datetime")
    return RunSummary(
        environment=asdict(header["environment"].environment()) if header is not None else _plain_environment(file),
        cases=tuple(_ours(benchmark, known, tables=tables) for benchmark in ours) or tuple(map(_plain, benchmarks)),
        saved_at=saved_at.text() if saved_at is not None and saved_at.value is not None else "",
        commit="" if identity in NO_COMMIT else identity,
        dirty=commit.mapping()["dirty"].value is True if "dirty" in commit.mapping() else False,
        branch="" if branch in NO_COMMIT or branch.startswith("(") else branch,
        plain=not ours,
    )


def _is_ours(benchmark: RecordReader) -> bool:
    extra = benchmark["extra_info"].mapping()
    return KEY in extra and isinstance(extra[KEY].value, Mapping)


def _text(reader: RecordReader, name: str) -> str:
    value = reader.mapping()[name].value if name in reader.mapping() else None
    return value if isinstance(value, str) else ""


def _ours(benchmark: RecordReader, known: dict[Any, Any], *, tables: bool) -> CaseSummary:
    record = benchmark["extra_info"][KEY]
    in_path(record, check_schema)
    return _case(record, _stats(benchmark), known, tables=tables)


def _stats(benchmark: RecordReader) -> Mapping[str, float]:
    """Return median and interquartile range in seconds."""
    stats = benchmark["stats"]
    for name in ("median", "iqr"):
        if not 0 <= stats[name].number() * 1e9 <= LARGEST:
            raise stats[name].wrong("a time in seconds")
    assert isinstance(stats.value, Mapping)
    return stats.value


def _plain(benchmark: RecordReader) -> CaseSummary:
    name, stats = benchmark["fullname"].text(), _stats(benchmark)
    return CaseSummary(name, name, None, round(stats["median"] * 1e9), round(stats["iqr"] * 1e9))


def _plain_environment(file: RecordReader) -> dict[str, Any]:
    """Return the little that pytest-benchmark says of the machine, under the names of an Environment."""
    machine = file.mapping().get("machine_info", RecordReader({}))
    cpu = machine.mapping().get("cpu", RecordReader({})) if isinstance(machine.value, Mapping) else RecordReader({})
    found = {
        "python": _text(machine, "python_version") if isinstance(machine.value, Mapping) else "",
        "cpu_model": _text(cpu, "brand_raw") if isinstance(cpu.value, Mapping) else "",
    }
    return {name: text for name, text in found.items() if text}


def _case(record: RecordReader, stats: Mapping[str, float], known: dict[Any, Any], *, tables: bool) -> CaseSummary:
    scalars = record["scalars"]
    final: Mapping[str, float | None] = {}
    curves_of = directory = ""
    if scalars.value is not None:
        parsed = scalars.parsed()
        final = {tag: value.number_or_none() for tag, value in parsed["final"].mapping().items()}
        curves_of, directory = parsed["dataset"].text(), parsed["directory"].text()
    return CaseSummary(
        test=record["test"].text(),
        node_id=record["node_id"].text(),
        params=_params(record["params"], known),
        wall_ns=round(stats["median"] * 1e9),
        wall_spread_ns=round(stats["iqr"] * 1e9),
        device_ns=record["device_ns"].parsed().all_nanoseconds(),
        parameter_count=record["parameter_count"].whole(),
        tables=dict(_warm_tables(record["tables"].items(), known)) if tables else {},
        tables_in=record["tables_in"].text(),
        final=final,
        curves_of=curves_of,
        directory=directory,
        op_fail=tuple(_threshold(text, Threshold.parse, "a threshold such as 10%") for text in record["op_fail"].items()),
        case_fail=_threshold(record["case_fail"], _limit, "a threshold for a call such as 10%"),
    )


def _params(reader: RecordReader, known: dict[Any, Any]) -> Params:
    text = repr(reader.value)
    if ("params", text) not in known:
        known["params", text] = reader.params()
    found: Params = known["params", text]
    return found


def _threshold(reader: RecordReader, parse: Callable[[str], object], expected: str) -> str:
    """Return the text of a threshold that can be parsed when it is needed."""
    try:
        parse(reader.text())
    except ValueError:
        raise reader.wrong(expected) from None
    return reader.text()


def _limit(text: str) -> Threshold | None:
    return plain_threshold(text) if text else None


def _warm_tables(tables: Sequence[RecordReader], known: dict[Any, Any]) -> Iterable[tuple[str, TableSummary]]:
    for item in tables:
        if item["temperature"].one_of("cold", "warm") == "warm":
            yield item["view"].one_of("host", "device"), _table(item, known)


def _table(table: RecordReader, known: dict[Any, Any]) -> TableSummary:
    text = table["operations"].text()
    if text not in known:
        known[text] = _counted(table["operations"].parsed())
    counted: Counted = known[text]
    times = table["times"].parsed()
    columns: list[Any] = [times[name].value for name in MEASURED]
    if not all(_all(column, int) and min(column, default=0) >= 0 and max(column, default=0) <= LARGEST for column in columns):
        raise _complaint(times, dict.fromkeys(MEASURED, RecordReader.nanoseconds))
    if any(len(column) != len(counted.keys) for column in columns):
        raise RecordError(f"{table.path}: has columns of different length")
    return TableSummary(times["profiler_ns"].nanoseconds(), counted, *columns)


def _counted(operations: RecordReader) -> Counted:
    """Check whole columns at once; only a spoiled one is asked where it is."""
    found: list[Any] = [operations[name].value for name in COUNTED]
    names, phases, modules, calls, memory, shapes, kernels = found
    sound = (
        all(_all(texts, str) for texts in (names, phases, modules))
        and (_all(calls, float, int) and _between(0, calls))
        and (_all(memory, int) and _between(-LARGEST, memory))
        and all(_all(column, list) and all(_all(texts, str) for texts in column) for column in (shapes, kernels))
        and len(set(map(len, found))) == 1
    )
    if not sound:
        raise _complaint(operations, dict(zip(COUNTED, _CHECKS_OF_COUNTED, strict=True)))
    return Counted(
        keys=tuple(zip(names, phases, modules, strict=True)),
        calls=tuple(calls),
        memory_bytes=tuple(memory),
        shapes=tuple(map(tuple, shapes)),
        kernels=tuple(map(tuple, kernels)),
    )


def _all(column: object, *types: type) -> bool:
    return type(column) is list and set(map(type, column)) <= set(types)


def _between(least: int, column: Sequence[float]) -> bool:
    return all(least <= value <= LARGEST for value in column)  # NaN would hide from min and max


def _complaint(columns: RecordReader, checks: Mapping[str, Callable[[RecordReader], object]]) -> RecordError:
    """Return what is wrong with the first spoiled cell, or with the lengths."""
    try:
        for name, check in checks.items():
            for cell in columns[name].items():
                check(cell)
    except RecordError as error:
        return error
    return RecordError(f"{columns.path}: has columns of different length")


def _number_of_calls(cell: RecordReader) -> None:
    if not 0 <= cell.number() <= LARGEST:
        raise cell.wrong("a number of calls")


_CHECKS_OF_COUNTED: tuple[Callable[[RecordReader], object], ...] = (
    RecordReader.text, RecordReader.text, RecordReader.text, _number_of_calls, RecordReader.whole,
    RecordReader.texts, RecordReader.texts,
)  # fmt: skip
