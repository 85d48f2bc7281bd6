"""The command ``mnistbench gate``: reads options, shows progress, writes the report, returns the exit code."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from mnistbench.compare.settings import SETTINGS
from mnistbench.compare.thresholds import acceptances, plain_threshold
from mnistbench.core import units
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.gate import bisection_report as bisection
from mnistbench.gate.bisect_command import FLAG, bisected, check_options
from mnistbench.gate.environments.packages import Installed, installed, wanted
from mnistbench.gate.environments.sides import Changes, add_sides, changed, interpreter, refuse_old_torch, variables
from mnistbench.gate.environments.store import held
from mnistbench.gate.report import rendered
from mnistbench.gate.run import LAUNCHES, Measured, Progress, Request, check_base_and_storage, measure
from mnistbench.gate.verdict import samples
from mnistbench.gate.verdict.decision import INCONCLUSIVE, LEAST_LAUNCHES, PASSED, REGRESSED, Thresholds
from mnistbench.gate.verdict.result import Verdict, conclude
from mnistbench.showing.arguments import add_format, add_output, add_settings, add_storage, add_top, given, whole
from mnistbench.showing.output import (
    BISECT_SKIPS,
    BISECT_STOPS,
    UNJUDGED,
    append_text_to_step_summary,
    check,
    print_error,
    write,
)
from mnistbench.showing.terminal import colours

_CODES = {PASSED: 0, REGRESSED: 1, INCONCLUSIVE: 2}

_UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    sides = "--base REV | --base-dir DIR | --bisect-versions RANGE | --replay FILE"
    parser.usage = f"mnistbench gate [{sides}] [options] [-- pytest arguments]"
    base = parser.add_mutually_exclusive_group()
    base.add_argument(
        "--base", metavar="REV", help="commit, branch or tag to compare with; main... is the merge base with main"
    )
    base.add_argument("--base-dir", metavar="DIR", help="checkout to compare with")
    base.add_argument("--replay", metavar="FILE", help="judge a file of raw samples again; measures nothing")
    parser.add_argument("--launches", metavar="N", help="number of launches of the first stage (default: 10, at least 8)")
    parser.add_argument("--budget", metavar="TIME", help="time limit; do not start a launch that would exceed it: 5m, 300s")
    parser.add_argument(
        "--threshold", default="2%", metavar="SHARE", help="smallest slowdown of a case that matters (default: 2%%)"
    )
    parser.add_argument(
        "--op-threshold", default="5%", metavar="SHARE", help="smallest slowdown of an operation that matters (default: 5%%)"
    )
    add_sides(parser, "the base", "the working tree")
    parser.add_argument(
        FLAG, metavar="NAME==FIRST..LAST", help="find the first slower release of an installed package: torch==2.13.0..2.15.0"
    )
    parser.add_argument(
        "--inconclusive", choices=("fail", "ok"), default="fail",
        help="fail: exit code 2 if noise or the budget leaves the result open; ok: exit code 0 (default: fail)",
    )  # fmt: skip
    parser.add_argument("--bisect", action="store_true", help="exit code 125 instead of 2, for git bisect run")
    parser.add_argument(
        "--reproducers", metavar="DIR",
        help="folder for scripts that reproduce slower operations (default: beside the raw samples)",
    )  # fmt: skip
    add_top(parser)
    add_format(parser)
    add_settings(parser, [setting for setting in SETTINGS if setting.name in ("allow_missing", "accept", "reason")])
    add_output(parser)
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """Measure or replay, report, and return the exit code.

    Raises:
        MnistbenchError: something cannot be used or measured.
    """
    try:
        code, is_excusable = _judged(parsed)
    except MnistbenchError as error:
        if not parsed.bisect:
            raise
        print_error(error)
        return BISECT_STOPS if isinstance(error, UsageError) else BISECT_SKIPS
    may_pass = parsed.inconclusive == "ok" and is_excusable
    not_judged = BISECT_SKIPS if parsed.bisect else 0 if may_pass else UNJUDGED
    return not_judged if code == UNJUDGED else code


def _judged(parsed: argparse.Namespace) -> tuple[int, bool]:
    """Measure or replay, report, and return 0 passed, 1 regressed, 2 inconclusive; and whether ``--inconclusive ok`` excuses 2.

    Raises:
        MnistbenchError: an option cannot be used, or a side cannot be measured.
    """
    accept = acceptances(parsed.accept or (), parsed.reason or "")
    top = whole("--top", parsed.top, 1)
    thresholds = Thresholds(_share("--threshold", parsed.threshold), _share("--op-threshold", parsed.op_threshold))
    progress = _Shown(sys.stderr)
    if output := given("--output", parsed.output):
        check(Path(output))

    def concluded(measured: Measured) -> Verdict:
        try:
            return conclude(
                measured.header, measured.launches, thresholds, accept=accept, reason=parsed.reason or "",
                end=measured.end, allow_missing=parsed.allow_missing,
            )  # fmt: skip
        except RecordError as error:
            raise RecordError(f"{measured.path}: {error}") from None

    if searched := given(FLAG, parsed.bisect_versions):
        check_options(parsed)
        request, packages = _request(parsed, thresholds), installed()

        def gate(changes: Changes, only: tuple[str, ...], budget_s: float) -> tuple[str, Verdict]:
            for requirements in changes.values():
                refuse_old_torch(FLAG, requirements)
            measured = _measured(replace(request, only=only, budget_s=budget_s), changes, packages, progress)
            return str(measured.path), concluded(measured)

        found = bisected(searched, packages, gate, request.budget_s, progress.say)
        _report(functools.partial(bisection.rendered, found), parsed, top)
        return _CODES[found.outcome], found.is_excusable
    if replayed := given("--replay", parsed.replay):
        _check_replay(parsed)
        recorded = samples.load(Path(replayed))
        verdict = concluded(Measured(Path(replayed), recorded.header, recorded.launches, recorded.end))
    else:
        request = _request(parsed, thresholds)
        packages = installed() if parsed.base_with or parsed.head_with else []
        verdict = concluded(_measured(request, changed(parsed, packages), packages, progress))
    _report(functools.partial(rendered, verdict), parsed, top)
    return _CODES[verdict.outcome], verdict.is_excusable


def _check_replay(parsed: argparse.Namespace) -> None:
    """Refuse options that only apply to a measurement."""
    of_measuring = {"--launches": parsed.launches, "--budget": parsed.budget, "--base-python": parsed.base_python,
                    "--head-python": parsed.head_python,
                    "--base-env": parsed.base_env, "--head-env": parsed.head_env,
                    "--reproducers": parsed.reproducers,
                    "--base-with": parsed.base_with, "--head-with": parsed.head_with,
                    "--": " ".join(parsed.pytest)}  # fmt: skip
    for option, value in of_measuring.items():
        if value:
            raise UsageError(f"--replay: measures nothing, so {option} has no effect; remove it")


def _request(parsed: argparse.Namespace, thresholds: Thresholds) -> Request:
    options = ("base", "base_dir", "base_python", "head_python", "base_env", "head_env", "base_with", "head_with",
               "bisect_versions")  # fmt: skip
    if all(getattr(parsed, option) is None for option in options):
        raise UsageError("nothing to compare: give --base REV, --base-dir DIR, or what differs, such as --base-env NAME=VALUE")
    return Request(
        base=given("--base", parsed.base),
        base_dir=given("--base-dir", parsed.base_dir),
        base_python=interpreter("--base-python", parsed.base_python),
        head_python=interpreter("--head-python", parsed.head_python),
        base_variables=variables("--base-env", parsed.base_env),
        head_variables=variables("--head-env", parsed.head_env),
        arguments=tuple(parsed.pytest),
        launches=_launches(parsed.launches),
        budget_s=_seconds(parsed.budget),
        thresholds=thresholds,
        storage=Path(parsed.storage),
        reproducers=Path(folder) if (folder := given("--reproducers", parsed.reproducers)) else None,
    )


def _measured(request: Request, changes: Changes, packages: Sequence[Installed], progress: Progress) -> Measured:
    """Measure, in new environments for the sides with other requirements.

    Raises:
        UsageError: an option cannot be used, or an environment cannot be made.
        LaunchError: a side cannot be measured.
    """
    interpreters = {"base": request.base_python, "new": request.head_python}
    if changes:  # an environment takes minutes and gigabytes, so what is wrong is found before
        check_base_and_storage(request)
    with ExitStack() as environments:
        for side, requirements in changes.items():
            interpreters[side] = environments.enter_context(held(wanted(requirements, packages), progress.say)).python
        measured = measure(replace(request, base_python=interpreters["base"], head_python=interpreters["new"]), progress)
    progress.say(f"raw samples: {measured.path}; judge them again with: mnistbench gate --replay {measured.path}")
    return measured


def _report(render: Callable[..., str], parsed: argparse.Namespace, top: int) -> None:
    """Print or write what ``render`` returns for a format, the number of operations per case, and ``colour``."""
    colour = parsed.format == "terminal" and not parsed.output and colours(sys.stdout)
    text = render(parsed.format, top, colour=colour)
    if parsed.output:
        write(Path(parsed.output), text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    if os.environ.get("GITHUB_STEP_SUMMARY") and (note := append_text_to_step_summary(render("markdown", top))):
        sys.stderr.write(f"mnistbench: {note}\n")


class _Shown(Progress):
    """Progress as text: one line that is updated on a terminal, a line for each step in a log."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._open = False

    def say(self, text: str) -> None:
        self._close()
        self._stream.write(f"{units.printable(text)}\n")
        self._stream.flush()

    def launch(self, done: int, of: int, seconds_left: float) -> None:
        left = f", about {_minutes(seconds_left)} left" if seconds_left else ""
        text = f"launch {done + 1} of {of}{left}" if done < of else f"{of} launches done"
        if not self._live:
            self.say(text)
            return
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r{text[:width].ljust(width)}")
        self._stream.flush()
        self._open = True
        if done >= of:
            self._close()

    def _close(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._open = False


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


# ---- Options ---------------------------------------------------------------------------------------------------------


def _share(flag: str, text: str) -> float:
    try:
        return plain_threshold(text).share
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is not a percentage; give 2%") from None


def _launches(text: str | None) -> int:
    if text is None:
        return LAUNCHES
    if not re.fullmatch(r"\d{1,4}", text) or int(text) < LEAST_LAUNCHES:
        raise UsageError(
            f"--launches: {text!r} is not a number of launches; give at least {LEAST_LAUNCHES}, the fewest that can be judged"
        )
    return int(text)


def _seconds(text: str | None) -> float:
    if text is None:
        return float("inf")
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|m|min|h|)", text.strip())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"--budget: {text!r} is not a time; give 5m or 300s")
    return float(match[1]) * _UNITS_S[match[2]]
