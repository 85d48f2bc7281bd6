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
    "no workload to measure: return one from pytest_mnistbench_workloads in conftest.py, "
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


BUILT_IN = "from mnistbench.pytest_plugin.hooks import builtin_workloads as pytest_mnistbench_workloads\n"


@pytest.mark.parametrize(
    ("options", "conftest", "test", "cases"),
    [
        ([], CONFTEST, PLAIN, ["mine-b4-cpu"]),
        (["--bench-model=mine,convnet"], CONFTEST, PLAIN, ["mine-b4-cpu", "convnet-b4-cpu"]),
        ([], "", MARKED, ["lenet5-b4-cpu"]),
        ([], BUILT_IN, PLAIN, ["convnet-b4-cpu", "lenet5-b4-cpu"]),
    ],
    ids=["of the project", "an option names a built-in one", "a mark names a built-in one", "built-in ones are registered"],
)
def test_workloads_of_a_test(collect, options, conftest, test, cases):
    assert collect(*options, conftest=conftest, test=test) == (cases, [])


@pytest.mark.parametrize(
    ("conftest", "line"),
    [
        ("", NONE),
        (CONFTEST.replace('"mine"', '"convnet"'), "workload 'convnet' is registered twice: give one of them another name"),
        (CONFTEST.replace("    ]\n", "    ] * 2\n"), "workload 'mine' is registered twice: give one of them another name"),
        (
            "def pytest_mnistbench_workloads(config): return ['tiny']\n",
            "pytest_mnistbench_workloads returned 'tiny': return a list of mnistbench Workload objects",
        ),
    ],
    ids=["none", "name of a built-in one", "one name twice", "no workload"],
)
def test_wrong_workloads_are_one_line(collect, conftest, line):
    assert collect(conftest=conftest) == ([], [f"ERROR: {line}"])
