"""``mnistbench reproduce``: which sides a script runs on, what is printed, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import reproducer_builders as builders

from mnistbench import cli
from mnistbench.suite.reproducers.script import script

ROW, OTHER = (
    builders.row(builders.call("aten::sin", builders.tensor(size)), row="aten::sin")
    for size in (100_000, 200_000)
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(name="x.py", base=None, **changes):
        path = Path(name)
        path.write_text(script(builders.header(**changes), [OTHER], base))
        return str(path)

    return written


@pytest.fixture
def measured(monkeypatch):
    """Stand in for the processes: keep how each script would run, and show 12 % more."""
    measurements = []

    def measure(file, origin, pythons, variables, *, trials, progress):
        progress.step(f"trial 1 of {trials}")
        measurements.append(
            SimpleNamespace(file=file, pythons=dict(pythons), variables=variables, trials=trials)
        )
        return [0.12] * trials

    monkeypatch.setattr("mnistbench.suite.reproducers.command.measure", measure)
    return measurements


def test_a_script_with_the_arguments_of_both_sides_runs_with_this_interpreter(
    write, measured, capsys
):
    assert cli.main(["reproduce", write(base=[ROW])]) == 0
    [measurement] = measured
    assert (measurement.file, measurement.trials) == (Path("x.py"), 10)
    assert measurement.pythons == {"base": sys.executable, "head": sys.executable}
    assert measurement.variables == {"base": {}, "head": {}}
    out, err = capsys.readouterr()
    assert out == (
        "aten::mm, backward fc1 (step convnet-b16-cpu on digits): reproduced: +12.0 % (the gate: "
        "+11.1 %, +4.2 % to +18.4 %)\n"
    )
    assert err == "trial 1 of 10\n"


@pytest.mark.usefixtures("torch")
def test_options_of_the_sides_and_trials_are_used(write, measured, monkeypatch):
    def environment(changes, project):
        return f"/environments/{changes[0]}"

    monkeypatch.setattr("mnistbench.gate.environments.made.environment", environment)
    options = ["--base-with", "torch==2.13.0", "--head-env", "C=4", "--trials", "7"]
    assert cli.main(["reproduce", write(), *options]) == 0
    [measurement] = measured
    assert measurement.pythons == {"base": "/environments/torch==2.13.0", "head": sys.executable}
    assert (measurement.variables, measurement.trials) == ({"base": {}, "head": {"C": "4"}}, 7)


def test_variables_of_the_gate_make_the_sides_differ(write, measured):
    assert cli.main(["reproduce", write(variables={"base": {"A": "1"}, "head": {}})]) == 0
    assert len(measured) == 1


def test_a_script_whose_sides_are_alike_has_an_answer_without_a_measurement(
    write, measured, capsys
):
    assert cli.main(["reproduce", write("a.py"), write("b.py", base=[ROW])]) == 0
    alike, measured_line = capsys.readouterr().out.splitlines()
    assert alike.startswith(
        "aten::mm, backward fc1 (step convnet-b16-cpu on digits): does not show by itself: both "
        "sides make the same"
    )
    assert "reproduced" in measured_line
    assert [measurement.file for measurement in measured] == [Path("b.py")]


def test_each_script_has_a_line(write, measured, capsys):
    assert (
        cli.main(
            ["reproduce", write("a.py", base=[ROW]), write("b.py", base=[ROW], title="aten::sin")]
        )
        == 0
    )
    assert [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines()] == [
        "aten::mm, backward fc1",
        "aten::sin",
    ]


def test_a_script_of_two_versions_needs_them(write, measured, capsys):
    assert (
        cli.main(
            ["reproduce", write(packages={"numpy": ["2.3", "2.4"], "torch": ["2.14.0", "2.15.0"]})]
        )
        == 2
    )
    options = "--base-with torch==2.14.0 --head-with torch==2.15.0"
    assert capsys.readouterr() == (
        "",
        f"mnistbench: x.py: the gate compared torch 2.14.0 with 2.15.0; give {options}\n",
    )
    assert measured == []


def test_a_script_of_two_versions_of_python_needs_their_interpreters(write, measured, capsys):
    assert cli.main(["reproduce", write(packages={"Python": ["3.12.1", "3.13.0"]})]) == 2
    assert capsys.readouterr().err == (
        "mnistbench: x.py: the gate compared Python 3.12.1 with 3.13.0; give --base-python and "
        "--head-python\n"
    )
    assert measured == []


@pytest.mark.usefixtures("torch")
def test_a_real_script_shows_that_twice_the_work_takes_longer(write, capsys):
    assert cli.main(["reproduce", write(base=[ROW]), "--trials", "1"]) == 0
    assert capsys.readouterr().out.startswith(
        "aten::mm, backward fc1 (step convnet-b16-cpu on digits): larger by itself: +"
    )
