"""``mnistbench trace``: show operations, kernels and the accelerator's time of recorded traces."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.core.options import argument, number, option
from mnistbench.events.analysis import Analysis, analyse_processes, ranks_run, read_ranks
from mnistbench.events.report import ranks_report, traces_report
from mnistbench.showing.output import CommandResult
from mnistbench.showing.progress import Progress

#: Bounds of the values of --peak-tflops and --peak-gbs.
_RATE = number(1e-6, 1e15)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options."""

    files: tuple[Path, ...] = argument(
        "FILE",
        options.path,
        (
            "trace that torch.profiler wrote, .json or .json.gz; or one folder with a trace of "
            "each rank of a run"
        ),
        many=True,
    )
    top: int = options.top()
    by: str = options.by()
    peak_tflops: float | None = option(
        "--peak-tflops",
        _RATE,
        None,
        "10**12 FLOP/s of the device (default: from its data sheet)",
        "X",
    )
    peak_gbs: float | None = option(
        "--peak-gbs",
        _RATE,
        None,
        "10**9 bytes/s of the device's memory (default: from its data sheet)",
        "X",
    )
    format: str = options.output_format(("csv",))
    output: Path | None = options.output()


def run(settings: Settings) -> CommandResult:
    """Return the report.

    Raises:
        MnistbenchError: a file cannot be read.
    """
    folders = [file for file in settings.files if file.is_dir()]
    if folders and len(settings.files) > 1:
        raise UsageError(f"{folders[0]}: is a folder of ranks, which is one run; name it alone")
    user_peaks = {"tflops": settings.peak_tflops, "gbs": settings.peak_gbs}
    with Progress(
        sys.stderr, total=None if folders else len(settings.files), quiet=True
    ) as progress:
        if folders:
            report = ranks_report(
                read_ranks(folders[0], progress.step), settings.top, settings.by, user_peaks
            )
        else:
            traces: list[Analysis] = []
            for file in progress.over(settings.files):
                progress.step(file.name)
                traces += analyse_processes(file, counts_work=True)
            if len(traces) > 1 and len(settings.files) == 1:
                merged = ranks_run(settings.files[0], tuple(traces))
                report = ranks_report(merged, settings.top, settings.by, user_peaks)
            else:
                report = traces_report(traces, settings.top, settings.by, user_peaks)
    return CommandResult(report)
