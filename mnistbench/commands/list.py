"""``mnistbench list``: list saved runs."""

from __future__ import annotations

import argparse

from mnistbench.commands.arguments import add_storage
from mnistbench.commands.output import PASSED
from mnistbench.commands.saved import all_runs
from mnistbench.report.runs import list_table
from mnistbench.report.terminal import draw


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print the saved runs, oldest first; return 0.

    Raises:
        UsageError: there is none.
    """
    print(draw(list_table(all_runs(parsed))))
    return PASSED
