"""One ordinary object of each kind, with keyword overrides: what table tests start from.

Times are given as one number for all iterations, or as one number per iteration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from mnistbench.compare.judge import Judgement
from mnistbench.compare.report import report
from mnistbench.core.params import Params
from mnistbench.core.record import (
    KEY,
    CaseRecord,
    Environment,
    OpRow,
    OpTable,
    Scalars,
    Timing,
    run_header,
)
from mnistbench.saved_runs.run import Run
from mnistbench.showing.output import render

ITERATIONS = 3

#: Formats of the report of a comparison.
FORMATS = ("terminal", "markdown", "json")

_PARAMS = Params(
    workload="convnet",
    phase="step",
    batch_size=16,
    device="cpu",
    dtype="float32",
    threads=1,
    compile=False,
    seed=1,
    dataset="digits",
)
_ENVIRONMENT = Environment(
    mnistbench="0.1.0",
    python="3.11.9",
    torch="2.15.0",
    torchvision="0.30.0",
    platform="Linux 6.8",
    cpu_model="AMD EPYC 9R14",
    cpu_count=2,
    threads=1,
    blas="mkl",
    allocator={"MALLOC_TRIM_THRESHOLD_": "1073741824"},
    devices=(),
)
_SCALARS = Scalars(
    dataset="digits",
    curves={"train/loss": ((1, 2.25), (2, 1.5)), "train/accuracy": ((1, 12.5), (2, 50.0))},
    final={"train/loss": 1.5, "train/accuracy": 50.0},
    directory="runs/convnet-b16-cpu",
)
_TIMING = Timing(
    median_ns=7_500_000,
    iqr_ns=300_000,
    min_ns=7_000_000,
    mean_ns=7_600_000,
    stddev_ns=200_000,
    rounds=20,
)


def params(**changes: Any) -> Params:
    """A training step of ConvNet at batch 16 on the CPU."""
    return dataclasses.replace(_PARAMS, **changes)


def environment(**changes: Any) -> Environment:
    """A machine with two CPUs and no accelerator."""
    return dataclasses.replace(_ENVIRONMENT, **changes)


def scalars(**changes: Any) -> Scalars:
    """Loss and accuracy after one and two batches."""
    return dataclasses.replace(_SCALARS, **changes)


def timing(**changes: Any) -> Timing:
    """Twenty rounds around 7.5 ms."""
    return dataclasses.replace(_TIMING, **changes)


def op_row(
    name: str = "aten::addmm",
    self_cpu_ns: int | Sequence[int] = 100_000,
    *,
    iterations: int = ITERATIONS,
    phase: str = "forward",
    module: str = "fc1",
    calls: float = 1.0,
    total_cpu_ns: int | Sequence[int] | None = None,
    self_device_ns: int | Sequence[int] = (),
    memory_bytes: int = 0,
    shapes: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> OpRow:
    """One operation that calls no other, on a machine without an accelerator."""
    return OpRow(
        name=name,
        phase=phase,
        module=module,
        calls=calls,
        self_cpu_ns=_samples(self_cpu_ns, iterations),
        total_cpu_ns=_samples(self_cpu_ns if total_cpu_ns is None else total_cpu_ns, iterations),
        self_device_ns=_samples(self_device_ns, iterations),
        memory_bytes=memory_bytes,
        shapes=tuple(shapes),
        sources=tuple(sources),
    )


def function_row(
    name: str = "Parser.read", self_cpu_ns: int | Sequence[int] = 100_000, **changes: Any
) -> OpRow:
    """One function of Python."""
    function = {"phase": "", "module": "package.parse", "sources": ["package/parse.py:12"]}
    return op_row(name, self_cpu_ns, **{**function, **changes})


def op_table(
    *rows: OpRow,
    temperature: str = "warm",
    view: str = "host",
    iteration_ns: int | Sequence[int] = 9_000_000,
    iterations: int = ITERATIONS,
    first_of_process: bool = False,
    profiler_ns: int = 0,
    busy_ns: int | Sequence[int] = (),
) -> OpTable:
    """A warm host table of the given rows; without any, one of two operations."""
    return OpTable(
        temperature=temperature,
        view=view,
        iteration_ns=_samples(iteration_ns, iterations),
        rows=rows
        or (
            op_row("aten::mkldnn_convolution", 400_000, module="conv2"),
            op_row("aten::addmm", 100_000),
        ),
        first_of_process=first_of_process,
        profiler_ns=profiler_ns,
        busy_ns=_samples(busy_ns, iterations),
    )


def case_record(**changes: Any) -> CaseRecord:
    """A measured training step with one warm table, its curves and its timing.

    A name that is a field of ``Params`` changes the identity: ``case_record(batch_size=64,
    tables=())``.
    """
    identity = {name: changes.pop(name) for name in _PARAMS_FIELDS if name in changes}
    case_params = dataclasses.replace(changes.pop("params", _PARAMS), **identity)
    ordinary: dict[str, Any] = {
        "test": "bench/test_step.py::test_step",
        "node_id": f"bench/test_step.py::test_step[{case_params.label.partition(' ')[2]}]",
        "params": case_params,
        "parameter_count": 1_199_882,
        "samples": case_params.batch_size,
        "first_call_ns": 30_000_000,
        "rounds_ns": (8_000_000, 7_500_000, 7_000_000, 7_700_000),
        "tables": (op_table(),),
        "scalars": _SCALARS,
        "timing": _TIMING,
    }
    return CaseRecord(**{**ordinary, **changes})


def summary(*cases: CaseRecord, source: str = "0001_base.json", **changes: Any) -> Run:
    """A saved run of the given cases, as a comparison reads it; without any, of one ordinary case.

    ``environment``, ``saved_at``, ``commit``, ``dirty`` and ``branch`` change the run.
    """
    commit = {"id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "dirty": False, "branch": "main"}
    commit.update({name: changes.pop(key) for key, name in _COMMIT.items() if key in changes})
    environment = changes.pop("environment", _ENVIRONMENT)
    saved_at = changes.pop("saved_at", "2026-11-20T10:31:05.123456+00:00")
    header = {KEY: run_header(environment)} if environment else {}
    return Run.from_json(
        saved_file(*cases, commit_info=commit, datetime=saved_at, **header, **changes),
        source,
    )


def plain_summary(name: str, seconds: float = 1.0) -> Run:
    """A file of one benchmark that pytest-benchmark wrote without us."""
    machine = {"python_version": "3.11.9", "cpu": {"brand_raw": "AMD EPYC 9R14"}}
    benchmark = {"fullname": name, "extra_info": {}, "stats": {"median": seconds, "iqr": 0.0}}
    return Run.from_json(
        {"benchmarks": [benchmark], "machine_info": machine, "commit_info": {}}, "plain.json"
    )


_COMMIT = {"commit": "id", "dirty": "dirty", "branch": "branch"}


def base_runs(count: int, *times: int, **changes: Any) -> list[Run]:
    """As many saved runs of one case with one operation, a minute apart.

    It takes these times in turn.
    """
    return [
        summary(
            case_record(
                tables=(op_table(op_row("aten::mm", times[number % len(times)])),), **changes
            ),
            saved_at=f"2026-11-20T10:{number:02}:00+00:00",
        )
        for number in range(count)
    ]


def saved_file(*cases: CaseRecord, **changes: Any) -> dict[str, Any]:
    """What pytest-benchmark's file of :func:`run` parses to, as far as anyone reads it.

    Keywords replace top-level entries.
    """
    ordinary: dict[str, Any] = {
        "machine_info": {"node": "host", "cpu": {"brand_raw": "AMD EPYC 9R14"}},
        "commit_info": {
            "id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d",
            "dirty": False,
            "branch": "main",
        },
        "benchmarks": [saved_benchmark(case) for case in cases or (case_record(),)],
        KEY: run_header(_ENVIRONMENT),
        "datetime": "2026-11-20T10:31:05.123456+00:00",
        "version": "5.3.1",
    }
    return {**ordinary, **changes}


def saved_benchmark(case: CaseRecord) -> dict[str, Any]:
    """One entry below ``benchmarks``."""
    assert case.timing is not None
    return {
        "group": "step",
        "name": case.node_id.rpartition("::")[2],
        "fullname": case.node_id,
        "extra_info": {KEY: case.to_json()},
        "stats": {
            "min": _seconds(case.timing.min_ns),
            "max": _seconds(case.timing.median_ns * 2),
            "mean": _seconds(case.timing.mean_ns),
            "stddev": _seconds(case.timing.stddev_ns),
            "median": _seconds(case.timing.median_ns),
            "iqr": _seconds(case.timing.iqr_ns),
            "rounds": case.timing.rounds,
            "iterations": 1,
        },
    }


def _seconds(nanoseconds: float) -> float:
    """Seconds of the same digits, as pytest-benchmark would save them."""
    return float(Decimal(repr(nanoseconds)).scaleb(-9))


_PARAMS_FIELDS = tuple(field.name for field in dataclasses.fields(Params))


def _samples(nanoseconds: int | Sequence[int], iterations: int) -> tuple[int, ...]:
    return (nanoseconds,) * iterations if isinstance(nanoseconds, int) else tuple(nanoseconds)


def rendered(judgement: Judgement, form: str, top: int, *, colour: bool = False) -> str:
    """The report of a comparison in one of FORMATS."""
    return render(report(judgement, top), form, colour=colour)


def with_timing(record: CaseRecord) -> CaseRecord:
    """Return a case that has a timing, its own one if there is one."""
    return dataclasses.replace(record, timing=record.timing or timing())
