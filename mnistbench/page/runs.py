"""Saved runs -> the runs that the HTML page shows, each with its samples and its judgement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mnistbench.compare.criteria import Criteria
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import Judgement, judge
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.record import Run
from mnistbench.saved_runs.storage import SavedRun, read_json
from mnistbench.saved_runs.summary import RunSummary


@dataclass(frozen=True)
class Shown:
    """A saved run with its samples, and its judgement against other runs."""

    name: str  # of its file
    number: str  # of its file, or its name
    run: Run
    summary: RunSummary
    judgement: Judgement | None


def shown_runs(found: Iterable[SavedRun], bases: Sequence[SavedRun], criteria: Criteria) -> tuple[list[Shown], list[str]]:
    """Read the runs and judge each against the bases or, without any, against the one before it on the page.

    Returns:
        The runs, oldest first, and a line for each file that has nothing to show.

    Raises:
        UsageError: no run has anything to show.
    """
    unique = {saved.path.resolve(): saved for saved in found}
    # Traces have no date, so they keep their order.
    ordered = sorted(unique.values(), key=lambda saved: ("", "") if saved.run.trace else (saved.run.saved_at, saved.path.name))
    shown: list[Shown] = []
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
            Shown(
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
