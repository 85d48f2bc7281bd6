"""``mnistbench profile --from-trace``: show the operations of a recorded trace on a roofline."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.profile.report import Shown
from mnistbench.showing.arguments import given, positive
from mnistbench.showing.output import deliver_tables, output_file
from mnistbench.traces.costs import analyse_with_costs
from mnistbench.traces.peaks import Peaks, peaks_of_all
from mnistbench.traces.roofline_report import CSV_COLUMNS, TraceProfile, blocks, csv_rows, dumps

#: Options of a measurement. A trace has been measured.
_MEASURING = (
    "--model", "--batch-size", "--device", "--phase", "--dtype", "--threads", "--dataset", "--data-dir", "--seed",
    "--iterations", "--cold", "--trace",
)  # fmt: skip

_PEAKS = ("--peak-tflops", "--peak-gbs")

#: Bounds of their values.
_RATES = (1e-6, 1e15)


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Declare the options about a trace, after those about what is measured."""
    add = parser.add_argument
    add("--from-trace", metavar="FILE", help="show the operations of a trace of torch.profiler (.json, .json.gz)")
    add("--peak-tflops", metavar="X", help="with --from-trace: 10**12 FLOP/s of its device (default: from its data sheet)")
    add("--peak-gbs", metavar="X", help="with --from-trace: 10**9 bytes/s of its memory (default: from its data sheet)")
    defaults = {_dest(flag): parser.get_default(_dest(flag)) for flag in _MEASURING}
    parser.set_defaults(**dict.fromkeys(defaults), of_measuring=defaults)  # so that a given value can be distinguished


def is_of_trace(parsed: argparse.Namespace) -> bool:
    """Whether a trace is to be read.

    Raises:
        UsageError: options for a trace alone, and those for measuring alone, are mixed.
    """
    if parsed.from_trace is None:
        for flag in _PEAKS:
            if getattr(parsed, _dest(flag)) is not None:
                raise UsageError(
                    f"{flag}: holds for a trace only, and the peaks of this machine are measured; give --from-trace"
                )
        return False
    for flag in _MEASURING:
        if getattr(parsed, _dest(flag)) is not None:
            raise UsageError(f"{flag}: nothing is measured with --from-trace; leave {flag} out")
    return True


def use_defaults(parsed: argparse.Namespace) -> None:
    """Set the defaults of the options of a measurement."""
    for name, value in parsed.of_measuring.items():
        if getattr(parsed, name) is None:
            setattr(parsed, name, value)


def _dest(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def report_trace(parsed: argparse.Namespace, shown: Shown) -> None:
    """Read the trace and report.

    Raises:
        UsageError: a value cannot be used.
        RecordError: the file is no trace, or damaged.
    """
    path, output = Path(given("--from-trace", parsed.from_trace)), output_file(parsed)
    tflops, gbs = (
        positive(flag, text, *_RATES) if (text := given(flag, getattr(parsed, _dest(flag)))) else None for flag in _PEAKS
    )
    analysis, costs = analyse_with_costs(path)
    if analysis.device is None and shown.sort == "self-device":
        raise UsageError(f"--sort: 'self-device' needs an accelerator, and {path} has none; give self-cpu")
    peaks = _with_given(peaks_of_all(analysis.machine) or Peaks(), tflops, gbs)
    profile = TraceProfile(analysis, costs, peaks)
    deliver_tables(
        parsed.format, output, blocks=blocks(profile, shown),
        heading="operations of a trace: time, FLOPs and bytes, roofline limit", json=dumps(profile, shown.by),
        columns=CSV_COLUMNS, rows=csv_rows(profile, shown.by),
    )  # fmt: skip


def _with_given(peaks: Peaks, tflops: float | None, gbs: float | None) -> Peaks:
    """Return the peaks with those that the user gave instead."""
    sources = [flag for flag, value in zip(_PEAKS, (tflops, gbs), strict=True) if value]
    if peaks.source and len(sources) < len(_PEAKS):
        sources.append(peaks.source)
    return replace(
        peaks,
        flops_per_s_of_all=tflops * 1e12 if tflops else None,
        bytes_per_s=gbs * 1e9 if gbs else peaks.bytes_per_s,
        source=", ".join(sources),
    )
