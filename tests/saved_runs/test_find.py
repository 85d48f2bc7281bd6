"""Saved runs and thresholds as the subcommands read them."""

import json
from pathlib import Path

import pytest
from builders import saved_file
from page_builders import step

from mnistbench import cli


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def save(number, **changes):
    path = Path(f".benchmarks/machine/{number:04}_x.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = saved_file(step(), datetime=f"2026-11-20T10:{number:02}:00+00:00")
    path.write_text(json.dumps({**saved, **changes}), encoding="utf-8")


def plain():
    """A run of tests without operation records."""
    benchmarks = saved_file(step())["benchmarks"]
    return {"benchmarks": [{**benchmark, "extra_info": {}} for benchmark in benchmarks]}


def reported():
    """The time of each run on the page that ``mnistbench report`` writes, newest first."""
    assert cli.main(["report"]) == 0
    parts = Path("report.html").read_text(encoding="utf-8").split("<h2 ")[1:]
    return [part.partition("</h2>")[0].partition(">")[2][11:16] for part in parts]


def test_report_without_a_run_shows_the_newest_run_and_its_predecessor(capsys):
    save(1), save(2), save(3)
    assert reported() == ["10:03", "10:02"]
    assert capsys.readouterr() == ("2 saved runs: report.html\n", "")


def test_report_without_a_run_shows_the_only_run(capsys):
    save(1), save(2, **plain())
    assert reported() == ["10:01"]
    assert capsys.readouterr() == ("1 saved run: report.html\n", "")


def test_report_without_any_saved_run_is_one_line(capsys):
    Path(".benchmarks").mkdir()
    assert cli.main(["report"]) == 2
    line = "mnistbench: no saved run in .benchmarks can be read; save one with: pytest bench --benchmark-autosave\n"
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    ("options", "table", "complaint"),
    [
        (["--by", "name"], "", "--by: 'name' is not known"),
        ([], 'by = "name"', "by in {path}: 'name' is not known"),
        (["--by", "name"], 'by = "op"', "--by: 'name' is not known"),
        (["--case-fail", ""], 'case_fail = "5%"', "--case-fail: '' is no value; give one, or leave the option out"),
        ([], 'threshold = "5%"', "threshold in {path}: is not a setting of [tool.mnistbench]"),
        ([], "op_fail = [5]", "op_fail in {path}: [5] is not a text or a list of texts"),
    ],
)
def test_a_wrong_setting_names_the_option_or_the_file(capsys, tmp_path, options, table, complaint):
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.mnistbench]\n{table}\n", encoding="utf-8")
    assert cli.main(["compare", "1", "2", *options]) == 2
    assert capsys.readouterr().err.startswith(f"mnistbench: {complaint.format(path=path)}")
