"""``mnistbench profile``: profile built-in models and show the operations."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.params import Params
from mnistbench.showing.output import EXIT_PASSED, CommandResult, print_error
from mnistbench.showing.progress import Progress
from mnistbench.suite.measuring.torch_import import import_torch
from mnistbench.suite.profile.report import profile_report
from mnistbench.suite.profile.result import Profiled, Settings
from mnistbench.suite.workloads.torchrun import Rank, own_rank

if TYPE_CHECKING:
    from mnistbench.suite.workloads.ranks import Ranks

__all__ = ["Settings", "run"]

#: Batch sizes by default; of ranks those that have a sample for each.
_BATCH_SIZES = (1, 16, 64)


def run(settings: Settings) -> CommandResult | int:
    """Profile every case. Of several ranks, rank 0 alone returns the report, the others 0.

    Raises:
        MnistbenchError: something cannot be used, read or measured.
    """
    rank = own_rank(os.environ)
    if rank.world_size > 1 and settings.phases != ("step",):
        raise UsageError(
            "--phase: ranks communicate in a step only; leave --phase out, or profile without "
            "torchrun"
        )
    if rank.world_size > 1 and settings.cold:
        raise UsageError(
            "--cold: first iterations are those of one process; leave --cold out, or profile "
            "without torchrun"
        )
    ranks = rank.world_size
    sizes = (
        settings.batch_sizes or tuple(size for size in _BATCH_SIZES if size >= ranks) or (ranks,)
    )
    if min(sizes) < ranks:
        raise UsageError(
            f"--batch-size: {min(sizes)} has no sample for each of {ranks} ranks; give "
            f"{ranks} at least"
        )
    settings = replace(settings, batch_sizes=sizes)
    import_torch(quiet=True)
    if rank.world_size > 1:
        cases = _profiled_as_rank(settings, rank)
    else:
        from mnistbench.suite.measuring.environment import resolve_devices

        cases = _profiled(settings, resolve_devices(settings.devices))
    return EXIT_PASSED if rank.rank else CommandResult(profile_report(cases, settings))


def _profiled_as_rank(settings: Settings, rank: Rank) -> list[Profiled]:
    """Profile as one of several ranks."""
    import torch

    from mnistbench.suite.measuring.environment import device_of_rank
    from mnistbench.suite.workloads.ranks import run_as_rank

    device = device_of_rank(settings.devices, rank)
    work = partial(_profiled, settings, [device])
    return run_as_rank(rank, torch.device(device), work, print_error)


def _profiled(
    settings: Settings, devices: Sequence[str], ranks: Ranks | None = None
) -> list[Profiled]:
    """Profile each case; of several ranks, rank 0 writes the traces."""
    import torch

    from mnistbench.suite.profile.first_call import TRAINING_STEPS, cold_calls
    from mnistbench.suite.profile.run import profile_case
    from mnistbench.suite.workloads.workload import builtin_workloads, params_of

    workloads = {
        workload.name: workload
        for workload in builtin_workloads(settings.dataset, settings.data_dir)
    }
    workload = workloads[settings.model]
    if settings.sort == "self-device" and list(devices) == ["cpu"]:
        raise UsageError(
            "--sort: 'self-device' needs an accelerator, and only the CPU is profiled; give "
            "self-cpu"
        )
    cases = [
        params_of(
            workload,
            phase,
            size,
            device,
            threads=settings.threads,
            seed=settings.seed,
            dtype=settings.dtype,
        )
        for device in devices
        for phase in settings.phases
        for size in settings.batch_sizes
    ]
    traces = _traces(settings.trace, cases)
    if ranks and workload.load:
        with ranks.rank_0_first():
            workload.load(torch.device(devices[0]))
    profiled = []
    is_first = ranks is None or ranks.rank == 0
    stream = sys.stderr if is_first else None
    with Progress(stream, total=len(cases), quiet=True) as progress:
        for params, trace in progress.over(zip(cases, traces, strict=True)):
            progress.step(params.label)
            case = profile_case(
                params,
                workload,
                ranks=ranks,
                iterations=settings.iterations,
                shapes=settings.shapes,
                trace=trace if is_first else None,
            )
            if settings.cold:
                calls = cold_calls(params, settings.data_dir)
                case = replace(case, cold=calls, trained_steps=TRAINING_STEPS)
            profiled.append(case)
    return profiled


def _traces(trace: Path | None, cases: Sequence[Params]) -> list[Path | None]:
    """Return the file of each case's trace.

    Of several, each has the label of its case before the suffix.
    """
    if trace is None:
        return [None] * len(cases)
    traces = [trace]
    if len(cases) > 1:
        stem, dot, ending = trace.name.partition(".")
        labels = [params.label.replace(" ", "-").replace(":", "") for params in cases]
        traces = [trace.with_name(f"{stem}-{label}{dot}{ending}") for label in labels]
    for file in traces:
        if problem := why_not_writable(file.parent):
            raise UsageError(f"--trace: {file} cannot be written ({problem}); name another file")
    return [*traces]
