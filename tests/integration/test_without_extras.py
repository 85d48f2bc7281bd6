"""What the package alone does, without torch and other packages of extras, and on Windows.

Each test uses an environment whose packages are links to those that mnistbench requires.
"""

import importlib.metadata
import os
import subprocess
from pathlib import Path

import pytest
import windows_stand_in
from bare_environments import installed_environment, linked_environment
from packaging.requirements import Requirement
from projects import git
from reading_commands import READING, write_files

from mnistbench.cli import COMMANDS
from mnistbench.core.extras import EXTRAS

CHECKOUT = Path(__file__).parents[2]

#: Arguments with which a command would start its work.
ARGUMENTS = {
    "lab score": ["step.py"],
    "class merge": ["submissions", "-o", "page"],
    "class rerun": ["submissions", "-o", "page"],
    "scale": ["--strong"],
    "bisect": ["numpy==1.0..2.0"],
    "reproduce": ["aten_mm.py"],
    "gate": ["--base", "HEAD"],
}

#: Commands that need no package of an extra, not even to measure.
WORKING = {"env": [], **READING}

#: The word op_benchmark does not mean that torch is needed.
BENCHMARK = """
# This project does not use the fixture op_benchmark.
from work import work


def test_work(benchmark):
    assert benchmark(work) == 45
"""

WORK = """
def work():
    return sum(range(10))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with the package and what it requires."""
    names = [
        Requirement(line).name
        for line in importlib.metadata.requires("mnistbench")
        if not Requirement(line).marker
    ]
    folder = tmp_path_factory.mktemp("environment")
    python = linked_environment(folder / "bare", *names)
    [site_packages] = folder.glob("bare/lib/python*/site-packages")
    import mnistbench

    (site_packages / "mnistbench").symlink_to(Path(mnistbench.__file__).parent)
    [plugin] = importlib.metadata.entry_points(group="pytest11", name="mnistbench")
    information = site_packages / "mnistbench-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mnistbench\nVersion: 0\n")
    (information / "entry_points.txt").write_text(f"[pytest11]\nmnistbench = {plugin.value}\n")
    return python


@pytest.fixture
def files(alone):
    """Files for the commands that read, in the current folder."""
    write_files()


def ran(python, *arguments, **options):
    # pytest-benchmark is off in what believes itself a worker of pytest-xdist.
    environ = {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, check=False, env=environ, **options
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def command(python, name):
    arguments = {**ARGUMENTS, **WORKING}.get(name, [])
    return ran(python, "-m", "mnistbench", *name.split(), *arguments)


def test_the_environment_has_no_package_of_an_extra(python):
    program = "import importlib.util as u, sys; print([u.find_spec(name) for name in sys.argv[1:]])"
    assert ran(python, "-c", program, *EXTRAS).stdout == f"{[None] * len(EXTRAS)}\n"


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.usefixtures("files")
def test_a_command_that_reads_works(python, name):
    done = command(python, name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.module])
@pytest.mark.usefixtures("alone")
def test_no_command_ends_in_a_traceback(python, name):
    assert command(python, name).returncode in (0, 2)


@pytest.mark.parametrize(
    "name", [name for name, command in COMMANDS.items() if command.needs and command.module]
)
@pytest.mark.usefixtures("alone")
def test_a_command_that_needs_a_package_says_so_in_one_line(python, name):
    done = command(python, name)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"mnistbench: {name} needs ")
    assert line.endswith("not installed: pip install 'mnistbench[torch]'")
    assert not list(Path.cwd().iterdir())


@pytest.mark.usefixtures("alone")
def test_a_plain_suite_gets_tables_and_is_gated(python):
    Path("work.py").write_text(WORK)
    Path("test_work.py").write_text(BENCHMARK)
    done = ran(python, "-m", "pytest", "--op-benchmarks", "--benchmark-max-time=0.01")
    assert done.returncode == 0
    assert "test_work.py::test_work: self time of functions per iteration" in done.stdout
    Path(".gitignore").write_text("__pycache__/\n.benchmarks/\n.pytest_cache/\n")
    git(Path.cwd(), "init", "--quiet", "--initial-branch=main")
    git(Path.cwd(), "add", "--all")
    git(Path.cwd(), "commit", "--quiet", "--message", "first")
    Path("work.py").write_text(WORK.replace("sum(range(10))", "sum([*range(10)])"))
    arguments = ["--base", "HEAD", "--trials", "8", "--threshold", "1000%", "--", "test_work.py"]
    done = ran(python, "-m", "mnistbench", "gate", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("passed: ")


@pytest.mark.usefixtures("alone")
def test_the_fixture_of_workloads_is_a_usage_error(python):
    Path("test_step.py").write_text("def test_step(op_benchmark):\n    op_benchmark('step')\n")
    done = ran(python, "-m", "pytest")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    line = "the fixture op_benchmark needs torch, which is not installed: pip install"
    assert f"ERROR: {line} 'mnistbench[torch]'" in done.stdout + done.stderr


def test_the_suite_is_a_usage_error(python):
    done = ran(python, "-m", "pytest", "bench", "-p", "no:cacheprovider", cwd=CHECKOUT)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    line = "ERROR: the suite needs torch, which is not installed: pip install 'mnistbench[torch]'"
    assert [part for part in (done.stdout + done.stderr).splitlines() if part] == [line]


@pytest.mark.thorough
def test_the_first_commands_of_readme(tmp_path, alone):
    python = installed_environment(tmp_path / "environment", str(CHECKOUT))
    files = [path for path in Path(python).parents[1].rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 80e6
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "test_work.py").write_text(BENCHMARK.replace(" == 45", ""))
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number in ("10", "1_000_000"):
        (folder / "work.py").write_text(WORK.replace("10", number))
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", number)
    arguments = ["--base", "HEAD~1", "--threshold", "5%", "--", "test_work.py"]
    done = ran(python, "-m", "mnistbench", "gate", *arguments, cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "likely cause: work.py:work (changed)" in done.stdout


# ---- Windows -------------------------------------------------------------------------------------


def on_windows(python, *arguments):
    return ran(python, windows_stand_in.__file__, *arguments)


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.usefixtures("files")
def test_a_command_that_reads_works_on_windows(python, name):
    done = on_windows(python, "mnistbench", name, *WORKING[name])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.measures])
@pytest.mark.usefixtures("alone")
def test_a_command_that_measures_says_in_one_line_that_it_needs_posix(python, name):
    arguments = ARGUMENTS.get(name, [])
    done = on_windows(python, "mnistbench", *name.split(), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"mnistbench: {name} measures, which needs Linux or macOS; on Windows, run it in WSL\n"
    )


@pytest.mark.usefixtures("alone")
def test_the_plug_in_works_on_windows(python):
    Path("work.py").write_text(WORK)
    Path("test_work.py").write_text(BENCHMARK)
    done = on_windows(python, "pytest", "--op-benchmarks", "--benchmark-max-time=0.01")
    assert done.returncode == 0
    assert "test_work.py::test_work: self time of functions per iteration" in done.stdout
