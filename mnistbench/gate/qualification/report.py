"""The report of a qualification."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from mnistbench.core import units
from mnistbench.gate.listing import reasons_with_cases
from mnistbench.gate.qualification.resampling import AMOUNTS, signed_change
from mnistbench.gate.qualification.result import Qualification
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table


def report(qualification: Qualification, top: int) -> tuple[str, Report]:
    """Return the outcome of a qualification, PASSED or INCONCLUSIVE, and its report.

    ``top`` limits the rows.
    """
    measured = qualification.measured
    data = qualification.found
    sentence = qualification.sentence()
    elapsed = units.duration(measured.end.elapsed_s * 1e9)
    cases = units.counted(len(measured.header.labels), "case")
    count = f"{cases}, {len(measured.trials)} trials, {elapsed} from start to finish"
    blocks = [
        Block(
            "",
            (
                f"{measured.header.head} on both sides, {measured.header.machine}",
                f"measured: {count}",
            ),
        )
    ]
    if data:
        columns = (
            Column[Any]("case", itemgetter("case")),
            Column[Any]("rules out", itemgetter("rules_out"), units.percent_up),
            *(
                Column[Any](f"finds {signed_change(added)}", partial(_found, number))
                for number, added in enumerate(AMOUNTS)
            ),
        )
        rows = sorted(data["cases"], key=itemgetter("rules_out"), reverse=True)[:top]
        blocks += [
            Block(
                "Cases",
                tables=(
                    Table("cases, the noisiest first; gates that find a slowdown", columns, rows),
                ),
            )
        ]
        blocks += [Block("What limits it", tuple(data["improvements"]))]
    blocks += [Block("Not measured", tuple(reasons_with_cases(measured.unmeasurable)))]
    outcome = PASSED if data and not data["reasons"] else INCONCLUSIVE
    data_of_report = document(
        "qualification",
        outcome=outcome,
        sentence=sentence,
        machine=measured.header.machine,
        found=data or None,
    )
    return outcome, Report(
        sentence, [*blocks, Block("Result", (sentence,))], data_of_report, drawn=True
    )


def _found(position: int, row: Mapping[str, Any]) -> str:
    return f"{row['found'][position]} of {row['gates']}"
