"""The value of the fixture ``op_benchmark``: measures and records one case of a workload.

``OpBenchmark._measure`` is the sequence: first iteration, timed rounds, attachments. The hook of a
conftest.py returns the attachments; :func:`operation_tables` and :func:`training_scalars` are the
standard ones.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch

from mnistbench.compare.criteria import thresholds_of
from mnistbench.core import units
from mnistbench.core.errors import UsageError, first_line
from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import UNATTRIBUTED
from mnistbench.core.params import PHASES, REFERENCE, Params
from mnistbench.core.record import KEY, CaseRecord, OpTable, nanoseconds, thin
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.pytest_plugin.session import SESSION, timing_of
from mnistbench.suite.measuring.case import Case, build, fork_random, on_device, thread_count
from mnistbench.suite.measuring.compile_log import logged
from mnistbench.suite.measuring.device_timing import event_ns
from mnistbench.suite.measuring.environment import resolve_devices
from mnistbench.suite.measuring.observing import (
    FirstCompiledCalls,
    called_again,
    empty_cache,
    first_calls,
)
from mnistbench.suite.measuring.profiling import profile_first_call, profile_warm, views_of
from mnistbench.suite.op_benchmark.cases import CASES, PARAMETERS, WORKLOAD
from mnistbench.suite.workloads.workload import Workload, params_of

#: Share of the time of kernels and copies from which on a record notes that it belongs to no
#: operation.
NOTED_SHARE = 0.10

#: Iterations timed by events on an accelerator, after the rounds; fewer for a whole epoch.
EVENT_CALLS = 20
EVENT_CALLS_OF_AN_EPOCH = 3


class OpBenchmark:
    """Measures one phase of one workload at one batch size on one device, with one step."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        benchmark: Any,
        workload: str,
        batch_size: int,
        device: str,
        step: str,
    ) -> None:
        self._request = request
        self._benchmark = benchmark
        self._workload = workload
        self._batch_size = batch_size
        self._device = device
        self._step = step
        self._session = request.config.stash[SESSION]
        self._cases = request.config.stash[CASES]

    def __call__(self, phase: str, *args: object, **kwargs: object) -> None:
        """Measure a phase, and attach its record to the benchmark."""
        if not isinstance(phase, str) or args or kwargs:
            raise UsageError(
                f"op_benchmark takes the name of a phase alone: {', '.join(PHASES)}; to measure a "
                "function, use the fixture benchmark, and the mark op_benchmark or the option "
                "--op-benchmarks for its operations"
            )
        if phase == "batch" and self._step != REFERENCE:
            pytest.skip(f"a batch has no {self._step} step")
        session = self._session
        item = self._request.node
        workload = self._known_workload(item)
        params = self._params(phase, workload)
        device = torch.device(params.device)
        build_case = partial(build, params, workload)
        if item.ihook.pytest_mnistbench_take_case(
            config=item.config, item=item, params=params, build=build_case
        ):
            self._benchmark(lambda: None)  # pytest-benchmark warns if its fixture was not used
            return
        try:
            with thread_count(params.threads), fork_random(device):
                # The first optimizer, or torchvision, imports torch._dynamo: a thousand modules.
                with gc_paused():
                    case = build_case()
                record = self._measure(case)
        except torch.OutOfMemoryError as error:
            # pytest keeps the traceback, whose frames refer to tensors; the next case needs their
            # memory.
            traceback.clear_frames(error.__traceback__)
            if device.type != "cpu":
                torch.get_device_module(device).empty_cache()
            raise
        if record:
            self._benchmark.extra_info[KEY] = record.to_json()
            session.records.append(record)

    def _known_workload(self, item: pytest.Function) -> Workload:
        cases = self._cases
        workloads = {
            workload.name: workload
            for workload in (*cases.builtin_workloads, *cases.registered_workloads(item))
        }
        if self._workload not in workloads:
            raise UsageError(
                f"{WORKLOAD}={self._workload!r} is not a workload; choose of {', '.join(workloads)}"
            )
        workload = workloads[self._workload]
        arguments = cases.options.compile_arguments
        return workload if arguments is None else replace(workload, compile=arguments)

    def _params(self, phase: str, workload: Workload) -> Params:
        options = self._cases.options
        # A mark may name a device that is not in --bench-device.
        device = resolve_devices([self._device])[0]
        return params_of(
            workload,
            phase,
            self._batch_size,
            device,
            threads=options.threads,
            seed=options.seed,
            dtype=options.dtype,
            compiled=bool(options.compile),
            step=self._step,
        )

    def _measure(self, case: Case) -> CaseRecord | None:
        """Return the record of a case; None if pytest-benchmark is disabled.

        After the timed pass an exception becomes a note, so that the timing is kept.
        """
        if self._benchmark.group is None:
            self._benchmark.group = _title(case)
        is_first_case = not self._cases.has_run
        self._cases.has_run = True
        timed = time_case(
            case,
            self._benchmark,
            cold=not self._session.options.no_op_profile,
            first_of_process=is_first_case,
        )
        if not self._benchmark.enabled:
            return None
        record = self._attached(case, self._record(case, timed), timed)
        return _with_note_of_unattributed(record)

    def _record(self, case: Case, timed: Timed) -> CaseRecord:
        """Return the record of the timed pass."""
        op_fail, case_fail = thresholds_of(self._request.node)
        return CaseRecord(
            test=_test_identity(self._request.node),
            node_id=self._request.node.nodeid,
            params=case.params,
            parameter_count=case.parameter_count,
            samples=case.samples,
            first_call_ns=timed.first_call.iteration_ns[0] if timed.first_call else None,
            device_ns=timed.device_ns,
            rounds_ns=thin(timed.rounds_ns),
            tables_in=case.tables_in,
            op_fail=op_fail,
            case_fail=case_fail,
            timing=timing_of(self._benchmark.stats),
        )

    def _attached(self, case: Case, record: CaseRecord, timed: Timed) -> CaseRecord:
        """Add what the hooks of the test's conftest.py files return.

        If there are none, add the operation tables, and curves if a directory for them is given.
        """
        config = self._request.config
        hook = self._request.node.ihook.pytest_mnistbench_attach
        if hook.get_hookimpls():
            return _with(
                record,
                lambda: hook(config=config, case=case, record=record, timed=timed),
                CaseRecord.with_checked_attachments,
            )
        record = _with(record, lambda: [operation_tables(config, case, timed)])
        if self._cases.options.tensorboard is None:
            return record
        return _with(record, lambda: [training_scalars(config, case, timed)])


@dataclass(frozen=True)
class Timed:
    """Results of the timed passes of a case."""

    rounds_ns: tuple[float, ...] = ()  # wall time per iteration of each round
    device_ns: tuple[int, ...] = ()  # single iterations on the accelerator's clock; empty on a CPU
    # Operations of the first iteration.
    first_call: OpTable | None = field(default=None, repr=False)
    compiled: FirstCompiledCalls | None = None  # of a compiled case


def time_case(case: Case, benchmark: Any, *, cold: bool, first_of_process: bool) -> Timed:
    """Run the first iteration of a case, and its rounds by pytest-benchmark's fixture.

    If the fixture is disabled, the case runs once and nothing is measured. ``cold`` profiles the
    first iteration; ``first_of_process`` means that no case has run in this process before.
    """
    if not benchmark.enabled:
        benchmark(case)
        return Timed()
    first_call = None
    compiled = None
    has_own_cache = cold and case.runner is not None and case.params.compile
    with empty_cache() if has_own_cache else nullcontext():
        if case.runner is not None:
            if cold:
                with logged() as log:
                    first_call = profile_first_call(case, first_of_process=first_of_process)
                if has_own_cache:
                    case.reset()
                    compiled = called_again(log.time(first_call.iteration_ns[0]), case)
            for _ in range(WARMUP_ITERATIONS):
                case()
            case.reset()
        try:
            benchmark(case)
        # pytest-benchmark sets this for an Exception only: it would save what Ctrl-C interrupted.
        except BaseException:
            benchmark.has_error = True
            raise
        rounds_ns = tuple(map(nanoseconds, benchmark.stats.stats.data))
        device_ns = device_times(case)
    return Timed(rounds_ns, device_ns, first_call, compiled)


def device_times(case: Case) -> tuple[int, ...]:
    """Return the elapsed time of single iterations on the accelerator's clock, in nanoseconds.

    The tuple is empty on a CPU.

    An iteration ends with the host's wait for the device, so these times have the gaps between
    kernels. They begin at the initial state of the case: after more rounds, other weights give
    other times.
    """
    device = torch.device(case.params.device)
    if device.type == "cpu":
        return ()
    case.reset()
    with on_device(device):
        return tuple(
            event_ns(case, device)
            for _ in range(EVENT_CALLS if case.runner else EVENT_CALLS_OF_AN_EPOCH)
        )


def operation_tables(config: pytest.Config, case: Case, timed: Timed) -> dict[str, Any]:
    """Profile iterations of a case, and return its tables as an attachment.

    The table of the first iteration and those of warm ones: host alone and, on an accelerator, with
    the device. Empty for cases that are not profiled per operation, and with ``--no-op-profile``.
    """
    options = config.stash[SESSION].options
    if case.runner is None or options.no_op_profile:
        return {}
    tables = [timed.first_call] if timed.first_call else []
    compilation = None
    for view in views_of(case.params.device):
        profile = profile_warm(
            case, iterations=options.op_iterations, view=view, shapes=options.op_shapes
        )
        tables.append(profile.table())
        if profile.observed:
            compilation = profile.observed.compilation
    if compilation is None:
        return {"operation_tables": tables}
    # If the model compiles itself, its first call had the cache of earlier runs.
    calls = timed.compiled or first_calls(case)
    return {
        "operation_tables": tables,
        "compilation": replace(compilation, **vars(calls)),
    }


def training_scalars(config: pytest.Config, case: Case, timed: Timed) -> dict[str, Any]:
    """Train for a short time, and return loss and accuracy as an attachment.

    For a case that does not train, the attachment has the times of its rounds. They are written to
    TensorBoard too, unless that is off.
    """
    tracker = config.stash[CASES].tracker
    if not case.params.trains:
        return {"training_scalars": tracker.rounds(case.params, timed.rounds_ns, case.samples)}
    scalars, notes = tracker.training(case.params, case.workload)
    return {"training_scalars": scalars, "notes": list(notes)}


def _with(
    record: CaseRecord,
    attach: Callable[[], Iterable[Mapping[str, Any] | None]],
    add: Callable[[CaseRecord, Mapping[str, Any]], CaseRecord] = CaseRecord.with_attachments,
) -> CaseRecord:
    """Return the record with attachments, or with a note of the exception that they raised."""
    try:
        for attachments in attach():
            record = add(record, attachments or {})
    # A user's hook, a tracer, a full disk: the timing is kept.
    except Exception as error:  # noqa: BLE001
        note = f"not attached: {type(error).__name__}: {first_line(error)}"
        record = replace(record, notes=(*record.notes, note))
    return record


def _title(case: Case) -> str:
    """Return the title of pytest-benchmark's table: only times of the same work share one."""
    params = case.params
    part = (
        f", {case.samples:,} of {case.whole_set:,} samples" if case.samples < case.whole_set else ""
    )
    return f"{params.phase} {params.workload} on {params.dataset}{part}"


def _with_note_of_unattributed(record: CaseRecord) -> CaseRecord:
    """Return the record with a note on each table of which much time belongs to no operation."""
    notes = []
    for table in record.whole_tables:
        share = table.rest_ns("device").get(UNATTRIBUTED, 0) / max(1, table.total_ns)
        if table.view == "device" and share >= NOTED_SHARE:
            part = f"{units.percent(share)} of the time of kernels and copies"
            notes.append(f"{part} belongs to no operation; the profiler has no link")
    return replace(record, notes=(*record.notes, *notes))


def _test_identity(node: pytest.Function) -> str:
    """Return the test's id without the parameters in ``Params``.

    The parameters of the user's own marks remain.
    """
    callspec = getattr(node, "callspec", None)
    if callspec is None:
        return node.nodeid
    own = {
        name: value
        for name, value in callspec.params.items()
        if name not in PARAMETERS and not (isinstance(value, str) and value in PHASES)
    }
    shown = ",".join(
        f"{name}={_same_in_each_process(value, name, callspec.indices[name])}"
        for name, value in own.items()
    )
    return node.nodeid.removesuffix(f"[{callspec.id}]") + (f"[{shown}]" if shown else "")


def _same_in_each_process(value: object, name: str, position: int) -> str:
    """Return the text of a parameter.

    In place of one with an address this is a name, or the position, as in pytest's ids.
    """
    text = str(value)
    if units.without_addresses(text) == text:
        return text
    return str(getattr(value, "__qualname__", f"{name}{position}"))
