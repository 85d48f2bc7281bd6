"""What is attached to the records of benchmarks. Torch is imported inside functions only.

An implementation of ``pytest_mnistbench_attach`` can call the standard attachments: they have its arguments and return value::

    def pytest_mnistbench_attach(config, case, record):
        from mnistbench.pytest_plugin.attachments import operation_tables, training_scalars

        return {**operation_tables(config, case, record), **training_scalars(config, case, record)}
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.core.record import KEY, CaseRecord, Timing, thin
from mnistbench.measuring.calls import Call, intercept, params_of_test
from mnistbench.pytest_plugin.session import SESSION, Session, thresholds_of

if TYPE_CHECKING:
    from mnistbench.measuring.case import Case


def operation_tables(config: pytest.Config, case: Case, record: CaseRecord) -> dict[str, Any]:
    """Return the table of the first iteration, and of warm ones: host alone and, on an accelerator, with the device.

    Empty for cases that are not profiled per operation, and with ``--no-op-profile``.
    """
    from mnistbench.measuring.profiling import has_device_view, profile

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


# ---- Tests that use pytest-benchmark's own fixture -------------------------------------------------------------------


def attach_operations(fixture: Any, item: pytest.Item, session: Session) -> None:
    """Make pytest-benchmark's fixture attach a record to its benchmark.

    The fixture measures as without it; the profiled calls follow. A test that calls no operation of torch has no record.
    """

    def attach(call: Call) -> None:
        if not fixture.enabled or fixture.stats is None or "torch" not in sys.modules:
            return
        record = _record(fixture, item, call, session)
        if record is not None:
            fixture.extra_info[KEY] = record.to_json()
            session.records.append(record)

    intercept(fixture, after=attach)


def _record(fixture: Any, item: pytest.Item, call: Call, session: Session) -> CaseRecord | None:
    import torch

    from mnistbench.measuring.profiling import profile_call

    params = params_of_test(item.nodeid, torch.get_num_threads())
    options, tables, notes = session.options, [], []
    if options.op_profile:
        try:
            duration_ns = 1e9 * fixture.stats.stats.median
            tables = profile_call(
                call, iterations=options.op_iterations, duration_ns=duration_ns, device=params.device, shapes=options.op_shapes
            )
        except Exception as error:  # noqa: BLE001  # a call that cannot be repeated: the timing is kept
            notes.append(f"not profiled: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
            session.notes.append(f"{item.nodeid}: {notes[0]}")
    if not tables and not notes:
        return None
    op_fail, case_fail = thresholds_of(item)
    stats = fixture.stats.stats
    return CaseRecord(
        test=item.nodeid,
        node_id=item.nodeid,
        params=params,
        parameter_count=0,
        samples=1,
        rounds_ns=thin(tuple(round(seconds * 1e9) for seconds in stats.data)),
        tables=tuple(tables),
        notes=tuple(notes),
        op_fail=op_fail,
        case_fail=case_fail,
        timing=Timing.from_stats(stats.as_dict()),
    )
