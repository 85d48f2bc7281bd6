"""An empty folder, and commands in it."""

import os

import pytest

from mnistbench import cli


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Work in an empty folder, outside any repository and any job: git is asked for commits and branches here."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GIT_")) or name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


@pytest.fixture
def run(alone, capsys):
    """Run a command; return its exit code and what it prints. What is captured is no terminal and gets no escapes."""

    def command(*arguments):
        code = cli.main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert "\x1b" not in printed.out + printed.err
        return code, printed.out, printed.err

    return command


@pytest.fixture
def refused(run):
    """Run a command that is refused; return the line of its error."""

    def command(*arguments):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("mnistbench: ")
        assert err.count("\n") == 1
        return err.removeprefix("mnistbench: ").rstrip()

    return command
