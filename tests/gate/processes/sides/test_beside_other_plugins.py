"""The sides of plain tests beside plug-ins that act on each run of pytest."""

import gate_builders
import pytest
from inner_runs import ADDOPTS

from mnistbench.gate.processes.messages import Efforts
from mnistbench.gate.processes.starting import running_trial
from mnistbench.gate.words import BASE, HEAD

pytestmark = pytest.mark.versions


#: pytest-asyncio's own functions, and time limits of pytest-timeout that each trial exceeds.
CONFIG = """
[pytest]
asyncio_mode = auto
timeout = 0.01
session_timeout = 0.01
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """What one trial has measured of each case, by file and test; its sides load all plug-ins."""
    folder = tmp_path_factory.mktemp("beside")
    files = {"test_drawn.py": DRAWN, "test_async.py": ASYNC, "test_long.py": LONG}
    plan = gate_builders.plan(folder, *files)
    for tree in plan.setup.trees.values():
        for name, text in {"pytest.ini": CONFIG, **files}.items():
            (tree.root / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(ADDOPTS)
        result = gate_builders.surveyed(plan, folder)
        surveys = result.surveys
        few = Efforts(timed=0.1, profiled=0.1)
        with running_trial(result.trial_plan(), 1, None, folder / "log", efforts=few) as trial:
            builds_of_case = gate_builders.run_whole(trial).cases
    assert set(builds_of_case) == set(surveys.listings[HEAD].cases)
    builds = {name: {} for name in files}
    for case, [build] in builds_of_case.items():
        name, _, test = case.partition("::test_")
        builds[name][test] = build
    return builds


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


def test_the_sides_draw_the_same_under_pytest_randomly(builds):
    assert set(builds["test_drawn.py"]) == {"sums[1]", "sums[2]"}
    for build in builds["test_drawn.py"].values():
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


def test_benchmarks_beside_asynchronous_tests_and_with_their_fixtures(builds):
    assert set(builds["test_async.py"]) == {"fixture", "inside", "own_loop"}


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


def test_time_limits_of_a_single_run_end_no_trial(builds):
    assert set(builds["test_long.py"]) == {"signal", "signal_in_the_call", "thread", "configured"}
