"""The command ``mnistbench profile``: options to cases, progress on the terminal, the report."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mnistbench.criteria import plain_threshold
from mnistbench.errors import UsageError
from mnistbench.lab.profiled import Profiled, dumps
from mnistbench.params import DATASETS, DTYPES, Params
from mnistbench.report.data import csv_text
from mnistbench.report.markdown import markdown_report
from mnistbench.report.output import write
from mnistbench.report.profile import CSV_COLUMNS, SORTS, Shown, blocks, csv_rows
from mnistbench.report.terminal import draw_report
from mnistbench.session import import_torch

_T = TypeVar("_T")

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
    shown: Shown

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> _Request:
        if parsed.trace is not None and not parsed.trace.endswith((".json", ".json.gz")):
            raise UsageError(f"--trace: {parsed.trace!r} does not end in .json or .json.gz; name such a file")
        return cls(
            model=parsed.model,
            batch_sizes=_list("--batch-size", parsed.batch_size, lambda text: _whole("--batch-size", text, 1)),
            devices=_list("--device", parsed.device, str),
            phases=_list("--phase", parsed.phase, lambda text: _one_of("--phase", text, _PHASES)),
            dtype=_one_of("--dtype", parsed.dtype, DTYPES),
            threads=_whole("--threads", parsed.threads, 1),
            dataset=_one_of("--dataset", parsed.dataset, DATASETS),
            data_dir=parsed.data_dir,
            seed=_whole("--seed", parsed.seed, 0),
            iterations=_whole("--iterations", parsed.iterations, 1),
            cold=parsed.cold,
            trace=Path(parsed.trace) if parsed.trace else None,
            shown=Shown(
                top=_whole("--top", parsed.top, 1),
                min_share=_share("--min-share", parsed.min_share),
                sort=_one_of("--sort", parsed.sort, SORTS) if parsed.sort else "",
                by=_one_of("--by", parsed.by, _BY),
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
    if parsed.output:
        write(Path(parsed.output), text)
    else:
        sys.stdout.write(text)
    return 0


def _profiled(request: _Request) -> list[Profiled]:
    from tqdm import tqdm

    from mnistbench.environment import resolve_devices
    from mnistbench.lab.profile import profile_case, with_cold_calls
    from mnistbench.workload import builtin_workloads

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
    found = []
    with tqdm(total=len(cases), unit="case", file=sys.stderr, disable=None, leave=False) as bar:
        for params in cases:
            bar.set_description(params.label)
            profiled = profile_case(
                params, workloads[params.workload], data_dir=request.data_dir, iterations=request.iterations,
                shapes=request.shown.shapes, trace=_trace_of(request.trace, params, len(cases)),
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


def _list(flag: str, text: str, read: Callable[[str], _T]) -> tuple[_T, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"{flag}: {text!r} has an empty entry; give a comma list such as its default")
    return tuple(dict.fromkeys(map(read, parts)))


def _whole(flag: str, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise UsageError(f"{flag}: {text!r} is not a whole number of at least {least}; give one")
    return number


def _one_of(flag: str, text: str, choices: Iterable[str]) -> str:
    if text not in choices:
        raise UsageError(f"{flag}: {text!r} is not known; choose of {' '.join(choices)}")
    return text


def _share(flag: str, text: str) -> float:
    if text in ("0", "0%"):
        return 0.0
    try:
        return plain_threshold(text).share
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is not a share; give 1%") from None
