"""``--benchmark-compare`` with thresholds: verdicts, what cannot be judged, and exit codes.

A base is a real saved run whose times were changed in the file, so that no test depends on how quick this machine is.
"""

import json
import os

import forks
import pytest

EXIT_PASSED, EXIT_REGRESSED, USAGE_ERROR, EXIT_UNJUDGED = 0, 1, 4, 8
COMMIT = {"id": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "dirty": False, "branch": "main"}
HEADING = "*- mnistbench: operations compared -*"


def saved_files(project):
    return sorted(project.path.glob(".benchmarks/*/*.json"))


def change_operations(saved, factor):
    """Multiply every operation's time and the call's in a parsed file."""
    for benchmark in saved["benchmarks"]:
        for name in ("median", "iqr", "min", "mean"):
            benchmark["stats"][name] *= factor
        for table in benchmark["extra_info"]["mnistbench"]["tables"]:
            times = json.loads(table["times"])
            times["self_ns"] = [round(ns * factor) for ns in times["self_ns"]]
            table["times"] = json.dumps(times)


def save_a_base(project, *arguments, factor=1.0, environment=None, copies=1):
    """Put a saved run there, ``factor`` times as slow as measured, of a machine that differs in ``environment``."""
    path = project.save_base(*arguments)
    text = path.read_text(encoding="utf-8")
    for copy in range(copies):
        saved = json.loads(text)
        change_operations(saved, factor * (1 + copy / 1_000))
        saved["mnistbench"]["environment"].update(environment or {})
        saved["commit_info"] = COMMIT
        (path.parent / f"{copy + 1:04}_base.json").write_text(json.dumps(saved), encoding="utf-8")


def command(project, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    return forks.run("mnistbench", *arguments, cwd=project.path, env=environment)


@pytest.mark.versions
def test_pytest_has_no_exit_code_of_its_own_where_ours_is():
    assert EXIT_UNJUDGED not in list(pytest.ExitCode)


@pytest.mark.versions
def test_a_regression_fails_and_the_command_prints_the_same_to_the_character(project):
    save_a_base(project, factor=0.001)
    result = project.run("--benchmark-compare=0001", "--op-fail=10%", "--case-fail=10%", "--benchmark-save=now")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(
        [HEADING, "Look first at:", "1. * regressed: *", "forward tiny-b4-cpu on synthetic", "thresholds: regressed: *"]
    )
    done = command(project, "compare", "1", "2", "--op-fail=10%", "--case-fail", "10%")
    assert done.returncode == EXIT_REGRESSED
    assert done.stderr == ""
    printed = result.stdout.str().partition("mnistbench: operations compared")[2]
    for text in (printed, done.stdout):
        assert text.count("head: ") == 1
    same = [line for line in done.stdout.splitlines() if not line.startswith("head:")]
    start = printed.splitlines().index(same[0])
    from_pytest = [line for line in printed.splitlines()[start:] if not line.startswith("head:")]
    assert from_pytest[: len(same)] == same
    assert len(same) > 12


def test_a_session_without_a_slowdown_passes(project):
    save_a_base(project, factor=1_000)
    result = project.run("--benchmark-compare", "--op-fail=10%", "--case-fail=5%")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(["*improved*", "thresholds: passed"])


def test_without_a_threshold_nothing_fails(project):
    save_a_base(project, factor=0.001)
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(["*regressed*", "thresholds: none given, so nothing fails; *"])


@pytest.mark.versions
def test_thresholds_in_the_configuration_hold_wherever_a_base_is_compared_with(project):
    save_a_base(project, factor=0.001)
    project.append("pytest.ini", "op_fail =\n    aten::nothing:5%\n    1%\n")
    assert project.run("--no-op-profile").ret == EXIT_PASSED
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(["missing: --op-fail 'aten::nothing' is no operation or module of any case"])


def test_a_mark_holds_its_own_test_in_pytest_and_from_the_file(project):
    project.write(
        "test_bench.py",
        """
        import pytest

        @pytest.mark.opgate("2%", case="50%")
        def test_forward(op_benchmark):
            op_benchmark("forward")
        """,
    )
    save_a_base(project, factor=0.001)
    result = project.run("--benchmark-compare=0001", "--benchmark-save=now", "--strict-markers")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(["regressed: iteration (*the limit is 50.0 %", "regressed: *the limit is 2.0 %"])
    assert command(project, "compare", "1", "2").returncode == EXIT_REGRESSED


def test_an_accepted_regression_passes_and_is_echoed(project):
    save_a_base(project, factor=0.02)  # far from the largest limit, also if another process has the core for milliseconds
    result = project.run(
        "--benchmark-compare", "--op-fail=10%", "--accept=*", "--accept=forward tiny-b4-cpu:*:1000000%", "--reason=new kernel"
    )
    assert result.ret == USAGE_ERROR  # a pattern for everything names no case
    result = project.run(
        "--benchmark-compare", "--op-fail=10%", "--accept=forward tiny-b4-cpu:*:1000000%", "--reason=new kernel"
    )
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(["accepted up to *; reason: new kernel", "thresholds: passed"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--op-fail=10%"], "missing: no saved run to compare with; save one with: *"),
        (["--case-fail=10%", "-k", "nothing"], "missing: no benchmark ran that has an operation record"),
        (["--op-fail=10%", "--benchmark-disable"], "missing: no benchmark ran that has an operation record"),
    ],
    ids=["no base", "no test", "benchmarks off"],
)
def test_nothing_to_judge_is_undecided(project, arguments, line):
    result = project.run("--benchmark-compare", *arguments)
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines([HEADING, line, "thresholds: undecided: 1"])


def test_no_case_in_common_is_undecided(project):
    save_a_base(project, "--bench-batch-size=2,4")
    result = project.run("--benchmark-compare", "--case-fail=1000%", "--bench-batch-size=8", "--no-op-profile")
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(
        [
            "missing: no case in common with the base; *",
            "missing: in the base but not in this run: test_bench.py::test_forward?tiny-b2-cpu?, last saved *",
        ]
    )


def test_a_case_of_the_base_that_is_missing_is_undecided_unless_that_is_allowed(project):
    save_a_base(project, "--bench-batch-size=2,4", factor=1_000)
    result = project.run("--benchmark-compare", "--op-fail=10%", "--allow-missing", "--benchmark-save=now")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(
        ["missing: in the base but not in this run: * (passed over: --allow-missing)", "thresholds: passed"]
    )
    done = command(project, "compare", "1", "2", "--op-fail=10%")
    assert done.returncode == 2
    assert done.stdout.endswith("thresholds: undecided: 1\n")


def test_a_missing_operation_table_is_undecided(project):
    save_a_base(project, factor=1_000)
    result = project.run("--benchmark-compare", "--op-fail=10%", "--no-op-profile")
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(["missing: no operation table of test_bench.py::test_forward?tiny-b4-cpu? in this run"])


def test_another_machine_is_undecided_unless_that_is_allowed(project):
    save_a_base(project, factor=1_000, environment={"cpu_model": "6502", "torch": "2.0.0"})
    result = project.run("--benchmark-compare", "--op-fail=10%", "--benchmark-save=now")
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(
        [
            "incomparable: 1 case: torch 2.0.0 -> *; add --across-versions to compare them all the same",
            "incomparable: 1 case: cpu model 6502 -> *; measure both sides on one machine, or add --across-machines",
            "thresholds: undecided: 2",
        ]
    )
    done = command(project, "compare", "1", "2", "--op-fail=10%", "--allow-incomparable")
    assert done.returncode == 0
    assert done.stdout.count("(passed over: --allow-incomparable)") == 2


@pytest.mark.parametrize("factor", [0.001, 1_000], ids=["beside a regression", "alone"])
def test_a_failing_test_keeps_its_exit_code(project, factor):
    save_a_base(project, "--bench-batch-size=2,4", factor=factor)
    project.write("test_broken.py", "def test_broken():\n    assert False\n")
    result = project.run("--benchmark-compare", "--case-fail=10%", "--no-op-profile")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([HEADING, "thresholds: *"])


def test_an_interrupted_session_keeps_its_exit_code(project):
    save_a_base(project, factor=0.001)
    project.append("test_bench.py", "\n\ndef test_interrupted():\n    raise KeyboardInterrupt\n")
    assert project.run("--benchmark-compare", "--case-fail=10%", "--no-op-profile").ret == pytest.ExitCode.INTERRUPTED


def test_collecting_only_judges_nothing(project):
    result = project.run("--benchmark-compare", "--op-fail=10%", "--collect-only")
    assert result.ret == EXIT_PASSED
    result.stdout.no_fnmatch_line("*thresholds:*")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--benchmark-compare", "--op-fail=ten"], "--op-fail: 'ten' is not a threshold; give 10%, or *"),
        (
            ["--benchmark-compare", "--case-fail=aten::mm:5%"],
            "--case-fail: 'aten::mm:5%' is not a threshold for an iteration; give 10%",
        ),
        (["--op-fail=10%"], "--op-fail: needs a saved run to compare with: add --benchmark-compare"),
        (["--case-fail=10%"], "--case-fail: needs a saved run to compare with: add --benchmark-compare"),
        (["--by=case"], "--by: 'case' is not known; choose op or module or op,module"),
        (["--benchmark-compare", "--accept=a:b"], "--accept: 'a:b' needs a reason for the report; add --reason TEXT"),
        (["--benchmark-compare", "--inconclusive=yes"], "--inconclusive: 'yes' is not known; choose fail or ok"),
        (["--benchmark-compare", "--case-fail="], "--case-fail: '' is no value; give one, or leave the option out"),
        (["--reason=why"], "--reason: 'why' is given without --accept; add --accept CASE:OP:LIMIT"),
    ],
)
def test_a_wrong_setting_is_one_line(project, arguments, line):
    result = project.run(*arguments)
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {line}"])
    assert len([text for text in result.stderr.lines if text.strip()]) == 1


def test_a_wrong_setting_in_the_configuration_names_the_file(project):
    project.append("pytest.ini", "case_fail = 5\n")
    result = project.run()
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: case_fail in {project.path / 'pytest.ini'}: '5' is not a threshold for an iteration; give 10%"]
    )


def test_a_wrong_mark_is_one_line_before_any_case_runs(project):
    project.write(
        "test_bench.py",
        """
        import pytest

        @pytest.mark.opgate(5)
        def test_forward(op_benchmark):
            op_benchmark("forward")
        """,
    )
    result = project.run()
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: opgate('5'): is not a threshold; give 10%, or *"])


def test_eight_base_runs_are_judged_by_their_spread(project):
    save_a_base(project, copies=8)
    result = project.run("--benchmark-compare=0", "--op-fail=10%")
    result.stdout.fnmatch_lines(
        ["base: * and 7 older saved runs", "judged by runs: * verdicts, by the prediction interval of 8 base runs *"]
    )


def test_noise_above_a_threshold_is_not_judged_unless_that_is_allowed(project):
    # Five base runs that are 30 times as fast as the other three: now is far above their median, and within their spread
    # whatever the machine does to a call of microseconds.
    path = project.save_base()
    text = path.read_text(encoding="utf-8")
    for number in range(1, 9):
        saved = json.loads(text)
        saved["commit_info"] = COMMIT
        change_operations(saved, 1 / 30 if number in {2, 4, 5, 6, 8} else 1)
        (path.parent / f"{number:04}_base.json").write_text(json.dumps(saved), encoding="utf-8")
    arguments = ("--benchmark-compare=0", "--case-fail=10%", "--no-op-profile")
    result = project.run(*arguments)
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(["inconclusive: iteration (*, the minimum detectable change *", "thresholds: undecided: 1"])
    assert project.run(*arguments, "--inconclusive=ok").ret == EXIT_PASSED


def test_a_newest_run_of_some_cases_leaves_the_others_their_own_base(project):
    sizes = "--bench-batch-size=2,4"
    path = project.save_base(sizes)
    newest = json.loads(path.read_text(encoding="utf-8"))
    older = json.loads(json.dumps(newest))
    older["datetime"] = "2020-01-01T00:00:00+00:00"
    change_operations(older, 0.001)
    path.write_text(json.dumps(older), encoding="utf-8")
    newest["benchmarks"] = [benchmark for benchmark in newest["benchmarks"] if "-b2-" in benchmark["fullname"]]
    (path.parent / "0002_base.json").write_text(json.dumps(newest), encoding="utf-8")
    result = project.run(sizes, "--benchmark-compare", "--case-fail=900%", "--no-op-profile")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(["regressed: iteration (forward tiny-b4-cpu on synthetic), *", "thresholds: regressed: 1"])


def test_quiet_reporting_still_says_why_a_gate_failed(project):
    save_a_base(project, factor=0.001)
    result = project.run("--benchmark-compare", "--op-fail=10%", "--benchmark-quiet")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines([HEADING, "regressed: *the limit is 10.0 %", "thresholds: regressed: *"])
    result.stdout.no_fnmatch_line("*of change*")


def test_the_summary_of_a_github_job_gets_the_report_as_markdown(project, monkeypatch):
    save_a_base(project, factor=0.001)
    summary = project.path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert project.run("--benchmark-compare", "--op-fail=10%").ret == EXIT_REGRESSED
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n### mnistbench: thresholds: regressed: ")
    assert "| operation | phase | module |" in text


@pytest.mark.versions
def test_workers_of_xdist_measure_nothing_so_the_comparison_is_undecided(project):
    save_a_base(project)
    result = project.run("--benchmark-compare", "--op-fail=10%", "-n1", "-p", "xdist")
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(["missing: no benchmark ran that has an operation record", "thresholds: undecided: 1"])


def test_a_torn_file_is_named_and_the_run_before_it_is_compared_with(project):
    save_a_base(project, factor=0.001)
    [base] = saved_files(project)
    torn = base.with_name("0002_torn.json")
    torn.write_text(base.read_text(encoding="utf-8")[:3_000], encoding="utf-8")
    result = project.run("--benchmark-compare", "--op-fail=10%", "--benchmark-save=now")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines([HEADING, "thresholds: regressed: *"])
    assert "Failed to load" in result.stdout.str() + result.stderr.str()
    assert torn.name in result.stdout.str() + result.stderr.str()
    done = command(project, "compare", "1", "latest", "--op-fail=10%")
    assert done.returncode == EXIT_REGRESSED
    listed = command(project, "list")
    assert listed.returncode == 0
    assert [line[:4] for line in listed.stdout.splitlines()[3:]] == ["0001", "0003"]
    assert "0002_torn.json: is not JSON" in listed.stderr


def test_a_marked_test_that_no_longer_runs_is_undecided(project):
    project.write(
        "test_bench.py",
        """
        import pytest

        @pytest.mark.opgate("900%")
        def test_forward(op_benchmark):
            op_benchmark("forward")
        """,
    )
    save_a_base(project)
    result = project.run("--benchmark-compare", "-k", "nothing")
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines([HEADING, "missing: no benchmark ran that has an operation record", "thresholds: undecided: 1"])


def test_a_project_without_cases_of_ours_is_left_alone(project):
    project.write("test_bench.py", "def test_plain(benchmark):\n    benchmark(sum, [1])\n")
    assert project.run("--benchmark-save=base").ret == EXIT_PASSED
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_PASSED
    result.stdout.no_fnmatch_line("*mnistbench:*")
