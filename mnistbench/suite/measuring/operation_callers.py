"""Which functions of Python call an operation.

The profiler records the functions around each operation. One of the backward pass is called by the
engine, so those of the operation of the forward pass that it belongs to come before them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.operation import ITERATION, Callers, OpKey, PythonFunction
from mnistbench.events.from_profiler import trace_of
from mnistbench.events.linking.links import forward_operations
from mnistbench.events.model import OPERATION, STACK, ThreadEvent
from mnistbench.suite.measuring.profiling import started

#: A function of Python, as Kineto names it: ``pkg/model.py(12): forward``.
_FUNCTION = re.compile(r"(?P<path>.+)\((?P<line>\d+)\): (?P<name>.+)")


def callers_of_operations(run: Callable[[], object]) -> dict[tuple[OpKey, Callers], int]:
    """Run an iteration with marks; return what calls its operations -> their self time in ns."""
    profiler = torch.profiler.profile(
        activities=[ProfilerActivity.CPU],
        with_stack=True,
        # Without it the functions are only in the exported trace.
        experimental_config=_ExperimentalConfig(verbose=True),
    )
    with started(profiler), record_function(ITERATION):
        run()
    trace = trace_of(profiler)
    forward = forward_operations(trace)
    times_ns: dict[tuple[OpKey, Callers], int] = defaultdict(int)
    for event in trace.host:
        if event.kind == OPERATION and event.replaced_by is None:
            origin = _origin(event, forward)
            functions = (*(_functions_around(origin) if origin else ()), *_functions_around(event))
            times_ns[event.key, functions] += event.self_ns
    return times_ns


def _origin(event: ThreadEvent, forward: dict[int, ThreadEvent]) -> ThreadEvent | None:
    """Return the operation of the forward pass that one of the backward pass belongs to."""
    around: ThreadEvent | None = event
    while around is not None:
        if id(around) in forward:
            return forward[id(around)]
        around = around.caller
    return None


def _functions_around(event: ThreadEvent) -> Iterator[PythonFunction]:
    for name in event.args.get(STACK, ()):
        if match := _FUNCTION.fullmatch(name):
            yield PythonFunction(match["path"], int(match["line"]), match["name"])
