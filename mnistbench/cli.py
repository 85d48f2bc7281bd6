"""The command ``mnistbench``: one subcommand a line, each imports what it needs when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mnistbench import __version__
from mnistbench.errors import MnistbenchError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 2 wrong usage or an error of the user's making."""
    parser = argparse.ArgumentParser(prog="mnistbench", description="Says which PyTorch operation got slower.")
    parser.add_argument("--version", action="version", version=f"mnistbench {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    commands.add_parser("env", help="print machine and software, for a bug report").set_defaults(run=_env)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except MnistbenchError as error:
        print(f"mnistbench: {error}", file=sys.stderr)
        return 2


def _env(_: argparse.Namespace) -> int:
    from mnistbench.session import import_torch

    import_torch()
    import torch

    from mnistbench.allocator import status
    from mnistbench.environment import read
    from mnistbench.report.environment import environment_text

    print(environment_text(read(torch.get_num_threads()), status(os.environ)))
    return 0
