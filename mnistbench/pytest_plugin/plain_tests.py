"""Operation tables of tests that use pytest-benchmark's own fixture. Does not import torch: only the tests do."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mnistbench.core.record import KEY, CaseRecord, Timing, thin
from mnistbench.measuring.calls import Call, intercept, params_of_test
from mnistbench.pytest_plugin.session import Session, thresholds_of


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
