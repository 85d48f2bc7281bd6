"""The whole verdict for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mnistbench.core.options import options_of
from mnistbench.core.record import finite
from mnistbench.gate.decide.statistics.permutation import CONFIDENCE
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.findings import SCREENING, GateFinding, checkpoints, product
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.explain.texts import causes_of, explanation
from mnistbench.gate.options import Thresholds
from mnistbench.gate.report.outcome import sentence
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.samples.case_names import CaseNames
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.kinds import MEMORY


def json_data(rows: Rows) -> dict[str, Any]:
    """Return the whole verdict for JSON, which docs/schema/gate.json describes.

    Changes are shares (0.05 is 5 % slower).
    """
    verdict = rows.verdict
    header = verdict.header
    names = verdict.names
    decision = verdict.shown
    options = verdict.options
    facts_of_cases = {
        **{
            name: getattr(header.sides, name)
            for name in ("memory", "notes", "implementations", "outlives", "uncompared", "returned")
        },
        "sources": header.sources,
    }
    return {
        "outcome": verdict.outcome,
        "sentence": sentence(rows),
        "reasons": [{"kind": reason.kind, "text": reason.text} for reason in verdict.reasons],
        "no_regression_of": finite(decision.bound),
        "no_regression_of_means": finite(decision.bound_of_means),
        "base": header.base,
        "base_rule": header.base_rule or None,
        "head": header.head,
        "frameworks": header.sides.frameworks,
        "interpreter": header.interpreter,
        "cpu": header.sides.cpu,
        "variables": header.variables,
        "packages": header.sides.packages,
        "resident": header.sides.resident,
        "only_base": header.sides.only_base,
        "only_head": header.sides.only_head,
        "changed": header.sides.changed,
        "generated": header.generated,
        "carried": header.carried,
        "cannot_run": header.sides.base.cannot_run,
        "left_out": header.sides.left_out,
        "remarks": header.remarks,
        **{
            name: {names[case]: value for case, value in facts.items()}
            for name, facts in facts_of_cases.items()
        },
        "reach": {
            "is_known": verdict.reach.is_known,
            "cases": {names[case]: reasons for case, reasons in verdict.reach.reasons.items()},
            # Case -> time of the head / that of the base in the quick look, null if unknown.
            "same": {names[case]: verdict.reach.looks.get(case) for case in verdict.reach.same},
            "uncovered": verdict.reach.uncovered,
            "not_followed": verdict.reach.not_followed,
            "unused": verdict.reach.unused,
            "dependencies": verdict.reach.dependencies,
        },
        "trials": decision.trials,
        "fresh_trials": decision.fresh,
        "shard": str(header.shard) if header.shard.of > 1 and not verdict.recorded.shards else None,
        "shards": [
            {
                "shard": str(part.header.shard),
                "machine": part.header.machine,
                "cases": len(part.header.labels),
            }
            for part in verdict.recorded.shards
        ],
        "seconds": verdict.recorded.seconds,
        "elapsed_seconds": verdict.end.elapsed_s,
        "parts_seconds": verdict.end.parts_s,
        "sufficient_seconds": verdict.recorded.sufficient_s or None,
        "level_of_first_stage": SCREENING,
        "level_of_product": product(decision.shards),
        "checkpoints": checkpoints(options, decision.shards),
        "confidence": CONFIDENCE,
        "thresholds": {name: getattr(options, name) for name in options_of(Thresholds)},
        "thresholds_of_tests": {
            names[case]: asdict(thresholds) for case, thresholds in options.of_marks.items()
        },
        "findings": [
            {
                "verdict": finding.verdict,
                "accepted": finding.reason_to_accept or None,
                "screened": _estimate(finding.screened, names),
                "confirmed": _estimate(finding.confirmed, names) if finding.confirmed else None,
                "least": finite(finding.least),
                **_causes(finding, verdict),
            }
            for finding in decision.reported_findings
        ],
        "groups": _groups(rows),
        "cases": [_estimate(estimate, names) for estimate in decision.cases],
        "once": [_estimate(estimate, names) for estimate in decision.once],
        "operations": [_estimate(estimate, names) for estimate in decision.operations],
        "exact": {names[case]: texts for case, texts in rows.exact_differences.items()},
        "far_trials": [case.text for case in rows.far_trials],
        "reproducers": [
            {
                "case": names[case],
                "kind": kind,
                "name": name,
                "script": reproducer.script or None,
                "why_not": reproducer.why_not,
            }
            for reproducer in verdict.end.reproducers
            for case, kind, name in [reproducer.key]
        ],
        "different": [names[case] for case in verdict.different],
        "not_finite": {names[case]: sides for case, sides in verdict.not_finite.items()},
        "unbounded": [
            {"case": names[estimate.quantity.case], "name": estimate.quantity.name}
            for estimate in decision.unbounded
        ],
        "unmeasurable": {names[case]: why for case, why in verdict.unmeasurable.items()},
        "unprofiled": [names[case] for case in verdict.unprofiled],
    }


def _groups(rows: Rows) -> list[dict[str, Any]]:
    """Return the findings by their likely cause, in the order of the report."""
    position = {
        finding.quantity.key: position
        for position, finding in enumerate(rows.shown.reported_findings)
    }
    return [
        {
            "cause": group.cause_name or None,
            "path": group.cause.path or None if group.cause else None,
            "line": group.cause.line or None if group.cause else None,
            "is_only": group.is_only,
            "findings": [
                position[finding.quantity.key]
                for row in group.rows
                for finding in (row.finding, *row.by_other_clocks)
            ],
        }
        for group in rows.groups
    ]


def _causes(finding: GateFinding, verdict: Verdict) -> dict[str, Any]:
    """Return the functions that explain a finding, the most probable cause first."""
    explained = causes_of(finding, verdict)
    text = explanation(finding, verdict).text
    if explained is None:
        return {"cause": text, "profiled_change_ns": None, "causes": []}
    return {
        "cause": text,
        "profiled_change_ns": explained.change_ns,
        "causes": [
            {
                "function": cause.function,
                "how": cause.profiled.change,
                "change_ns": cause.change_ns,
                "calls": cause.calls.sides,
                "makes": cause.makes
                and {"function": cause.makes.function, "calls": cause.makes.sides},
                "inside": cause.inside,
            }
            for cause in explained.functions
        ],
    }


def _estimate(estimate: Estimate, names: CaseNames) -> dict[str, Any]:
    quantity = estimate.quantity
    return {
        "case": names[quantity.case],
        **{name: getattr(quantity, name) for name in ("kind", "name", "title")},
        "clock": quantity.clock or "profiled",
        "members": quantity.members,
        "replaced": [
            {"operation": replaced.key, "base_ns": replaced.base_ns, "head_ns": replaced.head_ns}
            for replaced in quantity.replaced
        ],
        **{
            f"{side}_{unit}": amount if (unit == "bytes") == (quantity.kind == MEMORY) else None
            for unit in ("ns", "bytes")
            for side, amount in ((BASE, quantity.base), (HEAD, quantity.head))
        },
        "share": quantity.share,
        **{name: finite(getattr(estimate, name)) for name in ("change", "low", "high")},
        "p": estimate.p,
        "trials": estimate.trials,
    }
