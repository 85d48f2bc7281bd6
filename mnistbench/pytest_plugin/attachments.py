"""The standard attachments of a record, as functions that an implementation of ``pytest_mnistbench_attach`` can call.

Each has the arguments and the return value of the hook::

    def pytest_mnistbench_attach(config, case, record):
        from mnistbench.pytest_plugin.attachments import operation_tables, training_scalars

        return {**operation_tables(config, case, record), **training_scalars(config, case, record)}
"""

from __future__ import annotations

from typing import Any

import pytest

from mnistbench.core.record import CaseRecord
from mnistbench.measuring.case import Case
from mnistbench.measuring.profiling import has_device_view, profile
from mnistbench.pytest_plugin.session import SESSION


def operation_tables(config: pytest.Config, case: Case, record: CaseRecord) -> dict[str, Any]:
    """Return the table of the first iteration, and of warm ones: host alone and, on an accelerator, with the device.

    Empty for cases that are not profiled per operation, and with ``--no-op-profile``.
    """
    session = config.stash[SESSION]
    options, first_call = session.options, session.timed.first_call
    if case.runner is None or not options.op_profile:
        return {}
    views = ["host", "device"] if has_device_view(case.params.device) else ["host"]
    warm = [profile(case, iterations=options.op_iterations, view=view, shapes=options.op_shapes) for view in views]
    return {"operation_tables": [*([first_call] if first_call else []), *warm]}


def training_scalars(config: pytest.Config, case: Case, record: CaseRecord) -> dict[str, Any]:
    """Return loss and accuracy of a short training run; for a case that does not train, the times of its rounds.

    Write them to TensorBoard too, unless that is off.
    """
    session = config.stash[SESSION]
    if not case.params.trains:
        return {"training_scalars": session.tracker.rounds(case.params, session.timed.rounds_ns, case.samples)}
    scalars, notes = session.tracker.training(case.params, case.workload)
    return {"training_scalars": scalars, "notes": list(notes)}
