"""The command ``mnistbench``.

The list of its subcommands, how errors are printed, and the exit code.

A subcommand is a module with a dataclass ``Settings``, its options (see ``core.options``), and a
function ``run``, which takes the settings and returns the exit code or, with the report that is to
be shown, a ``CommandResult``. Small ones share a module: ``module:Name`` is such a dataclass with a
method ``run``.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, NamedTuple

from mnistbench import __version__
from mnistbench.core.child import terminable
from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.extras import install, require
from mnistbench.core.machine import has_posix
from mnistbench.core.options import (
    Parser,
    add_options,
    did_you_mean,
    options_of,
    read,
    tool_table,
)
from mnistbench.showing.output import (
    BISECT_STOPS,
    EXIT_INCONCLUSIVE,
    EXIT_PASSED,
    CommandResult,
    ReportSettings,
    check,
    deliver_result,
    leave_error_to_rank_0,
    print_error,
)


class Command(NamedTuple):
    """A subcommand."""

    # In mnistbench, which is imported when it is called; empty for a group without one.
    module: str
    text: str  # its line of help
    # Packages of extras that it needs; of a group, those that most of its commands need.
    needs: tuple[str, ...] = ()
    measures: bool = False  # it starts processes that measure, which needs POSIX


#: Packages that a training and a lab need: figures and files for TensorBoard are among their
#: results.
_ALL_OF_TORCH = ("torch", "tensorboard", "matplotlib")

#: The subcommands. A name of two words is a subcommand of the first, or a command beside it if the
#: first has a module.
COMMANDS = {
    "compare": Command(
        "compare.command",
        (
            "compare saved runs or two traces, operation by operation; exit code 0 passed, 1 "
            "regressed, 2 inconclusive"
        ),
    ),
    "list": Command("saved_runs.command:List", "list saved runs, oldest first"),
    "history": Command(
        "saved_runs.command:History",
        "show the time of a case or of its operations in every saved run",
    ),
    "export": Command(
        "saved_runs.command:Export",
        "write the cases and operations of one saved run or trace as CSV",
    ),
    "gate": Command(
        "gate.commands.gate",
        (
            "measure a base and the working tree together and judge; exit code 0 passed, 1 "
            "regressed, 2 inconclusive"
        ),
        measures=True,
    ),
    "judge": Command(
        "gate.commands.judge",
        (
            "judge raw samples of a gate again, or write its page; exit code 0 passed, 1 "
            "regressed, 2 inconclusive"
        ),
    ),
    "bisect": Command(
        "gate.commands.bisect",
        (
            "find the first slower release of a package; exit code 0 none is slower, 1 found, 2"
            " inconclusive"
        ),
        measures=True,
    ),
    "reproduce": Command(
        "suite.reproducers.command",
        (
            "run scripts of slower operations on both sides and compare with the gate; exit "
            "code 0 done, 2 failed"
        ),
        measures=True,
    ),
    "profile": Command(
        "suite.profile.command",
        "show the time, the FLOPs and bytes, and the roofline limit of each operation",
        needs=("torch",),
        measures=True,
    ),
    "trace": Command(
        "events.command",
        (
            "show the operations and kernels of a recorded trace of torch.profiler, and the "
            "accelerator's idle time"
        ),
    ),
    "study": Command(
        "",
        "study one operator on this machine: convolution, loop order, memory, compilation",
        needs=("torch",),
    ),
    "study convolution": Command(
        "course.studies.convolution.study",
        (
            "compute a convolution in many ways: FLOPs, bytes, errors, and the algorithm that "
            "the library takes"
        ),
        needs=("torch",),
        measures=True,
    ),
    "study locality": Command(
        "course.studies.locality.study",
        "compare loop orders: simulated cache misses and measured times",
        needs=("torch",),
        measures=True,
    ),
    "study memory": Command(
        "course.studies.memory.study",
        (
            "predict the memory of a network from shapes, layer by layer, measure it, and find "
            "the largest batch that fits"
        ),
        needs=("torch",),
        measures=True,
    ),
    "study graph": Command(
        "course.studies.graph.study",
        (
            "show what torch.compile makes of a program: graphs, generated code and fusions, and "
            "the times of both"
        ),
        needs=("torch",),
        measures=True,
    ),
    "lab": Command(
        "course.lab.command",
        (
            "run the whole lab on this machine and write its report; exit code 0 done, 2 "
            "failed, 130 interrupted"
        ),
        needs=_ALL_OF_TORCH,
        measures=True,
    ),
    "lab predict": Command(
        "course.lab.predict.command",
        (
            "ask what you expect before the lab measures, for its report; exit code 0 done, 2 "
            "failed, 130 interrupted"
        ),
    ),
    "lab score": Command(
        "course.classroom.score_command",
        "time your step against the reference; exit code 0 scored, 1 refused, 2 failed",
        needs=("torch",),
        measures=True,
    ),
    "lab check": Command(
        "course.classroom.check_command",
        (
            "check a lab and write the file to hand in; exit code 0 all right, 1 something is "
            "missing or wrong, 2 failed"
        ),
    ),
    "class": Command(
        "",
        "work with the submissions of a class: merge, rerun",
        needs=("torch", "matplotlib"),
    ),
    "class merge": Command(
        "course.classroom.teacher.merge_command",
        "write one page and a CSV file of the submissions of a class",
        needs=("matplotlib",),
    ),
    "class rerun": Command(
        "course.classroom.teacher.rerun_command",
        (
            "measure the code of the best students again; exit code 0 it agrees, 1 it does not "
            "or is refused, 2 failed"
        ),
        needs=("torch",),
        measures=True,
    ),
    "report": Command(
        "page.command",
        ("write saved runs or traces as one HTML page: cases, operations, curves, comparisons"),
    ),
    "train": Command(
        "suite.train.command",
        (
            "train with the options of pytorch/examples mnist/main.py; exit code 0 done, 2 "
            "failed, 130 interrupted"
        ),
        needs=_ALL_OF_TORCH,
        measures=True,
    ),
    "scale": Command(
        "suite.train.scale.command",
        "time training steps over numbers of ranks; exit code 0 done, 2 failed, 130 interrupted",
        needs=("torch",),
        measures=True,
    ),
    "env": Command("suite.env_command", "print machine and software, for a bug report"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 regressed, 2 wrong usage or inconclusive.

    An exception that nothing expects prints its traceback and returns 2: Python's own code, 1,
    would mean "regressed".
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if (name := " ".join(words[:2])) in COMMANDS and COMMANDS[words[0]].module:
        words[:2] = [name]
    try:
        code = _main(words)
    except Exception:  # noqa: BLE001  # a fault of ours
        traceback.print_exc()
        code = EXIT_INCONCLUSIVE
    bisecting = words[:1] == ["gate"] and "--bisect" in words
    # git bisect would read 2 as a bad commit.
    return BISECT_STOPS if bisecting and code == EXIT_INCONCLUSIVE else code


def _open_standard_streams() -> None:
    """Open those that the caller has closed (``>&-``), for which Python has None.

    Else a file that is opened later has their number, and receives what a child writes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, stream)


def _main(words: list[str]) -> int:
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # The terminal's encoding may lack a character of a table.
            stream.reconfigure(errors="backslashreplace")
    if not words:
        parser().print_help()
        return EXIT_PASSED
    pytest_arguments: list[str] = []
    if words[0] in ("gate", "bisect") and "--" in words:
        pytest_arguments = words[words.index("--") + 1 :]
        words = words[: words.index("--")]
    try:
        _check_group(words)
        parsed, unknown = parser(*words[:2]).parse_known_args(
            words, argparse.Namespace(pytest=pytest_arguments)
        )
        name, settings_class, run = parsed._command  # noqa: SLF001  # no option has this name
        if unknown:
            raise UsageError(_unknown(unknown, words, settings_class, pytest_arguments))
        settings = read(settings_class, vars(parsed), *tool_table(settings_class))
        with _ended_by_signals(os.environ):
            code = _run(name, run, settings)
        sys.stdout.flush()
    except MnistbenchError as error:
        leave_error_to_rank_0(os.environ)
        print_error(error)
        return EXIT_INCONCLUSIVE
    except KeyboardInterrupt:
        print("mnistbench: interrupted", file=sys.stderr)
        return EXIT_INCONCLUSIVE
    except OSError as error:
        _print_os_error(error)
        return EXIT_INCONCLUSIVE
    except MemoryError:
        print_error("there is too little memory; close other programs, or give less input")
        return EXIT_INCONCLUSIVE
    return code


def _ended_by_signals(environ: Mapping[str, str]) -> AbstractContextManager[None]:
    """Have SIGTERM and SIGHUP interrupt a command, so that it ends its processes and removes files.

    Not a rank, which may wait for others in a call that no interrupt ends: the launcher sends it
    SIGTERM when one of them has failed.
    """
    return nullcontext() if environ.get("RANK") else terminable()


def _check_group(words: Sequence[str]) -> None:
    """Raise UsageError if the words name a group of commands, and none of them."""
    group = words[0]
    if len(words) == 1 and group in COMMANDS and not COMMANDS[group].module:
        names = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")]
        raise UsageError(
            f"{group}: choose {', '.join(names[:-1])} or {names[-1]}; "
            f"see: mnistbench {group} --help"
        )


def _unknown(
    unknown: Sequence[str],
    words: Sequence[str],
    settings_class: type,
    pytest_arguments: Sequence[str],
) -> str:
    """Return what is wrong with words that the command does not know, and what may be meant."""
    word = unknown[0]
    options = options_of(settings_class).values()
    flags = [flag for option in options for flag in option.flags]
    meant = did_you_mean(word, flags)
    if not meant and any(option.after_dashes for option in options):
        known = list(words)
        for one in unknown:
            known.remove(one)
        after_dashes = [*unknown, *pytest_arguments]
        command = shlex.join(["mnistbench", *known, "--", *after_dashes])
        return f"{word!r} is not known; arguments of pytest follow --: {command}"
    return f"{word!r} is not known{meant or ';'} see: mnistbench {words[0]} --help"


def _run(name: str, run: Callable[[Any], CommandResult | int], settings: Any) -> int:
    """Run a command and show its report; return its exit code.

    What it needs and the file of the report are checked before anything is measured. A command that
    writes other files checks them itself.
    """
    if isinstance(settings, ReportSettings) and settings.output:
        check(settings.output)
    if COMMANDS[name].measures and not has_posix():
        raise UsageError(f"{name} measures, which needs Linux or macOS; on Windows, run it in WSL")
    require(name, *COMMANDS[name].needs)
    result = run(settings)
    return deliver_result(result, settings) if isinstance(result, CommandResult) else result


def _print_os_error(error: OSError) -> None:
    if error.filename is None:  # of stdout, which the interpreter flushes once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):  # a pager or head closed the pipe: not an error
        print_error(
            f"cannot write or read{'' if error.filename is None else f' {error.filename}'} "
            f"({error.strerror})"
        )


def parser(*called: str) -> argparse.ArgumentParser:
    """Return the parser with the options of the subcommand that is called.

    If none is called, it has those of every subcommand.

    Importing the modules of all subcommands would make each of them, and ``--help``, slower.
    """
    whole_parser = Parser(
        prog="mnistbench",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Find what a change makes slower.",
        epilog=_list_of_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole_parser.add_argument("--version", action="version", version=f"mnistbench {__version__}")
    subparsers = {
        "": whole_parser.add_subparsers(
            prog="mnistbench",
            required=True,
            metavar="COMMAND",
            parser_class=Parser,
            help=argparse.SUPPRESS,
        )
    }
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group and COMMANDS[group].module:
            group = ""
            last = name
        text = command.text
        subparser = subparsers[group].add_parser(
            last, help=text, description=text[0].upper() + text[1:]
        )
        if not command.module:
            subparsers[name] = subparser.add_subparsers(
                title="commands", required=True, metavar="COMMAND"
            )
        elif not called or name in (called[0], " ".join(called)):
            where, _, shared = command.module.partition(":")
            module = import_module(f"mnistbench.{where}")
            settings: Any = getattr(module, shared or "Settings")
            add_options(subparser, settings)
            run = settings.run if shared else module.run
            subparser.set_defaults(_command=(name, settings, run))
    return whole_parser


def _list_of_commands() -> str:
    """Return the part of the help that has the commands, grouped by what they need."""
    alone = ["commands:"]
    with_torch = [f"commands that need PyTorch ({install('torch')}):"]
    for name, command in COMMANDS.items():
        first = COMMANDS[name.split()[0]]
        if " " not in name or first.module:
            listed = textwrap.fill(
                command.text,
                width=max(40, shutil.get_terminal_size().columns - 2),
                initial_indent=f"  {name:<14}",
                subsequent_indent=" " * 16,
            )
            group = with_torch if command.needs else alone
            group.append(listed)
    return "\n".join((*alone, "", *with_torch))
