"""``mnistbench study convolution``: measure one convolution, computed in many ways."""

from __future__ import annotations

from mnistbench.course.studies.convolution.report import report_of
from mnistbench.course.studies.convolution.result import Settings
from mnistbench.course.studies.study import run_study
from mnistbench.measuring.torch_import import import_torch


def run(settings: Settings) -> int:
    """Measure each way of each convolution, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    import_torch(quiet=True)
    from mnistbench.course.studies.convolution.measurement import study

    return run_study(settings, study, report_of)
