"""Made-up machines for the lab: a laptop without an accelerator and a cluster with one.

All their numbers are round.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from builders import environment

from mnistbench.core.operation import OUTSIDE
from mnistbench.core.params import Params
from mnistbench.core.record import OpRow, OpTable
from mnistbench.course.lab.lab_file import (
    Findings,
    FirstIteration,
    LabSettings,
    StudyTable,
    Training,
    WarmTime,
)
from mnistbench.events.work.roofline import Ceilings, Cost
from mnistbench.suite.profile.result import ColdCall, Layer, OperationCosts, Profiled
from mnistbench.suite.train.result import EpochResult, Point

SIZES = (1, 16, 64)
US = 1_000
MS = 1_000_000
S = 1_000_000_000

LAYERS = (
    Layer("conv1", "Conv2d", (32, 26, 26), 320, 1_280, 389_376, 86_528),
    Layer("relu1", "ReLU", (32, 26, 26), 0, 0, None, 86_528),
    Layer("conv2", "Conv2d", (64, 24, 24), 18_496, 73_984, 21_233_664, 147_456),
    Layer("pool", "MaxPool2d", (64, 12, 12), 0, 0, None, 36_864),
    Layer("dropout1", "Dropout", (64, 12, 12), 0, 0, None, 36_864),
    Layer("fc1", "Linear", (9216, 128), 1_179_776, 4_719_104, 2_359_296, 512),
)


#: (FLOPs, bytes) of operations.


def row(
    name: str, self_ns: int, *, phase: str = "forward", module: str = "", calls: float = 1.0
) -> OpRow:
    """An operation that took the same time in three iterations, by any clock."""
    times = (self_ns,) * 3
    return OpRow(name, phase, module, calls, times, times, times, 0)


def taking(old: OpRow, self_ns: float) -> OpRow:
    """The same operation with another self time."""
    return row(old.name, round(self_ns), phase=old.phase, module=old.module, calls=old.calls)


def forward_rows(conv_ns: int, addmm_ns: int, small_ns: int) -> tuple[OpRow, ...]:
    """A forward pass."""
    return (
        row("aten::mkldnn_convolution", conv_ns, module="conv2"),
        row("aten::conv2d", conv_ns // 100, module="conv2"),
        row("aten::addmm", addmm_ns, module="fc1"),
        row("aten::relu", small_ns, module="relu1"),
        row("aten::max_pool2d_with_indices", small_ns, module="pool"),
        row(OUTSIDE, small_ns),
    )


def step_rows(conv_ns: int, addmm_ns: int, small_ns: int) -> tuple[OpRow, ...]:
    """A training step: the forward pass, dropout, the way back and the optimizer."""
    return (
        *forward_rows(conv_ns, addmm_ns, small_ns),
        row("aten::bernoulli_", small_ns, module="dropout1"),
        row("aten::convolution_backward", 2 * conv_ns, phase="backward", module="conv2"),
        row("aten::mm", 2 * addmm_ns, phase="backward", module="fc1", calls=2.0),
        row("aten::add", small_ns, phase="optimizer", calls=16.0),
    )


def costs(size: int) -> OperationCosts:
    """FLOPs are 9 times as many in the convolution; bytes of addmm hardly depend on the batch."""
    convolution = ("aten::mkldnn_convolution", "forward", "conv2")
    addmm = ("aten::addmm", "forward", "fc1")
    return OperationCosts(
        {
            convolution: Cost(21_233_664 * size, 300_000 * size),
            addmm: Cost(2_359_296 * size, 4_800_000 + 37_000 * size),
        }
    )


def table(rows: tuple[OpRow, ...], view: str = "host", busy_ns: int | None = None) -> OpTable:
    whole = (sum(row.self_ns("cpu") for row in rows),) * 10
    return OpTable(
        "warm", view, whole, rows, profiler_ns=4 * US, busy_ns=(busy_ns,) * 10 if busy_ns else ()
    )


def case(
    phase: str,
    size: int,
    *tables: OpTable,
    device: str = "cpu",
    threads: int = 2,
    ceilings: Ceilings | None = None,
) -> Profiled:
    params = Params(
        "convnet", phase, size, device, "float32", threads, compile=False, seed=1, dataset="digits"
    )
    return Profiled(params, 1_199_882, size, (), tables, costs(size), ceilings, LAYERS)


def iteration_time(phase: str, size: int, median_ns: int, **changes: Any) -> WarmTime:
    times_ns = times(median_ns, median_ns // 25, 100)
    return dataclasses.replace(WarmTime("cpu", 2, phase, size, times_ns, size, size), **changes)


def times(median_ns: int, iqr_ns: int, iterations: int) -> tuple[int, ...]:
    """Times with a median and an interquartile range.

    A quarter of them below it, a quarter above, the others equal to it.
    """
    quarter = iterations // 4 + 1
    low = max(0, median_ns - iqr_ns // 2)
    return (low,) * quarter + (median_ns,) * (iterations - 2 * quarter) + (low + iqr_ns,) * quarter


def epoch_time(phase: str, size: int, median_ns: int, **changes: Any) -> WarmTime:
    samples = 1437 if phase == "train" else 360
    times_ns = (median_ns - median_ns // 50, median_ns, median_ns + median_ns // 50)
    return dataclasses.replace(
        WarmTime("cpu", 2, phase, size, times_ns, samples, samples), **changes
    )


def first_iterations(
    device: str, phase: str, size: int, *, first: int, warm: int | None, trained: int | None
) -> list[FirstIteration]:
    """A first iteration whose extra time went to the convolution, and one with trained weights."""

    def call(
        ns: int, parts: tuple[int, int, int, int], *, of_trained: bool, is_first: bool
    ) -> ColdCall:
        rows = (
            row("aten::mkldnn_convolution", ns * parts[0] // 20, module="conv2"),
            row("aten::addmm", ns * parts[1] // 20, module="fc1"),
            row("aten::relu", ns * parts[2] // 20, module="relu1"),
            row(OUTSIDE, ns * parts[3] // 20),
        )
        return ColdCall(
            of_trained,
            is_first,
            OpTable("cold" if is_first else "warm", "host", (ns,), rows, is_first),
        )

    later = None if warm is None else call(warm, (10, 2, 1, 7), of_trained=True, is_first=False)
    parts = (14, 2, 1, 3)
    iterations = [
        FirstIteration(
            device, phase, size, call(first, parts, of_trained=False, is_first=True), later
        )
    ]
    if trained is not None:
        iterations.append(
            FirstIteration(
                device, phase, size, call(trained, parts, of_trained=True, is_first=True), None
            )
        )
    return iterations


def training(device: str, size: int, accuracy: float) -> Training:
    updates = -(-1437 // size)
    epochs = tuple(
        EpochResult(
            number,
            number * updates,
            1.0,
            1437,
            0.5 / number,
            85.0 + number,
            S,
            360,
            0.4 / number,
            accuracy - 4 + number,
        )
        for number in (1, 2, 3, 4)
    )
    curve = tuple(
        Point(
            1 + seen // 1437,
            seen // size,
            200,
            2.0 * 100 / (seen + 100),
            100 - 9000 / (seen + 100),
            1.0,
            S,
        )
        for seen in range(200, 5800, 200)
    )
    return Training(device, size, epochs, curve, f"tensorboard/convnet-{device}-b{size}")


def laptop(**changes: Any) -> Findings:
    """Two CPUs, no accelerator. Convolution is 4 times addmm at batch 1, 16 times at batch 64."""
    findings = Findings(
        settings=LabSettings("digits", SIZES, ("cpu",), 4, "convnet", 1),
        environment=environment(threads=2),
        train_samples=1437,
        test_samples=360,
        iteration_times=tuple(
            iteration_time(phase, size, ns, threads=threads)
            for threads, slower in ((2, 1.0), (1, 1.6))
            for phase, times in (
                ("step", (5 * MS, 20 * MS, 64 * MS)),
                ("forward", (1 * MS, 4 * MS, 13 * MS)),
            )
            for size, ns in zip(SIZES, (round(slower * time) for time in times), strict=True)
        ),
        epoch_times=tuple(
            epoch_time(phase, size, ns)
            for phase, times in (
                ("train", (8 * S, 2 * S, 1500 * MS)),
                ("eval", (400 * MS, 100 * MS, 80 * MS)),
            )
            for size, ns in zip(SIZES, times, strict=True)
        ),
        cases=tuple(
            case(
                phase,
                size,
                table(rows(conv, addmm, small)),
                ceilings=Ceilings(200e9, 20e9, "float32"),
            )
            for phase, rows in (("forward", forward_rows), ("step", step_rows))
            for size, conv, addmm, small in (
                (1, 400 * US, 100 * US, 20 * US),
                (16, 2400 * US, 240 * US, 150 * US),
                (64, 9600 * US, 600 * US, 600 * US),
            )
        ),
        first_iterations=tuple(
            iteration
            for size in SIZES
            for iteration in first_iterations(
                "cpu",
                "forward",
                size,
                first=20 * MS + size * MS // 8,
                warm=size * MS,
                trained=21 * MS,
            )
        ),
        trainings=tuple(
            training("cpu", size, accuracy)
            for size, accuracy in zip(SIZES, (98.9, 98.3, 96.4), strict=True)
        ),
        traces=("traces/step-cpu-b64.json.gz",),
        studies=tuple(StudyTable(name, columns, rows) for name, (columns, rows) in STUDIES.items()),
    )
    return dataclasses.replace(findings, **changes)


#: Tables of the studies.
STUDIES = {
    "convolution": (
        (
            "convolution", "sizes", "way", "dtype", "seconds", "flops", "flops_by_definition",
            "n_bytes", "intensity", "flops_per_s", "of_ceiling", "error", "bound", "algorithm",
        ),
        (
            ("chapter", "1x3x32x32 with 2 filters of 5x5", "seven_loops", "float32", "0.0146",
             "235200", "235200", "49664", "4.74", "16100000", "0.000268", "9.5e-07", "0.00035", ""),
            ("chapter", "1x3x32x32 with 2 filters of 5x5", "library", "float32", "7e-05", "235200",
             "235200", "19000", "12.4", "3360000000", "1.25", "6.4e-06", "0.00035",
             "jit:avx2, 2 reorders"),
        ),
    ),
    "locality": (
        (
            "problem", "order", "multiply_adds", "accesses", "l1_hits", "l1_misses", "l2_hits",
            "l2_misses", "ns_per_multiply_add", "ns_per_multiply_add_in_l1", "rank_by_misses",
            "rank_by_time",
        ),
        (
            ("product-120", "ikj", "1728000", "5198400", "5088600", "109800", "107100", "2700",
             "0.077", "0.075", "1", "1"),
            ("product-120", "ijk", "1728000", "3484800", "3374940", "109860", "107160", "2700", "",
             "", "1", ""),
        ),
    ),
    "memory": (
        (
            "model", "phase", "batch_size", "layer", "kind", "input_bytes", "output_bytes",
            "weight_bytes", "gradient_bytes", "optimizer_state_bytes", "saved_for_backward_bytes",
            "predicted_peak_bytes", "measured_peak_bytes",
        ),
        (
            ("lenet5", "step", "16", "conv1", "Conv2d", "50176", "301056", "624", "624", "1248",
             "0", "1400000", "1400192"),
            ("lenet5", "step", "16", "all layers", "", "900000", "800000", "246824", "246824",
             "493648", "700000", "2139000", "2139192"),
        ),
    ),
    "graph": (
        (
            "program", "part", "eager_operations", "generated_kernels", "library_kernels",
            "eager_ns", "compiled_ns", "ratio", "ratio_first_quartile", "ratio_third_quartile",
        ),
        (
            ("x*y + z", "forward", "2", "1", "0", "14884000", "8729000", "1.68", "1.24", "1.72"),
            ("x*y + z", "update", "", "", "", "0", "0", "", "", ""),
            ("x*y + z", "step", "4", "2", "0", "28909000", "", "", "", ""),
        ),
    ),
}  # fmt: skip


def cluster(**changes: Any) -> Findings:
    """Eight CPUs and a GPU.

    It is slower than the CPU at batch 1 and 17 times as fast at batch 64.
    """
    base = laptop()
    gpu_iterations = tuple(
        iteration_time(phase, size, ns, device="cuda", threads=8)
        for phase, times in (
            ("step", (6 * MS, 6 * MS, 6500 * US)),
            ("forward", (900 * US, 900 * US, 1 * MS)),
        )
        for size, ns in zip(SIZES, times, strict=True)
    )
    gpu_epochs = tuple(
        epoch_time(phase, size, ns, device="cuda", threads=8)
        for phase, times in (
            ("train", (9 * S, 600 * MS, 88 * MS)),
            ("eval", (500 * MS, 20 * MS, 5 * MS)),
        )
        for size, ns in zip(SIZES, times, strict=True)
    )
    gpu_cases = tuple(
        case(
            phase,
            size,
            table(rows(conv, addmm, small)),
            table(rows(conv, addmm, small), "device", 500 * US),
            device="cuda",
            threads=8,
            ceilings=Ceilings(15e12, 1.3e12, "tf32"),
        )
        for phase, rows in (("forward", forward_rows), ("step", step_rows))
        for size, conv, addmm, small in (
            (1, 30 * US, 4 * US, 1 * US),
            (16, 60 * US, 8 * US, 2 * US),
            (64, 150 * US, 20 * US, 4 * US),
        )
    )
    findings = dataclasses.replace(
        base,
        settings=dataclasses.replace(base.settings, devices=("cpu", "cuda")),
        environment=environment(
            cpu_model="Intel Xeon Gold 6338",
            cpu_count=8,
            threads=8,
            devices=(
                {
                    "device": "cuda",
                    "name": "NVIDIA A100",
                    "memory": str(40 * 2**30),
                    "driver": "550.54",
                    "cuda": "13.0",
                },
            ),
        ),
        iteration_times=(*with_threads(base.iteration_times, 8), *gpu_iterations),
        epoch_times=(*with_threads(base.epoch_times, 8), *gpu_epochs),
        cases=(
            *(
                dataclasses.replace(
                    profiled, params=dataclasses.replace(profiled.params, threads=8)
                )
                for profiled in base.cases
            ),
            *gpu_cases,
        ),
        first_iterations=(
            *base.first_iterations,
            *(
                iteration
                for size in SIZES
                for iteration in first_iterations(
                    "cuda", "forward", size, first=900 * MS, warm=1 * MS, trained=880 * MS
                )
            ),
        ),
        trainings=(*base.trainings, *(training("cuda", size, 98.0) for size in SIZES)),
    )
    return dataclasses.replace(findings, **changes)


def faster_gpu(*factors: float) -> Findings:
    """A cluster whose GPU takes that much less time for an epoch at each batch size."""
    times = (
        epoch_time(phase, size, round(ns), threads=8, device=device)
        for size, factor in zip(SIZES, factors, strict=True)
        for phase in ("train", "eval")
        for device, ns in (("cpu", 10 * S), ("cuda", 10 * S / factor))
    )
    return cluster(epoch_times=tuple(times))


def queued(findings: Findings, *shares: float) -> Findings:
    """The same machine, on which other programs had the core for parts of the first times."""
    changed = [
        dataclasses.replace(time, queued_share=share)
        for time, share in zip(findings.iteration_times, shares, strict=False)
    ]
    return dataclasses.replace(
        findings, iteration_times=(*changed, *findings.iteration_times[len(shares) :])
    )


def with_threads(items: Any, threads: int) -> tuple[Any, ...]:
    """The main place of a machine: what ran with one thread stays as it is."""
    return tuple(
        item if item.threads == 1 else dataclasses.replace(item, threads=threads) for item in items
    )


def with_cases(findings: Findings, **changes: Any) -> Findings:
    """The same with fields of every case changed; a function gets the case."""
    return dataclasses.replace(
        findings,
        cases=tuple(
            dataclasses.replace(
                profiled,
                **{
                    name: value(profiled) if callable(value) else value
                    for name, value in changes.items()
                },
            )
            for profiled in findings.cases
        ),
    )


def without_device_view(findings: Findings) -> Findings:
    """The same machine with an accelerator whose own clock cannot be read."""
    return with_cases(
        findings, tables=lambda case: tuple(table for table in case.tables if table.view == "host")
    )


def with_operations(findings: Findings, change: Callable[[OpRow, int], OpRow | None]) -> Findings:
    """The same with every operation changed, or taken away where the change gives None."""

    def changed(case: Profiled) -> tuple[OpTable, ...]:
        return tuple(
            dataclasses.replace(
                op_table,
                rows=tuple(
                    new for old in op_table.rows if (new := change(old, case.params.batch_size))
                ),
            )
            for op_table in case.tables
        )

    return with_cases(findings, tables=changed)


def recomputed(number: Mapping[str, str], rows_of: Callable[[str], list[dict[str, str]]]) -> float:
    """Return a number of ``tables/numbers.csv``, computed again from the files that it names."""

    def total(prefix: str) -> float:
        conditions = json.loads(number[f"{prefix}where"])
        rows = [
            row
            for row in rows_of(number[f"{prefix}file"])
            if all(row[name] in map(str, values) for name, values in conditions.items())
        ]
        assert rows, f"no row where {conditions}"
        return sum(
            float(row[number[f"{prefix}column"]]) for row in rows if row[number[f"{prefix}column"]]
        )

    if not number["divided_by_file"]:
        return total("")
    return total("") / total("divided_by_") * (1e9 if number["kind"].endswith("_per_s") else 1)


def without_numbers(findings: Findings) -> Findings:
    """The same machine, of which nothing could be measured."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("iteration_times", "epoch_times", "first_iterations", "trainings", "traces"), ()
    )
    return with_cases(dataclasses.replace(findings, **nothing), tables=(), ceilings=None)
