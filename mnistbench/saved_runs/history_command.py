"""``mnistbench history``: show one case in every saved run."""

from __future__ import annotations

import argparse

from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.find import all_runs, names_trace
from mnistbench.saved_runs.report import history_table
from mnistbench.showing.arguments import add_storage
from mnistbench.showing.output import PASSED
from mnistbench.showing.terminal import draw


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("case", metavar="CASE", help="title of the case in a table, or its pytest id")
    parser.add_argument("--op", default="", metavar="NAME", help="show this operation of the case: aten::addmm")
    parser.add_argument("--module", default="", metavar="NAME", help="show this module of the case: conv2")
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print the time of the case in every saved run; return 0.

    Raises:
        UsageError: no saved run has the case, the operation or the module.
    """
    if names_trace(parsed.case):
        raise UsageError(f"{parsed.case!r} is a trace, not a case of saved runs; compare two traces with: mnistbench compare")
    runs = all_runs(parsed)
    print(draw(history_table(runs, parsed.case, parsed.op, parsed.module)))
    return PASSED
