"""``mnistbench study convolution``: measure one convolution, computed in many ways."""

from __future__ import annotations

from mnistbench.course.studies.convolution.report import report_of
from mnistbench.course.studies.convolution.study import Settings
from mnistbench.course.studies.study import import_quiet_torch, run_study


def run(settings: Settings) -> int:
    """Measure each way of each convolution, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    import_quiet_torch()
    from mnistbench.course.studies.convolution.measurement import study

    return run_study(settings, study, report_of)
