"""``mnistbench export``: write one saved run or trace for another tool."""

from __future__ import annotations

import argparse
from pathlib import Path

from mnistbench.compare.data import github_action_benchmark
from mnistbench.compare.settings import SETTINGS
from mnistbench.saved_runs.find import criteria, find
from mnistbench.saved_runs.report import RUN_COLUMNS, export_entries, run_rows
from mnistbench.showing.arguments import OR_TRACE, add_output, add_settings, add_storage, given
from mnistbench.showing.output import PASSED, deliver_text
from mnistbench.showing.table import csv_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("which", metavar="RUN", nargs="?", default="latest", help=f"{OR_TRACE} (default: latest)")
    parser.add_argument("--format", choices=("github-action-benchmark", "csv"), required=True, help="format, required")
    add_settings(parser, [setting for setting in SETTINGS if setting.flag.startswith("--op-min")])
    add_output(parser)
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """Write the cases and operations of the run; return 0.

    Raises:
        MnistbenchError: an option cannot be used, or the run cannot be read.
    """
    limits = criteria(parsed)
    output = given("--output", parsed.output)
    [found] = find(parsed, parsed.which)
    saved = found[-1].run
    if parsed.format == "csv":
        text = csv_text(RUN_COLUMNS, run_rows(saved))
    else:
        text = github_action_benchmark(export_entries(saved, limits))
    deliver_text(text, Path(output) if output else None)
    return PASSED
