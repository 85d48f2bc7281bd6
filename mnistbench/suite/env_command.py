"""``mnistbench env``: print machine and software with one field per line, for bug reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mnistbench.core.extras import has, install
from mnistbench.core.record import without_torch
from mnistbench.showing.environment import environment_text
from mnistbench.showing.output import EXIT_PASSED
from mnistbench.suite.measuring.torch_import import import_torch


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command has no options."""


def run(_: Settings) -> int:
    """Print machine and software; return 0."""
    if not has("torch"):
        missing = f"not installed: {install('torch')}"
        print(environment_text(replace(without_torch(threads=0), torch=missing)))
        return EXIT_PASSED
    import_torch()
    import torch

    from mnistbench.suite.measuring.environment import read

    print(environment_text(read(torch.get_num_threads())))
    return EXIT_PASSED
