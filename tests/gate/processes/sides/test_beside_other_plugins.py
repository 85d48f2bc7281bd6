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
asyncio_default_fixture_loop_scope = function
timeout = 0.01
session_timeout = 0.01
"""


#: As pytest-codspeed registers itself: then marked tests are measured.
CODSPEED = """
class Codspeed:
    pass


def pytest_configure(config):
    config.pluginmanager.register(Codspeed(), "codspeed")
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """What one trial has measured of each case, by file and test; its sides load all plug-ins."""
    folder = tmp_path_factory.mktemp("beside")
    files = {
        "test_drawn.py": DRAWN,
        "test_asyncio.py": ASYNCIO,
        "test_anyio.py": ANYIO,
        "test_long.py": LONG,
    }
    plan = gate_builders.plan(folder, *files)
    for tree in plan.setup.trees.values():
        for name, text in {"pytest.ini": CONFIG, "conftest.py": CODSPEED, **files}.items():
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
        name = case.partition("::")[0]
        builds[name][case.rpartition("::test_")[2]] = build
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


ASYNCIO = """
import asyncio
from contextvars import ContextVar

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio
NAME = ContextVar("name")


@pytest_asyncio.fixture
async def awaited():
    await asyncio.sleep(0)
    yield 3
    await asyncio.sleep(0)


@pytest_asyncio.fixture
async def ask():
    questions = asyncio.Queue()

    async def answer():
        while True:
            (await questions.get()).set_result(3)

    async def ask():
        answered = asyncio.get_running_loop().create_future()
        await questions.put(answered)
        return await answered

    task = asyncio.create_task(answer())
    yield ask
    task.cancel()


async def test_sync(benchmark, awaited):
    await asyncio.sleep(0)
    assert benchmark(sum, [awaited]) == 3


async def test_awaited(benchmark, ask):
    assert await benchmark(ask) == 3
    assert 0 < benchmark.stats["mean"] < 60


async def test_lambda(benchmark, ask):
    assert await benchmark(lambda: ask()) == 3


async def test_future(benchmark, ask):
    assert await benchmark.pedantic(asyncio.ensure_future, setup=lambda: ((ask(),), {})) == 3


async def test_context(benchmark):
    async def name():
        return NAME.get()

    NAME.set("own")
    assert await benchmark(name) == "own"


@pytest.mark.benchmark
async def test_marked(ask):
    assert await ask() == 3


@pytest.mark.benchmark
class TestClass:
    async def test_method(self):
        await asyncio.sleep(0)


async def test_without_a_benchmark():
    raise RuntimeError
"""


def test_asynchronous_tests_are_measured_in_the_loop_of_pytest_asyncio(builds):
    names = {"sync", "awaited", "lambda", "future", "context", "marked", "method"}
    assert set(builds["test_asyncio.py"]) == names
    loops = {name: build[BASE]["loops"] for name, build in builds["test_asyncio.py"].items()}
    assert loops.pop("future") == 1
    assert min(loops.values()) > 1


ANYIO = """
import anyio
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def stream():
    sending, receiving = anyio.create_memory_object_stream(1)
    async with sending, receiving:
        yield sending, receiving


async def test_awaited(benchmark, stream):
    async def send_and_receive(number):
        sending, receiving = stream
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sending.send, number)
            return await receiving.receive()

    assert await benchmark(send_and_receive, 3) == 3
"""


def test_asynchronous_tests_are_measured_in_the_loop_of_anyio(builds):
    assert set(builds["test_anyio.py"]) == {"awaited"}


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
