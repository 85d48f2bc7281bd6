"""The phase and the module of each host event.

In a trace of mnistbench its own ranges give both. In any other trace:

- an operation that autograd runs for one of forward is ``backward`` and in the module of that one;
- a module call that the profiler recorded (``nn.Module: Linear_3``) gives the module, and the phase ``forward``;
- ranges name a phase: ``Optimizer.step#SGD.step``, ``DistributedDataParallel.forward``, ``## forward ##``;
- an operation is ``forward`` if autograd ran one of backward for it, and so are the operations around it and in it.

What none of these rules places has no phase or no module.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable

from mnistbench.core.operation import ENGINE_NODE, MODULE, PHASE
from mnistbench.core.record import NO_MODULE
from mnistbench.traces.events import NOWHERE, OPERATION, PYTHON, RANGE, Flow, HostEvent, Place, Trace

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

#: Begins the name of the Python event of a module call; a class and the number of its instance follow.
_MODULE_CALL = "nn.Module: "

#: In the argument "Module Hierarchy" of TorchScript: ``TOP(C)::forward.A0(A)::forward``. With the first operation that
#: autograd runs on a thread, torch begins to write those of later operations of the thread into earlier ones: its list of
#: them has none for operations of autograd, but it takes one for each event (``torch/csrc/profiler/collection.cpp``).
_HIERARCHY = "Module Hierarchy"
_LEVEL = re.compile(r"([^.:()]+)\([^()]*\)::[^.:()]+")

_PHASE_WORDS = {
    "forward": FORWARD, "fwd": FORWARD, "backward": BACKWARD, "bwd": BACKWARD, "optimizer": OPTIMIZER, "zero_grad": OPTIMIZER,
}  # fmt: skip
_PHASE_WORD = re.compile(rf"(?<![a-z])({'|'.join(_PHASE_WORDS)})(?![a-z])")


def place(trace: Trace) -> None:
    """Set the place of every host event; :func:`link_calls` has set the calls.

    An event starts after the events around it, and backward after forward, so that one pass in order of start suffices.
    """
    by_marks = any(event.name.startswith(PHASE) for event in trace.host if event.kind == RANGE)
    links = _forward_operations(trace)
    forward = set() if by_marks else _with_callers(links.values())
    shifted: set[Hashable] = set()  # threads whose hierarchies are those of other operations by now
    for event in trace.host:
        around = event.parent.place if event.parent is not None else NOWHERE
        if event.is_backward or event.name.startswith(ENGINE_NODE):
            shifted.add(event.thread)
        hierarchy = event.args.get(_HIERARCHY) if event.thread not in shifted else None
        event.place = _place(event, around, links, forward, _module_of_hierarchy(hierarchy), by_marks=by_marks)


def _place(
    event: HostEvent, around: Place, links: dict[int, HostEvent], forward: set[int], module: str, *, by_marks: bool
) -> Place:
    if event.kind == RANGE:
        return _of_range(event.name, around, by_marks=by_marks)
    if event.kind == PYTHON:
        if by_marks or not event.name.startswith(_MODULE_CALL):
            return around
        return _cached(FORWARD, event.name.removeprefix(_MODULE_CALL))
    if event.name.startswith(ENGINE_NODE) or event.is_backward:
        origin = links.get(id(event))
        if origin is not None:
            return _cached(BACKWARD, origin.place.module)
        return around if around.phase == BACKWARD else _cached(BACKWARD, NO_MODULE)
    if by_marks or event.kind != OPERATION:
        return around
    phase = FORWARD if not around.phase and id(event) in forward else around.phase
    return _cached(phase, module or around.module)


def _of_range(name: str, around: Place, *, by_marks: bool) -> Place:
    if name.startswith(PHASE):
        return _cached(name.removeprefix(PHASE), NO_MODULE)
    if name.startswith(MODULE):
        return _cached(around.phase, name.removeprefix(MODULE))
    phase = "" if by_marks else _phase_of(name)
    return _cached(phase, around.module) if phase else around


@functools.lru_cache(maxsize=4096)
def _phase_of(name: str) -> str:
    """Return the phase that the name of a range contains; empty for none, or more than one."""
    found = {_PHASE_WORDS[word] for word in _PHASE_WORD.findall(name.lower())}
    return found.pop() if len(found) == 1 else ""


@functools.lru_cache(maxsize=4096)
def _cached(phase: str, module: str) -> Place:
    """Return one object for equal places."""
    return Place(phase, module)


def _module_of_hierarchy(hierarchy: object) -> str:
    """Return the qualified name of the innermost module, without the name of the outermost: ``A0``."""
    return ".".join(_LEVEL.findall(hierarchy)[1:]) if isinstance(hierarchy, str) and hierarchy else ""


# ---- Forward and backward --------------------------------------------------------------------------------------------


def _forward_operations(trace: Trace) -> dict[int, HostEvent]:
    """Map the id of each event of backward to the operation of forward that it belongs to."""
    links = _by_flows(trace)
    of_number: dict[int, dict[Hashable, HostEvent]] = defaultdict(dict)  # sequence number -> the last operation of each thread
    threads = {event.forward_thread: links[id(event)].thread for event in trace.host if id(event) in links}
    for event in trace.host:
        if event.kind != OPERATION or event.sequence is None:
            continue
        if not event.forward_thread:
            of_number[event.sequence][event.thread] = event
        elif id(event) not in links:
            found = of_number.get(event.sequence, {})
            thread = threads.get(event.forward_thread, next(iter(found)) if len(found) == 1 else None)
            if thread in found:
                links[id(event)] = found[thread]
    return links


def _by_flows(trace: Trace) -> dict[int, HostEvent]:
    """Return the links that the trace has itself. Both ends are operations that began when the flow says."""
    ends = _ends(trace.flows)
    forward: dict[tuple[Hashable, int], HostEvent] = {}
    backward: dict[tuple[Hashable, int], HostEvent] = {}
    for event in trace.host:
        place = (event.thread, event.start)
        if place in ends and event.kind == OPERATION and event.sequence is not None:
            if event.forward_thread:
                backward.setdefault(place, event)
            else:
                forward[place] = event  # the last one made the node of the graph
    found: dict[int, HostEvent] = {}
    for flow in trace.flows:
        origin, end = forward.get(flow.forward), backward.get(flow.backward)
        while origin is not None and end is not None:
            found[id(end)] = origin
            around = end.caller  # the engine's range around the operation has the same number
            is_same = around is not None and (around.sequence, around.forward_thread) == (end.sequence, end.forward_thread)
            end = around if is_same else None
    return found


def _ends(flows: Iterable[Flow]) -> set[tuple[Hashable, int]]:
    return {place for flow in flows for place in flow}


def _with_callers(operations: Iterable[HostEvent]) -> set[int]:
    """Return the ids of the operations and of the operations around them."""
    found: set[int] = set()
    for operation in operations:
        event: HostEvent | None = operation
        while event is not None and event.kind != RANGE and id(event) not in found:
            found.add(id(event))
            event = event.caller
    return found
