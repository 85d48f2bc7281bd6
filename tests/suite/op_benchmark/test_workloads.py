"""Which workloads a test measures, in which steps.

Those of its project and, if they are named, the built-in ones.
"""

import json
import re

import pytest
from projects import CONFTEST, only_record, records

PLAIN = "def test_forward(op_benchmark):\n    op_benchmark('forward')\n"
MARKED = f"import pytest\n\n@pytest.mark.parametrize('bench_workload', ['lenet5'])\n{PLAIN}"
BUILT_IN = (
    "from mnistbench.suite.op_benchmark.hooks import builtin_workloads\n"
    "pytest_mnistbench_workloads = builtin_workloads\n"
)
NONE = (
    "no workload to measure: return one from pytest_mnistbench_workloads in conftest.py, "
    "or choose a built-in one with --bench-model: convnet, lenet5, smallnet"
)


@pytest.fixture
def project(project):
    """A project that names no workload in its configuration."""
    project.write("pytest.ini", "[pytest]\nbench_batch_size = 4\nbench_device = cpu\n")
    return project


@pytest.mark.versions
@pytest.mark.parametrize(
    ("options", "conftest", "test", "cases"),
    [
        ([], CONFTEST, PLAIN, ["tiny-b4-cpu"]),
        (["--bench-model=tiny,convnet"], CONFTEST, PLAIN, ["tiny-b4-cpu", "convnet-b4-cpu"]),
        ([], "", MARKED, ["lenet5-b4-cpu"]),
        ([], BUILT_IN, PLAIN, ["convnet-b4-cpu", "lenet5-b4-cpu"]),
    ],
    ids=[
        "of the project",
        "an option names a built-in one",
        "a mark names a built-in one",
        "built-in ones are registered",
    ],
)
def test_workloads_of_a_test(project, options, conftest, test, cases):
    project.write("conftest.py", conftest)
    project.write("test_bench.py", test)
    result = project.run("--collect-only", "-q", *options)
    assert [
        match[1] for line in result.outlines if (match := re.search(r"\[(.*)\]$", line))
    ] == cases
    assert "".join(result.errlines) == ""


@pytest.mark.parametrize(
    ("conftest", "line"),
    [
        ("", NONE),
        (
            CONFTEST.replace('"tiny"', '"convnet"'),
            "workload 'convnet' is registered twice: give one of them another name",
        ),
        (
            CONFTEST.replace("    ]\n", "    ] * 2\n"),
            "workload 'tiny' is registered twice: give one of them another name",
        ),
        (
            "def pytest_mnistbench_workloads(config): return ['tiny']\n",
            (
                "pytest_mnistbench_workloads returned 'tiny': return a list of mnistbench "
                "Workload objects"
            ),
        ),
        (
            (
                "import torch\n\ndef pytest_mnistbench_workloads(config): return "
                "[torch.nn.Sequential(torch.nn.ReLU())]\n"
            ),
            (
                "pytest_mnistbench_workloads returned an object of type Sequential: return a list "
                "of mnistbench Workload objects"
            ),
        ),
    ],
    ids=["none", "name of a built-in one", "one name twice", "no workload", "model"],
)
def test_wrong_workloads_are_one_line(project, conftest, line):
    project.write("conftest.py", conftest)
    project.assert_refused(line)


def test_a_parameter_of_the_user_is_named_alike_in_each_process(project):
    project.write("conftest.py", CONFTEST)
    project.write(
        "test_bench.py",
        """
        import pytest

        class Option:
            pass

        @pytest.mark.parametrize("option", [Option(), "plain", [Option()], sorted, Option])
        def test_forward(op_benchmark, option):
            op_benchmark("forward")
        """,
    )
    saved_records = records(project.run_saved("--no-op-profile")[1]).values()
    options = [
        "option0",
        "plain",
        "option2",
        "<built-in function sorted>",
        "<class 'test_bench.Option'>",
    ]
    expected = {f"test_bench.py::test_forward[option={option}]" for option in options}
    assert {record["test"] for record in saved_records} == expected


# ---- --bench-step --------------------------------------------------------------------------------


def test_both_steps_are_measured_as_cases_of_one_test_with_names_of_the_same_modules(project):
    project.measure_a_step()
    result, saved = project.run_saved("--bench-model=lenet5", "--bench-step=reference,fast")
    assert result.ret == 0
    modules = {}
    for step, (name, record) in zip(("reference", "fast"), records(saved).items(), strict=True):
        identity = (f"test_step[lenet5-b4-cpu-{step}]", "test_bench.py::test_step", step)
        assert (name, record["test"], record["params"]["step"]) == identity
        modules[step] = {
            module
            for table in record["tables"]
            for module in json.loads(table["operations"])["module"]
        }
    layers = {
        "conv1",
        "pool1",
        "conv2",
        "pool2",
        "fc1",
        "relu3",
        "fc2",
        "fc3",
        "log_softmax",
        "(loss)",
    }
    assert layers <= modules["fast"]  # max-pooling computes ReLU and flattening after it
    # Flattening contiguous values is no operation.
    assert layers | {"relu1", "relu2"} <= modules["reference"]


def test_data_has_no_fast_step(project):
    project.write("test_bench.py", "def test_batch(op_benchmark):\n    op_benchmark('batch')\n")
    result, saved = project.run_saved("--bench-step=reference,fast", "-rs")
    assert result.ret == 0
    assert only_record(saved)["params"]["step"] == "reference"
    result.stdout.fnmatch_lines("SKIPPED*a batch has no fast step")
