"""How calls are timed on a device, and what lies between the readings of a clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_builders import FakeCase, fake_accelerator

from mnistbench.measuring import timing
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Sample
from mnistbench.suite.measuring import passes
from mnistbench.suite.measuring.device_timing import timed

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
    sample = timed(lambda: accelerator.append("call"), torch.device(device))
    read = ["cpu", "wall", "call", "wall", "cpu"]
    assert accelerator == (["record", *read, "record", "wait for event"] if event else read)
    assert sample == Sample(40, 30, 250_000 if event else None)
