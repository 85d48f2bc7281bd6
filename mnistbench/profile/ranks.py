"""Profile a training step as one of several ranks: its part of the batch, with the model in DistributedDataParallel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from mnistbench.core.params import Params
from mnistbench.core.ranks import RankTimes
from mnistbench.measuring.case import build, fork_random, memory_suffices, thread_count
from mnistbench.measuring.passes import time_steps
from mnistbench.measuring.profiling import has_device_view, record_warm, warm_table
from mnistbench.profile.ceilings import ceilings
from mnistbench.profile.costs import layers, operation_costs
from mnistbench.profile.result import Profiled
from mnistbench.profile.run import export_trace, too_large
from mnistbench.workloads.ranks import Alone
from mnistbench.workloads.step import Step
from mnistbench.workloads.workload import Batch, Workload

#: Timed steps of each kind. Their number is the same on all ranks, because the ranks wait for each other in every step.
TIMED_STEPS = 30


def profile_rank(
    params: Params,
    workload: Workload,
    ranks: Alone,
    *,
    iterations: int,
    data_dir: str | None = None,
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
