"""``mnistbench report``: write saved runs or traces as one HTML page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mnistbench.compare.settings import SETTINGS, criteria
from mnistbench.core.errors import UsageError
from mnistbench.core.units import printable
from mnistbench.page.html_page import page
from mnistbench.page.runs import shown_runs
from mnistbench.saved_runs.find import all_runs, find
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.showing.arguments import OR_TRACE, add_output, add_settings, add_storage, given
from mnistbench.showing.output import PASSED, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="*",
        help=f"{OR_TRACE}; each run is compared with the one before it (default: the newest run and its predecessor)",
    )  # fmt: skip
    parser.add_argument(
        "--base", metavar="RUN", help="compare each run with this one; several runs of one commit are samples of one base"
    )
    add_output(parser, "report.html")
    add_settings(parser, SETTINGS)
    add_storage(parser)


def run(parsed: argparse.Namespace) -> int:
    """Write the page; return 0.

    Raises:
        MnistbenchError: an option cannot be used, or no run can be shown.
    """
    thresholds = criteria(parsed)
    output = given("--output", parsed.output)
    named = find(Path(parsed.storage), *([parsed.base] if parsed.base is not None else []), *parsed.runs)
    bases = named.pop(0) if parsed.base is not None else []
    if not parsed.runs and any(saved.run.trace for saved in bases):
        raise UsageError(f"--base: {parsed.base!r} is a trace; name the traces to compare with it")
    found = [saved for runs in named for saved in runs] if parsed.runs else _newest_and_predecessor(parsed)
    runs, passed_over = shown_runs(found, bases, thresholds)
    for line in passed_over:
        print(f"mnistbench: passed over: {printable(line)}", file=sys.stderr)
    write(Path(output), page(runs))
    kind = "trace" if runs[-1].summary.trace else "saved run"
    print(f"{len(runs)} {kind}{'s' if len(runs) > 1 else ''}: {printable(output)}")
    return PASSED


def _newest_and_predecessor(parsed: argparse.Namespace) -> list[SavedRun]:
    """Return the last two runs that have operation records; if none has, the last two."""
    runs = all_runs(Path(parsed.storage))
    return [saved for saved in runs if not saved.run.plain][-2:] or runs[-2:]
