"""What all studies share.

How a command runs one, and the words for where it ran.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from mnistbench.core import units
from mnistbench.showing.output import CommandResult
from mnistbench.showing.progress import Progress
from mnistbench.showing.report import Report


def run_study(name: str, settings: Any, report_of: Callable[[Any], Report]) -> CommandResult:
    """Measure, and return the report.

    ``name`` is the folder of the study, whose module ``measurement`` has a function
    ``study(settings, progress)``; ``progress`` receives what is measured next. The module is loaded
    by its name: it imports the settings and the result, which do not import torch.
    """
    measurement = importlib.import_module(f"mnistbench.course.studies.{name}.measurement")
    with Progress(sys.stderr, quiet=True) as progress:
        result = measurement.study(settings, progress.step)
    return CommandResult(report_of(result))


def machine(device: str, threads: int) -> str:
    """Return where a study ran, in words."""
    return f"{device}, {units.threads(threads)}" if device == "cpu" else device
