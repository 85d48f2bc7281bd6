"""``mnistbench study locality``: cache misses and time of loops in several orders."""

from __future__ import annotations

from mnistbench.course.studies.locality.measurement import study
from mnistbench.course.studies.locality.report import report_of
from mnistbench.course.studies.locality.study import Settings
from mnistbench.course.studies.study import run_study


def run(settings: Settings) -> int:
    """Simulate each loop nest, time it if numba is installed, report, and return 0."""
    return run_study(settings, study, report_of)
