"""The arithmetic of scaling, on times made by hand."""

from __future__ import annotations

import json

import pytest
from scale_builders import launched, scaling

from mnistbench.core.reading import read_text
from mnistbench.suite.train.scale.result import Launched


def test_a_step_takes_as_long_as_its_slowest_rank() -> None:
    launch = Launched(
        batch_sizes=(3, 2), step_ns=((10, 40, 30), (20, 10, 30)), no_sync_ns=((5, 5, 9), (8, 8, 8))
    )
    assert launch.slowest_ns == (20, 40, 30)
    assert (launch.ranks, launch.typical_ns, launch.quartiles_ns) == (2, 30, (25, 35))
    assert launch.of_each_rank_ns == (30, 20)
    assert launch.samples_per_s == pytest.approx(5 / 30e-9)
    assert (launch.no_sync_typical_ns, launch.exposed_ns) == (8, 22)
    assert launch.exposed_share == pytest.approx(22 / 30)


def test_one_rank_communicates_nothing() -> None:
    assert launched(1, 80).exposed_ns is launched(1, 80).exposed_share is None


def test_strong_scaling() -> None:
    result = scaling(cores=4)
    single, two, four = result.launches
    assert [result.speedup(launch) for launch in (single, two, four)] == pytest.approx(
        [1, 80 / 50, 80 / 60]
    )
    assert [result.efficiency(launch) for launch in (single, two, four)] == pytest.approx(
        [1, 80 / (2 * 50), 80 / (4 * 60)]
    )


def test_weak_scaling() -> None:
    result = scaling(launched(1, 80), launched(2, 100, 90, samples=128), weak=True)
    _, two = result.launches
    assert result.speedup(two) == pytest.approx((128 / 100) / (64 / 80))
    assert result.efficiency(two) == pytest.approx((128 / 100) / (2 * 64 / 80))


@pytest.mark.parametrize(
    ("cores", "threads", "device", "marked"),
    [
        (4, 1, "cpu", [False, False, False]),
        (2, 1, "cpu", [False, False, True]),
        (2, 2, "cpu", [False, True, True]),
        (1, 1, "cuda", [False, False, False]),
    ],
)
def test_more_threads_than_cores_have_no_efficiency(
    cores: int, threads: int, device: str, marked: list[bool]
) -> None:
    result = scaling(cores=cores, threads=threads, device=device)
    assert [result.oversubscribed(launch) for launch in result.launches] == marked
    assert [result.efficiency(launch) is None for launch in result.launches] == marked


def test_without_one_rank_there_is_no_efficiency() -> None:
    result = scaling(launched(2, 50, 45))
    assert (
        result.alone
        is result.speedup(result.launches[0])
        is result.efficiency(result.launches[0])
        is None
    )


def test_a_launch_is_read_back() -> None:
    launch = launched(2, 50, 45)
    assert read_text(json.dumps(vars(launch)), Launched) == launch
