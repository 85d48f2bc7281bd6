"""The options of the fixture: pytest's command line and configuration -> one frozen object.

Reading them does not import torch: devices and workloads are checked when a collected test needs
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.options import option, several, some_of, switch
from mnistbench.core.params import REFERENCE, STEPS
from mnistbench.suite import case_options


@dataclass(frozen=True, kw_only=True)
class CaseOptions:
    """The options for the cases of a session."""

    devices: tuple[str, ...] = case_options.devices(  # as given; "auto" is resolved later
        "--bench-device",
        (
            "comma list of auto, cpu, cuda, cuda:1, mps; auto is the CPU and, if there is one, "
            "the accelerator"
        ),
        configurable=True,
    )
    batch_sizes: tuple[int, ...] = case_options.batch_sizes("--bench-batch-size", configurable=True)
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
    dtype: str = case_options.dtype("--bench-dtype", configurable=True)
    threads: int = case_options.threads("--bench-threads", configurable=True)
    compile: bool = switch(
        "--bench-compile", "compile every model with torch.compile", configurable=True
    )
    dataset: str = case_options.dataset("--bench-dataset", configurable=True)
    data_dir: Path | None = case_options.data_dir("--bench-data-dir", configurable=True)
    seed: int = case_options.seed(
        "seed of weights, batches and dropout", "--bench-seed", configurable=True
    )
    tensorboard: Path | None = option(  # None: off
        "--bench-tensorboard",
        lambda text: None if text == "off" else Path(text),
        "off",
        "train for a short time and write the curves for TensorBoard into this directory, or off",
        "DIR",
        configurable=True,
    )
