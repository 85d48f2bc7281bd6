"""Names the events of compiled code by what they are: fused kernels, library calls and the rest.

torch.compile gives its events hashes, numbers of graphs and numbers of kernels. Any edit of the
program changes these, so rows of two commits could not be paired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mnistbench.core.compilation import BACKWARD_PART, FORWARD_PART
from mnistbench.core.operation import (
    COMPILED,
    COMPILED_CALL,
    COMPILED_REGION,
    COMPILING,
    FUSED,
    GRAPH_PREFIX,
    OTHER_KERNELS,
    Scope,
    compiled_name,
)
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

    A custom operation has no event of its own: what it calls is between the calls before and after
    it, and has its module.
    """
    positions = _positions(events, calls)
    after = [len(calls)] * len(events)  # position of the next event that has one
    for at in range(len(events) - 1, 0, -1):
        position = positions[at]
        after[at - 1] = after[at] if position is None else position
    before = -1
    for event, position, next_position in zip(events, positions, after, strict=True):
        if position is not None:
            before = position
            event.name = calls[position].name
            module = calls[position].module
        elif next_position - before == 2:
            module = calls[before + 1].module
        else:
            continue
        for part in _with_callees(event, children):
            part.scope = Scope(part.scope.phase, module)


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
