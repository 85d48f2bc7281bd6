"""In which order a case is called, what is left on it, and when an accelerator's clock is read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from builders import op_table
from torch_builders import FakeCase, fake_accelerator

from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.op_benchmark import fixture
from mnistbench.suite.op_benchmark.fixture import EVENT_CALLS, Timed, device_times, time_case

pytestmark = pytest.mark.versions


class FakeBenchmark:
    """pytest-benchmark's fixture, as far as it is used: some rounds, and their seconds."""

    def __init__(
        self, log: list[str], *, enabled: bool = True, seconds: tuple[float, ...] = (0.25, 0.125)
    ) -> None:
        self.log = log
        self.enabled = enabled
        self.has_error = False
        self.stats: Any = None
        self._seconds = seconds

    def __call__(self, function: Callable[[], object]) -> None:
        self.log.append("benchmark")
        for _ in self._seconds if self.enabled else (0.0,):
            function()
        if self.enabled:
            self.stats = SimpleNamespace(stats=SimpleNamespace(data=list(self._seconds)))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, with a cold pass that only says so."""
    happened: list[str] = []

    def profile_first_call(case: FakeCase, *, first_of_process: bool) -> Any:
        happened.append(f"cold, {'first of the process' if first_of_process else 'not the first'}")
        return op_table(temperature="cold")

    monkeypatch.setattr(fixture, "profile_first_call", profile_first_call)
    return happened


@pytest.mark.parametrize(
    ("cold", "first", "profiled"),
    [
        (True, True, ["cold, first of the process"]),
        (True, False, ["cold, not the first"]),
        (False, True, []),
    ],
)
def test_a_cold_iteration_comes_before_warm_up_reset_and_rounds(
    log: list[str], cold: bool, first: bool, profiled: list[str]
) -> None:
    timed = time_case(FakeCase(log), FakeBenchmark(log), cold=cold, first_of_process=first)
    assert log == [*profiled, *["call"] * WARMUP_ITERATIONS, "reset", "benchmark", "call", "call"]
    assert timed.first_call == (op_table(temperature="cold") if cold else None)


def test_a_case_without_operations_is_only_timed(log: list[str]) -> None:
    case = FakeCase(log, runner=None)
    timed = time_case(case, FakeBenchmark(log), cold=True, first_of_process=True)
    assert log == ["benchmark", "call", "call"]
    assert timed.first_call is None
    assert timed.rounds_ns == (250_000_000, 125_000_000)


def test_rounds_are_in_nanoseconds(log: list[str]) -> None:
    case = FakeCase(log)
    benchmark = FakeBenchmark(log, seconds=(0.0015, 1.24e-8, 3.0))
    timed = time_case(case, benchmark, cold=True, first_of_process=True)
    assert not benchmark.has_error
    assert timed.rounds_ns == (1_500_000, 12.4, 3_000_000_000)
    assert timed.device_ns == ()


def test_where_benchmarks_are_disabled_the_case_runs_once(log: list[str]) -> None:
    case = FakeCase(log)
    assert (
        time_case(case, FakeBenchmark(log, enabled=False), cold=True, first_of_process=True)
        == Timed()
    )
    assert log == ["benchmark", "call"]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), RuntimeError("out of memory")]
)
def test_an_exception_in_the_rounds_marks_them_and_is_raised(
    log: list[str], error: BaseException
) -> None:
    class Interrupted(FakeBenchmark):
        def __call__(self, function: Callable[[], object]) -> None:
            super().__call__(function)
            raise error

    case = FakeCase(log)
    benchmark = Interrupted(log)
    with pytest.raises(type(error)) as raised:
        time_case(case, benchmark, cold=True, first_of_process=True)
    assert raised.value is error
    assert benchmark.has_error


# ---- The accelerator's clock ---------------------------------------------------------------------


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens on an accelerator that is made up."""
    return fake_accelerator(monkeypatch)


EACH_CALL = ["record", "call", "record", "wait for event"]


@pytest.mark.parametrize(
    ("device", "before", "after"),
    [("cuda", ["on 0"], ["off 0"]), ("cuda:1", ["on 1"], ["off 1"]), ("mps", [], [])],
)
def test_events_lie_around_each_call_on_the_cases_device(
    accelerator: list[str], device: str, before: list[str], after: list[str]
) -> None:
    times = device_times(FakeCase(accelerator, device=device))
    assert accelerator == ["reset", *before, *EACH_CALL * EVENT_CALLS, *after]
    # Nanoseconds.
    assert times == tuple(number * 1_000_000 + 250_000 for number in range(EVENT_CALLS))


def test_device_times_come_after_the_rounds(
    accelerator: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = FakeCase(accelerator, device="cuda")
    timed = time_case(case, FakeBenchmark(accelerator), cold=False, first_of_process=False)
    assert len(timed.device_ns) == EVENT_CALLS
    rounds = ["benchmark", "call", "call"]
    assert accelerator[: -len(EACH_CALL) * EVENT_CALLS - 1] == [
        *["call"] * WARMUP_ITERATIONS,
        "reset",
        *rounds,
        "reset",
        "on 0",
    ]
