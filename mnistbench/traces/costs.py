"""FLOPs and bytes of each row of a trace's table, counted from recorded shapes.

With an accelerator, the operation that launched a kernel has the work: of ``aten::linear``, which calls ``aten::addmm``, which
launches a kernel, only ``aten::addmm``. Without one, the work belongs to the operations that spend the time themselves. So each
operation's work is compared with its own time, and counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mnistbench.core.document import LARGEST
from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import OWN_SHARE, OpKey
from mnistbench.core.record import median_ns
from mnistbench.traces.analysis import Analysis, analysis_of, linked
from mnistbench.traces.arguments import NO_RULE, Arguments, UncountedError
from mnistbench.traces.events import COPY, OPERATION, DeviceEvent, HostEvent, Trace
from mnistbench.traces.moves import MOVES, VIEWS
from mnistbench.traces.products import PRODUCTS, Counted
from mnistbench.traces.steps import Steps, steps_of
from mnistbench.traces.table import key_of

#: Why the work of a row is not counted, besides the reasons in ``arguments``.
NO_OPERATION = "kernels and copies of no operation"
COMMUNICATION = "communication"
FOREIGN_COPY = "copies to and from the accelerator, which its memory does not limit"
OTHERS_WORK = "operations that call others, which have the work"
NO_DATA = "operations that move no data"

#: In the names of kernels that multiply TF32 numbers: cuBLAS and cuDNN write tf32, CUTLASS of earlier versions the shape of the
#: instruction, 16 x 8 x 8, which has no other number format with tensors of float32.
_TF32 = ("tf32", "s1688")


@dataclass(frozen=True)
class Work:
    """FLOPs and bytes of a row in one step."""

    flops: Mapping[str, int]  # by the number format of the multiplication: bfloat16, tf32; empty without a formula
    n_bytes: int


@dataclass(frozen=True)
class Costs:
    """The rows of a table, each in one of both."""

    work: Mapping[OpKey, Work]
    uncounted: Mapping[OpKey, str]  # why the work of at least one call is not known
    bounds: frozenset[OpKey] = frozenset()  # rows whose FLOPs are upper bounds: those that a causal mask leaves out count


class _Call(NamedTuple):
    """A call of an operation that did work, or what ran without one."""

    key: OpKey
    slot: int  # its step
    event: HostEvent | None
    launched: tuple[DeviceEvent, ...]


def analyse_with_costs(path: Path) -> tuple[Analysis, Costs]:
    """Read a trace, gather its operations and count the work of each row of ``Analysis.table``.

    Raises:
        RecordError: the file is no trace, or damaged.
    """
    with gc_paused():
        trace = linked(path)
        steps = steps_of(trace)
        return analysis_of(trace, steps), costs_of(trace, steps)


def costs_of(trace: Trace, steps: Steps) -> Costs:
    """Count the work of each row of the device table or, without an accelerator, of the host table.

    The events are linked and placed. A row with at least one call that cannot be counted has no work.
    """
    calls = list(_device_calls(trace, steps) if trace.device else _host_calls(trace, steps))
    multiplying = {id(call.event): call.event for call in calls if call.event and call.event.name in PRODUCTS}
    around = set(_callers(multiplying.values()))
    gathered: dict[OpKey, _Sums] = defaultdict(lambda: _Sums(len(steps.names)))
    uncounted: dict[OpKey, str] = {}
    for call in calls:
        if id(call.event) in multiplying and id(call.event) in around:
            uncounted.setdefault(call.key, OTHERS_WORK)
            continue
        try:
            gathered[call.key].add(call.slot, _counted(call))
        except UncountedError as reason:
            uncounted.setdefault(call.key, str(reason))
    work = {key: sums.work() for key, sums in gathered.items() if key not in uncounted}
    if not trace.device:
        for event in trace.host:
            if event.kind == OPERATION and (key := (event.name, *event.place)) not in work:
                uncounted.setdefault(key, OTHERS_WORK)
    return Costs(work, uncounted, frozenset(key for key in work if gathered[key].is_bound))


def _device_calls(trace: Trace, steps: Steps) -> Iterator[_Call]:
    of_event: dict[int, list[DeviceEvent]] = defaultdict(list)
    for launched in trace.device:
        if steps.slot_of_device(launched) >= 0:
            of_event[id(launched.operation) if launched.operation else id(launched)].append(launched)
    for group in of_event.values():
        yield _Call(key_of(group[0]), steps.slot_of_device(group[0]), group[0].operation, tuple(group))


def _host_calls(trace: Trace, steps: Steps) -> Iterator[_Call]:
    for event in trace.host:
        if event.kind != OPERATION or event.replaced_by is not None or event.is_beside:
            continue
        slot = steps.slot_of(event.start)
        if slot >= 0 and event.self_ns >= OWN_SHARE * event.ns:
            yield _Call((event.name, *event.place), slot, event, ())


def _callers(events: Iterable[HostEvent]) -> Iterator[int]:
    """Yield the ids of all events around these."""
    for event in events:
        around = event.caller
        while around is not None:
            yield id(around.kept)
            around = around.caller


def _counted(call: _Call) -> Counted:
    """Count one call; its ``dtype`` is the number format that the kernels multiply in."""
    if call.event is None:
        raise UncountedError(NO_OPERATION)
    if any(one.kind == COPY and "DtoD" not in one.name for one in call.launched):
        raise UncountedError(FOREIGN_COPY)
    if any(one.is_communication for one in call.launched):
        raise UncountedError(COMMUNICATION)
    name = call.event.name
    if name in VIEWS and not call.launched:
        raise UncountedError(NO_DATA)
    arguments = Arguments(call.event.args)  # first, because a trace without any shapes has a message of its own
    rule = PRODUCTS.get(name) or MOVES.get(name)
    if rule is None:
        raise UncountedError(NO_RULE)
    found = rule(arguments)
    if max(found.flops or 0, found.n_bytes) > LARGEST:
        raise UncountedError(NO_RULE)
    if found.dtype == "float32" and _multiplies_tf32(call.launched):
        return found._replace(dtype="tf32")
    return found


def _multiplies_tf32(launched: Sequence[DeviceEvent]) -> bool:
    return any(mark in one.name.lower() for one in launched for mark in _TF32)


@dataclass
class _Sums:
    """Sums over the calls of a row in each step."""

    slots: int
    n_bytes: list[int] = field(default_factory=list)
    flops: dict[str, list[int]] = field(default_factory=dict)
    is_bound: bool = False

    def __post_init__(self) -> None:
        self.n_bytes = [0] * self.slots

    def add(self, slot: int, counted: Counted) -> None:
        """Add a call."""
        self.n_bytes[slot] += counted.n_bytes
        self.is_bound |= counted.is_bound
        if counted.flops is not None:
            self.flops.setdefault(counted.dtype, [0] * self.slots)[slot] += counted.flops

    def work(self) -> Work:
        """Return the medians over the steps, as times of rows are."""
        return Work({dtype: median_ns(flops) for dtype, flops in self.flops.items()}, median_ns(self.n_bytes))
