"""``mnistbench env``: print machine and software."""

from __future__ import annotations

import argparse
import os

from mnistbench.core.machine import allocator_status
from mnistbench.measuring.report import environment_text
from mnistbench.measuring import import_torch
from mnistbench.showing.output import PASSED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: none."""


def run(_: argparse.Namespace) -> int:
    """Print machine and software; return 0."""
    import_torch()
    import torch

    from mnistbench.measuring.environment import read

    print(environment_text(read(torch.get_num_threads()), allocator_status(os.environ)))
    return PASSED
