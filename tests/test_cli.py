"""The command ``mnistbench``: help, errors and exit codes of all subcommands."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile

import forks
import pytest
from reading_commands import READING, write_files

import mnistbench
from mnistbench import cli
from mnistbench.cli import COMMANDS
from mnistbench.core.files import scratch
from mnistbench.core.options import options_of
from mnistbench.gate.commands import gate
from mnistbench.showing.output import EXIT_INCONCLUSIVE
from mnistbench.suite import env_command as env


@pytest.mark.versions
@pytest.mark.usefixtures("torch")
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


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_caller_may_close_the_standard_streams(closed):
    command = f'exec "{sys.executable}" -m mnistbench compare nowhere nothing {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_INCONCLUSIVE
    assert done.stdout == ""
    has_error = "2>&-" not in closed
    assert done.stderr.startswith("mnistbench: ") if has_error else done.stderr == ""
    assert "Traceback" not in done.stderr


def test_command_without_a_subcommand_prints_its_help(capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: mnistbench [-h] [--version] COMMAND ...\n")


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["profle"], "mnistbench: COMMAND: 'profle' is not known; did you mean profile? see: "),
        (["xyz"], "mnistbench: COMMAND: 'xyz' is not known; choose of compare, list, "),
        (
            ["list", "--storge"],
            "mnistbench: '--storge' is not known; did you mean --storage? see: ",
        ),
        (
            ["gate", "--base", "HEAD", "bench/test_a.py", "-k", "b c", "--", "-x"],
            (
                "mnistbench: 'bench/test_a.py' is not known; arguments of pytest follow --: "
                "mnistbench gate --base HEAD -- bench/test_a.py -k 'b c' -x"
            ),
        ),
        (["env", "--loud"], "mnistbench: '--loud' is not known; see: mnistbench env --help"),
        # No abbreviations.
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


def test_too_little_memory_has_one_line(monkeypatch, capsys):
    def fail(_):
        raise MemoryError

    monkeypatch.setattr(env, "run", fail)
    assert cli.main(["env"]) == 2
    assert capsys.readouterr().err == (
        "mnistbench: there is too little memory; close other programs, or give less input\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_interrupts_any_command(tmp_path, monkeypatch, capsys, number):
    """So that it removes its temporary folders."""
    before = signal.getsignal(number)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(_):
        with scratch("env"):
            assert len(list(tmp_path.iterdir())) == 2
            signal.raise_signal(number)

    monkeypatch.setattr(env, "run", run)
    assert cli.main(["env"]) == 2
    assert capsys.readouterr().err == "mnistbench: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) is before


def test_a_signal_to_end_ends_a_rank_at_once(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    handlers = []
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(
        env, "run", lambda _: handlers.append(signal.getsignal(signal.SIGTERM)) or 0
    )
    assert cli.main(["env"]) == 0
    assert handlers == [before]


def test_interrupted_bisection_does_not_blame_a_commit(monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gate, "run", interrupt)
    assert cli.main(["gate", "--bisect", "--base", "HEAD"]) == 128
    assert cli.main(["gate", "--base", "HEAD"]) == 2


#: Commands that show a report, and the arguments that they need.
REPORTING = {
    "compare": ["1", "2"],
    "gate": ["--base", "HEAD"],
    "judge": ["samples.jsonl.gz"],
    "bisect": ["pytest==8.1.0..9.0.0"],
    "profile": [],
    "trace": ["trace.json"],
    "scale": ["--strong"],
    "study convolution": [],
    "study locality": [],
    "study memory": [],
    "study graph": [],
}


def test_the_commands_that_show_a_report_have_a_format_and_a_file():
    options = {
        name: options_of(settings_of(command.module))
        for name, command in COMMANDS.items()
        if command.module
    }
    assert {name for name in options if {"format", "output"} <= {*options[name]}} == {*REPORTING}


@pytest.mark.parametrize("name", REPORTING)
def test_the_file_of_a_report_is_checked_before_a_command_runs(name, tmp_path, monkeypatch, capsys):
    path = COMMANDS[name].module
    monkeypatch.setattr(f"mnistbench.{path}.run", lambda _: pytest.fail("it ran"))
    assert cli.main([*name.split(), *REPORTING[name], "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"mnistbench: --output: {tmp_path} cannot be written (Is a directory); name another file\n"
    )


@pytest.mark.parametrize(
    ("environ", "waits"),
    [
        ({}, False),
        ({"RANK": "0", "WORLD_SIZE": "4"}, False),
        ({"RANK": "3", "WORLD_SIZE": "4"}, True),
        ({"RANK": "3"}, False),
        ({"RANK": "", "WORLD_SIZE": "4"}, False),
    ],
    ids=str,
)
def test_an_error_is_left_to_rank_0(monkeypatch, capsys, environ, waits):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    printed_before = []
    monkeypatch.setattr("time.sleep", lambda _: printed_before.append(capsys.readouterr().err))
    assert cli.main(["env", "--loud"]) == 2
    assert printed_before == [""] * waits
    assert capsys.readouterr().err.startswith("mnistbench: '--loud' is not known")


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


def settings_of(path):
    """Return the settings of a command of COMMANDS."""
    module, _, settings = path.partition(":")
    return getattr(cli.import_module(f"mnistbench.{module}"), settings or "Settings")


def test_fields_of_settings_are_options_with_help():
    for path, *_ in COMMANDS.values():
        for name, option in (options_of(settings_of(path)) if path else {}).items():
            assert option.help, (path, name)
            assert not option.help.endswith("."), (path, name)


# ---- What does not import torch ------------------------------------------------------------------

#: They run one after the other.
SHOWING = [(name, *arguments) for name, arguments in READING.items()]

#: Prints each command, or import, after which torch is imported.
PROGRAM = """
import contextlib, io, json, sys

from mnistbench.cli import main

for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(command)
    print(command[0], code, "torch" in sys.modules)
from mnistbench.gate import flow
from mnistbench.gate.processes.sides import worker
print("gate", 0, "torch" in sys.modules)
"""


def test_commands_that_show_and_the_gate_of_plain_tests_do_not_import_torch(alone):
    write_files()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(SHOWING)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{command[0]} 0 False" for command in (*SHOWING, ("gate",))
    ]


@pytest.mark.parametrize(
    ("group", "names"),
    [("study", "convolution, locality, memory or graph"), ("class", "merge or rerun")],
)
def test_a_group_without_a_command_lists_its_commands(capsys, group, names):
    assert cli.main([group]) == EXIT_INCONCLUSIVE
    line = f"mnistbench: {group}: choose {names}; see: mnistbench {group} --help\n"
    assert capsys.readouterr() == ("", line)
