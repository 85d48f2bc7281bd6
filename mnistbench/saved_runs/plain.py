"""Benchmarks without a record, as pytest-benchmark and programs that write its format save them.

Only a name and a median are needed. Fields that a version or another program leaves out, or fills with ``null`` or ``NaN``, are
computed from others or unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from mnistbench.core.document import LARGEST, FieldError, Reader, Seconds


def plain_name(benchmark: Reader) -> str:
    """Return the name of a benchmark: ``fullname``, or ``name`` where that is missing.

    Raises:
        FieldError: it has neither.
    """
    members = benchmark.read(Mapping[str, Any])
    is_short = not isinstance(members.get("fullname"), str) and "name" in members
    name: str = benchmark["name" if is_short else "fullname"].read(str)
    return name


def plain_stats(benchmark: Reader) -> Reader:
    """Return the statistics of a benchmark, with ``median`` and ``iqr`` in seconds.

    A median that is missing follows from the samples, if they were saved. An unknown interquartile range is 0.

    Raises:
        FieldError: names the benchmark and the field.
    """
    try:
        members = dict(benchmark["stats"].read(Mapping[str, Any]))
        samples = samples_s(members)
        if samples and not is_time(members.get("median")):
            members["median"] = statistics.median(samples)
        if not is_time(members.get("iqr")):
            members["iqr"] = _interquartile_range(members, samples)
        stats = Reader(members, "stats", benchmark)
        stats["median"].read(Seconds)
    except FieldError as error:
        error.complaint = f"{error.complaint} ({plain_name(benchmark)})"
        raise
    return stats


def samples_s(stats: Mapping[str, Any]) -> list[float]:
    """Return the times of the rounds in seconds, which ``--benchmark-save-data`` saves; an empty list without it."""
    data = stats.get("data")
    return [float(value) for value in data if is_time(value)] if isinstance(data, list) else []


def is_time(value: object) -> bool:
    """Whether a value is a time in seconds: a number that is neither negative nor infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST / 1e9


def plain_environment(file: Any) -> dict[str, str]:
    """Return what pytest-benchmark saves of the machine, under the names of an Environment."""
    machine = file.get("machine_info")
    machine = machine if isinstance(machine, Mapping) else {}
    cpu = machine.get("cpu")
    found = {"python": machine.get("python_version"), "cpu_model": cpu.get("brand_raw") if isinstance(cpu, Mapping) else None}
    return {name: text for name, text in found.items() if text and isinstance(text, str)}


def _interquartile_range(stats: Mapping[str, Any], samples: Sequence[float]) -> float:
    quartiles = [stats.get(name) for name in ("q1", "q3")]
    known = [float(value) for value in quartiles if isinstance(value, int | float) and is_time(value)]
    if len(known) < 2 and len(samples) > 1:
        first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
        known = [first, third]
    return max(0.0, known[1] - known[0]) if len(known) == 2 else 0.0
