"""``mnistbench study memory``: the memory of a network, predicted and measured."""

from __future__ import annotations

from mnistbench.course.studies.memory.report import report_of
from mnistbench.course.studies.memory.study import Settings
from mnistbench.course.studies.study import import_quiet_torch, run_study


def run(settings: Settings) -> int:
    """Predict, measure, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    import_quiet_torch()
    from mnistbench.course.studies.memory.measurement import study

    return run_study(settings, study, report_of)
