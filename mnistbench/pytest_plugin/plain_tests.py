"""Records of plain tests, which call pytest-benchmark's own fixture.

A test has a table of the operations that it calls, and a table of functions if it spends most of
its time outside of them. Imports torch only after a test has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mnistbench.compare.criteria import thresholds_of
from mnistbench.core.errors import first_line
from mnistbench.core.machine import pin_allocator
from mnistbench.core.operation import IN_TORCH, OUTSIDE
from mnistbench.core.record import KEY, CaseRecord, OpTable, nanoseconds, thin
from mnistbench.measuring.calls import intercept, only_created, params_of_test
from mnistbench.measuring.provider import imported_provider
from mnistbench.pytest_plugin.session import timing_of

if TYPE_CHECKING:
    import pytest

    from mnistbench.core.compiled.compilation import Compilation
    from mnistbench.measuring.calls import Call
    from mnistbench.measuring.provider import CallProfile
    from mnistbench.pytest_plugin.session import Session


#: Share of the time of a call from which on its operations say where most of the time goes.
MAIN_SHARE = 0.5

_NOTHING_SEEN = (
    "no operation table: its call runs no operation of torch and no function that cProfile sees, "
    "which sees no call of a type such as int"
)


def attach_operations(session: Session, fixture: Any, item: pytest.Item) -> None:
    """Make pytest-benchmark's fixture attach a record to its benchmark.

    The fixture measures as without it; the profiled calls follow. A test without a record has a
    line with the reason.
    """
    pin_allocator()
    session.attaches_to_plain_tests = True

    def attach(call: Call, result: Any) -> None:
        if not fixture.enabled or fixture.stats is None:
            return
        why = only_created(result)
        if not why and session.options.no_op_profile:
            why = "not profiled: leave out --no-op-profile"
        if why:
            session.not_recorded.append(f"{item.nodeid}: {why}")
            return
        record = _record_of_call(session, fixture, item, call)
        if record is None:
            session.not_recorded.append(f"{item.nodeid}: {_NOTHING_SEEN}")
            return
        fixture.extra_info[KEY] = record.to_json()
        session.records.append(record)

    intercept(fixture, after=attach)


def _record_of_call(
    session: Session, fixture: Any, item: pytest.Item, call: Call
) -> CaseRecord | None:
    """Return the record of a timed call; None if it runs nothing that a profiler sees."""
    stats = fixture.stats.stats
    tables: list[OpTable] = []
    compilation: Compilation | None = None
    notes = []
    try:
        profile = _profile(session, call, nanoseconds(stats.median))
        tables.extend(profile.tables)
        compilation = profile.compilation
        # An error keeps the tables before it.
        tables.extend(_functions(session, item, call, nanoseconds(stats.median), tables))
    # A call that cannot be repeated: the timing is kept.
    except Exception as error:  # noqa: BLE001
        notes.append(f"not profiled: {type(error).__name__}: {first_line(error)}")
    if not tables and not notes:
        return None
    op_fail, case_fail = thresholds_of(item)
    return CaseRecord(
        test=item.nodeid,
        node_id=item.nodeid,
        params=params_of_test(item.nodeid, imported_provider().device(), _threads(tables)),
        parameter_count=0,
        samples=1,
        rounds_ns=thin(tuple(map(nanoseconds, stats.data))),
        tables=tuple(tables),
        compilation=compilation,
        notes=tuple(notes),
        op_fail=op_fail,
        case_fail=case_fail,
        timing=timing_of(fixture.stats),
    )


def _profile(session: Session, call: Call, duration_ns: float) -> CallProfile:
    """Return the operations of a call."""
    options = session.options
    return imported_provider().profile_of_call(
        call,
        iterations=options.op_iterations,
        duration_ns=duration_ns,
        shapes=options.op_shapes,
    )


def _functions(
    session: Session,
    item: pytest.Item,
    call: Call,
    duration_ns: float,
    tables: Sequence[OpTable],
) -> Iterator[OpTable]:
    """Yield the table of functions, unless most of the time is in operations of the tables."""
    options = session.options
    operations_ns = 0
    for table in tables:
        if table.view == "host":
            columns = table.columns
            operations_ns = sum(
                ns
                for key, ns in zip(columns.keys, columns.net_ns, strict=True)
                if key[0] != OUTSIDE
            )
    if operations_ns < MAIN_SHARE * duration_ns:
        from mnistbench.measuring.functions import profile_functions

        functions = profile_functions(
            call,
            iterations=options.op_iterations,
            duration_ns=duration_ns,
            project=item.config.rootpath,
        )
        if functions is None:
            return
        in_torch_ns = functions.rest_ns("cpu").get(IN_TORCH, 0)
        if not operations_ns or in_torch_ns < MAIN_SHARE * functions.total_ns:
            yield functions


def _threads(tables: Iterable[OpTable]) -> int:
    """Return the intra-op threads of a call.

    Without operations 1, so that the case is the same whether another test imports torch or not.
    """
    if all(table.view == "functions" for table in tables):
        return 1
    return imported_provider().threads() or 1
