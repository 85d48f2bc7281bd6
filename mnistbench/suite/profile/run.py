"""Profile one case, in one process or as one of several ranks.

Times, FLOPs and bytes of its operations, and the ceilings.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mnistbench.core.params import Params
from mnistbench.suite.measuring.case import build, fork_random, memory_suffices, thread_count
from mnistbench.suite.measuring.passes import time_calls, time_steps
from mnistbench.suite.measuring.profiling import profile_warm, views_of
from mnistbench.suite.profile.ceilings import ceilings_of
from mnistbench.suite.profile.counting import layers, operation_costs
from mnistbench.suite.profile.result import OperationCosts, Profiled, RankTimes
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.ranks import Ranks
from mnistbench.suite.workloads.step import Step
from mnistbench.suite.workloads.workload import Workload

#: Timed steps of each kind. Their number is the same on all ranks, because the ranks wait for each
#: other in every step.
TIMED_STEPS = 30


def profile_case(
    params: Params,
    workload: Workload,
    *,
    iterations: int,
    ranks: Ranks | None = None,
    shapes: bool = False,
    trace: Path | None = None,
    timed: bool = True,
) -> Profiled:
    """Time the iterations of a case, profile it, and count the FLOPs and bytes of its operations.

    Several ranks profile and measure their ceilings at the same time, so that the conditions are
    those of the step.

    Args:
        params: of the case, ``forward`` or ``step``; of ranks: ``step``, with the batch of all and
            the device of this rank.
        workload: of the case.
        iterations: number of profiled iterations, at least 1.
        ranks: of which this process is one; all call this function with the same case, and the
            result of rank 0 has the times of all. None: this process is by itself.
        shapes: record the input shapes of each operation.
        trace: path of a Chrome trace of the profiled iterations, compressed if it ends in ``.gz``;
            None: no trace.
        timed: also time iterations without the profiler; otherwise ``calls_ns`` is empty, except
            for ranks.

    Raises:
        UsageError: the device runs out of memory, or the trace cannot be written.
        DataError: a dataset is missing or damaged.
    """
    device = torch.device(params.device)
    with (
        memory_suffices(too_large(params.device, params.batch_size)),
        thread_count(params.threads),
        fork_random(device),
    ):
        case = build(params, _of_rank(workload, ranks) if ranks else workload)
        assert case.runner is not None and case.inputs is not None, "forward or step"  # noqa: PT018
        calls_ns = time_calls(case) if timed and not ranks else ()
        costs = operation_costs(case)  # of a rank's own operations: its model is not wrapped yet
        layer_costs = layers(case.model, case.inputs)
        if ranks:
            ranks.barrier()
        try:
            peaks = ceilings_of(params.device, params.dtype, params.threads)
        except torch.OutOfMemoryError:  # the free memory does not suffice for the smallest kernels
            peaks = None
        rank_times = None
        if ranks:
            assert isinstance(case.runner, Step), "the phase is a step"
            case.runner.model = ranks.model(case.model)
            calls_ns, no_sync_ns = time_steps(case, [case], ranks, TIMED_STEPS)
            if parts := ranks.gather((calls_ns, no_sync_ns)):
                rank_times = RankTimes(*zip(*parts, strict=True))
        tables = []
        views = views_of(params.device)
        for view in views:
            profiled = profile_warm(
                case,
                iterations=iterations,
                view=view,
                shapes=shapes,
                communicates=ranks is not None,
            )
            # The next profile takes the events of an accelerator from this one's trace.
            if trace and view == views[-1]:
                profiled.export_trace(trace)
            tables.append(profiled.table())
        return Profiled(
            params=params,
            parameter_count=case.parameter_count,
            samples=len(case.inputs),
            calls_ns=calls_ns,
            tables=tuple(tables),
            costs=OperationCosts(costs),
            ceilings=peaks,
            layers=layer_costs,
            ranks=rank_times,
        )


def too_large(device: str, batch_size: int) -> str:
    """Return the error message for a batch that does not fit into a device's memory."""
    return (
        f"memory of {device} does not suffice for batches of {batch_size}: choose a smaller batch "
        "size"
    )


def _of_rank(workload: Workload, ranks: Ranks) -> Workload:
    """Return the workload whose batch is this rank's part of the whole batch."""

    def make_batch(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
        inputs, targets = workload.make_batch(batch_size, device, generator)
        mine = ranks.part(torch.arange(len(targets))).to(inputs.device)
        return inputs[mine], targets[mine]

    return replace(workload, make_batch=make_batch)
