"""Records of plain tests, which call pytest-benchmark's own fixture.

Imports torch only after a test has.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mnistbench.core.errors import first_line
from mnistbench.core.machine import pin_allocator
from mnistbench.core.record import KEY, CaseRecord, Timing, nanoseconds, thin
from mnistbench.measuring.calls import intercept, only_created, params_of_test
from mnistbench.pytest_plugin.session import thresholds_of

if TYPE_CHECKING:
    import pytest

    from mnistbench.measuring.calls import Call
    from mnistbench.pytest_plugin.session import Session


def attach_operations(session: Session, fixture: Any, item: pytest.Item) -> None:
    """Make pytest-benchmark's fixture attach a record to its benchmark.

    The fixture measures as without it; the profiled calls follow. A test that calls no
    operation of torch has no record.
    """
    pin_allocator()

    def attach(call: Call, result: Any) -> None:
        if not fixture.enabled or fixture.stats is None:
            return
        if why := only_created(result):
            session.not_recorded.append(f"{item.nodeid}: {why}")
            return
        if "torch" not in sys.modules:
            return
        record = _record_of_call(session, fixture, item, call)
        if record is not None:
            fixture.extra_info[KEY] = record.to_json()
            session.records.append(record)

    intercept(fixture, after=attach)


def _record_of_call(
    session: Session, fixture: Any, item: pytest.Item, call: Call
) -> CaseRecord | None:
    """Return the record of a timed call; None if it calls no operation of torch."""
    import torch

    from mnistbench.measuring.profiling import profile_call

    params = params_of_test(item.nodeid, torch.get_num_threads())
    options = session.options
    tables = []
    notes = []
    if not options.no_op_profile:
        try:
            duration_ns = nanoseconds(fixture.stats.stats.median)
            tables = profile_call(
                call,
                iterations=options.op_iterations,
                duration_ns=duration_ns,
                device=params.device,
                shapes=options.op_shapes,
            )
        # A call that cannot be repeated: the timing is kept.
        except Exception as error:  # noqa: BLE001
            notes.append(f"not profiled: {type(error).__name__}: {first_line(error)}")
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
        rounds_ns=thin(tuple(map(nanoseconds, stats.data))),
        tables=tuple(tables),
        notes=tuple(notes),
        op_fail=op_fail,
        case_fail=case_fail,
        timing=Timing.from_stats(stats.as_dict()),
    )
