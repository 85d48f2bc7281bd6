"""``mnistbench profile``: profile built-in models and show the operations."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.params import Params
from mnistbench.core.ranks import Rank, own_rank
from mnistbench.measuring.torch_import import import_torch
from mnistbench.profile.report import profile_report
from mnistbench.profile.result import Profiled, Settings
from mnistbench.showing.output import EXIT_PASSED, check, deliver, print_error, rank_0_reports
from mnistbench.showing.progress import Progress

if TYPE_CHECKING:
    from mnistbench.workloads.workload import Workload

__all__ = ["Settings", "run"]


def run(settings: Settings) -> int:
    """Profile every case, report, and return 0. Of several ranks, rank 0 alone reports.

    Raises:
        MnistbenchError: something cannot be used, read or measured.
    """
    rank = own_rank(os.environ)
    with rank_0_reports(rank):
        if rank.world_size > 1 and settings.phases != ("step",):
            raise UsageError("--phase: ranks communicate in a step only; leave --phase out, or profile without torchrun")
        if rank.world_size > 1 and settings.cold:
            raise UsageError("--cold: first iterations are those of one process; leave --cold out, or profile without torchrun")
        settings = replace(settings, batch_sizes=settings.batch_sizes_for(rank))
        if settings.output:
            check(settings.output)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of memory allocated before the profile began
        import_torch()
        if rank.world_size == 1:
            deliver(profile_report(_profiled(settings), settings), settings.format, settings.output)
        else:
            _run_rank(settings, rank)
    return EXIT_PASSED


def _profiled(settings: Settings) -> list[Profiled]:
    from mnistbench.measuring.environment import resolve_devices
    from mnistbench.profile.first_call import Processes
    from mnistbench.profile.run import profile_case, with_cold_calls

    workload = _workload(settings)
    with Processes() as processes:

        def profile(params: Params, trace: Path | None) -> Profiled:
            found = profile_case(
                params, workload, data_dir=settings.data_dir, iterations=settings.iterations, shapes=settings.shapes,
                trace=trace,
            )  # fmt: skip
            return with_cold_calls(found, settings.data_dir, processes) if settings.cold else found

        return _each(settings, resolve_devices(settings.devices), profile)


def _run_rank(settings: Settings, rank: Rank) -> None:
    """Profile as one of several ranks; report on rank 0."""
    import torch

    from mnistbench.measuring.environment import device_of_rank
    from mnistbench.profile.run import profile_rank
    from mnistbench.workloads.ranks import Group

    device = device_of_rank(settings.devices, rank)
    ranks = Group(rank, torch.device(device))
    with ranks.failing_together(print_error):
        workload = _workload(settings)
        if workload.load:
            with ranks.rank_0_first():
                workload.load(torch.device(device))

        def profile(params: Params, trace: Path | None) -> Profiled | None:
            return profile_rank(
                params, workload, ranks, data_dir=settings.data_dir, iterations=settings.iterations,
                shapes=settings.shapes, trace=trace,
            )  # fmt: skip

        cases = _each(settings, [device], profile, is_shown=rank.rank == 0)
        if rank.rank == 0:
            deliver(profile_report(cases, settings), settings.format, settings.output)
        ranks.end()


def _workload(settings: Settings) -> Workload:
    from mnistbench.workloads.workload import builtin_workloads

    workloads = {workload.name: workload for workload in builtin_workloads(settings.dataset, settings.data_dir)}
    if settings.model not in workloads:
        raise UsageError(f"--model: {settings.model!r} is not known; choose {' or '.join(workloads)}")
    return workloads[settings.model]


def _each(
    settings: Settings,
    devices: Sequence[str],
    profile: Callable[[Params, Path | None], Profiled | None],
    *,
    is_shown: bool = True,
) -> list[Profiled]:
    """Profile each case, with the file of its trace; return the results that this rank has."""
    if settings.sort == "self-device" and list(devices) == ["cpu"]:
        raise UsageError("--sort: 'self-device' needs an accelerator, and only the CPU is profiled; give self-cpu")
    cases = [
        Params(
            workload=settings.model, phase=phase, batch_size=size, device=device, dtype=settings.dtype,
            threads=settings.threads, compile=False, seed=settings.seed, dataset=settings.dataset,
        )
        for device in devices for phase in settings.phases for size in settings.batch_sizes
    ]  # fmt: skip
    traces = [settings.trace] * len(cases)
    if settings.trace and len(cases) > 1:  # each file has the label of its case before the suffix
        stem, dot, ending = settings.trace.name.partition(".")
        labels = [params.label.replace(" ", "-").replace(":", "") for params in cases]
        traces = [settings.trace.with_name(f"{stem}-{label}{dot}{ending}") for label in labels]
    for trace in traces:
        if trace and (problem := why_not_writable(trace.parent)):
            raise UsageError(f"--trace: {trace} cannot be written ({problem}); name another file")
    found = []
    with Progress(sys.stderr if is_shown else None, total=len(cases), quiet=True) as progress:
        for params, trace in progress.over(zip(cases, traces, strict=True)):
            progress.step(params.label)
            found.append(profile(params, trace))
    return [case for case in found if case]
