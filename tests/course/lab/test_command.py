"""``mnistbench lab``: a small lab that is really run, interrupted and resumed.

Then options, merging and errors.
"""

import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab_builders import cluster, laptop, recomputed, training

from mnistbench import cli
from mnistbench.course.lab.command import write_report
from mnistbench.course.lab.lab_file import FILE, Findings, LabSettings, stored, write_file
from mnistbench.course.lab.predict import predictions
from mnistbench.course.lab.predict.predictions import ASKED
from mnistbench.course.lab.run import STEPS, Lab

pytestmark = pytest.mark.usefixtures("torch", "matplotlib")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A whole lab of one batch size with the smallest budget.

    Interrupted before its epochs and resumed.
    """
    import torch

    from mnistbench.course.lab.measures import Measures
    from mnistbench.suite.measuring.environment import read

    class Small(Measures):
        block_s = 0.02
        least = 8
        most = 16
        epoch_s = 0.02
        epochs = 1
        profiled_iterations = 2
        interrupted = True
        began = ()

        def first_iterations(self, phase, device, threads, size):
            """Two processes are enough: of one image."""
            return (
                super().first_iterations(phase, device, threads, size)
                if (phase, size) == ("forward", 1)
                else ()
            )

        def training(self, *what):
            Small.began += (what,)
            return super().training(*what)

        def epoch(self, *what):
            if Small.interrupted:
                raise KeyboardInterrupt
            return super().epoch(*what)

    directory = tmp_path_factory.mktemp("lab") / "here"
    monkeypatch = pytest.MonkeyPatch()
    # This machine's ceilings are not to be remembered.
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory.parent / "cache"))
    monkeypatch.setattr(predictions, "_SIZES", (64, 64))  # the drawn batch size is measured anyway
    answers = {
        key: ("convolution",) if kind == predictions.OPERATION else (0, 50, 100)
        for key, kind in ASKED.items()
    }
    predicted = predictions.Predictions("s123", "2026-11-25T07:00:00+00:00", "digits", 2, answers)
    directory.mkdir()
    (directory / predictions.PREDICTIONS).write_text(
        predictions.toml(predicted, ASKED), encoding="utf-8"
    )
    settings = LabSettings("digits", (64,), ("cpu",), 1, "lenet5", 1)
    threads = torch.get_num_threads()

    def lab():
        return Lab(directory, settings, read(threads), Small(settings))

    with pytest.raises(KeyboardInterrupt):
        lab().run(None)
    assert not (directory / FILE).exists()
    before = {path: path.stat().st_mtime_ns for path in (directory / STEPS).iterdir()}
    Small.interrupted = False
    findings = lab().run(None)
    assert len(Small.began) == 1, "training was repeated"
    assert all(path.stat().st_mtime_ns == changed for path, changed in before.items())
    write_report(directory, findings, "en")
    yield directory, findings
    monkeypatch.undo()


def test_every_file_that_the_report_names_is_there(measured):
    directory, _ = measured
    report = (directory / "report.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(((?:tables|figures|traces)/[^)]+)\)", report)) | set(
        re.findall(r"`((?:tables|traces)/[^`\s]+|lab\.json)`", report)
    )
    assert len(named) > 15
    assert [file for file in named if not (directory / file).is_file()] == []
    assert list((directory / "tensorboard").glob("*/events.out.tfevents.*"))
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == len(
        list((directory / "figures").glob("*.svg"))
    )


def test_every_number_of_a_real_report_can_be_computed_again_from_its_files(measured):
    directory, _ = measured

    def rows(file):
        with (directory / file).open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    numbers = rows("tables/numbers.csv")
    assert len(numbers) > 10  # a disturbed machine explains no times
    for number in numbers:
        assert recomputed(number, rows) == pytest.approx(float(number["value"]), rel=1e-9)


def test_a_real_lab_has_all_measurements(measured):
    _, findings = measured
    [run] = findings.trainings
    assert (run.batch_size, len(run.epochs)) == (64, 1)
    assert sum(point.samples for point in run.curve) == findings.train_samples == 1437
    cases = [
        (case.params.phase, case.params.batch_size, table.view) for case, table in findings.tables
    ]
    assert cases == [("forward", 64, "host"), ("step", 64, "host")]
    counted = [
        cost.flops
        for case in findings.cases
        for key, cost in case.costs.items()
        if "convolution" in key[0]
    ]
    assert any(counted), "no FLOPs were counted for a convolution"
    [untrained] = [
        iteration for iteration in findings.first_iterations if iteration.weights == "untrained"
    ]
    assert untrained.cold.ns > 0
    assert untrained.warm_ns > 0
    assert untrained.warm.table.rows
    assert {(time.phase, time.whole_set) for time in findings.epoch_times} == {
        ("train", 1437),
        ("eval", 360),
    }
    assert [layer.name for layer in findings.layers][:3] == ["conv1", "relu1", "pool1"]
    assert findings.ceilings["cpu"].flops_per_s > 0


def test_a_real_lab_answers_the_questions(measured):
    directory, findings = measured
    with (directory / "tables" / "predictions.csv").open(encoding="utf-8", newline="") as stream:
        measured_of = {row["question"]: row["measured"] for row in csv.DictReader(stream)}
    assert set(measured_of) == set(ASKED)
    not_measured = {key for key, value in measured_of.items() if not value}
    # Batch size 1; one thread.
    assert {"operation_small", "image"} <= not_measured <= {"operation_small", "image", "threads"}
    assert 0 < float(measured_of["layer_drawn"]) < 100
    assert measured_of["operation_large"].startswith("aten::")
    assert float(measured_of["accuracy"]) == findings.trainings[0].epochs[0].test_accuracy


def test_the_report_in_chinese_and_two_labs_side_by_side(measured, tmp_path, monkeypatch, capsys):
    directory, findings = measured
    write_report(directory, findings, "zh")
    assert (directory / "report.md").read_text(encoding="utf-8").startswith("# 实验报告")
    write(tmp_path / "cluster", cluster())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["lab", "--merge", str(directory), "cluster", "-o", "both"]) == 0
    assert capsys.readouterr().out.splitlines() == ["both/report.md", "both/report.html"]
    report = (tmp_path / "both" / "report.md").read_text(encoding="utf-8")
    assert "| device | batch size | here | cluster |" in report
    assert Findings.from_directory(directory) == findings
    assert json.loads((tmp_path / "both" / "labs.json").read_text(encoding="utf-8")) == {
        "schema": 1,
        "labs": {"here": str(directory), "cluster": str(tmp_path / "cluster")},
    }
    # Its own report.
    assert (
        cli.main(["lab", "--merge", str(directory), "cluster", "-o", "both", "--lang", "zh"]) == 0
    )


# ---- Options and errors --------------------------------------------------------------------------


def write(directory, findings):
    directory.mkdir(parents=True, exist_ok=True)
    write_file(directory / FILE, stored(findings))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one"], "DIR: 'one' is a lab to merge; add --merge, or name it by --output"),
        (["-o", "file"], "--output: {here}/file is not a directory; name another directory"),
        (
            ["--device", "tpu"],
            "--device: device 'tpu' is not known: use auto, cpu, cuda, cuda:1 or mps",
        ),
        (["--merge", "one"], "--merge: needs at least two directories of labs"),
        (["--merge", "one", "./one"], "--merge: a directory is named twice; name each lab once"),
        (
            ["--merge", "one", "no"],
            (
                "no/lab.json: cannot be read (No such file or directory); run mnistbench lab -o "
                "no first"
            ),
        ),
        (
            ["--merge", "one", "two", "-o", "one"],
            "--output: one contains files of something else; name a new or an empty directory",
        ),
        (
            ["-o", "n" * 300],
            f"--output: {'n' * 300} cannot be used (File name too long); name another directory",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_an_option_that_cannot_be_used_is_one_line(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("", encoding="utf-8")
    write(tmp_path / "one", laptop())
    write(tmp_path / "two", cluster())
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["lab", *arguments]) == 2
    assert capsys.readouterr().err == f"mnistbench: {message.format(here=tmp_path)}\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_labs_in_directories_of_the_same_name_are_named_by_their_paths(tmp_path):
    write(tmp_path / "a" / "lab", laptop())
    write(tmp_path / "b" / "lab", cluster())
    assert (
        cli.main(
            ["lab", "--merge", f"{tmp_path}/a/lab", f"{tmp_path}/b/lab", "-o", f"{tmp_path}/c"]
        )
        == 0
    )
    report = (tmp_path / "c" / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert f"| {tmp_path}/a/lab | {tmp_path}/b/lab |" in report


def interrupted(monkeypatch, number=signal.SIGINT):
    """Interrupt a lab after its training, which is made up."""
    from mnistbench.course.lab.measures import Measures

    def trained(self, device, threads, size, output, advance):
        output.mkdir(parents=True)
        return dataclasses.replace(
            training(device, size, 98.0), directory=f"tensorboard/{output.name}"
        ), ()

    def stopped(*arguments):
        signal.raise_signal(number)

    monkeypatch.setattr(Measures, "training", trained)
    monkeypatch.setattr(Measures, "profiled", stopped)


INTERRUPTED = (
    "mnistbench: interrupted; finished steps are kept in mine; run the same command again to resume"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_lab_tells_how_to_resume(tmp_path, monkeypatch, capsys, number):
    monkeypatch.chdir(tmp_path)
    interrupted(monkeypatch, number)
    arguments = ["lab", "--batch-size", "64", "--device", "cpu", "-o", "mine"]
    assert cli.main([*arguments, "--epochs", "1"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(
        r"\[ 1/\d+\] training, cpu, batch size 64, about .* left", captured.err.splitlines()[0]
    )
    assert captured.err.splitlines()[-1] == INTERRUPTED
    assert (tmp_path / "mine" / STEPS / "training-cpu-b64.json").exists()
    assert cli.main([*arguments, "--epochs", "2"]) == 2
    assert capsys.readouterr().err.startswith(
        "mnistbench: --output: mine contains a lab with epochs 1, not 2; "
    )


@pytest.mark.thorough
def test_ctrl_c_ends_a_lab_that_can_be_resumed(tmp_path):
    package = str(Path(cli.__file__).parents[1])
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH")))),
    }
    words = [
        sys.executable,
        "-P",
        "-m",
        "mnistbench",
        "lab",
        "--batch-size",
        "64",
        "--epochs",
        "1",
        "-o",
        "mine",
    ]
    running = subprocess.Popen(
        words, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        first = running.stderr.readline()
        second = running.stderr.readline()
        assert first.startswith("[ 1/")
        assert second.startswith("[ 2/")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    finally:
        running.kill()
    assert (running.returncode, out, err.splitlines()[-1]) == (130, "", INTERRUPTED)
    assert "Traceback" not in err
