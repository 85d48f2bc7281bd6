"""``mnistbench gate`` as a user runs it.

One real run on a small project, files that are judged again, and wrong usage.
"""

import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys

import forks
import gate_builders
import pytest
from git_repositories import Repository
from projects import git

from mnistbench import cli
from mnistbench.gate.commands import gate
from mnistbench.gate.processes.starting import GateError
from mnistbench.gate.qualification import measurement
from mnistbench.gate.qualification import report as report_module
from mnistbench.gate.qualification.result import Qualification
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.words import BASE, HEAD

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2
SKIPS = 125
STOPS = 128

CORES = os.sched_getaffinity(0)


@pytest.fixture
def temporary(tmp_path_factory, monkeypatch):
    """The folder for temporary files, of this test alone."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def repository(project, temporary, alone, monkeypatch):
    """A user's project with a commit, and with changes that are not committed."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))
    project.write(".gitignore", "/.benchmarks/\n__pycache__/\n*.log\n")
    git(project.path, "init", "--quiet", "--initial-branch=main")
    git(project.path, "add", "--all")
    git(project.path, "commit", "--quiet", "--message", "first")
    project.append("conftest.py", "# a change that is not committed\n")
    project.write("untracked.py", "")
    project.write("ignored.log", "")
    return project


def command(project, *arguments):
    """Run the command; whatever happens, a user never sees a traceback."""
    done = forks.run("mnistbench", *arguments, cwd=project.path)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def refusal(project, *arguments):
    """Return the line that the gate has refused its arguments with, before anything is measured."""
    done = command(project, "gate", *arguments)
    assert (done.returncode, done.stdout) == (EXIT_INCONCLUSIVE, "")
    [line] = [line for line in done.stderr.splitlines() if line != "loading both sides"]
    return line


def copies(temporary):
    return list(temporary.glob("mnistbench-gate-*"))  # torch has a folder of its own there


def state(project):
    """What nobody may change.

    All files but the raw samples, what is in ``.git`` included, and what git says of them.
    """
    files = {
        str(path.relative_to(project.path)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in project.path.rglob("*")
        if path.is_file() and ".benchmarks" not in path.parts
    }
    return files, git(project.path, "--no-optional-locks", "status", "--porcelain")


# ---- A real run ----------------------------------------------------------------------------------


@pytest.mark.versions
@pytest.mark.thorough
def test_a_run_is_reported_kept_and_judged_again_and_leaves_all_else_as_it_was(
    repository, temporary
):
    commit = git(repository.path, "rev-parse", "--short=7", "HEAD")
    before = state(repository)
    done = command(
        repository,
        "gate",
        "--base=HEAD",
        "--all-cases",
        "--trials=8",
        *gate_builders.GENEROUS,
        "--",
        "test_bench.py",
        "-k",
        "forward",
    )
    assert done.returncode == EXIT_PASSED, done.stdout + done.stderr
    assert state(repository) == before
    assert copies(temporary) == []

    [path] = (repository.path / ".benchmarks").rglob("*.*")
    assert re.fullmatch(
        r"gate/\d{8}_\d{6}\.jsonl\.gz", str(path.relative_to(repository.path / ".benchmarks"))
    )
    shown = path.relative_to(repository.path)
    lines = done.stderr.splitlines()
    assert lines[:3] == ["loading both sides", "surveying 1 test", "trial 1 of 8"]
    assert f"raw samples: {shown}; judge them again with: mnistbench judge {shown}" == lines[-1]

    report = done.stdout
    assert f"base {commit} -> head {commit} with changes\n" in report
    assert re.search(
        r"^measured: 1 case, 8 trials( and \d+ fresh ones)?, .*, torch ", report, re.MULTILINE
    )
    assert re.search(r"^forward tiny-b4-cpu on synthetic +[\d,.]+ ", report, re.MULTILINE)
    assert re.search(r"^aten::addmm, forward 0 ", report, re.MULTILINE)
    assert report.splitlines()[-1].startswith("passed: no regression of ")

    recorded = raw_samples.load(path)
    header = recorded.header
    trials = recorded.trials
    assert (recorded.end.cut_short, recorded.end.broken_off) == ("", False)
    assert recorded.end.elapsed_s > sum(trial.seconds for trial in trials)
    memory = header.sides.memory["test_bench.py::test_forward[tiny-b4-cpu]"]
    assert memory[BASE] == memory[HEAD] > 0
    assert [trial.stage for trial in trials][:8] == [1] * 8
    for trial in trials:
        for build in trial.cases["test_bench.py::test_forward[tiny-b4-cpu]"]:
            assert build[BASE].outcome == build[HEAD].outcome  # the same code on the same numbers
            assert build[BASE].operations.keys() == build[HEAD].operations.keys()

    again = command(repository, "judge", path)
    assert (again.returncode, again.stdout, again.stderr) == (EXIT_PASSED, report, "")
    assert list(path.parent.iterdir()) == [path]

    listed = command(repository, "list")
    assert (listed.returncode, listed.stdout) == (2, "")
    assert listed.stderr.startswith("mnistbench: no saved run in .benchmarks can be read; ")
    theirs = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "list"],
        cwd=repository.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (theirs.returncode, theirs.stdout) == (0, "")


IN_THE_CALL = """
import time


def table():
    end = time.process_time() + 0.01
    while time.process_time() < end:
        pass
    return [1]


def work():
    return table()[0]
"""

WHEN_IMPORTED = IN_THE_CALL.replace(
    "def work():\n    return table()", "TABLE = table()\n\n\ndef work():\n    return TABLE"
)


def test_work_that_moves_from_the_call_into_the_import_is_a_regression(project, temporary, alone):
    (project.path / "conftest.py").unlink()
    project.write(".gitignore", "/.benchmarks/\n/tmp/\n__pycache__/\n")
    project.write(
        "test_bench.py",
        "import own\n\n\ndef test_work(benchmark):\n    assert benchmark(own.work) == 1\n",
    )
    project.write("own.py", IN_THE_CALL)
    git(project.path, "init", "--quiet")
    git(project.path, "add", "--all")
    git(project.path, "commit", "--quiet", "--message", "first")
    project.write("own.py", WHEN_IMPORTED)
    options = ("--base=HEAD", "--trials=8", "--threshold=20%", "--op-threshold=20%")
    done = command(project, "gate", *options, "--", "test_bench.py")
    assert done.returncode == EXIT_REGRESSED, done.stdout
    assert re.fullmatch(
        r"regressed: 1 one-time cost \(all cases: import, (\+[\d.,]+ %|new)\)",
        done.stdout.splitlines()[-1],
    )
    assert re.search(
        r"^improved: wall time \(test_bench.py::test_work\), -(100\.0|9\d\.\d) %",
        done.stdout,
        re.MULTILINE,
    )
    assert re.search(
        r"^regressed: import \(all cases\), \+.* -> .* ms; confirmed by ",
        done.stdout,
        re.MULTILINE,
    )


def test_a_base_whose_tests_cannot_be_imported_is_named_with_the_reason(project, temporary, alone):
    for name in ("conftest.py", "pytest.ini"):  # without a model nothing imports torch
        (project.path / name).unlink()
    git(project.path, "init", "--quiet")
    project.write("test_bench.py", "import nothing_of_that_name\n")
    git(project.path, "add", "--all")
    git(project.path, "commit", "--quiet", "--message", "broken")
    project.write("test_bench.py", "def test_sum(benchmark):\n    benchmark(sum, [1])\n")
    line = refusal(project, "--base", "HEAD", "--", "test_bench.py")
    assert line == (
        "mnistbench: base: test_bench.py cannot be collected: ModuleNotFoundError: No module "
        "named 'nothing_of_that_name' (test_bench.py:1); the head can be loaded"
    )
    assert copies(temporary) == []


def test_a_module_that_no_side_can_read_is_named_with_its_line(repository, temporary):
    repository.write("own/__init__.py", "from own import numbers\n")
    repository.write("own/numbers.py", "\nNumber = \n")
    repository.write("conftest.py", "import own\n")  # nothing imports torch
    git(repository.path, "add", "--all")
    git(repository.path, "commit", "--quiet", "--message", "unreadable")
    line = refusal(repository, "--base", "HEAD", "--", "test_bench.py")
    assert line == (
        "mnistbench: both sides: conftest.py cannot be imported: SyntaxError: invalid syntax "
        f"(own/numbers.py:2, read by Python {platform.python_version()})"
    )
    assert copies(temporary) == []


def test_an_interrupt_while_loading_is_one_line_and_leaves_no_copy(repository, temporary):
    arguments = [sys.executable, "-m", "mnistbench", "gate", "--base", "HEAD"]
    with subprocess.Popen(
        arguments, cwd=repository.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr.readline() == "loading both sides\n"
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=30) == ("", "mnistbench: interrupted\n")
    assert running.returncode == EXIT_INCONCLUSIVE
    assert copies(temporary) == []


# ---- Files that are judged again -----------------------------------------------------------------


@pytest.fixture
def judge(tmp_path, monkeypatch, capsys):
    """Judge a file of these trials; return the exit code and what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def judged(trials, *options, **changes):
        gate_builders.write(tmp_path / "raw.jsonl.gz", trials, **changes)
        code = cli.main(["judge", "raw.jsonl.gz", *options])
        shown = capsys.readouterr()
        assert shown.err == ""
        return code, shown.out

    return judged


def slower(factor, **changes):
    """Trials of both stages in which the head's case takes so much longer."""
    measured = gate_builders.Measured(factor=factor)
    return [
        gate
        for stage in (1, 2)
        for gate in gate_builders.series(measured, stage=stage, seed=stage, **changes)
    ]


@pytest.mark.versions
@pytest.mark.parametrize(
    ("factor", "options", "code", "last"),
    [
        (
            1.0,
            (),
            EXIT_PASSED,
            r"passed: no regression .*",
        ),
        (
            1.2,
            ("--inconclusive", "warn"),
            EXIT_REGRESSED,
            r"regressed: 1 (case|operation) \(.*\).*",
        ),
        (
            1.2,
            ("--accept", "step *:*:25%", "--reason", "a better model"),
            EXIT_PASSED,
            r"passed: .* \(a better model\)",
        ),
    ],
    ids=["same", "slower", "accepted"],
)
def test_the_exit_code_is_the_verdict_of_the_last_line(judge, factor, options, code, last):
    exit_code, shown = judge(slower(factor), *options)
    assert exit_code == code
    assert re.fullmatch(last, shown.splitlines()[-1])


@pytest.mark.parametrize(
    ("count", "changes", "excusing", "code", "reason"),
    [
        (
            7,
            {},
            ("--inconclusive", "warn"),
            EXIT_PASSED,
            "7 trials are too few: ",
        ),
        (
            8,
            {"end": raw_samples.End("head: RuntimeError: boom", broken_off=True)},
            ("--inconclusive", "warn"),
            EXIT_INCONCLUSIVE,
            "head: RuntimeError: boom",
        ),
        (
            8,
            {"end": None},
            ("--inconclusive", "warn"),
            EXIT_INCONCLUSIVE,
            raw_samples.NO_END.cut_short,
        ),
        (
            8,
            {"only_base": ["t.py::gone"]},
            ("--allow-missing",),
            EXIT_PASSED,
            "not in the head, so not judged: t.py::gone; add --allow-missing",
        ),
    ],
    ids=["noise", "a side failed", "killed", "a case is missing"],
)
def test_what_cannot_be_judged_exits_as_asked_for(judge, count, changes, excusing, code, reason):
    trials = gate_builders.series(count=count)
    exit_code, shown = judge(trials, **changes)
    assert exit_code == EXIT_INCONCLUSIVE
    assert shown.splitlines()[-1].startswith(f"inconclusive: {reason}")
    assert judge(trials, *excusing, **changes)[0] == code


@pytest.mark.parametrize("options", [(), ("--inconclusive", "warn")], ids=["plain", "ok"])
@pytest.mark.parametrize(
    ("outcome", "code"), [("passed", EXIT_PASSED), ("inconclusive", EXIT_INCONCLUSIVE)]
)
def test_the_exit_code_of_a_qualification_is_2_unless_the_machine_is_qualified(
    monkeypatch, capsys, outcome, code, options
):
    measured = gate_builders.recorded(gate_builders.series(count=3), end=raw_samples.INTERRUPTED)
    qualification = Qualification(measured)
    shown = report_module.report(qualification, 10)[1]
    monkeypatch.setattr(measurement, "qualify", lambda *_: qualification)
    monkeypatch.setattr(report_module, "report", lambda *_: (outcome, shown))
    assert cli.main(["gate", "--qualify", *options]) == code
    assert capsys.readouterr().out.splitlines()[-1] == shown.heading


def test_a_report_goes_where_it_is_asked_for(judge, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert judge(slower(1.2), "--format", "json", "--output", "report.json") == (EXIT_REGRESSED, "")
    assert (
        json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["outcome"] == "regressed"
    )
    assert (
        (tmp_path / "summary.md")
        .read_text(encoding="utf-8")
        .startswith("### mnistbench: regressed: ")
    )


def test_a_file_that_cannot_be_judged_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["judge", "missing.jsonl.gz"]) == EXIT_INCONCLUSIVE
    assert (
        capsys.readouterr().err
        == "mnistbench: missing.jsonl.gz: cannot be read (No such file or directory)\n"
    )


def test_files_of_shards_are_judged_as_one_gate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    tests = ("t.py::a", "t.py::b", "t.py::c")
    shards = [raw_samples.Shard(number, 2, tests) for number in (1, 2)]
    for shard, factor in zip(shards, (1.0, 1.2), strict=True):
        cases = {test: gate_builders.Measured(factor=factor, operations={}) for test in shard.own()}
        trials = [
            *gate_builders.series(cases, count=10),
            *gate_builders.series(cases, count=8, stage=2, seed=5),
        ]
        labels = {test: test for test in shard.own()}
        gate_builders.write(
            tmp_path / f"{shard.prefix}.jsonl.gz", trials, labels=labels, shard=shard
        )
    paths = [path.name for path in sorted(tmp_path.glob("shard-*"))]
    assert cli.main(["judge", *paths, "--format", "json"]) == EXIT_REGRESSED
    document = json.loads(capsys.readouterr().out)
    assert document["sentence"].startswith("regressed: ")
    assert {
        finding["screened"]["case"]
        for finding in document["findings"]
        if finding["verdict"] == "regressed"
    } == {*shards[1].own()}
    assert [shard["shard"] for shard in document["shards"]] == ["1/2", "2/2"]
    assert cli.main(["judge", paths[0]]) == EXIT_INCONCLUSIVE
    assert (
        "inconclusive: shard 2/2 is missing, so its tests are not judged: "
        in capsys.readouterr().out
    )
    assert cli.main(["judge", paths[0], paths[0]]) == EXIT_INCONCLUSIVE
    assert capsys.readouterr().err.startswith(f"mnistbench: {paths[0]}: is of shard 1/2, as ")


@pytest.mark.parametrize(
    ("trials", "options", "changes", "code", "excuse"),
    [
        (
            gate_builders.series(count=7),
            ["--inconclusive", "warn"],
            {},
            EXIT_PASSED,
            (
                "; only noise or the budget leaves this open, so the exit code is 0 "
                "(--inconclusive warn)"
            ),
        ),
        (
            slower(1.2),
            ["--report-only"],
            {},
            EXIT_PASSED,
            "; this is a report only, so the exit code is 0 (--report-only)",
        ),
        (
            gate_builders.series(),
            ["--report-only"],
            {"only_base": ["t.py::gone"]},
            EXIT_PASSED,
            "; this is a report only, so the exit code is 0 (--report-only)",
        ),
        (slower(1.2), ["--inconclusive", "warn"], {}, EXIT_REGRESSED, ""),
        # An error is not what the gate has found.
        (
            gate_builders.series(),
            ["--report-only"],
            {"end": raw_samples.End("head: RuntimeError: boom", broken_off=True)},
            EXIT_INCONCLUSIVE,
            "",
        ),
    ],
    ids=["warned", "regressed", "missing", "not excused", "broken off"],
)
def test_an_exit_code_that_is_not_that_of_the_outcome_is_explained(
    judge, trials, options, changes, code, excuse
):
    exit_code, shown = judge(trials, *options, **changes)
    last = shown.splitlines()[-1]
    assert (exit_code, last.endswith(excuse)) == (code, True)
    assert ("the exit code is" in last) == bool(excuse)


# ---- The base ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ([], "HEAD, a commit of main, without your changes"),
        (["--base", "HEAD"], ""),
        (["--head-env", "A=1"], ""),
    ],
    ids=["neither", "base", "variable"],
)
def test_a_gate_that_is_told_no_difference_finds_its_base(
    repository, run, monkeypatch, arguments, rule
):
    measured = []

    def measure(options, _):
        measured.append(options)
        raise GateError("not measured")

    monkeypatch.setattr(gate, "measure", measure)
    monkeypatch.chdir(repository.path)
    for variable in ("CI", "GITHUB_ACTIONS", "GITHUB_EVENT_PATH", "GITHUB_BASE_REF"):
        monkeypatch.delenv(variable, raising=False)
    code, _, errors = run("gate", *arguments)
    [options] = measured
    commit = git(repository.path, "rev-parse", "HEAD")
    found = commit if rule else None
    assert code == EXIT_INCONCLUSIVE
    assert options.base_rule == rule
    assert options.base == ("HEAD" if "--base" in arguments else found)
    assert (f"base: {commit[:7]}, {rule}\n" in errors) == bool(rule)


def test_a_list_of_cases_is_made_without_a_path_or_a_base(run, alone, tmp_path, monkeypatch):
    project = Repository(tmp_path / "project")
    project.write("pkg.py", "def run():\n    return 1\n\n\ndef other():\n    return 2\n")
    project.write(
        "benchmarks/test_pkg.py",
        "import pkg\n\n\ndef test_run(benchmark):\n    benchmark(pkg.run)\n\n\n"
        "def test_other(benchmark):\n    benchmark(pkg.other)\n",
    )
    project.write("pyproject.toml", '[tool.pytest.ini_options]\npythonpath = ["."]\n')
    commit = project.commit()
    project.write("pkg.py", "def run():\n    return 3\n\n\ndef other():\n    return 2\n")
    for variable in ("CI", "GITHUB_ACTIONS", "GITHUB_EVENT_PATH", "GITHUB_BASE_REF"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(project.path)
    code, out, _ = run("gate", "--list", "--format", "json")
    listed = json.loads(out)
    assert (code, listed["base"]) == (EXIT_PASSED, commit[:7])
    assert listed["base_rule"] == "HEAD, a commit of main, without your changes"
    assert listed["arguments"] == ["benchmarks"]
    assert [(case["node_id"], case["reasons"][0]) for case in listed["cases"]] == [
        ("benchmarks/test_pkg.py::test_run", "runs pkg.py:run (changed)")
    ]
    assert listed["same"] == ["benchmarks/test_pkg.py::test_other"]
    assert not (project.path / ".benchmarks").exists()


# ---- Wrong usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--qualify", "--base", "HEAD"],
            (
                "--qualify: measures the working tree on both sides; remove the options of base "
                "and head"
            ),
        ),
        (
            ["--qualify", "--format", "html"],
            "--format: a qualification has no page; choose another format",
        ),
        (
            ["--qualify", "--shard", "1/2"],
            "--shard: cannot be given with --qualify; remove one of them",
        ),
        (["--list", "--qualify"], "--list: cannot be given with --qualify; remove one of them"),
        (
            ["--list", "--format", "html"],
            "--format: a list of cases has no page; choose another format",
        ),
        (
            ["--qualify", "--report-only"],
            (
                "--report-only: cannot be given with --qualify, which acts by its exit code; "
                "remove one of them"
            ),
        ),
        (
            ["--base", "HEAD", "--shard", "9/8"],
            "--shard: '9/8' is not a shard; give K/N with K <= N <= 256, such as 3/8",
        ),
        (
            ["--base", "HEAD", "--trials", "3"],
            "--trials: '3' cannot be used; give a whole number, at least 8",
        ),
        (
            ["--base", "HEAD", "--output", "nowhere/report.md"],
            (
                "--output: nowhere/report.md cannot be written (No such file or directory); name "
                "another file"
            ),
        ),
        (
            ["--base", "HEAD", "--threshold", "0.05%"],
            (
                "--threshold: '0.05%' is below 0.1%, three times the difference that the same code "
                "may show; give 0.1% or more"
            ),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_before_anything_is_started(
    refused, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert refused("gate", *arguments, "--", "test_bench.py") == message
    assert list(tmp_path.rglob("*")) == [tmp_path / "tmp"]  # the folder for temporary files


@pytest.mark.parametrize(
    "arguments",
    [
        ["--base", "nothing"],
        ["--base", ".", "--nonsense"],
        ["--qualify"],
        ["--base", "HEAD", "--shard", "1/2"],
        ["--base", "HEAD", "--report-only"],
        [],  # each commit would have another base
    ],
    ids=str,
)
def test_a_bisection_stops_where_no_commit_can_be_judged(run, tmp_path, monkeypatch, arguments):
    """Exit code 2 would have git blame the commit that is tested."""
    monkeypatch.chdir(tmp_path)
    code, _, _ = run("gate", "--bisect", *arguments)
    assert code == STOPS
