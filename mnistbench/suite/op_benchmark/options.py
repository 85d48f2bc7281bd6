"""The options of the fixture: pytest's command line and configuration -> one frozen object.

Reading them does not import torch: devices and workloads are checked when a collected test needs
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench.core.options import option, several, some_of, switch_with_value
from mnistbench.core.params import REFERENCE, STEPS, device_label
from mnistbench.suite import case_options


def _compile_settings(text: str) -> Mapping[str, Any]:
    from mnistbench.core.compiled.settings import read_settings  # every session imports this module

    return read_settings(text)


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
    # True: with the settings of each workload; else the arguments of torch.compile.
    compile: bool | Mapping[str, Any] = switch_with_value(
        "--bench-compile",
        _compile_settings,
        (
            "compile every model with torch.compile; settings replace those of the workloads: a "
            "comma list of a mode (default, reduce-overhead, max-autotune or "
            "max-autotune-no-cudagraphs), dynamic or static, and fullgraph"
        ),
        "SETTINGS",
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

    @property
    def compile_arguments(self) -> Mapping[str, Any] | None:
        """What replaces the arguments of ``torch.compile`` of the workloads."""
        return self.compile if isinstance(self.compile, Mapping) else None

    def device_label(self, device: str) -> str:
        """Return the device's part of a test id, in which no workload's own settings are."""
        compile_with = ""
        if self.compile_arguments:
            from mnistbench.core.compiled.settings import settings_text

            compile_with = settings_text(self.compile_arguments)
        return device_label(device, self.dtype, bool(self.compile), compile_with=compile_with)
