"""``mnistbench report``: which runs are shown, what each is compared with, the file, errors."""

import json
from pathlib import Path

import gate_builders
import pytest
from builders import saved_file
from page_builders import epoch, step

from mnistbench.compare.criteria import Criteria
from mnistbench.page.command import shown_runs
from mnistbench.saved_runs.storage import Storage

pytestmark = pytest.mark.usefixtures("alone")

WRITTEN = 0
FOLDER = ".benchmarks/machine"


@pytest.fixture
def report(run):
    """Run the command."""
    return lambda *arguments: run("report", *arguments)


def save(number, *cases, **changes):
    path = Path(f"{FOLDER}/{number:04}_x.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = saved_file(
        *(cases or (step(), epoch())), datetime=f"2026-11-20T10:{number:02}:00+00:00"
    )
    path.write_text(json.dumps({**written, **changes}), encoding="utf-8")
    return path


def save_spoiled(number, field="curves"):
    """Save a run that can be listed and compared, but not read whole."""
    spoiled = saved_file(step(), epoch())
    spoiled["benchmarks"][1]["extra_info"]["mnistbench"][field] = "{"
    save(number, benchmarks=spoiled["benchmarks"])


def save_plain(number):
    """Save a run of tests without operation records."""
    save(
        number,
        benchmarks=[{**benchmark, "extra_info": {}} for benchmark in saved_file()["benchmarks"]],
    )


def shown(references, bases=()):
    """Return the numbers of the runs that are shown, their bases, and what is skipped.

    A base is a run that it is compared with.
    """
    storage = Storage(Path(".benchmarks"))
    shown_saved, base_saved = (
        [saved for name in names for saved in storage.find(name)] for names in (references, bases)
    )
    runs, skipped = shown_runs(shown_saved, base_saved, Criteria())
    compared = {
        run.saved.number[-1]: run.judgement.comparison.bases if run.judgement else []
        for run in runs
    }
    return {
        number: [base.minute[-1] for base in bases_of_run]
        for number, bases_of_run in compared.items()
    }, skipped


def page():
    return Path("report.html").read_text(encoding="utf-8")


def test_a_run_is_written_to_report_html(report):
    save(1)
    assert report("latest") == (WRITTEN, "1 saved run: report.html\n", "")
    assert page().startswith("<!doctype html>\n")
    assert page().endswith("</html>\n")
    assert "step convnet-b16-cpu on digits" in page()


def test_runs_are_compared_by_the_thresholds_of_the_project_with_the_given_base(report):
    save(1)
    save(2)
    save(3, step(2.0), epoch())
    Path("pyproject.toml").write_text('[tool.mnistbench]\nop_fail = ["10%"]\n', encoding="utf-8")
    assert report("2", "1", "latest", "--base", "1")[0] == WRITTEN
    assert "thresholds: regressed: " in page()
    assert page().count("base: 2026-11-20 10:01 UTC") == 2
    headings = [
        part.partition("</h2>")[0].partition(">")[2][11:16] for part in page().split("<h2 ")[1:]
    ]
    assert headings == ["10:03", "10:02", "10:01"]
    Path("pyproject.toml").write_text('[tool.mnistbench]\nop_fail = ["200%"]\n', encoding="utf-8")
    assert report("1", "3", "-o", "page.html")[0] == WRITTEN
    assert "thresholds: passed" in Path("page.html").read_text(encoding="utf-8")


def test_each_run_is_compared_with_the_one_before_it():
    save(1)
    save(2)
    save(3)
    save_plain(4)
    assert shown(["3", "*", "1"]) == ({"1": [], "2": ["1"], "3": ["2"], "4": ["3"]}, [])


def test_each_run_is_compared_with_the_chosen_base():
    save(1)
    save(2)
    save(3)
    assert shown(["1", "3"], ["1", "2"]) == ({"1": ["2"], "3": ["1", "2"]}, [])


def test_a_run_with_an_invalid_threshold_is_passed_over():
    save(3)
    save(5, step(op_fail=("5",)))
    runs, [line] = shown(["3", "5"])
    assert runs == {"3": []}
    assert line.startswith(f"{FOLDER}/0005_x.json: opgate of ")
    assert "'5' is not a threshold" in line


def test_runs_without_operation_records_are_shown(report):
    save_plain(1)
    save_plain(2)
    assert report()[:2] == (WRITTEN, "2 saved runs: report.html\n")
    assert page().count("<h2 ") == 2


def test_a_run_without_benchmarks_cannot_be_shown(refused):
    save(4, benchmarks=[])
    assert (
        refused("report", "4")
        == f"{FOLDER}/0004_x.json: has no benchmark with a time; name another run"
    )


def test_files_without_content_are_passed_over_by_name(report):
    save(1)
    save_spoiled(2)
    save(3)
    Path(f"{FOLDER}/0004_torn.json").write_text('{"benchmarks": [', encoding="utf-8")
    code, out, err = report("*")
    assert (code, out) == (WRITTEN, "2 saved runs: report.html\n")
    torn, spoiled = sorted(err.splitlines(), key=lambda line: "torn" not in line)
    assert torn.startswith(f"mnistbench: skipped: {FOLDER}/0004_torn.json: is not JSON")
    start = (
        f"mnistbench: skipped: {FOLDER}/0002_x.json: "
        "benchmarks[1].extra_info.mnistbench.curves: is not JSON"
    )
    assert spoiled.startswith(start)
    assert "base: 2026-11-20 10:01 UTC" in page()  # the one before it on the page


def test_error_if_every_run_is_damaged(refused):
    save_spoiled(1)
    save_spoiled(2, "rounds_ns")
    line = f"none of 2 saved runs can be shown, the first of them: {FOLDER}/0001_x.json:"
    assert refused("report", "*").startswith(line)
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["1", "-o", "gone/r.html"],
            "--output: gone/r.html cannot be written (No such file or directory); name",
        ),
        (
            ["3"],
            f"{FOLDER}/0003_x.json: benchmarks[1].extra_info.mnistbench.rounds_ns: Expected",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line_and_leave_the_earlier_page(refused, arguments, complaint):
    save(1)
    save_spoiled(3, "rounds_ns")
    Path("report.html").write_text("before", encoding="utf-8")
    assert refused("report", *arguments).startswith(complaint)
    assert page() == "before"


# ---- Other files ---------------------------------------------------------------------------------


def test_raw_samples_of_a_gate_have_their_page_from_judge(refused):
    trials = gate_builders.series(gate_builders.Measured())
    gate_builders.write(Path("gate.jsonl.gz"), trials)
    assert refused("report", "gate.jsonl.gz") == (
        "gate.jsonl.gz: is a file of raw samples of a gate; judge it, or write its page, with: "
        "mnistbench judge FILE --format html -o gate.html"
    )
