"""The hook ``pytest_mnistbench_attach``."""

import json

import pytest

pytestmark = pytest.mark.versions


def only_record(saved):
    [benchmark] = saved["benchmarks"]
    return benchmark["extra_info"]["mnistbench"]


def test_what_a_conftest_returns_is_merged_and_takes_the_place_of_the_standard_attachments(project):
    project.append(
        "conftest.py",
        """

        def pytest_mnistbench_attach(config, case, record):
            assert record.params == case.params
            return {"lines_of_code": 12, "nested": {"layers": [8, 16, 2]}}
        """,
    )
    _, saved = project.run_saved()
    record = only_record(saved)
    assert json.loads(record["attached"]) == {"lines_of_code": 12, "nested": {"layers": [8, 16, 2]}}
    assert (record["tables"], record["scalars"], record["notes"]) == ([], None, [])


def test_the_standard_functions_can_be_called_beside_the_users_own(project):
    project.append(
        "conftest.py",
        """

        def pytest_mnistbench_attach(config, case, record):
            from mnistbench.pytest_plugin.fixture import operation_tables, training_scalars

            return {**operation_tables(config, case, record), **training_scalars(config, case, record), "mine": 1}
        """,
    )
    _, saved = project.run_saved()
    record = only_record(saved)
    assert json.loads(record["attached"]) == {"mine": 1}
    assert len(record["tables"]) == 2
    assert record["scalars"]


def test_a_conftest_that_returns_nothing_is_fine(project):
    project.append("conftest.py", "\n\ndef pytest_mnistbench_attach(config, case, record):\n    pass\n")
    result, saved = project.run_saved()
    assert result.ret == 0
    assert only_record(saved)["tables"] == []


def test_only_the_conftests_above_a_test_are_asked(project):
    project.write("other/conftest.py", "def pytest_mnistbench_attach(config, case, record):\n    return {'other': 1}\n")
    project.write("other/test_other.py", "def test_other(op_benchmark):\n    op_benchmark('forward')\n")
    _, saved = project.run_saved()
    attached = {b["name"]: json.loads(b["extra_info"]["mnistbench"]["attached"]) for b in saved["benchmarks"]}
    assert attached == {"test_forward[tiny-b4-cpu]": {}, "test_other[tiny-b4-cpu]": {"other": 1}}


@pytest.mark.parametrize(("alone_ns", "noted"), [(30, ["30.0 %"]), (5, [])])
def test_a_record_notes_that_kernels_belong_to_no_operation(project, alone_ns, noted):
    project.append(
        "conftest.py",
        f"""

        def pytest_mnistbench_attach(config, case, record):
            from mnistbench.core.operation import UNATTRIBUTED
            from mnistbench.core.record import OpRow, OpTable

            rows = [
                OpRow(name, "", "", 1.0, (0,), (0,), (ns,), 0)
                for name, ns in (("aten::mm", {100 - alone_ns}), (UNATTRIBUTED, {alone_ns}))
            ]
            return {{"operation_tables": [OpTable("warm", "device", (100,), tuple(rows))]}}
        """,
    )
    _, saved = project.run_saved()
    assert [note.partition(" of the time")[0] for note in only_record(saved)["notes"]] == noted
