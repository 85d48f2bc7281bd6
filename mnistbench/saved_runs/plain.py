"""Benchmarks without a record, as pytest-benchmark and programs that write its format save them.

Only a name and a median are needed. Fields that a version or another program leaves out, or fills
with ``null`` or ``NaN``, are computed from others or unknown.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeGuard

from msgspec import Meta

from mnistbench.core.reading import FieldError, member, place
from mnistbench.core.units import LARGEST

Seconds = Annotated[float, Meta(ge=0, le=LARGEST / 1e9)]


def plain_name(benchmark: Mapping[str, Any]) -> str:
    """Return the name of a benchmark: ``fullname``, or ``name`` where that is missing.

    Raises:
        FieldError: it has neither.
    """
    is_short = not isinstance(benchmark.get("fullname"), str) and "name" in benchmark
    name: str = member(benchmark, "name" if is_short else "fullname", str)
    return name


def plain_stats(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of a benchmark in seconds: ``median`` and those that are known.

    A median and an interquartile range that are missing follow from the samples, if they were
    saved.

    Raises:
        FieldError: names the benchmark and the field.
    """
    try:
        stats: dict[str, Any] = dict(member(benchmark, "stats", dict[str, Any]))
        samples = samples_s(stats)
        if samples and not is_time(stats.get("median")):
            stats["median"] = statistics.median(samples)
        if not is_time(stats.get("iqr")):
            stats["iqr"] = _interquartile_range(stats, samples)
        with place("stats"):
            member(stats, "median", Seconds)
    except FieldError as error:
        error.complaint = f"{error.complaint} ({plain_name(benchmark)})"
        raise
    return stats


def timer_name(benchmark: Mapping[str, Any]) -> str:
    """Return the name of the timer of a benchmark: ``process_time``; empty if it is not known."""
    options = benchmark.get("options")
    timer = options.get("timer") if isinstance(options, dict) else None
    return timer.rpartition(".")[2] if isinstance(timer, str) else ""


#: Parts of the names of timers that measure something else: programs also save other numbers with
#: pytest-benchmark, such as ``memory_mb``, ``peak_rss`` or ``bytes_per_op``.
_OF_NO_TIME = re.compile(
    r"mem|byte|alloc|size|(?:^|_)(?:rss|[kmg]i?b|count|percent)(?:_|$)", re.IGNORECASE
)


def measures_time(timer: str) -> bool:
    """Whether the name of a timer does not say that it measures something else."""
    return _OF_NO_TIME.search(timer) is None


def samples_s(stats: Mapping[str, Any]) -> list[float]:
    """Return the seconds of the rounds that ``--benchmark-save-data`` saved; none without it."""
    data = stats.get("data")
    return [float(value) for value in data if is_time(value)] if isinstance(data, list) else []


def is_time(value: object) -> TypeGuard[float]:
    """Whether a value is a time in seconds: a finite number that is not negative."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LARGEST / 1e9
    )


def plain_environment(file: Mapping[str, Any]) -> dict[str, str]:
    """Return what pytest-benchmark saves of the machine, under the names of an Environment."""
    machine = file.get("machine_info")
    machine = machine if isinstance(machine, dict) else {}
    cpu = machine.get("cpu")
    fields = {
        "python": machine.get("python_version"),
        "cpu_model": cpu.get("brand_raw") if isinstance(cpu, dict) else None,
    }
    return {name: text for name, text in fields.items() if text and isinstance(text, str)}


def _interquartile_range(stats: Mapping[str, Any], samples: Sequence[float]) -> float | None:
    """Return the interquartile range in seconds; None if it is not known."""
    first = stats.get("q1")
    third = stats.get("q3")
    if not (is_time(first) and is_time(third)):
        if len(samples) < 2:
            return None
        first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return max(0.0, third - first)
