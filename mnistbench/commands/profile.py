"""The command ``mnistbench profile``: options to cases, progress on the terminal, the report."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from mnistbench.commands.arguments import MOST_THREADS, given, one_of, parts, whole, wholes
from mnistbench.compare.thresholds import plain_threshold
from mnistbench.core.errors import UsageError
from mnistbench.core.files import why_not_writable
from mnistbench.core.params import DATASETS, DTYPES, Params
from mnistbench.measuring.torch_import import import_torch
from mnistbench.profile.result import Profiled, dumps
from mnistbench.report.data import csv_text
from mnistbench.report.markdown import markdown_report
from mnistbench.report.output import check, write
from mnistbench.report.profile import SORTS, Shown, blocks
from mnistbench.report.profile_rows import CSV_COLUMNS, csv_rows
from mnistbench.report.terminal import draw_report

_PHASES = ("forward", "step")
_BY = ("op", "module", "op,module")


@dataclass(frozen=True)
class _Request:
    """What a user asked for, read and checked without torch."""

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
    def of(cls, parsed: argparse.Namespace) -> _Request:
        trace = given("--trace", parsed.trace)
        if trace and not trace.endswith((".json", ".json.gz")):
            raise UsageError(f"--trace: {trace!r} does not end in .json or .json.gz; name such a file")
        output = given("--output", parsed.output)
        return cls(
            model=parsed.model,
            batch_sizes=wholes("--batch-size", parsed.batch_size, 1),
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
            shown=Shown(
                top=whole("--top", parsed.top, 1),
                min_share=_share("--min-share", parsed.min_share),
                sort=one_of("--sort", parsed.sort, SORTS) if parsed.sort else "",
                by=one_of("--by", parsed.by, _BY),
                shapes=parsed.shapes,
                memory=parsed.memory,
            ),
        )


def run(parsed: argparse.Namespace) -> int:
    """Profile every case, report, and return 0.

    Raises:
        MnistbenchError: something cannot be used or measured.
    """
    request = _Request.of(parsed)
    if request.output:
        check(request.output)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its allocator warns of blocks that are older than the profile
    import_torch()
    cases = _profiled(request)
    if parsed.format == "json":
        text = dumps(cases)
    elif parsed.format == "csv":
        text = csv_text(CSV_COLUMNS, csv_rows(cases, request.shown.by))
    elif parsed.format == "markdown":
        text = markdown_report(blocks(cases, request.shown), "what operations take, have to do and could do")
    else:
        text = draw_report(blocks(cases, request.shown)) + "\n"
    if request.output:
        write(request.output, text)
    else:
        sys.stdout.write(text)
    return 0


def _profiled(request: _Request) -> list[Profiled]:
    from tqdm import tqdm

    from mnistbench.measuring.environment import resolve_devices
    from mnistbench.profile.run import profile_case, with_cold_calls
    from mnistbench.workloads.workload import builtin_workloads

    workloads = {workload.name: workload for workload in builtin_workloads(request.dataset, request.data_dir)}
    if request.model not in workloads:
        raise UsageError(f"--model: {request.model!r} is not a workload; choose of {', '.join(workloads)}")
    devices = resolve_devices(request.devices)
    if request.shown.sort == "self-device" and devices == ["cpu"]:
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
    found = []
    with tqdm(total=len(cases), unit="case", file=sys.stderr, disable=None, leave=False) as bar:
        for params, trace in zip(cases, traces, strict=True):
            bar.set_description(params.label)
            profiled = profile_case(
                params, workloads[params.workload], data_dir=request.data_dir, iterations=request.iterations,
                shapes=request.shown.shapes, trace=trace,
            )  # fmt: skip
            found.append(with_cold_calls(profiled, request.data_dir) if request.cold else profiled)
            bar.update()
    return found


def _trace_of(path: Path | None, params: Params, cases: int) -> Path | None:
    """Return the file for a case: of several, each gets its label before the ending."""
    if path is None or cases == 1:
        return path
    stem, dot, ending = path.name.partition(".")
    return path.with_name(f"{stem}-{params.label.replace(' ', '-').replace(':', '')}{dot}{ending}")


# ---- Options ---------------------------------------------------------------------------------------------------------


def _share(flag: str, text: str) -> float:
    if text in ("0", "0%"):
        return 0.0
    try:
        return plain_threshold(text).share
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is not a share; give 1%") from None
