"""``mnistbench report``: runs by name, the file, errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import builders
import forks
import pytest
from page_builders import document, epoch, step

WRITTEN, REFUSED = 0, 2


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def report(*arguments):
    """Run the command; whatever happens, a user never sees a traceback."""
    done = forks.run("mnistbench", "report", *arguments)
    assert "Traceback" not in done.stderr
    return done


def save(number, *cases, commit="1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", **changes):
    path = Path(f".benchmarks/machine/{number:04}_x.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = document(
        *(cases or (step(), epoch())),
        datetime=f"2026-11-20T10:{number:02}:00+00:00",
        commit_info={"id": commit, "dirty": False, "branch": "main"},
    )
    path.write_text(json.dumps({**written, **changes}), encoding="utf-8")
    return path


def headings(path="report.html"):
    """What stands above each run, newest first."""
    text = Path(path).read_text(encoding="utf-8")
    return [part.partition("</h2>")[0].partition(">")[2][11:16] for part in text.split("<h2 ")[1:]]


def test_a_run_is_written_to_report_html():
    save(1)
    done = report("latest")
    assert (done.returncode, done.stdout, done.stderr) == (WRITTEN, "1 saved run: report.html\n", "")
    text = Path("report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>\n")
    assert text.endswith("</html>\n")
    assert "step convnet-b16-cpu on digits" in text


@pytest.mark.parametrize(
    ("references", "found"),
    [
        (["1", "2"], ["10:02", "10:01"]),
        (["2", "1", "latest"], ["10:03", "10:02", "10:01"]),
        (["*"], ["10:03", "10:02", "10:01"]),
        ([".benchmarks/machine/0002_x.json"], ["10:02"]),
        (["ffff000"], ["10:03"]),
        (["main"], ["10:03"]),
    ],
    ids=" ".join,
)
def test_runs_are_found_by_name(references, found):
    save(1), save(2), save(3, commit="f" * 4 + "0" * 36)
    done = report(*references, "-o", "page.html")
    assert (done.returncode, done.stderr) == (WRITTEN, "")
    assert headings("page.html") == found


def test_two_runs_are_compared_by_the_thresholds_of_the_project():
    save(1), save(2, step(2.0), epoch())
    Path("pyproject.toml").write_text('[tool.mnistbench]\nop_fail = ["10%"]\n', encoding="utf-8")
    done = report("1", "2")
    assert done.returncode == WRITTEN
    assert "thresholds: regressed: " in Path("report.html").read_text(encoding="utf-8")
    assert report("1", "2", "--op-fail", "200%").returncode == WRITTEN
    assert "thresholds: passed" in Path("report.html").read_text(encoding="utf-8")


def test_each_run_is_compared_with_the_given_base():
    save(1), save(2), save(3)
    assert report("2", "3", "--base", "1").returncode == WRITTEN
    assert Path("report.html").read_text(encoding="utf-8").count("base: 2026-11-20 10:01 UTC") == 2


def test_files_without_content_are_passed_over():
    save(1)
    plain = builders.saved_file()
    plain["benchmarks"][0]["extra_info"] = {}
    save(2, benchmarks=plain["benchmarks"])
    Path(".benchmarks/machine/0003_torn.json").write_text('{"benchmarks": [', encoding="utf-8")
    done = report("*")
    assert done.returncode == WRITTEN
    torn, without = sorted(done.stderr.splitlines(), key=lambda line: "torn" not in line)
    assert torn.startswith("mnistbench: passed over: .benchmarks/machine/0003_torn.json: is not JSON")
    assert without == "mnistbench: passed over: .benchmarks/machine/0002_x.json: no benchmark in it has an operation record"


def save_spoiled(number, field="curves"):
    """Save a run that can be listed and compared, but not read whole."""
    spoiled = document(step(), epoch())
    spoiled["benchmarks"][1]["extra_info"]["mnistbench"][field] = "{"
    return save(number, benchmarks=spoiled["benchmarks"])


def test_a_damaged_run_is_passed_over_by_name():
    save(1), save_spoiled(2), save(3)
    done = report("*")
    assert (done.returncode, done.stdout) == (WRITTEN, "2 saved runs: report.html\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "mnistbench: passed over: .benchmarks/machine/0002_x.json: benchmarks[1].extra_info.mnistbench.curves: is not JSON"
    )
    assert headings() == ["10:03", "10:01"]
    assert "base: 2026-11-20 10:01 UTC" in Path("report.html").read_text(encoding="utf-8")  # the one before it on the page


def test_error_if_every_run_is_damaged():
    save_spoiled(1), save_spoiled(2, "rounds_ns")
    done = report("*")
    assert (done.returncode, done.stdout) == (REFUSED, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mnistbench: none of 2 saved runs can be shown, the first of them: .benchmarks/machine/0001_x.json:")
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["9"], "mnistbench: '9' has no saved run in .benchmarks; give a file, a number, a glob, latest"),
        (["1", "--base", "9"], "mnistbench: '9' has no saved run in .benchmarks; give a file"),
        (["1", "--base", ""], "mnistbench: --base: '' is no value; give one, or leave the option out"),
        (["1", "--storage", "gone"], "mnistbench: gone is not a folder of saved runs; name one with --storage"),
        (["1", "-o", "gone/r.html"], "mnistbench: --output: gone/r.html cannot be written (No such file or directory); name"),
        (["1", "--output", "."], "mnistbench: --output: . cannot be written (Is a directory); name another file"),
        (["2"], "mnistbench: '2' is .benchmarks/machine/0002_x.json: nothing there can be read"),
        (["3"], "mnistbench: .benchmarks/machine/0003_x.json: benchmarks[0].extra_info.mnistbench.rounds_ns: is not JSON"),
        (["1", "--op-fail=ten"], "mnistbench: --op-fail: 'ten' is not a threshold"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line_and_leave_no_file(arguments, complaint):
    save(1), save(2, benchmarks=5)
    spoiled = document(step())
    spoiled["benchmarks"][0]["extra_info"]["mnistbench"]["rounds_ns"] = "[1"
    save(3, benchmarks=spoiled["benchmarks"])
    done = report(*arguments)
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr.splitlines()[-1].startswith(complaint)
    assert not Path("report.html").exists()


def test_an_error_leaves_the_earlier_page():
    save(1)
    Path("report.html").write_text("before", encoding="utf-8")
    assert report("9").returncode == REFUSED
    assert Path("report.html").read_text(encoding="utf-8") == "before"


def test_writing_a_page_imports_no_torch():
    save(1)
    check = "import sys; from mnistbench.cli import main; main(['report', '1']); sys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], check=False, capture_output=True).returncode == 0
