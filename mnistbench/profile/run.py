"""Profile one case, in one process or as one of several ranks: times, FLOPs and bytes of its operations, and the ceilings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mnistbench.core.params import Params
from mnistbench.measuring.case import build, fork_random, memory_suffices, thread_count
from mnistbench.measuring.passes import time_calls, time_steps
from mnistbench.measuring.profiling import export_trace, has_device_view, record_warm, warm_table
from mnistbench.profile.ceilings import ceilings
from mnistbench.profile.costs import layers, operation_costs
from mnistbench.profile.first_call import Processes, cold_calls
from mnistbench.profile.result import Profiled, RankTimes
from mnistbench.workloads.data import Batch
from mnistbench.workloads.ranks import Alone
from mnistbench.workloads.step import Step
from mnistbench.workloads.workload import Workload

#: Profiled iterations: enough for the medians of a table of shares.
ITERATIONS = 10

#: Timed steps of each kind. Their number is the same on all ranks, because the ranks wait for each other in every step.
TIMED_STEPS = 30

#: Phases that are profiled per operation.
PHASES = ("forward", "step")


def profile_case(
    params: Params,
    workload: Workload,
    *,
    data_dir: str | Path | None = None,
    iterations: int = ITERATIONS,
    shapes: bool = False,
    trace: Path | None = None,
    timed: bool = True,
) -> Profiled:
    """Time the iterations of a case, profile it, and count the FLOPs and bytes of its operations.

    Args:
        params: of the case; the phase is one of PHASES.
        workload: of the case.
        data_dir: directory of MNIST.
        iterations: number of profiled iterations, at least 1.
        shapes: record the input shapes of each operation.
        trace: path of a Chrome trace of the profiled iterations, compressed if it ends in ``.gz``; None: no trace.
        timed: also time iterations without the profiler; the result's ``calls_ns`` is empty otherwise.

    Raises:
        UsageError: the device runs out of memory, or the trace cannot be written.
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
            calls_ns=time_calls(case) if timed else (),
            tables=(),
            costs=operation_costs(case),
            ceilings=ceilings(params),
            layers=layers(case.model, case.inputs),
        )
        for view in ("host", "device") if has_device_view(params.device) else ("host",):
            recorded = record_warm(case, iterations=iterations, view=view, shapes=shapes)
            found = replace(found, tables=(*found.tables, warm_table(recorded, params.device, view)))
        if trace:
            export_trace(recorded, trace)
    return found


def too_large(device: str, batch_size: int) -> str:
    """Return the error message for a batch that does not fit into a device's memory."""
    return f"memory of {device} does not suffice for batches of {batch_size}: choose a smaller batch size"


def with_cold_calls(found: Profiled, data_dir: str | Path | None, processes: Processes) -> Profiled:
    """Return the same case with its first iterations, measured in new processes.

    Raises:
        UsageError: a process failed.
    """
    calls, steps = cold_calls(found.params, data_dir, processes)
    return replace(found, cold=calls, trained_steps=steps)


# ---- Ranks ------------------------------------------------------------------------------------------------------------


def profile_rank(
    params: Params,
    workload: Workload,
    ranks: Alone,
    *,
    iterations: int,
    data_dir: str | Path | None = None,
    shapes: bool = False,
    trace: Path | None = None,
) -> Profiled | None:
    """Profile a step as one of the ranks; return the result on rank 0 and None on the others.

    All ranks profile and measure their ceilings at the same time, so that the conditions are those of the step.

    Args:
        params: of the case; the phase is ``step``, the batch that of all ranks, the device that of this rank.
        workload: of the case.
        ranks: of which this process is one. All call this function with the same case.
        iterations: number of profiled iterations, at least 1.
        data_dir: directory of MNIST.
        shapes: record the input shapes of each operation.
        trace: path of a Chrome trace of rank 0; None: no trace.

    Raises:
        UsageError: the device runs out of memory, or the trace cannot be written.
        DataError: a dataset is missing or damaged.
    """
    device = torch.device(params.device)
    with memory_suffices(too_large(params.device, params.batch_size)), thread_count(params.threads), fork_random(device):
        case = build(params, _of_rank(workload, ranks), data_dir)
        runner = case.runner
        assert isinstance(runner, Step), "the phase is a step"
        assert case.inputs is not None, "a step has a batch"
        costs = operation_costs(case)  # of this rank's own operations: the model is not wrapped yet
        layer_costs = layers(case.model, case.inputs)
        ranks.barrier()
        peaks = ceilings(params)
        runner.model = ranks.model(case.model)
        step_ns, no_sync_ns = time_steps(case, [case], ranks, TIMED_STEPS)
        parts = ranks.gather((step_ns, no_sync_ns))
        views = ("host", "device") if has_device_view(params.device) else ("host",)
        recorded = {
            view: record_warm(case, iterations=iterations, view=view, shapes=shapes, communicates=True) for view in views
        }
        if not parts:
            return None
        if trace:
            export_trace(recorded[views[-1]], trace)
        return Profiled(
            params=params,
            parameter_count=case.parameter_count,
            samples=len(case.inputs),
            calls_ns=step_ns,
            tables=tuple(warm_table(profile, params.device, view) for view, profile in recorded.items()),
            costs=costs,
            ceilings=peaks,
            layers=layer_costs,
            ranks=RankTimes(tuple(part[0] for part in parts), tuple(part[1] for part in parts)),
        )


def _of_rank(workload: Workload, ranks: Alone) -> Workload:
    """Return the workload whose batch is this rank's part of the whole batch."""

    def make_batch(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
        inputs, targets = workload.make_batch(batch_size, device, generator)
        mine = ranks.part(torch.arange(len(targets))).to(inputs.device)
        return inputs[mine], targets[mine]

    return replace(workload, make_batch=make_batch)
