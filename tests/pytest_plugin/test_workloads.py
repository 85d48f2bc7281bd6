"""Which workloads a test measures: those of its project and, if they are named, the built-in ones."""

import os
import re

import pytest

pytestmark = pytest.mark.versions

CONFTEST = """
import torch
from mnistbench import Workload

def pytest_mnistbench_workloads(config):
    return [
        Workload(
            name="mine",
            make_model=lambda: torch.nn.Linear(2, 1),
            make_batch=lambda size, device, generator: (torch.ones(size, 2), torch.ones(size, 1)),
            loss=torch.nn.functional.mse_loss,
            make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )
    ]
"""
PLAIN = "def test_forward(op_benchmark):\n    op_benchmark('forward')\n"
MARKED = f"import pytest\n\n@pytest.mark.parametrize('bench_workload', ['lenet5'])\n{PLAIN}"
NONE = (
    "ERROR: no workload to measure: return one from pytest_mnistbench_workloads in conftest.py, "
    "or choose a built-in one with --bench-model: convnet, lenet5"
)


@pytest.fixture
def collect(pytester, monkeypatch):
    """Collect a project of one test file; return its cases and the lines on stderr."""
    for name in os.environ:
        if name.startswith(("PYTEST_", "MNISTBENCH_")):
            monkeypatch.delenv(name)

    def run(*arguments, conftest="", test=PLAIN):
        if conftest:
            pytester.makeconftest(conftest)
        pytester.makepyfile(test)
        done = pytester.runpytest_subprocess(
            "--collect-only", "-q", "--bench-batch-size=4", "--bench-device=cpu", "-p", "no:cacheprovider", *arguments
        )
        cases = [found[1] for line in done.outlines if (found := re.search(r"\[(.*)\]$", line))]
        return cases, [line for line in done.errlines if line.strip()]

    return run


def test_a_project_measures_its_own_workloads_only(collect):
    assert collect(conftest=CONFTEST) == (["mine-b4-cpu"], [])


def test_a_named_built_in_workload_is_measured_anywhere(collect):
    assert collect("--bench-model=mine,convnet", conftest=CONFTEST) == (["mine-b4-cpu", "convnet-b4-cpu"], [])


def test_a_mark_may_name_a_built_in_workload_of_a_project_without_one(collect):
    assert collect(test=MARKED) == (["lenet5-b4-cpu"], [])


def test_a_project_without_a_workload_is_one_line(collect):
    assert collect() == ([], [NONE])


def test_a_conftest_can_register_the_built_in_workloads(collect):
    conftest = "from mnistbench.pytest_plugin.hooks import builtin_workloads as pytest_mnistbench_workloads\n"
    assert collect(conftest=conftest) == (["convnet-b4-cpu", "lenet5-b4-cpu"], [])


def test_a_workload_with_the_name_of_a_built_in_one_is_one_line(collect):
    line = "ERROR: workload 'convnet' is registered twice: give one of them another name"
    assert collect(conftest=CONFTEST.replace('"mine"', '"convnet"')) == ([], [line])
