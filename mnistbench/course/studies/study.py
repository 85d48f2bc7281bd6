"""What all studies share.

How a command runs one and shows its result, and the words for where it ran.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from mnistbench.core import units
from mnistbench.showing.output import check, deliver
from mnistbench.showing.progress import Progress
from mnistbench.showing.report import Report

_Study = TypeVar("_Study")


def run_study(
    settings: Any,
    study: Callable[[Any, Callable[[str], None]], _Study],
    report_of: Callable[[_Study], Report],
) -> int:
    """Measure, print or write the report, and return 0.

    The second argument of ``study`` receives what is measured next.
    """
    if settings.output:
        check(settings.output)
    with Progress(sys.stderr, quiet=True) as progress:
        found = study(settings, progress.step)
    deliver(report_of(found), settings.format, settings.output)
    return 0


def machine(device: str, threads: int) -> str:
    """Return where a study ran, in words."""
    return f"{device}, {units.threads(threads)}" if device == "cpu" else device
