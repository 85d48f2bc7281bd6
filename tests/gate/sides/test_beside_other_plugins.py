"""The sides of plain tests beside plug-ins that act on each run of pytest."""

from dataclasses import replace

import gate_builders
import pytest
from inner_runs import ADDOPTS

from mnistbench.gate.launcher import launching
from mnistbench.gate.messages import Efforts
from mnistbench.gate.surveying import survey_in_processes
from mnistbench.gate.words import BASE, HEAD

pytestmark = pytest.mark.versions


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """The plan of a gate whose sides load all plug-ins."""
    monkeypatch.delenv(ADDOPTS)
    return gate_builders.plan(tmp_path, "test_own.py")


def measured(plan, tmp_path, ini, tests):
    """Write the same project on both sides; return what one launch has measured of each case."""
    for tree in plan.trees.values():
        (tree.root / "pytest.ini").write_text(f"[pytest]\n{ini}")
        (tree.root / "test_own.py").write_text(tests)
    plan = replace(plan, efforts=Efforts(timed=0.1, profiled=0.1))
    plan, surveys = survey_in_processes(plan, 1, "", tmp_path / "log")
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        builds_of_case = launch.measure().cases
    assert set(builds_of_case) == set(surveys.listings[HEAD].cases)
    return {
        case.removeprefix("test_own.py::test_"): build for case, [build] in builds_of_case.items()
    }


DRAWN = """
import random

import pytest


@pytest.fixture(scope="module")
def shared():
    return random.random()


@pytest.fixture
def own():
    return random.random()


@pytest.mark.parametrize("number", [1, 2])
def test_sums(benchmark, shared, own, number):
    benchmark(sum, [shared, own, random.random()])
"""


def test_the_sides_draw_the_same_under_pytest_randomly(plan, tmp_path):
    cases = measured(plan, tmp_path, "", DRAWN)
    assert set(cases) == {"sums[1]", "sums[2]"}
    for build in cases.values():
        assert build[BASE]["outcome"] == build[HEAD]["outcome"]


ASYNC = """
import asyncio

import pytest


@pytest.fixture
async def awaited():
    await asyncio.sleep(0)
    yield 3
    await asyncio.sleep(0)


def test_fixture(benchmark, awaited):
    assert benchmark(sum, [awaited]) == 3


async def test_inside(benchmark, awaited):
    await asyncio.sleep(0)
    assert benchmark(sum, [awaited]) == 3


def test_own_loop(benchmark):
    async def work():
        await asyncio.sleep(0)
        return 3

    assert benchmark(lambda: asyncio.run(work())) == 3


async def test_without_a_benchmark():
    raise RuntimeError
"""


def test_benchmarks_beside_asynchronous_tests_and_with_their_fixtures(plan, tmp_path):
    cases = measured(plan, tmp_path, "asyncio_mode = auto\n", ASYNC)
    assert set(cases) == {"fixture", "inside", "own_loop"}


LONG = """
import pytest

@pytest.fixture
def numbers():
    return list(range(1000))


@pytest.mark.timeout(0.01, method="signal")
def test_signal(benchmark, numbers):
    benchmark(sorted, numbers)


@pytest.mark.timeout(0.01, method="signal", func_only=True)
def test_signal_in_the_call(benchmark, numbers):
    benchmark(sorted, numbers)


@pytest.mark.timeout(0.01, method="thread")
def test_thread(benchmark, numbers):
    benchmark(sorted, numbers)


def test_configured(benchmark, numbers):
    benchmark(sorted, numbers)
"""


def test_time_limits_of_a_single_run_end_no_launch(plan, tmp_path):
    cases = measured(plan, tmp_path, "timeout = 0.01\nsession_timeout = 0.01\n", LONG)
    assert set(cases) == {"signal", "signal_in_the_call", "thread", "configured"}
