"""A saved file -> what the page shows of each case.

Its record, its times, and the samples of its rounds.

A run may have benchmarks with and without a record of mnistbench. Both are cases of the page, in
the order of the file, which is that of ``RunSummary``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mnistbench.core.errors import RecordError
from mnistbench.core.params import params_of_call
from mnistbench.core.reading import FieldError, Reader
from mnistbench.core.record import (
    CaseRecord,
    Environment,
    Run,
    read_origin,
    record_of,
    thin,
    timing_of,
)
from mnistbench.saved_runs.plain import is_time, plain_name, plain_stats, samples_s

#: Times of a case as the page calls them -> their names in a file of pytest-benchmark.
_TIMES = {"median": "median", "IQR": "iqr", "min": "min", "mean": "mean", "SD": "stddev"}


@dataclass(frozen=True)
class PageCase:
    """One case of a run."""

    record: CaseRecord  # of a plain benchmark only its name, its rounds and its ``extra_info``
    times: Mapping[str, float]  # ns, by the names of _TIMES; those that are known
    rounds: int | None  # of pytest-benchmark, or steps of a trace; None if it is not known
    is_plain: bool = False  # a benchmark without a record


@dataclass(frozen=True)
class PageContent:
    """One run."""

    environment: Environment | None  # None where no benchmark has a record
    cases: tuple[PageCase, ...]


def content_of_run(run: Run) -> PageContent:
    """Return the content of a trace that was read as a run."""
    return PageContent(run.environment, tuple(map(_recorded, run.cases)))


def read_content(data: object, source: str) -> PageContent:
    """Read a parsed file of pytest-benchmark.

    Raises:
        RecordError: names ``source`` and the field, or says that there is nothing to show.
    """
    try:
        file = Reader(data)
        cases = []
        for benchmark in file["benchmarks"].items():
            record = record_of(benchmark)
            if record:
                timing = timing_of(benchmark["stats"])
                cases.append(
                    _recorded(
                        record.convert(functools.partial(CaseRecord.from_json, timing=timing))
                    )
                )
            elif plain := _plain(benchmark):
                cases.append(plain)
        environment = read_origin(file).environment
    except RecordError as error:
        raise RecordError(f"{source}: {error}; save the run again or leave the file out") from None
    if not cases:
        raise RecordError(f"{source}: has no benchmark with a time; name another run")
    return PageContent(environment, tuple(cases))


def _recorded(record: CaseRecord) -> PageCase:
    timing = record.timing
    assert timing is not None, "a saved case has its timing"
    times = {
        "median": timing.median_ns,
        "IQR": timing.iqr_ns,
        "min": timing.min_ns,
        "mean": timing.mean_ns,
        "SD": timing.stddev_ns,
    }
    return PageCase(record, times, timing.rounds)


def _plain(benchmark: Reader) -> PageCase | None:
    """Return a benchmark without a record.

    None where ``RunSummary`` leaves it out, because it has no usable time.
    """
    try:
        name = plain_name(benchmark)
        stats = plain_stats(benchmark)
    except FieldError:
        return None
    rounds = stats.get("rounds")
    extra_info = benchmark.read(Mapping[str, Any]).get("extra_info")
    record = CaseRecord(
        test=name,
        node_id=name,
        params=params_of_call(name, "", 1),  # a record needs some; the page shows none of them
        parameter_count=0,
        samples=1,
        rounds_ns=thin(tuple(round(1e9 * seconds) for seconds in samples_s(stats))),
        attached=extra_info if isinstance(extra_info, Mapping) else {},
    )
    return PageCase(
        record=record,
        times={
            shown: 1e9 * stats[stored]
            for shown, stored in _TIMES.items()
            if is_time(stats.get(stored))
        },
        rounds=rounds if type(rounds) is int and rounds > 0 else None,
        is_plain=True,
    )
