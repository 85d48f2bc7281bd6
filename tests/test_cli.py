"""The command ``mnistbench``: help, errors and exit codes of all subcommands."""

from __future__ import annotations

import argparse

import forks
import pytest

import mnistbench
from mnistbench import cli
from mnistbench.core.options import options_of
from mnistbench.gate.commands import gate
from mnistbench.measuring import env_command as env


@pytest.mark.versions
def test_version_and_environment_in_a_process():
    done = forks.run("mnistbench", "--version")
    assert (done.returncode, done.stdout) == (0, f"mnistbench {mnistbench.__version__}\n")
    done = forks.run("mnistbench", "env")
    assert (done.returncode, done.stderr) == (0, "")
    fields = [line.split("  ")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert fields[:10] == [
        "mnistbench",
        "python",
        "torch",
        "torchvision",
        "platform",
        "cpu model",
        "cpu count",
        "threads",
        "blas",
        "allocator",
    ]
    assert "accelerator" in fields


def test_command_without_a_subcommand_prints_its_help(capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: mnistbench [-h] [--version] COMMAND ...\n")


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["profle"], "mnistbench: COMMAND: invalid choice: 'profle'"),
        (["env", "--loud"], "mnistbench: '--loud' is not known; see: mnistbench env --help"),
        (
            ["list", "--storage"],
            "mnistbench: --storage: expected one argument; see: mnistbench list --help",
        ),
        # No abbreviations.
        (["list", "--stor", "x"], "mnistbench: '--stor' is not known; see: mnistbench list --help"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, start):
    assert cli.main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(start)


@pytest.mark.parametrize(
    ("arguments", "code"), [(["env"], 2), (["gate", "--bisect", "--base", "HEAD"], 128)], ids=str
)
def test_unexpected_exception_is_a_traceback_and_no_regression(
    monkeypatch, capsys, arguments, code
):
    def fail(_):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(env, "run", fail)
    monkeypatch.setattr(gate, "run", fail)
    assert cli.main(arguments) == code
    assert capsys.readouterr().err.splitlines()[-1] == "ZeroDivisionError: a fault"


def test_interrupted_bisection_does_not_blame_a_commit(monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gate, "run", interrupt)
    assert cli.main(["gate", "--bisect", "--base", "HEAD"]) == 128
    assert cli.main(["gate", "--base", "HEAD"]) == 2


def subparsers(parser):
    """Return the parsers of all subcommands."""
    actions = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    children = [child for action in actions for child in action.choices.values()]
    return [*children, *(below for child in children for below in subparsers(child))]


def test_options_have_one_spelling_in_all_subcommands():
    parsers = subparsers(cli.parser())
    flags = {flag for parser in parsers for flag in parser._option_string_actions}
    assert {flag for flag in flags if f"{flag}s" in flags} == set()
    for short, long in (("-o", "--output"), ("-h", "--help")):
        assert all(
            parser._option_string_actions[long].option_strings.count(short)
            for parser in parsers
            if long in parser._option_string_actions
        )


def test_fields_of_settings_are_options_with_help():
    for path, _ in cli.COMMANDS.values():
        module, _, settings = path.partition(":")
        options = (
            options_of(getattr(cli.import_module(f"mnistbench.{module}"), settings or "Settings"))
            if module
            else {}
        )
        for name, option in options.items():
            assert option.help, (module, name)
            assert not option.help.endswith("."), (module, name)
