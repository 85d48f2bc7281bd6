"""``mnistbench compare``, ``list``, ``history``, ``export`` and ``prune`` as a user or a CI job runs them."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import builders
import forks
import pytest

EXIT_PASSED, EXIT_REGRESSED, EXIT_UNJUDGED = 0, 1, 2
CASE = "step convnet-b16-cpu"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GIT_")) or name in ("FORCE_COLOR", "CLICOLOR_FORCE", "PYTHONIOENCODING"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def command(*arguments):
    """Run the command; whatever happens, a user never sees a traceback, and a pipe never gets an escape."""
    done = forks.run("mnistbench", *arguments)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done


def save(number, scale=1.0, *, name="base", minute=None, directory="", documents=None, **changes):
    """Write a saved run whose one operation and whose call take ``scale`` milliseconds."""
    path = Path(f".benchmarks/machine/{number:04}_{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    record = builders.case_record(
        tables=(builders.op_table(builders.op_row("aten::mm", round(scale * 1e6))),),
        timing=builders.timing(median_ns=round(scale * 1e6), iqr_ns=0),
        scalars=builders.scalars(directory=directory) if directory else None,
        **changes,
    )
    document = builders.saved_file(record, datetime=f"2026-11-20T10:{number if minute is None else minute:02}:00+00:00")
    path.write_text(json.dumps({**document, **(documents or {})}), encoding="utf-8")
    return path


def configure(text):
    Path("pyproject.toml").write_text(text, encoding="utf-8")


# ---- compare: exit codes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "options", "code", "line"),
    [
        ({"scale": 9.0}, [], EXIT_PASSED, "none given, so nothing fails; set one for operations with --op-fail 10%"),
        ({"scale": 1.05}, ["--op-fail", "10%", "--case-fail=10%"], EXIT_PASSED, "passed"),
        ({"scale": 2.0}, ["--op-fail", "10%"], EXIT_REGRESSED, "regressed: 1"),
        ({"batch_size": 64}, ["--op-fail", "10%"], EXIT_UNJUDGED, "undecided: 2"),
    ],
)
def test_the_outcome_is_the_exit_code_and_the_last_line(head, options, code, line):
    save(1), save(2, **head)
    done = command("compare", "1", "2", *options)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.endswith(f"\nthresholds: {line}\n")
    first = "1. aten::mm, forward fc1 (step convnet-b16-cpu on digits): regressed: 1.00 ms -> 2.00 ms, +100.0 %"
    assert (first in done.stdout) is (code == EXIT_REGRESSED)


def test_a_regression_is_accepted_with_a_reason_that_the_report_shows():
    save(1), save(2, 2.0)
    done = command("compare", "1", "2", "--op-fail=10%", f"--accept={CASE}:aten::mm:100%", "--reason=a new kernel")
    assert done.returncode == EXIT_PASSED
    assert "; reason: a new kernel\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["9", "2"], "mnistbench: '9' has no saved run in .benchmarks; give a file, a number, a glob, latest"),
        (["1", "2", "--op-fail=ten"], "mnistbench: --op-fail: 'ten' is not a threshold; give 10%, or 'aten::addmm:5%' for one"),
        (["1", "2", "--accept=x:y"], "mnistbench: --accept: 'x:y' needs a reason for the report; add --reason TEXT"),
        (["1", "2", "--storage=gone"], "mnistbench: gone is not a folder of saved runs; name one with --storage, or save a ru"),
        (["x" * 5_000, "2"], "mnistbench: 'xxxxxxxxxxx"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)  # fmt: skip
def test_wrong_usage_exits_with_2_and_says_in_one_line_what_to_do(arguments, complaint):
    save(1), save(2)
    done = command("compare", *arguments)
    assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(complaint)


@pytest.mark.parametrize(
    "arguments",
    [["compare", "1"], ["export", "--format=csv"], ["prune"], ["list", "extra"]],
    ids=" ".join,
)  # fmt: skip
def test_what_the_command_line_does_not_know_is_a_usage_error(arguments):
    save(1), save(2)
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_is_not_compared_with_itself():
    path = save(1)
    expected = f"mnistbench: '1' and 'latest' are one saved run, {path}: name another base\n"
    assert command("compare", "1", "latest").stderr == expected
    for same in (path.resolve(), f"./{path}", Path(".benchmarks/../.benchmarks/machine", path.name)):
        done = command("compare", same, "1")
        assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
        assert done.stderr == f"mnistbench: {str(same)!r} and '1' are one saved run, {path}: name another base\n"


def two_steps():
    """Save a run whose step takes 4 ms with the reference step and 3 ms with the fast one."""
    cases = [
        builders.case_record(
            params=builders.params(step=step),
            tables=(builders.op_table(builders.op_row("aten::mm", ns)),),
            timing=builders.timing(median_ns=ns, iqr_ns=0),
        )
        for step, ns in (("reference", 4_000_000), ("fast", 3_000_000))
    ]
    path = Path(".benchmarks/machine/0001_steps.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(builders.saved_file(*cases)), encoding="utf-8")


def test_two_steps_of_one_run_are_compared_by_operation():
    two_steps()
    done = command("compare", "1", "1", "--between=step=reference,fast", "--format=json")
    assert (done.returncode, done.stderr) == (EXIT_PASSED, "")
    [case] = json.loads(done.stdout)["cases"]
    assert case["case"] == f"{CASE}-fast on digits"
    assert (case["iteration"]["base_ns"], case["iteration"]["head_ns"]) == (4_000_000, 3_000_000)
    slower = command("compare", "1", "1", "--between=step=fast,reference", "--op-fail=10%")
    assert slower.returncode == EXIT_REGRESSED


@pytest.mark.parametrize(
    ("between", "complaint"),
    [
        *((text, f"{text!r} cannot be used; give step=reference,fast or dtype=float32,bfloat16 or compile=False,True")
          for text in ("step", "step=fast", "step=fast,fast", "step=fast,quick", "step=fast,reference,fast", "seed=1,2")),
        ("dtype=bfloat16,float32", "BASE has no case with dtype bfloat16: measure it, or name another run"),
        ("compile=False,True", "HEAD has no case with compile True: measure it, or name another run"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_between_is_one_line(between, complaint):
    two_steps()
    done = command("compare", "1", "1", f"--between={between}")
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_UNJUDGED, "", f"mnistbench: --between: {complaint}\n")


def test_the_new_run_is_no_base_run_of_itself():
    save(1), save(2), save(3, 2.0)
    done = command("compare", "*_base", "latest", "--op-fail=10%", "--format=json")
    assert done.returncode == EXIT_REGRESSED
    assert [run["saved_at"][14:16] for run in json.loads(done.stdout)["base"]] == ["01", "02"]


def test_eight_base_runs_are_judged_by_their_spread():
    for number in range(1, 9):
        save(number, 1 + number / 1_000)
    save(10, 1.5, name="head")
    done = command("compare", "*_base", "latest", "--op-fail=10%")
    assert done.returncode == EXIT_REGRESSED
    assert "judged by runs: " in done.stdout


NOISY = (1.0, 1.5, 0.8, 1.2)


def save_noisy_runs(new=1.4):
    for number in range(1, 9):
        save(number, NOISY[number % 4])
    save(9, new, name="head")


def test_noise_above_a_threshold_exits_with_2_and_with_0_where_it_may_pass():
    save_noisy_runs()
    done = command("compare", "*_base", "latest", "--op-fail=10%")
    assert (done.returncode, done.stderr) == (EXIT_UNJUDGED, "")
    assert "inconclusive: aten::mm, forward fc1 (step convnet-b16-cpu on digits), 1.10 ms -> 1.40 ms, +27.3 %" in done.stdout
    assert "; the limit is 10.0 %, the minimum detectable change 85.2 %; " in done.stdout
    assert done.stdout.endswith("or add --inconclusive ok\nthresholds: undecided: 1\n")
    assert command("compare", "*_base", "latest", "--op-fail=10%", "--inconclusive=ok").returncode == EXIT_PASSED
    done = command("compare", "*_base", "latest", "--op-fail=10%", "--case-fail=10%", "--inconclusive=fail")
    assert done.returncode == EXIT_UNJUDGED


def test_the_option_suggested_for_an_accept_without_a_limit_works():
    save(1), save(2, 2.0)
    accept = ["--op-fail=10%", "--reason=a new kernel"]
    done = command("compare", "1", "2", f"--accept={CASE}:aten::mm", *accept)
    assert done.returncode == EXIT_UNJUDGED
    option, value = shlex.split(done.stdout.partition("to accept this change, give ")[2].partition("\n")[0])
    assert command("compare", "1", "2", option, value, *accept).returncode == EXIT_PASSED
    save(2, 2.01)
    done = command("compare", "1", "2", option, value, *accept)
    assert done.returncode == EXIT_REGRESSED
    assert "; it exceeds the accepted limit of 100.0 %\n" in done.stdout


def test_base_runs_of_other_commits_are_samples_only_where_that_is_asked_for():
    for number in range(1, 9):
        save(number, documents={"commit_info": {"id": f"{number % 2}" * 40, "dirty": False, "branch": "main"}})
    save(9, name="head")
    done = command("compare", "*", "latest")
    assert "\nbase runs used: 4 of 8, commit 0000000; left out: 4 (other commit)\n" in done.stdout
    done = command("compare", "*", "latest", "--pool-commits")
    assert "\nbase runs used: 8 of 8, 2 commits\n" in done.stdout


def test_a_partial_newest_run_hides_no_case():
    save(1), save(2, batch_size=64), save(3, 2.0)
    done = command("compare", "*", "latest", "--op-fail=10%")
    assert done.returncode == EXIT_REGRESSED
    assert "step convnet-b16-cpu on digits), 1.00 ms -> 2.00 ms" in done.stdout
    missing = (
        "missing: in the base but not in this run: bench/test_step.py::test_step[convnet-b64-cpu], last saved 2026-11-20 10:02"
    )
    assert missing in done.stdout


# ---- compare: output ---------------------------------------------------------------------------------------------------


def test_each_format_can_be_printed_or_written_and_is_the_same():
    save(1), save(2, 2.0)
    for form in ("terminal", "markdown", "json", "csv"):
        printed = command("compare", "1", "2", "--op-fail=10%", "--format", form)
        written = command("compare", "1", "2", "--op-fail=10%", "--format", form, "--output=report")
        assert (written.returncode, written.stdout, written.stderr) == (EXIT_REGRESSED, "", "")
        assert Path("report").read_text(encoding="utf-8") == printed.stdout != ""
    assert sorted(path.name for path in Path().iterdir()) == [".benchmarks", "report"]  # no scratch file stays


def test_json_has_the_outcome_and_the_operations():
    save(1), save(2, 2.0)
    report = json.loads(command("compare", "1", "2", "--op-fail=10%", "--format=json").stdout)
    assert (report["schema"], report["outcome"], report["by"]) == (1, "regressed", "op,module")
    [case] = report["cases"]
    [operation] = [checked for checked in case["operations"] if checked["kind"] == "operation"]
    assert (operation["name"], operation["base_ns"], operation["head_ns"]) == ("aten::mm, forward fc1", 1_000_000, 2_000_000)


def test_a_report_that_cannot_be_written_leaves_what_was_there():
    # By a folder that is none: an administrator may write into what is read-only.
    save(1), save(2, 2.0)
    for output in ("gone/report", f"{save(1)}/report", ".benchmarks"):
        done = command("compare", "1", "2", "--output", output)
        assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
        assert done.stderr.startswith(f"mnistbench: --output: {output} cannot be written (")
        assert done.stderr.endswith("); name another file\n")
    assert sorted(path.name for path in Path().iterdir()) == [".benchmarks"]


def test_a_report_replaces_an_older_one():
    save(1), save(2)
    Path("report.md").write_text("old " * 10_000)
    assert command("compare", "1", "2", "--format=markdown", "--output=report.md").returncode == EXIT_PASSED
    assert Path("report.md").read_text(encoding="utf-8").startswith("### mnistbench: thresholds: ")


def test_the_step_summary_of_a_job_gets_the_markdown_after_what_is_there(monkeypatch):
    save(1), save(2, 2.0)
    markdown = command("compare", "1", "2", "--op-fail=10%", "--format=markdown").stdout
    Path("summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    done = command("compare", "1", "2", "--op-fail=10%")
    assert done.stdout.startswith("base: ")
    assert Path("summary.md").read_text(encoding="utf-8") == f"before\n{markdown}\n"


def test_the_report_is_printed_if_the_step_summary_cannot_be_written(monkeypatch):
    save(1), save(2, 2.0)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "gone/summary.md")
    done = command("compare", "1", "2", "--op-fail=10%")
    assert done.returncode == EXIT_REGRESSED
    assert done.stdout.endswith("thresholds: regressed: 1\n")
    assert done.stderr == ("mnistbench: GITHUB_STEP_SUMMARY: gone/summary.md cannot be written (No such file or directory)\n")


def test_a_terminal_that_cannot_show_every_sign_gets_its_number():
    save(1), save(2, 2.0)
    arguments = [sys.executable, "-m", "mnistbench", "history", CASE]
    done = subprocess.run(
        arguments, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_PASSED
    assert "\\u2581\\u2588  1.00 ms to 2.00 ms\n" in done.stdout


def test_a_closed_pipe_is_no_regression():
    for number in range(1, 30):
        save(number)
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as closed:  # noqa: PTH123  # a descriptor
        done = subprocess.run(
            [sys.executable, "-m", "mnistbench", "list"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == ""
    assert done.returncode == EXIT_UNJUDGED


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_no_regression(unbuffered):
    # An exit code of 1 says that something got slower.
    save(1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mnistbench", "list"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.stderr == "mnistbench: cannot write or read (No space left on device)\n"
    assert done.returncode == EXIT_UNJUDGED


# ---- settings ----------------------------------------------------------------------------------------------------------


def test_settings_are_read_from_the_nearest_pyproject_upwards(tmp_path, monkeypatch):
    save(1), save(2, 2.0)
    configure('[tool.mnistbench]\nop_fail = ["10%"]\ncase_fail = "500%"\n')
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert command("compare", "1", "2", "--storage=../.benchmarks").returncode == EXIT_REGRESSED
    (below / "pyproject.toml").write_text("[tool.mnistbench]\nop_fail = '500%'\n")
    assert command("compare", "1", "2", "--storage=../.benchmarks").returncode == EXIT_PASSED


def test_the_command_line_comes_before_the_file():
    save(1), save(2, 2.0)
    configure('[tool.mnistbench]\nop_fail = ["10%"]\n')
    assert command("compare", "1", "2").returncode == EXIT_REGRESSED
    assert command("compare", "1", "2", "--op-fail=150%").returncode == EXIT_PASSED


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[tool.mnistbench]\nop_fial = "10%"', "op_fial in {}: is not a setting of [tool.mnistbench]; choose of op_fail"),
        ("[tool.mnistbench]\nallow_missing = true", "allow_missing in {}: is not a setting of [tool.mnistbench]; "),
        ('[tool.mnistbench]\nop_fail = "ten"', "op_fail in {}: 'ten' is not a threshold; give 10%"),
        ("a = " + "[" * 5_000, "{}: cannot be read as TOML ("),
    ],
    ids=lambda text: text.partition("\n")[2][:30],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_refused_by_its_name_and_file(tmp_path, text, complaint):
    save(1), save(2)
    configure(text)
    done = command("compare", "1", "2")
    assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"mnistbench: {complaint.format(tmp_path / 'pyproject.toml')}")


@pytest.mark.parametrize("text", ["tool = 5", "", "[tool.mnistbench]"])
def test_a_project_without_settings_has_the_defaults(text):
    save(1), save(2)
    configure(text)
    assert command("compare", "1", "2").returncode == EXIT_PASSED


def test_what_is_not_text_is_no_configuration():
    save(1), save(2)
    Path("pyproject.toml").write_bytes(b"\xff\xfe")
    assert "pyproject.toml: cannot be read as TOML (" in command("compare", "1", "2").stderr


# ---- unreadable files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["history", CASE], ["prune", "--keep=1"], ["export"], ["compare", "1", "latest"]],
    ids=lambda arguments: arguments[0],
)
def test_a_file_that_cannot_be_read_is_reported_and_the_others_are_used(arguments):
    save(1), save(2)
    torn = save(3)
    torn.write_text('{"benchmarks": [')
    done = command(*arguments)
    assert done.returncode == EXIT_PASSED
    assert done.stdout != ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"mnistbench: passed over: {torn}: is not JSON (Expecting value")


def test_where_nothing_can_be_read_every_file_is_reported_with_what_to_do():
    paths = [save(1), save(2)]
    paths[0].write_text("")
    paths[1].write_text("5")
    for arguments in (["list"], ["history", CASE], ["prune", "--keep=1"]):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
        empty, number, nothing = done.stderr.splitlines()
        assert empty == f"mnistbench: passed over: {paths[0]}: is empty; the run that should have written it was cut off"
        assert number.startswith(f"mnistbench: passed over: {paths[1]}: file: needs an object, found 5; save the run again or")
        assert nothing == (
            "mnistbench: no saved run in .benchmarks can be read; save one with: pytest bench --benchmark-autosave"
        )


def test_the_file_that_was_asked_for_is_reported_before_the_refusal():
    path = save(1)
    path.write_text("{}")
    save(2)
    done = command("compare", "1", "2")
    assert done.returncode == EXIT_UNJUDGED
    passed_over, refusal = done.stderr.splitlines()
    assert passed_over.startswith(f"mnistbench: passed over: {path}: benchmarks: is missing; save the run again or leave")
    assert refusal == f"mnistbench: '1' is {path}: nothing there can be read"


def test_a_file_name_with_an_escape_is_spelt_out():
    for number in (1, 2):
        save(number, name="\x1b[31mred")
    save(3).write_text("")
    done = command("prune", "--keep=1")
    assert "would remove .benchmarks/machine/0001_\\x1b[31mred.json\n" in done.stdout
    path = save(4, name="\x1b[32m")
    path.write_text("")
    assert "passed over: .benchmarks/machine/0004_\\x1b[32m.json: is empty" in command("list").stderr


# ---- list, history, export ---------------------------------------------------------------------------------------------


def test_the_list_has_a_row_per_run_oldest_first():
    save(2, minute=1), save(1, minute=2)
    lines = command("list").stdout.splitlines()
    assert lines[0] == "2 saved runs"
    assert [line.split()[0] for line in lines[3:]] == ["0002", "0001"]


def test_the_history_of_an_operation_of_a_case():
    save(1), save(2, 2.0)
    lines = command("history", CASE, "--op=aten::mm", "--module=fc1").stdout.splitlines()
    assert lines[:2] == ["step convnet-b16-cpu on digits: aten::mm in fc1", "▁█  1.00 ms to 2.00 ms"]
    assert lines[-1].split() == ["0002", "2026-11-20", "10:02", "1a2b3c4", "2,000.0", "+100.0", "%"]


def test_an_unknown_case_exits_with_2():
    save(1)
    done = command("history", "step gone")
    assert (done.returncode, done.stdout) == (EXIT_UNJUDGED, "")
    assert done.stderr == "mnistbench: no saved run has case 'step gone'; cases: step convnet-b16-cpu on digits\n"


def test_an_export_can_be_written_and_takes_any_reference():
    save(1), save(2, 2.0)
    done = command("export", "1", "--output=run.csv")
    assert (done.returncode, done.stdout) == (EXIT_PASSED, "")
    assert Path("run.csv").read_text(encoding="utf-8").splitlines()[1:] == [
        "step convnet-b16-cpu on digits,(iteration),,,,1000000,0,",
        "step convnet-b16-cpu on digits,aten::mm,forward,fc1,1.0,1000000,0,0",
    ]


# ---- prune -------------------------------------------------------------------------------------------------------------


def sessions():
    return sorted(path.name for path in Path(".benchmarks/tensorboard").iterdir())


def a_session(number):
    """A saved run with its TensorBoard directory."""
    name = f"20261120-10300{number}"
    directory = Path(".benchmarks/tensorboard", name, "step-convnet")
    directory.mkdir(parents=True)
    (directory / "events.out").write_text("curve")
    return save(number, directory=str(directory))


def test_prune_shows_what_would_go_and_then_removes_it():
    paths = [a_session(number) for number in (1, 2, 3)]
    shown = command("prune", "--keep=1")
    assert (shown.returncode, shown.stderr) == (EXIT_PASSED, "")
    assert shown.stdout.splitlines() == [
        f"would remove {paths[0]}",
        f"would remove {paths[1]}",
        "would remove .benchmarks/tensorboard/20261120-103001",
        "would remove .benchmarks/tensorboard/20261120-103002",
        "2 saved runs and 2 TensorBoard directories; add --yes to remove them",
    ]
    assert all(path.exists() for path in paths)
    assert len(sessions()) == 3
    done = command("prune", "--keep=1", "--yes")
    assert done.returncode == EXIT_PASSED
    assert done.stdout.splitlines() == [line.replace("would remove", "removing") for line in shown.stdout.splitlines()[:-1]]
    assert [path.exists() for path in paths] == [False, False, True]
    assert sessions() == ["20261120-103003"]
    assert command("prune", "--keep=1", "--yes").stdout == "nothing to remove: there are no more than 1 saved runs\n"


@pytest.mark.parametrize("directory", ["../../20261120-103001/x", "{}/20261120-103001/x", "{}/x", "x" * 5_000])
def test_prune_touches_nothing_outside_whatever_a_file_says(tmp_path, directory):
    # A saved run may come from somebody else's pull request.
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    for folder in (outside, outside / "x", outside / "20261120-103001/x", tmp_path / "x", tmp_path / "20261120-103001/x"):
        folder.mkdir(parents=True)
        (folder / "precious").write_text("kept")
    Path(".benchmarks/tensorboard").mkdir(parents=True)
    old = save(1, directory=directory.format(outside))
    save(2)

    def everything():
        return {path for root in (tmp_path, outside) for path in root.rglob("*")}

    before = everything()
    done = command("prune", "--keep=1", "--yes")
    assert done.returncode == EXIT_PASSED
    assert before - everything() == {old.resolve()}


def test_prune_leaves_what_it_cannot_read():
    torn = save(1)
    torn.write_text("{")
    old, new = save(2), save(3)
    command("prune", "--keep=1", "--yes")
    assert [path.exists() for path in (torn, old, new)] == [True, False, True]
