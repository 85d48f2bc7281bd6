"""Made-up machines for the lab: a laptop without an accelerator and a cluster with one. All their numbers are round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from builders import environment

from mnistbench.core.record import OUTSIDE
from mnistbench.course.lab.findings import (
    TRAINED,
    UNTRAINED,
    CallTime,
    Ceiling,
    EpochResult,
    EpochTime,
    Findings,
    FirstCall,
    FirstOperation,
    Model,
    Operation,
    Operations,
    Point,
    Settings,
    Study,
    Training,
)
from mnistbench.course.studies.graph import result as graph
from mnistbench.profile.result import Layer

SIZES = (1, 16, 64)
US, MS, S = 1_000, 1_000_000, 1_000_000_000

LAYERS = (
    Layer("conv1", "Conv2d", (32, 26, 26), 320, 1_280, 389_376, 86_528),
    Layer("relu1", "ReLU", (32, 26, 26), 0, 0, None, 86_528),
    Layer("conv2", "Conv2d", (64, 24, 24), 18_496, 73_984, 21_233_664, 147_456),
    Layer("pool", "MaxPool2d", (64, 12, 12), 0, 0, None, 36_864),
    Layer("dropout1", "Dropout", (64, 12, 12), 0, 0, None, 36_864),
    Layer("fc1", "Linear", (9216, 128), 1_179_776, 4_719_104, 2_359_296, 512),
)


def operation(name: str, self_ns: int, **changes: Any) -> Operation:
    return dataclasses.replace(Operation(name, "forward", "", 1.0, self_ns, self_ns // 20, self_ns, 0, None, None), **changes)


def forward_rows(conv_ns: int, addmm_ns: int, small_ns: int, size: int = 1) -> tuple[Operation, ...]:
    """A forward pass. FLOPs are 9 times as many in the convolution; bytes of addmm hardly depend on the batch."""
    return (
        operation("aten::mkldnn_convolution", conv_ns, module="conv2", flops=21_233_664 * size, moved_bytes=300_000 * size),
        operation("aten::conv2d", conv_ns // 100, module="conv2"),
        operation("aten::addmm", addmm_ns, module="fc1", flops=2_359_296 * size, moved_bytes=4_800_000 + 37_000 * size),
        operation("aten::relu", small_ns, module="relu1"),
        operation("aten::max_pool2d_with_indices", small_ns, module="pool"),
        operation(OUTSIDE, small_ns, calls=0.0),
    )


def step_rows(conv_ns: int, addmm_ns: int, small_ns: int, size: int = 1) -> tuple[Operation, ...]:
    """A training step: the forward pass, dropout, the way back and the optimizer."""
    return (
        *forward_rows(conv_ns, addmm_ns, small_ns, size),
        operation("aten::bernoulli_", small_ns, module="dropout1"),
        operation("aten::convolution_backward", 2 * conv_ns, phase="backward", module="conv2"),
        operation("aten::mm", 2 * addmm_ns, phase="backward", module="fc1", calls=2.0),
        operation("aten::add", small_ns, phase="optimizer", calls=16.0),
    )


def table(rows: tuple[Operation, ...], **changes: Any) -> Operations:
    made = Operations(
        device="cpu",
        view="host",
        phase="forward",
        batch_size=1,
        threads=2,
        iterations=10,
        iteration_ns=sum(row.self_ns for row in rows),
        profiler_ns=4 * US,
        busy_ns=None,
        rows=rows,
    )
    return dataclasses.replace(made, **changes)


def call_time(phase: str, size: int, median_ns: int, **changes: Any) -> CallTime:
    return dataclasses.replace(CallTime("cpu", 2, phase, size, median_ns, median_ns // 25, 100), **changes)


def epoch_time(phase: str, size: int, median_ns: int, **changes: Any) -> EpochTime:
    samples = 1437 if phase == "train" else 360
    return dataclasses.replace(EpochTime("cpu", 2, phase, size, median_ns, median_ns // 50, 3, samples, samples), **changes)


def first_calls(device: str, phase: str, size: int, *, first: int, warm: int | None, trained: int | None) -> list[FirstCall]:
    """A first call whose extra time went to the convolution, and one with trained weights."""
    warm_conv = None if warm is None else warm // 2
    rows = (
        FirstOperation("aten::mkldnn_convolution", "forward", "conv2", first * 7 // 10, warm_conv),
        FirstOperation("aten::addmm", "forward", "fc1", first // 10, None if warm is None else warm // 10),
        FirstOperation("aten::relu", "forward", "relu1", first // 20, None if warm is None else warm // 20),
        FirstOperation(OUTSIDE, "forward", "", first * 3 // 20, None if warm is None else warm * 7 // 20),
    )
    found = [FirstCall(device, phase, size, UNTRAINED, first, warm, rows)]
    if trained is not None:
        found.append(FirstCall(device, phase, size, TRAINED, trained, None, rows))
    return found


def training(device: str, size: int, accuracy: float) -> Training:
    epochs = tuple(
        EpochResult(number, 0.5 / number, 85.0 + number, 0.4 / number, accuracy - 4 + number) for number in (1, 2, 3, 4)
    )
    curve = tuple(
        Point(samples, 2.0 * 100 / (samples + 100), 100 - 9000 / (samples + 100)) for samples in range(200, 5800, 200)
    )
    return Training(device, size, epochs, curve, f"tensorboard/convnet-{device}-b{size}")


def laptop(**changes: Any) -> Findings:
    """Two CPUs, no accelerator. Convolution is 4 times addmm at batch 1, 16 times at batch 64."""
    found = Findings(
        settings=Settings("digits", SIZES, ("cpu",), 4, "convnet", 1),
        environment=environment(threads=2),
        model=Model("convnet", 1_199_882, LAYERS),
        train_samples=1437,
        test_samples=360,
        ceilings=(Ceiling("cpu", 200e9, 20e9),),
        call_times=tuple(
            call_time(phase, size, ns, threads=threads)
            for threads, slower in ((2, 1.0), (1, 1.6))
            for phase, times in (("step", (5 * MS, 20 * MS, 64 * MS)), ("forward", (1 * MS, 4 * MS, 13 * MS)))
            for size, ns in zip(SIZES, (round(slower * time) for time in times), strict=True)
        ),
        epoch_times=tuple(
            epoch_time(phase, size, ns)
            for phase, times in (("train", (8 * S, 2 * S, 1500 * MS)), ("eval", (400 * MS, 100 * MS, 80 * MS)))
            for size, ns in zip(SIZES, times, strict=True)
        ),
        operations=tuple(
            table(rows(conv, addmm, small, size), phase=phase, batch_size=size)
            for phase, rows in (("forward", forward_rows), ("step", step_rows))
            for size, conv, addmm, small in (
                (1, 400 * US, 100 * US, 20 * US),
                (16, 2400 * US, 240 * US, 150 * US),
                (64, 9600 * US, 600 * US, 600 * US),
            )
        ),
        first_calls=tuple(
            call
            for size in SIZES
            for call in first_calls("cpu", "forward", size, first=20 * MS + size * MS // 8, warm=size * MS, trained=21 * MS)
        ),
        trainings=tuple(training("cpu", size, accuracy) for size, accuracy in zip(SIZES, (98.9, 98.3, 96.4), strict=True)),
        traces=("traces/step-cpu-b64.json.gz",),
        studies=tuple(Study(name, columns, rows) for name, (columns, rows) in STUDIES.items()),
    )
    return dataclasses.replace(found, **changes)


#: Tables of the studies.
STUDIES = {
    "convolution": (
        (
            "convolution", "sizes", "way", "dtype", "seconds", "flops", "flops_by_definition", "n_bytes", "intensity",
            "flops_per_s", "of_ceiling", "error", "bound", "algorithm",
        ),
        (
            ("chapter", "1x3x32x32 with 2 filters of 5x5", "seven_loops", "float32", "0.0146", "235200", "235200", "49664",
             "4.74", "16100000", "0.000268", "9.5e-07", "0.00035", ""),
            ("chapter", "1x3x32x32 with 2 filters of 5x5", "library", "float32", "7e-05", "235200", "235200", "19000", "12.4",
             "3360000000", "1.25", "6.4e-06", "0.00035", "jit:avx2, 2 reorders"),
        ),
    ),
    "locality": (
        (
            "problem", "order", "multiply_adds", "accesses", "l1_hits", "l1_misses", "l2_hits", "l2_misses",
            "ns_per_multiply_add", "ns_per_multiply_add_in_l1", "rank_by_misses", "rank_by_time",
        ),
        (
            ("product-120", "ikj", "1728000", "5198400", "5088600", "109800", "107100", "2700", "0.077", "0.075", "1", "1"),
            ("product-120", "ijk", "1728000", "3484800", "3374940", "109860", "107160", "2700", "", "", "1", ""),
        ),
    ),
    "memory": (
        (
            "model", "phase", "batch_size", "layer", "kind", "input_bytes", "output_bytes", "weight_bytes", "gradient_bytes",
            "optimizer_state_bytes", "saved_for_backward_bytes", "predicted_peak_bytes", "measured_peak_bytes",
        ),
        (
            ("lenet5", "step", "16", "conv1", "Conv2d", "50176", "301056", "624", "624", "1248", "0", "1400000", "1400192"),
            ("lenet5", "step", "16", "", "", "900000", "800000", "246824", "246824", "493648", "700000", "2139000", "2139192"),
        ),
    ),
    "graph": (
        graph.COLUMNS,
        (
            ("x*y + z", "forward", "2", "1", "0", "14884000", "8729000", "1.68", "1.24", "1.72"),
            ("x*y + z", "update", "", "", "", "0", "0", "", "", ""),
            ("x*y + z", "step", "4", "2", "0", "28909000", "", "", "", ""),
        ),
    ),
}  # fmt: skip


def cluster(**changes: Any) -> Findings:
    """Eight CPUs and a GPU, which is slower than the CPU at batch 1 and 17 times as fast at batch 64."""
    base = laptop()
    gpu_calls = tuple(
        call_time(phase, size, ns, device="cuda", threads=8)
        for phase, times in (("step", (6 * MS, 6 * MS, 6500 * US)), ("forward", (900 * US, 900 * US, 1 * MS)))
        for size, ns in zip(SIZES, times, strict=True)
    )
    gpu_epochs = tuple(
        epoch_time(phase, size, ns, device="cuda", threads=8)
        for phase, times in (("train", (9 * S, 600 * MS, 88 * MS)), ("eval", (500 * MS, 20 * MS, 5 * MS)))
        for size, ns in zip(SIZES, times, strict=True)
    )
    gpu_tables = tuple(
        table(rows(conv, addmm, small, size), device="cuda", view=view, phase=phase, batch_size=size, threads=8, busy_ns=busy)
        for phase, rows in (("forward", forward_rows), ("step", step_rows))
        for size, conv, addmm, small in (
            (1, 30 * US, 4 * US, 1 * US),
            (16, 60 * US, 8 * US, 2 * US),
            (64, 150 * US, 20 * US, 4 * US),
        )
        for view, busy in (("host", None), ("device", 500 * US))
    )
    found = dataclasses.replace(
        base,
        settings=dataclasses.replace(base.settings, devices=("cpu", "cuda")),
        environment=environment(
            cpu_model="Intel Xeon Gold 6338",
            cpu_count=8,
            threads=8,
            devices=({"device": "cuda", "name": "NVIDIA A100", "memory": str(40 * 2**30), "driver": "550.54", "cuda": "13.0"},),
        ),
        ceilings=(*base.ceilings, Ceiling("cuda", 15e12, 1.3e12)),
        call_times=(*with_threads(base.call_times, 8), *gpu_calls),
        epoch_times=(*with_threads(base.epoch_times, 8), *gpu_epochs),
        operations=(*with_threads(base.operations, 8), *gpu_tables),
        first_calls=(
            *base.first_calls,
            *(
                call
                for size in SIZES
                for call in first_calls("cuda", "forward", size, first=900 * MS, warm=1 * MS, trained=880 * MS)
            ),
        ),
        trainings=(*base.trainings, *(training("cuda", size, 98.0) for size in SIZES)),
    )
    return dataclasses.replace(found, **changes)


def with_threads(items: Any, threads: int) -> tuple[Any, ...]:
    """The main place of a machine: what ran with one thread stays as it is."""
    return tuple(item if item.threads == 1 else dataclasses.replace(item, threads=threads) for item in items)


def without_device_view(findings: Findings) -> Findings:
    """The same machine with an accelerator whose own clock cannot be read."""
    return dataclasses.replace(findings, operations=tuple(table for table in findings.operations if table.view == "host"))


def with_operations(findings: Findings, change: Callable[[Operation, int], Operation | None]) -> Findings:
    """The same with every operation changed, or taken away where the change gives None."""
    return dataclasses.replace(
        findings,
        operations=tuple(
            dataclasses.replace(found, rows=tuple(row for old in found.rows if (row := change(old, found.batch_size))))
            for found in findings.operations
        ),
    )
