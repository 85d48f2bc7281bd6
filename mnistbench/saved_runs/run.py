"""A file of pytest-benchmark, or the running session -> a run: its cases, and where it was made.

A command says how much of a run it needs (``core.record.Detail``). A comparison reads no samples
and curves, and a list of runs no operation tables: then a thousand runs fit into memory and take
seconds. The records of the running session are the same type, so a comparison does not depend
on which of both it gets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.reading import FieldError, member, place, read, wrong
from mnistbench.core.record import (
    KEY,
    CaseRecord,
    Detail,
    Environment,
    Timing,
    check_schema,
    nanoseconds,
    run_header,
    thin,
)
from mnistbench.saved_runs.plain import (
    Seconds,
    is_time,
    measures_time,
    plain_environment,
    plain_name,
    plain_stats,
    samples_s,
    timer_name,
)


@dataclass(frozen=True)
class Run:
    """One saved file, one trace, or the running session."""

    # Fields of Environment; of a plain file and of a trace those that it has.
    environment: Mapping[str, Any]
    cases: tuple[CaseRecord, ...]
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
        """The first seven digits of the commit, with ``+`` if the tree had changes."""
        return self.commit[:7] + ("+" if self.commit and self.dirty else "")

    @classmethod
    def of_session(
        cls,
        environment: Environment | None,
        records: Sequence[CaseRecord],
        plain_benchmarks: Sequence[Mapping[str, Any]] = (),
        why_empty: str = "",
    ) -> Run:
        """Return the running session, as it would be read from its file.

        ``plain_benchmarks`` have ``fullname`` and ``stats`` as in a file of pytest-benchmark.
        ``why_empty`` is why no benchmark ran, if none did.
        """
        cases = _named((*records, *map(_plain_case, plain_benchmarks)))
        return cls(
            environment=_known(run_header(environment)["environment"]) if environment else {},
            cases=cases,
            plain=not records and bool(plain_benchmarks),
            why_empty="" if cases else why_empty,
        )

    @classmethod
    def from_json(cls, data: object, source: str, detail: Detail = "all") -> Run:
        """Read a parsed pytest-benchmark file, with records or without.

        Raises:
            RecordError: names ``source`` and the field.
        """
        try:
            return _run(data, source, detail)
        except RecordError as error:
            complaint = f"{source}: {error}; save the run again or leave the file out"
            # The name of a field may have any character.
            raise RecordError(units.printable(complaint)) from None


def _run(data: object, source: str, detail: Detail) -> Run:
    cases: list[CaseRecord] = []
    left_out: list[FieldError] = []
    plain = True
    for position, benchmark in enumerate(member(data, "benchmarks", list[Any])):
        try:
            with place(f"benchmarks[{position}]"):
                record = _record_of(benchmark)
                if record is None:
                    cases.append(_plain_case(benchmark, detail))
                    continue
        # Of another program, or of a test that failed: the others can be compared.
        except FieldError as error:
            left_out.append(error)
            continue
        plain = False
        with place(f"benchmarks[{position}]"):
            stats = member(benchmark, "stats", _Stats)
            timing = Timing.from_stats(vars(stats), timer_name(benchmark))
            with place(f"extra_info.{KEY}"):
                cases.append(CaseRecord.from_json(record, timing, detail))
    if left_out and not cases:
        raise left_out[0]
    assert isinstance(data, dict), "it has benchmarks"
    environment = _environment(data)
    commit_info = data.get("commit_info")
    commit_info = commit_info if isinstance(commit_info, dict) else {}
    commit = _text_of(commit_info, "id")
    branch = _text_of(commit_info, "branch")
    return Run(
        environment=environment,
        cases=_named(cases),
        saved_at=_utc(data.get("datetime")),
        commit="" if commit in _NO_COMMIT else commit,
        dirty=commit_info.get("dirty") is True,
        branch="" if branch in _NO_COMMIT or branch.startswith("(") else branch,
        plain=plain,
        source=source,
        left_out=tuple(units.printable(str(error)) for error in left_out),
    )


def _named(cases: Iterable[CaseRecord]) -> tuple[CaseRecord, ...]:
    """Give each case a name of its own.

    The nth benchmark of a test is the same case in two runs. Where two tests have one short name,
    the label of each is its node id.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    numbered = []
    for case in cases:
        key = case.key
        repetition = counts[key] + 1
        counts[key] = repetition
        numbered.append(case.repeated(repetition) if repetition > 1 else case)
    labels = Counter(case.label for case in numbered)
    return tuple(
        replace(case, shares_name=True) if labels[case.label] > 1 else case for case in numbered
    )


def _record_of(benchmark: object) -> object | None:
    """Return the record of a saved benchmark; None for a plain one."""
    extra_info = benchmark.get("extra_info") if isinstance(benchmark, dict) else None
    record = extra_info.get(KEY) if isinstance(extra_info, dict) else None
    return record if isinstance(record, dict) else None


def _plain_case(benchmark: object, detail: Detail = "all") -> CaseRecord:
    """Return a benchmark without a record; its rounds and ``extra_info`` are read with all else.

    Raises:
        FieldError: it has no name or no median.
    """
    members = read(benchmark, dict[str, Any])
    name = plain_name(members)
    stats = plain_stats(members)
    timer = timer_name(members)
    if timer and not measures_time(timer):
        raise wrong(timer, f"a timer that measures time ({name})", "options.timer")
    rounds = stats.get("rounds")
    extra_info = members.get("extra_info")
    return CaseRecord(
        test=name,
        node_id=name,
        params=None,
        rounds_ns=thin(tuple(map(nanoseconds, samples_s(stats)))) if detail == "all" else (),
        attached=extra_info if detail == "all" and isinstance(extra_info, dict) else {},
        timing=Timing(
            median_ns=nanoseconds(stats["median"]),
            iqr_ns=_known_ns(stats.get("iqr")),
            min_ns=_known_ns(stats.get("min")),
            mean_ns=_known_ns(stats.get("mean")),
            stddev_ns=_known_ns(stats.get("stddev")),
            rounds=rounds if type(rounds) is int and rounds > 0 else None,
            timer=timer,
        ),
    )


def _known_ns(seconds: object) -> float | None:
    return nanoseconds(seconds) if is_time(seconds) else None


@dataclass(frozen=True)
class _Stats:
    """What pytest-benchmark saves of a benchmark, as far as a record needs it."""

    median: Seconds
    iqr: Seconds
    min: Seconds
    mean: Seconds
    stddev: Seconds
    rounds: int


#: What pytest-benchmark writes for a commit outside a repository, and if git failed.
_NO_COMMIT = ("unversioned", "unknown")


def _environment(file: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a file's environment; only the record's own header must be complete."""
    if KEY not in file:
        return plain_environment(file)
    with place(KEY):
        check_schema(file[KEY])
        environment: Environment = member(file[KEY], "environment", Environment)
        if environment.threads < 1:
            raise wrong(environment.threads, "at least 1", "environment.threads")
        return _known(vars(environment))


def _known(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an environment that are known."""
    return {name: value for name, value in environment.items() if value != ""}


def _text_of(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


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
