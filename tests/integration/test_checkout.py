"""The repository runs straight from a checkout that is not installed."""

import json
import os
import shutil
from pathlib import Path

import forks
import pytest

import mnistbench
from mnistbench.core.record import CaseRecord

pytestmark = pytest.mark.usefixtures("torch")

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.fixture
def checkout(tmp_path):
    """A copy without an installed entry point; the package is the one under test."""
    shutil.copytree(
        Path(mnistbench.__file__).parent,
        tmp_path / "mnistbench",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copytree(
        REPOSITORY / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


def run(checkout, *arguments):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "PYTHON", "MNISTBENCH_"))
    }
    # Entry points stay unread, as if the package were not installed; what it depends on is named.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    arguments = ("-p", "pytest_benchmark.plugin", "-p", "no:cacheprovider", *arguments)
    return forks.run("pytest", *arguments, cwd=checkout, env=environment)


def test_the_suite_runs_and_attaches_through_the_repositorys_own_conftest(checkout):
    done = run(
        checkout,
        "bench",
        "-k",
        "test_forward and lenet5-b1-cpu",
        "--benchmark-json=saved.json",
        "--benchmark-max-time=0.01",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "forward lenet5 on digits, cpu, float32: self CPU time per iteration" in done.stdout
    [benchmark] = json.loads((checkout / "saved.json").read_text(encoding="utf-8"))["benchmarks"]
    assert CaseRecord.from_json(benchmark["extra_info"]["mnistbench"]).table("warm").rows


@pytest.mark.versions
def test_every_case_of_the_suite_has_an_id_that_reads_well(checkout):
    collected = run(checkout, "bench", "--collect-only", "-q", "--bench-device=cpu").stdout.split()
    sizes = (1, 16, 64)
    workloads = ("convnet", "lenet5")
    tests = (
        "test_epoch.py::test_train",
        "test_epoch.py::test_eval",
        "test_forward.py::test_forward",
        "test_step.py::test_step",
    )
    expected = {
        f"bench/{test}[{workload}-b{size}-cpu]"
        for test in tests
        for workload in workloads
        for size in sizes
    }
    expected |= {f"bench/test_data.py::test_batch[convnet-b{size}-cpu]" for size in sizes}
    assert {line for line in collected if line.startswith("bench/")} == expected


@pytest.mark.versions
def test_blocking_the_plugin_blocks_it_in_a_checkout_too(checkout):
    done = run(checkout, "bench/test_step.py", "--collect-only", "-q", "-p", "no:mnistbench")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bench/test_step.py::test_step\n" in done.stdout  # not parametrized


@pytest.mark.versions
def test_the_first_comparison_has_nothing_to_compare_with_and_warns(checkout):
    done = run(checkout, "bench/test_step.py", "--collect-only", "-q", "--benchmark-compare")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Can't compare. No benchmark files" in done.stdout + done.stderr
