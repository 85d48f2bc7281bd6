"""``mnistbench compare`` and the other commands on saved runs.

``list``, ``history``, ``export`` and ``report``.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import builders
import pytest

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2
CASE = "step convnet-b16-cpu"

pytestmark = pytest.mark.usefixtures("alone")


def save(number, scale=1.0, *, name="base", documents=None, **changes):
    """Write a saved run whose one operation and whose iteration take ``scale`` milliseconds."""
    path = Path(f".benchmarks/machine/{number:04}_{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    record = builders.case_record(
        tables=(builders.op_table(builders.op_row("aten::mm", round(scale * 1e6))),),
        timing=builders.timing(median_ns=round(scale * 1e6), iqr_ns=0),
        **changes,
    )
    document = builders.saved_file(record, datetime=f"2026-11-20T10:{number:02}:00+00:00")
    path.write_text(json.dumps({**document, **(documents or {})}), encoding="utf-8")
    return path


# ---- compare -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "options", "code", "line"),
    [
        (
            {"scale": 9.0},
            [],
            EXIT_PASSED,
            "none given, so nothing fails; set one for operations with --op-fail 10%",
        ),
        ({"scale": 1.05}, ["--op-fail", "10%", "--case-fail=10%"], EXIT_PASSED, "passed"),
        ({"scale": 2.0}, ["--op-fail", "10%"], EXIT_REGRESSED, "regressed: 1"),
        ({"batch_size": 64}, ["--op-fail", "10%"], EXIT_INCONCLUSIVE, "inconclusive: 2"),
    ],
)
def test_the_outcome_is_the_exit_code_and_the_last_line(run, head, options, code, line):
    save(1)
    save(2, **head)
    exit_code, out, err = run("compare", "1", "2", *options)
    assert (exit_code, err) == (code, "")
    assert out.endswith(f"\nthresholds: {line}\n")
    first = (
        "1. aten::mm, forward fc1 (step convnet-b16-cpu on digits): regressed: 1.00 ms -> 2.00 "
        "ms, +100.0 %"
    )
    assert (first in out) is (code == EXIT_REGRESSED)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["compare", "9", "2"],
            "'9' has no saved run in .benchmarks; give a file, a number, a name, a glob, latest",
        ),
        (
            ["compare", "1", "2", "--output=gone/report"],
            "--output: gone/report cannot be written (No such file or directory",
        ),
        (["compare", "1"], "the following arguments are required: "),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_2_and_says_in_one_line_what_to_do(refused, arguments, complaint):
    save(1)
    save(2)
    assert refused(*arguments).startswith(complaint)


def test_a_run_is_not_compared_with_itself(refused):
    path = save(1)
    assert (
        refused("compare", "1", "latest")
        == f"'1' and 'latest' are one saved run, {path}: name another base"
    )
    for same in (path.resolve(), Path(".benchmarks/../.benchmarks/machine", path.name)):
        assert (
            refused("compare", same, "1")
            == f"{str(same)!r} and '1' are one saved run, {path}: name another base"
        )


@pytest.fixture
def two_steps(alone):
    """A run whose step takes 4 ms with the reference step and 3 ms with the fast one."""
    cases = [
        builders.case_record(
            params=builders.params(step=step),
            tables=(builders.op_table(builders.op_row("aten::mm", ns)),),
            timing=builders.timing(median_ns=ns, iqr_ns=0),
        )
        for step, ns in (("reference", 4_000_000), ("fast", 3_000_000))
    ]
    save(1, documents={"benchmarks": [builders.saved_benchmark(case) for case in cases]})


@pytest.mark.usefixtures("two_steps")
def test_two_steps_of_one_run_are_compared_by_operation(run):
    code, out, err = run("compare", "1", "1", "--between=step=reference,fast", "--format=json")
    assert (code, err) == (EXIT_PASSED, "")
    [case] = json.loads(out)["cases"]
    assert case["case"] == f"{CASE}-fast on digits"
    assert (case["iteration"]["base_ns"], case["iteration"]["head_ns"]) == (4_000_000, 3_000_000)
    assert (
        run("compare", "1", "1", "--between=step=fast,reference", "--op-fail=10%")[0]
        == EXIT_REGRESSED
    )


def save_compiled(number, *settings):
    """Save a run with an eager case of 4 ms and, for each settings, a compiled one of 3 ms."""
    params_and_ns = [
        (builders.params(), 4_000_000),
        *((builders.params(compile=True, compile_with=text), 3_000_000) for text in settings),
    ]
    cases = [
        builders.case_record(
            params=params,
            tables=(builders.op_table(builders.op_row("aten::mm", ns)),),
            timing=builders.timing(median_ns=ns, iqr_ns=0),
        )
        for params, ns in params_and_ns
    ]
    save(number, documents={"benchmarks": [builders.saved_benchmark(case) for case in cases]})


@pytest.mark.parametrize(
    ("settings", "ending"), [("", ""), ("reduce-overhead,static", "-reduce-overhead-static")]
)
def test_eager_and_compiled_cases_are_compared_whatever_the_settings(run, settings, ending):
    save_compiled(1, settings)
    for values, label, times in (
        ("no,yes", f"{CASE}-compiled{ending}", (4_000_000, 3_000_000)),
        ("yes,no", CASE, (3_000_000, 4_000_000)),
    ):
        _, out, _ = run("compare", "1", "1", f"--between=compile={values}", "--format=json")
        [case] = json.loads(out)["cases"]
        assert case["case"] == f"{label} on digits"
        assert (case["iteration"]["base_ns"], case["iteration"]["head_ns"]) == times


def test_cases_with_several_settings_are_no_samples_of_one_base(refused):
    save_compiled(1, "", "fullgraph")
    assert refused("compare", "1", "1", "--between=compile=yes,no") == (
        f"--between: BASE has {CASE}-compiled and {CASE}-compiled-fullgraph: name runs with one of "
        "them"
    )


@pytest.mark.usefixtures("two_steps")
@pytest.mark.parametrize(
    ("between", "complaint"),
    [
        *(
            (
                text,
                (
                    f"{text!r} cannot be used; give step=reference,fast or dtype=float32,bfloat16 "
                    "or compile=no,yes"
                ),
            )
            for text in (
                "step",
                "step=fast,fast",
                "step=fast,quick",
                "step=fast,reference,fast",
                "seed=1,2",
            )
        ),
        (
            "dtype=bfloat16,float32",
            "BASE has no case with dtype bfloat16: measure it, or name another run",
        ),
        (
            "compile=no,yes",
            "HEAD has no case with compile yes: measure it, or name another run",
        ),
    ],
)
def test_what_cannot_be_compared_between_is_one_line(refused, between, complaint):
    assert refused("compare", "1", "1", f"--between={between}") == f"--between: {complaint}"


def test_the_head_is_no_base_run_of_itself_and_the_report_is_written(run):
    save(1)
    save(2)
    save(3, 2.0)
    arguments = (
        "compare",
        "*_base",
        "latest",
        "--op-fail=10%",
        "--format=json",
        "--output=report.json",
    )
    assert run(*arguments) == (EXIT_REGRESSED, "", "")
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert (report["schema"], report["outcome"], report["by"]) == (1, "regressed", "op,module")
    assert [base["saved_at"][14:16] for base in report["base"]] == ["01", "02"]


def test_a_regression_is_accepted_up_to_the_limit_that_an_accept_needs(run):
    save(1)
    save(2, 2.0)
    compare = ("compare", "1", "2", "--op-fail=10%", "--reason=a new kernel")
    code, _, error = run(*compare, f"--accept={CASE}:aten::mm")
    assert code == EXIT_INCONCLUSIVE
    assert f"intended: '{CASE}:aten::mm:5%'" in error
    accept = f"--accept={CASE}:aten::mm:100%"
    code, out, _ = run(*compare, accept)
    assert code == EXIT_PASSED
    assert "; reason: a new kernel\n" in out
    save(2, 2.01)
    code, out, _ = run(*compare, accept)
    assert code == EXIT_REGRESSED
    assert "; it exceeds the accepted limit of 100.0 %\n" in out


def test_base_runs_of_other_commits_are_samples_only_where_that_is_asked_for(run):
    for number in range(1, 9):
        save(
            number,
            documents={
                "commit_info": {"id": f"{number % 2}" * 40, "dirty": False, "branch": "main"}
            },
        )
    save(9, name="head")
    assert (
        "\nbase runs used: 4 of 8, commit 0000000; left out: 4 (other commit)\n"
        in run("compare", "*", "latest")[1]
    )
    assert (
        "\nbase runs used: 8 of 8, 2 commits\n"
        in run("compare", "*", "latest", "--pool-commits")[1]
    )


def test_the_step_summary_of_a_job_gets_the_markdown(run, monkeypatch):
    save(1)
    save(2, 2.0)
    markdown = run("compare", "1", "2", "--op-fail=10%", "--format=markdown")[1]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    code, out, err = run("compare", "1", "2", "--op-fail=10%")
    assert Path("summary.md").read_text(encoding="utf-8") == f"{markdown}\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "gone/summary.md")
    line = (
        "mnistbench: GITHUB_STEP_SUMMARY: gone/summary.md cannot be written (No such file or "
        "directory)\n"
    )
    assert (
        run("compare", "1", "2", "--op-fail=10%")
        == (code, out, line)
        == (EXIT_REGRESSED, out, err + line)
    )


# ---- what only a process shows -------------------------------------------------------------------


def process(*arguments, **options):
    command = [sys.executable, "-m", "mnistbench", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


def test_a_terminal_that_cannot_show_every_sign_gets_its_number():
    save(1)
    save(2, 2.0)
    done = process(
        "history", CASE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == EXIT_PASSED
    assert "\\u2581\\u2588  1.00 ms to 2.00 ms\n" in done.stdout


def test_a_closed_pipe_is_no_regression():
    for number in range(1, 30):
        save(number)
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as closed:  # noqa: PTH123  # a descriptor
        done = process("list", stdout=closed)
    assert (done.returncode, done.stderr) == (EXIT_INCONCLUSIVE, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_no_regression(unbuffered):
    # An exit code of 1 says that something got slower.
    save(1)
    with Path("/dev/full").open("w") as full:
        done = process("list", stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert done.stderr == "mnistbench: cannot write or read (No space left on device)\n"
    assert done.returncode == EXIT_INCONCLUSIVE


# ---- settings ------------------------------------------------------------------------------------


def test_thresholds_of_the_project_apply_unless_the_command_line_has_others(run, refused):
    save(1)
    save(2, 2.0)
    project = Path("pyproject.toml")
    project.write_text('[tool.mnistbench]\nop_fail = ["10%"]\n', encoding="utf-8")
    assert run("compare", "1", "2")[0] == EXIT_REGRESSED
    assert run("compare", "1", "2", "--op-fail=150%")[0] == EXIT_PASSED
    project.write_text('[tool.mnistbench]\nop_fail = "ten"\n', encoding="utf-8")
    assert refused("compare", "1", "2").startswith(
        f"op_fail in {project.resolve()}: 'ten' is not a threshold; give 10%"
    )


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a = " + b"[" * 5_000], ids=["no text", "nested deeply"]
)
def test_a_project_file_that_cannot_be_parsed_is_one_line(refused, content):
    Path("pyproject.toml").write_bytes(content)
    assert refused("compare", "1", "2").startswith(
        f"{Path('pyproject.toml').resolve()}: cannot be read as TOML ("
    )


# ---- unreadable files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["history", CASE],
        ["export"],
        ["compare", "1", "latest"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_file_that_cannot_be_read_is_reported_and_the_others_are_used(run, arguments):
    save(1)
    save(2)
    torn = save(3)
    torn.write_text('{"benchmarks": [')
    code, out, err = run(*arguments)
    assert code == EXIT_PASSED
    assert out != ""
    [line] = err.splitlines()
    assert line.startswith(f"mnistbench: skipped: {torn}: is not JSON (Expecting value")
    assert torn.exists()


def test_a_damaged_operation_table_concerns_only_commands_that_show_operations(run):
    save(1)
    save(2)
    spoiled = save(3)
    document = json.loads(spoiled.read_text(encoding="utf-8"))
    document["benchmarks"][0]["extra_info"]["mnistbench"]["tables"][0]["times"] = "{"
    spoiled.write_text(json.dumps(document), encoding="utf-8")
    for arguments in (["list"], ["history", CASE]):
        _, out, err = run(*arguments)
        assert [line.split()[0] for line in out.splitlines()[-3:]] == ["0001", "0002", "0003"]
        assert err == ""
    for arguments in (["compare", "1", "latest"], ["history", CASE, "--op", "aten::mm"]):
        _, out, err = run(*arguments)
        assert "10:02" in out
        assert "10:03" not in out
        assert err.startswith(f"mnistbench: skipped: {spoiled}: benchmarks[0].extra_info.")


@pytest.mark.parametrize("command", ["list", "report"])
def test_where_nothing_can_be_read_every_file_is_reported_with_what_to_do(run, command):
    paths = [save(1), save(2)]
    paths[0].write_text("")
    paths[1].write_text("5")
    code, out, err = run(command)
    assert (code, out) == (EXIT_INCONCLUSIVE, "")
    empty, number, nothing = err.splitlines()
    assert empty == (
        f"mnistbench: skipped: {paths[0]}: is empty; the run that should have written it was "
        "cut off"
    )
    assert number.startswith(
        f"mnistbench: skipped: {paths[1]}: file: needs an object, found 5; save the run again or"
    )
    assert nothing.startswith("mnistbench: no saved run in .benchmarks can be read; ")


def test_the_file_that_was_asked_for_is_reported_before_the_refusal(run):
    path = save(1)
    path.write_text("{}")
    save(2)
    code, _, err = run("compare", "1", "2")
    assert code == EXIT_INCONCLUSIVE
    passed_over, refusal = err.splitlines()
    assert passed_over.startswith(
        f"mnistbench: skipped: {path}: has no benchmarks and no traceEvents; it is neither"
    )
    assert refusal == f"mnistbench: '1' is {path}: nothing there can be read"


def test_a_file_name_with_an_escape_is_spelt_out(run):
    save(4, name="\x1b[32m").write_text("")
    assert "skipped: .benchmarks/machine/0004_\\x1b[32m.json: is empty" in run("list")[2]


# ---- list, history, export, report ---------------------------------------------------------------


def test_the_history_of_an_operation_of_a_case(run):
    save(1)
    save(2, 2.0)
    lines = run("history", CASE, "--op=aten::mm", "--module=fc1")[1].splitlines()
    assert lines[:2] == [
        "step convnet-b16-cpu on digits: aten::mm in fc1",
        "▁█  1.00 ms to 2.00 ms",
    ]
    assert lines[-1].split() == [
        "0002",
        "2026-11-20",
        "10:02",
        "1a2b3c4",
        "2.00",
        "ms",
        "+100.0",
        "%",
    ]


def test_an_export_can_be_written_and_takes_any_reference(run):
    save(1)
    save(2, 2.0)
    assert run("export", "1", "--output=run.csv") == (EXIT_PASSED, "", "")
    assert Path("run.csv").read_text(encoding="utf-8").splitlines()[1:] == [
        "step convnet-b16-cpu on digits,(iteration),,,,1000000.0,0.0,,wall",
        "step convnet-b16-cpu on digits,aten::mm,forward,fc1,1.0,1000000,0,0,cpu",
    ]


@pytest.mark.parametrize(
    ("newest", "minutes"),
    [({}, {"02", "03"}), ({"benchmarks": []}, {"01", "02"})],
    ids=["ours", "plain"],
)
def test_a_page_without_references_shows_the_newest_run_and_the_one_before_it(run, newest, minutes):
    save(1)
    save(2)
    save(3, documents=newest)
    assert run("report") == (EXIT_PASSED, "2 saved runs: report.html\n", "")
    assert (
        set(
            re.findall(r"2026-11-20 10:(\d\d) UTC", Path("report.html").read_text(encoding="utf-8"))
        )
        == minutes
    )
