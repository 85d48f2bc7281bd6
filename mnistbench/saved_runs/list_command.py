"""``mnistbench list``: list saved runs."""

from __future__ import annotations

import argparse

from mnistbench.saved_runs.find import all_runs
from mnistbench.saved_runs.report import list_table
from mnistbench.showing.arguments import add_storage
from mnistbench.showing.output import PASSED
from mnistbench.showing.terminal import draw


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
