"""In which order a case is called, what is left on it, and how an accelerator's clock is read."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders import op_table
from torch_builders import tiny_params

from mnistbench.measuring import passes, timing
from mnistbench.measuring.passes import EVENT_CALLS, Timed, device_times, measure
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Sample, clocked

pytestmark = pytest.mark.versions


class FakeCase:
    """Keeps what was done with it, and in which order."""

    def __init__(self, log: list[str], *, runner: object = object(), device: str = "cpu") -> None:
        self.log = log
        self.runner = runner
        self.params = tiny_params(device=device)

    def __call__(self) -> None:
        self.log.append("call")

    def reset(self) -> None:
        self.log.append("reset")


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

    monkeypatch.setattr(passes, "profile_first_call", profile_first_call)
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
    timed = measure(FakeCase(log), FakeBenchmark(log), cold=cold, first_of_process=first)
    assert log == [*profiled, *["call"] * WARMUP_ITERATIONS, "reset", "benchmark", "call", "call"]
    assert timed.first_call == (op_table(temperature="cold") if cold else None)


def test_a_case_without_operations_is_only_timed(log: list[str]) -> None:
    case = FakeCase(log, runner=None)
    timed = measure(case, FakeBenchmark(log), cold=True, first_of_process=True)
    assert log == ["benchmark", "call", "call"]
    assert timed.first_call is None
    assert timed.rounds_ns == (250_000_000, 125_000_000)


def test_rounds_are_in_nanoseconds(log: list[str]) -> None:
    case = FakeCase(log)
    benchmark = FakeBenchmark(log, seconds=(0.0015, 1.24e-8, 3.0))
    timed = measure(case, benchmark, cold=True, first_of_process=True)
    assert not benchmark.has_error
    assert timed.rounds_ns == (1_500_000, 12.4, 3_000_000_000)
    assert timed.device_ns == ()


def test_where_benchmarks_are_disabled_the_case_runs_once(log: list[str]) -> None:
    case = FakeCase(log)
    assert (
        measure(case, FakeBenchmark(log, enabled=False), cold=True, first_of_process=True)
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
        measure(case, benchmark, cold=True, first_of_process=True)
    assert raised.value is error
    assert benchmark.has_error


# ---- The accelerator's clock ---------------------------------------------------------------------


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An accelerator whose n-th pair of events lies n + 0.25 milliseconds apart.

    Returns what happens on it.
    """
    happened: list[str] = []
    timed = iter(range(1_000))

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            happened.append("record")

        def synchronize(self) -> None:
            happened.append("wait for event")

        def elapsed_time(self, end: Event) -> float:
            return next(timed) + 0.25

    @contextmanager
    def on(index: int) -> Iterator[None]:
        happened.append(f"on {index}")
        yield
        happened.append(f"off {index}")

    def get_device_module(device: torch.device) -> Any:
        assert device.type in ("cuda", "mps")
        return SimpleNamespace(Event=Event, device=on)

    monkeypatch.setattr(torch, "get_device_module", get_device_module)
    return happened


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
    timed = measure(case, FakeBenchmark(accelerator), cold=False, first_of_process=False)
    assert len(timed.device_ns) == EVENT_CALLS
    rounds = ["benchmark", "call", "call"]
    assert accelerator[: -len(EACH_CALL) * EVENT_CALLS - 1] == [
        *["call"] * WARMUP_ITERATIONS,
        "reset",
        *rounds,
        "reset",
        "on 0",
    ]


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
