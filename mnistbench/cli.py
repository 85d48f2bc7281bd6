"""The command ``mnistbench``: one subcommand a line, each imports what it needs when it is called."""

from __future__ import annotations

import argparse
import io
import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnistbench import __version__
from mnistbench.compare.settings import SETTINGS, Setting
from mnistbench.compare.thresholds import Criteria
from mnistbench.core.errors import MnistbenchError, UsageError

if TYPE_CHECKING:
    from mnistbench.saved_runs.storage import Storage

#: Exit codes: what was asked is so; it is not; it could not be found out.
PASSED, REGRESSED, UNJUDGED = 0, 1, 2

#: Tells ``git bisect run`` that a commit cannot be tested; that no commit can.
BISECT_SKIPS, BISECT_STOPS = 125, 128

_REFERENCE = "a file, a number (0003), a glob, latest, a commit or a branch"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 regressed, 2 wrong usage or could not judge.

    A fault of ours is a traceback and 2: Python's own code for it, 1, would say that something regressed.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    bisecting = given[:1] == ["gate"] and any("--bisect".startswith(word) for word in given if len(word) > len("--b"))
    try:
        code = _main(given)
    except SystemExit as error:  # argparse's
        if not bisecting or error.code != UNJUDGED:
            raise
        code = UNJUDGED
    except Exception:  # noqa: BLE001  # whatever we did not think of
        traceback.print_exc()
        code = UNJUDGED
    return BISECT_STOPS if bisecting and code == UNJUDGED else code  # 2 would blame the commit


def _main(given: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a sparkline on a terminal that has no such signs
    after: list[str] = []
    if given[:1] == ["gate"] and "--" in given:  # what follows is pytest's
        given, after = given[: given.index("--")], given[given.index("--") + 1 :]
    parsed = _parser().parse_args(given, argparse.Namespace(pytest=after))
    try:
        code = int(parsed.run(parsed))
        sys.stdout.flush()
    except MnistbenchError as error:
        complain(error)
        return UNJUDGED
    except KeyboardInterrupt:
        print("mnistbench: interrupted", file=sys.stderr)
        return UNJUDGED
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be printed goes nowhere
        if not isinstance(error, BrokenPipeError):  # the reader, less or head, has seen enough
            print(f"mnistbench: cannot write or read ({error.strerror})", file=sys.stderr)
        return UNJUDGED
    return code


def complain(error: MnistbenchError) -> None:
    """Print the one line of an error."""
    from mnistbench.core.units import printable

    print(f"mnistbench: {printable(str(error))}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mnistbench", description="Says which PyTorch operation got slower.")
    parser.add_argument("--version", action="version", version=f"mnistbench {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:])
        added.set_defaults(run=run)
        return added

    compare = command(
        "compare", _compare, "compare saved runs, operation by operation; exit code 0 passed, 1 regressed, 2 could not judge"
    )
    compare.add_argument("base", metavar="BASE", help=f"{_REFERENCE}; of several, runs of one commit are samples of one base")
    compare.add_argument("new", metavar="NEW", help=f"{_REFERENCE}; of several the newest")
    _add_settings(compare, SETTINGS)
    compare.add_argument("--op-top", type=int, default=None, metavar="N", help="operations shown per case (default: 10)")
    compare.add_argument("--format", choices=("terminal", "markdown", "json", "csv"), default="terminal")
    _add_output(compare)

    listing = command("list", _list, "list saved runs, oldest first")
    history = command("history", _history, "show the time of a case or of its operations in every saved run")
    history.add_argument("case", metavar="CASE", help="a case as tables title it, or its pytest id")
    history.add_argument("--op", default="", metavar="NAME", help="an operation of it: aten::addmm")
    history.add_argument("--module", default="", metavar="NAME", help="a module of it: conv2")
    export = command("export", _export, "write one saved run, cases and operations, for another tool")
    export.add_argument("which", metavar="RUN", nargs="?", default="latest", help=f"{_REFERENCE} (default: latest)")
    export.add_argument("--to", choices=("github-action-benchmark", "csv"), required=True)
    _add_settings(export, [setting for setting in SETTINGS if setting.flag.startswith("--op-min")])
    _add_output(export)
    prune = command(
        "prune", _prune, "remove the oldest saved runs with their TensorBoard files; shows them, and removes with --yes"
    )
    prune.add_argument("--keep", type=int, required=True, metavar="N", help="the newest N stay")
    prune.add_argument("--yes", action="store_true", help="remove them")
    gate = command(
        "gate", _gate, "measure a base and the working tree together and judge; exit 0 passed, 1 regressed, 2 not judged"
    )
    _add_gate(gate)
    profile = command(
        "profile", _profile, "show what the operations of a workload take, have to do and could do on this machine"
    )
    _add_profile(profile)
    _add_lab(command("lab", _lab, "run the whole lab on this machine and write its report; exit 0 done, 2 cannot, 130 stopped"))
    report = command("report", _report, "write saved runs as one HTML page: cases, operations, curves, what changed")
    report.add_argument("runs", metavar="RUN", nargs="+", help=f"{_REFERENCE}; each is held against the one before it")
    report.add_argument(
        "--base", metavar="RUN", help="compare each with this one; of several, runs of one commit are samples of one base"
    )
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="write there (default: report.html)")
    _add_settings(report, SETTINGS)
    for subparser in (compare, listing, history, export, prune, gate, report):
        subparser.add_argument("--storage", default=".benchmarks", metavar="DIR", help="saved runs (default: .benchmarks)")
    _add_train(
        command(
            "train",
            _train,
            "train on MNIST with the options of pytorch/examples mnist/main.py; exit 0 done, 2 cannot, 130 stopped",
        )
    )
    command("env", _env, "print machine and software, for a bug report")
    return parser


def _add_gate(gate: argparse.ArgumentParser) -> None:
    gate.usage = "mnistbench gate (--base REV | --base-dir DIR | --replay FILE) [options] [-- pytest arguments]"
    base = gate.add_mutually_exclusive_group(required=True)
    base.add_argument("--base", metavar="REV", help="commit, branch or tag; main... is where the work branched off main")
    base.add_argument("--base-dir", metavar="DIR", help="a checkout that it is held against")
    base.add_argument("--replay", metavar="FILE", help="judge a file of raw samples again; measures nothing")
    gate.add_argument("--launches", metavar="N", help="launches of the first stage (default: 10, at least 8)")
    gate.add_argument("--budget", metavar="TIME", help="begin no launch that would end later: 5m, 300s")
    gate.add_argument(
        "--threshold", default="2%", metavar="SHARE", help="smaller changes of a case do not matter (default: 2%%)"
    )
    gate.add_argument(
        "--op-threshold", default="5%", metavar="SHARE", help="smaller changes of an operation do not matter (default: 5%%)"
    )
    gate.add_argument("--base-python", metavar="EXE", help="interpreter of the base's environment")
    gate.add_argument("--new-python", metavar="EXE", help="interpreter of the working tree's environment")
    gate.add_argument("--split", action="store_true", help="measure the sides in a process each, one after the other")
    gate.add_argument(
        "--inconclusive",
        choices=("fail", "ok"),
        default="fail",
        help="exit code where nothing but noise or the budget keeps it open: 2 or 0",
    )
    gate.add_argument("--bisect", action="store_true", help="exit code 125 where it cannot judge: for git bisect run")
    gate.add_argument("--op-top", default=None, type=int, metavar="N", help="operations shown per case (default: 10)")
    gate.add_argument("--format", choices=("terminal", "markdown", "json"), default="terminal")
    _add_settings(gate, [setting for setting in SETTINGS if setting.name in ("allow_missing", "accept", "reason")])
    _add_output(gate)


def _add_train(train: argparse.ArgumentParser) -> None:
    """Texts all: what cannot be used is one line, where argparse would print the usage too."""
    train.add_argument("--batch-size", default="64", metavar="N", help="samples per training step (default: 64)")
    train.add_argument("--test-batch-size", default="1000", metavar="N", help="samples per batch in tests (default: 1000)")
    train.add_argument("--epochs", default="14", metavar="N", help="passes over the training set (default: 14)")
    train.add_argument("--lr", default="1.0", metavar="LR", help="learning rate of Adadelta (default: 1.0)")
    train.add_argument(
        "--gamma", default="0.7", metavar="M", help="what the rate is multiplied by after each epoch (default: 0.7)"
    )
    train.add_argument("--no-accel", "--no-cuda", action="store_true", help="train on the CPU though there is an accelerator")
    train.add_argument("--dry-run", action="store_true", help="train on one batch, test on one batch")
    train.add_argument("--seed", default="1", metavar="N", help="seed of weights, order and dropout (default: 1)")
    train.add_argument("--log-interval", default="10", metavar="N", help="batches per point of the curves (default: 10)")
    train.add_argument("--save-model", action="store_true", help="write the weights, mnist_cnn.pt")
    train.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps (default: the accelerator if there is one)")
    train.add_argument("--model", default="convnet", metavar="NAME", help="convnet or lenet5 (default: convnet)")
    train.add_argument(
        "--dataset", default="mnist", metavar="NAME", help="mnist; digits, which needs no files (default: mnist)"
    )
    train.add_argument(
        "--data-dir", metavar="DIR", help="torchvision root with MNIST; else MNISTBENCH_DATA, else the user's cache"
    )
    train.add_argument("--dtype", default="float32", metavar="NAME", help="float32, or bfloat16 by autocast (default: float32)")
    train.add_argument("--threads", metavar="N", help="intra-op threads of torch on the CPU (default: torch's own, all cores)")
    train.add_argument(
        "--output", metavar="DIR", help="a new directory for everything (default: runs/TIME-MODEL-BATCH-DEVICE-DATASET)"
    )
    train.add_argument(
        "--tensorboard", action=argparse.BooleanOptionalAction, default=True, help="curves, images and graph (default: on)"
    )
    train.add_argument("--save-scalar", action="store_true", help="with --no-tensorboard: the curves all the same")
    train.add_argument("--save-graph", action="store_true", help="with --no-tensorboard: the model graph all the same")
    train.add_argument("--profile", action="store_true", help="profile a few steps after training: table and trace.json.gz")


def _add_profile(profile: argparse.ArgumentParser) -> None:
    profile.add_argument("--model", default="convnet", metavar="NAME", help="convnet or lenet5 (default: convnet)")
    profile.add_argument("--batch-size", default="1,16,64", metavar="SIZES", help="comma list (default: 1,16,64)")
    profile.add_argument("--device", default="auto", metavar="NAMES", help="comma list of auto, cpu, cuda, mps (default: auto)")
    profile.add_argument("--phase", default="step", metavar="NAMES", help="comma list of forward and step (default: step)")
    profile.add_argument("--dtype", default="float32", metavar="NAME", help="float32, or bfloat16 by autocast")
    profile.add_argument("--threads", default="1", metavar="N", help="intra-op threads (default: 1)")
    profile.add_argument("--dataset", default="digits", metavar="NAME", help="digits or mnist (default: digits)")
    profile.add_argument("--data-dir", default=None, metavar="DIR", help="where MNIST lies (default: MNISTBENCH_DATA)")
    profile.add_argument("--seed", default="1", metavar="N", help="of weights, batch and dropout (default: 1)")
    profile.add_argument("--iterations", default="10", metavar="N", help="profiled calls of each case (default: 10)")
    profile.add_argument("--top", default="10", metavar="N", help="operations shown (default: 10)")
    profile.add_argument("--min-share", default="1%", metavar="SHARE", help="smaller operations are not shown (default: 1%%)")
    profile.add_argument(
        "--sort", default="", metavar="WHAT", help="self-cpu, self-device, total, memory or calls (default: self time)"
    )
    profile.add_argument("--by", default="op,module", metavar="WHAT", help="op, module, or op,module (default)")
    profile.add_argument("--shapes", action="store_true", help="show input shapes")
    profile.add_argument("--memory", action="store_true", help="show memory that operations allocated less freed")
    profile.add_argument("--cold", action="store_true", help="measure first calls too, in processes of their own")
    profile.add_argument("--trace", default=None, metavar="FILE", help="write a trace for https://ui.perfetto.dev: t.json.gz")
    profile.add_argument("--format", choices=("terminal", "markdown", "json", "csv"), default="terminal")
    _add_output(profile)


def _add_lab(lab: argparse.ArgumentParser) -> None:
    lab.add_argument(
        "--dataset", default="digits", metavar="NAME", help="digits, which needs no network, or mnist (default: digits)"
    )
    lab.add_argument(
        "--data-dir", metavar="DIR", help="torchvision root with MNIST; else MNISTBENCH_DATA, else the user's cache"
    )
    lab.add_argument("--batch-sizes", default="1,16,64", metavar="SIZES", help="comma list (default: 1,16,64)")
    lab.add_argument(
        "--devices", default="auto", metavar="NAMES", help="comma list of auto, cpu, cuda, cuda:1, mps (default: auto)"
    )
    lab.add_argument("--epochs", metavar="N", help="epochs of training (default: 3 of digits, 1 of mnist)")
    lab.add_argument("--lang", default="en", metavar="LANG", help="language of the report: en or zh (default: en)")
    lab.add_argument(
        "-o", "--output", metavar="DIR", help="where it goes; a lab that is there goes on (default: mnistbench-lab)"
    )
    lab.add_argument("--merge", nargs="*", metavar="DIR", help="measure nothing: put these labs side by side")


def _add_settings(parser: argparse.ArgumentParser, settings: Sequence[Setting]) -> None:
    for setting in settings:
        if not setting.metavar:
            parser.add_argument(setting.flag, action="store_true", help=setting.shown)
        else:
            action = "append" if setting.repeatable else "store"
            parser.add_argument(setting.flag, action=action, metavar=setting.metavar, help=setting.shown)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write there instead of printing")


def _criteria(parsed: argparse.Namespace) -> Criteria:
    """Read the settings: the command line before ``[tool.mnistbench]`` of the project."""
    configured, path = _configuration()
    texts, origins = {}, {}
    for setting in SETTINGS:
        given = getattr(parsed, setting.name, None)
        if given == "":  # an unset variable of a script must not switch a gate off
            raise UsageError(f"{setting.flag}: '' is no value; give one, or leave the option out")
        from_file = not given and setting.name in configured
        texts[setting.name] = given or configured.get(setting.name, setting.empty)
        origins[setting.name] = f"{setting.name} in {path}" if from_file else setting.flag
    return Criteria.from_texts(texts, origins.__getitem__)


def _configuration() -> tuple[dict[str, Any], str]:
    """Return ``[tool.mnistbench]`` of the nearest pyproject.toml, upwards from here."""
    here = Path.cwd()
    path = next((folder / "pyproject.toml" for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), None)
    if path is None:
        return {}, ""
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as TOML ({error})") from None
    table = tools.get("mnistbench", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"mnistbench in {path}: {table!r} is not a table; write [tool.mnistbench] and settings below it")
    known = {setting.name: setting for setting in SETTINGS if setting.configurable}
    for name, value in table.items():
        if name not in known:
            raise UsageError(f"{name} in {path}: is not a setting of [tool.mnistbench]; choose of {', '.join(known)}")
        texts = value if known[name].repeatable and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            needed = "a text or a list of texts" if known[name].repeatable else "a text"
            raise UsageError(f'{name} in {path}: {value!r} is not {needed}; write it in quotes, such as "10%"')
        table[name] = texts if known[name].repeatable else value
    return dict(table), str(path)


# ---- Commands --------------------------------------------------------------------------------------------------------


def _compare(parsed: argparse.Namespace) -> int:
    from mnistbench.compare.diff import compare
    from mnistbench.compare.judge import judge
    from mnistbench.report.output import TOP, append_step_summary, rendered, write
    from mnistbench.report.terminal import colours

    criteria = _criteria(parsed)
    top = TOP if parsed.op_top is None else parsed.op_top
    if top < 1:
        raise UsageError(f"--op-top: {top} is not a number of operations; give at least 1")
    storage = _storage(parsed)
    try:
        bases = storage.find(parsed.base)
        now = storage.find(parsed.new)[-1]
        others = [saved for saved in bases if saved.path.resolve() != now.path.resolve()]
        if not others:
            raise UsageError(f"{parsed.base!r} and {parsed.new!r} are one saved run, {now.path}: name another base")
    finally:
        _complain(storage)
    judgement = judge(compare([saved.run for saved in others], now.run, **criteria.of_comparison), criteria)
    colour = parsed.format == "terminal" and not parsed.output and colours(sys.stdout)
    _deliver(rendered(judgement, parsed.format, top, colour=colour), parsed.output, write)
    if note := append_step_summary(judgement, top):
        print(f"mnistbench: {note}", file=sys.stderr)
    return {"none": PASSED, "passed": PASSED, "regressed": REGRESSED, "unjudged": UNJUDGED}[judgement.outcome]


def _list(parsed: argparse.Namespace) -> int:
    from mnistbench.report.runs import list_table
    from mnistbench.report.terminal import draw

    runs = _all_runs(parsed)
    print(draw(list_table(runs)))
    return PASSED


def _history(parsed: argparse.Namespace) -> int:
    from mnistbench.report.runs import history_table
    from mnistbench.report.terminal import draw

    print(
        draw(history_table(_all_runs(parsed, tables=bool(parsed.op or parsed.module)), parsed.case, parsed.op, parsed.module))
    )
    return PASSED


def _export(parsed: argparse.Namespace) -> int:
    from mnistbench.report.data import csv_text, github_action_benchmark
    from mnistbench.report.output import write
    from mnistbench.report.runs import RUN_COLUMNS, export_entries, run_rows

    criteria = _criteria(parsed)
    storage = _storage(parsed)
    try:
        run = storage.find(parsed.which)[-1].run
    finally:
        _complain(storage)
    if parsed.to == "csv":
        text = csv_text(RUN_COLUMNS, run_rows(run))
    else:
        text = github_action_benchmark(export_entries(run, criteria))
    _deliver(text, parsed.output, write)
    return PASSED


def _prune(parsed: argparse.Namespace) -> int:
    from mnistbench.core.units import printable
    from mnistbench.saved_runs.prune import plan, remove

    if parsed.keep < 1:
        raise UsageError(f"--keep: {parsed.keep} would leave no saved run; give at least 1")
    files, directories, left = plan(_all_runs(parsed), parsed.keep, Path(parsed.storage) / "tensorboard")
    for line in left:
        print(line)
    if not files:
        print(f"nothing to remove: there are no more than {parsed.keep} saved runs")
        return PASSED
    for path in (*files, *directories):
        print(f"{'removing' if parsed.yes else 'would remove'} {printable(str(path))}")
    if not parsed.yes:
        print(f"{len(files)} saved runs and {len(directories)} TensorBoard directories; add --yes to remove them")
        return PASSED
    remove(files, directories)
    return PASSED


def _gate(parsed: argparse.Namespace) -> int:
    from mnistbench.commands.gate import run

    try:
        code, is_excusable = run(parsed)
    except MnistbenchError as error:
        if not parsed.bisect:
            raise
        complain(error)
        return BISECT_STOPS if isinstance(error, UsageError) else BISECT_SKIPS
    may_pass = parsed.inconclusive == "ok" and is_excusable
    not_judged = BISECT_SKIPS if parsed.bisect else PASSED if may_pass else UNJUDGED
    return not_judged if code == UNJUDGED else code


def _train(parsed: argparse.Namespace) -> int:
    from mnistbench.commands.train import STOPPED, run

    try:
        return run(parsed)
    except KeyboardInterrupt:  # before training began, or for the second time
        print("mnistbench: interrupted", file=sys.stderr)
        return STOPPED


def _profile(parsed: argparse.Namespace) -> int:
    from mnistbench.commands.profile import run

    return run(parsed)


def _lab(parsed: argparse.Namespace) -> int:
    from mnistbench.commands.lab import run

    return run(parsed)


def _report(parsed: argparse.Namespace) -> int:
    from mnistbench.core.units import printable
    from mnistbench.report.html_page import page
    from mnistbench.report.output import write
    from mnistbench.report.page_runs import shown_runs

    criteria = _criteria(parsed)
    storage = _storage(parsed)
    try:
        bases = storage.find(parsed.base) if parsed.base is not None else []
        found = [saved for reference in parsed.runs for saved in storage.find(reference)]
    finally:
        _complain(storage)
    runs, passed_over = shown_runs(found, bases, criteria)
    for line in passed_over:
        print(f"mnistbench: passed over: {printable(line)}", file=sys.stderr)
    write(Path(parsed.output), page(runs))
    print(f"{len(runs)} saved run{'s' if len(runs) > 1 else ''}: {printable(parsed.output)}")
    return PASSED


def _env(_: argparse.Namespace) -> int:
    from mnistbench.measuring.torch_import import import_torch

    import_torch()
    import torch

    from mnistbench.core.allocator import status
    from mnistbench.measuring.environment import read
    from mnistbench.report.environment import environment_text

    print(environment_text(read(torch.get_num_threads()), status(os.environ)))
    return PASSED


# ---- Saved runs and output -------------------------------------------------------------------------------------------


def _storage(parsed: argparse.Namespace, *, tables: bool = True) -> Storage:
    from mnistbench.saved_runs.storage import Storage

    return Storage(Path(parsed.storage), tables=tables)


def _all_runs(parsed: argparse.Namespace, *, tables: bool = False) -> list[Any]:
    storage = _storage(parsed, tables=tables)
    runs = storage.all()
    _complain(storage)
    if not runs:
        raise UsageError(f"no saved run in {parsed.storage} can be read; save one with: pytest bench --benchmark-autosave")
    return runs


def _complain(storage: Storage) -> None:
    for line in storage.refused:
        print(f"mnistbench: passed over: {line}", file=sys.stderr)


def _deliver(text: str, output: str | None, write: Callable[[Path, str], None]) -> None:
    from mnistbench.commands.arguments import given

    if target := given("--output", output):
        write(Path(target), text)
    else:
        sys.stdout.write(text)
