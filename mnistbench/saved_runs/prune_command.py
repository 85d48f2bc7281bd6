"""``mnistbench prune``: remove old saved runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.units import printable
from mnistbench.saved_runs.find import all_runs
from mnistbench.saved_runs.prune import plan, remove
from mnistbench.showing.arguments import add_storage
from mnistbench.showing.output import PASSED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--keep", type=int, required=True, metavar="N", help="number of newest runs to keep, required")
    parser.add_argument("--yes", action="store_true", help="remove the files; without it they are only listed")
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """List what goes and, with ``--yes``, remove it; return 0.

    Raises:
        UsageError: there is no saved run, or ``--keep`` would leave none.
    """
    if parsed.keep < 1:
        raise UsageError(f"--keep: {parsed.keep} would leave no saved run; give at least 1")
    files, directories, left = plan(all_runs(parsed), parsed.keep, Path(parsed.storage) / "tensorboard")
    for line in left:
        print(line)
    if not files:
        print(f"nothing to remove: there are no more than {parsed.keep} saved runs")
        return PASSED
    for path in (*files, *directories):
        print(f"{'removing' if parsed.yes else 'would remove'} {printable(str(path))}")
    if parsed.yes:
        remove(files, directories)
    else:
        print(f"{len(files)} saved runs and {len(directories)} TensorBoard directories; add --yes to remove them")
    return PASSED
