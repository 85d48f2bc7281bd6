"""It behaves as a plug-in must: invisible where it is not used, and no obstacle to pytest's and pytest-benchmark's options."""

import subprocess
import sys

import pytest
from projects import run_pytest

pytestmark = pytest.mark.versions

PLAIN = """
import sys

def test_plain():
    loaded = {name.split(".")[0] for name in sys.modules}
    assert not loaded & {"torch", "torchvision", "tensorboard", "sklearn", "scipy", "tabulate", "tqdm"}
    assert sum(name.startswith("mnistbench") for name in sys.modules) <= 15
"""


def test_installed_but_not_used_it_loads_nothing_and_prints_nothing(project):
    project.write("conftest.py", "")
    project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
    project.write("test_bench.py", PLAIN)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lines = (done.stdout + done.stderr).splitlines()
    printed = [line for line in lines if "mnistbench" in line and not line.startswith(("plugins:", "rootdir:"))]
    assert printed == []


def test_without_pytest_benchmark_other_tests_still_run(project):
    project.write("conftest.py", "")
    project.write("pytest.ini", "[pytest]\n")
    project.write("test_bench.py", "def test_plain(): pass\n")
    result = run_pytest(project.path, "-p", "no:benchmark")
    result.assert_outcomes(passed=1)


def test_blocked_it_is_gone_and_the_conftest_that_implements_its_hook_still_loads(project):
    project.write("pytest.ini", "[pytest]\n")
    project.write(
        "conftest.py",
        """
        import pytest

        @pytest.hookimpl(optionalhook=True)
        def pytest_mnistbench_attach(config, case, record):
            return {}
        """,
    )
    project.append("test_bench.py", "\ndef test_plain(): pass\n")
    result = project.run("-p", "no:mnistbench")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'op_benchmark' not found*"])


BOTH = """
def test_forward(op_benchmark):
    op_benchmark("forward")

def test_plain():
    pass
"""


def test_disabled_benchmarks_run_once_and_record_nothing(project):
    project.write(
        "test_bench.py",
        """
        def test_forward(op_benchmark, benchmark):
            op_benchmark("forward")
            assert benchmark.extra_info == {}
        """,
    )
    result = project.run("--benchmark-disable", "--benchmark-autosave", "--bench-tensorboard=.benchmarks/tensorboard")
    result.assert_outcomes(passed=1)
    assert not list(project.path.glob(".benchmarks/**/*.json"))
    assert not (project.path / ".benchmarks" / "tensorboard").exists()
    result.stdout.no_fnmatch_line("*mnistbench: operations*")


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        (["--benchmark-skip"], {"passed": 1, "skipped": 1}),
        (["--benchmark-only"], {"passed": 1, "skipped": 1}),
        (["-k", "plain"], {"passed": 1, "deselected": 1}),
        (["-k", "forward"], {"passed": 1, "deselected": 1}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_selection_does_what_pytest_benchmarks_users_expect(project, arguments, outcomes):
    project.write("test_bench.py", BOTH)
    project.run(*arguments).assert_outcomes(**outcomes)


def test_collect_only_runs_nothing_and_leaves_nothing(project):
    result = project.run("--collect-only", "-q", "--bench-tensorboard=.benchmarks/tensorboard")
    assert "test_bench.py::test_forward[tiny-b4-cpu]" in result.stdout.lines
    assert not (project.path / ".benchmarks" / "tensorboard").exists()


def test_with_xdist_cases_run_once_each_as_pytest_benchmark_has_it(project):
    result = project.run("-n", "2", "--bench-batch-size=2,4", "-W", "ignore")
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*mnistbench: operations*")


def test_exitfirst_stops_at_the_first_failing_case_and_keeps_those_before(project):
    project.write(
        "test_bench.py",
        """
        def test_a(op_benchmark):
            op_benchmark("forward")

        def test_b(op_benchmark):
            op_benchmark("eval")

        def test_c(op_benchmark):
            op_benchmark("forward")
        """,
    )
    result, saved = project.run_saved("-x")
    result.assert_outcomes(passed=1, failed=1)
    assert [benchmark["name"] for benchmark in saved["benchmarks"]] == ["test_a[tiny-b4-cpu]"]
