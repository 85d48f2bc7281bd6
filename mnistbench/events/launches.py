"""Calls that launch kernels, and those of them whose kernels the trace does not have.

In a complete trace, each call that launches a kernel or a graph has the correlation of at least one
kernel. Without kernels, the host time of an operation of an accelerator is that of its launches
alone. Copies and fills are not counted, because those of no bytes have no event.

While a stream is captured into a graph, launches add their kernels to the graph and run none.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.events.model import KERNEL, RUNTIME, Steps, ThreadEvent, Trace

#: Functions of CUDA, HIP and of runtimes with their names (cudaLaunchKernelExC,
#: hipExtModuleLaunchKernel), of Unified Runtime and Level Zero (urEnqueueKernelLaunch,
#: zeCommandListAppendLaunchKernel), and launches of graphs.
_LAUNCH = re.compile(r"Launch\w*Kernel|KernelLaunch|LaunchByPtr|GraphLaunch")
_GRAPH_LAUNCH = "GraphLaunch"

_BEGIN_CAPTURE = "StreamBeginCapture"
_END_CAPTURE = "StreamEndCapture"


@dataclass(frozen=True)
class Launches:
    """The launches of kernels and graphs in a trace."""

    calls: tuple[int, ...]  # in each step
    lost: tuple[int, ...]  # of these: without a kernel in the trace, although they ran one
    captured: int  # without a kernel because they were captured into a graph, in all steps
    calls_outside: int  # in no step
    lost_outside: int

    @property
    def n_calls(self) -> int:
        """All launches."""
        return sum(self.calls) + self.calls_outside

    @property
    def n_lost(self) -> int:
        """All launches whose kernels are lost."""
        return sum(self.lost) + self.lost_outside

    @property
    def lost_of_all(self) -> str:
        """How many launches have no kernel: ``2 of 4 kernel launches have no kernel``."""
        launches_text = units.counted(self.n_calls, "kernel launch", "kernel launches")
        return (
            f"{units.count(self.n_lost)} of {launches_text} "
            f"{'has' if self.n_lost == 1 else 'have'} no kernel"
        )


@dataclass(frozen=True)
class UnrecordedLaunches:
    """The launches without a kernel in the trace."""

    all_calls: tuple[ThreadEvent, ...]  # with those that have kernels
    lost: tuple[ThreadEvent, ...]
    captured: tuple[ThreadEvent, ...]

    def in_steps(self, steps: Steps) -> Launches:
        """Count the launches of each step."""
        calls, calls_outside = _counted(self.all_calls, steps)
        lost, lost_outside = _counted(self.lost, steps)
        return Launches(calls, lost, len(self.captured), calls_outside, lost_outside)


def unrecorded_launches(trace: Trace) -> UnrecordedLaunches:
    """Find the launches without a kernel; the calls and the kernels are linked.

    None is lost for certain if the trace has kernels without a correlation: they may be those of
    the launches. The kernels of a graph may have another correlation than its launch, so that
    kernels without a launch after it may be its own.
    """
    launches = [
        event
        for event in trace.host
        if event.kind == RUNTIME and event.correlation is not None and is_launch(event.name)
    ]
    correlations = {event.correlation for event in trace.device}
    outermost = [launch for launch in launches if _caller(launch) is None]
    without_kernel = {
        id(launch): launch for launch in outermost if launch.correlation not in correlations
    }
    if not without_kernel:
        return UnrecordedLaunches(tuple(outermost), (), ())
    for launch in launches:
        if launch.correlation in correlations:
            without_kernel.pop(id(_outermost(launch)), None)
    is_complete = all(
        event.correlation is not None for event in trace.device if event.kind == KERNEL
    )
    last_unlinked = max(
        (event.start for event in trace.device if event.launch is None), default=None
    )
    in_capture = _captures(trace)
    lost = []
    captured = []
    for launch in without_kernel.values():
        if in_capture(launch.start):
            captured.append(launch)
        elif is_complete and not (
            _GRAPH_LAUNCH in launch.name
            and last_unlinked is not None
            and last_unlinked >= launch.start
        ):
            lost.append(launch)
    return UnrecordedLaunches(tuple(outermost), tuple(lost), tuple(captured))


@functools.lru_cache(maxsize=4096)
def is_launch(name: str) -> bool:
    """Whether a call of the runtime launches a kernel or a graph."""
    return _LAUNCH.search(name) is not None


def _caller(launch: ThreadEvent) -> ThreadEvent | None:
    """Return the launch that called a launch.

    A runtime calls its driver, and both are one launch.
    """
    caller = launch.caller
    return (
        caller if caller is not None and caller.kind == RUNTIME and is_launch(caller.name) else None
    )


def _outermost(launch: ThreadEvent) -> ThreadEvent:
    while (caller := _caller(launch)) is not None:
        launch = caller
    return launch


class _Captures:
    """Spans of time in which a stream is captured."""

    def __init__(self, begins: list[int], ends: list[int]) -> None:
        self._begins = begins
        self._ends = ends

    def __call__(self, ns: int) -> bool:
        """Return whether a stream is captured at a time: more captures began than ended before."""
        return bisect_right(self._begins, ns) > bisect_right(self._ends, ns)


def _captures(trace: Trace) -> _Captures:
    """Find the captures. One that ends without a beginning began before the trace."""
    begins = [
        event.start
        for event in trace.host
        if event.kind == RUNTIME and _BEGIN_CAPTURE in event.name
    ]
    ends = [
        event.start for event in trace.host if event.kind == RUNTIME and _END_CAPTURE in event.name
    ]
    before = max(
        (number - bisect_right(begins, end) for number, end in enumerate(ends, start=1)), default=0
    )
    return _Captures([trace.host[0].start] * before + begins if before > 0 else begins, ends)


def _counted(launches: Iterable[ThreadEvent], steps: Steps) -> tuple[tuple[int, ...], int]:
    """Return the number of launches in each step, and in none."""
    counts = [0] * len(steps.names)
    outside = 0
    for launch in launches:
        slot = steps.slot_of(launch.start)
        if slot >= 0:
            counts[slot] += 1
        else:
            outside += 1
    return tuple(counts), outside
