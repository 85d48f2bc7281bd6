"""How calls are timed, and what lies between the readings of a clock."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
import torch
from torch_builders import FakeCase, fake_accelerator

from mnistbench.measuring import passes, timing
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Sample, clocked

pytestmark = pytest.mark.versions


@pytest.mark.parametrize(
    ("call_ns", "calls"), [(1_000_000, 1_000), (10_000_000, 100), (400_000_000, 10)]
)
def test_calls_are_timed_for_a_second_within_limits(
    monkeypatch: pytest.MonkeyPatch, call_ns: int, calls: int
) -> None:
    log: list[str] = []
    case = FakeCase(log)
    now = iter(range(0, 10_000 * call_ns, call_ns))
    monkeypatch.setattr(timing.Clock, "wall_ns", lambda: next(now))
    assert passes.time_calls(case) == (call_ns,) * calls  # type: ignore[arg-type]
    assert log == [*["call"] * WARMUP_ITERATIONS, "reset", *["call"] * calls]


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens on an accelerator that is made up."""
    return fake_accelerator(monkeypatch)


@pytest.mark.parametrize(("device", "event"), [("cpu", False), ("cuda", True)])
def test_only_the_work_runs_between_the_readings_of_the_wall_clock(
    accelerator: list[str], monkeypatch: pytest.MonkeyPatch, device: str, *, event: bool
) -> None:
    def clock(name: str) -> Callable[[], int]:
        def read() -> int:
            accelerator.append(name)
            return {"cpu": [5, 35], "wall": [1_000, 1_040]}[name][accelerator.count(name) - 1]

        return read

    monkeypatch.setattr(timing.Clock, "wall_ns", clock("wall"))
    monkeypatch.setattr(timing.Clock, "cpu_ns", clock("cpu"))
    sample = timing.timed(lambda: accelerator.append("call"), torch.device(device))
    read = ["cpu", "wall", "call", "wall", "cpu"]
    assert accelerator == (["record", *read, "record", "wait for event"] if event else read)
    assert sample == Sample(40, 30, 250_000 if event else None)


def test_a_short_function_maps_no_memory_at_any_depth_of_the_stack():
    def short():
        pass

    # The frame of a function of ordinary size.
    short.__code__ = short.__code__.replace(co_stacksize=30)
    calls = 200

    def repeated():
        for _ in range(calls):
            short()

    def page_faults(work):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        work()
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    def page_faults_at(depth, work):
        if depth:
            return page_faults_at(depth - 1, work)
        return min(page_faults(work) for _ in range(3))

    # A chunk of CPython's stack has the frames of some 130 calls.
    depths = range(160)
    assert max(page_faults_at(depth, repeated) for depth in depths) >= calls
    assert max(page_faults_at(depth, lambda: clocked(repeated)) for depth in depths) < calls / 10
