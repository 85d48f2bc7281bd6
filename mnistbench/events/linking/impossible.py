"""Impossible times are counted, and what would follow from them is left out.

- A thread runs one call at a time: a call that begins in a step, or in another call, ends before
  that one does. ``links`` finds those that do not.
- A stream runs one kernel at a time. AMD's profiler records some durations that run past the next
  kernel (AMD-AGI/TraceLens issue 669). Kernels of a CUDA graph may overlap: the profiler gives all
  branches of the graph one stream. So may those with programmatic dependent launch, which need the
  extended launch calls of CUDA.
- A kernel begins after the start of its launch. CUPTI gives kernels a time of 0 that it could not
  measure (``start`` of ``CUpti_ActivityKernel`` in its documentation), and the first kernels of a
  session times of another clock (pytorch/pytorch issue 192021).
- A kernel that was launched before a call which waits for the whole accelerator has run when that
  call ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from mnistbench.core.operation import is_communication
from mnistbench.events.model import (
    KERNEL,
    OPERATION,
    RUNTIME,
    DeviceEvent,
    ThreadEvent,
    Trace,
)

#: Times of one clock are wrong by less. In a file with whole microseconds, a start and a duration
#: are rounded, too.
_CLOCK_NS = 1_000

#: The clocks of the host and of an accelerator, and those of an operation and of the runtime,
#: differ by less. In a trace of an MI300X, a kernel ends 8 us after the call that waited for it.
_CLOCKS_NS = 20_000

#: Over a long trace they may drift apart, but by less: a kernel that begins so long before its
#: launch has a wrong time, and one that ends so long after the call that waited for it, too.
_DRIFT_NS = 100_000

#: Calls that end when everything that was launched before has run.
_WAIT_FOR_ALL = frozenset(("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"))

#: Extended launch calls of CUDA.
_EXTENDED = ("cudaLaunchKernelEx", "cuLaunchKernelEx")


def is_exclusive(event: ThreadEvent) -> bool:
    """Whether the thread runs nothing else until the event has ended, except what it calls.

    A program may end ranges in any order, communication ends on other threads, and the profiler's
    own work has another clock.
    """
    if event.kind == OPERATION:
        return not is_communication(event.name)
    return event.kind == RUNTIME and event.correlation is not None


def overlaps(call: ThreadEvent, later: ThreadEvent, rounding: int) -> bool:
    """Whether an event ends so long after the call around it that no clock explains it.

    It begins in a call of its thread.

    It may be in the call, with an end that is too late, or after it, with a start that is too
    early.
    """
    error_ns = min(call.end - later.start, later.end - call.end)
    return error_ns > (_CLOCKS_NS if RUNTIME in (call.kind, later.kind) else _CLOCK_NS + rounding)


def mark_device_times(trace: Trace) -> None:
    """Set of each linked device event whether it has a time, and until when it can have run."""
    events_of_device: dict[str, list[DeviceEvent]] = defaultdict(list)
    for event in trace.device:
        events_of_device[event.device].append(event)
    for events in events_of_device.values():
        _mark_lost(trace, events)
    # A call waits for one accelerator, and the trace does not tell for which.
    if len(events_of_device) == 1:
        _end_before_waits(trace)
    kernels_of_stream: dict[str, list[DeviceEvent]] = defaultdict(list)
    for event in trace.device:
        if event.kind == KERNEL and event.is_timed and event.stream:
            kernels_of_stream[event.stream].append(event)
    for kernels in kernels_of_stream.values():
        _end_overlapping(trace, kernels)


def _mark_lost(trace: Trace, events: Sequence[DeviceEvent]) -> None:
    """Count the events that begin before their launch, and mark those without a time."""
    launches = [
        (event, event.launch.start - event.start) for event in events if event.launch is not None
    ]
    early = [(event, before_ns) for event, before_ns in launches if before_ns > _CLOCKS_NS]
    clocks_differ = 2 * len(early) > len(launches)
    for event, before_ns in early:
        if event.start == 0 or (before_ns > _DRIFT_NS and not clocks_differ):
            event.is_timed = False
        else:
            trace.impossible.before_launch += 1
            trace.impossible.before_launch_ns = max(trace.impossible.before_launch_ns, before_ns)
    at_zero = [event for event in events if event.start == 0 and event.launch is None]
    begins_later = bool(trace.host) and trace.host[0].start > 0
    if begins_later and (len(at_zero) > 1 or any(event.ns == 0 for event in at_zero)):
        for event in at_zero:
            event.is_timed = False
    trace.impossible.untimed += sum(not event.is_timed for event in events)


def _end_before_waits(trace: Trace) -> None:
    """End kernels, copies and fills where the next call ends that waited for them."""
    waits: dict[Hashable, list[ThreadEvent]] = defaultdict(list)  # of each process, by start
    for event in trace.host:
        if event.kind == RUNTIME and event.name in _WAIT_FOR_ALL:
            waits[event.process].append(event)
    for launched in trace.device:
        if launched.launch is None or not launched.is_timed:
            continue
        process_waits = waits[launched.launch.process]
        following = bisect_left(process_waits, launched.launch.end, key=lambda wait: wait.start)
        if following == len(process_waits):
            continue
        wait = process_waits[following]
        excess_ns = launched.end - wait.end
        if excess_ns <= _DRIFT_NS:
            continue
        trace.impossible.past_wait += 1
        trace.impossible.past_wait_ns = max(trace.impossible.past_wait_ns, excess_ns)
        launched.is_timed = launched.start < wait.end
        launched.ran_until = wait.end


def _end_overlapping(trace: Trace, kernels: Sequence[DeviceEvent]) -> None:
    """End each kernel of a stream, in order of start, where the next one begins."""
    correlations = Counter(kernel.correlation for kernel in kernels)
    rounding = _CLOCK_NS * (2 if trace.is_rounded else 1)
    last: DeviceEvent | None = None
    for kernel in kernels:
        if last is None or kernel.start >= last.end:
            last = kernel
            continue
        overlap_ns = last.end - kernel.start
        may_overlap = _may_overlap(kernel, correlations) or _is_of_graph(last, correlations)
        # without a launch, it may have been one that allows a short overlap; a kernel of no length
        # may have its own start wrong
        if may_overlap or min(overlap_ns, kernel.ns) <= (
            _CLOCKS_NS if kernel.launch is None else rounding
        ):
            last = max(last, kernel, key=lambda event: event.end)
            continue
        last.ran_until = min(last.ran_until, kernel.start)
        trace.impossible.overlapping_kernels += 1
        trace.impossible.overlapping_kernels_ns += overlap_ns
        last = kernel


def _may_overlap(kernel: DeviceEvent, correlations: Counter[int | None]) -> bool:
    """Whether a kernel may begin before the one before it in its stream has ended."""
    is_extended = kernel.launch is not None and kernel.launch.name.startswith(_EXTENDED)
    return is_extended or _is_of_graph(kernel, correlations)


def _is_of_graph(kernel: DeviceEvent, correlations: Counter[int | None]) -> bool:
    if kernel.is_of_graph or (kernel.launch is not None and kernel.launch.launches_graph):
        return True
    return kernel.correlation is not None and correlations[kernel.correlation] > 1
