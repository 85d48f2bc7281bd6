"""A Judgement as data: JSON for programs, CSV for spreadsheets. Times are integer nanoseconds, shares fractions of 1."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mnistbench import __version__
from mnistbench.compare.diff import OpChange, Side
from mnistbench.compare.exact import facts
from mnistbench.compare.judge import CaseJudgement, Held, Judgement
from mnistbench.core import units
from mnistbench.saved_runs.summary import RunDigest

#: Version of the JSON report.
#:
#: 1 (0.1.0): the first.
SCHEMA = 1


def json_report(judgement: Judgement) -> str:
    """Return the whole judgement as one JSON object."""
    comparison = judgement.comparison
    report = {
        "schema": SCHEMA,
        "mnistbench": __version__,
        "outcome": judgement.outcome,
        "by": comparison.by,
        "base": [_run(run) for run in comparison.bases],
        "now": _run(comparison.now),
        "environment": {name: list(sides) for name, sides in comparison.environment.items()},
        "problems": [problem._asdict() for problem in judgement.problems],
        "new": [case.node_id for case in comparison.only_now],
        "accepted": [{"case": case.case.now.label, "name": held.name} for case, held in judgement.accepted],
        "reason": judgement.criteria.reason,
        "cases": [_case(judged) for judged in judgement.cases],
    }
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def _run(run: RunDigest) -> dict[str, Any]:
    return {"saved_at": run.saved_at, "commit": run.commit, "dirty": run.dirty, "branch": run.branch}


def _case(judged: CaseJudgement) -> dict[str, Any]:
    case = judged.case
    return {
        "case": case.now.label,
        "node_id": case.now.node_id,
        "renamed_from": case.renamed_from,
        "params": asdict(case.now.params) if case.now.params else None,
        "clock": case.clock,
        "remainder_ns": case.remainder_ns,
        "profiler_ns": case.profiler_ns,
        "incomparable": {name: list(sides) for name, sides in case.incomparable.items()},
        "left_out": dict(case.left_out),
        "facts": list(facts(case)),
        "call": _held(judged.call),
        "operations": [_held(held) for held in judged.operations],
    }


def _held(held: Held) -> dict[str, Any]:
    return {
        "name": held.name,
        "kind": held.kind,
        "base_ns": held.base_ns,
        "now_ns": held.now_ns,
        "change_ns": held.change_ns,
        "change": _finite(held.change),
        "verdict": held.verdict,
        "within": _finite(held.within) if held.verdict == "within" else None,
        "threshold": held.threshold,
        "given": held.given,
        "fails": held.fails,
        "noise": held.is_noise,
        "accepted": held.accepted,
        "accept_limit": held.accept_limit,
        "base_runs": len(held.base_runs),
        "rule": "runs" if held.by_runs else "threshold",
        "smallest": _finite(held.smallest),
        "members": [_member(change) for change in held.members],
    }


def _member(change: OpChange) -> dict[str, Any]:
    return {
        "operation": change.name,
        "phase": change.phase,
        "module": change.module,
        "change_ns": change.change_ns,
        "base": _side(change.base, change.base_ns),
        "now": _side(change.now, change.now_ns),
    }


def _side(side: Side | None, ns: int | None) -> dict[str, Any] | None:
    return None if side is None else {"ns": ns, "calls": side.calls, "memory_bytes": side.memory_bytes}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# ---- CSV -------------------------------------------------------------------------------------------------------------

_COLUMNS = ("case", "operation", "phase", "module", "base_ns", "now_ns", "change_ns", "base_calls", "now_calls", "verdict")


def csv_report(judgement: Judgement) -> str:
    """Return a row per operation, then what nothing explains and the call; ``change_ns`` of a case adds up to its call's."""
    return csv_text(_COLUMNS, (row for judged in judgement.cases for row in _csv_rows(judged)))


def _csv_rows(judged: CaseJudgement) -> Iterable[Sequence[Any]]:
    case = judged.case
    for held in judged.operations:
        for change in held.members:
            yield (
                case.now.label, change.name, change.phase, change.module, change.base_ns, change.now_ns, change.change_ns,
                change.base.calls if change.base else None, change.now.calls if change.now else None, held.text,
            )  # fmt: skip
    if judged.operations:
        yield (case.now.label, "(not explained by operations)", "", "", None, None, case.remainder_ns, None, None, "")
    yield (case.now.label, "(call)", "", "", case.base_ns, case.now_ns, case.change_ns, None, None, judged.call.text)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write rows as CSV; a text that a spreadsheet would run as a formula gets a quote before it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = units.printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


# ---- One run, for the tools that drop extra_info ---------------------------------------------------------------------


def github_action_benchmark(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the input of github-action-benchmark's tool ``customSmallerIsBetter``: name, unit, value, range, extra."""
    return json.dumps(list(entries), indent=2, allow_nan=False) + "\n"
