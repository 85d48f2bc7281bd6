"""A student's week with real measurements: from predictions to the teacher's page and rerun."""

import csv
import json

import pytest
from lab_runs import WIDE

from mnistbench import cli
from mnistbench.course.classroom import check_command
from mnistbench.course.classroom.score import REFERENCE_STEP
from mnistbench.course.classroom.submission import DISTURBED, DOUBTFUL, pack, problems
from mnistbench.course.lab.lab_file import SUBMISSION, Findings

pytestmark = pytest.mark.thorough

#: Seconds for the turns of a trial: enough for the fewest pairs.
SHORT = "0.05"


def run(*words):
    return cli.main([str(word) for word in words])


def test_from_predictions_to_the_rerun_of_the_teacher(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mnistbench.course.lab.measures.Measures.block_s", 0.05)
    monkeypatch.setattr("mnistbench.course.lab.measures.Measures.epoch_s", 0.1)
    monkeypatch.setattr(check_command, "TRIAL_S", float(SHORT))
    lab = tmp_path / "report"
    answers = tmp_path / "answers.toml"
    step = tmp_path / "step.py"
    handed_in = tmp_path / "handed-in"
    handed_in.mkdir()

    # The student predicts.
    predict = ("lab", "predict", "--student", "s001", "--from", answers, "-o", lab)
    assert run(*predict) == 2  # the new file gets the questions
    lines = [f"{key} = {json.dumps(answer)}" for key, answer in WIDE.items()]
    answers.write_text("\n".join(["[answers]", *lines, ""]), encoding="utf-8")
    assert run(*predict) == 0

    # The lab measures, also at the drawn batch size.
    assert run("lab", "--batch-size", "1,64", "--epochs", "1", "--device", "cpu", "-o", lab) == 0
    findings = Findings.from_directory(lab)
    assert findings.predictions.batch_size in findings.settings.batch_sizes
    assert "#n1" in (lab / "report.md").read_text(encoding="utf-8")

    # The step is scored, and the lab is checked on the same machine.
    step.write_text(REFERENCE_STEP, encoding="utf-8")
    assert run("lab", "score", step, "-o", lab, "--trials", "4", "--seconds", SHORT) == 0
    code = run("lab", "check", lab, "--submission", handed_in / SUBMISSION)
    flaws = problems(pack(lab))
    kinds = [flaw.kind for flaw in flaws]
    assert set(kinds) <= {DOUBTFUL, DISTURBED}  # the machine may be disturbed
    assert code == (1 if flaws else 0)

    # The teacher merges the class and measures the step again.
    assert run("class", "merge", handed_in, "-o", tmp_path / "page") == 0
    with (tmp_path / "page" / "class.csv").open(encoding="utf-8") as stream:
        [row] = csv.DictReader(stream)
    assert row["student"] == "s001"
    states = (DOUBTFUL, DISTURBED, "complete")
    assert row["state"] == next(state for state in states if state in [*kinds, "complete"])
    # No question about threads with one core, and none about times on a disturbed machine.
    assert int(row["judged"]) >= (1 if DISTURBED in kinds else 9)
    assert row["inside"] == row["judged"]
    again = tmp_path / "again.json"
    options = ("--student", "s001", "--yes", "--trials", "4", "--seconds", SHORT, "-o", again)
    code = run("class", "rerun", handed_in, *options)
    [row] = json.loads(again.read_text(encoding="utf-8"))["students"]
    assert row["problem"] is None
    assert row["here"]["low"] <= row["here"]["ratio"] <= row["here"]["high"]
    assert code == (1 if row["agrees"] == "no" else 0)
