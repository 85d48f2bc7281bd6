"""The calls of slower operations on one side, as its process sends them.

The process of a side loads this module.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mnistbench.gate.processes.messages import CaptureJob
from mnistbench.gate.processes.sides.session import TakenCase, run_tests
from mnistbench.gate.processes.sides.side import CaseError, Side
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.reproducers.capture import capture as capture_calls
from mnistbench.suite.reproducers.script import VALUES

#: Most rows of a script: an operation is one row, a group of operations may be many. Those with the
#: most elements are taken, for the reason in ``capture.ENOUGH``.
MAX_ROWS = 6


def capture(job: CaptureJob, say: Callable[..., None]) -> None:
    """Send the rows of each script, or why there are none.

    The message ``captured`` has for each name of a script ``rows``, as ``CapturedRow.stored``
    returns them, ``why_not`` (empty if there are rows) and ``threads`` of the case. Values that a
    script reads are written to the folder ``values`` of the job.
    """
    side = Side.of(job)
    cases = {wanted["case"] for wanted in job.wanted}
    captured: dict[str, Any] = {}

    def take(case: TakenCase) -> None:
        wanted = [script for script in job.wanted if script["case"] == case.node_id]
        rows = _rows(
            side,
            case,
            {tuple(key) for script in wanted for key in script["rows"]},
            wanted[0]["iterations"],
        )
        for script in wanted:
            chosen = _largest([(tuple(key), rows[tuple(key)]) for key in script["rows"]])
            stored = [row.stored(key[0]) for key, row in chosen]
            why_not = (
                "" if stored else next((rows[tuple(key)].why_not for key in script["rows"]), "")
            )
            captured[script["script"]] = {
                "rows": stored,
                "why_not": why_not,
                "threads": side.threads_of(case.params),
            }
            _save(chosen, Path(job.values) / f"{script['script']}{VALUES[side.name]}")

    failed = run_tests(
        side,
        job.arguments,
        lambda node_ids: [node_id for node_id in node_ids if node_id in cases],
        take,
    )
    if failed:
        raise CaseError(side.name, *next(iter(failed.items())))
    say(captured=captured)


def _rows(side: Side, case: TakenCase, keys: set[Any], iterations: int) -> Any:
    """Run iterations of a case as before its profiled ones, and return the rows of one.

    The case is built and warmed up.
    """
    side_case = case.make()
    with side.errors_named():
        side_case.build()
        for reset, number in (
            (lambda: None, WARMUP_ITERATIONS),
            (side_case.reset, max(WARMUP_ITERATIONS, iterations)),
        ):
            reset()
            for _ in range(number):
                side_case.prepare()
                side_case()
                side_case.finish()
        with side_case.marked() as run:
            return capture_calls(run, contextlib.nullcontext(), keys, side_case.device)


def _largest(rows: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the rows with calls, the largest first, each call once.

    ``aten::copy_`` may run in the call of ``aten::clone``.
    """
    chosen: list[tuple[Any, Any]] = []
    taken_calls: dict[int, Any] = {}  # position of a call -> the call
    for key, row in sorted(
        (item for item in rows if item[1].calls), key=lambda item: (-item[1].elements, item[0])
    ):
        rest = row.without(taken_calls)
        if (
            rest.calls
            and len([chosen_row for _, chosen_row in chosen if chosen_row.calls]) == MAX_ROWS
        ):
            continue
        for call in row.calls:
            if call.position in taken_calls:
                taken_calls[call.position].self_ns += call.self_ns
        chosen.append((key, rest))
        taken_calls |= {call.position: call for call in rest.calls}
    return chosen


def _save(rows: list[tuple[Any, Any]], path: Path) -> None:
    values = {
        f"{position}.{place}.{number}": tensor
        for position, (_, row) in enumerate(rows)
        for place, call in enumerate(row.calls)
        for number, tensor in call.saved.items()
    }
    if values:
        sys.modules["torch"].save(values, path)
