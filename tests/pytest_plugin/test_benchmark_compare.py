"""``--benchmark-compare``: our comparison beneath pytest-benchmark's table."""

import json

import pytest

pytestmark = pytest.mark.versions

HEADING = "*- mnistbench: operations compared -*"


def test_operations_beneath_the_table_then_loss_and_accuracy(project):
    project.measure_a_step()
    project.run("--benchmark-autosave")
    project.append(
        "conftest.py",
        """

        class Repeated(nn.Linear):
            def forward(self, inputs):
                return sum(super(Repeated, self).forward(inputs) for _ in range(3)) / 3


        import sys
        nn.Linear, Plain = Repeated, nn.Linear
        """,
    )
    result = project.run("--benchmark-compare")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*test_step*(NOW)*",
            HEADING,
            "base: *",
            "head: this run",
            "step tiny-b4-cpu on synthetic",
            "*base us*head us*change us*change*calls*of change  verdict*",
            "other (* operations)*",
            "outside operations *",
            "not explained by operations *",
            "wall time of one iteration *",
            "by phase: *optimizer *",
            "exact: *: 1 -> 3 calls*",
            "exact: * more; --format json has all",
            "training on synthetic*: *train/*",
            "thresholds: none given, so nothing fails; *",
        ]
    )
    text = result.stdout.str()
    assert "mnistbench: operations -" not in text  # the comparison stands in place of the plain tables


def test_cases_on_one_side_only_are_listed(project):
    project.save_base("--bench-batch-size=2,4")
    result = project.run("--benchmark-compare", "--bench-batch-size=4,8")
    result.stdout.fnmatch_lines(
        [
            "new, not compared: test_bench.py::test_forward?tiny-b8-cpu?",
            "forward tiny-b4-cpu *",
            "missing: in the base but not in this run: test_bench.py::test_forward?tiny-b2-cpu?, last saved *",
        ]
    )


def test_other_threads_are_said_and_are_not_the_same_case(project):
    project.save_base()
    result = project.run("--benchmark-compare", "--bench-threads=2")
    result.stdout.fnmatch_lines(
        [
            "different threads: 1 -> 2; this alone may change times",
            "missing: no case in common with the base; save a run of these cases first",
            "incomparable: not the same case as in the base: test_bench.py::test_forward?tiny-b4-cpu? (threads 1 -> 2); *",
        ]
    )


def test_without_a_saved_run_it_says_so_and_how_to_save_one(project):
    result = project.run("--benchmark-compare")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "forward tiny on synthetic, cpu, float32: self CPU time per iteration",
            HEADING,
            "missing: no saved run to compare with; save one with: pytest bench --benchmark-autosave",
        ]
    )


def test_a_saved_run_that_cannot_be_read_is_one_line_and_the_run_goes_on(project):
    path = project.save_base()
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved["benchmarks"][0]["extra_info"]["mnistbench"]["schema"] = 99
    path.write_text(json.dumps(saved), encoding="utf-8")
    result = project.run("--benchmark-compare")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["the run saved *: benchmarks?0?.extra_info.mnistbench.schema: 99 is newer than the 1 *"])


def test_our_table_is_printed_even_when_pytest_benchmarks_own_check_raises(project):
    path = project.save_base()
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved["benchmarks"][0]["stats"]["min"] = 1e-9  # faster than any run can be
    path.write_text(json.dumps(saved), encoding="utf-8")
    result = project.run("--benchmark-compare", "--benchmark-compare-fail=min:5%")
    result.stdout.fnmatch_lines([HEADING, "wall time of one iteration *"])
    assert result.ret != 0


def test_quiet_reporting_is_quiet_for_us_too(project):
    project.save_base()
    for arguments in ([], ["--benchmark-compare"]):
        result = project.run("--benchmark-quiet", *arguments)
        result.stdout.no_fnmatch_line("*mnistbench: operations*")
