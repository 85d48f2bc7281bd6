"""Tests with pytest-benchmark's own fixture, unmodified, in the processes of both sides.

None of these projects has torch.
"""

import contextlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path

import gate_builders
import pytest
from bare_environments import linked_environment
from inner_runs import ADDOPTS

from mnistbench.core.params import params_of_call
from mnistbench.gate import launcher
from mnistbench.gate.launcher import LaunchError, launching
from mnistbench.gate.listing import OTHER_ID, OTHER_PARAMETERS, ListedCase
from mnistbench.gate.statistics.raw_samples import Shard
from mnistbench.gate.surveying import collect_again, survey_in_processes
from mnistbench.gate.words import BASE, HEAD

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


def test_never_calls(benchmark):
    pass


def test_folder(benchmark, tmp_path):
    Path("folder").write_text(str(tmp_path))
    benchmark(int)
"""


@pytest.fixture
def plan(tmp_path):
    plan = gate_builders.plan(tmp_path, "test_own.py")
    for tree in plan.trees.values():
        (tree.root / "test_own.py").write_text(TESTS)
        (tree.root / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return plan


def surveyed(plan, tmp_path):
    plan, surveys = survey_in_processes(plan, 1, "", tmp_path / "log")
    return plan, surveys.listings


def test_plain_tests_are_found_and_measured_without_torch(plan, tmp_path):
    plan, listings = surveyed(plan, tmp_path)
    names = ["TestClass::test_pedantic", "test_decorated", "test_sum[1]", "test_sum[2]"]
    assert sorted(listings[HEAD].cases) == [f"test_own.py::{name}" for name in names]
    own = {
        "resident": listings[BASE].resident,
        "grown": listings[BASE].grown,
        "loading_s": listings[BASE].loading_s,
    }
    assert listings[BASE].loading_s > 0
    seconds = {case: listed.seconds for case, listed in listings[BASE].cases.items()}
    own["cases"] = {
        case: replace(listed, seconds=seconds[case])
        for case, listed in listings[HEAD].cases.items()
    }
    assert listings[BASE] == replace(listings[HEAD], **own)
    assert listings[HEAD].torch == ""
    assert not plan.with_torch
    assert listings[HEAD].left_out == {}
    for case, listed in listings[HEAD].cases.items():
        params = asdict(params_of_call(case, "cpu", 1))
        assert listed.seconds > 0
        measured = {
            "returns": listed.returns,
            "seconds": listed.seconds,
            "parameters": listed.parameters,
            "result": listed.result,
        }
        assert listed.result
        assert listed == ListedCase(case, params, sources=("test_own.py",), **measured)
    returned = {
        case.partition("::")[2]: listed.returns for case, listed in listings[HEAD].cases.items()
    }
    assert returned == dict(zip(sorted(names), ("NoneType", "dict", "int", "int"), strict=True))
    with launching(plan, 1, None, tmp_path / "log", [min(os.sched_getaffinity(0))]) as launch:
        launch.ready()
        result = launch.measure()
    assert sorted(result.cases) == sorted(listings[HEAD].cases)
    for case, builds in result.cases.items():
        assert len(builds) == 1
        for build in builds:
            base = build[BASE]
            head = build[HEAD]
            assert base["outcome"] == head["outcome"]
            assert base["loops"] == head["loops"]
            assert (base["loops"] > 100) == ("pedantic" not in case)
            assert len(base["wall_ns"]) == len(head["wall_ns"]) > 4
            assert len(base["block_ns"]) == len(head["block_ns"]) > 4
            assert "keys" not in base
    assert not (tmp_path / HEAD / "ran").exists()


def test_each_test_that_is_not_measured_as_usual_has_a_sentence(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(ODD)
        # pytest-benchmark warns of a fixture that is not used.
        (tmp_path / side / "pytest.ini").unlink()
        for name, text in (("test_whole.py", "# benchmark"), ("test_none.py", "")):
            (tmp_path / side / name).write_text(
                f"import pytest\npytest.skip('not here', allow_module_level=True)\n{text}\n"
            )
    plan, listings = surveyed(
        replace(plan, arguments=("test_own.py", "test_whole.py", "test_none.py")), tmp_path
    )
    assert listings[HEAD].left_out == {
        "test_whole.py": "is skipped: not here",
        "test_own.py::test_value": (
            "gets its fixture from request.getfixturevalue; name it as an argument"
        ),
        "test_own.py::test_skipped": "is skipped: not today",
        "test_own.py::test_expected": "xfails: wrong",
        "test_own.py::test_skips_inside": "is skipped: inside",
        "test_own.py::test_weaves": "is skipped: benchmark.weave cannot be measured",
        "test_own.py::test_never_calls": "does not call its benchmark fixture",
    }
    assert list(listings[HEAD].cases) == [
        f"test_own.py::test_{name}" for name in ("changes", "random", "object", "folder")
    ]
    assert [case.uncompared for case in listings[HEAD].cases.values()] == [
        "",
        "returns something else at each call",
        "returns object",
        "",
    ]
    notes = [case.note.partition(", ")[0] for case in listings[HEAD].cases.values()]
    assert notes == ["changes its arguments", "", "", ""]
    # Each side has its own temporary folder.
    folders = [(tmp_path / side / "folder").read_text() for side in (BASE, HEAD)]
    assert folders[0] != folders[1]


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


def test_results_and_arguments_are_read_without_code_of_the_user(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(RESULTS)
    _, listings = surveyed(plan, tmp_path)
    for listing in (listings.base, listings.head):
        uncompared = {
            case.partition("::test_")[2]: listed.uncompared
            for case, listed in listing.cases.items()
        }
        expected = dict.fromkeys(("tree", "cycle", "lazy", "rows", "function"), "")
        assert uncompared == {**expected, "query": "returns test_own.Query"}
        assert not any(listed.note or listed.failed for listed in listing.cases.values())


LAZY = """
import asyncio

import pytest


async def work():
    return 1


def lazy():
    yield 1


def test_coroutine(benchmark):
    assert asyncio.run(benchmark(work)) == 1


def test_generator(benchmark):
    assert list(benchmark.pedantic(lazy, rounds=3)) == [1]


def test_marked(benchmark):
    coroutine = benchmark.pedantic(work, rounds=3, warmup_rounds=5)
    coroutine.close()


def test_whole(benchmark):
    assert benchmark(lambda: asyncio.run(work())) == 1
"""


def test_a_test_whose_function_only_creates_its_work_is_not_measured(plan, tmp_path):
    for side in (BASE, HEAD):
        # Warnings are errors: nothing is left that was never awaited.
        (tmp_path / side / "test_own.py").write_text(LAZY)
    _, listings = surveyed(plan, tmp_path)
    assert list(listings[HEAD].cases) == ["test_own.py::test_whole"]
    created = {case: why.partition(", ")[0] for case, why in listings[HEAD].unmeasurable.items()}
    assert created == {
        "test_own.py::test_coroutine": "its function only creates a coroutine",
        "test_own.py::test_generator": "its function only creates a generator",
        "test_own.py::test_marked": "its function only creates a coroutine",
    }
    assert listings[HEAD].left_out == {}


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


def test_a_launch_with_another_hash_seed_measures_only_what_it_finds_again(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(UNSTABLE)
    plan, listings = surveyed(plan, tmp_path)
    assert len(listings[BASE].cases) == 17
    with launching(plan, 2, list(listings[BASE].cases), tmp_path / "log") as launch:
        launch.ready()
        line = launch.measure()
    named = {f"test_own.py::test_named[{letter}]" for letter in "abcdefgh"}
    [order] = [case for case in listings[BASE].cases if "test_order" in case]
    assert line.cases.keys() >= named
    assert line.unmeasurable[order] == OTHER_ID
    moved = {case for case, why in line.unmeasurable.items() if why == OTHER_PARAMETERS}
    assert moved
    assert all("test_swapped[pair" in case for case in moved)
    assert {*line.cases, *line.unmeasurable} == {*listings[BASE].cases}
    again = collect_again(plan, 1, tmp_path / "log")
    assert again[HEAD] == plan.parameters[HEAD]  # with the hash seed of the survey
    with (
        pytest.raises(LaunchError, match="its id differs between processes"),
        launching(plan, 2, [order], tmp_path / "log") as launch,
    ):
        launch.ready()


RAISING = """
def test_raising(benchmark):
    benchmark(lambda: 1 / 0)
"""


def test_a_test_that_fails_ends_the_gate_with_its_error(plan, tmp_path):
    (tmp_path / HEAD / "test_own.py").write_text(RAISING)
    with pytest.raises(LaunchError) as raised:
        surveyed(plan, tmp_path)
    assert str(raised.value) == (
        "head: test_own.py::test_raising fails: ZeroDivisionError: division by zero (test_own.py:3)"
    )


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


def test_a_test_whose_id_has_a_path_of_its_tree_is_the_same_case_on_both_sides(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(PATHS)
    plan, listings = surveyed(plan, tmp_path)
    names = ["test_own.py::test_path[<tree>/data/one.txt]", "test_own.py::test_path[<tree>]"]
    for side in (BASE, HEAD):
        assert (
            list(listings[side].cases)
            == [case.label for case in listings[side].cases.values()]
            == names
        )
        assert list(listings[side].left_out) == ["test_own.py::test_skipped[<tree>/test_own.py]"]
    with launching(plan, 1, names[:1], tmp_path / "log") as launch:
        launch.ready()
        assert list(launch.measure().cases) == names[:1]


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


def test_the_first_iteration_counts_if_the_second_call_has_less_to_do(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(ONCE)
    _, listings = surveyed(plan, tmp_path)
    noted = {case: listed.note for case, listed in listings[HEAD].cases.items() if listed.note}
    assert list(noted) == ["test_own.py::test_cached[1]"]
    assert re.fullmatch(
        (
            r"asks for one round, and its second call took [\d.]+ [a-z]+ instead of [\d.]+ ms, so "
            r"only its first iteration counts"
        ),
        *noted.values(),
    )


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


def test_a_case_has_the_files_of_its_test_its_fixtures_and_its_data(plan, tmp_path):
    for side, (path, text) in itertools.product((BASE, HEAD), SOURCES.items()):
        (tmp_path / side / path).parent.mkdir(exist_ok=True)
        (tmp_path / side / path).write_text(text)
    (tmp_path / HEAD / "bench/test_two.py").write_text(
        "def test_other(benchmark):\n    benchmark(int)\n"
    )
    for side in (BASE, HEAD):
        (tmp_path / side / "pytest.ini").write_text("[pytest]\npythonpath = . bench\n")
    _, listings = surveyed(replace(plan, arguments=("bench",)), tmp_path)
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


def test_a_test_that_pytest_codspeed_measures_is_a_case(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(MARKED)
        (tmp_path / side / "conftest.py").write_text(CODSPEED)
        (tmp_path / side / "pytest.ini").write_text(
            "[pytest]\naddopts = --codspeed --strict-markers\n"
        )
    plan, listings = surveyed(plan, tmp_path)
    names = ["marked[1]", "marked[2]", "own_mark", "fixture", "with_the_fixture"]
    assert [case.partition("::test_")[2] or "own_mark" for case in listings[HEAD].cases] == names
    assert listings[HEAD].left_out == {
        "test_own.py::test_coroutine": "is skipped: a coroutine cannot be measured"
    }
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        cases = launch.measure().cases
    assert sorted(cases) == sorted(listings[HEAD].cases)
    assert all(
        build[HEAD]["loops"] > 100 for case, [build] in cases.items() if "test_fixture" not in case
    )


def test_without_pytest_codspeed_a_mark_alone_makes_no_case(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(
            MARKED.replace("codspeed_benchmark", "benchmark")
        )
    _, listings = surveyed(plan, tmp_path)
    assert list(listings[HEAD].cases) == [
        "test_own.py::test_fixture",
        "test_own.py::test_with_the_fixture",
    ]


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


def test_a_test_has_the_attributes_of_pytest_benchmark_and_an_empty_input(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(READING)
        (tmp_path / side / "pytest.ini").write_text(
            "[pytest]\naddopts = --benchmark-skip --ff\nfilterwarnings = error\n"
        )
    plan, listings = surveyed(plan, tmp_path)
    assert listings[HEAD].left_out == {}
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        cases = launch.measure().cases
    assert sorted(cases) == [
        f"test_own.py::test_{name}" for name in ("asks", "cache", "frozen", "reads")
    ]
    assert not list((tmp_path / HEAD).rglob(".pytest_cache"))


#: A plug-in that gives the process of a side a CPU clock that only ``spin`` moves.
CLOCK = """
import sys

frame = sys._getframe()
while frame.f_globals.get("__name__") != "mnistbench.gate.sides.session":
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


def test_what_occurs_once_is_counted_where_it_starts(plan, tmp_path):
    compiled = Path(importlib.util.find_spec("_zoneinfo").origin)
    is_built_in = not compiled.is_file()  # as in a Python that is one file
    package = tmp_path / "packages" / "zoneinfo"
    package.mkdir(parents=True)
    for name, text in ZONEINFO.items():
        (package / name).write_text(text)
    (package.parent / "outside.py").write_text("from spinning_clock import spin\n\nspin(1_000)\n")
    paths = {"PYTHONPATH": str(package.parent)}
    plan = replace(plan, variables={BASE: paths, HEAD: paths})
    for side, import_ms in ((BASE, 50), (HEAD, 80)):
        if not is_built_in:
            shutil.copy(compiled, tmp_path / side)
        (tmp_path / side / "conftest.py").write_text(PLUGINS)
        (tmp_path / side / "late.py").write_text("from spinning_clock import spin\n\nspin(5)\n")
        (tmp_path / side / "spinning_clock.py").write_text(CLOCK)
        (tmp_path / side / "own.py").write_text(
            f"from spinning_clock import spin\n\nspin({import_ms})\n"
        )
        (tmp_path / side / "test_own.py").write_text(COSTS)
        (tmp_path / side / "pytest.ini").write_text("[pytest]\naddopts = -p spinning_clock\n")
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        costs = launch.measure().once
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
        launcher,
        "SideProcess",
        lambda plan, side, *_: started.append(side) or pytest.fail("enough"),
    )
    for seed in range(12):
        with (
            contextlib.suppress(pytest.fail.Exception),
            launching(plan, seed, None, tmp_path / "log"),
        ):
            pass
    assert 3 <= started.count(HEAD) <= 9


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
            until = time.perf_counter() + 0.05

            def draw(seed):
                while time.perf_counter() < until:
                    os.urandom(2**20)

            list(pool.map(draw, range(2)))

        work()
        benchmark(work)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_test_that_uses_more_than_one_core_is_measured_on_all(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(PARALLEL)
    plan, listings = surveyed(plan, tmp_path)
    assert plan.parallel == {f"test_own.py::test_{name}" for name in ("pool", "process", "kept")}
    assert not listings[HEAD].cases["test_own.py::test_alone"].parallel
    assert (
        listings[HEAD].cases["test_own.py::test_pool"].note.startswith("uses more than one core, ")
    )
    for side, name in itertools.product((BASE, HEAD), ("alone", "pool")):
        (tmp_path / side / name).unlink()
    cores = sorted(os.sched_getaffinity(0))
    with launching(plan, 1, None, tmp_path / "log", cores) as launch:
        launch.ready()
        cases = launch.measure().cases
    assert "1" in (tmp_path / HEAD / "alone").read_text().split()
    assert set((tmp_path / HEAD / "pool").read_text().split()[-4:]) == {str(len(cores))}
    for case, [build] in cases.items():
        for side in (BASE, HEAD):
            assert (
                bool(build[side]["block_ns"])
                == bool(build[side]["cpu_ns"])
                == (case not in plan.parallel)
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


@pytest.mark.parametrize("ending", [BASE, HEAD])  # a launch waits for one of them first
def test_a_side_that_ends_while_a_process_that_it_has_forked_runs_ends_the_launch(
    plan, tmp_path, ending
):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(
            FORKING.format(calls=3_000 if side == ending else 10**9)
        )
        (tmp_path / side / "pytest.ini").unlink()
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        with pytest.raises(LaunchError) as raised:
            launch.measure()
    assert "ended with exit code 5" in str(raised.value)
    # The launch has not waited for them.
    forked = [int(pid) for pid in (tmp_path / "forked").read_text().split()]
    assert len(forked) == 2
    for pid in forked:
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


def test_a_teardown_that_fails_ends_the_survey_with_its_error(plan, tmp_path):
    for side, most in ((BASE, 9), (HEAD, 0)):
        (tmp_path / side / "test_own.py").write_text(TEARDOWN.format(most=most))
    with pytest.raises(LaunchError) as raised:
        surveyed(plan, tmp_path)
    assert str(raised.value) == STOPS_NOT


def test_a_teardown_that_fails_after_the_last_case_ends_the_launch_with_its_error(plan, tmp_path):
    for side, most in ((BASE, 9), (HEAD, 1)):
        (tmp_path / side / "test_own.py").write_text(TEARDOWN.format(most=most))
    plan, _ = surveyed(plan, tmp_path)
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        with pytest.raises(LaunchError) as raised:
            launch.measure()
    assert str(raised.value).startswith(f"{STOPS_NOT}; it passed before: ")


#: Prints lines that look like messages of a side, into all streams that a test can reach.
PRINTING = """
import os
import subprocess
import sys

TEXT = '{"error": "printed by a test"}\\n' * 100_000


def test_prints(benchmark):
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        stream.write(TEXT)
        stream.flush()
    os.write(1, TEXT.encode())
    subprocess.run([sys.executable, "-S", "-c", f"print({TEXT[:31]!r} * 100_000)"], check=True)
    benchmark(print, TEXT[:31])
"""


def test_megabytes_that_a_test_prints_are_no_messages_of_its_side(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(PRINTING)
    plan, listings = surveyed(plan, tmp_path)
    assert list(listings[HEAD].cases) == ["test_own.py::test_prints"]
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        assert list(launch.measure().cases) == ["test_own.py::test_prints"]
    for side in (BASE, HEAD):
        assert (tmp_path / f"log-{side}").stat().st_size > 2 * 10_000_000  # nothing is lost


HANGING = """
import time


def test_sums(benchmark):
    calls = iter(range({calls}))
    benchmark(lambda: next(calls, None) is None and time.sleep(60))
"""


@pytest.mark.parametrize("seed", [1, 2])  # a launch waits for one of them first
def test_a_side_that_hangs_in_a_call_is_named(plan, tmp_path, seed):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(
            HANGING.format(calls=3_000 if side == HEAD else 10**9)
        )
    plan = replace(plan, limit_s=5.0)
    with launching(plan, seed, None, tmp_path / "log") as launch:
        launch.ready()
        with pytest.raises(LaunchError) as raised:
            launch.measure()
    reason = "was stopped because it printed nothing for 5 s; select smaller cases with -- -k"
    assert str(raised.value) == f"head: test_own.py::test_sums, its calls: {reason}"


def test_a_shard_surveys_its_own_tests_alone(plan, tmp_path):
    (plan.trees[HEAD].root / "test_own.py").write_text(
        TESTS + "\n\ndef test_new(benchmark):\n    benchmark(sum, [1])\n"
    )
    tests_of_shards = []
    for number in (1, 2):
        chosen, listings = surveyed(replace(plan, shard=Shard(number, 2)), tmp_path)
        own = {*chosen.shard.own()}
        for side in (BASE, HEAD):
            assert {*listings[side].cases, *listings[side].left_out} == own - (
                {"test_own.py::test_new"} if side == BASE else set()
            )
        tests_of_shards.append(own)
    whole = surveyed(plan, tmp_path)[1][HEAD]
    assert set.union(*tests_of_shards) == {*whole.cases, *whole.left_out}
    assert not set.intersection(*tests_of_shards)


#: pytest-xdist and pytest-cov are among the dependencies of the tests.
@pytest.mark.parametrize(
    "addopts",
    ["-n2 --cov=. --cov-fail-under=100", "-p no:xdist -p no:pytest_cov -p no:mnistbench"],
    ids=["used", "not loaded"],
)
def test_options_of_other_plugins_do_not_matter(plan, tmp_path, monkeypatch, addopts):
    monkeypatch.delenv(ADDOPTS)
    for side in (BASE, HEAD):
        (tmp_path / side / "pytest.ini").write_text(f"[pytest]\naddopts = {addopts}\n")
    arguments = ("--benchmark-only", "--benchmark-autosave", "test_own.py", "-k", "decorated")
    _, listings = surveyed(replace(plan, arguments=arguments), tmp_path)
    assert list(listings[HEAD].cases) == ["test_own.py::test_decorated"]
    assert not list((tmp_path / HEAD).rglob("*.json"))
    assert not (tmp_path / HEAD / ".coverage").exists()


def test_a_plain_test_has_as_many_threads_as_the_environment_of_its_side(plan, tmp_path):
    plan = replace(plan, variables={BASE: {}, HEAD: {"OMP_NUM_THREADS": "2"}})
    _, listings = surveyed(plan, tmp_path)
    for side, threads in ((BASE, 1), (HEAD, 2)):
        assert {case.params["threads"] for case in listings[side].cases.values()} == {threads}


@pytest.mark.parametrize(
    "arguments", [("test_new.py", "test_own.py"), ("test_own.py", "test_new.py::test_new[1]")]
)
def test_a_file_or_a_test_that_only_one_side_has_is_left_out_on_the_other(
    plan, tmp_path, arguments
):
    (tmp_path / HEAD / "test_new.py").write_text(
        "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_new(benchmark, n):\n    "
        "benchmark(int)\n"
    )
    plan, listings = surveyed(replace(plan, arguments=arguments), tmp_path)
    assert not [case for case in listings[BASE].cases if "test_new" in case]
    new = ["test_new.py::test_new[1]", "test_new.py::test_new[2]"][
        : 1 if "::" in arguments[1] else 2
    ]
    assert [case for case in listings[HEAD].cases if "test_new" in case] == new
    assert len(listings[HEAD].cases) == len(listings[BASE].cases) + len(new)
    assert listings[BASE].missing == tuple(argument for argument in arguments if "new" in argument)
    assert listings[HEAD].missing == ()
    with launching(plan, 1, list(listings[BASE].cases), tmp_path / "log") as launch:
        launch.ready()
        assert set(launch.measure().cases) == set(listings[BASE].cases)


def test_a_test_that_only_one_side_has_in_a_file_of_both_is_left_out_on_the_other(plan, tmp_path):
    with (tmp_path / HEAD / "test_own.py").open("a") as stream:
        stream.write("\n\ndef test_new(benchmark):\n    benchmark(int)\n")
    arguments = ("test_own.py::test_new", "test_own.py::test_decorated")
    _, listings = surveyed(replace(plan, arguments=arguments), tmp_path)
    assert list(listings[BASE].cases) == ["test_own.py::test_decorated"]
    assert sorted(listings[HEAD].cases) == sorted(arguments, reverse=False)
    assert (listings[BASE].missing, listings[HEAD].missing) == (("test_own.py::test_new",), ())


OPTIONAL = """
try:
    from gateoptional import total
except ImportError:
    total = sum


def test_total(benchmark):
    benchmark(total, range(100))
"""


def test_a_package_that_the_tests_of_one_side_import_is_named(plan, tmp_path):
    info = tmp_path / "packages" / "gate_optional-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gate-optional\nVersion: 1.0\n")
    (info / "RECORD").write_text("gateoptional.py,,\n")
    (tmp_path / "packages" / "gateoptional.py").write_text("total = sum\n")
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(OPTIONAL)
    variables = {BASE: {"PYTHONPATH": str(tmp_path / "packages")}, HEAD: {}}
    _, listings = surveyed(replace(plan, variables=variables), tmp_path)
    assert "gate-optional" in listings[BASE].loaded
    assert not {"gate-optional", "pytest", "pytest-xdist", "execnet"}.intersection(
        listings[HEAD].loaded
    )
    assert listings[BASE].has_compiled_loops is None


def test_a_side_may_have_pytest_alone(plan, tmp_path):
    python = linked_environment(tmp_path / "bare", "pytest")
    plan = replace(
        plan,
        pythons={BASE: python, HEAD: sys.executable},
        arguments=("test_own.py", "-k", "decorated"),
    )
    plan, listings = surveyed(plan, tmp_path)
    assert "torch" not in listings[BASE].packages
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        [case] = launch.measure().cases
    assert case == "test_own.py::test_decorated"


TORCH = """
import pytest
import torch


def test_model(benchmark):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    inputs = torch.ones(4, 16)
    benchmark(lambda: model(inputs).sum().backward())


def test_function(benchmark):
    benchmark(torch.mm, torch.rand(8, 8), torch.ones(8, 8))


@pytest.mark.op_benchmark
def test_marked(benchmark):
    benchmark(torch.mm, torch.rand(8, 8), torch.ones(8, 8))


def test_without_torch(benchmark):
    benchmark(sum, [1, 2])
"""


def test_a_call_of_torch_has_operations_by_phase_and_module(plan, tmp_path):
    for side in (BASE, HEAD):
        (tmp_path / side / "test_own.py").write_text(TORCH)
    plan, listings = surveyed(plan, tmp_path)
    assert plan.with_torch == {BASE, HEAD}
    assert {case.uncompared for case in listings[HEAD].cases.values()} == {""}
    with launching(plan, 1, None, tmp_path / "log") as launch:
        launch.ready()
        builds_of_case = launch.measure().cases
    keys = {
        case.partition("::test_")[2]: builds[0][HEAD].get("keys", [])
        for case, builds in builds_of_case.items()
    }
    assert ["aten::addmm", "forward", "Sequential.0"] in keys["model"]
    assert ["aten::clamp_min", "forward", "Sequential.1"] in keys["model"]
    assert ["aten::sum", "forward", ""] in keys["model"]
    assert ["aten::mm", "backward", "Sequential.0"] in keys["model"]
    assert ["aten::mm", "forward", ""] in keys["function"]
    assert keys["marked"] == keys["function"]
    assert keys["without_torch"] == []
    for case, builds in builds_of_case.items():
        for build in builds:
            base = build[BASE]
            head = build[HEAD]
            assert base["outcome"] == head["outcome"], case
            if "keys" in base:
                assert json.dumps(base["calls"]) == json.dumps(head["calls"])
                assert all(calls == round(calls) for calls in base["calls"])
