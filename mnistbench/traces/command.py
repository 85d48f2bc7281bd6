"""``mnistbench trace``: show the operations, the kernels and the accelerator's time of recorded traces."""

from __future__ import annotations

import argparse
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.showing.arguments import GROUPINGS, add_by, add_format, add_output, add_top, given, one_of, whole
from mnistbench.showing.output import PASSED, deliver_tables, output_file, progress_bar
from mnistbench.traces.analysis import analyse
from mnistbench.traces.ranks import read_ranks
from mnistbench.traces.report import Shown, blocks, ranks_blocks
from mnistbench.traces.result import dumps, dumps_ranks
from mnistbench.traces.rows import csv_columns, csv_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+",
        help="trace that torch.profiler wrote, .json or .json.gz; or one folder with a trace of each rank of a run",
    )  # fmt: skip
    add_top(parser)
    add_by(parser)
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print the report; return 0.

    Raises:
        MnistbenchError: an option cannot be used, or a file cannot be read.
    """
    shown = Shown(top=whole("--top", parsed.top, 1), by=one_of("--by", parsed.by, GROUPINGS))
    output = output_file(parsed)
    files = [Path(given("FILE", file)) for file in parsed.files]
    folders = [file for file in files if file.is_dir()]
    with progress_bar("file") as progress:
        if folders:
            if len(files) > 1:
                raise UsageError(f"{folders[0]}: is a folder of ranks, which is one run; name it alone")
            ranks = read_ranks(folders[0], progress)
            traces, shown_blocks, json = list(ranks.ranks), ranks_blocks(ranks, shown), dumps_ranks(ranks)
        else:
            traces = []
            for file in files:
                progress(file.name)
                traces.append(analyse(file))
            shown_blocks, json = [block for trace in traces for block in blocks(trace, shown)], dumps(traces)
    deliver_tables(
        parsed.format, output, blocks=shown_blocks, heading="operations of a trace", json=json,
        columns=csv_columns(traces), rows=csv_rows(traces, shown.by),
    )  # fmt: skip
    return PASSED
