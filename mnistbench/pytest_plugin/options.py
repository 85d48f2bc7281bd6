"""Options of the plug-in: pytest's command line and configuration -> one frozen object.

An error names the option.

Reading them does not import torch: devices and workloads are checked when a collected test needs
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.options import (
    MOST_THREADS,
    data_dir,
    one_of,
    option,
    several,
    some_of,
    switch,
    whole,
)
from mnistbench.core.params import DATASETS, DTYPES, REFERENCE, STEPS


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options for the cases of a session."""

    devices: tuple[str, ...] = option(  # as given; "auto" is resolved later
        "--bench-device",
        several(str),
        "auto",
        (
            "comma list of auto, cpu, cuda, cuda:1, mps; auto is the CPU and, if there is one, "
            "the accelerator"
        ),
        "NAMES",
        configurable=True,
    )
    batch_sizes: tuple[int, ...] = option(
        "--bench-batch-size",
        several(whole(1)),
        "1,16,64",
        "comma list of batch sizes",
        "SIZES",
        configurable=True,
    )
    workloads: tuple[str, ...] | None = option(
        "--bench-model",
        several(str),
        None,
        (
            "comma list of workloads, also convnet, lenet5 and smallnet (default: all that "
            "conftest.py registers)"
        ),
        "NAMES",
        configurable=True,
    )
    steps: tuple[str, ...] = option(
        "--bench-step",
        some_of(*STEPS),
        REFERENCE,
        (
            "comma list of reference and fast: the model as it is, and the workload's rewrite "
            "that computes the same"
        ),
        "NAMES",
        configurable=True,
    )
    dtype: str = option(
        "--bench-dtype",
        one_of(*DTYPES),
        "float32",
        "float32, or bfloat16 by autocast",
        "NAME",
        configurable=True,
    )
    threads: int = option(
        "--bench-threads",
        whole(1, MOST_THREADS),
        "1",
        "intra-op threads of torch on the CPU",
        "N",
        configurable=True,
    )
    compile: bool = switch(
        "--bench-compile", "compile every model with torch.compile", configurable=True
    )
    dataset: str = option(
        "--bench-dataset",
        one_of(*DATASETS),
        "digits",
        "digits, which needs no network, or mnist",
        "NAME",
        configurable=True,
    )
    data_dir: Path | None = data_dir("--bench-data-dir", configurable=True)
    seed: int = option(
        "--bench-seed",
        whole(0),
        "1",
        "seed of weights, batches and dropout",
        "N",
        configurable=True,
    )
    op_top: int = option(
        "--op-top",
        whole(1),
        "10",
        "number of operations to show per table; all are saved",
        "N",
        configurable=True,
    )
    op_iterations: int = option(
        "--op-iterations",
        whole(1),
        "10",
        "profiled iterations of each case",
        "N",
        configurable=True,
    )
    no_op_profile: bool = switch(
        "--no-op-profile", "do not profile: times only, no operation tables", configurable=True
    )
    op_shapes: bool = switch(
        "--op-shapes", "record the input shapes of operations", configurable=True
    )
    op_benchmarks: bool = switch(
        "--op-benchmarks",
        "attach operation tables to tests that use pytest-benchmark's own fixture, too",
        configurable=True,
    )
    tensorboard: Path | None = option(  # None: off
        "--bench-tensorboard",
        lambda text: None if text == "off" else Path(text),
        ".benchmarks/tensorboard",
        "directory for TensorBoard, or off",
        "DIR",
        configurable=True,
    )
