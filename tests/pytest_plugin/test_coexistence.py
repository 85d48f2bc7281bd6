"""It behaves as a plug-in must.

Invisible where it is not used, and no obstacle to pytest's and pytest-benchmark's options.
"""

import subprocess
import sys

import pytest
from projects import run_pytest

from mnistbench.compare.criteria import Criteria
from mnistbench.core.options import options_of
from mnistbench.pytest_plugin.options import Options

pytestmark = pytest.mark.versions

PLAIN = """
import sys

def test_plain():
    loaded = {name.split(".")[0] for name in sys.modules}
    heavy = {"torch", "torchvision", "tensorboard", "numpy", "tabulate", "tqdm"}
    assert not loaded & heavy
    assert sum(name.startswith("mnistbench") for name in sys.modules) <= 27
"""


def test_installed_but_not_used_it_loads_nothing_and_prints_nothing(plain_project):
    project = plain_project
    project.write("test_bench.py", PLAIN)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lines = (done.stdout + done.stderr).splitlines()
    printed = [
        line
        for line in lines
        if "mnistbench" in line and not line.startswith(("plugins:", "rootdir:"))
    ]
    assert printed == []


def test_without_pytest_benchmark_other_tests_still_run(plain_project):
    project = plain_project
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


def test_disabled_benchmarks_run_once_and_record_nothing(project):
    project.write(
        "test_bench.py",
        """
        def test_forward(op_benchmark, benchmark):
            op_benchmark("forward")
            assert benchmark.extra_info == {}
        """,
    )
    result = project.run(
        "--benchmark-disable", "--benchmark-autosave", "--bench-tensorboard=.benchmarks/tensorboard"
    )
    result.assert_outcomes(passed=1)
    assert not list(project.path.glob(".benchmarks/**/*.json"))
    assert not (project.path / ".benchmarks" / "tensorboard").exists()
    result.stdout.no_fnmatch_line("*mnistbench: operations*")


@pytest.mark.parametrize(
    ("argument", "ran"),
    [("--benchmark-skip", "test_plain"), ("--benchmark-only", "test_forward")],
)
def test_selection_does_what_pytest_benchmarks_users_expect(project, argument, ran):
    project.append("test_bench.py", "\ndef test_plain(): pass\n")
    result = project.run(argument, "-v")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines([f"*::{ran}*PASSED*"])


#: Another plug-in with an option of each name that the commands of mnistbench have.
OTHER_PLUGIN = """
from mnistbench.compare.criteria import Criteria
from mnistbench.core.options import options_of


def pytest_addoption(parser):
    for option in options_of(Criteria).values():
        if option.flags[0] != option.pytest_flag:
            parser.addoption(*option.flags, action="store_true")
"""


def test_a_plug_in_with_the_options_of_the_commands_can_be_installed_beside_it(project):
    project.write("pytest.ini", "[pytest]\n")
    project.write("conftest.py", OTHER_PLUGIN)
    project.write(
        "test_bench.py", "def test_plain(pytestconfig): assert pytestconfig.option.accept\n"
    )
    run_pytest(project.path, "--accept", "--by", "--case-fail").assert_outcomes(passed=1)


def test_each_option_and_setting_of_pytest_has_the_prefix_of_the_plug_in():
    for settings in (Criteria, Options):
        for option in options_of(settings).values():
            assert option.pytest_flag.startswith(("--op-", "--bench-", "--no-op-"))
            assert option.pytest_key == option.pytest_flag[2:].replace("-", "_")
