"""``mnistbench profile --from-trace``: show the operations of a recorded trace on a roofline."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from mnistbench.commands.arguments import GROUPINGS, given, one_of, rate, whole
from mnistbench.commands.output import deliver_tables, output_file
from mnistbench.compare.thresholds import plain_threshold
from mnistbench.core.errors import UsageError
from mnistbench.report.profile import SORTS, Shown
from mnistbench.report.trace_profile import CSV_COLUMNS, TraceProfile, blocks, csv_rows, dumps
from mnistbench.traces.costs import analyse_with_costs
from mnistbench.traces.peaks import Peaks, peaks_of_all

#: Options of a measurement. A trace has been measured.
_MEASURING = (
    "--model", "--batch-size", "--device", "--phase", "--dtype", "--threads", "--dataset", "--data-dir", "--seed",
    "--iterations", "--cold", "--trace",
)  # fmt: skip

_PEAKS = ("--peak-tflops", "--peak-gbs")


class _Default(str):
    """The default of an option, as opposed to the same value that a user gave."""

    __slots__ = ()


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Declare the options about a trace, after those about what is measured."""
    add = parser.add_argument
    add("--from-trace", metavar="FILE", help="show the operations of a trace of torch.profiler (.json, .json.gz)")
    add("--peak-tflops", metavar="X", help="with --from-trace: 10**12 FLOP/s of its device (default: from its data sheet)")
    add("--peak-gbs", metavar="X", help="with --from-trace: 10**9 bytes/s of its memory (default: from its data sheet)")
    defaults = {_dest(flag): parser.get_default(_dest(flag)) for flag in _MEASURING}
    parser.set_defaults(**{name: _Default(value) for name, value in defaults.items() if isinstance(value, str)})


def is_of_trace(parsed: argparse.Namespace) -> bool:
    """Whether a trace is to be read.

    Raises:
        UsageError: options for a trace alone, and those for measuring alone, are mixed.
    """
    if parsed.from_trace is None:
        for flag in _PEAKS:
            if _is_given(parsed, flag):
                raise UsageError(
                    f"{flag}: holds for a trace only, and the peaks of this machine are measured; give --from-trace"
                )
        return False
    for flag in _MEASURING:
        if _is_given(parsed, flag):
            raise UsageError(f"{flag}: nothing is measured with --from-trace; leave {flag} out")
    return True


def use_defaults(parsed: argparse.Namespace) -> None:
    """Replace the defaults that :func:`add_trace` marked by their texts."""
    for name, value in vars(parsed).items():
        if isinstance(value, _Default):
            setattr(parsed, name, str(value))


def _is_given(parsed: argparse.Namespace, flag: str) -> bool:
    value = getattr(parsed, _dest(flag))
    return value is not None and value is not False and not isinstance(value, _Default)


def _dest(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def report_trace(parsed: argparse.Namespace) -> None:
    """Read the trace and report.

    Raises:
        UsageError: a value cannot be used.
        RecordError: the file is no trace, or damaged.
    """
    path, shown, output = Path(given("--from-trace", parsed.from_trace)), shown_of(parsed), output_file(parsed)
    tflops, gbs = (rate(flag, text) if (text := given(flag, getattr(parsed, _dest(flag)))) else None for flag in _PEAKS)
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


def shown_of(parsed: argparse.Namespace) -> Shown:
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
