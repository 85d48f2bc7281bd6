"""``mnistbench reproduce``: which sides a script runs on, what is printed, and what is refused."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import reproducer_builders as builders

from mnistbench import cli
from mnistbench.gate.environments.packages import Installed
from mnistbench.gate.reproducers.run import Reproduced, SideOfRun
from mnistbench.gate.reproducers.script import script

ROW, OTHER = (builders.row(builders.call("aten::sin", builders.tensor(size)), row="aten::sin") for size in (100_000, 200_000))


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
    found = []

    def measure(path, sides, *, launches, threads, case_ns, progress):
        assert case_ns == 0
        progress(0, launches)
        found.append((path, sides, launches, threads))
        return Reproduced((0.12,), 1.0, 1.12)

    monkeypatch.setattr("mnistbench.gate.reproducers.command.measure", measure)
    return found


def test_a_script_with_the_arguments_of_both_sides_runs_with_this_interpreter(write, measured, capsys):
    assert cli.main(["reproduce", write(base=[ROW])]) == 0
    here = SideOfRun(sys.executable)
    assert measured == [(Path("x.py"), {"base": here, "head": here}, 10, 1)]
    out, err = capsys.readouterr()
    assert out == (
        "aten::mm, backward fc1 (step convnet-b16-cpu on digits): reproduced: +12.0 % (the gate: +11.1 %, +4.2 % to +18.4 %)\n"
    )
    assert err == "launch 1 of 10\n"


def test_variables_of_the_gate_are_set_again_and_options_come_before_them(write, measured):
    path = write(variables={"base": {"A": "1"}, "head": {"B": "2", "C": "3"}})
    assert cli.main(["reproduce", path, "--head-env", "C=4", "--launches", "7"]) == 0
    [(_, sides, launches, _)] = measured
    assert (sides["base"].variables, sides["head"].variables, launches) == ({"A": "1"}, {"B": "2", "C": "4"}, 7)


def test_versions_of_packages_are_those_of_new_environments(write, measured, monkeypatch):
    made = []

    @contextmanager
    def held(wanted, say):
        made.append(wanted.asked)
        yield SimpleNamespace(python=f"/made/{len(made)}")

    monkeypatch.setattr("mnistbench.gate.reproducers.command.installed", lambda: [Installed("torch", "2.15.0")])
    monkeypatch.setattr("mnistbench.gate.reproducers.command.held", held)
    assert cli.main(["reproduce", write(), "--base-with", "torch==2.13.0", "--head-with", "torch==2.14.0"]) == 0
    assert made == [("torch==2.13.0",), ("torch==2.14.0",)]
    [(_, sides, _, _)] = measured
    assert (sides["base"].python, sides["head"].python) == ("/made/1", "/made/2")


def test_a_script_whose_sides_are_alike_has_an_answer_without_a_measurement(write, measured, capsys):
    assert cli.main(["reproduce", write("a.py"), write("b.py", base=[ROW])]) == 0
    alike, other = capsys.readouterr().out.splitlines()
    assert alike.startswith(
        "aten::mm, backward fc1 (step convnet-b16-cpu on digits): does not show by itself: both sides make the same"
    )
    assert "reproduced" in other
    assert [path for path, *_ in measured] == [Path("b.py")]


def test_each_script_has_a_line(write, measured, capsys):
    assert cli.main(["reproduce", write("a.py", base=[ROW]), write("b.py", base=[ROW], title="aten::sin")]) == 0
    assert [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines()] == ["aten::mm, backward fc1", "aten::sin"]


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        (
            {"packages": {"numpy": ["2.3", "2.4"], "torch": ["2.14.0", "2.15.0"]}}, [],
            "the gate compared torch 2.14.0 with 2.15.0; give --base-with torch==2.14.0 --head-with torch==2.15.0",
        ),
        ({}, ["--launches", "0"], "--launches: '0' cannot be used; give a whole number, 1 to 1000"),
        ({}, ["--base-env", "X"], "--base-env: 'X' is not a variable with a value; give NAME=VALUE"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_one_line(write, measured, capsys, changes, arguments, said):
    assert cli.main(["reproduce", write(**changes), *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, measured) == ("", [])
    assert err.removeprefix("mnistbench: ").removeprefix("x.py: ") == f"{said}\n"


def test_a_real_script_shows_that_twice_the_work_takes_longer(write, capsys):
    assert cli.main(["reproduce", write(base=[ROW]), "--launches", "1"]) == 0
    assert capsys.readouterr().out.startswith("aten::mm, backward fc1 (step convnet-b16-cpu on digits): larger by itself: +")
