"""``mnistbench gate --base-with`` and ``--head-with`` up to the measurement.

Environments and errors.
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mnistbench import cli
from mnistbench.core.errors import UsageError


@pytest.fixture
def gate(tmp_path, alone, monkeypatch, torch):
    """Run the gate in a repository with invented environments, until it would copy the trees."""
    seen = SimpleNamespace(changes=[], pythons=None, failure=None)

    def environment(changes, project):
        if seen.failure:
            raise UsageError(seen.failure)
        seen.changes.append([str(change) for change in changes])
        return f"/environments/{len(seen.changes)}/bin/python"

    def setup(options, pythons, here, folder):
        seen.pythons = list(pythons.values())
        raise UsageError("measured")

    seen.run = lambda *arguments: cli.main(["gate", *arguments])
    for arguments in (
        ["init", "--quiet"],
        ["commit", "--quiet", "--allow-empty", "--message", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mnistbench.gate.environments.made.environment", environment)
    monkeypatch.setattr("mnistbench.gate.flow.setup_of", setup)
    return seen


def test_each_side_has_an_environment_of_its_own_until_it_is_measured(gate, capsys):
    assert (
        gate.run(
            "--base-with",
            "werkzeug==4.66.2",
            "--head-with",
            "werkzeug==4.67",
            "--head-with",
            "numpy==2.0",
        )
        == 2
    )
    assert gate.changes == [["werkzeug==4.66.2"], ["werkzeug==4.67", "numpy==2.0"]]
    assert gate.pythons == ["/environments/1/bin/python", "/environments/2/bin/python"]
    *said, error = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in said] == [
        "making an environment with werkzeug==4.66.2",
        "making an environment with werkzeug==4.67, numpy==2.0",
    ]
    assert error == "mnistbench: measured"


def test_without_the_options_no_environment_is_made(gate):
    gate.run("--base", "HEAD")
    assert (gate.changes, gate.pythons) == ([], [sys.executable, sys.executable])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--base", "nothing"],
            (
                "--base 'nothing': no such commit in {here}, and no such folder; name a commit, a "
                "branch or a tag"
            ),
        ),
        (
            ["--base", "./nowhere"],
            "--base: './nowhere' is not a folder; name a checkout of the base",
        ),
        (
            ["--base", "HEAD", "--storage", "file"],
            "--storage: {here}/file is not a directory; name another directory",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_one_line_before_an_environment_is_made(
    gate, tmp_path, capsys, arguments, message
):
    (tmp_path / "file").touch()
    assert gate.run(*arguments, "--head-with", "werkzeug==4.66.2") == 2
    assert capsys.readouterr().err == f"mnistbench: {message.format(here=tmp_path)}\n"
    assert (gate.changes, gate.pythons) == ([], None)


def test_a_bisection_stops_if_an_environment_cannot_be_made(gate, capsys):
    gate.failure = "no environment with werkzeug==9: uv: Because there is no version of werkzeug==9"
    assert gate.run("--bisect", "--base", "HEAD", "--head-with", "werkzeug==9") == 128
    assert capsys.readouterr().err.splitlines()[1:] == [f"mnistbench: {gate.failure}"]
