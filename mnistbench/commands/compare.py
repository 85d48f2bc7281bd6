"""``mnistbench compare``: compare saved runs and judge them by thresholds."""

from __future__ import annotations

import argparse
import sys

from mnistbench.commands.arguments import REFERENCE, add_output, add_settings, add_storage, add_top, given, whole
from mnistbench.commands.output import PASSED, REGRESSED, UNJUDGED, deliver
from mnistbench.commands.saved import criteria, find
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.compare.settings import SETTINGS
from mnistbench.core.errors import UsageError
from mnistbench.report.output import append_step_summary, rendered
from mnistbench.report.terminal import colours

_CODES = {"none": PASSED, "passed": PASSED, "regressed": REGRESSED, "unjudged": UNJUDGED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("base", metavar="BASE", help=f"{REFERENCE}; several runs of one commit are samples of one base")
    parser.add_argument("new", metavar="NEW", help=f"{REFERENCE}; of several runs the newest is compared")
    add_settings(parser, SETTINGS)
    add_top(parser)
    parser.add_argument(
        "--format", choices=("terminal", "markdown", "json", "csv"), default="terminal", help="format (default: terminal)"
    )
    add_output(parser)
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print the comparison; return 0 passed, 1 regressed, 2 undecided.

    Raises:
        MnistbenchError: an option cannot be used, or a run cannot be read.
    """
    thresholds = criteria(parsed)
    top, output = whole("--top", parsed.top, 1), given("--output", parsed.output)
    bases, candidates = find(parsed, parsed.base, parsed.new)
    new = candidates[-1]
    others = [saved for saved in bases if saved.path.resolve() != new.path.resolve()]
    if not others:
        raise UsageError(f"{parsed.base!r} and {parsed.new!r} are one saved run, {new.path}: name another base")
    judgement = judge(compare([saved.run for saved in others], new.run, **thresholds.of_comparison), thresholds)
    colour = parsed.format == "terminal" and not output and colours(sys.stdout)
    deliver(rendered(judgement, parsed.format, top, colour=colour), output)
    if note := append_step_summary(judgement, top):
        print(f"mnistbench: {note}", file=sys.stderr)
    return _CODES[judgement.outcome]
