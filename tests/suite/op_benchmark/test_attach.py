"""The hook ``pytest_mnistbench_attach``."""

import json

import pytest
from projects import only_record, records


def test_attachments_of_a_conftest_take_the_place_of_the_standard_ones(project):
    project.append(
        "conftest.py",
        """

        def pytest_mnistbench_attach(config, case, record):
            assert record.params == case.params
            return {"lines_of_code": 12, "nested": {"layers": [8, 16, 2]}}
        """,
    )
    record = only_record(project.run_saved()[1])
    assert json.loads(record["attached"]) == {"lines_of_code": 12, "nested": {"layers": [8, 16, 2]}}
    assert (record["tables"], record["scalars"], record["notes"]) == ([], None, [])


def test_the_standard_functions_can_be_called_beside_the_users_own(project):
    project.append(
        "conftest.py",
        """

        def pytest_mnistbench_attach(config, case, timed):
            from mnistbench.suite.op_benchmark.fixture import operation_tables, training_scalars

            tables = operation_tables(config, case, timed)
            return {**tables, **training_scalars(config, case, timed), "mine": 1}
        """,
    )
    record = only_record(project.run_saved()[1])
    assert json.loads(record["attached"]) == {"mine": 1}
    assert len(record["tables"]) == 2
    assert record["scalars"]


@pytest.mark.versions
def test_only_the_conftests_above_a_test_are_asked_and_may_return_nothing(project):
    for name, value in (("other", "{'other': 1}"), ("nothing", "None")):
        project.write(
            f"{name}/conftest.py",
            f"def pytest_mnistbench_attach(config, case, record):\n    return {value}\n",
        )
        project.write(
            f"{name}/test_{name}.py",
            f"def test_{name}(op_benchmark):\n    op_benchmark('forward')\n",
        )
    saved_records = records(project.run_saved()[1])
    assert {
        name: (json.loads(record["attached"]), len(record["tables"]))
        for name, record in saved_records.items()
    } == {
        "test_forward[tiny-b4-cpu]": ({}, 2),
        "test_other[tiny-b4-cpu]": ({"other": 1}, 0),
        "test_nothing[tiny-b4-cpu]": ({}, 0),
    }


def test_a_record_notes_that_kernels_belong_to_no_operation(project):
    project.append(
        "conftest.py",
        """

        def pytest_mnistbench_attach(config, case, record):
            from mnistbench.core.operation import UNATTRIBUTED
            from mnistbench.core.record import OpRow, OpTable

            def table(alone_ns):
                times = (("aten::mm", 100 - alone_ns), (UNATTRIBUTED, alone_ns))
                rows = [OpRow(name, "", "", 1.0, (0,), (0,), (ns,), 0) for name, ns in times]
                return OpTable("warm", "device", (100,), tuple(rows))

            return {"operation_tables": [table(30), table(5)]}
        """,
    )
    assert [
        note.partition(" of the time")[0] for note in only_record(project.run_saved()[1])["notes"]
    ] == ["30.0 %"]
