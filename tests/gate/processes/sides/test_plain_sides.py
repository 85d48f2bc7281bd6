"""Tests with pytest-benchmark's own fixture, unmodified, in the processes of both sides.

None of these projects has torch. Most are files of one suite, which is surveyed and measured once.
"""

import contextlib
import importlib.util
import itertools
import os
import platform
import re
import shutil
import signal
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import gate_builders
import pytest
from bare_environments import linked_environment, other_python
from inner_runs import ADDOPTS

from mnistbench.core.params import params_of_call
from mnistbench.gate.listing import OTHER_ID, OTHER_PARAMETERS, ListedCase, Listings
from mnistbench.gate.processes import starting
from mnistbench.gate.processes.messages import Efforts, Selection
from mnistbench.gate.processes.starting import GateError, TrialPlan, TrialResult, running_trial
from mnistbench.gate.samples.raw_samples import Shard
from mnistbench.gate.survey.surveying import collect_again
from mnistbench.gate.words import BASE, HEAD, MIN_PAIRS, PYTHON

TESTS = """
import random
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def numbers():
    return list(range(100))


@pytest.mark.parametrize("factor", [1, 2])
def test_sum(benchmark, numbers, factor):
    assert benchmark(lambda: sum(numbers) * factor) == 4950 * factor


class TestClass:
    def test_pedantic(self, benchmark):
        def setup():
            return ([3, 1, 2],), {}

        benchmark.pedantic(list.sort, setup=setup, rounds=3)


@pytest.fixture
def autouse_style(benchmark):
    return benchmark


def test_decorated(autouse_style):
    @autouse_style
    def result():
        return {"a": [1.5]}

    assert result == {"a": [1.5]}


def test_without_a_fixture():
    Path("ran").touch()
"""

#: Iterations of a trial whose times nobody reads.
FEW_ITERATIONS = Efforts(timed=0.1, profiled=0.1)


def write(plan, files):
    """Write the same files on both sides."""
    for tree, (name, text) in itertools.product(plan.setup.trees.values(), files.items()):
        (tree.root / name).parent.mkdir(exist_ok=True)
        (tree.root / name).write_text(text)


def planned(folder, files, ini="filterwarnings = error\n"):
    """The plan of a gate whose sides have the same files; all but conftest.py are measured."""
    names = [name for name in files if name != "conftest.py"]
    plan = gate_builders.plan(folder, *names)
    write(plan, {"pytest.ini": f"[pytest]\n{ini}", **files})
    return plan


@pytest.fixture
def plan(tmp_path):
    return planned(tmp_path, {"test_own.py": TESTS})


def surveyed(plan, folder, **changes):
    result = gate_builders.surveyed(plan, folder, **changes)
    return result.trial_plan(), result.surveys.listings


def trial_result(plan, folder, seed=1, only=None, cores=()):
    """Return what a trial has measured."""
    with running_trial(plan, seed, only, folder / "log", cores, efforts=FEW_ITERATIONS) as trial:
        return gate_builders.run_whole(trial)


def why_trial_fails(plan, folder, seed=1):
    """Return why a trial fails while it measures."""
    with running_trial(plan, seed, None, folder / "log", efforts=FEW_ITERATIONS) as trial:
        trial.ready()
        with pytest.raises(GateError) as raised:
            trial.measure()
    return str(raised.value)


def entries(file, mapping):
    """Return what a mapping by node id has of a file, by the names of the tests."""
    return {
        node_id.removeprefix(f"{file}::"): value
        for node_id, value in mapping.items()
        if node_id.startswith(f"{file}::")
    }


# ---- One suite -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suite:
    """A project on both sides, its survey and a trial of it."""

    folder: Path
    plan: TrialPlan
    listings: Listings
    trial: TrialResult


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Files with plain tests; the text of each is just above the tests of what is found in it.

    The trial has another hash seed than the survey, and the cases of the files whose measurement
    is tested. Warnings are errors.
    """
    folder = tmp_path_factory.mktemp("suite")
    timed = {
        "test_own.py": TESTS,
        "test_unstable.py": UNSTABLE,
        "test_paths.py": PATHS,
        "test_parallel.py": PARALLEL,
        "test_prints.py": PRINTING,
        "test_awaited.py": AWAITED,
    }
    surveyed_only = {
        "test_odd.py": ODD,
        "test_skipped.py": SKIPPED.format("# benchmark"),
        "test_skipped_without_cases.py": SKIPPED.format(""),
        "test_results.py": RESULTS,
        "test_lazy.py": LAZY,
        "test_once.py": ONCE,
        "test_thresholds.py": THRESHOLDS,
        "test_marked.py": MARKED.replace("codspeed_benchmark", "benchmark"),
    }
    plan, listings = surveyed(planned(folder, {**timed, **surveyed_only}), folder)
    cases = [case for case in listings[BASE].cases if case.partition("::")[0] in timed]
    cases.remove(NOT_MEASURED)
    cores = sorted(os.sched_getaffinity(0))
    return Suite(folder, plan, listings, trial_result(plan, folder, 2, cases, cores))


def test_plain_tests_are_found_without_torch(suite):
    listings = suite.listings
    base = entries("test_own.py", listings[BASE].cases)
    head = entries("test_own.py", listings[HEAD].cases)
    names = ["TestClass::test_pedantic", "test_decorated", "test_sum[1]", "test_sum[2]"]
    assert sorted(head) == names
    varying = ("seconds", "setup_s", "look_ns", "look_loops", "peak_bytes")
    assert base == {
        name: replace(case, **{field: getattr(base[name], field) for field in varying})
        for name, case in head.items()
    }
    assert listings[BASE].loading_s > 0
    of_process = {
        "cases": listings[BASE].cases,
        "resident": listings[BASE].resident,
        "growth_bytes": listings[BASE].growth_bytes,
        "loading_s": listings[BASE].loading_s,
        "importing_s": listings[BASE].importing_s,
        "framework_s": listings[BASE].framework_s,
        "loaded_bytes": listings[BASE].loaded_bytes,
    }
    assert listings[BASE] == replace(listings[HEAD], **of_process)
    assert listings[HEAD].frameworks == {}
    assert not suite.plan.frameworks
    assert entries("test_own.py", listings[HEAD].left_out) == {}
    assert not (suite.folder / HEAD / "ran").exists()
    for name, listed in head.items():
        case = f"test_own.py::{name}"
        params = asdict(params_of_call(case, "cpu", 1))
        assert listed.seconds > 0
        assert listed.setup_s > 0
        assert listed.look_ns > 0
        assert listed.look_loops > 0
        assert listed.result
        measured = {
            "returns": listed.returns,
            **{field: getattr(listed, field) for field in varying},
            "parameters": listed.parameters,
            "result": listed.result,
        }
        # Files that are skipped as a whole are read while tests are collected, for all.
        sources = ("test_own.py", "test_skipped.py", "test_skipped_without_cases.py")
        assert listed == ListedCase(case, params, sources=sources, **measured)
    returned = {name: listed.returns for name, listed in head.items()}
    assert returned == dict(zip(names, ("NoneType", "dict", "int", "int"), strict=True))


def test_plain_tests_are_measured_in_turn_and_in_blocks(suite):
    cases = entries("test_own.py", suite.trial.cases)
    assert cases.keys() == entries("test_own.py", suite.listings[HEAD].cases).keys()
    for [build] in cases.values():
        base = build[BASE]
        head = build[HEAD]
        assert base["outcome"] == head["outcome"]
        assert base["loops"] == head["loops"]
        assert len(base["wall_ns"]) == len(head["wall_ns"]) >= MIN_PAIRS
        assert len(base["block_ns"]) == len(head["block_ns"]) >= MIN_PAIRS
        assert "keys" not in base
    loops = {name: build[BASE]["loops"] for name, [build] in cases.items()}
    assert loops.pop("TestClass::test_pedantic") == 1
    assert min(loops.values()) > 100


ODD = """
import random
from pathlib import Path

import pytest


def test_changes(benchmark):
    benchmark([3, 1, 2].append, 1)


def test_random(benchmark):
    benchmark(random.SystemRandom().random)


def test_object(benchmark):
    benchmark(object)


@pytest.mark.skip(reason="not today")
def test_skipped(benchmark):
    benchmark(int)


@pytest.mark.xfail(reason="wrong")
def test_expected(benchmark):
    assert benchmark(int) == 1


def test_value(request):
    request.getfixturevalue("benchmark")(int)


def test_skips_inside(benchmark):
    benchmark(lambda: pytest.skip("inside"))


def test_weaves(benchmark):
    benchmark.weave("pathlib.Path.cwd")


@pytest.mark.filterwarnings("ignore")  # pytest-benchmark warns of a fixture that is not used
def test_never_calls(benchmark):
    pass


def test_folder(benchmark, tmp_path):
    Path("folder").write_text(str(tmp_path))
    benchmark(int)
"""

SKIPPED = """
import pytest

pytest.skip("not here", allow_module_level=True)
{}
"""


def test_each_test_that_is_not_measured_as_usual_has_a_sentence(suite):
    left_out = suite.listings[HEAD].left_out
    assert left_out["test_skipped.py"] == "is skipped: not here"
    assert "test_skipped_without_cases.py" not in left_out
    assert entries("test_odd.py", left_out) == {
        "test_value": "gets its fixture from request.getfixturevalue; name it as an argument",
        "test_skipped": "is skipped: not today",
        "test_expected": "xfails: wrong",
        "test_skips_inside": "is skipped: inside",
        "test_weaves": "is skipped: benchmark.weave cannot be measured",
        "test_never_calls": "does not call its benchmark fixture",
    }
    cases = entries("test_odd.py", suite.listings[HEAD].cases)
    assert {name: case.uncompared for name, case in cases.items()} == {
        "test_changes": "",
        "test_random": "returns something else at each call",
        "test_object": "returns object",
        "test_folder": "",
    }
    notes = {name: case.note.partition(", ")[0] for name, case in cases.items() if case.note}
    assert notes == {"test_changes": "changes its arguments"}


def test_each_side_has_its_own_temporary_folder(suite):
    base, head = (Path((suite.folder / side / "folder").read_text()) for side in (BASE, HEAD))
    # pytest makes `pytest-of-NAME/pytest-N/test_folder0` in it, and removes older N.
    assert base.parents[2] != head.parents[2]


RESULTS = """
import time
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    name: str
    parent: "Node | None" = None
    children: list["Node"] = field(default_factory=list)


def parse(text):
    root = Node("root")
    root.children = [Node(word, root) for word in text.split()]
    return root


@dataclass
class Lazy:
    rows: int

    def __getattribute__(self, name):
        if name == "rows":
            time.sleep(600)
        return super().__getattribute__(name)


class Rows(dict):
    def items(self):
        raise KeyboardInterrupt


class Query:
    def __getattr__(self, name):
        raise SystemExit

    def __iter__(self):
        while True:
            yield self


class Function:
    def __call__(self):
        return 1

    def __getattr__(self, name):
        raise RuntimeError("the database is closed")


def test_tree(benchmark):
    benchmark(parse, "one two three four five six seven eight nine ten")


def test_cycle(benchmark):
    ring = []
    ring += [ring, ring]
    benchmark(len, ring)


def test_lazy(benchmark):
    benchmark(Lazy, 1)


def test_rows(benchmark):
    benchmark(Rows, a=1)


def test_query(benchmark):
    benchmark(Query)


def test_function(benchmark):
    benchmark(Function())
"""


def test_results_and_arguments_are_read_without_code_of_the_user(suite):
    for side in (BASE, HEAD):
        cases = entries("test_results.py", suite.listings[side].cases)
        expected = dict.fromkeys(("tree", "cycle", "lazy", "rows", "function"), "")
        assert {
            name.removeprefix("test_"): listed.uncompared for name, listed in cases.items()
        } == {**expected, "query": "returns test_results.Query"}
        assert not any(listed.note for listed in cases.values())


LAZY = """
import asyncio

import pytest


async def work():
    return 1


def lazy():
    yield 1


def test_coroutine(benchmark):
    assert asyncio.run(benchmark(lambda: work())) == 1


def test_generator(benchmark):
    assert list(benchmark.pedantic(lazy, rounds=3)) == [1]


def test_warmed_up(benchmark):
    coroutine = benchmark.pedantic(lambda: work(), rounds=3, warmup_rounds=5)
    coroutine.close()


def test_whole(benchmark):
    assert benchmark(lambda: asyncio.run(work())) == 1
"""


def test_a_test_whose_function_only_creates_its_work_is_not_measured(suite):
    listing = suite.listings[HEAD]  # warnings are errors: nothing is left that was never awaited
    assert list(entries("test_lazy.py", listing.cases)) == ["test_whole"]
    reasons = entries("test_lazy.py", listing.unmeasurable)
    assert {name: why.partition(", ")[0] for name, why in reasons.items()} == {
        "test_coroutine": "its function only creates a coroutine",
        "test_generator": "its function only creates a generator",
        "test_warmed_up": "its function only creates a coroutine",
    }
    assert entries("test_lazy.py", listing.left_out) == {}


AWAITED = """
import asyncio


async def work(number=3):
    await asyncio.sleep(0)
    return number


class Work:
    async def __call__(self):
        asyncio.create_task(asyncio.sleep(0.01))
        return 3


def test_run(benchmark):
    assert asyncio.run(benchmark(work)) == 3


def test_own_loop(benchmark):
    with asyncio.Runner() as runner:
        queue = runner.run(queue_of(3))

        async def put_back():
            number = await queue.get()
            await queue.put(number)
            return number

        assert runner.run(benchmark(put_back)) == 3


async def queue_of(number):
    queue = asyncio.Queue()
    await queue.put(number)
    return queue


def test_pedantic(benchmark):
    ended = []

    def setup():
        asyncio.get_running_loop()
        return (4,), {}

    assert asyncio.run(benchmark.pedantic(work, setup=setup, teardown=ended.append)) == 4
    assert set(ended) == {4}


def test_not_awaited(benchmark):
    benchmark(work)


def test_leaves_a_task(benchmark):
    asyncio.run(benchmark(Work()))


def test_forgets(benchmark):
    async def main():
        benchmark(work)

    asyncio.run(main())
"""


def test_coroutine_functions_are_awaited_in_the_loop_of_their_test(suite):
    listing = suite.listings[HEAD]
    cases = entries("test_awaited.py", listing.cases)
    names = ["test_leaves_a_task", "test_own_loop", "test_pedantic", "test_run"]
    assert sorted(cases) == names
    assert {case.returns for case in cases.values()} == {"int"}
    assert not any(case.uncompared or case.parallel for case in cases.values())
    assert {name: case.outlives for name, case in cases.items() if case.outlives} == {
        "test_leaves_a_task": ("1 task goes on after the call returns, and its work is not timed")
    }
    forgotten = (
        "does not await its benchmark; write: await benchmark(...), or in a function that is no "
        "coroutine: asyncio.run(benchmark(...))"
    )
    assert entries("test_awaited.py", listing.left_out) == {
        "test_forgets": forgotten,
        "test_not_awaited": forgotten,
    }
    trial = entries("test_awaited.py", suite.trial.cases)
    assert sorted(trial) == names
    for [build] in trial.values():
        assert build[BASE]["outcome"] == build[HEAD]["outcome"]
    loops = {name: build[HEAD]["loops"] for name, [build] in trial.items()}
    assert loops.pop("test_pedantic") == 1
    assert min(loops.values()) > 1


UNSTABLE = """
import pytest

LETTERS = frozenset("abcdefgh")


@pytest.mark.parametrize("letters", [LETTERS], ids=lambda letters: "".join(letters))
def test_order(benchmark, letters):
    benchmark(len, letters)


@pytest.mark.parametrize("pair", {(letter, letter) for letter in "abcdefgh"})
def test_swapped(benchmark, pair):
    benchmark(len, pair)


@pytest.mark.parametrize("letter", LETTERS)
def test_named(benchmark, letter):
    benchmark(len, letter)
"""


def test_a_trial_with_another_hash_seed_measures_only_what_it_finds_again(suite):
    listed = entries("test_unstable.py", suite.listings[BASE].cases)
    assert len(listed) == 17
    measured = entries("test_unstable.py", suite.trial.cases)
    unmeasurable = entries("test_unstable.py", suite.trial.unmeasurable)
    [order] = [name for name in listed if "test_order" in name]
    assert unmeasurable[order] == OTHER_ID
    moved = {name for name, why in unmeasurable.items() if why == OTHER_PARAMETERS}
    assert moved
    assert all("test_swapped[pair" in name for name in moved)
    assert measured.keys() >= {f"test_named[{letter}]" for letter in "abcdefgh"}
    assert {*measured, *unmeasurable} == {*listed}


def test_a_trial_without_a_case_that_it_finds_again_ends_with_the_reason(suite):
    [order] = [case for case in suite.listings[BASE].cases if "test_order" in case]
    with (
        pytest.raises(GateError, match="its id differs between processes"),
        running_trial(suite.plan, 2, [order], suite.folder / "log") as trial,
    ):
        trial.ready()


def test_another_process_with_the_hash_seed_of_the_survey_finds_the_same_parameters(suite):
    again = collect_again(suite.plan, 1, suite.folder / "log")
    assert again[HEAD].items() >= suite.plan.parameters[HEAD].items()


PATHS = """
from pathlib import Path

import pytest


FOLDER = Path(__file__).parent


@pytest.mark.parametrize("path", [FOLDER / "data/one.txt", FOLDER], ids=str)
def test_path(benchmark, path):
    benchmark(path.exists)


@pytest.mark.skip
@pytest.mark.parametrize("path", [__file__])
def test_skipped(benchmark, path):
    benchmark(int)
"""


#: A case that the trial of the suite does not have: it selects the other one by its id.
NOT_MEASURED = "test_paths.py::test_path[<tree>]"


def test_a_test_whose_id_has_a_path_of_its_tree_is_the_same_case_on_both_sides(suite):
    names = ["test_path[<tree>/data/one.txt]", "test_path[<tree>]"]
    for side in (BASE, HEAD):
        cases = entries("test_paths.py", suite.listings[side].cases)
        assert list(cases) == names
        assert [case.label for case in cases.values()] == [
            f"test_paths.py::{name}" for name in names
        ]
        left_out = entries("test_paths.py", suite.listings[side].left_out)
        assert list(left_out) == ["test_skipped[<tree>/test_paths.py]"]
    assert list(entries("test_paths.py", suite.trial.cases)) == names[:1]


ONCE = """
import functools
import time

import pytest


@functools.cache
def cached():
    time.sleep(0.02)


@pytest.mark.parametrize("rounds", [1, 2])
def test_cached(benchmark, rounds):
    cached.cache_clear()
    benchmark.pedantic(cached, rounds=rounds)


def test_warm(benchmark):
    cached.cache_clear()
    benchmark.pedantic(cached, rounds=1, warmup_rounds=1)


def test_alike(benchmark):
    benchmark.pedantic(time.sleep, args=(0.2,), rounds=1)


def test_setup(benchmark):
    benchmark.pedantic(cached, setup=cached.cache_clear, rounds=1)
"""


def test_the_first_iteration_counts_if_the_second_call_has_less_to_do(suite):
    cases = entries("test_once.py", suite.listings[HEAD].cases)
    noted = {name: listed.note for name, listed in cases.items() if listed.note}
    assert list(noted) == ["test_cached[1]"]
    assert re.fullmatch(
        (
            r"asks for one round, and its second call took [\d.]+ [a-z]+ instead of [\d.]+ ms, so "
            r"only its first iteration counts"
        ),
        *noted.values(),
    )


PARALLEL = """
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest


def note_cores(name):
    with Path(name).open("a") as stream:
        stream.write(f"{len(os.sched_getaffinity(0))} ")


@pytest.fixture
def server():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield
        process.stdin.close()


def test_alone(benchmark, server):
    benchmark(note_cores, "alone")


def test_pool(benchmark):
    def work():
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(note_cores, ["pool"] * 2))

    benchmark(work)


def test_process(benchmark):
    benchmark(subprocess.run, ["sh", "-c", "exit"])


def test_kept(benchmark):
    with ThreadPoolExecutor(2) as pool:
        def work():
            until = time.perf_counter() + 0.02

            def draw(seed):
                while time.perf_counter() < until:
                    os.urandom(2**20)

            list(pool.map(draw, range(2)))

        work()
        benchmark(work)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_test_that_uses_more_than_one_core_is_measured_on_all(suite):
    parallel = {"test_pool", "test_process", "test_kept"}
    assert suite.plan.parallel == {f"test_parallel.py::{name}" for name in parallel}
    listed = entries("test_parallel.py", suite.listings[HEAD].cases)
    assert not listed["test_alone"].parallel
    assert listed["test_pool"].note.startswith("uses more than one core, ")
    # What the trial has written comes last.
    cores_of_alone = (suite.folder / HEAD / "alone").read_text().split()
    cores_of_pool = (suite.folder / HEAD / "pool").read_text().split()
    assert "1" in cores_of_alone
    assert set(cores_of_pool[-4:]) == {str(len(os.sched_getaffinity(0)))}
    for name, [build] in entries("test_parallel.py", suite.trial.cases).items():
        for columns in build.values():
            is_on_one_core = name not in parallel
            assert bool(columns["block_ns"]) == bool(columns["cpu_ns"]) == is_on_one_core


THRESHOLDS = """
import pytest

pytestmark = pytest.mark.opgate("10%", "aten::mm:5%", case="3%")


def test_of_the_file(benchmark):
    benchmark(int)


@pytest.mark.opgate(case="4%")
def test_own(benchmark):
    benchmark(int)
"""


def test_thresholds_are_those_of_the_closest_mark_in_the_head(suite):
    thresholds = {
        side: {
            name: (case.op_fail, case.case_fail)
            for name, case in entries("test_thresholds.py", suite.listings[side].cases).items()
        }
        for side in (BASE, HEAD)
    }
    assert thresholds == {
        BASE: dict.fromkeys(("test_of_the_file", "test_own"), ((), "")),
        HEAD: {"test_of_the_file": (("10%", "aten::mm:5%"), "3%"), "test_own": ((), "4%")},
    }


#: Prints lines that look like messages of a side, into all streams that a test can reach.
PRINTING = """
import os
import subprocess
import sys

TEXT = '{"error": "printed by a test"}\\n' * 20_000


def test_prints(benchmark):
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        stream.write(TEXT)
        stream.flush()
    os.write(1, TEXT.encode())
    subprocess.run([sys.executable, "-S", "-c", f"print({TEXT[:31]!r} * 20_000)"], check=True)
    benchmark(print, TEXT[:31])
"""


def test_megabytes_that_a_test_prints_are_no_messages_of_its_side(suite):
    assert list(entries("test_prints.py", suite.listings[HEAD].cases)) == ["test_prints"]
    assert list(entries("test_prints.py", suite.trial.cases)) == ["test_prints"]
    for side in (BASE, HEAD):
        # Nothing is lost of what the survey and the trial have printed, five times each.
        assert (suite.folder / f"log-{side}").stat().st_size > 2 * 5 * 20_000 * 31


def test_without_pytest_codspeed_a_mark_alone_makes_no_case(suite):
    cases = entries("test_marked.py", suite.listings[HEAD].cases)
    assert list(cases) == ["test_fixture", "test_with_the_fixture"]
    why = entries("test_marked.py", suite.listings[HEAD].left_out)["TestClass::test_own_mark"]
    assert why.startswith(
        "has the mark of pytest-codspeed, which is not installed, and no fixture; "
    )


# ---- Options of plug-ins -------------------------------------------------------------------------

#: As pytest-codspeed registers itself.
CODSPEED = """
from types import SimpleNamespace

import pytest


def pytest_addoption(parser):
    parser.addoption("--codspeed", action="store_true")


def pytest_configure(config):
    config.pluginmanager.register(SimpleNamespace(), "codspeed")
    config.addinivalue_line("markers", "codspeed_benchmark")


def pytest_runtest_setup(item):
    assert not item.config.option.codspeed


@pytest.fixture
def codspeed_benchmark():
    return lambda function: function()
"""

MARKED = """
import pytest

CALLS = []


@pytest.fixture
def again(codspeed_benchmark):
    return codspeed_benchmark


@pytest.mark.benchmark(group="a")
@pytest.mark.parametrize("size", [1, 2])
def test_marked(size, tmp_path):
    CALLS.append(size)


@pytest.mark.codspeed_benchmark
class TestClass:
    def test_own_mark(self):
        CALLS.append(0)


def test_fixture(codspeed_benchmark, again):
    assert again is codspeed_benchmark
    assert codspeed_benchmark.pedantic(int, rounds=3) == 0


@pytest.mark.benchmark
async def test_coroutine():
    pass


@pytest.mark.benchmark
def test_with_the_fixture(benchmark):
    benchmark(int)


def test_that_is_not_measured():
    raise ValueError
"""

READING = """
import subprocess
import sys
import time

import pytest


def test_reads(benchmark):
    assert subprocess.run(["cat"], capture_output=True).stdout == b""
    assert sys.__stdin__.read() == ""
    benchmark(int)


def test_asks(benchmark):
    numbers = range(3) if benchmark.enabled and not benchmark.disabled else ()
    assert benchmark(sum, numbers) == 3
    assert 0 < benchmark.stats["mean"] == benchmark.stats.stats.max < 60


def test_cache(benchmark, pytestconfig):
    pytestconfig.cache.set("own/key", 1)
    assert benchmark.pedantic(pytestconfig.cache.get, args=("own/key", 0)) == 1


@pytest.fixture
def frozen(monkeypatch):
    # As freezegun stops the clocks: in all modules.
    for real in (time.perf_counter, time.perf_counter_ns, time.monotonic, time.process_time_ns):
        for module in list(sys.modules.values()):
            for found, value in list(vars(module).items()):
                if value is real:
                    monkeypatch.setattr(module, found, lambda: 0)


def test_frozen(benchmark, frozen):
    benchmark(int)
"""


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """A suite whose configuration has options of pytest-codspeed, pytest-benchmark and pytest."""
    folder = tmp_path_factory.mktemp("configured")
    files = {"conftest.py": CODSPEED, "test_marked.py": MARKED, "test_reading.py": READING}
    ini = "addopts = --codspeed --strict-markers --benchmark-skip --ff\nfilterwarnings = error\n"
    plan, listings = surveyed(planned(folder, files, ini), folder)
    return Suite(folder, plan, listings, trial_result(plan, folder))


def test_a_test_that_pytest_codspeed_measures_is_a_case(configured):
    names = [
        "test_marked[1]",
        "test_marked[2]",
        "TestClass::test_own_mark",
        "test_fixture",
        "test_with_the_fixture",
    ]
    assert list(entries("test_marked.py", configured.listings[HEAD].cases)) == names
    assert entries("test_marked.py", configured.listings[HEAD].left_out) == {
        "test_coroutine": (
            "is skipped: no plug-in runs this coroutine: install pytest-asyncio or anyio, and mark "
            "the test"
        )
    }
    cases = entries("test_marked.py", configured.trial.cases)
    assert sorted(cases) == sorted(names)
    assert max(build[HEAD]["loops"] for [build] in cases.values()) > 100


def test_a_test_has_the_attributes_of_pytest_benchmark_and_an_empty_input(configured):
    assert entries("test_reading.py", configured.listings[HEAD].left_out) == {}
    cases = entries("test_reading.py", configured.trial.cases)
    assert sorted(cases) == ["test_asks", "test_cache", "test_frozen", "test_reads"]
    assert not list((configured.folder / HEAD).rglob(".pytest_cache"))


def test_options_of_other_plugins_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.delenv(ADDOPTS)  # so that pytest-xdist and pytest-cov are loaded
    ini = "addopts = -n2 --cov=. --cov-fail-under=100\n"
    plan = planned(tmp_path, {"test_own.py": TESTS}, ini)
    arguments = ("--benchmark-only", "--benchmark-autosave", "test_own.py", "-k", "decorated")
    _, listings = surveyed(replace(plan, selection=Selection(arguments)), tmp_path)
    assert list(listings[HEAD].cases) == ["test_own.py::test_decorated"]
    assert not list((tmp_path / HEAD).rglob("*.json"))
    assert not (tmp_path / HEAD / ".coverage").exists()


# ---- Other projects ------------------------------------------------------------------------------

#: Files of a suite in which each test depends on others, by its test: "shared" is for all of its
#: folder.
SOURCES = {
    "bench/conftest.py": """
import json
from pathlib import Path

import pytest

import mylib

HERE = Path(__file__).parent
SHARED = (HERE / "shared.json").read_text()


@pytest.fixture(scope="session")
def of_session():
    return (HERE / "session.json").read_text()


@pytest.fixture(params=["a.json", "b.json"])
def each(request):
    return (HERE / request.param).read_text()
""",
    "bench/test_one.py": """
from pathlib import Path

from parts.fixtures import far

import mylib

MODULE = (Path(__file__).parent / "module.json").read_text()


def test_plain(benchmark):
    Path("written.json").write_text("1")
    assert Path("written.json").read_text() == "1"
    benchmark(int)


def test_reads(benchmark):
    benchmark((Path(__file__).parent / "call.json").read_text)


def test_session(benchmark, of_session):
    benchmark(int)


def test_again(benchmark, of_session):
    benchmark(int)


def test_each(benchmark, each):
    benchmark(int)


def test_far(benchmark, far):
    benchmark(int)
""",
    "parts/fixtures.py": "import pytest\n\n\n@pytest.fixture\ndef far():\n    return 1\n",
    "mylib.py": "",
    **{f"bench/{name}.json": "1" for name in ("shared", "session", "a", "b", "module", "call")},
}


def test_a_case_has_the_files_of_its_test_its_fixtures_and_its_data(tmp_path):
    plan = planned(tmp_path, SOURCES, "pythonpath = . bench\n")
    (tmp_path / HEAD / "bench/test_two.py").write_text(
        "def test_other(benchmark):\n    benchmark(int)\n"
    )
    _, listings = surveyed(replace(plan, selection=Selection(("bench",))), tmp_path)
    sources = {
        case.partition("::test_")[2]: listed.sources
        for case, listed in listings[HEAD].cases.items()
    }
    # Those read while tests are collected are for all.
    shared = ("bench/conftest.py", "bench/module.json", "bench/shared.json")
    more = {
        "plain": (),
        "reads": ("bench/call.json",),
        "session": ("bench/session.json",),
        "again": ("bench/session.json",),
        "each[a.json]": ("bench/a.json",),
        "each[b.json]": ("bench/b.json",),
        "far": ("parts/fixtures.py",),
    }
    assert sources == {
        **{
            name: tuple(sorted((*shared, "bench/test_one.py", *files)))
            for name, files in more.items()
        },
        "other": (*shared, "bench/test_two.py"),
    }
    assert listings[BASE].cases.keys() == {
        case for case in listings[HEAD].cases if "test_one" in case
    }


#: A plug-in that gives the process of a side a CPU clock that only ``spin`` moves.
CLOCK = """
import sys

frame = sys._getframe()
while frame.f_globals.get("__name__") != "mnistbench_of_the_gate.gate.processes.sides.session":
    frame = frame.f_back
cpu_ns = 0
frame.f_globals["Clock"].cpu_ns = staticmethod(lambda: cpu_ns)


def spin(ms):
    global cpu_ns
    cpu_ns += ms * 1_000_000
"""

COSTS = """
import functools
from pathlib import Path

import own
import pytest

from mnistbench.core.machine import peak_resident_bytes


@pytest.fixture(scope="session")
def shared():
    own.spin(20)


@pytest.fixture
def alone(shared):
    own.spin(15)


@functools.cache
def cached():
    own.spin(40)


own.spin(15)


def test_body(benchmark, alone):
    own.spin(10)
    benchmark(cached)
    own.spin(500)
    Path("peak").write_text(str(peak_resident_bytes()))


def test_setup(benchmark):
    benchmark.pedantic(int, setup=lambda: own.spin(30))
"""


#: Imports while no other module is executed: of a module outside of the tree, of a compiled module,
#: and by Python's own loader.
PLUGINS = """
pytest_plugins = ["outside", "_zoneinfo"]


def pytest_configure():
    import late
"""

#: A package outside of the tree in place of the standard library's, whose compiled part imports it.
ZONEINFO = {
    "__init__.py": "",
    "_common.py": "from spinning_clock import spin\n\nspin(40)\n",
    "_tzpath.py": "def find_tzfile(key): ...\n",
}


def test_what_occurs_once_is_counted_where_it_starts(tmp_path):
    compiled = Path(importlib.util.find_spec("_zoneinfo").origin)
    is_built_in = not compiled.is_file()  # as in a Python that is one file
    package = tmp_path / "packages" / "zoneinfo"
    package.mkdir(parents=True)
    for name, text in ZONEINFO.items():
        (package / name).write_text(text)
    (package.parent / "outside.py").write_text("from spinning_clock import spin\n\nspin(1_000)\n")
    paths = {"PYTHONPATH": str(package.parent)}
    plan = planned(tmp_path, {"test_own.py": COSTS}, "addopts = -p spinning_clock\n")
    plan = gate_builders.with_setup(plan, variables={BASE: paths, HEAD: paths})
    write(
        plan,
        {
            "conftest.py": PLUGINS,
            "late.py": "from spinning_clock import spin\n\nspin(5)\n",
            "spinning_clock.py": CLOCK,
        },
    )
    for side, import_ms in ((BASE, 50), (HEAD, 80)):
        if not is_built_in:
            shutil.copy(compiled, tmp_path / side)
        (tmp_path / side / "own.py").write_text(
            f"from spinning_clock import spin\n\nspin({import_ms})\n"
        )
    costs = trial_result(plan, tmp_path).once
    body = "test_own.py::test_body"
    setup = "test_own.py::test_setup"
    for side, import_ms in ((BASE, 50), (HEAD, 80)):
        memory = costs[side].pop("resident memory")
        assert 10 * 2**20 < memory["all cases"] < 200 * 2**20  # before the heap is touched
        # At least 64 MiB of it are touched.
        peak = float((tmp_path / side / "peak").read_text())
        assert memory["all cases"] + 2**25 < peak < 300 * 2**20
        assert {name: set(cases) for name, cases in costs[side].items()} == {
            "import": {"all cases"},
            "shared fixtures": {"all cases"},
            "setup": {body, setup},
            "first iteration": {body, setup},
        }
        expected = {
            ("import", "all cases"): import_ms + 15 + (0 if is_built_in else 40) + 5,
            ("shared fixtures", "all cases"): 20,
            ("setup", body): 25,
            ("setup", setup): 30,
            ("first iteration", body): 40,
            ("first iteration", setup): 0,
        }
        for (name, case), ms in expected.items():
            assert costs[side][name][case] == ms * 1_000_000, (side, name, case)


def test_the_side_that_loads_first_is_drawn(plan, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        starting,
        "SideProcess",
        lambda setup, side, *_: started.append(side) or pytest.fail("enough"),
    )
    for seed in range(12):
        with (
            contextlib.suppress(pytest.fail.Exception),
            running_trial(plan, seed, None, tmp_path / "log"),
        ):
            pass
    assert 3 <= started.count(HEAD) <= 9


RAISING = """
def test_raising(benchmark):
    benchmark(lambda: 1 / 0)
"""


def test_a_test_that_fails_is_named_with_its_error(plan, tmp_path):
    (tmp_path / HEAD / "test_own.py").write_text(RAISING)
    _, listings = surveyed(plan, tmp_path)
    assert listings.fails_in_head == {
        "test_own.py::test_raising": "ZeroDivisionError: division by zero (test_own.py:3)"
    }


FAILING = """
def test_passes(benchmark):
    benchmark(int)


def test_fails(benchmark):
    assert {} == 2, 'not here'
    benchmark(int)
"""


def test_a_test_that_fails_on_one_side_of_a_trial_is_named(plan, tmp_path):
    for side, number in ((BASE, 2), (HEAD, 1)):
        (tmp_path / side / "test_own.py").write_text(FAILING.format(number))
    assert why_trial_fails(plan, tmp_path).partition("; ")[0] == (
        "head: test_own.py::test_fails fails: AssertionError: not here (test_own.py:7)"
    )


FORKING = """
import os
import time
import warnings

import pytest


@pytest.fixture
def forked():
    if not (child := os.fork()):
        os.setsid()
        time.sleep(600)
        os._exit(0)
    with open("../forked", "a") as pids:
        print(child, file=pids)


def test_ends(benchmark, forked):
    calls = iter(range({calls}))
    benchmark(lambda: next(calls, None) is None and os._exit(5))
"""


@pytest.mark.parametrize("ending", [BASE, HEAD])  # a trial waits for one of them first
def test_a_side_that_ends_while_a_process_that_it_has_forked_runs_ends_the_trial(tmp_path, ending):
    plan = planned(tmp_path, {"test_own.py": FORKING.format(calls=10**9)}, "")
    (tmp_path / ending / "test_own.py").write_text(FORKING.format(calls=3_000))
    assert "ended with exit code 5" in why_trial_fails(plan, tmp_path)
    # The trial has not waited for them.
    forked = [int(pid) for pid in (tmp_path / "forked").read_text().split()]
    assert len(forked) == 2
    for pid in forked:
        with contextlib.suppress(ProcessLookupError):  # on Linux they have ended with the trial
            os.kill(pid, signal.SIGKILL)


TEARDOWN = """
import pytest


@pytest.fixture
def server():
    yield
    with open("teardowns", "a+") as stream:
        stream.write("x")
        stream.seek(0)
        if len(stream.read()) > {most}:
            raise RuntimeError("it does not stop")


def test_served(benchmark, server):
    benchmark(sum, [1, 2])
"""

STOPS_NOT = "head: test_own.py::test_served fails: RuntimeError: it does not stop (test_own.py:12)"


RARE = """
def test_rare(benchmark):
    calls = iter(range(200))
    benchmark(lambda: next(calls))
"""


def test_a_test_that_fails_in_a_later_call_is_named(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(RARE)
    assert re.match(
        r"(base|head): test_own\.py::test_rare fails: StopIteration: no message "
        r"\(test_own\.py:4\); it passed before: ",
        why_trial_fails(plan, tmp_path),
    )


def test_a_teardown_that_fails_is_a_failure_of_its_test(plan, tmp_path):
    for side, most in ((BASE, 9), (HEAD, 0)):
        (tmp_path / side / "test_own.py").write_text(TEARDOWN.format(most=most))
    _, listings = surveyed(plan, tmp_path)
    [(test, why)] = listings.fails_in_head.items()
    assert f"head: {test} fails: {why}" == STOPS_NOT


def test_a_teardown_that_fails_after_the_last_case_ends_the_trial_with_its_error(plan, tmp_path):
    for side, most in ((BASE, 9), (HEAD, 0)):
        (tmp_path / side / "test_own.py").write_text(TEARDOWN.format(most=most))
    assert why_trial_fails(plan, tmp_path).startswith(f"{STOPS_NOT}; it passed before: ")


HANGING = """
import time


def test_sums(benchmark):
    calls = iter(range({calls}))
    benchmark(lambda: next(calls, None) is None and time.sleep(60))
"""


@pytest.mark.parametrize("seed", [1, 2])  # a trial waits for one of them first
def test_a_side_that_hangs_in_a_call_is_named(plan, tmp_path, seed):
    for side, calls in ((BASE, 10**9), (HEAD, 3_000)):
        (tmp_path / side / "test_own.py").write_text(HANGING.format(calls=calls))
    plan = replace(plan, limit_s=4.0)
    reason = "was stopped because it printed nothing for 4 s; select smaller cases with -- -k"
    assert why_trial_fails(plan, tmp_path, seed) == (
        f"head: test_own.py::test_sums, its calls: {reason}"
    )


def test_a_shard_surveys_its_own_tests_alone(plan, tmp_path):
    (tmp_path / HEAD / "test_own.py").write_text(
        TESTS + "\n\ndef test_new(benchmark):\n    benchmark(sum, [1])\n"
    )
    tests_of_shards = []
    for number in (1, 2):
        result = gate_builders.surveyed(plan, tmp_path, shard=Shard(number, 2))
        listings = result.surveys.listings
        own = {*result.request.shard.own()}
        for side in (BASE, HEAD):
            assert {*listings[side].cases, *listings[side].left_out} == own - (
                {"test_own.py::test_new"} if side == BASE else set()
            )
        tests_of_shards += own
    names = ("TestClass::test_pedantic", "test_decorated", "test_new", "test_sum[1]", "test_sum[2]")
    assert sorted(tests_of_shards) == [f"test_own.py::{name}" for name in names]


def test_a_file_or_a_test_that_only_one_side_has_is_left_out_on_the_other(plan, tmp_path):
    new = "def test_new(benchmark):\n    benchmark(int)\n"
    parametrized = (
        "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_new(benchmark, n):\n    benchmark(int)\n"
    )
    for name, text in {"new_file": new, "new_test": TESTS + new, "new_cases": parametrized}.items():
        (tmp_path / HEAD / f"test_{name}.py").write_text(text)
    (tmp_path / BASE / "test_new_test.py").write_text(TESTS)
    arguments = (
        "test_new_file.py",
        "test_own.py",
        "test_new_test.py::test_decorated",
        "test_new_test.py::test_new",
        "test_new_cases.py::test_new[1]",
    )
    plan, listings = surveyed(replace(plan, selection=Selection(arguments)), tmp_path)
    common = {
        "test_new_test.py::test_decorated",
        *(f"test_own.py::{name}" for name in ("TestClass::test_pedantic", "test_decorated")),
        *(f"test_own.py::test_sum[{factor}]" for factor in (1, 2)),
    }
    assert {*listings[BASE].cases} == common
    assert {*listings[HEAD].cases} - common == {
        "test_new_file.py::test_new",
        "test_new_test.py::test_new",
        "test_new_cases.py::test_new[1]",
    }
    assert {*listings[BASE].missing} == {arguments[0], *arguments[3:]}
    assert listings[HEAD].missing == ()
    assert {*trial_result(plan, tmp_path, only=list(listings[BASE].cases)).cases} == common


OPTIONAL = """
try:
    from gateoptional import total
except ImportError:
    total = sum


def test_total(benchmark):
    benchmark(total, range(100))
"""


@pytest.fixture(scope="module")
def listings_with_variables(tmp_path_factory):
    """The base finds one more package, the head has two threads; both without this plug-in."""
    folder = tmp_path_factory.mktemp("variables")
    info = folder / "packages" / "gate_optional-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gate-optional\nVersion: 1.0\n")
    (info / "RECORD").write_text("gateoptional.py,,\n")
    (folder / "packages" / "gateoptional.py").write_text("total = sum\n")
    variables = {
        BASE: {"PYTHONPATH": str(folder / "packages")},
        HEAD: {"OMP_NUM_THREADS": "2"},
    }
    plan = planned(folder, {"test_own.py": OPTIONAL}, "addopts = -p no:mnistbench\n")
    _, listings = surveyed(gate_builders.with_setup(plan, variables=variables), folder)
    return listings


def test_a_package_that_the_tests_of_one_side_import_is_named(listings_with_variables):
    base = listings_with_variables[BASE]
    head = listings_with_variables[HEAD]
    assert "gate-optional" in base.loaded
    assert not {"gate-optional", "pytest", "pytest-xdist", "execnet"}.intersection(head.loaded)


def test_a_plain_test_has_as_many_threads_as_the_environment_of_its_side(listings_with_variables):
    for side, threads in ((BASE, 1), (HEAD, 2)):
        [case] = listings_with_variables[side].cases.values()
        assert case.params["threads"] == threads


def test_a_plain_test_needs_no_plug_in_of_this_package(listings_with_variables):
    assert list(listings_with_variables[HEAD].cases) == ["test_own.py::test_total"]


PROGRAMS = """
import os
import shutil
import sys

LOADED = set(sys.modules)


def programs():
    return shutil.which("python"), os.environ["VIRTUAL_ENV"]


def test_programs(benchmark):
    folder = os.path.dirname(sys.executable)
    assert benchmark(programs) == (sys.executable, os.path.dirname(folder))


def test_modules(benchmark):
    benchmark(sum, [1])
    names = {
        name.partition(".")[0] for name in sys.modules if not name.startswith("_sysconfigdata")
    } - sys.stdlib_module_names
    own = {"__main__", "mnistbench", "mnistbench_of_the_gate", "pytest_benchmark", "test_own"}
    of_pytest = {"_pytest", "iniconfig", "packaging", "pluggy", "py", "pygments", "pytest"}
    assert names - own - of_pytest == set()
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An interpreter with pytest alone, which imports nothing else that is not Python's."""
    return linked_environment(tmp_path_factory.mktemp("bare") / "environment", "pytest")


def test_the_process_of_a_side_imports_pytest_and_nothing_else(bare, tmp_path):
    plan = planned(tmp_path, {"test_own.py": PROGRAMS}, "addopts = -p no:mnistbench\n")
    plan, listings = surveyed(
        gate_builders.with_setup(plan, pythons=dict.fromkeys((BASE, HEAD), bare)), tmp_path
    )
    names = ["test_own.py::test_programs", "test_own.py::test_modules"]
    for side in (BASE, HEAD):
        assert listings[side].failed == {}
        assert listings[side].packages[PYTHON] == platform.python_version()
    assert {*collect_again(plan, 1, tmp_path / "log")[HEAD]} == {*names}
    assert sorted(trial_result(plan, tmp_path).cases) == sorted(names)
    with running_trial(plan, 1, None, tmp_path / "log", collects_paths=True) as trial:
        assert sorted(gate_builders.run_whole(trial).cases) == sorted(names)


#: The function of a test that differs between the sides.
TOTALS = """
def total(numbers):
    return sum({numbers})


def same(numbers):
    return [number + 1 for number in numbers]


def test_total(benchmark):
    benchmark(total, range(1_000))


def test_same(benchmark):
    benchmark(same, range(1_000))
"""


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_a_side_may_have_another_version_of_python(tmp_path, version):
    python = linked_environment(tmp_path / "bare", "pytest", python=other_python(version))
    plan = planned(tmp_path, {"test_own.py": TOTALS.format(numbers="numbers")})
    plan = gate_builders.with_setup(plan, pythons={BASE: sys.executable, HEAD: python})
    text = TOTALS.format(numbers="list(numbers)")
    (plan.setup.trees[HEAD].root / "test_own.py").write_text(text)
    result = gate_builders.surveyed(plan, tmp_path)
    plan, surveys = result.trial_plan(), result.surveys
    names = {"test_own.py::test_total": "total", "test_own.py::test_same": "same"}
    for side in (BASE, HEAD):
        followed = surveys.followed[side]
        for node_id, name in names.items():
            ran = {followed.code[position].name for position in followed.cases[node_id]}
            assert name in ran, side
        assert followed.unfollowed == {}
    assert surveys.listings[HEAD].packages[PYTHON].startswith(f"{version}.")
    trial = trial_result(plan, tmp_path)
    assert sorted(trial.cases) == sorted(names)
    for [build] in trial.cases.values():
        assert build[BASE]["outcome"] == build[HEAD]["outcome"]
    with running_trial(plan, 1, None, tmp_path / "log", collects_paths=True) as trial:
        assert sorted(gate_builders.run_whole(trial).cases) == sorted(names)


def test_a_side_may_have_pytest_alone(plan, tmp_path):
    python = linked_environment(tmp_path / "bare", "pytest")
    # Nothing describes its operations or functions there.
    marked = "import pytest\n\npytestmark = pytest.mark.op_benchmark\n"
    write(plan, {"test_own.py": TESTS + marked})
    plan = gate_builders.with_setup(plan, pythons={BASE: python, HEAD: sys.executable})
    plan = replace(plan, selection=Selection(("test_own.py", "-k", "decorated")))
    plan, listings = surveyed(plan, tmp_path)
    assert "torch" not in listings[BASE].packages
    assert list(trial_result(plan, tmp_path).cases) == ["test_own.py::test_decorated"]
