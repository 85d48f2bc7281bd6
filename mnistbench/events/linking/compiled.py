"""Names the events of compiled code by what they are: fused kernels, library calls and the rest.

torch.compile gives its events hashes, numbers of graphs and numbers of kernels. Any edit of the
program changes these, so rows of two commits could not be paired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mnistbench.core.compiled.compilation import BACKWARD_PART, FORWARD_PART
from mnistbench.core.compiled.names import (
    COMPILED,
    COMPILED_CALL,
    COMPILED_REGION,
    COMPILING,
    FUSED,
    GRAPH_PREFIX,
    OTHER_KERNELS,
    compiled_name,
)
from mnistbench.core.operation import Scope
from mnistbench.events.model import OPERATION, RANGE, DeviceEvent, ThreadEvent, Trace

#: The function of autograd that runs a compiled function, and its node for the backward part.
_FORWARD_NODE = "CompiledFunction"
_BACKWARD_NODE = f"{_FORWARD_NODE}Backward"


@dataclass(frozen=True)
class KernelCall:
    """A call of a generated kernel, or of a library, in a compiled graph."""

    event: str  # the name of its event, without the number of the graph
    name: str  # of its row
    module: str


#: Number of the compilation, as the profiler shows it ("0/0"), and part -> calls in order.
CallsOfGraphs = Mapping[tuple[str, str], tuple[KernelCall, ...]]


def name_compiled(trace: Trace, graphs: CallsOfGraphs | None = None) -> None:
    """Rename the events of compiled code, and set their modules where the graphs tell them.

    Links and scopes are set: the names of the profiler decide them.

    Args:
        trace: all events of compiled code are renamed.
        graphs: of the compilations that ran; None if they were not observed.
    """
    if graphs:
        _set_modules(trace, graphs)
    for event in trace.host:
        if event.kind == OPERATION:
            event.name = compiled_name(event.name)
    _merge(trace)


def _merge(trace: Trace) -> None:
    """Count events of one row that are in each other once, and a compilation as one event."""
    for event in trace.kept_host:
        if event.caller is None or event.kind not in (OPERATION, RANGE):
            continue
        caller = event.caller.kept
        if caller.name == COMPILING or (event.name == COMPILED and event.key == caller.key):
            event.replaced_by = caller
            caller.self_ns += event.self_ns
    for launched in trace.device:
        if launched.operation is not None:
            launched.operation = launched.operation.kept


def _set_modules(trace: Trace, graphs: CallsOfGraphs) -> None:
    """Name the calls of each graph, and set their modules."""
    children: dict[int, list[ThreadEvent]] = defaultdict(list)
    for event in trace.kept_host:
        if event.caller is not None:
            children[id(event.caller)].append(event)
    compilation_of_sequence: dict[int, str] = {}
    for event in trace.kept_host:
        if event.name == _FORWARD_NODE and event.sequence is not None:
            compilation_of_sequence[event.sequence] = _region_around(event)
    for event in trace.kept_host:
        if event.name.startswith(COMPILED_CALL):
            key = _graph_of(event, compilation_of_sequence)
            if key in graphs:
                _name_calls(children[id(event)], graphs[key], children)


def _region_around(event: ThreadEvent) -> str:
    """Return the compilation of the region around an event; empty outside of all."""
    region = event.enclosing(COMPILED_REGION)
    return region.name.removeprefix(COMPILED_REGION).strip() if region else ""


def _graph_of(call: ThreadEvent, compilation_of_sequence: Mapping[int, str]) -> tuple[str, str]:
    """Return the compilation and the part of a graph that is called."""
    node = call.enclosing(_BACKWARD_NODE)
    if node is None:
        return _region_around(call), FORWARD_PART
    sequence = node.sequence if node.sequence is not None else -1
    return compilation_of_sequence.get(sequence, ""), BACKWARD_PART


def _name_calls(
    events: list[ThreadEvent],
    calls: tuple[KernelCall, ...],
    children: Mapping[int, list[ThreadEvent]],
) -> None:
    """Name the events of one call of a graph, and set their modules.

    Events with names of their own lie between those of the calls around them: a kernel made of a
    template has another name, and a custom operation has no event except those that it calls.
    """

    def place(event: ThreadEvent, call: KernelCall) -> None:
        if GRAPH_PREFIX.match(event.name):
            event.name = call.name
        for part in _with_callees(event, children):
            part.scope = Scope(part.scope.phase, call.module)

    def place_between(between: Sequence[ThreadEvent], skipped: Sequence[KernelCall]) -> None:
        if len(skipped) == 1:
            skipped = [*skipped] * len(between)
        if len(skipped) == len(between):
            for event, call in zip(between, skipped, strict=True):
                place(event, call)

    last = -1  # position of the call of the last event that has one
    unknown: list[ThreadEvent] = []  # events since then
    for event, position in zip(events, _positions(events, calls), strict=True):
        if position is None:
            unknown.append(event)
            continue
        place_between(unknown, calls[last + 1 : position])
        event.name = calls[position].name
        place(event, calls[position])
        last, unknown = position, []
    place_between(unknown, calls[last + 1 :])


def _positions(events: list[ThreadEvent], calls: tuple[KernelCall, ...]) -> list[int | None]:
    """Return the call of each event: the nth event of a name is the nth call of it."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for position in reversed(range(len(calls))):
        waiting[calls[position].event].append(position)
    positions: list[int | None] = []
    for event in events:
        of_name = waiting.get(GRAPH_PREFIX.sub("", event.name))
        positions.append(of_name.pop() if of_name else None)
    return positions


def _with_callees(
    event: ThreadEvent, children: Mapping[int, list[ThreadEvent]]
) -> Iterator[ThreadEvent]:
    """Yield an event and all that it calls."""
    remaining = [event]
    while remaining:
        event = remaining.pop()
        yield event
        remaining += children.get(id(event), ())


def name_of_device_event(event: DeviceEvent) -> str:
    """Return the row of a kernel that a compiled graph launches itself; empty for others.

    A CUDA graph launches generated kernels and those of libraries at once.
    """
    if event.operation is None or event.operation.name != COMPILED:
        return ""
    name = compiled_name(event.name)
    return name if name.startswith(FUSED) else OTHER_KERNELS
