"""``mnistbench study convolution``: measure one convolution, computed in many ways."""

from __future__ import annotations

import os

from mnistbench.course.studies.convolution.report import report_of
from mnistbench.course.studies.convolution.result import Settings
from mnistbench.measuring.torch_import import import_torch
from mnistbench.showing.output import check, deliver, progress_bar
from mnistbench.showing.report import Report


def report(settings: Settings) -> Report:
    """Measure each way of each convolution.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import_torch()
    from mnistbench.course.studies.convolution.measurement import study

    with progress_bar("way") as progress:
        return report_of(study(settings, progress))


def run(settings: Settings) -> int:
    """Measure, report, and return 0."""
    if settings.output:
        check(settings.output)
    deliver(report(settings), settings.format, settings.output)
    return 0
