"""The command ``mnistbench``: the list of its subcommands, how errors are printed, and the exit code."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from mnistbench import __version__
from mnistbench.core.allocator import restart_pinned
from mnistbench.core.errors import MnistbenchError
from mnistbench.showing.delivery import BISECT_STOPS, PASSED, UNJUDGED, print_error

#: Subcommand -> its line of help. Its module, in MODULES, is imported when it is called.
COMMANDS = {
    "compare": "compare saved runs or two traces, operation by operation; exit code 0 passed, 1 regressed, 2 undecided",
    "list": "list saved runs, oldest first",
    "history": "show the time of a case or of its operations in every saved run",
    "export": "write the cases and operations of one saved run or trace for another tool",
    "prune": "list the oldest saved runs with their TensorBoard files; remove them with --yes",
    "gate": "measure a base and the working tree together and judge; exit code 0 passed, 1 regressed, 2 inconclusive",
    "reproduce": "run scripts of slower operations on both sides and compare with the gate; exit code 0 done, 2 failed",
    "environments": "list the environments that the gate has made; remove them with --prune",
    "profile": "show the time, the FLOPs and bytes, and the roofline limit of each operation",
    "trace": "show the operations and kernels of a recorded trace of torch.profiler, and the accelerator's idle time",
    "study": "measure what an operator becomes on this machine: convolution, locality, memory, graph",
    "lab": "run the whole lab on this machine and write its report; exit code 0 done, 2 failed, 130 interrupted",
    "report": "write saved runs or traces as one HTML page: cases, operations, curves, comparisons",
    "train": "train with the options of pytorch/examples mnist/main.py; exit code 0 done, 2 failed, 130 interrupted",
    "scale": "time training steps over numbers of ranks; exit code 0 done, 2 failed, 130 interrupted",
    "env": "print machine and software, for a bug report",
}

#: Subcommand -> the module of mnistbench that has its options and runs it.
MODULES = {
    "compare": "compare.command",
    "list": "saved_runs.list_command",
    "history": "saved_runs.history_command",
    "export": "saved_runs.export_command",
    "prune": "saved_runs.prune_command",
    "gate": "gate.command",
    "reproduce": "gate.reproducers.command",
    "environments": "gate.environments.command",
    "profile": "profile.command",
    "trace": "traces.command",
    "study": "course.studies.command",
    "lab": "course.lab.command",
    "report": "page.command",
    "train": "train.command",
    "scale": "train.scale.command",
    "env": "measuring.command",
}

#: Subcommand -> the earlier spelling of an option -> the spelling that replaced it.
RENAMED = {
    "compare": {"--op-top": "--top"},
    "export": {"--to": "--format"},
    "gate": {"--op-top": "--top"},
    "lab": {"--batch-sizes": "--batch-size", "--devices": "--device"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 regressed, 2 wrong usage or undecided.

    An exception that nothing expects prints its traceback and returns 2: Python's own code, 1, would mean "regressed".
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and given[:1] in (["lab"], ["train"]):
        restart_pinned()  # glibc reads its thresholds only when a process starts
    bisecting = given[:1] == ["gate"] and any("--bisect".startswith(word) for word in given if len(word) > len("--b"))
    try:
        code = _main(given)
    except SystemExit as error:  # raised by argparse
        if not bisecting or error.code != UNJUDGED:
            raise
        code = UNJUDGED
    except Exception:  # noqa: BLE001  # a fault of ours
        traceback.print_exc()
        code = UNJUDGED
    return BISECT_STOPS if bisecting and code == UNJUDGED else code  # git bisect would read 2 as a bad commit


def _main(given: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal's encoding may lack a character of a table
    if not given:
        parser().print_help()
        return PASSED
    after: list[str] = []
    if given[0] == "gate" and "--" in given:  # pytest's arguments follow
        given, after = given[: given.index("--")], given[given.index("--") + 1 :]
    if complaint := _renamed(given[0], given[1:]):
        print(complaint, file=sys.stderr)
        return UNJUDGED
    try:
        parsed = parser(given[0]).parse_args(given, argparse.Namespace(pytest=after))
        code = int(parsed.run(parsed))
        sys.stdout.flush()
    except MnistbenchError as error:
        print_error(error)
        return UNJUDGED
    except KeyboardInterrupt:
        print("mnistbench: interrupted", file=sys.stderr)
        return UNJUDGED
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout once more at exit
        if not isinstance(error, BrokenPipeError):  # a pager or head closed the pipe: not an error
            print(f"mnistbench: cannot write or read ({error.strerror})", file=sys.stderr)
        return UNJUDGED
    return code


def parser(called: str = "") -> argparse.ArgumentParser:
    """Return the parser with the options of the subcommand that is called; of every subcommand if the name is none.

    Importing the modules of all subcommands would make each of them, and ``--help``, slower.
    """
    made = argparse.ArgumentParser(prog="mnistbench", description="Find the PyTorch operation that got slower.")
    made.add_argument("--version", action="version", version=f"mnistbench {__version__}")
    subparsers = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:])
        if called in ("", name):
            module = import_module(f"mnistbench.{MODULES[name]}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return made


def _renamed(command: str, words: Sequence[str]) -> str:
    """Return the error for the first option with an earlier spelling; an empty text if there is none."""
    for word in words:
        flag = word.partition("=")[0]
        if now := RENAMED.get(command, {}).get(flag):
            return f"mnistbench {command}: {flag} is now {now}"
    return ""
