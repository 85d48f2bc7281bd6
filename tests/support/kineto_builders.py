"""Events as torch's profiler gives them, made by hand: Kineto's results."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torch.autograd import DeviceType

from mnistbench.events import from_profiler
from mnistbench.events.linking.compiled import name_compiled
from mnistbench.events.linking.links import link
from mnistbench.events.model import Trace

#: Scope of an operation.
OPERATION = 0
#: Scope of a range of ``record_function``.
RANGE = 7


class KinetoEvent:
    """An event with the methods that are called."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, lambda value=value: value)


def fields(name: str, start_ns: int, end_ns: int, thread: int, **values: Any) -> dict[str, Any]:
    """What the methods of an event return, by their names.

    It is an operation unless ``values`` say otherwise. Without ``activity_type``, as in torch 2.11.
    """
    return {
        "name": name,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "scope": OPERATION,
        "device_type": DeviceType.CPU,
        "device_index": 0,
        "device_resource_id": 4_000 + thread,  # the system's number of the thread
        "start_thread_id": thread,
        "end_thread_id": thread,
        "is_async": False,
        "is_hidden_event": False,
        "is_user_annotation": False,
        "fwd_thread_id": 0,
        "sequence_nr": -1,
        "correlation_id": 0,
        "linked_correlation_id": 0,
        "shapes": [],
        "nbytes": 0,
        **values,
    }


def profiled(events: Sequence[KinetoEvent]) -> Trace:
    """Return the events of a profile that has these, with their links and rows."""
    results = SimpleNamespace(events=lambda: events)
    trace = from_profiler.read(SimpleNamespace(kineto_results=results, with_stack=False))
    link(trace)
    name_compiled(trace)
    return trace
