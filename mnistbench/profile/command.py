"""``mnistbench profile``: profile built-in models, or read a trace, and show the operations."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mnistbench.compare.thresholds import plain_threshold
from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.params import DATASETS, DTYPES, Params
from mnistbench.core.ranks import Rank, own_rank
from mnistbench.measuring.torch_import import import_torch
from mnistbench.profile.report import SORTS, Shown, blocks
from mnistbench.profile.result import Profiled, dumps
from mnistbench.profile.rows import CSV_COLUMNS, csv_rows
from mnistbench.profile.trace_command import add_trace, is_of_trace, report_trace, use_defaults
from mnistbench.showing.arguments import (
    GROUPINGS,
    MOST_THREADS,
    add_by,
    add_dataset,
    add_dtype,
    add_format,
    add_model,
    add_output,
    add_top,
    given,
    one_of,
    parts,
    whole,
    wholes,
)
from mnistbench.showing.output import check, deliver_tables, print_error, rank_0_reports

if TYPE_CHECKING:
    from mnistbench.workloads.ranks import Alone
    from mnistbench.workloads.workload import Workload

_PHASES = ("forward", "step")
_BATCH_SIZES = "1,16,64"


@dataclass(frozen=True)
class _Request:
    """The values of the options, checked without importing torch."""

    model: str
    batch_sizes: tuple[int, ...]
    devices: tuple[str, ...]
    phases: tuple[str, ...]
    dtype: str
    threads: int
    dataset: str
    data_dir: str | None
    seed: int
    iterations: int
    cold: bool
    trace: Path | None
    output: Path | None
    shown: Shown

    @classmethod
    def of(cls, parsed: argparse.Namespace, place: Rank) -> _Request:
        trace = given("--trace", parsed.trace)
        if trace and not trace.endswith((".json", ".json.gz")):
            raise UsageError(f"--trace: {trace!r} does not end in .json or .json.gz; name such a file")
        output = given("--output", parsed.output)
        found = cls(
            model=parsed.model,
            batch_sizes=_batch_sizes(parsed.batch_size, place),
            devices=parts("--device", parsed.device),
            phases=tuple(one_of("--phase", text, _PHASES) for text in parts("--phase", parsed.phase)),
            dtype=one_of("--dtype", parsed.dtype, DTYPES),
            threads=whole("--threads", parsed.threads, 1, MOST_THREADS),
            dataset=one_of("--dataset", parsed.dataset, DATASETS),
            data_dir=given("--data-dir", parsed.data_dir) or None,
            seed=whole("--seed", parsed.seed, 0, 2**63 - 1),
            iterations=whole("--iterations", parsed.iterations, 1),
            cold=parsed.cold,
            trace=Path(trace) if trace else None,
            output=Path(output) if output else None,
            shown=_shown(parsed),
        )
        if place.world_size > 1:
            found.check_for_ranks()
        return found

    def check_for_ranks(self) -> None:
        """Check that ranks can be profiled so.

        Raises:
            UsageError: an option is for one process.
        """
        if self.phases != ("step",):
            raise UsageError("--phase: ranks communicate in a step only; leave --phase out, or profile without torchrun")
        if self.cold:
            raise UsageError("--cold: first iterations are those of one process; leave --cold out, or profile without torchrun")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add_model(parser)
    add("--batch-size", metavar="SIZES", help=f"comma list; samples of all ranks under torchrun (default: {_BATCH_SIZES})")
    add("--device", default="auto", metavar="NAMES", help="comma list of auto, cpu, cuda, cuda:1, mps (default: auto)")
    add("--phase", default="step", metavar="NAMES", help="comma list of forward and step (default: step)")
    add_dtype(parser)
    add("--threads", default="1", metavar="N", help="intra-op threads of torch on the CPU (default: 1)")
    add_dataset(parser, "digits")
    add("--seed", default="1", metavar="N", help="seed of weights, batch and dropout (default: 1)")
    add("--iterations", default="10", metavar="N", help="profiled iterations of each case (default: 10)")
    add_top(parser)
    add("--min-share", default="1%", metavar="SHARE", help="hide operations below this share of their case (default: 1%%)")
    add("--sort", default="", metavar="KEY", help="self-cpu, self-device, total, memory or calls (default: self time)")
    add_by(parser)
    add("--shapes", action="store_true", help="show input shapes")
    add("--memory", action="store_true", help="show allocated minus freed memory")
    add("--cold", action="store_true", help="also measure first iterations, each in a new process")
    add("--trace", metavar="FILE", help="write a trace for https://ui.perfetto.dev, such as trace.json.gz")
    add_trace(parser)
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Profile every case, or read a trace, report, and return 0. Of several ranks, rank 0 alone reports.

    Raises:
        MnistbenchError: something cannot be used, read or measured.
    """
    if is_of_trace(parsed):
        report_trace(parsed, _shown(parsed))
        return 0
    use_defaults(parsed)
    place = own_rank(os.environ)
    with rank_0_reports(place):
        return _reported(parsed, place)


def _reported(parsed: argparse.Namespace, place: Rank) -> int:
    request = _Request.of(parsed, place)
    if request.output:
        check(request.output)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of memory allocated before the profile began
    import_torch()
    if place.world_size == 1:
        _deliver(parsed.format, _profiled(request), request)
        return 0
    import torch

    from mnistbench.measuring.environment import device_of_rank
    from mnistbench.workloads.ranks import Group

    device = device_of_rank(request.devices, place)
    ranks = Group(place, torch.device(device))
    with ranks.failing_together(print_error):
        cases = _profiled_rank(request, device, ranks)
        if place.rank == 0:
            _deliver(parsed.format, cases, request)
        ranks.end()
    return 0


def _deliver(form: str, cases: Sequence[Profiled], request: _Request) -> None:
    deliver_tables(
        form, str(request.output or ""), blocks=blocks(cases, request.shown),
        heading="operations: time, FLOPs and bytes, roofline limit", json=dumps(cases), columns=CSV_COLUMNS,
        rows=csv_rows(cases, request.shown.by),
    )  # fmt: skip


def _profiled(request: _Request) -> list[Profiled]:
    from tqdm import tqdm

    from mnistbench.measuring.environment import resolve_devices
    from mnistbench.profile.first_call import Processes
    from mnistbench.profile.run import profile_case, with_cold_calls

    workload = _workload(request)
    cases = _cases(request, resolve_devices(request.devices))
    found = []
    with Processes() as processes, tqdm(total=len(cases), unit="case", file=sys.stderr, disable=None, leave=False) as bar:
        for params, trace in cases:
            bar.set_description(params.label)
            profiled = profile_case(
                params, workload, data_dir=request.data_dir, iterations=request.iterations,
                shapes=request.shown.shapes, trace=trace,
            )  # fmt: skip
            found.append(with_cold_calls(profiled, request.data_dir, processes) if request.cold else profiled)
            bar.update()
    return found


def _profiled_rank(request: _Request, device: str, ranks: Alone) -> list[Profiled]:
    """Return the cases on rank 0, and nothing on the others."""
    import torch
    from tqdm import tqdm

    from mnistbench.profile.ranks import profile_rank

    workload = _workload(request)
    cases = _cases(request, [device])
    if workload.load:
        with ranks.rank_0_first():
            workload.load(torch.device(device))
    found = []
    with tqdm(total=len(cases), unit="case", file=sys.stderr, disable=True if ranks.rank else None, leave=False) as bar:
        for params, trace in cases:
            bar.set_description(params.label)
            profiled = profile_rank(
                params, workload, ranks, data_dir=request.data_dir, iterations=request.iterations,
                shapes=request.shown.shapes, trace=trace,
            )  # fmt: skip
            found += [profiled] if profiled else []
            bar.update()
    return found


def _workload(request: _Request) -> Workload:
    from mnistbench.workloads.workload import builtin_workloads

    workloads = {workload.name: workload for workload in builtin_workloads(request.dataset, request.data_dir)}
    if request.model not in workloads:
        raise UsageError(f"--model: {request.model!r} is not a workload; choose of {', '.join(workloads)}")
    return workloads[request.model]


def _cases(request: _Request, devices: Sequence[str]) -> list[tuple[Params, Path | None]]:
    """Return each case and the file of its trace."""
    if request.shown.sort == "self-device" and list(devices) == ["cpu"]:
        raise UsageError("--sort: 'self-device' needs an accelerator, and only the CPU is profiled; give self-cpu")
    cases = [
        Params(
            workload=request.model, phase=phase, batch_size=size, device=device, dtype=request.dtype, threads=request.threads,
            compile=False, seed=request.seed, dataset=request.dataset,
        )
        for device in devices for phase in request.phases for size in request.batch_sizes
    ]  # fmt: skip
    traces = [_trace_of(request.trace, params, len(cases)) for params in cases]
    for trace in traces:
        if trace and (problem := why_not_writable(trace.parent)):
            raise UsageError(f"--trace: {trace} cannot be written ({problem}); name another file")
    return list(zip(cases, traces, strict=True))


def _trace_of(path: Path | None, params: Params, cases: int) -> Path | None:
    """Return the trace file of a case; one of several cases has its label before the suffix."""
    if path is None or cases == 1:
        return path
    stem, dot, ending = path.name.partition(".")
    return path.with_name(f"{stem}-{params.label.replace(' ', '-').replace(':', '')}{dot}{ending}")


# ---- Options ---------------------------------------------------------------------------------------------------------


def _shown(parsed: argparse.Namespace) -> Shown:
    """Return what the report shows.

    Raises:
        UsageError: a value cannot be used.
    """
    return Shown(
        top=whole("--top", parsed.top, 1),
        min_share=_share("--min-share", parsed.min_share),
        sort=one_of("--sort", parsed.sort, SORTS) if parsed.sort else "",
        by=one_of("--by", parsed.by, GROUPINGS),
        shapes=parsed.shapes,
        memory=parsed.memory,
    )


def _share(flag: str, text: str) -> float:
    if text in ("0", "0%"):
        return 0.0
    try:
        return plain_threshold(text).share
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is not a share; give 1%") from None


def _batch_sizes(text: str | None, place: Rank) -> tuple[int, ...]:
    """Return the batch sizes; by default those that have a sample for each rank."""
    if text is None:
        sizes = tuple(size for size in wholes("--batch-size", _BATCH_SIZES, 1) if size >= place.world_size)
        return sizes or (place.world_size,)
    sizes = wholes("--batch-size", text, 1)
    if min(sizes) < place.world_size:
        raise UsageError(
            f"--batch-size: {min(sizes)} has no sample for each of {place.world_size} ranks; give {place.world_size} at least"
        )
    return sizes
