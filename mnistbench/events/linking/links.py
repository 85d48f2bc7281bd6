"""Links between events: which called which, which launched a kernel, and the scope of each.

The tree of each thread and the self times follow the rules of ``torch.profiler.profile.events()``,
so that a table of a trace has the numbers of a table of the profile itself.

The profiler gives a kernel the ``External id`` of the operation that launched it. Files of earlier
versions repeat the ``correlation`` there; they are linked through the runtime call with that
correlation and through the operation around it. Kernels of extensions are launched in no operation:
the innermost named range around the call is their row, if there is one. A launch of a CUDA graph
has the correlation of all kernels of the graph.

A scope is a phase and a module. In a trace of mnistbench its own ranges give both. In any other
trace:

- an operation that autograd runs for one of forward is ``backward`` and in the module of that one;
- a module call that the profiler recorded (``nn.Module: Linear_3``) gives the module, and the phase
  ``forward``;
- ranges name a phase: ``Optimizer.step#SGD.step``, ``DistributedDataParallel.forward``, ``##
  forward ##``; what ``Optimizer.step(closure)`` runs in its closure has the phase that it has
  outside of a step;
- an operation is ``forward`` if autograd ran one of backward for it, and so are the operations
  around it and in it.

What none of these rules places has no phase or no module.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from mnistbench.core.errors import RecordError
from mnistbench.core.operation import (
    BACKWARD,
    ENGINE_NODE,
    FORWARD,
    ITERATION,
    MODULE,
    NO_MODULE,
    OPTIMIZER,
    PHASE,
    Scope,
    is_communication,
    runs_beside,
)
from mnistbench.events.linking.impossible import is_exclusive, mark_device_times, overlaps
from mnistbench.events.model import (
    NOWHERE,
    OPERATION,
    PYTHON,
    RANGE,
    RUNTIME,
    STEP,
    DeviceEvent,
    Place,
    ThreadEvent,
    Trace,
    process_of,
)

#: A damaged trace may have many ranges that each run past many steps. It has at most so many rests
#: of them for each of its events; there are fewer rests than events in any other trace.
_MAX_RESTS = 10

#: In a file with whole microseconds, an event may seem to end after the one that called it.
_ROUNDING_NS = 1000


def link(trace: Trace) -> None:
    """Set all links between the events, their scopes, and which times cannot be.

    Raises:
        RecordError: a device event may be that of several launches.
    """
    link_calls(trace)
    if trace.device:
        link_kernels(trace)
        mark_device_times(trace)
    set_scopes(trace)


def link_calls(trace: Trace) -> None:
    """Set parents, callers and self times of the host events, which are sorted by start.

    Time in which two calls of a thread seem to run is in the self time of both, and counted as
    impossible. Ranges and functions of Python that do not nest are cut into parts that do.
    """
    _Nesting(trace).link()
    # An event that is the only one which an event of its name called is left out: both are one
    # operation.
    for event in trace.host:
        if event.kind == PYTHON or event.caller is None:
            continue
        caller = event.caller = event.caller.kept
        if caller.name == event.name and caller.children == 1 and event.kind == caller.kind:
            event.replaced_by = caller
            caller.children = event.children
            caller.self_ns += event.self_ns


class _Nesting:
    """Finds the event around each event of its thread.

    The program may begin and end a range, or a step of the profiler, anywhere: in a function of
    Python that ends later, in another range, or in a step that ``prof.step()`` ends. The rest of
    such a range or function is an event of its own, ``rest_of`` the first part. So each part is in
    one step, and gives its phase and its module to what runs in it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._rounding = _ROUNDING_NS if trace.is_rounded else 0
        self._around: dict[Hashable, list[ThreadEvent]] = defaultdict(list)
        # Rests of ranges and functions: start, minus the end, number, event.
        self._rests: list[tuple[int, int, int, ThreadEvent]] = []
        self._n_rests = 0  # all that were made
        self._linked_rests: list[ThreadEvent] = []

    def link(self) -> None:
        """Link all events, and add the rests to the trace."""
        rests = self._rests
        for event in self._trace.host:
            while rests and rests[0][:2] <= (event.start, -event.end):
                self._add(heappop(rests)[-1])
            if event.kind == RANGE and runs_beside(event.name):
                event.is_beside = True
                continue
            self._add(event)
        while rests:
            self._add(heappop(rests)[-1])
        if self._linked_rests:
            self._trace.host += self._linked_rests
            # A rest and what begins with it: the outer one is first, as it was linked first.
            self._trace.host.sort(key=lambda event: (event.start, -event.end))

    def _add(self, event: ThreadEvent) -> None:
        stack = self._around[event.thread]
        while stack and event.start >= stack[-1].end:
            stack.pop()
        if event.rest_of is not None and stack and _is_call(stack[-1]):
            # The call began in the whole range, so the range goes on after it.
            if event.end > stack[-1].end:
                self._cut(event, stack[-1].end)
            return
        overlap_ns = 0
        if stack and event.end > stack[-1].end + self._rounding:
            if _marks_step(event):
                self._enter_step(stack, event)
            elif not _may_be_cut(event):
                overlap_ns = self._leave(stack, event)
            else:
                self._cut(event, stack[-1].end)
        if stack:
            parent = stack[-1]
            caller = parent.caller if parent.kind == PYTHON else parent
            event.parent = parent
            event.caller = caller
            if caller is not None and event.kind != PYTHON:
                caller.children += 1
                caller.self_ns -= min(event.end, caller.end) - (event.start + overlap_ns)
        stack.append(event)
        if event.rest_of is not None:
            self._linked_rests.append(event)

    def _cut(self, event: ThreadEvent, ns: int) -> None:
        """End an event at a time, and have its rest linked when its turn comes."""
        if self._n_rests < _MAX_RESTS * len(self._trace.host):
            self._n_rests += 1
            rest = ThreadEvent(event.name, event.kind, event.thread, ns, event.end, args=event.args)
            rest.rest_of = event.whole
            heappush(self._rests, (ns, -event.end, self._n_rests, rest))
        event.self_ns -= event.end - ns
        event.end = ns

    def _enter_step(self, stack: list[ThreadEvent], step: ThreadEvent) -> None:
        """Remove the events in which a step begins and which end in it; their rests are in it."""
        while stack and step.end > stack[-1].end + self._rounding:
            around = stack.pop()
            if _may_be_cut(around):
                self._cut(around, step.start)

    def _leave(self, stack: list[ThreadEvent], event: ThreadEvent) -> int:
        """Remove the calls that end before a call that begins in them; return the overlap.

        A call that runs past its step is ended with it. Both are counted as impossible, except
        where clocks explain it.
        """
        impossible = self._trace.impossible
        has_thread = event.thread != ""  # without numbers of threads, several threads are one
        must_end = has_thread and is_exclusive(event)
        step = next((call for call in reversed(stack) if _marks_step(call)), None)
        past_ns = event.end - step.end if step is not None else 0
        if step is not None and past_ns > self._rounding and (has_thread or event.kind == RANGE):
            is_impossible = overlaps(step, event, self._rounding)
            # Else one that begins just before the end of the step is a call after it.
            if is_impossible or past_ns <= step.end - event.start:
                event.self_ns -= past_ns
                event.end = step.end
            if is_impossible and must_end:
                impossible.past_step += 1
                impossible.past_step_ns += past_ns
        latest = event.start
        while stack and (
            event.start >= stack[-1].end or event.end > stack[-1].end + self._rounding
        ):
            left = stack.pop()
            if (
                left.end > latest
                and must_end
                and is_exclusive(left)
                and overlaps(left, event, self._rounding)
            ):
                latest = left.end
        overlap_ns = latest - event.start
        if overlap_ns:
            impossible.overlapping_calls += 1
            impossible.overlapping_calls_ns += overlap_ns
        return overlap_ns


def _marks_step(event: ThreadEvent) -> bool:
    return event.kind == RANGE and event.name.startswith((STEP, ITERATION))


def _may_be_cut(event: ThreadEvent) -> bool:
    """Whether an event is a range or a function of Python, whose parts are as good as the whole.

    Steps are not: each is one sample. Communication is counted by its calls.
    """
    if event.kind == PYTHON:
        return True
    return event.kind == RANGE and not _marks_step(event) and not is_communication(event.name)


def _is_call(event: ThreadEvent) -> bool:
    return not _may_be_cut(event) and not _marks_step(event)


# ---- Kernels -------------------------------------------------------------------------------------

#: Ranges that mark steps, phases and modules and are no part of the program themselves.
_UNNAMED = (STEP, ITERATION, PHASE, MODULE)


def link_kernels(trace: Trace) -> None:
    """Set the launch of each device event with a link, and the operation or the range around it.

    Raises:
        RecordError: a device event may be that of several launches.
    """
    operations = [
        event for event in trace.host if event.kind == OPERATION and event.external is not None
    ]
    launches = [
        event for event in trace.host if event.kind == RUNTIME and event.correlation is not None
    ]
    operation_of = {event.external: event for event in operations}
    launch_of = {event.correlation: event for event in launches}
    same_operations = (
        _of_one_number(operations, "external") if len(operation_of) < len(operations) else {}
    )
    same_launches = (
        _of_one_number(launches, "correlation") if len(launch_of) < len(launches) else {}
    )
    is_repeated = all(event.external in (None, event.correlation) for event in trace.device)
    for event in trace.device:
        if event.correlation is not None:
            event.launch = launch_of.get(event.correlation)
            if event.correlation in same_launches:
                event.launch = _own_launch(event, same_launches[event.correlation], trace)
        operation = (
            None if is_repeated or event.external is None else operation_of.get(event.external)
        )
        if operation is not None and operation.external in same_operations:
            operation = _of_process(event.launch, same_operations[operation.external])
        if operation is None and event.launch is not None:
            operation, range_ = _around(event.launch)
            if operation is None and range_ is not None:
                event.range = range_.kept
        event.operation = operation.kept if operation is not None else None


def _of_one_number(events: list[ThreadEvent], number: str) -> dict[int, list[ThreadEvent]]:
    """Return the events that have a number in common.

    Several processes are merged, and each counts anew.
    """
    events_of_number: dict[int, list[ThreadEvent]] = defaultdict(list)
    for event in events:
        events_of_number[getattr(event, number)].append(event)
    return {number: events for number, events in events_of_number.items() if len(events) > 1}


def _own_launch(
    event: DeviceEvent, launches: list[ThreadEvent], trace: Trace
) -> ThreadEvent | None:
    """Return the launch of an event, by External id and time, of several with its correlation."""
    possible = [
        launch
        for launch in launches
        if launch.start <= event.end
        and (launch.external == event.external or None in (launch.external, event.external))
    ]
    for launch, later in pairwise(possible):
        # Else the runtime calls the driver: it is one launch.
        if later.caller is not launch or later.name == launch.name:
            raise RecordError(
                f"{trace.source}: several launches have the correlation {event.correlation}, so "
                "that it cannot be told which of them launched a kernel; several traces are "
                "merged into the file: give one of them"
            )
    return possible[-1] if possible else None


def _of_process(launch: ThreadEvent | None, operations: list[ThreadEvent]) -> ThreadEvent | None:
    """Return the only one of several operations that is of the process of a launch."""
    if launch is None:
        return None
    process = process_of(launch.thread)
    possible = [operation for operation in operations if process_of(operation.thread) == process]
    return possible[0] if len(possible) == 1 else None


def _around(launch: ThreadEvent) -> tuple[ThreadEvent | None, ThreadEvent | None]:
    """Return the innermost operation around a launch on its thread, and the innermost range."""
    range_ = None
    caller = launch.caller
    while caller is not None and caller.kind != OPERATION:
        if range_ is None and caller.kind == RANGE and not caller.name.startswith(_UNNAMED):
            range_ = caller
        caller = caller.caller
    return caller, range_


# ---- Scopes --------------------------------------------------------------------------------------


#: Begins the name of the Python event of a module call; a class and the number of its instance
#: follow.
_MODULE_CALL = "nn.Module: "

#: In the argument "Module Hierarchy" of TorchScript: ``TOP(C)::forward.A0(A)::forward``. With the
#: first operation that autograd runs on a thread, torch begins to write those of later operations
#: of the thread into earlier ones: its list of them has none for operations of autograd, but it
#: takes one for each event (``torch/csrc/profiler/collection.cpp``).
_HIERARCHY = "Module Hierarchy"
_LEVEL = re.compile(r"([^.:()]+)\([^()]*\)::[^.:()]+")

_PHASE_WORDS = {
    "forward": FORWARD,
    "fwd": FORWARD,
    "backward": BACKWARD,
    "bwd": BACKWARD,
    "optimizer": OPTIMIZER,
    "zero_grad": OPTIMIZER,
}
_PHASE_WORD = re.compile(rf"(?<![a-z])({'|'.join(_PHASE_WORDS)})(?![a-z])")


def set_scopes(trace: Trace) -> None:
    """Set the scope of every host event; :func:`link_calls` has set the calls.

    An event starts after the events around it, and backward after forward, so that one pass in
    order of start suffices.
    """
    has_marks = any(event.name.startswith(PHASE) for event in trace.host if event.kind == RANGE)
    links = forward_operations(trace)
    # Ids of operations that have one of backward, and of the operations around them.
    forward: set[int] = set()
    for origin in () if has_marks else links.values():
        operation: ThreadEvent | None = origin
        while operation is not None and operation.kind != RANGE and id(operation) not in forward:
            forward.add(id(operation))
            operation = operation.caller
    closures = {} if has_marks else _closures(trace, links)
    # Of events in the phase of an optimizer, by their ids: the range that names the phase.
    optimizers: dict[int, ThreadEvent] = {}
    # Threads on which autograd has run: from then on, torch shifts their hierarchies (_HIERARCHY).
    unreliable: set[Hashable] = set()
    for event in trace.host:
        around = event.parent.scope if event.parent is not None else NOWHERE
        optimizer = optimizers.get(id(event.parent)) if closures else None
        if optimizer is not None and any(
            start <= event.start and event.end <= end
            for start, end in closures.get(id(optimizer), ())
        ):
            around = _cached("", around.module)
        if event.is_backward or event.name.startswith(ENGINE_NODE):
            unreliable.add(event.thread)
        hierarchy = event.args.get(_HIERARCHY) if event.thread not in unreliable else None
        # the qualified name of the innermost module, without the name of the outermost: A0
        module = (
            ".".join(_LEVEL.findall(hierarchy)[1:])
            if isinstance(hierarchy, str) and hierarchy
            else ""
        )
        event.scope = _scope(event, around, links, forward, module, has_marks=has_marks)
        if closures and event.scope.phase == OPTIMIZER:
            names_it = event.kind == RANGE and _phase_of(event.name) == OPTIMIZER
            optimizers[id(event)] = event.whole if names_it or optimizer is None else optimizer


def _closures(trace: Trace, links: Mapping[int, ThreadEvent]) -> dict[int, list[tuple[int, int]]]:
    """Map the ids of ranges of optimizers to the spans in which they run a closure.

    ``Optimizer.step(closure)`` calls forward and backward in its own range. The first call of the
    closure begins with the range, a later one with its first operation that has a backward, as an
    optimizer such as LBFGS computes between the calls. Each ends with its last operation of
    backward. An optimizer with ``differentiable=True`` has operations with a backward, too, which
    autograd runs after the range.
    """
    ends: dict[int, int] = {}  # of the ranges that were cut
    for event in trace.host:
        if event.rest_of is not None:
            ends[id(event.rest_of)] = max(event.end, ends.get(id(event.rest_of), event.end))
    # Of each range: start and end of the outermost calls of forward, and of those of backward.
    passes: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
    ranges: dict[int, ThreadEvent] = {}
    for event in trace.host:
        origin = links.get(id(event))
        outermost = around = origin
        while outermost is not None and around is not None:
            if around.kind == RANGE and _phase_of(around.name) == OPTIMIZER:
                range_ = around.whole
                if event.start <= ends.get(id(range_), range_.end):
                    ranges[id(range_)] = range_
                    passes[id(range_)] += [
                        (outermost.start, outermost.end, False),
                        (event.start, event.end, True),
                    ]
                    break
            outermost = around.whole
            around = around.caller
    return {
        number: _spans_of_closures(ranges[number].start, ordered)
        for number, calls in passes.items()
        if (ordered := sorted(set(calls)))
    }


def _spans_of_closures(start: int, calls: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """Return the spans from the first call of forward to the end of backward.

    ``calls`` are in order; each has whether it is of backward.
    """
    spans = []
    end = 0
    has_backward = False
    for call_start, call_end, is_backward in calls:
        if is_backward:
            end = max(end, call_end) if has_backward else call_end
            has_backward = True
        elif has_backward and call_start >= end:
            spans.append((start, end))
            start = call_start
            has_backward = False
    return [*spans, (start, end)] if has_backward else spans


def _scope(
    event: ThreadEvent,
    around: Scope,
    links: dict[int, ThreadEvent],
    forward: set[int],
    module: str,
    *,
    has_marks: bool,
) -> Scope:
    if event.kind == RANGE:
        if event.name.startswith(PHASE):
            return _cached(event.name.removeprefix(PHASE), NO_MODULE)
        if event.name.startswith(MODULE):
            return _cached(around.phase, event.name.removeprefix(MODULE))
        phase = "" if has_marks else _phase_of(event.name)
        return _cached(phase, around.module) if phase else around
    if event.kind == PYTHON:
        if has_marks or not event.name.startswith(_MODULE_CALL):
            return around
        return _cached(FORWARD, event.name.removeprefix(_MODULE_CALL))
    if event.name.startswith(ENGINE_NODE) or event.is_backward:
        origin = links.get(id(event))
        if origin is not None:
            return _cached(BACKWARD, origin.scope.module)
        return around if around.phase == BACKWARD else _cached(BACKWARD, NO_MODULE)
    if has_marks or event.kind != OPERATION:
        return around
    phase = FORWARD if not around.phase and id(event) in forward else around.phase
    return _cached(phase, module or around.module)


@functools.lru_cache(maxsize=4096)
def _phase_of(name: str) -> str:
    """Return the phase that the name of a range contains; empty for none, or more than one."""
    phases = {_PHASE_WORDS[word] for word in _PHASE_WORD.findall(name.lower())}
    return phases.pop() if len(phases) == 1 else ""


@functools.lru_cache(maxsize=4096)
def _cached(phase: str, module: str) -> Scope:
    """Return one object for equal scopes."""
    return Scope(phase, module)


# ---- Forward and backward ------------------------------------------------------------------------


def forward_operations(trace: Trace) -> dict[int, ThreadEvent]:
    """Map the id of each event of backward to the operation of forward that it belongs to."""
    links = _by_flows(trace)
    # Number -> last operation of each thread.
    operations_of_number: dict[int, dict[Hashable, ThreadEvent]] = defaultdict(dict)
    threads: dict[int | None, Hashable] = dict(trace.autograd_threads.items())
    threads.update(
        (event.forward_thread, links[id(event)].thread)
        for event in trace.host
        if id(event) in links
    )
    for event in trace.host:
        if event.kind != OPERATION or event.sequence is None:
            continue
        if not event.forward_thread:
            operations_of_number[event.sequence][event.thread] = event
        elif id(event) not in links:
            process = process_of(event.thread)
            same_process = {
                thread: forward
                for thread, forward in operations_of_number.get(event.sequence, {}).items()
                if process_of(thread) == process
            }
            thread = threads.get(
                event.forward_thread, next(iter(same_process)) if len(same_process) == 1 else None
            )
            if thread in same_process:
                links[id(event)] = same_process[thread]
    return links


def _by_flows(trace: Trace) -> dict[int, ThreadEvent]:
    """Return the trace's own flows whose ends are operations that began at their times."""
    ends = {place for flow in trace.flows for place in flow}
    forward: dict[Place, ThreadEvent] = {}
    backward: dict[Place, ThreadEvent] = {}
    for event in trace.host:
        place = (event.thread, event.start)
        if place in ends and event.kind == OPERATION and event.sequence is not None:
            if event.forward_thread:
                backward.setdefault(place, event)
            else:
                forward[place] = event  # the last one made the node of the graph
    origins: dict[int, ThreadEvent] = {}
    for forward_place, backward_place in trace.flows:
        origin = forward.get(forward_place)
        end = backward.get(backward_place)
        while origin is not None and end is not None:
            origins[id(end)] = origin
            around = end.caller  # the engine's range around the operation has the same number
            is_same = around is not None and (around.sequence, around.forward_thread) == (
                end.sequence,
                end.forward_thread,
            )
            end = around if is_same else None
    return origins
