"""``mnistbench study memory``: the memory of a network, predicted and measured."""

from __future__ import annotations

import os
import sys

from mnistbench.course.studies.memory.report import report_of
from mnistbench.course.studies.memory.result import Settings
from mnistbench.measuring.torch_import import import_torch
from mnistbench.showing.output import check, deliver
from mnistbench.showing.progress import Progress


def run(settings: Settings) -> int:
    """Predict, measure, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    if settings.output:
        check(settings.output)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of memory allocated before the profile began
    import_torch()
    from mnistbench.course.studies.memory.measurement import study

    with Progress(sys.stderr, quiet=True) as progress:
        found = study(settings, progress.step)
    deliver(report_of(found), settings.format, settings.output)
    return 0
