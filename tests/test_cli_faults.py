"""The command without a subcommand, options that were renamed, and exit codes of unexpected errors."""

from __future__ import annotations

import pytest

from mnistbench import cli
from mnistbench.gate import command as gate
from mnistbench.measuring import command as env


@pytest.mark.parametrize(("arguments", "code"), [(["env"], 2), (["gate", "--bisect", "--base", "HEAD"], 128)], ids=str)
def test_a_fault_of_ours_is_a_traceback_and_no_regression(monkeypatch, capsys, arguments, code):
    def fault(_):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(env, "run", fault)
    monkeypatch.setattr(gate, "run", fault)
    assert cli.main(arguments) == code
    assert capsys.readouterr().err.splitlines()[-1] == "ZeroDivisionError: a fault"


@pytest.mark.parametrize("word", ["--bisect", "--bis"])
def test_an_interrupted_bisection_blames_no_commit(monkeypatch, word):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gate, "run", interrupted)
    assert cli.main(["gate", word, "--base", "HEAD"]) == 128
    assert cli.main(["gate", "--base", "HEAD"]) == 2


def test_the_command_alone_prints_its_help(capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: mnistbench [-h] [--version] COMMAND ...\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["lab", "--batch-sizes", "1,16"], "mnistbench lab: --batch-sizes is now --batch-size"),
        (["lab", "--devices=cpu"], "mnistbench lab: --devices is now --device"),
        (["compare", "1", "2", "--op-top", "3"], "mnistbench compare: --op-top is now --top"),
        (["gate", "--op-top=3", "--base", "HEAD"], "mnistbench gate: --op-top is now --top"),
        (["export", "--to", "csv"], "mnistbench export: --to is now --format"),
    ],
    ids=str,
)
def test_an_earlier_spelling_is_one_line_with_the_present_one(capsys, arguments, complaint):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == f"{complaint}\n"


def test_every_earlier_spelling_has_an_option_that_replaces_it():
    [commands] = [action for action in cli.parser()._actions if isinstance(action.choices, dict)]
    for command, renamed in cli.RENAMED.items():
        flags = commands.choices[command]._option_string_actions
        assert set(renamed.values()) <= set(flags)
        assert not set(renamed) & set(flags)


def test_no_option_has_two_spellings_over_the_subcommands():
    [commands] = [action for action in cli.parser()._actions if isinstance(action.choices, dict)]
    flags = {flag for parser in commands.choices.values() for flag in parser._option_string_actions}
    assert {flag for flag in flags if f"{flag}s" in flags} == set()
    assert {action.option_strings[0] for parser in commands.choices.values() for action in parser._actions
            if "--output" in action.option_strings} == {"-o"}  # fmt: skip
