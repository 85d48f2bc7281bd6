"""What a lab measures.

Memory that does not suffice is one line, a training curve has as many points as it may.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mnistbench.core.errors import UsageError
from mnistbench.course.lab import measures
from mnistbench.course.lab.lab_file import LabSettings
from mnistbench.course.lab.measures import Measures
from mnistbench.suite.profile import run as profile_run

SETTINGS = LabSettings("digits", (1, 64), ("cpu",), 1, "convnet", 1)


@pytest.mark.parametrize(
    "part",
    [
        lambda measuring: measuring.epoch("train", "cpu", 1, 64),
        # Held all at once.
        lambda measuring: measuring.iterations(
            [("step", "cpu", 1, 1), ("step", "cpu", 1, 64)], lambda _: None
        ),
    ],
)
def test_memory_that_does_not_suffice_is_one_line(
    monkeypatch: pytest.MonkeyPatch, part: Callable[[Measures], object]
) -> None:
    def build(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measures, "build", build)
    with pytest.raises(
        UsageError,
        match=r"^memory of cpu does not suffice for batches of 64: choose a smaller batch size$",
    ):
        part(Measures(SETTINGS))


@pytest.mark.parametrize(
    ("samples", "size"), [(1437, 1), (1437, 16), (1437, 64), (1437, 50), (60_000, 64), (10, 64)]
)
def test_a_training_curve_has_no_more_points_an_epoch_than_it_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, samples: int, size: int
) -> None:
    asked = []

    def train(settings: Any, *_: Any) -> SimpleNamespace:
        asked.append(settings)
        return SimpleNamespace(epochs=(), notes=())

    monkeypatch.setattr(measures, "train", train)
    monkeypatch.setattr(Measures, "samples", lambda _: (samples, 10))
    Measures(SETTINGS).training("cpu", 1, size, tmp_path / "tensorboard" / "run", lambda _: None)
    batches = math.ceil(samples / size)
    assert 1 <= math.ceil(batches / asked[0].log_interval) <= 20
    assert asked[0].log_interval == 1 or math.ceil(batches / (asked[0].log_interval - 1)) > 20


def test_a_profiled_case_is_not_timed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """``iterations`` times the same case."""
    asked: list[object] = []
    monkeypatch.setattr(profile_run, "time_calls", asked.append)
    monkeypatch.setattr(profile_run, "ceilings_of", lambda *_: None)
    settings = LabSettings("digits", (1,), ("cpu",), 1, "lenet5", 1)
    monkeypatch.setattr(Measures, "profiled_iterations", 2)
    profiled_case = Measures(settings).profiled("forward", "cpu", 1, 1, None)
    assert (asked, len(profiled_case.tables[0].iteration_ns)) == ([], 2)


class CountingCase:
    """A case that counts its iterations since the last reset."""

    samples = whole_set = 1440

    def __init__(self, params: Any, *_: Any) -> None:
        self.params = params
        self.since_reset = 0
        self.blocks: list[int] = []  # iterations before each reset

    def __call__(self) -> None:
        self.since_reset += 1

    def reset(self) -> None:
        self.blocks.append(self.since_reset)
        self.since_reset = 0


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> list[CountingCase]:
    """All cases that are built, in their order."""
    built: list[CountingCase] = []

    def build(*arguments: Any) -> CountingCase:
        built.append(CountingCase(*arguments))
        return built[-1]

    monkeypatch.setattr(measures, "build", build)
    return built


def test_every_timed_block_starts_from_the_initial_state(
    monkeypatch: pytest.MonkeyPatch, cases: list[CountingCase]
) -> None:
    """Otherwise batch sizes would be compared after different numbers of optimizer steps."""
    monkeypatch.setattr(Measures, "least", 64)
    monkeypatch.setattr(Measures, "most", 64)
    warm_times = Measures(SETTINGS).iterations(
        [("step", "cpu", 1, 1), ("step", "cpu", 1, 64)], lambda _: None
    )
    assert [len(time.times_ns) for time in warm_times] == [64, 64]
    for case in cases:
        assert case.since_reset == 1 + 64 // 8  # one untimed iteration, then the block
        assert max(case.blocks) == 1 + 64 // 8


def test_the_time_that_other_programs_had_the_core_is_measured(
    monkeypatch: pytest.MonkeyPatch, cases: list[CountingCase]
) -> None:
    """Every reading of the queue is 3 us later, every other one of the clock 10 us."""
    queue = itertools.count(0, 3_000)
    clock = itertools.count(0, 10_000)
    fake_clock = SimpleNamespace(wall_ns=lambda: next(clock), queued_ns=lambda: next(queue))
    monkeypatch.setattr(measures, "Clock", fake_clock)
    [warm_time] = Measures(SETTINGS).iterations([("step", "cpu", 1, 1)], lambda _: None)
    assert len(cases) == 1
    assert warm_time.queued_share == pytest.approx(0.3)


def test_every_timed_epoch_starts_from_the_initial_state(cases: list[CountingCase]) -> None:
    warm_time = Measures(SETTINGS).epoch("train", "cpu", 1, 64)
    assert len(warm_time.times_ns) == Measures.epochs == 2
    assert cases[-1].blocks == [0, 1]
