"""``--benchmark-compare``.

Our comparison beneath pytest-benchmark's table, and the exit codes of thresholds.

tests/compare has the verdicts themselves. A base is a real saved run whose times were changed in
the file, so that no test depends on how quick this machine is.
"""

import json
import os

import forks
import pytest

from mnistbench.pytest_plugin.plugin import PYTEST_EXIT_INCONCLUSIVE

EXIT_PASSED = pytest.ExitCode.OK
EXIT_REGRESSED = pytest.ExitCode.TESTS_FAILED
COMMIT = {"id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "dirty": False, "branch": "main"}
HEADING = "*- mnistbench: operations compared -*"
MARKED = """
import pytest

@pytest.mark.opgate({})
def test_forward(op_benchmark):
    op_benchmark("forward")
"""


def change_operations(saved, factor):
    """Multiply every operation's time and the call's in a parsed file."""
    for benchmark in saved["benchmarks"]:
        for name in ("median", "iqr", "min", "mean"):
            benchmark["stats"][name] *= factor
        for table in benchmark["extra_info"]["mnistbench"]["tables"]:
            times = json.loads(table["times"])
            times["self_ns"] = [round(ns * factor) for ns in times["self_ns"]]
            table["times"] = json.dumps(times)


def save_a_base(project, *arguments, factors=(1,)):
    """Put a saved run there per factor, that many times as slow as measured.

    Return the file of the first.
    """
    path = project.save_base(*arguments)
    text = path.read_text(encoding="utf-8")
    for number, factor in enumerate(factors, 1):
        saved = json.loads(text)
        change_operations(saved, factor)
        saved["commit_info"] = COMMIT
        (path.parent / f"{number:04}_base.json").write_text(json.dumps(saved), encoding="utf-8")
    return path


def change(path, edit):
    """Apply a function to the content of a saved file."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    edit(saved)
    path.write_text(json.dumps(saved), encoding="utf-8")


def command(project, *arguments):
    environment = {
        name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"
    }
    return forks.run("mnistbench", *arguments, cwd=project.path, env=environment)


# ---- The report ----------------------------------------------------------------------------------


def test_operations_beneath_the_table_then_loss_and_accuracy(project):
    project.measure_a_step()
    project.run("--benchmark-autosave", "--bench-tensorboard=runs")
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
    result = project.run("--benchmark-compare", "--bench-tensorboard=runs")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(
        [
            "*test_step*(NOW)*",
            HEADING,
            "base: *",
            "head: this run",
            "step tiny-b4-cpu on synthetic",
            "*base*head*difference*change*calls*of change  verdict*",
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
    # The comparison stands in place of the plain tables.
    assert "mnistbench: operations -" not in result.stdout.str()


def test_a_base_of_another_timer_is_not_compared(project):
    save_a_base(project)
    timer = "--benchmark-timer=time.process_time"
    result = project.run("--benchmark-compare", "--op-fail=10%", timer)
    assert result.ret == PYTEST_EXIT_INCONCLUSIVE
    advice = "measure both sides with the same --benchmark-timer"
    result.stdout.fnmatch_lines([HEADING, f"*timer wall -> process; {advice}*"])
    assert "wall time without" not in result.stdout.str()
    result = project.run(timer)
    result.stdout.fnmatch_lines(["process time without the profiler *"])


def test_a_regression_fails_and_the_command_prints_the_same_to_the_character(project):
    save_a_base(project, factors=[0.001])
    result = project.run(
        "--benchmark-compare=0001", "--op-fail=10%", "--op-case-fail=10%", "--benchmark-save=now"
    )
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(
        [
            HEADING,
            "Look first at:",
            "1. * regressed: *",
            "forward tiny-b4-cpu on synthetic",
            "thresholds: regressed: *",
        ]
    )
    done = command(project, "compare", "1", "2", "--op-fail=10%", "--case-fail", "10%")
    assert (done.returncode, done.stderr) == (EXIT_REGRESSED, "")
    printed = result.stdout.str().partition("mnistbench: operations compared")[2]
    for text in (printed, done.stdout):
        assert text.count("head: ") == 1
    same = [line for line in done.stdout.splitlines() if not line.startswith("head:")]
    start = printed.splitlines().index(same[0])
    # pytest's option has a prefix.
    from_pytest = [
        line.replace("--op-by", "--by")
        for line in printed.splitlines()[start:]
        if not line.startswith("head:")
    ]
    assert from_pytest[: len(same)] == same
    assert len(same) > 12


PLAIN = "def test_plain(benchmark):\n    benchmark(sum, [1])\n"


def save_with_a_quicker_plain_test(project):
    """Save a run, and divide the time of its plain test by 100 in the file."""
    assert project.run("--benchmark-save=base").ret == EXIT_PASSED

    def quicker(saved):
        [plain] = [
            benchmark
            for benchmark in saved["benchmarks"]
            if "mnistbench" not in benchmark["extra_info"]
        ]
        plain["stats"]["median"] /= 100

    change(next(project.path.glob(".benchmarks/*/0001_base.json")), quicker)


def test_plain_tests_beside_cases_of_ours_are_compared_in_pytest_and_in_the_command(project):
    project.write("test_plain.py", PLAIN)
    save_with_a_quicker_plain_test(project)
    result = project.run("--benchmark-compare=0001", "--op-case-fail=500%", "--benchmark-save=now")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(["*test_plain.py::test_plain*", "thresholds: regressed: 1"])
    done = command(project, "compare", "1", "2", "--case-fail", "500%")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        EXIT_REGRESSED,
        "thresholds: regressed: 1",
    )


def test_a_session_of_plain_tests_alone_is_judged_if_there_is_a_threshold(project):
    project.write("test_bench.py", PLAIN)
    save_with_a_quicker_plain_test(project)
    for limit, code in (("500%", EXIT_REGRESSED), ("90000%", EXIT_PASSED)):
        assert project.run("--benchmark-compare=0001", f"--op-case-fail={limit}").ret == code


def test_without_a_saved_run_operations_are_shown_and_how_to_save_one(project):
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(
        [
            "forward tiny on synthetic, cpu, float32: self CPU time per iteration",
            HEADING,
            "missing: no saved run to compare with; *",
        ]
    )


@pytest.mark.versions
def test_our_table_is_printed_even_when_pytest_benchmarks_own_check_raises(project):
    # Faster than any run can be.
    change(project.save_base(), lambda saved: saved["benchmarks"][0]["stats"].update(min=1e-9))
    result = project.run("--benchmark-compare", "--benchmark-compare-fail=min:5%")
    result.stdout.fnmatch_lines([HEADING, "wall time of one iteration *"])
    assert result.ret != EXIT_PASSED


def test_quiet_output_has_the_reasons_of_a_failure_alone(project):
    save_a_base(project, factors=[0.001])
    result = project.run("--benchmark-compare", "--op-fail=10%", "--benchmark-quiet")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(
        [HEADING, "regressed: *the limit is 10.0 %", "thresholds: regressed: *"]
    )
    result.stdout.no_fnmatch_line("*of change*")
    for arguments in ([], ["--benchmark-compare"]):
        project.run("--benchmark-quiet", *arguments).stdout.no_fnmatch_line(
            "*mnistbench: operations*"
        )


def test_the_summary_of_a_github_job_gets_the_report_as_markdown(project, monkeypatch):
    save_a_base(project, factors=[0.001])
    summary = project.path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert project.run("--benchmark-compare", "--op-fail=10%").ret == EXIT_REGRESSED
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n### mnistbench: thresholds: regressed: ")
    assert "| operation | phase | module |" in text


# ---- Which runs are compared ---------------------------------------------------------------------


def test_several_base_runs_are_compared_with_together(project):
    # Five base runs that are 30 times as fast as the other three: now is far above their median,
    # and within their spread whatever the machine does to a call of microseconds.
    save_a_base(project, factors=[1, 1 / 30, 1, 1 / 30, 1 / 30, 1 / 30, 1, 1 / 30])
    result = project.run("--benchmark-compare=0", "--op-case-fail=10%", "--no-op-profile")
    assert result.ret == PYTEST_EXIT_INCONCLUSIVE
    result.stdout.fnmatch_lines(
        [
            "base: * and 7 older saved runs",
            "judged by runs: 1 verdict, by the prediction interval of 8 base runs *",
            "inconclusive: iteration (*, the minimum detectable change *",
            "thresholds: inconclusive: 1",
        ]
    )


def test_cases_that_the_newest_run_lacks_are_compared_with_an_older_run(project):
    sizes = "--bench-batch-size=2,4"
    path = project.save_base(sizes)
    newest = json.loads(path.read_text(encoding="utf-8"))
    change(
        path,
        lambda saved: (
            change_operations(saved, 0.001) or saved.update(datetime="2020-01-01T00:00:00+00:00")
        ),
    )
    newest["benchmarks"] = [
        benchmark for benchmark in newest["benchmarks"] if "-b2-" in benchmark["fullname"]
    ]
    (path.parent / "0002_base.json").write_text(json.dumps(newest), encoding="utf-8")
    result = project.run(sizes, "--benchmark-compare", "--op-case-fail=900%", "--no-op-profile")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(
        ["regressed: iteration (forward tiny-b4-cpu on synthetic), *", "thresholds: regressed: 1"]
    )


def test_a_saved_run_that_cannot_be_read_is_one_line_and_the_run_goes_on(project):
    change(
        project.save_base(),
        lambda saved: saved["benchmarks"][0]["extra_info"]["mnistbench"].update(schema=99),
    )
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(
        ["the run saved *: benchmarks?0?.extra_info.mnistbench.schema: 99 is newer than the 1 *"]
    )


def test_a_torn_file_is_named_and_the_run_before_it_is_compared_with(project):
    base = save_a_base(project, factors=[0.001])
    torn = base.with_name("0002_torn.json")
    torn.write_text(base.read_text(encoding="utf-8")[:3_000], encoding="utf-8")
    result = project.run("--benchmark-compare", "--op-fail=10%")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines([HEADING, "thresholds: regressed: *"])
    printed = result.stdout.str() + result.stderr.str()
    assert "Failed to load" in printed
    assert torn.name in printed


# ---- Thresholds and exit codes -------------------------------------------------------------------


@pytest.mark.versions
def test_pytest_has_no_exit_code_of_its_own_where_ours_is():
    assert PYTEST_EXIT_INCONCLUSIVE not in list(pytest.ExitCode)


def test_thresholds_in_the_configuration_need_a_comparison(project):
    save_a_base(project, factors=[0.001])
    project.append("pytest.ini", "op_fail =\n    aten::nothing:5%\n    1%\n")
    assert project.run("--no-op-profile").ret == EXIT_PASSED
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(
        ["missing: --op-fail 'aten::nothing' is no operation or module of any case"]
    )


def test_a_mark_applies_to_its_test_in_pytest_and_in_the_command(project):
    project.write("test_bench.py", MARKED.format('"2%", case="50%"'))
    save_a_base(project, factors=[0.001])
    result = project.run("--benchmark-compare=0001", "--benchmark-save=now", "--strict-markers")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(
        ["regressed: iteration (*the limit is 50.0 %", "regressed: *the limit is 2.0 %"]
    )
    assert command(project, "compare", "1", "2").returncode == EXIT_REGRESSED


def test_an_accepted_regression_and_a_case_that_may_be_missing_pass_and_are_echoed(project):
    # Far from the largest limit, also if another process has the core for milliseconds.
    save_a_base(project, "--bench-batch-size=2,4", factors=[0.02])
    # The other operations may vary by more than the limit.
    accepted = (
        "--op-accept=forward tiny-b4-cpu:*:1000000%",
        "--op-reason=new kernel",
        "--op-allow-missing",
        "--op-inconclusive=warn",
    )
    result = project.run("--benchmark-compare", "--op-fail=10%", *accepted)
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines_random(
        [
            "accepted up to *; reason: new kernel",
            "missing: * (passed over: --op-allow-missing)",
            "thresholds: passed*",
        ]
    )


def test_an_accepted_name_of_two_cases_is_wrong_usage(project):
    project.write("test_other.py", MARKED.format('"50%"'))
    save_a_base(project)
    accepted = ("--op-accept=forward tiny-b4-cpu:*:10%", "--op-reason=new kernel")
    result = project.run("--benchmark-compare", "--op-fail=50%", *accepted)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["ERROR: --op-accept: 'forward tiny-b4-cpu:*:10%' names 2 cases: test_bench.py::*"]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--op-fail=10%"], "missing: no saved run to compare with; save one with: *"),
        (
            ["--op-case-fail=10%", "-k", "nothing"],
            "missing: no benchmark ran: no test was selected; check -k, -m and the paths",
        ),
        (
            ["--op-fail=10%", "--benchmark-disable"],
            "missing: no benchmark ran: --benchmark-disable *; leave it out",
        ),
        (
            ["--op-fail=10%", "--benchmark-skip"],
            "missing: no benchmark ran: --benchmark-skip *; leave it out",
        ),
    ],
    ids=["no base", "no test", "benchmarks off", "benchmarks skipped"],
)
def test_a_run_with_nothing_to_judge_is_undecided(project, arguments, line):
    result = project.run("--benchmark-compare", *arguments)
    assert result.ret == PYTEST_EXIT_INCONCLUSIVE
    result.stdout.fnmatch_lines([HEADING, line, "thresholds: inconclusive: 1"])


def test_a_marked_test_that_no_longer_runs_is_undecided(project):
    project.write("test_bench.py", MARKED.format('"900%"'))
    save_a_base(project)
    result = project.run("--benchmark-compare", "-k", "nothing")
    assert result.ret == PYTEST_EXIT_INCONCLUSIVE
    result.stdout.fnmatch_lines(
        [
            HEADING,
            "missing: no benchmark ran: no test was selected; *",
            "thresholds: inconclusive: 1",
        ]
    )


def test_cases_with_other_threads_are_not_judged(project):
    project.save_base()
    result = project.run("--benchmark-compare", "--op-fail=10%", "--bench-threads=2")
    assert result.ret == PYTEST_EXIT_INCONCLUSIVE
    result.stdout.fnmatch_lines(
        [
            "different threads: 1 -> 2; this alone may change times",
            "missing: *: test_bench.py::test_forward?tiny-b4-cpu?, * (threads 1 -> 2): *",
        ]
    )


@pytest.mark.parametrize(
    ("factor", "body", "code"),
    [
        (1_000, "assert False", pytest.ExitCode.TESTS_FAILED),
        (0.001, "raise KeyboardInterrupt", pytest.ExitCode.INTERRUPTED),
    ],
    ids=["undecided beside a failed test", "a regression in an interrupted session"],
)
def test_a_session_that_failed_keeps_its_exit_code(project, factor, body, code):
    save_a_base(project, "--bench-batch-size=2,4", factors=[factor])
    project.write("test_broken.py", f"def test_broken():\n    {body}\n")
    result = project.run("--benchmark-compare", "--op-case-fail=10%", "--no-op-profile")
    assert result.ret == code
    result.stdout.fnmatch_lines([HEADING, "thresholds: *"])


def test_collecting_only_judges_nothing_and_leaves_nothing(project):
    result = project.run(
        "--benchmark-compare",
        "--op-fail=10%",
        "--collect-only",
        "--bench-tensorboard=.benchmarks/tensorboard",
    )
    assert result.ret == EXIT_PASSED
    result.stdout.no_fnmatch_line("*thresholds:*")
    assert not (project.path / ".benchmarks" / "tensorboard").exists()


def test_a_project_without_cases_of_ours_is_left_alone(project):
    project.write("test_bench.py", "def test_plain(benchmark):\n    benchmark(sum, [1])\n")
    assert project.run("--benchmark-save=base").ret == EXIT_PASSED
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_PASSED
    result.stdout.no_fnmatch_line("*mnistbench:*")


@pytest.mark.parametrize("flag", ["--op-fail", "--op-case-fail"])
def test_a_threshold_without_a_comparison_is_one_line(project, flag):
    project.assert_refused(
        f"{flag}: needs a saved run to compare with: add --benchmark-compare", f"{flag}=10%"
    )


def test_a_wrong_mark_is_one_line_before_any_case_runs(project):
    project.write("test_bench.py", MARKED.format("5"))
    project.assert_refused("opgate('5'): is not a threshold; give 10%, or *")
