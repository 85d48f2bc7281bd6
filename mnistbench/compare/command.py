"""``mnistbench compare``: compare saved runs, or two traces, and judge them by thresholds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.compare.output import append_step_summary, rendered
from mnistbench.compare.settings import SETTINGS
from mnistbench.core.errors import UsageError
from mnistbench.core.params import DTYPES, STEPS
from mnistbench.saved_runs.find import criteria, find
from mnistbench.saved_runs.summary import RunSummary
from mnistbench.showing.arguments import OR_TRACE, add_format, add_output, add_settings, add_storage, add_top, given, whole
from mnistbench.showing.output import PASSED, REGRESSED, UNJUDGED, deliver_text
from mnistbench.showing.terminal import colours

#: Parameters that two compared cases may differ in, and their values.
_BETWEEN: dict[str, tuple[object, ...]] = {"step": STEPS, "dtype": DTYPES, "compile": (False, True)}

_CODES = {"none": PASSED, "passed": PASSED, "regressed": REGRESSED, "unjudged": UNJUDGED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("base", metavar="BASE", help=f"{OR_TRACE}; several runs of one commit are samples of one base")
    parser.add_argument("head", metavar="HEAD", help=f"{OR_TRACE}; of several runs the newest is compared")
    add_settings(parser, SETTINGS)
    parser.add_argument(
        "--between",
        metavar="NAME=A,B",
        help="compare the cases of BASE in which a parameter is A with those of HEAD in which it is B; BASE and HEAD may be "
        f"one run; parameters: {', '.join(_BETWEEN)}",
    )
    add_top(parser)
    add_format(parser, "csv")
    add_output(parser)
    add_storage(parser)


def _between(text: str, bases: list[RunSummary], head: RunSummary) -> tuple[list[RunSummary], RunSummary]:
    """Return the cases of each side in which a parameter has the value of that side, with the value of the new side.

    Raises:
        UsageError: the text is not a parameter with two values, or a side has no such case.
    """
    name, _, values = text.partition("=")
    known = {str(value): value for value in _BETWEEN.get(name, ())}
    chosen = [known[value] for value in values.split(",") if value in known]
    if len(chosen) != 2 or values.count(",") != 1 or chosen[0] == chosen[1]:
        choices = " or ".join(f"{each}={','.join(map(str, values))}" for each, values in _BETWEEN.items())
        raise UsageError(f"--between: {text!r} cannot be used; give {choices}")
    first, second = chosen
    sides = [run.where(name, first, second) for run in bases], head.where(name, second, second)
    for value, side, runs in ((first, "BASE", sides[0]), (second, "HEAD", [sides[1]])):
        if not any(run.cases for run in runs):
            raise UsageError(f"--between: {side} has no case with {name} {value}: measure it, or name another run")
    return sides


def run(parsed: argparse.Namespace) -> int:
    """Print the comparison; return 0 passed, 1 regressed, 2 undecided.

    Raises:
        MnistbenchError: an option cannot be used, or a run cannot be read.
    """
    thresholds = criteria(parsed)
    top, output = whole("--top", parsed.top, 1), given("--output", parsed.output)
    bases, candidates = find(parsed, parsed.base, parsed.head)
    new = candidates[-1]
    kind = "trace" if new.run.trace else "saved run"
    if new.run.trace and parsed.between is not None:
        raise UsageError(f"--between: {parsed.between!r} cannot be used for traces, which have no parameters; leave it out")
    if parsed.between is None:
        others = [saved.run for saved in bases if saved.path.resolve() != new.path.resolve()]
        if not others:
            raise UsageError(f"{parsed.base!r} and {parsed.head!r} are one {kind}, {new.path}: name another base")
        head = new.run
    else:
        others, head = _between(parsed.between, [saved.run for saved in bases], new.run)
    judgement = judge(compare(others, head, **thresholds.of_comparison), thresholds)
    colour = parsed.format == "terminal" and not output and colours(sys.stdout)
    deliver_text(rendered(judgement, parsed.format, top, colour=colour), Path(output) if output else None)
    if note := append_step_summary(judgement, top):
        print(f"mnistbench: {note}", file=sys.stderr)
    return _CODES[judgement.outcome]
