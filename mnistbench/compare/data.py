"""Judgement -> JSON for programs and CSV for spreadsheets. Times are integer nanoseconds, shares are fractions of 1."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mnistbench import __version__
from mnistbench.compare.diff import CaseComparison, OpChange, Side
from mnistbench.compare.exact import exact_differences
from mnistbench.compare.judge import CaseJudgement, CheckedQuantity, Judgement
from mnistbench.compare.report import machines
from mnistbench.saved_runs.summary import RunSummary
from mnistbench.showing.table import csv_text

#: Version of the JSON report, which docs/schema/compare-2.json describes. Raise it, and add a schema file, if a program that
#: reads the report could fail or be misled: a key is removed or renamed, or its meaning, type or unit changes. For a new key
#: or value, change the file of this version.
#:
#: 1: the first.
#: 2: the outcome "held" is "passed", "facts" of a case are "exact", its "call" is "iteration", also as name and kind.
SCHEMA = 2


def json_report(judgement: Judgement) -> str:
    """Return the whole judgement as one JSON object."""
    comparison = judgement.comparison
    report = {
        "schema": SCHEMA,
        "mnistbench": __version__,
        "outcome": judgement.outcome,
        "by": comparison.by,
        "base": [_run(run) for run in comparison.bases],
        "head": _run(comparison.head),
        "environment": {name: list(sides) for name, sides in comparison.environment.items()},
        "problems": [problem._asdict() for problem in judgement.problems],
        "new": [case.node_id for case in comparison.only_head],
        "accepted": [{"case": case.case.head.label, "name": checked.name} for case, checked in judgement.accepted],
        "reason": judgement.criteria.reason,
        "cases": [_case(judged) for judged in judgement.cases],
    }
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def _run(run: RunSummary) -> dict[str, Any]:
    return {name: getattr(run, name) for name in ("saved_at", "commit", "dirty", "branch", "trace")}


def _case(judged: CaseJudgement) -> dict[str, Any]:
    case = judged.case
    return {
        "case": case.head.label,
        "node_id": case.head.node_id,
        "renamed_from": case.renamed_from,
        "params": asdict(case.head.params) if case.head.params else None,
        "clock": case.clock,
        "busy": _busy(case),
        "remainder_ns": case.remainder_ns,
        "profiler_ns": case.profiler_ns,
        "incomparable": {name: list(sides) for name, sides in case.incomparable.items()},
        "across_machines": {name: list(sides) for name, sides in case.across_machines.items()},
        "left_out": dict(case.left_out),
        "exact": list(exact_differences(case)),
        "iteration": _checked(judged.iteration),
        "operations": [_checked(checked) for checked in judged.operations],
    }


def _busy(case: CaseComparison) -> dict[str, int] | None:
    if not case.has_busy_time:
        return None
    return {"base_ns": case.whole_base_ns, "head_ns": case.whole_head_ns, "change_ns": case.whole_change_ns}


def _checked(checked: CheckedQuantity) -> dict[str, Any]:
    return {
        "name": checked.name,
        "kind": checked.kind,
        "base_ns": checked.base_ns,
        "head_ns": checked.head_ns,
        "change_ns": checked.change_ns,
        "change": _finite(checked.change),
        "verdict": checked.verdict,
        "within": _finite(checked.within) if checked.verdict == "within" else None,
        "threshold": checked.threshold,
        "given": checked.given,
        "fails": checked.fails,
        "noise": checked.is_noise,
        "accepted": checked.accepted,
        "accept_limit": checked.accept_limit,
        "base_runs": len(checked.base_runs),
        "rule": "runs" if checked.by_runs else "threshold",
        "smallest": _finite(checked.smallest),
        "members": [_member(change) for change in checked.members],
    }


def _member(change: OpChange) -> dict[str, Any]:
    return {
        "operation": change.name,
        "phase": change.phase,
        "module": change.module,
        "change_ns": change.change_ns,
        "base": _side(change.base, change.base_ns),
        "head": _side(change.head, change.head_ns),
    }


def _side(side: Side | None, ns: int | None) -> dict[str, Any] | None:
    return None if side is None else {"ns": ns, "calls": side.calls, "memory_bytes": side.memory_bytes}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# ---- CSV -------------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "case", "operation", "phase", "module", "base_ns", "head_ns", "change_ns", "base_calls", "head_calls", "verdict",
    "across_machines",
)  # fmt: skip


def csv_report(judgement: Judgement) -> str:
    """Return a row per operation, the unexplained rest and the iteration, whose ``change_ns`` is the sum of the others.

    On an accelerator a row of its busy time is that sum, and the iteration has the elapsed time.
    """
    return csv_text(_COLUMNS, (row for judged in judgement.cases for row in _csv_rows(judged)))


def _csv_rows(judged: CaseJudgement) -> Iterable[Sequence[Any]]:
    case, across = judged.case, machines(judged.case)
    for checked in judged.operations:
        for change in checked.members:
            yield (
                case.head.label, change.name, change.phase, change.module, change.base_ns, change.head_ns, change.change_ns,
                change.base.calls if change.base else None, change.head.calls if change.head else None, checked.text,
                across,
            )  # fmt: skip
    if judged.operations:
        yield (case.head.label, "(not explained by operations)", "", "", None, None, case.remainder_ns, None, None, "", across)
    if case.has_busy_time and not case.is_busy_time:
        busy = (case.whole_base_ns, case.whole_head_ns, case.whole_change_ns)
        yield (case.head.label, "(device busy time)", "", "", *busy, None, None, "", across)
    text = judged.iteration.text
    yield (case.head.label, "(call)", "", "", case.base_ns, case.head_ns, case.change_ns, None, None, text, across)


# ---- One run, for tools that ignore extra_info -----------------------------------------------------------------------


def github_action_benchmark(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the input of github-action-benchmark's tool ``customSmallerIsBetter``: name, unit, value, range, extra."""
    return json.dumps(list(entries), indent=2, allow_nan=False) + "\n"
