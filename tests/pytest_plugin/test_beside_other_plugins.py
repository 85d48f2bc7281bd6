"""Beside other plug-ins the same cases are saved with the same operations, or a line says why not.

A test loads those that act on each run with ``-p``, because all other tests block them.
"""

import pytest
from projects import records

from mnistbench.core.record import CaseRecord
from mnistbench.pytest_plugin.plugin import PYTEST_EXIT_INCONCLUSIVE

BOTH = """
def test_forward(op_benchmark):
    op_benchmark("forward")


def test_step(op_benchmark):
    op_benchmark("step")
"""

#: A fixture that fails once: the case is measured by the second run of its test.
FAILS_ONCE = """
import pytest

attempts = []


@pytest.fixture(autouse=True)
def _fails_once():
    attempts.append(0)
    assert len(attempts) > 1
"""


#: A fixture of each test that pytest cannot run by itself.
AWAITED = """
import asyncio

import pytest


@pytest.fixture(autouse=True)
async def _awaited():
    await asyncio.sleep(0)
    yield
    await asyncio.sleep(0)
"""

ASYNCIO = (
    *("-p", "pytest_asyncio.plugin", "--asyncio-mode=auto"),  # asyncio is a module of Python's
    "--override-ini=asyncio_default_fixture_loop_scope=function",  # it warns without
)


def operations(saved):
    """Return the operations of each table of each case, by the name of the case."""
    return {
        name: [
            {(row.name, row.phase, row.module, row.calls) for row in table.rows}
            for table in CaseRecord.from_json(record).tables
        ]
        for name, record in records(saved).items()
    }


_ALONE = {}


def operations_alone(project):
    """Return the operations of both cases without other plug-ins: one run serves many tests."""
    if not _ALONE:
        project.write("test_bench.py", BOTH)
        _ALONE.update(operations(project.run_saved()[1]))
    assert all(tables and all(tables) for tables in _ALONE.values())
    return _ALONE


@pytest.mark.parametrize(
    ("header", "options", "conftest"),
    [
        pytest.param(
            "plugins: *cov-*",
            ("-p", "pytest_cov", "--cov=.", "--cov-report="),
            "",
            marks=pytest.mark.versions,
        ),
        pytest.param(
            "plugins: *rerunfailures-*",
            ("-p", "rerunfailures", "--reruns=1"),
            FAILS_ONCE,
            marks=pytest.mark.versions,
        ),
        ("asyncio: mode=*", ASYNCIO, AWAITED),
        ("timeout: 600*", ("-p", "timeout", "--timeout=600"), ""),
    ],
)
def test_the_same_operations_are_saved(project, header, options, conftest):
    alone = operations_alone(project)
    project.write("test_bench.py", BOTH)
    project.append("conftest.py", conftest)
    result, beside = project.run_saved(*options)
    assert result.parseoutcomes()["passed"] == 2
    result.stdout.fnmatch_lines([header])
    assert operations(beside) == alone


def test_workers_of_xdist_save_nothing_and_say_why_so_that_a_comparison_is_undecided(project):
    # One worker is enough: each imports torch.
    options = ("-n1", "-p", "xdist", "--bench-batch-size=2,4", "--benchmark-save=base")
    result = project.run(*options, "--benchmark-compare", "--op-fail=10%")
    result.assert_outcomes(passed=2)
    assert result.ret == PYTEST_EXIT_INCONCLUSIVE
    assert not list(project.path.glob(".benchmarks/**/*.json"))
    result.stderr.fnmatch_lines(["*Benchmarks are automatically disabled because xdist*"])
    result.stdout.fnmatch_lines(
        ["missing: no benchmark ran: * pytest-xdist; run without -n", "thresholds: inconclusive: 1"]
    )
    result.stdout.no_fnmatch_line("*mnistbench: operations -*")


DRAWN = """
import random

import pytest
import torch


@pytest.fixture
def size():
    return random.randrange(2, 9)


@pytest.mark.parametrize("number", range(6))
def test_product(benchmark, number, size):
    benchmark(torch.mm, torch.ones(size, size), torch.ones(size, size))
"""


def test_cases_in_another_order_are_those_of_the_saved_run(project):
    project.write("test_bench.py", DRAWN)
    project.run_saved("--op-benchmarks", "--benchmark-save=base")
    compared = ("--benchmark-compare=0001", "--op-case-fail=1000000%", "-p", "randomly")
    result, saved = project.run_saved("--op-benchmarks", *compared, "--randomly-seed=1")
    assert result.ret == pytest.ExitCode.OK
    tables_of_case = operations(saved)
    assert len(tables_of_case) == 6
    assert list(tables_of_case) != sorted(tables_of_case)
    assert all(tables and all(tables) for tables in tables_of_case.values())


def test_an_asynchronous_test_runs_beside_benchmarks(project):
    project.append("test_bench.py", "async def test_awaits(_awaited):\n    pass\n")
    project.append("conftest.py", AWAITED)
    result, saved = project.run_saved(*ASYNCIO)
    result.assert_outcomes(passed=2)
    [tables] = operations(saved).values()
    assert tables
    assert all(tables)


#: The second call of each function, which is profiled, does not return.
HANGS = """
import time

import pytest
import torch


def hangs(calls):
    if next(calls):
        time.sleep(600)


def multiplies_and_hangs(calls):
    torch.ones(2, 2) @ torch.ones(2, 2)
    hangs(calls)


@pytest.mark.op_benchmark
@pytest.mark.timeout(1, func_only=True)
@pytest.mark.parametrize("function", [hangs, multiplies_and_hangs])
def test_hangs(benchmark, function):
    benchmark.pedantic(function, (iter(range(9)),), rounds=1)

"""


def test_a_time_limit_in_a_profiled_call_ends_this_case_alone(project):
    project.write("test_bench.py", HANGS + BOTH)
    result, saved = project.run_saved("-p", "timeout")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["FAILED *test_hangs?hangs? - Failed: Timeout *1.0*"])
    ended = [benchmark for benchmark in saved["benchmarks"] if "hangs" not in benchmark["name"]]
    assert operations({"benchmarks": ended}) == operations_alone(project)
