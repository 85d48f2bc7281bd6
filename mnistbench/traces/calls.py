"""Which event called which: the tree of each thread, and the self time of each event.

The rules are those of ``torch.profiler.profile.events()``, so that a table of a trace has the numbers of a table of the
profile itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from mnistbench.core.operation import runs_beside
from mnistbench.traces.events import PYTHON, RANGE, HostEvent, Trace

#: In a file with whole microseconds, an event may seem to end after the one that called it.
_ROUNDING_NS = 1000


def link_calls(trace: Trace) -> None:
    """Set parents, callers and self times of the host events, which are sorted by start."""
    rounding = _ROUNDING_NS if trace.is_rounded else 0
    around: dict[Hashable, list[HostEvent]] = defaultdict(list)
    for event in trace.host:
        if event.kind == RANGE and runs_beside(event.name):
            event.is_beside = True
            continue
        stack = around[event.thread]
        while stack and (event.start >= stack[-1].end or event.end > stack[-1].end + rounding):
            stack.pop()
        if stack:
            _link(event, stack[-1])
        stack.append(event)
    _remove_repetitions(trace.host)


def _link(event: HostEvent, parent: HostEvent) -> None:
    caller = parent.caller if parent.kind == PYTHON else parent
    event.parent, event.caller = parent, caller
    if caller is not None and event.kind != PYTHON:
        caller.children += 1
        caller.self_ns -= min(event.end, caller.end) - event.start


def _remove_repetitions(host: Sequence[HostEvent]) -> None:
    """Leave out an event that is the only one which an event of its name called: both are one operation."""
    for event in host:
        if event.kind == PYTHON or event.caller is None:
            continue
        caller = event.caller = event.caller.kept
        if caller.name == event.name and caller.children == 1 and event.kind == caller.kind:
            event.replaced_by = caller
            caller.children = event.children
            caller.self_ns += event.self_ns
