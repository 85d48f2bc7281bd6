"""Fixtures.

A user's project in a temporary folder with one small model of its own, commands in an empty one, a
browser.
"""

import json
import os
import shutil
import subprocess
import textwrap
import time

import forks
import pytest
from inner_runs import ADDOPTS

from mnistbench import cli

CONFTEST = """
import torch
from torch import nn

from mnistbench import Workload
from mnistbench.suite.workloads.workload import number_correct


def make_batch(batch_size, device, generator):
    inputs = torch.randn(batch_size, 8, generator=generator)
    return inputs.to(device), (inputs.sum(dim=1) > 0).long().to(device)


def pytest_mnistbench_workloads(config):
    return [
        Workload(
            name="tiny",
            make_model=lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)),
            make_batch=make_batch,
            loss=nn.functional.cross_entropy,
            make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            metric=number_correct,
        )
    ]
"""

BENCH = """
def test_forward(op_benchmark):
    op_benchmark("forward")
"""

STEP = """
def test_step(op_benchmark):
    op_benchmark("step")
"""

#: pytest-benchmark warns of a missing baseline, of a case that failed before its first round, of
#: machines that differ: where warnings are errors, these are errors of its own.
ITS_WARNINGS = ("-W", "default::pytest_benchmark.logger.PytestBenchmarkWarning")

CONFIG = """
[pytest]
bench_model = tiny
bench_batch_size = 4
bench_device = cpu
op_iterations = 2
bench_tensorboard = off
filterwarnings = error
"""


def run_pytest(path, *arguments):
    """Run pytest in a folder; print and return what it printed."""
    started = time.perf_counter()
    done = forks.run("pytest", "-p", "no:cacheprovider", *arguments, cwd=path)
    print(done.stdout, done.stderr, sep="\n")  # noqa: T201  # pytest shows it where a test fails
    return pytest.RunResult(
        done.returncode,
        done.stdout.splitlines(),
        done.stderr.splitlines(),
        time.perf_counter() - started,
    )


def git(folder, *arguments):
    """Run git with an identity and without the user's configuration; return what it printed."""
    identity = (
        "-c",
        "user.name=tester",
        "-c",
        "user.email=tester@example.org",
        "-c",
        "init.defaultBranch=main",
    )
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def records(saved):
    """Return what mnistbench saved of each benchmark, by its name; None of one that is not ours."""
    return {
        benchmark["name"]: benchmark["extra_info"].get("mnistbench")
        for benchmark in saved["benchmarks"]
    }


def only_record(saved):
    """Return what mnistbench saved of the only benchmark."""
    [record] = records(saved).values()
    return record


#: What was saved, by the arguments and the bench file.
_SAVED = {}


class Project:
    """Runs pytest on a user's project as a user would, with few and short rounds."""

    def __init__(self, path):
        self.path = path
        self.write("conftest.py", CONFTEST)
        self.write("pytest.ini", CONFIG)
        self.write("test_bench.py", BENCH)

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")

    def measure_a_step(self):
        self.write("test_bench.py", STEP)

    def append(self, name, text):
        self.write(name, (self.path / name).read_text(encoding="utf-8") + textwrap.dedent(text))

    def run(self, *arguments):
        return run_pytest(
            self.path,
            "--benchmark-max-time=0.01",
            "--benchmark-min-rounds=3",
            "--benchmark-columns=median,rounds",
            *ITS_WARNINGS,
            *arguments,
        )

    def assert_refused(self, line, *arguments):
        """Check that pytest ends with nothing but this line, before any case runs.

        The line is a pattern of fnmatch.
        """
        result = self.run(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {line}"])
        assert len([text for text in result.stderr.lines if text.strip()]) == 1

    def save_base(self, *arguments):
        """Put the run ``0001_base.json`` there, as the project saves it.

        One real run serves many tests.
        """
        key = (arguments, (self.path / "test_bench.py").read_text(encoding="utf-8"))
        if key not in _SAVED:
            assert self.run("--benchmark-save=base", *arguments).ret == 0
            [path] = self.path.glob(".benchmarks/*/0001_base.json")
            _SAVED[key] = (path.parent.name, path.read_text(encoding="utf-8"))
        machine, text = _SAVED[key]
        self.write(f".benchmarks/{machine}/0001_base.json", text)
        return self.path / ".benchmarks" / machine / "0001_base.json"

    def run_saved(self, *arguments):
        """Run and return pytest-benchmark's JSON beside the result."""
        # One of a run before must not stand in for this one's.
        (self.path / "saved.json").unlink(missing_ok=True)
        result = self.run("--benchmark-json=saved.json", *arguments)
        return result, json.loads((self.path / "saved.json").read_text(encoding="utf-8"))


#: Beginnings of the names of variables that would act on the runs of a user's project.
CLEARED = ("COVERAGE_", "PYTEST_", "MALLOC_", "MNISTBENCH_", "GITHUB_")


@pytest.fixture
def plain_project(tmp_path, monkeypatch):
    """A project with plain tests alone."""
    for name in os.environ:  # pytest-benchmark is off in what believes itself a worker of xdist
        if name.startswith(CLEARED) and name != ADDOPTS:
            monkeypatch.delenv(name)
    project = Project(tmp_path)
    project.write("conftest.py", "")
    project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
    return project


@pytest.fixture
def project(plain_project, torch):
    """A project whose conftest.py has a model of its own, so torch is needed."""
    return Project(plain_project.path)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Work in an empty folder, outside any repository and any job.

    git is asked for commits and branches here.
    """
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GIT_")) or name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


@pytest.fixture
def run(alone, capsys):
    """Run a command; return its exit code and what it prints.

    What is captured is no terminal and gets no escapes.
    """

    def command(*arguments):
        code = cli.main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert "\x1b" not in printed.out + printed.err
        return code, printed.out, printed.err

    return command


@pytest.fixture
def refused(run):
    """Run a command that is refused; return the line of its error."""

    def command(*arguments):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("mnistbench: ")
        assert err.count("\n") == 1
        return err.removeprefix("mnistbench: ").rstrip()

    return command


#: What Debian, Ubuntu and others call the browser that Playwright can drive.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium, headless.

    Where there is none a test is skipped; continuous integration must have one.
    """
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    missing = "no browser: install chromium" if path is None else ""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "no Playwright: install the dependency group test"
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    with sync_playwright() as playwright:
        # Chromium's sandbox does not run as root, as in a container.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()
