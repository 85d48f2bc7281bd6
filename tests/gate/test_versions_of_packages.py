"""``mnistbench gate --base-with`` and ``--head-with`` up to the measurement: environments and errors."""

import os
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.gate.environments.packages import Installed

PACKAGES = [Installed("numpy", "2.4.6", size_bytes=1 << 20), Installed("tqdm", "4.70.1", size_bytes=2 << 20),
            Installed("torch", "2.15.0"), Installed("own", "1", (), "file:///own", is_editable=True, size_bytes=1)]  # fmt: skip


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """Run the gate with invented packages and environments, until it would measure; it then has ``requests``."""
    seen = SimpleNamespace(requests=[], wanted=[], used=0, failure=None)

    @contextmanager
    def held(wanted, say):
        if seen.failure:
            raise UsageError(seen.failure)
        say(f"making {wanted.asked}")
        seen.wanted.append(wanted)
        seen.used += 1
        try:
            yield SimpleNamespace(python=f"/environments/{len(seen.wanted)}/bin/python")
        finally:
            seen.used -= 1

    def measure(request, progress):
        seen.requests.append(request)
        seen.used_while_measuring = seen.used
        raise UsageError("measured")

    def run(*arguments):
        return cli.main(["gate", *arguments])

    seen.run = run
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mnistbench.gate.command.installed", lambda: PACKAGES)
    monkeypatch.setattr("mnistbench.gate.command.held", held)
    monkeypatch.setattr("mnistbench.gate.command.measure", measure)
    return seen


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit, in which the gate is started."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    somebody = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    for arguments in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run(["git", *somebody, *arguments], cwd=tmp_path, check=True)
    return tmp_path


def test_each_side_has_an_environment_of_its_own(gate, capsys):
    assert gate.run("--base-with", "tqdm==4.66.2", "--head-with", "tqdm==4.67", "--head-with", "numpy==2.0") == 2
    base, new = gate.wanted
    assert (base.asked, base.lines, base.size_bytes) == (
        ("tqdm==4.66.2",), ("numpy==2.4.6", "torch==2.15.0", "tqdm==4.66.2"), 3 << 20
    )  # fmt: skip
    assert (new.asked, new.lines) == (("numpy==2.0", "tqdm==4.67"), ("numpy==2.0", "torch==2.15.0", "tqdm==4.67"))
    [request] = gate.requests
    assert (request.base, request.base_dir) == ("", "")
    assert (request.base_python, request.head_python) == ("/environments/1/bin/python", "/environments/2/bin/python")
    assert (gate.used_while_measuring, gate.used) == (2, 0)
    assert capsys.readouterr().err.splitlines() == [
        "making ('tqdm==4.66.2',)", "making ('numpy==2.0', 'tqdm==4.67')", "mnistbench: measured"
    ]  # fmt: skip


@pytest.mark.usefixtures("repository")
def test_the_other_side_has_the_current_interpreter_or_the_one_that_is_named(gate):
    gate.run("--head-with", "tqdm==4.66.2")
    gate.run("--base", "HEAD", "--base-python", sys.executable, "--head-with", "tqdm==4.66.2")
    first, second = gate.requests
    assert (first.base_python, first.head_python) == ("", "/environments/1/bin/python")
    assert (second.base_python, second.head_python) == (sys.executable, "/environments/2/bin/python")


def test_without_the_options_no_environment_is_made(gate):
    gate.run("--base", "HEAD")
    assert len(gate.requests) == 1
    assert gate.wanted == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--base-with", "tqdm=4"],
            "--base-with: 'tqdm=4' is not a requirement; give NAME==VERSION, such as torch==2.13.0",
        ),
        (["--head-with", "jax==1"], "--head-with: jax is not installed; name an installed package"),
        (
            ["--base-with", "tqdm==4.66.2", "--base-python", sys.executable],
            "--base-with: the new environment has its own interpreter; remove --base-python or --base-with",
        ),
        (
            ["--head-with", "tqdm==4.66.2", "--head-python", sys.executable],
            "--head-with: the new environment has its own interpreter; remove --head-python or --head-with",
        ),
        (
            ["--base-with", "torch==2.5.1"],
            "--base-with: torch==2.5.1 is older than 2.6, the oldest torch that the gate measures; give a newer version",
        ),
        (["--base-with", "tqdm==4.66.2", "--budget", "soon"], "--budget: 'soon' is not a time; give 5m or 300s"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_before_an_environment_is_made(gate, capsys, arguments, message):
    assert gate.run(*arguments) == 2
    assert capsys.readouterr().err == f"mnistbench: {message}\n"
    assert (gate.wanted, gate.requests) == ([], [])


@pytest.mark.parametrize("version", ["==2.6.0", "==2.6.0+cpu", "==2.*", "==2.10.0", ">=2.0,<2.9"])
def test_a_version_that_may_be_measured_is_not_refused(gate, version):
    gate.run("--base-with", f"torch{version}")
    assert [wanted.asked[0].startswith("torch") for wanted in gate.wanted] == [True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--base", "nothing"],
            (
                "--base 'nothing': no such commit in {here}; "
                "name a commit, a branch or a tag, or fetch it: git fetch origin nothing"
            ),
        ),
        (["--base-dir", "nowhere"], "--base-dir: 'nowhere' is not a folder; name a checkout of the base"),
        (
            ["--base", "HEAD", "--storage", "file"],
            "--storage: file/gate cannot be written (Not a directory); name another folder",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_base_or_folder_is_one_line_before_an_environment_is_made(gate, repository, capsys, arguments, message):
    (repository / "file").touch()
    assert gate.run(*arguments, "--head-with", "tqdm==4.66.2") == 2
    assert capsys.readouterr().err == f"mnistbench: {message.format(here=repository)}\n"
    assert (gate.wanted, gate.requests) == ([], [])


@pytest.mark.usefixtures("repository")
def test_a_bisection_stops_if_an_environment_cannot_be_made(gate, capsys):
    gate.failure = "no environment with tqdm==9: uv: Because there is no version of tqdm==9"
    assert gate.run("--bisect", "--base", "HEAD", "--head-with", "tqdm==9") == 128
    assert capsys.readouterr().err == f"mnistbench: {gate.failure}\n"


@pytest.mark.parametrize("option", ["--base-with", "--head-with"])
def test_what_is_replayed_has_no_environment(gate, capsys, option):
    assert gate.run("--replay", "raw.jsonl.gz", option, "tqdm==4.66.2") == 2
    assert capsys.readouterr().err == f"mnistbench: --replay: measures nothing, so {option} has no effect; remove it\n"
