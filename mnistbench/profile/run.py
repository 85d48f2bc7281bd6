"""A workload at a batch size on a device -> what its operations take, have to do, and could do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from mnistbench.core.errors import UsageError
from mnistbench.core.params import Params
from mnistbench.measuring.case import build, fork_random, memory_suffices, thread_count
from mnistbench.measuring.events_to_table import busy_ns
from mnistbench.measuring.profiling import has_device_view, record_warm, warm_table
from mnistbench.measuring.timing import time_calls
from mnistbench.profile.ceilings import ceilings, default_cache
from mnistbench.profile.costs import layers, operation_costs
from mnistbench.profile.first_call import cold_calls
from mnistbench.profile.result import Profiled
from mnistbench.workloads.workload import Workload

#: Profiled iterations: the median of 10 is known well enough for a table of shares.
ITERATIONS = 10

#: Phases that have operations to show.
PHASES = ("forward", "step")


def profile_case(
    params: Params,
    workload: Workload,
    *,
    data_dir: str | None = None,
    iterations: int = ITERATIONS,
    shapes: bool = False,
    trace: Path | None = None,
    cache: Path | None = None,
) -> Profiled:
    """Time the calls of a case, profile it, and count what its operations have to do.

    Args:
        params: its phase is one of PHASES.
        workload: what is measured.
        data_dir: where MNIST lies.
        iterations: profiled, at least 1.
        shapes: note the input shapes of each operation.
        trace: a Chrome trace of the profiled iterations is written there, compressed if it ends in ``.gz``.
        cache: of the machine's ceilings; the user's if not given.

    Raises:
        UsageError: the batch does not fit into memory, or the trace cannot be written.
        DataError: a dataset is missing or damaged.
    """
    device = torch.device(params.device)
    with memory_suffices(too_large(params.device, params.batch_size)), thread_count(params.threads), fork_random(device):
        case = build(params, workload, data_dir)
        assert case.runner is not None and case.inputs is not None, f"one of {PHASES}"  # noqa: PT018
        found = Profiled(
            params=params,
            parameter_count=case.parameter_count,
            samples=case.samples,
            calls_ns=time_calls(case),
            tables=(),
            costs=operation_costs(case),
            ceilings=ceilings(params, cache or default_cache()),
            layers=layers(case.model, case.inputs),
        )
        for view in ("host", "device") if has_device_view(params.device) else ("host",):
            recorded = record_warm(case, iterations=iterations, view=view, shapes=shapes)
            found = replace(found, tables=(*found.tables, warm_table(recorded, params.device, view)))
            if view == "device":
                found = replace(found, busy_ns=busy_ns(recorded))
        if trace:
            _export(recorded, trace)
    return found


def too_large(device: str, batch_size: int) -> str:
    """Return what is said where a batch does not fit into a device's memory."""
    return f"memory of {device} does not suffice for batches of {batch_size}: choose a smaller batch size"


def with_cold_calls(found: Profiled, data_dir: str | None = None) -> Profiled:
    """Return the same with first calls, measured in fresh processes.

    Raises:
        UsageError: a process failed.
    """
    calls, steps = cold_calls(found.params, data_dir)
    return replace(found, cold=calls, trained_steps=steps)


def _export(recorded: torch.profiler.profile, path: Path) -> None:
    export: Callable[[str], None] = recorded.export_chrome_trace
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):  # torch says nothing of why it could not write
            pass
        export(str(path))
    except OSError as error:
        raise UsageError(f"--trace: {path} cannot be written ({error.strerror}); name another file") from None
