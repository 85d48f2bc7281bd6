"""The report of ``mnistbench gate --list``: which cases a gate would measure, and why."""

from __future__ import annotations

from collections.abc import Iterable

from mnistbench.core import units
from mnistbench.gate.decide.verdict.reasons import (
    dependencies_text,
    not_followed_texts,
    uncovered_text,
    unused_text,
)
from mnistbench.gate.listing import reasons_with_cases
from mnistbench.gate.report.notes import compared_lines
from mnistbench.gate.samples.raw_samples import GateHeader
from mnistbench.showing.report import Block, Report, document

#: Why a case is measured if nobody looked for what it runs.
ALL_MEASURED = "all cases are measured (--all-cases)"


def report(header: GateHeader) -> Report:
    """Return the report of the header that the samples of a gate would have."""
    reach = header.reach
    sides = header.sides
    sentence = _sentence(header)
    blocks = [
        Block("", tuple(compared_lines(header))),
        Block(
            "To measure",
            tuple(f"{case}: {'; '.join(why)}" for case, why in _reasons(header).items()),
        ),
        Block("The same code", tuple(reach.same)),
        Block("Notes", tuple(_notes(header))),
        Block("Changed code", tuple(_without_case(header))),
        Block("Result", (sentence,)),
    ]
    data = document(
        "cases",
        sentence=sentence,
        base=header.base,
        base_rule=header.base_rule or None,
        head=header.head,
        arguments=header.arguments,
        carried=header.carried,
        cases=[
            {"node_id": case, "label": sides.labels[case], "reasons": why}
            for case, why in _reasons(header).items()
        ],
        same=[*reach.same],
        only_base=sides.only_base,
        only_head=sides.only_head,
        changed=sides.changed,
        unmeasurable=sides.unmeasurable,
        uncovered=reach.uncovered,
        not_followed=reach.not_followed,
        unused=reach.unused,
        dependencies=reach.dependencies,
    )
    return Report(sentence, blocks, data)


def _reasons(header: GateHeader) -> dict[str, tuple[str, ...]]:
    """Return the node ids of the cases to measure, each with the reasons."""
    return {
        case: tuple(header.reach.reasons.get(case, (ALL_MEASURED,))) for case in header.sides.common
    }


def _notes(header: GateHeader) -> Iterable[str]:
    """Yield what is measured as the head has it, and which cases are not compared."""
    yield from (f"{name}: measured on both sides as the head has it" for name in header.carried)
    for what, cases in (
        ("only in the base", header.sides.only_base),
        ("only in the head", header.sides.only_head),
        ("other parameters in the head", header.sides.changed),
    ):
        yield from (f"{case}: {what}" for case in cases)
    yield from reasons_with_cases(header.sides.unmeasurable)


def _without_case(header: GateHeader) -> Iterable[str]:
    """Yield which differences no case shows."""
    reach = header.reach
    yield from (f"{name}: run or used by no case" for name in reach.uncovered)
    yield from (f"{name}: {why}" for name, why in reach.not_followed.items())
    yield from (f"{path}: changed, and not seen in use" for path in reach.unused)
    yield from (
        f"{path}: dependencies differ, which the gate does not install"
        for path in reach.dependencies
    )


def _sentence(header: GateHeader) -> str:
    reach = header.reach
    measured = len(header.sides.common)
    number = units.counted(measured + len(reach.same), "case")
    texts = [f"{measured} of {number} would be measured"]
    if reach.uncovered:
        texts.append(uncovered_text(reach))
    texts += not_followed_texts(reach)
    if reach.unused:
        texts.append(unused_text(reach))
    if reach.dependencies:
        texts.append(dependencies_text(reach))
    return "; ".join(texts)
