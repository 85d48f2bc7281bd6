"""Which operation launched a kernel.

The profiler gives a kernel the ``External id`` of the operation that launched it. Files of earlier versions repeat the
``correlation`` there; they are linked through the runtime call with that correlation and through the operation around it.
A launch of a CUDA graph has the correlation of all kernels of the graph.
"""

from __future__ import annotations

from mnistbench.traces.events import OPERATION, RUNTIME, HostEvent, Trace


def link_kernels(trace: Trace) -> None:
    """Set the launch and the operation of each device event. They stay None where the trace has no link."""
    operations = {event.external: event for event in trace.host if event.kind == OPERATION and event.external is not None}
    launches = {event.correlation: event for event in trace.host if event.kind == RUNTIME and event.correlation is not None}
    is_repeated = all(event.external in (None, event.correlation) for event in trace.device)
    for event in trace.device:
        if event.correlation is not None:
            event.launch = launches.get(event.correlation)
        found = None if is_repeated or event.external is None else operations.get(event.external)
        if found is None and event.launch is not None:
            found = _around(event.launch)
        event.operation = found.kept if found is not None else None


def _around(launch: HostEvent) -> HostEvent | None:
    """Return the innermost operation around a runtime call on its thread."""
    event = launch.caller
    while event is not None and event.kind != OPERATION:
        event = event.caller
    return event
