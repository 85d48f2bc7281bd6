"""``mnistbench report``: write saved runs or traces as one HTML page."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnistbench.compare.criteria import Criteria
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.core import options, units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.options import read, tool_table
from mnistbench.core.units import printable
from mnistbench.page.run_view import PageRun
from mnistbench.saved_runs.references import OR_TRACE, all_runs, find
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.showing.output import EXIT_PASSED, deliver_text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of the command."""

    runs: tuple[str, ...] = options.argument(
        "RUN",
        str,
        (
            f"{OR_TRACE}; each run is compared with the one before it (default: the newest run "
            "and its predecessor)"
        ),
        many=True,
        required=False,
    )
    base: str | None = options.option(
        "--base",
        str,
        None,
        "compare each run with this one; several runs of one commit are samples of one base",
        "RUN",
    )
    output: Path = options.output("report.html")
    storage: Path = options.storage()


def run(settings: Settings) -> int:
    """Write the page; return 0.

    Raises:
        MnistbenchError: an option cannot be used, or no run can be shown.
    """
    from mnistbench.page.runs_page import runs_page  # it loads jinja2

    named = find(settings.storage, *([settings.base] if settings.base else []), *settings.runs)
    bases = named.pop(0) if settings.base else []
    if not settings.runs and any(saved.run.trace for saved in bases):
        raise UsageError(
            f"--base: {settings.base!r} is a trace; name the traces to compare with it"
        )
    chosen = [saved for saved_runs in named for saved in saved_runs]
    if not settings.runs:
        everything = all_runs(settings.storage, "cases")
        chosen = [saved for saved in everything if saved.run.cases][-2:] or everything[-2:]
    # As for mnistbench compare, of which the project's file may have thresholds.
    criteria = read(Criteria, {}, *tool_table(Criteria))
    runs, skipped = shown_runs(chosen, bases, criteria)
    for line in skipped:
        print(f"mnistbench: skipped: {printable(line)}", file=sys.stderr)
    deliver_text(runs_page(runs), settings.output)
    kind = "trace" if runs[-1].saved.run.trace else "saved run"
    print(f"{units.counted(len(runs), kind)}: {printable(str(settings.output))}")
    return EXIT_PASSED


def shown_runs(
    candidates: Iterable[SavedRun], bases: Sequence[SavedRun], criteria: Criteria
) -> tuple[list[PageRun], list[str]]:
    """Read the runs and judge each against the bases.

    Without a base, a run is compared with the one before it on the page.

    Returns:
        The runs, oldest first, and a line for each file that has nothing to show.
    """
    unique = {saved.path.resolve(): saved for saved in candidates}
    # Traces have no date, so they keep their order.
    ordered = sorted(
        unique.values(),
        key=lambda saved: ("", "") if saved.run.trace else (saved.run.saved_at, saved.path.name),
    )
    shown: list[PageRun] = []
    skipped = []
    for saved in ordered:
        try:
            run = saved.whole()  # its samples and curves may be invalid on their own
            if not run.cases:
                raise RecordError(  # noqa: TRY301
                    f"{saved.path}: has no benchmark with a time; name another run"
                )
            if bases:
                base_runs = [
                    base.run for base in bases if base.path.resolve() != saved.path.resolve()
                ]
            else:
                base_runs = [page_run.run for page_run in shown[-1:]]
            judgement = (
                judge(compare(base_runs, run, **criteria.of_comparison), criteria)
                if base_runs
                else None
            )
        except RecordError as error:
            skipped.append(str(error))
            continue
        shown.append(PageRun(saved, run, judgement))
    if not shown:
        several = (
            f"none of {len(ordered)} saved runs can be shown, the first of them: "
            if len(ordered) > 1
            else ""
        )
        raise UsageError(f"{several}{skipped[0]}")
    return shown, skipped
