"""An asv suite, unmodified, in the processes of both sides of a gate."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import gate_builders
import pytest
from bare_environments import linked_environment

from mnistbench.gate.listing import Listings
from mnistbench.gate.processes.messages import OUTSIDE, Efforts, Surveys
from mnistbench.gate.processes.starting import GateError, TrialResult, running_trial
from mnistbench.gate.words import BASE, HEAD

pytestmark = pytest.mark.versions

FILES = {
    "asv.conf.json": '{\n    // "benchmark_dir": "elsewhere",\n    "benchmark_dir": "suite",\n}\n',
    "work.py": """
def work(n):
    return sum(range(n))


def prepared(n):
    return list(range(n))


def cached():
    return {"numbers": [1, 2]}
""",
    "suite/__init__.py": "def time_of_the_package():\n    return 1\n",
    "suite/not_collected.txt": "",
    "suite/common.py": """
from pathlib import Path


def log(text):
    with Path("log").open("a") as stream:
        print(text, file=stream)


class Base:
    def setup_cache(self):
        from work import cached

        log("setup_cache")
        return cached()
""",
    "suite/sub/__init__.py": "",
    "suite/sub/bench_below.py": """
from work import work


def time_below():
    return work(1)
""",
    "suite/sub/none/far.py": "raise RuntimeError('asv does not import it')\n",
    "suite/bench_names.py": """
from functools import partial


class Opaque:
    pass


def key(value):
    return value


class Names:
    params = ([1, 1, "a b", Opaque(), key, partial(key, 2), "x" * 100], [None])
    param_names = ["first", "second"]

    def time_it(self, first, second):
        return 1

    time_again = time_it


def time_function(n):
    return n


time_function.params = [2, 3]
time_alias = time_function


def not_a_benchmark():
    pass


class Abstract:
    def helper(self):
        pass
""",
    "suite/bench_order.py": """
from suite.common import Base, log
from work import prepared, work

module_data = []


def setup(*_):
    module_data[:] = [1]


class Once:
    def setup(self):
        log("once: setup")
        self.data = prepared(3) + module_data

    def teardown(self):
        log("once: teardown")

    def time_it(self):
        log("once: call")
        return sum(self.data)


class Each:
    number = 1

    def setup(self):
        log("each: setup")
        self.data = prepared(3)

    def teardown(self):
        log("each: teardown")

    def time_pop(self):
        log("each: call")
        while self.data:
            self.data.pop()
        return len(self.data)


class Changing:
    def setup(self):
        self.data = []

    def time_append(self):
        self.data.append(1)
        return 0


class Cached(Base):
    params = [1, 2]

    def setup(self, cache, n):
        assert cache == {"numbers": [1, 2]}, cache
        cache["numbers"].append(n)

    def time_cached(self, cache, n):
        return sum(cache["numbers"])


class OtherCached(Base):
    timeout = 5

    def time_it(self, cache):
        return len(cache["numbers"])


def time_work():
    return work(100)


time_work.pretty_name = "work of a hundred"
time_work.repeat = (1, 2, 3.0)
time_work.warmup_time = 0
""",
    "suite/bench_left_out.py": """
from asv_runner.benchmarks.mark import SkipNotImplemented, skip_benchmark, skip_for_params


class Left:
    params = [1, 2]

    def setup(self, n):
        if n == 2:
            raise NotImplementedError("not for 2")

    def time_it(self, n):
        return n

    @skip_for_params([(1,)])
    def time_skipped(self, n):
        return n

    def time_says_so(self, n):
        raise SkipNotImplemented("no")

    def peakmem_it(self, n):
        return n

    def mem_it(self, n):
        return [n]

    def track_it(self, n):
        return n


def timeraw_it():
    return "1 + 1"


@skip_benchmark
def time_nowhere():
    return 1
""",
}

FEW_ITERATIONS = Efforts(timed=0.1, profiled=0.1)


def write(plan, files):
    for tree in plan.setup.trees.values():
        for name, text in files.items():
            (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
            (tree.root / name).write_text(text)


@dataclass(frozen=True)
class Suite:
    surveys: Surveys
    surveyed_log: list[str]  # of the head
    trial: TrialResult
    trial_log: list[str]

    @property
    def listings(self) -> Listings:
        return self.surveys.listings

    def names(self, file):
        return [
            node_id.removeprefix(f"suite/{file}::")
            for node_id in self.listings.head.cases
            if node_id.startswith(f"suite/{file}::")
        ]

    def ran(self, node_id):
        """Return the functions of the tree that a case runs in the head."""
        followed = self.surveys.followed[HEAD]
        codes = (followed.code[position] for position in followed.cases[node_id])
        return {f"{code.path}:{code.name}" for code in codes}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asv")
    plan = gate_builders.plan(folder, "suite")
    # Warnings are errors, and files of the suite look like tests.
    ini = "[pytest]\nfilterwarnings = error\npython_files = bench_*.py\n"
    write(plan, {"pytest.ini": ini, **FILES})
    surveyed = gate_builders.surveyed(plan, folder)
    surveys = surveyed.surveys
    plan = surveyed.trial_plan()
    log = plan.setup.trees[HEAD].root / "log"
    surveyed_log = log.read_text().splitlines()
    log.unlink()
    only = [case for case in surveys.listings.common if "bench_order" in case]
    with running_trial(plan, 2, only, folder / "log", efforts=FEW_ITERATIONS) as running:
        trial = gate_builders.run_whole(running)
    return Suite(surveys, surveyed_log, trial, log.read_text().splitlines())


def test_files_that_asv_imports_are_collected_whatever_their_names_are(suite):
    files = {node_id.partition("::")[0] for node_id in suite.listings.head.cases}
    assert files == {
        "suite/__init__.py",
        "suite/bench_left_out.py",
        "suite/bench_names.py",
        "suite/bench_order.py",
        "suite/sub/bench_below.py",
    }
    assert suite.names("__init__.py") == ["time_of_the_package"]


def test_parameters_are_named_as_asv_shows_them_without_addresses(suite):
    names = suite.names("bench_names.py")
    parameters = [
        "1 (0)-None",
        "1 (1)-None",
        "'a b'-None",
        "<suite.bench_names.Opaque object>-None",
        "<function key>-None",
        "functools.partial(<function key>, 2)-None",
        f"'{'x' * 56}...-None",
    ]
    methods = [f"Names.time_{name}" for name in ("again", "it")]
    functions = [f"time_function ({number})[{n}]" for number in (0, 1) for n in (2, 3)]
    expected = [f"{method}[{text}]" for method in methods for text in parameters]
    assert sorted(names) == sorted(expected + functions)


def test_parameters_have_a_hash_by_which_another_process_knows_them(suite):
    hashes = suite.listings.head.parameters
    assert hashes["suite/bench_names.py::Names.time_it['a b'-None]"]
    assert hashes["suite/bench_order.py::time_work"] == ""
    assert hashes == suite.listings.base.parameters


def test_what_is_no_time_is_left_out_by_name(suite):
    left_out = {
        node_id.removeprefix("suite/bench_left_out.py::"): why
        for node_id, why in suite.listings.head.left_out.items()
    }
    assert left_out == {
        "Left.mem_it": "is a benchmark of the size of an object, not of time",
        "Left.peakmem_it": "is a benchmark of peak memory, not of time",
        "Left.track_it": "is a benchmark of a value that it returns (track), not of time",
        "timeraw_it": "is a benchmark of code in processes of its own (timeraw)",
        "Left.time_skipped[1]": "is skipped: skip_for_params names its parameters",
        "Left.time_it[2]": "is skipped: setup raises NotImplementedError",
        "Left.time_skipped[2]": "is skipped: setup raises NotImplementedError",
        "Left.time_says_so[2]": "is skipped: setup raises NotImplementedError",
        "Left.time_says_so[1]": "is skipped: raises SkipNotImplemented",
    }
    assert suite.names("bench_left_out.py") == ["Left.time_it[1]"]
    assert suite.listings.head.not_measured == {}


def test_setup_runs_once_or_with_number_1_before_each_call(suite):
    for log in (suite.surveyed_log, suite.trial_log):
        once = " ".join(line for line in log if line.startswith("once"))
        each = " ".join(line for line in log if line.startswith("each"))
        assert re.fullmatch("once: setup (once: call )+once: teardown", once)
        assert re.fullmatch("(each: setup each: call each: teardown ?)+", each)
        assert each.count("setup") > 2


def test_a_cache_is_made_once_in_a_process_and_each_benchmark_has_a_copy(suite):
    assert suite.surveyed_log.count("setup_cache") == suite.trial_log.count("setup_cache") == 1
    cached = [f"Cached.time_cached[{n}]" for n in (1, 2)]
    assert {*cached, "OtherCached.time_it"} <= {*suite.names("bench_order.py")}


def test_setup_and_setup_cache_belong_to_the_case(suite):
    order = "suite/bench_order.py"
    assert {f"{order}:setup", f"{order}:Once.setup", "work.py:prepared"} <= suite.ran(
        f"{order}::Once.time_it"
    )
    for case in ("Cached.time_cached[1]", "Cached.time_cached[2]", "OtherCached.time_it"):
        assert {"work.py:cached", "suite/common.py:Base.setup_cache"} <= suite.ran(
            f"{order}::{case}"
        )
    of_work = suite.ran(f"{order}::time_work")
    assert {name for name in of_work if not name.startswith(":")} == {
        f"{order}:setup",
        f"{order}:time_work",
        "work.py:work",
    }


def test_the_collection_uses_no_file_of_the_tree(suite):
    """Otherwise a change of asv.conf.json, or of a folder, would affect all cases."""
    followed = suite.surveys.followed[HEAD]
    assert followed.opened[OUTSIDE] == (), followed.opened[OUTSIDE]
    assert "asv.conf.json" not in followed.read_by_plugins


def test_what_a_call_leaves_behind_is_noted_with_what_to_do(suite):
    note = suite.listings.head.cases["suite/bench_order.py::Changing.time_append"].note
    assert note.startswith("changes its arguments")
    assert note.endswith("or in setup with number = 1 if it is an asv benchmark")


def test_a_trial_measures_all_cases_of_a_file(suite):
    names = {node_id.removeprefix("suite/bench_order.py::") for node_id in suite.trial.cases}
    assert names == {*suite.names("bench_order.py")}
    assert len(names) == 7
    loops = {
        name: suite.trial.cases[f"suite/bench_order.py::{name}"][0][HEAD]["loops"]
        for name in ("Each.time_pop", "time_work")
    }
    assert loops["Each.time_pop"] == 1 < loops["time_work"]


# ---- Selection, and suites that cannot be read ---------------------------------------------------


def refusal(plan, folder):
    with pytest.raises(GateError) as raised:
        gate_builders.surveyed(plan, folder)
    return str(raised.value)


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("suite/bench_a.py::Suite.time_it[2]", ["Suite.time_it[2]"]),
        ("suite/bench_a.py::Suite.time_it", ["Suite.time_it[1]", "Suite.time_it[2]"]),
        ("suite/bench_a.py::Suite", ["Suite.time_it[1]", "Suite.time_it[2]"]),
        ("suite/bench_a.py", ["Suite.time_it[1]", "Suite.time_it[2]", "SuiteB.time_it"]),
    ],
)
def test_benchmarks_are_selected_by_name(tmp_path, argument, names):
    plan = gate_builders.plan(tmp_path, argument)
    text = (
        "class Suite:\n    params = [1, 2]\n    def time_it(self, n):\n        return n\n"
        "class SuiteB:\n    def time_it(self):\n        return 1\n"
    )
    write(plan, {"asv.conf.json": '{"benchmark_dir": "suite"}', "suite/bench_a.py": text})
    listings = gate_builders.surveyed(plan, tmp_path).surveys.listings
    assert [node_id.partition("::")[2] for node_id in listings.head.cases] == names
    assert listings.head.missing == ()


def test_a_suite_needs_asv_runner_beside_the_gate_or_in_the_environment_of_the_side(tmp_path):
    python = linked_environment(tmp_path / "bare", "pytest", "pytest-benchmark", "numpy")
    pythons = dict.fromkeys((BASE, HEAD), python)
    plan = gate_builders.with_setup(gate_builders.plan(tmp_path, "suite"), pythons=pythons)
    write(plan, {name: FILES[name] for name in ("asv.conf.json", "suite/__init__.py")})
    shutil.rmtree(plan.setup.home / "asv_runner")
    needed = f"is an asv suite (asv.conf.json): install mnistbench[asv], or asv-runner for {python}"
    assert refusal(plan, tmp_path) == f"both sides: suite {needed}"
    # With other cases the suite is left out.
    write(plan, {"suite/test_own.py": "def test_own(benchmark):\n    benchmark(list)\n"})
    listings = gate_builders.surveyed(plan, tmp_path).surveys.listings
    assert list(listings.head.cases) == ["suite/test_own.py::test_own"]
    assert listings.head.left_out == {"suite": needed}


UNREADABLE = {
    "import": (
        {"suite/bench_a.py": "import nothing_of_this_name\n"},
        (
            "suite/bench_a.py cannot be collected: ModuleNotFoundError: No module named "
            "'nothing_of_this_name' (suite/bench_a.py:1)"
        ),
    ),
    "instance": (
        {
            "suite/bench_a.py": "class A:\n    def __init__(self, n):\n        pass\n\n"
            "    def time_a(self):\n        pass\n"
        },
        (
            "suite/bench_a.py cannot be collected: TypeError: A.__init__() missing 1 required "
            "positional argument: 'n'"
        ),
    ),
    "name": (
        {
            "suite/a/asv.conf.json": "",
            "suite/a/benchmarks/__init__.py": "",
            "suite/b/asv.conf.json": "",
            "suite/b/benchmarks/__init__.py": "",
        },
        (
            "suite/b/benchmarks/__init__.py cannot be collected: benchmarks is imported from "
            "suite/a/benchmarks/__init__.py, too; measure one suite of this name at a time"
        ),
    ),
}


@pytest.mark.parametrize(("files", "why"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_suite_that_cannot_be_read_is_refused_in_one_line(tmp_path, files, why):
    plan = gate_builders.plan(tmp_path, "suite")
    write(plan, {"asv.conf.json": '{"benchmark_dir": "suite"}', **files})
    (refused,) = refusal(plan, tmp_path).splitlines()
    assert refused.startswith(f"both sides: {why}")


def test_files_of_no_suite_are_left_to_pytest(tmp_path):
    plan = gate_builders.plan(tmp_path, ".")
    write(
        plan,
        {
            "asv.conf.json": '{"benchmark_dir": "suite"}',
            "bench_a.py": "raise RuntimeError\n",
            "test_own.py": "def test_own(benchmark):\n    benchmark(list)\n",
        },
    )
    listings = gate_builders.surveyed(plan, tmp_path).surveys.listings
    assert list(listings.head.cases) == ["test_own.py::test_own"]
    assert Path(plan.setup.trees[HEAD].root / "bench_a.py").is_file()
