"""Events of the host, against those that torch.profiler makes of the same profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch_builders import tiny_params, tiny_workload

from mnistbench.measuring.case import build
from mnistbench.measuring.events_to_table import events_of, table
from mnistbench.measuring.host_events import allocations, host_events
from mnistbench.measuring.profiling import profile_warm

pytestmark = pytest.mark.versions


def fields(event: Any) -> tuple[Any, ...]:
    return (
        event.name,
        event.scope,
        event.thread,
        event.fwd_thread,
        event.sequence_nr,
        event.device_type,
        list(event.input_shapes),
        (event.time_range.start, event.time_range.end),
        (event.cpu_time_total, event.self_cpu_time_total),
        (event.self_cpu_memory_usage, event.self_device_memory_usage, event.self_device_time_total),
        event.is_async,
        event.cpu_parent and (event.cpu_parent.name, event.cpu_parent.time_range.start),
        [(child.name, child.time_range.start) for child in event.cpu_children],
    )


def check(recorded: profile) -> list[Any]:
    found = host_events(recorded)
    assert [fields(event) for event in found] == [fields(event) for event in events_of(recorded)]
    return found


@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize("phase", ["step", "forward"])
def test_a_case(phase: str, shapes: bool) -> None:
    recorded = profile_warm(
        build(tiny_params(phase=phase), tiny_workload()), iterations=3, shapes=shapes
    ).profiler
    found = check(recorded)
    assert any(event.self_cpu_memory_usage for event in found)
    assert any(event.input_shapes for event in found) == shapes
    tables = [
        table(events, temperature="warm", view="host") for events in (found, events_of(recorded))
    ]
    assert tables[0] == tables[1]
    assert len(tables[0].rows) > 10


def names_in_names() -> None:
    """Ranges of one name are one event where each contains nothing else."""
    with record_function("a"), record_function("a"), record_function("a"):
        torch.ones(3)
    with record_function("a"):
        with record_function("a"):
            torch.ones(3)
        torch.ones(3)


def allocations_outside_operations() -> None:
    kept = [torch.UntypedStorage(64)]
    torch.ones(3)
    kept.append(torch.UntypedStorage(128))
    kept.clear()
    with record_function("range"):
        torch.UntypedStorage(256)


def backward_with_a_checkpoint() -> None:
    layer = nn.Linear(4, 4)
    inputs = torch.ones(2, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, inputs, use_reentrant=True).sum().backward()


def ranges_across_each_other() -> None:
    one = record_function("one")
    other = record_function("other")
    one.__enter__()
    other.__enter__()
    torch.ones(3)
    one.__exit__(None, None, None)
    torch.ones(3)
    other.__exit__(None, None, None)


@pytest.mark.parametrize(
    "body",
    [
        names_in_names,
        allocations_outside_operations,
        backward_with_a_checkpoint,
        ranges_across_each_other,
        lambda: None,
    ],
)
def test_odd_profiles(body: Callable[[], None]) -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        body()
    check(recorded)


def test_repeated_ranges_are_one_and_storage_is_an_event_of_its_own() -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        names_in_names()
        allocations_outside_operations()
    names = [event.name for event in check(recorded)]
    assert names.count("a") == 3
    assert "[memory]" in names


def test_allocations_belong_to_the_innermost_event() -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        with record_function("range"):
            kept = torch.ones(1000)
        with record_function("later"):
            del kept
    events = host_events(recorded)
    found = [
        (n_bytes, event.name, event.cpu_parent and event.cpu_parent.name)
        for _, n_bytes, event in allocations(recorded, events)
        if event
    ]
    assert found == [(4000, "aten::empty", "aten::ones"), (-4000, "later", None)]
    times = [at for at, _, _ in allocations(recorded, events)]
    assert times == sorted(times)
