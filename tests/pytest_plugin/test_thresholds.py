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


def save_a_base(project, *arguments, factors=(1,), environment=None):
    """Put a saved run there per factor, that many times as slow as measured, of a machine that differs in ``environment``."""
    path = project.save_base(*arguments)
    text = path.read_text(encoding="utf-8")
    for number, factor in enumerate(factors, 1):
        saved = json.loads(text)
        change_operations(saved, factor)
        saved["mnistbench"]["environment"].update(environment or {})
        saved["commit_info"] = COMMIT
        (path.parent / f"{number:04}_base.json").write_text(json.dumps(saved), encoding="utf-8")


def command(project, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    return forks.run("mnistbench", *arguments, cwd=project.path, env=environment)


@pytest.mark.versions
def test_pytest_has_no_exit_code_of_its_own_where_ours_is():
    assert EXIT_UNJUDGED not in list(pytest.ExitCode)


@pytest.mark.versions
def test_a_regression_fails_and_the_command_prints_the_same_to_the_character(project):
    save_a_base(project, factors=[0.001])
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


@pytest.mark.parametrize(
    ("factor", "options", "lines"),
    [
        (1_000, ["--op-fail=10%", "--case-fail=5%"], ["*improved*", "thresholds: passed"]),
        (0.001, [], ["*regressed*", "thresholds: none given, so nothing fails; *"]),
    ],
    ids=["faster", "no threshold"],
)
def test_a_session_without_a_change_above_a_threshold_passes(project, factor, options, lines):
    save_a_base(project, factors=[factor])
    result = project.run("--benchmark-compare", *options)
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(lines)


@pytest.mark.versions
def test_thresholds_in_the_configuration_need_a_comparison(project):
    save_a_base(project, factors=[0.001])
    project.append("pytest.ini", "op_fail =\n    aten::nothing:5%\n    1%\n")
    assert project.run("--no-op-profile").ret == EXIT_PASSED
    result = project.run("--benchmark-compare")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(["missing: --op-fail 'aten::nothing' is no operation or module of any case"])


def test_a_mark_applies_to_its_test_in_pytest_and_in_the_command(project):
    project.write(
        "test_bench.py",
        """
        import pytest

        @pytest.mark.opgate("2%", case="50%")
        def test_forward(op_benchmark):
            op_benchmark("forward")
        """,
    )
    save_a_base(project, factors=[0.001])
    result = project.run("--benchmark-compare=0001", "--benchmark-save=now", "--strict-markers")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines(["regressed: iteration (*the limit is 50.0 %", "regressed: *the limit is 2.0 %"])
    assert command(project, "compare", "1", "2").returncode == EXIT_REGRESSED


def test_an_accepted_regression_passes_and_is_echoed(project):
    save_a_base(project, factors=[0.02])  # far from the largest limit, also if another process has the core for milliseconds
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


@pytest.mark.parametrize(
    ("base", "environment", "arguments", "lines"),
    [
        (
            ["--bench-batch-size=2,4"], {}, ["--case-fail=1000%", "--bench-batch-size=8"],
            [
                "missing: no case in common with the base; *",
                "missing: in the base but not in this run: test_bench.py::test_forward?tiny-b2-cpu?, last saved *",
            ],
        ),
        (
            [], {}, ["--op-fail=10%", "--no-op-profile"],
            ["missing: no operation table of test_bench.py::test_forward?tiny-b4-cpu? in this run"],
        ),
        (
            [], {"cpu_model": "6502", "torch": "2.0.0"}, ["--op-fail=10%"],
            [
                "incomparable: 1 case: torch 2.0.0 -> *; add --across-versions to compare them all the same",
                "incomparable: 1 case: cpu model 6502 -> *; measure both sides on one machine, or add --across-machines",
                "thresholds: undecided: 2",
            ],
        ),
    ],
    ids=["no case in common", "no operation table", "another machine"],
)  # fmt: skip
def test_what_cannot_be_compared_is_undecided(project, base, environment, arguments, lines):
    save_a_base(project, *base, factors=[1_000], environment=environment)
    result = project.run("--benchmark-compare", *arguments)
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(lines)


def test_a_case_of_the_base_may_be_missing_if_that_is_allowed(project):
    save_a_base(project, "--bench-batch-size=2,4", factors=[1_000])
    result = project.run("--benchmark-compare", "--op-fail=10%", "--allow-missing")
    assert result.ret == EXIT_PASSED
    result.stdout.fnmatch_lines(
        ["missing: in the base but not in this run: * (passed over: --allow-missing)", "thresholds: passed"]
    )


@pytest.mark.parametrize("factor", [0.001, 1_000], ids=["beside a regression", "alone"])
def test_a_failing_test_keeps_its_exit_code(project, factor):
    save_a_base(project, "--bench-batch-size=2,4", factors=[factor])
    project.write("test_broken.py", "def test_broken():\n    assert False\n")
    result = project.run("--benchmark-compare", "--case-fail=10%", "--no-op-profile")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([HEADING, "thresholds: *"])


def test_an_interrupted_session_keeps_its_exit_code(project):
    save_a_base(project, factors=[0.001])
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
        (["--op-fail=10%"], "--op-fail: needs a saved run to compare with: add --benchmark-compare"),
        (["--case-fail=10%"], "--case-fail: needs a saved run to compare with: add --benchmark-compare"),
        (["--benchmark-compare", "--accept=a:b"], "--accept: 'a:b' needs a reason for the report; add --reason TEXT"),
    ],
)
def test_a_wrong_setting_is_one_line(project, arguments, line):
    result = project.run(*arguments)
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {line}"])
    assert len([text for text in result.stderr.lines if text.strip()]) == 1


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


def test_noise_above_a_threshold_is_not_judged_unless_that_is_allowed(project):
    # Five base runs that are 30 times as fast as the other three: now is far above their median, and within their spread
    # whatever the machine does to a call of microseconds.
    save_a_base(project, factors=[1, 1 / 30, 1, 1 / 30, 1 / 30, 1 / 30, 1, 1 / 30])
    arguments = ("--benchmark-compare=0", "--case-fail=10%", "--no-op-profile")
    result = project.run(*arguments)
    assert result.ret == EXIT_UNJUDGED
    result.stdout.fnmatch_lines(
        [
            "base: * and 7 older saved runs",
            "judged by runs: * verdicts, by the prediction interval of 8 base runs *",
            "inconclusive: iteration (*, the minimum detectable change *",
            "thresholds: undecided: 1",
        ]
    )
    assert project.run(*arguments, "--inconclusive=ok").ret == EXIT_PASSED


def test_cases_that_the_newest_run_lacks_are_compared_with_an_older_run(project):
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


def test_quiet_output_still_has_the_reasons_of_a_failure(project):
    save_a_base(project, factors=[0.001])
    result = project.run("--benchmark-compare", "--op-fail=10%", "--benchmark-quiet")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines([HEADING, "regressed: *the limit is 10.0 %", "thresholds: regressed: *"])
    result.stdout.no_fnmatch_line("*of change*")


def test_the_summary_of_a_github_job_gets_the_report_as_markdown(project, monkeypatch):
    save_a_base(project, factors=[0.001])
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
    save_a_base(project, factors=[0.001])
    [base] = saved_files(project)
    torn = base.with_name("0002_torn.json")
    torn.write_text(base.read_text(encoding="utf-8")[:3_000], encoding="utf-8")
    result = project.run("--benchmark-compare", "--op-fail=10%")
    assert result.ret == EXIT_REGRESSED
    result.stdout.fnmatch_lines([HEADING, "thresholds: regressed: *"])
    assert "Failed to load" in result.stdout.str() + result.stderr.str()
    assert torn.name in result.stdout.str() + result.stderr.str()


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
