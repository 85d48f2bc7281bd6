"""``mnistbench report``: write saved runs or traces as one HTML page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mnistbench.compare.criteria import Criteria
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import Judgement, judge
from mnistbench.compare.settings import SETTINGS, criteria
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.record import Run
from mnistbench.core.units import printable
from mnistbench.page.content import PageRun
from mnistbench.page.html_page import page
from mnistbench.saved_runs.find import all_runs, find
from mnistbench.saved_runs.storage import SavedRun, read_json
from mnistbench.saved_runs.summary import RunSummary
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


def shown_runs(found: Iterable[SavedRun], bases: Sequence[SavedRun], criteria: Criteria) -> tuple[list[PageRun], list[str]]:
    """Read the runs and judge each against the bases or, without any, against the one before it on the page.

    Returns:
        The runs, oldest first, and a line for each file that has nothing to show.

    Raises:
        UsageError: no run has anything to show.
    """
    unique = {saved.path.resolve(): saved for saved in found}
    # Traces have no date, so they keep their order.
    ordered = sorted(unique.values(), key=lambda saved: ("", "") if saved.run.trace else (saved.run.saved_at, saved.path.name))
    shown: list[PageRun] = []
    passed_over = []
    for saved in ordered:
        try:
            run = _whole(saved)
            before = [one.summary for one in shown[-1:]]
            others = [base.run for base in bases if base.path.resolve() != saved.path.resolve()] if bases else before
            judgement = _judgement(others, saved.run, criteria)
        except RecordError as error:
            passed_over.append(str(error))
            continue
        shown.append(
            PageRun(
                name=saved.path.name,
                number=saved.number or saved.path.name,
                run=run,
                summary=saved.run,
                judgement=judgement,
            )
        )
    if not shown:
        several = f"none of {len(ordered)} saved runs can be shown, the first of them: " if len(ordered) > 1 else ""
        advice = "; save a run with: pytest bench --benchmark-autosave" if all(saved.run.plain for saved in ordered) else ""
        raise UsageError(f"{several}{passed_over[0]}{advice}")
    return shown, passed_over


def _whole(saved: SavedRun) -> Run:
    """Read the samples and curves too: the summary leaves them out, and they may be invalid on their own."""
    if saved.whole is not None:
        return saved.whole
    if saved.run.plain:
        raise RecordError(f"{saved.path}: no benchmark in it has an operation record")
    return Run.from_json(read_json(saved.path), str(saved.path))


def _judgement(bases: Sequence[RunSummary], head: RunSummary, criteria: Criteria) -> Judgement | None:
    if not bases:
        return None
    return judge(compare(bases, head, **criteria.of_comparison), criteria)
