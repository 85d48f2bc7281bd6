"""Beside other plug-ins the same cases are saved with the same operations, or a line says why not.

Not here are pytest-randomly, which reorders and reseeds, pytest-asyncio, which warns of an option
that is not set, and pytest-timeout, whose hooks cannot be registered twice in one process:
installed, they would disturb all runs of pytest that these tests start.
"""

import pytest
from projects import records

from mnistbench.core.record import CaseRecord

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


def operations(saved):
    """Return the operations of each table of each case, by the name of the case."""
    return {
        name: [
            {(row.name, row.phase, row.module, row.calls) for row in table.rows}
            for table in CaseRecord.from_json(record).tables
        ]
        for name, record in records(saved).items()
    }


@pytest.mark.versions
@pytest.mark.parametrize(
    ("distribution", "options", "conftest"),
    [
        ("pytest-cov", ("--cov=.", "--cov-report="), ""),
        ("pytest-rerunfailures", ("--reruns=1",), FAILS_ONCE),
    ],
)
def test_the_same_operations_are_saved(project, distribution, options, conftest):
    project.write("test_bench.py", BOTH)
    _, alone = project.run_saved()
    project.append("conftest.py", conftest)
    result, beside = project.run_saved(*options)
    assert result.parseoutcomes()["passed"] == 2
    result.stdout.fnmatch_lines([f"plugins: *{distribution.removeprefix('pytest-')}-*"])
    assert all(tables and all(tables) for tables in operations(alone).values())
    assert operations(beside) == operations(alone)


def test_workers_of_xdist_save_nothing_and_say_why(project):
    result = project.run("-n2", "--benchmark-save=base")
    assert not list(project.path.glob(".benchmarks/**/*.json"))
    result.stderr.fnmatch_lines(["*Benchmarks are automatically disabled because xdist*"])
