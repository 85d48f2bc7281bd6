"""The flow of a lab with measures that are made up: steps, files, what is kept and what is refused.

Studies.
"""

import dataclasses
import io
import itertools
import json
import re
from unittest.mock import Mock

import pytest
from builders import environment
from lab_runs import Counting

from mnistbench.core.errors import UsageError
from mnistbench.course.lab import run as lab_run
from mnistbench.course.lab import sheets
from mnistbench.course.lab.lab_file import FILE, SCORE, Findings, LabSettings, StudyTable
from mnistbench.course.lab.predict.predictions import PREDICTIONS, Predictions, toml
from mnistbench.course.lab.run import BEGUN, STEPS, STUDIES, STUDIES_S, Lab, LabPlan, study
from mnistbench.course.studies.convolution.study import COSTS
from mnistbench.course.studies.graph.study import times_of
from mnistbench.course.studies.locality.study import NESTS
from mnistbench.course.studies.memory.study import LAYERS

SETTINGS = LabSettings("digits", (4, 16), ("cpu",), 3, "convnet", 1)

#: Of student s123, whose drawn batch size is 41.
PREDICTED = Predictions(
    "s123", "2026-11-25T07:00:00+00:00", "digits", 2, {"image_drawn": (1, 2, 3)}
)


def lab(directory, measuring, settings=SETTINGS, *, studies=False, **machine):
    return Lab(directory, settings, environment(threads=2, **machine), measuring, studies=studies)


def lines_of(directory, measuring, settings=SETTINGS):
    """Run a lab; return what it shows in a log."""
    stream = io.StringIO()
    lab(directory, measuring, settings).run(stream)
    return stream.getvalue().splitlines()


@pytest.fixture
def asked(monkeypatch):
    """The studies that were asked for, none of which runs."""
    names = []

    def made_up(name, limit_s):
        names.append(name)
        return (StudyTable(name, ("way", "seconds"), (("im2col", "0.001"),)),), ()

    monkeypatch.setattr(lab_run, "study", made_up)
    return names


def test_a_lab_measures_every_part_once(tmp_path):
    measuring = Counting()
    findings = lab(tmp_path / "new", measuring).run(None)
    assert (
        len(measuring.asked)
        == len(set(measuring.asked))
        == len(list((tmp_path / "new" / STEPS).iterdir())) - 1
    )
    assert [run.batch_size for run in findings.trainings] == [4, 16]
    pairs = set(itertools.product(("forward", "step"), (4, 16)))
    assert {
        (profiled.params.phase, profiled.params.batch_size) for profiled in findings.cases
    } == pairs
    for threads in (1, 2):
        assert {
            (time.phase, time.batch_size)
            for time in findings.iteration_times
            if time.threads == threads
        } == pairs
    assert {(c.phase, c.batch_size) for c in findings.first_iterations} == {
        ("forward", 1),
        ("forward", 4),
        ("forward", 16),
        ("step", 1),
        ("step", 16),
    }
    assert findings.notes == ("a note",)
    assert findings.traces == ("traces/forward-cpu-b16.json.gz", "traces/step-cpu-b16.json.gz")
    assert Findings.from_directory(tmp_path / "new") == findings


def test_the_plan_of_findings_names_the_files_of_their_steps(tmp_path):
    findings = lab(tmp_path, Counting()).run(None)
    names = [step.name for step in LabPlan(findings.settings, findings.environment).steps()]
    assert len(names) == len(set(names))
    kept = {path.stem for path in (tmp_path / STEPS).iterdir()}
    assert set(names) == kept - {BEGUN.stem} | {f"study-{name}" for name in STUDIES}


def test_an_interrupted_lab_is_resumed_after_its_last_step(tmp_path):
    first = Counting(stop_at=("iterations",))
    with pytest.raises(KeyboardInterrupt):
        lab(tmp_path, first).run(None)
    assert not (tmp_path / FILE).exists()
    second = Counting()
    findings = lab(tmp_path, second).run(None)
    assert not set(first.asked) & set(second.asked)
    assert findings.notes == ("a note",)  # of the step that was not repeated
    third = Counting()
    assert lab(tmp_path, third).run(None) == findings
    assert third.asked == []


def test_studies_are_measured_if_they_are_asked_for(tmp_path, asked):
    assert lab(tmp_path, Counting()).run(None).studies == ()
    measuring = Counting()
    findings = lab(tmp_path, measuring, studies=True).run(None)
    assert (measuring.asked, asked) == ([], list(STUDIES))  # the rest is kept
    assert [study.name for study in findings.studies] == list(STUDIES)
    assert Findings.from_directory(tmp_path) == findings


def test_all_studies_have_one_time_limit(tmp_path, monkeypatch):
    clock = [1_000.0]
    limits = []

    def slow(name, limit_s):
        limits.append(limit_s)
        clock[0] += 80
        return (), ()

    monkeypatch.setattr(lab_run, "study", slow)
    monkeypatch.setattr(lab_run.time, "monotonic", lambda: clock[0])
    lab(tmp_path, Counting(), studies=True).run(None)
    assert limits == [STUDIES_S, STUDIES_S - 80, STUDIES_S - 160, 0]


def test_a_study_without_a_table_has_a_note_and_is_measured_again(tmp_path, monkeypatch, asked):
    with monkeypatch.context() as context:
        context.setattr(
            lab_run, "study", lambda name, limit_s: ((), (f"the study of {name} failed",))
        )
        findings = lab(tmp_path, Counting(), studies=True).run(None)
    assert findings.studies == ()
    assert findings.notes[-1] == f"the study of {list(STUDIES)[-1]} failed"
    again = lab(tmp_path, Counting(), studies=True).run(None)
    assert [study.name for study in again.studies] == list(STUDIES)
    assert again.notes == ("a note",)


TINY = ("--model", "lenet5", "--batch-size", "1", "--phase", "forward")


@pytest.mark.usefixtures("torch")
def test_the_table_of_a_study_is_that_of_the_command(monkeypatch):
    monkeypatch.setitem(STUDIES, "memory", TINY)
    [table], notes = study("memory", 120)
    assert (notes, table.name) == ((), "memory")
    assert dict(zip(table.columns, table.rows[-1], strict=True))["layer"] == "all layers"


def test_columns_that_the_report_shows_are_those_of_the_studies():
    keys = {
        column.key for columns in (COSTS, NESTS, LAYERS, times_of(Mock())) for column in columns
    }
    assert {key for names in sheets.STUDY_COLUMNS.values() for key in names} <= keys


@pytest.mark.parametrize(
    ("arguments", "limit_s", "note"),
    [
        (
            TINY,
            0.01,
            "was ended by the time limit of all studies, 180 s; run mnistbench study memory",
        ),
        (
            ("--model", "vgg"),
            120,
            "ended with exit code 2: mnistbench: --model: 'vgg' is not known",
        ),
    ],
)
def test_a_study_that_fails_or_takes_too_long_has_a_note(arguments, limit_s, note, monkeypatch):
    monkeypatch.setitem(STUDIES, "memory", arguments)
    tables, [reported] = study("memory", limit_s)
    assert tables == ()
    assert reported.startswith(f"the study of memory {note}")


def test_a_step_that_is_interrupted_while_it_is_measured_again_is_not_done(tmp_path):
    """Its run was gone, and half of a new one is there: the old result belongs to neither."""
    lab(tmp_path, Counting()).run(None)
    run = tmp_path / "tensorboard" / "convnet-cpu-b4"
    run.rmdir()

    class Stopping(Counting):
        def training(self, device, threads, size, output, advance):
            super().training(device, threads, size, output, advance)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab(tmp_path, Stopping()).run(None)
    assert run.exists()
    measuring = Counting()
    lab(tmp_path, measuring).run(None)
    assert measuring.asked == [("training", "cpu", 4)]


def test_an_interrupted_training_run_is_started_again(tmp_path):
    lab(tmp_path, Counting())
    half = tmp_path / "tensorboard" / "convnet-cpu-b4"
    half.mkdir(parents=True)
    (half / "events").write_text("half", encoding="utf-8")
    lab(tmp_path, Counting()).run(None)
    assert not (half / "events").exists()


@pytest.mark.parametrize(
    "content", ["{", '{"schema": 1, "what": {"step": "fast"}, "notes": [], "items": [{}]}']
)
def test_a_damaged_step_is_measured_again_and_named(tmp_path, content):
    lab(tmp_path, Counting()).run(None)
    damaged = tmp_path / STEPS / "training-cpu-b4.json"
    damaged.write_text(content, encoding="utf-8")
    measuring = Counting()
    [first, *rest] = lines_of(tmp_path, measuring)
    assert measuring.asked == [("training", "cpu", 4)]
    assert first.startswith(f"mnistbench: {damaged} is damaged (")
    assert not [line for line in rest if "damaged" in line]


def test_a_case_whose_trace_is_missing_is_measured_again(tmp_path):
    lab(tmp_path, Counting()).run(None)
    (tmp_path / "traces" / "step-cpu-b16.json.gz").unlink()
    measuring = Counting()
    assert "is missing; measuring it again" in lines_of(tmp_path, measuring)[0]
    assert measuring.asked == [("profiled", "step", "cpu", 16)]


def test_another_batch_size_measures_only_what_is_new(tmp_path):
    lab(tmp_path, Counting()).run(None)
    measuring = Counting()
    findings = lab(tmp_path, measuring, dataclasses.replace(SETTINGS, batch_sizes=(4, 16, 64))).run(
        None
    )
    assert ("training", "cpu", 64) in measuring.asked
    assert ("iterations",) in measuring.asked  # what is compared is timed together
    assert ("training", "cpu", 4) not in measuring.asked
    assert findings.traces == ("traces/forward-cpu-b64.json.gz", "traces/step-cpu-b64.json.gz")


@pytest.mark.parametrize(
    ("change", "machine", "reason"),
    [
        (
            {"dataset": "mnist"},
            {},
            "contains a lab with dataset digits, not mnist; use the same settings or name another",
        ),
        ({"epochs": 5}, {}, "contains a lab with epochs 3, not 5"),
        (
            {},
            {"torch": "2.16.0"},
            "another machine or with other software: torch was '2.15.0' and is '2.16.0'",
        ),
    ],
)
def test_a_lab_with_other_settings_or_of_another_machine_is_refused(
    tmp_path, change, machine, reason
):
    lab(tmp_path, Counting())
    with pytest.raises(UsageError, match=re.escape(reason)):
        lab(tmp_path, Counting(), dataclasses.replace(SETTINGS, **change), **machine)


def test_a_finished_lab_is_not_replaced_by_one_with_less(tmp_path):
    lab(tmp_path, Counting()).run(None)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    reason = (
        f"--batch-size: the finished lab in {tmp_path} has 4, too, and would be replaced; add 4, "
        "or name another directory with -o"
    )
    for sizes in ((1, 2, 16), (16,)):
        with pytest.raises(UsageError, match=re.escape(reason)):
            lab(tmp_path, Counting(), dataclasses.replace(SETTINGS, batch_sizes=sizes))
    with pytest.raises(UsageError, match=r"^--device: the finished lab in .* has cpu, too"):
        lab(tmp_path, Counting(), dataclasses.replace(SETTINGS, devices=("cuda",)))
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_lab_that_was_killed_at_its_start_is_started_again(tmp_path):
    (tmp_path / STEPS).mkdir()
    (tmp_path / SCORE).touch()  # a score may be there before its lab
    lab(tmp_path, Counting())
    assert (tmp_path / BEGUN).exists()


@pytest.mark.parametrize("content", [("thesis.tex",), ("steps/mine",), ("steps", "thesis.tex")])
def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path, content):
    for name in content:
        (tmp_path / name).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        UsageError, match="contains files that are not a lab's; name a new or an empty directory"
    ):
        lab(tmp_path, Counting())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("content", ["{}", "\x00"])
def test_a_damaged_beginning_is_one_line(tmp_path, content):
    lab(tmp_path, Counting())
    (tmp_path / BEGUN).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"begun\.json cannot be read"):
        lab(tmp_path, Counting())


def predict(directory, **changes):
    """Write predictions into the directory of a lab."""
    directory.mkdir(exist_ok=True)
    predictions = dataclasses.replace(PREDICTED, **changes)
    (directory / PREDICTIONS).write_text(
        toml(predictions, dict.fromkeys(predictions.answers, "?")), encoding="utf-8"
    )
    return predictions


def test_a_lab_measures_the_batch_size_of_its_predictions_and_keeps_them(tmp_path):
    predictions = predict(tmp_path)
    measuring = Counting()
    findings = lab(tmp_path, measuring).run(None)
    assert findings.predictions == predictions
    assert findings.settings.batch_sizes == (4, 16, 41)
    assert {("profiled", "forward", "cpu", 41), ("profiled", "step", "cpu", 41)} <= set(
        measuring.asked
    )
    assert Findings.from_directory(tmp_path) == findings
    assert lab(tmp_path / "other", Counting()).run(None).predictions is None


def test_predictions_that_change_after_the_lab_has_begun_have_no_effect(tmp_path):
    predictions = predict(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        lab(tmp_path, Counting(stop_at=("iterations",))).run(None)
    predict(tmp_path, student="another", answers={"image": (4.9, 5, 5.1)})
    findings = lab(tmp_path, Counting()).run(None)
    assert (findings.predictions, findings.settings.batch_sizes) == (predictions, (4, 16, 41))


def test_predictions_that_come_after_the_lab_has_begun_have_no_effect(tmp_path):
    lab(tmp_path, Counting())
    predict(tmp_path)
    assert lab(tmp_path, Counting()).run(None).predictions is None


def test_a_lab_that_an_earlier_version_began_has_no_predictions(tmp_path):
    lab(tmp_path, Counting())
    begun = json.loads((tmp_path / BEGUN).read_text(encoding="utf-8"))
    del begun["predictions"]
    (tmp_path / BEGUN).write_text(json.dumps(begun), encoding="utf-8")
    assert lab(tmp_path, Counting()).run(None).predictions is None


def test_wrong_predictions_are_one_line_before_anything_is_measured(tmp_path):
    (tmp_path / PREDICTIONS).write_text("[answers]\nimage = [3, 2, 1]\n", encoding="utf-8")
    with pytest.raises(
        UsageError, match=re.escape(f"{tmp_path / PREDICTIONS}: student: is missing")
    ):
        lab(tmp_path, Counting())
    assert [path.name for path in tmp_path.iterdir()] == [PREDICTIONS]


def test_one_thread_and_accelerators_are_not_compared_with_one_thread(tmp_path):
    findings = Lab(tmp_path / "one", SETTINGS, environment(threads=1), Counting()).run(None)
    assert {time.threads for time in findings.iteration_times} == {1}
    both = dataclasses.replace(SETTINGS, devices=("cpu", "cuda"))
    findings = lab(tmp_path / "both", Counting(), both).run(None)
    assert {(time.device, time.threads) for time in findings.iteration_times} == {
        ("cpu", 2),
        ("cuda", 2),
    }


def test_the_log_has_each_step_and_the_remaining_time(tmp_path):
    first, *_, last = lines_of(tmp_path, Counting())
    assert first.startswith("[ 1/")
    assert "training, cpu, batch size 4, about" in first
    assert last.startswith("[20/20] first iteration of step, cpu, batch size 16")
    assert lines_of(tmp_path, Counting()) == ["20 of 20 steps are already done"]


def test_files_of_steps_are_json_that_a_person_can_read(tmp_path):
    lab(tmp_path, Counting()).run(None)
    data = json.loads((tmp_path / STEPS / "iterations.json").read_text(encoding="utf-8"))
    assert data["schema"] == 1
    fields = {"phase", "device", "threads", "batch_size", "times_ns", "samples", "whole_set"}
    assert fields | {"queued_share"} == set(data["items"][0])
