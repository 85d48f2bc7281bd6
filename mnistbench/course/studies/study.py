"""What all studies share.

How a command runs one and shows its result, and the words for where it ran.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from mnistbench.core import units
from mnistbench.showing.output import check, deliver
from mnistbench.showing.progress import Progress
from mnistbench.showing.report import Report


class StudySettings(Protocol):
    """What the settings of all studies have."""

    @property
    def format(self) -> str: ...

    @property
    def output(self) -> Path | None: ...


def run_study(name: str, settings: StudySettings, report_of: Callable[[Any], Report]) -> int:
    """Measure, print or write the report, and return 0.

    ``name`` is the folder of the study, whose module ``measurement`` has a function
    ``study(settings, progress)``; ``progress`` receives what is measured next. The module is loaded
    by its name: it imports the settings and the result, which do not import torch.
    """
    if settings.output:
        check(settings.output)
    measurement = importlib.import_module(f"mnistbench.course.studies.{name}.measurement")
    with Progress(sys.stderr, quiet=True) as progress:
        result = measurement.study(settings, progress.step)
    deliver(report_of(result), settings.format, settings.output)
    return 0


def machine(device: str, threads: int) -> str:
    """Return where a study ran, in words."""
    return f"{device}, {units.threads(threads)}" if device == "cpu" else device
