"""``--op-benchmarks``: tests with pytest-benchmark's own fixture get operation tables."""

import json
import platform
import shutil
import subprocess
import sys

import pytest
from projects import only_record, records

from mnistbench.core.compiled.names import COMPILED, LOOKUP
from mnistbench.core.operation import IN_TORCH
from mnistbench.core.record import CaseRecord
from mnistbench.saved_runs.run import Run
from mnistbench.showing.output import EXIT_PASSED, EXIT_REGRESSED

TESTS = """
import pytest
import torch


@pytest.mark.parametrize("size", [8, 16])
def test_mm(benchmark, size):
    assert benchmark(torch.mm, torch.ones(size, size), torch.ones(size, size)).shape == (size, size)


def test_model(benchmark):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    inputs = torch.ones(4, 16)
    benchmark(lambda: model(inputs).sum().backward())


def test_setup(benchmark):
    benchmark.pedantic(torch.Tensor.sqrt_, setup=lambda: ((torch.ones(100),), {}), rounds=3)


def test_without_torch(benchmark):
    benchmark(sum, [1, 2])
"""


def views(record):
    """Return the views of the tables of a saved record."""
    return [table["view"] for table in record["tables"]]


@pytest.fixture
def suite(project):
    (project.path / "conftest.py").unlink()
    project.write("test_bench.py", TESTS)
    return project


@pytest.mark.versions
def test_calls_of_torch_have_operations(suite):
    result, saved = suite.run_saved("--op-benchmarks", "--bench-threads=3")
    result.assert_outcomes(passed=5)
    record_of = records(saved)
    with_operations = [name for name, record in record_of.items() if "host" in views(record)]
    assert with_operations == ["test_mm[8]", "test_mm[16]", "test_model", "test_setup"]
    assert views(record_of["test_without_torch"]) == ["functions"]
    assert record_of["test_mm[8]"]["params"]["phase"] == "call"
    assert record_of["test_mm[8]"]["params"]["workload"] == "test_bench.py::test_mm[8]"
    threads = saved["mnistbench"]["environment"]["threads"]
    # The option is for our own cases.
    assert threads == record_of["test_mm[8]"]["params"]["threads"] != 3
    result.stdout.fnmatch_lines(
        [
            "test_bench.py::test_mm[[]8], cpu: self CPU time per iteration",
            "operation *phase *module *time *share",
            "aten::mm *forward *",
            "test_bench.py::test_model, cpu: self CPU time per iteration",
        ]
    )
    lines = [line.split()[:3] for line in result.outlines]
    assert ["aten::addmm", "forward", "Sequential.0"] in lines
    assert ["aten::mm", "backward", "Sequential.0"] in lines
    assert ["aten::sqrt_", "forward", "-"] in lines
    # A short call is repeated within an iteration; the table has the times and numbers of one.
    table = record_of["test_mm[8]"]["tables"][0]
    operations, times = (json.loads(table[name]) for name in ("operations", "times"))
    index = operations["name"].index("aten::mm")
    assert operations["calls"][index] == 1
    [median_s] = [
        case["stats"]["median"] for case in saved["benchmarks"] if case["name"] == "test_mm[8]"
    ]
    # An iteration has some hundred calls.
    assert 0 < times["self_ns"][index] < 50 * median_s * 1e9


def test_without_the_option_a_plain_test_stays_as_it_was(suite):
    suite.append(
        "test_bench.py",
        (
            "\n\ndef test_type(benchmark):\n    assert type(benchmark).__name__ == "
            "'BenchmarkFixture'\n    benchmark(int)\n"
        ),
    )
    result, saved = suite.run_saved()
    result.assert_outcomes(passed=6)
    assert set(records(saved).values()) == {None}
    assert "mnistbench" not in saved
    result.stdout.no_fnmatch_line("*mnistbench: operations*")


def test_the_configuration_can_set_it_and_a_saved_run_is_explained(suite):
    suite.append("pytest.ini", "op_benchmarks = true\n")
    suite.run("--benchmark-save=base", "-k", "mm").assert_outcomes(passed=2, deselected=3)
    result = suite.run("--benchmark-compare", "-k", "mm")
    result.assert_outcomes(passed=2, deselected=3)
    result.stdout.fnmatch_lines(
        [
            "*mnistbench: operations compared*",
            "test_bench.py::test_mm[[]8]",
            "wall time of one iteration *",
        ]
    )


def test_a_call_that_cannot_be_repeated_is_timed_and_one_that_fails_fails(
    suite,
):
    suite.write(
        "test_bench.py",
        """
        import torch

        def test_once(benchmark):
            values = [torch.ones(1)]
            benchmark.pedantic(lambda: values.pop().neg())

        def test_failing(benchmark):
            benchmark(lambda: 1 / 0)
        """,
    )
    result, saved = suite.run_saved("--op-benchmarks")
    result.assert_outcomes(passed=1, failed=1)
    assert records(saved)["test_once"]["notes"] == ["not profiled: IndexError: pop from empty list"]
    result.stdout.fnmatch_lines(
        [
            "*ZeroDivisionError*",
            "test_bench.py::test_once: not profiled: IndexError: pop from empty list",
        ]
    )


def test_a_function_that_only_creates_its_work_is_named(suite):
    suite.write(
        "test_bench.py",
        """
        import asyncio
        import torch

        async def work():
            return torch.ones(2) + 1

        def test_coroutine(benchmark):
            asyncio.run(benchmark.pedantic(work))

        def test_whole(benchmark):
            benchmark.pedantic(lambda: asyncio.run(work()))
        """,
    )
    result, saved = suite.run_saved("--op-benchmarks")
    result.assert_outcomes(passed=2)
    assert [name for name, record in records(saved).items() if record] == ["test_whole"]
    result.stdout.fnmatch_lines(
        [
            (
                "test_bench.py::test_coroutine: its function only creates a coroutine, whose work "
                "is not measured; run it: *"
            )
        ]
    )
    result.stdout.no_fnmatch_line("test_bench.py::test_whole: its function*")


# ---- Functions -----------------------------------------------------------------------------------

PARSER = """
class Parser:
    def read(self, text):
        return [self.word(part) for part in text.split()]

    def word(self, part):
        return part.strip("x").upper()
"""

PARSE = """
from parser_of_words import Parser


def test_parse(benchmark):
    assert benchmark(Parser().read, "ax bxx cx " * 20)[0] == "A"
"""


@pytest.fixture
def plain_suite(suite):
    suite.write("parser_of_words.py", PARSER)
    suite.write("test_bench.py", PARSE)
    suite.append("pytest.ini", "pythonpath = .\n")
    return suite


def without_torch(suite, *arguments):
    """Run pytest in a process of its own, because a fork has torch."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=suite.path, capture_output=True, text=True, check=False)


def test_a_call_outside_of_torch_has_a_table_of_its_functions(plain_suite):
    result, saved = plain_suite.run_saved("--op-benchmarks")
    result.assert_outcomes(passed=1)
    [table] = CaseRecord.from_json(only_record(saved)).tables
    assert table.view == "functions"
    assert {(row.name, row.module): (row.calls, row.sources) for row in table.rows} == {
        ("Parser.read", "parser_of_words"): (1, ("parser_of_words.py:3",)),
        **COMPREHENSION,
        ("Parser.word", "parser_of_words"): (60, ("parser_of_words.py:6",)),
        ("str.split", "builtins"): (1, ()),
        ("str.strip", "builtins"): (60, ()),
        ("str.upper", "builtins"): (60, ()),
    }
    assert all(len(row.self_cpu_ns) == 2 for row in table.rows)
    result.stdout.fnmatch_lines(
        [
            "test_bench.py::test_parse: self time of functions per iteration",
            "function *module *calls *self *share *total *defined at",
            "Parser.word *parser_of_words *60 * us *% *parser_of_words.py:6",
            "sum of one profiled iteration *100.0 %",
            "wall time without the profiler *",
            "cProfile slows Python down unevenly: *",
        ]
    )


#: From Python 3.12 on a comprehension is no function.
COMPREHENSION = (
    {("Parser.read.<locals>.<listcomp>", "parser_of_words"): (1, ("parser_of_words.py:4",))}
    if sys.version_info < (3, 12)
    else {}
)


#: Fails where the plug-in has imported a module.
NOT_IMPORTED = """
import sys


def pytest_unconfigure():
    assert {module!r} not in sys.modules
"""


def test_a_suite_without_torch_does_not_import_it_and_is_compared_function_by_function(plain_suite):
    plain_suite.write("conftest.py", NOT_IMPORTED.format(module="torch"))
    options = ("--benchmark-autosave", "--benchmark-json=saved.json")
    done = without_torch(plain_suite, "--op-benchmarks", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = json.loads((plain_suite.path / "saved.json").read_text())
    run = Run.from_json(saved, "saved.json")
    assert not {"torch", "torchvision", "blas"} & run.environment.keys()
    assert run.environment["python"] == platform.python_version()

    slower = PARSER.replace("self.word(part) for", "self.word(self.word(part)) for")
    plain_suite.write("parser_of_words.py", slower)
    compared = without_torch(plain_suite, "--op-benchmarks", "--benchmark-compare")
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "exact: Parser.word, parser_of_words: 60 -> 120 calls" in compared.stdout.splitlines()


MIXED = """
import torch
from parser_of_words import Parser

parser = Parser()
text = "ax bxx cx " * 2000
matrix = torch.ones(4, 4)  # so small that one thread multiplies it


def lookup():
    product = matrix @ matrix + matrix
    return parser.read(text), product


def test_lookup(benchmark):
    benchmark(lookup)
"""


def test_a_call_with_operations_and_more_python_has_both_tables(plain_suite):
    plain_suite.write("test_bench.py", MIXED)
    result, saved = plain_suite.run_saved("--op-benchmarks")
    result.assert_outcomes(passed=1)
    record = CaseRecord.from_json(only_record(saved))
    operations, functions = record.tables
    assert ("aten::mm", "forward", "") in operations.keys
    calls = {row.name: row.calls for row in functions.rows}
    assert (calls["Parser.word"], calls["lookup"]) == (6000, 1)
    assert IN_TORCH in calls
    assert not [row.name for row in functions.rows if "__matmul__" in row.name]
    result.stdout.fnmatch_lines(
        ["aten::mm *forward *", "Parser.word *parser_of_words *", "in torch's functions of C *"]
    )


def test_a_call_that_is_mostly_operations_has_no_table_of_functions(suite):
    suite.write(
        "test_bench.py",
        """
        import torch

        def test_mm(benchmark):
            matrix = torch.ones(512, 512)
            benchmark(lambda: matrix @ matrix)
        """,
    )
    _, saved = suite.run_saved("--op-benchmarks")
    assert views(only_record(saved)) == ["host"]


# ---- Without a table -----------------------------------------------------------------------------


def test_a_call_of_a_type_alone_has_the_reason_why_there_is_no_table(suite):
    suite.write("test_bench.py", "def test_int(benchmark):\n    benchmark(int, '3')\n")
    result, saved = suite.run_saved("--op-benchmarks")
    assert records(saved) == {"test_int": None}
    result.stdout.fnmatch_lines(["test_bench.py::test_int: no operation table: *type such as int"])


def test_another_profiler_is_the_reason_why_there_is_no_table(suite):
    suite.write(
        "test_bench.py",
        """
        import sys

        def test_sum(benchmark):
            sys.setprofile(lambda *_: None)
            try:
                benchmark.pedantic(sum, ([1],))
            finally:
                sys.setprofile(None)
        """,
    )
    result = suite.run("--op-benchmarks")
    result.stdout.fnmatch_lines(["*::test_sum: not profiled: RuntimeError: another profiler *"])


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--benchmark-disable", "no operation tables: --benchmark-disable calls each test once *"),
        ("--no-op-profile", "test_bench.py::test_parse: not profiled: leave out --no-op-profile"),
    ],
)
def test_an_option_that_prevents_tables_is_named(plain_suite, option, line):
    result = plain_suite.run("--op-benchmarks", option)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([line])


def test_an_option_of_the_configuration_can_be_overridden(plain_suite):
    result = plain_suite.run("--op-benchmarks", "-o", "addopts=--benchmark-disable")
    result.stdout.fnmatch_lines(["*it is in the configuration: add --benchmark-enable"])


# ---- Tests of pytest-codspeed --------------------------------------------------------------------

#: As pytest-codspeed registers itself; without its switch its fixture calls the function.
CODSPEED = """
from types import SimpleNamespace

import pytest


def pytest_addoption(parser):
    parser.addoption("--codspeed", action="store_true")


def pytest_configure(config):
    config.pluginmanager.register(SimpleNamespace(), "codspeed")
    config.addinivalue_line("markers", "codspeed_benchmark: measure the body")
    config.option.benchmark_disable |= config.option.codspeed


@pytest.fixture
def codspeed_benchmark():
    return lambda function, *args: function(*args)


@pytest.fixture
def words():
    return ["b", "a"]
"""

OF_CODSPEED = """
import pytest


@pytest.mark.benchmark
def test_mark(words):
    sorted(words)


@pytest.mark.codspeed_benchmark(group="x")
def test_other_mark(words):
    sorted(words)


class TestClass:
    pytestmark = pytest.mark.benchmark

    def test_method(self, words):
        assert sorted(words) == ["a", "b"]


def test_fixture(codspeed_benchmark, words):
    assert codspeed_benchmark(sorted, words) == ["a", "b"]


@pytest.mark.benchmark
def test_both(benchmark, words):
    benchmark(sorted, words)


def test_neither(words):
    sorted(words)
"""


@pytest.fixture
def codspeed_suite(suite):
    suite.write("conftest.py", CODSPEED)
    suite.write("test_bench.py", OF_CODSPEED)
    return suite


def test_tests_of_pytest_codspeed_have_tables_as_the_gate_measures_them(codspeed_suite):
    result, saved = codspeed_suite.run_saved("--op-benchmarks")
    result.assert_outcomes(passed=6)
    assert sorted(records(saved)) == [
        "test_both",
        "test_fixture",
        "test_mark",
        "test_method",
        "test_other_mark",
    ]
    assert all(views(record) == ["functions"] for record in records(saved).values())


def test_without_the_option_pytest_codspeed_is_left_alone(codspeed_suite):
    result, saved = codspeed_suite.run_saved()
    result.assert_outcomes(passed=6)
    assert list(records(saved)) == ["test_both"]


@pytest.mark.parametrize("name", ["test_mark", "test_fixture", "test_both"])
def test_the_switch_of_pytest_codspeed_is_named(codspeed_suite, name):
    result = codspeed_suite.run("--op-benchmarks", "--codspeed", "-k", name)
    result.stdout.fnmatch_lines(["no operation tables: --codspeed disables pytest-benchmark*"])


def test_a_mark_that_needs_pytest_codspeed_is_named(suite):
    suite.write(
        "test_bench.py",
        """
import pytest

pytestmark = pytest.mark.benchmark(group="x")


def test_mark():
    sorted("ba")


def test_requested(request):
    request.getfixturevalue("benchmark")(sorted, "ba")
""",
    )
    result = suite.run("--op-benchmarks")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*mnistbench: not recorded*",
            "test_bench.py::test_mark: has the mark of pytest-codspeed, which is not installed, *",
        ]
    )
    result.stdout.no_fnmatch_line("*test_requested: has a mark*")
    suite.run().stdout.no_fnmatch_line("*pytest-codspeed*")


def test_tests_of_one_name_in_two_folders_have_their_folders(plain_suite):
    for folder in "ab":
        plain_suite.write(
            f"{folder}/test_x.py", "def test_x(benchmark):\n    benchmark(sum, [1])\n"
        )
        plain_suite.write(f"{folder}/__init__.py", "")
    plain_suite.write("b/test_y.py", "def test_y(benchmark):\n    benchmark(sum, [1])\n")
    result, _ = plain_suite.run_saved("--op-benchmarks", "a", "b", "--benchmark-save=base")
    titles = [line.partition(": self")[0] for line in result.outlines if ": self time" in line]
    assert titles == ["a/test_x.py::test_x", "b/test_x.py::test_x", "test_y.py::test_y"]
    result = plain_suite.run("--op-benchmarks", "a", "b", "--benchmark-compare")
    assert {"a/test_x.py::test_x", "b/test_x.py::test_x", "test_y.py::test_y"} < {*result.outlines}


# ---- The mark op_benchmark -----------------------------------------------------------------------

MARKED = """
import pytest
import torch


@pytest.mark.op_benchmark
def test_marked(benchmark):
    assert benchmark(torch.mm, torch.ones(8, 8), mat2=torch.ones(8, 8)).shape == (8, 8)


@pytest.mark.op_benchmark
class TestClass:
    def test_in_marked_class(self, benchmark):
        layer = torch.nn.Linear(4, 4)
        benchmark(lambda: layer(torch.ones(1, 4)).sum().backward())


@pytest.mark.op_benchmark
def test_without_torch(benchmark):
    benchmark(sum, [1])


def test_plain(benchmark):
    benchmark(torch.ones(3).exp)
"""


def test_a_marked_test_has_operations_without_the_option(suite):
    suite.write("test_bench.py", MARKED)
    result, saved = suite.run_saved("--strict-markers")
    result.assert_outcomes(passed=4)
    recorded = [name for name, record in records(saved).items() if record]
    assert recorded == ["test_marked", "test_in_marked_class", "test_without_torch"]
    assert ["aten::mm", "forward", "-"] in [line.split()[:3] for line in result.outlines]


def test_a_marked_test_is_recorded_once_also_with_the_option(suite):
    suite.write("test_bench.py", MARKED)
    result, saved = suite.run_saved("--op-benchmarks", "-k", "test_marked")
    result.assert_outcomes(passed=1, deselected=3)
    assert records(saved)["test_marked"]["params"]["workload"] == "test_bench.py::test_marked"


#: Counts the page faults of seven blocks of memory after a first one.
FAULTS = """
import ctypes
import resource

import pytest

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
n_bytes = 64 * 2**20


def page_faults():
    counts = []
    for _ in range(8):
        block = libc.malloc(ctypes.c_size_t(n_bytes))
        ctypes.memset(block, 1, n_bytes)
        libc.free(block)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return counts[-1] - counts[0]
"""

MARKED_TEST = """
@pytest.mark.op_benchmark
def test_marked(benchmark):
    benchmark.pedantic(int)
    assert page_faults() < 100
"""

TEST_OF_A_PHASE = """
def test_phase(op_benchmark):
    op_benchmark("batch")
    assert page_faults() < 100
"""

PLAIN_TEST = """
def test_plain(benchmark):
    benchmark.pedantic(int)
    assert page_faults() > 1000
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize("test", [MARKED_TEST, TEST_OF_A_PHASE], ids=["marked", "phase"])
def test_a_session_that_records_operations_pins_the_allocator(suite, test):
    suite.write("test_bench.py", FAULTS + test)
    result = suite.run("--bench-model=lenet5", "--bench-batch-size=1", "--no-op-profile")
    result.assert_outcomes(passed=1)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_session_without_operations_leaves_the_allocator_alone(suite):
    """In a process of its own: the memory of a fork depends on what its parent has freed."""
    suite.write("test_bench.py", FAULTS + PLAIN_TEST)
    (suite.path / "conftest.py").write_text("")
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_bench.py"]
    done = subprocess.run(command, cwd=suite.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


PHASES = """
import pytest


def test_phase(op_benchmark):
    op_benchmark("forward")


@pytest.mark.parametrize("phase", ["forward", "step"])
def test_phases(op_benchmark, phase):
    op_benchmark(phase)


def measure(op_benchmark):
    op_benchmark("forward")


def test_elsewhere(op_benchmark):
    measure(op_benchmark)


def test_variable(op_benchmark):
    measure = op_benchmark
    phase = "step"
    measure(phase)
"""


def test_every_test_of_the_fixture_is_parametrized_over_workloads(suite):
    suite.write("test_bench.py", PHASES)
    suite.run(
        "--collect-only", "-q", "--bench-batch-size=1", "--bench-model=lenet5"
    ).stdout.fnmatch_lines(
        [
            "test_bench.py::test_phase[[]lenet5-b1-cpu]",
            "test_bench.py::test_phases[[]forward-lenet5-b1-cpu]",
            "test_bench.py::test_phases[[]step-lenet5-b1-cpu]",
            "test_bench.py::test_elsewhere[[]lenet5-b1-cpu]",
            "test_bench.py::test_variable[[]lenet5-b1-cpu]",
        ]
    )


def test_what_cannot_be_measured_has_one_line(suite):
    suite.write(
        "test_bench.py",
        """
        import pytest

        def test_function(op_benchmark):
            op_benchmark(sum, [1])

        def test_argument(op_benchmark):
            op_benchmark("step", 3)

        def test_decorated(op_benchmark):
            @op_benchmark
            def run():
                return 1

        def test_dynamic(request):
            request.getfixturevalue("op_benchmark")("step")

        @pytest.mark.parametrize("bench_workload", ["resnet"])
        def test_workload(op_benchmark):
            op_benchmark("step")
        """,
    )
    result = suite.run("--bench-batch-size=1", "--bench-model=lenet5")
    result.assert_outcomes(failed=5)
    what_to_use = (
        "*UsageError: op_benchmark takes the name of a phase alone: forward, *use the fixture "
        "benchmark, and the mark op_benchmark*"
    )
    result.stdout.fnmatch_lines(
        [
            *[what_to_use] * 3,
            "*UsageError: op_benchmark: name it as an argument of the test*",
            (
                "*UsageError: bench_workload='resnet' is not a workload; choose of convnet, "
                "lenet5, smallnet"
            ),
        ]
    )


SHORT_CALL = """
import pathlib
import pytest

now_s = 0.0


def ticks():
    global now_s
    now_s += float(pathlib.Path("round_s").read_text())
    return now_s


@pytest.mark.benchmark(timer=ticks)
def test_short(benchmark):
    benchmark.pedantic(int, rounds=3, iterations=10)
"""


@pytest.mark.parametrize(
    ("base_round_s", "head_round_s", "line"),
    [
        # A round has ten calls.
        ("414e-9", "426e-9", "*41.4 ns*42.6 ns*+1.20 ns*+2.9 %  within 4.0 %"),
        ("4.0e-9", "4.9e-9", "regressed: *0.40 ns -> 0.49 ns, +22.5 %*"),
    ],
)
def test_a_session_judges_times_of_a_few_nanoseconds_by_their_fractions(
    project, base_round_s, head_round_s, line
):
    project.write("test_bench.py", SHORT_CALL)
    project.write("round_s", base_round_s)
    project.run("--benchmark-autosave").assert_outcomes(passed=1)
    project.write("round_s", head_round_s)
    result = project.run("--benchmark-compare", "--op-case-fail=4%")
    assert result.ret == (EXIT_PASSED if "within" in line else EXIT_REGRESSED)
    result.stdout.fnmatch_lines([line])


def test_a_wrong_mark_of_thresholds_is_one_line_before_any_plain_test_runs(plain_suite):
    marked = 'import pytest\n\npytestmark = pytest.mark.opgate("5%", operation="5%")\n'
    plain_suite.write(
        "test_bench.py", f"{marked}\n\ndef test_sum(benchmark):\n    benchmark(int)\n"
    )
    result = plain_suite.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: opgate('5%', operation='5%'): needs thresholds: *"])
    result.stdout.no_fnmatch_line("*passed*")


@pytest.mark.versions
@pytest.mark.skipif(not shutil.which("g++"), reason="torch compiles with a C++ compiler")
def test_compiled_code_has_rows_and_facts(suite):
    suite.write(
        "test_bench.py",
        """
        import pytest, torch

        def wave(values):
            values = values.sin()
            torch._dynamo.graph_break()
            return (values + 1).relu()

        # The oldest torch uses what it deprecates.
        @pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
        def test_wave(benchmark):
            benchmark(torch.compile(wave), torch.ones(16))

        def test_eager(benchmark):
            benchmark(torch.sin, torch.ones(16))
        """,
    )
    result, saved = suite.run_saved("--op-benchmarks")
    result.assert_outcomes(passed=2)
    compiled = CaseRecord.from_json(records(saved)["test_wave"])
    assert {row.name for row in compiled.table("warm").rows} >= {
        COMPILED,
        LOOKUP,
        "fused sin",
        "fused add, relu",
    }
    facts = compiled.compilation
    assert (facts.n_graphs, facts.n_kernels, facts.n_recompilations) == (2, 2, 0)
    [broken] = facts.breaks
    assert str(broken.place) == "test_bench.py:6"
    assert facts.cold.total_ns > facts.warm.total_ns > 0
    result.stdout.fnmatch_lines(["*graph break at test_bench.py:6: *"])
    eager = CaseRecord.from_json(records(saved)["test_eager"])
    assert eager.compilation is None
    assert not any(row.name == COMPILED for row in eager.table("warm").rows)
