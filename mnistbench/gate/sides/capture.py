"""Describe the calls that rows of a side's operation tables consist of, in its process. Does not import torch by itself."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mnistbench.gate.reproducers.script import VALUES
from mnistbench.gate.sides.case import WARMUP_CALLS
from mnistbench.gate.sides.side import Side, TakenCase

#: Most rows of a script: an operation is one row, a group of operations may be many. Those with the most elements are taken, as
#: times in one iteration are too noisy: the rows of the two sides would often be others.
MOST_ROWS = 6


def capture(job: dict[str, Any], say: Callable[..., None]) -> None:
    """Send the rows of each script, or why there are none.

    ``capture`` of the job is a list of objects: ``script`` (name of the file without its suffix), ``case`` (node id), and
    ``rows``, the keys of the operation table. The message ``captured`` has for each name of a script ``rows``, as
    ``reproducers.capture.Row.stored`` returns them, ``why_not`` (empty if there are rows) and ``threads`` of the case. Values
    that a script reads are written to ``folder`` of the job.
    """
    side = Side(job["side"], Path(job["tree"]), Path(job["directory"]), job["home"], job["threads"])
    cases = {wanted["case"] for wanted in job["capture"]}
    found: dict[str, Any] = {}

    def take(case: TakenCase) -> None:
        wanted = [one for one in job["capture"] if one["case"] == case.node_id]
        rows = _rows(side, case, {tuple(key) for one in wanted for key in one["rows"]})
        for one in wanted:
            chosen = _largest([(tuple(key), rows[tuple(key)]) for key in one["rows"]])
            stored = [row.stored(key[0]) for key, row in chosen]
            why_not = "" if stored else next((rows[tuple(key)].why_not for key in one["rows"]), "")
            found[one["script"]] = {"rows": stored, "why_not": why_not, "threads": side.threads_of(case.params)}
            _save(chosen, Path(job["folder"]) / f"{one['script']}{VALUES[side.name]}")

    side.run(job["arguments"], lambda node_ids: [node_id for node_id in node_ids if node_id in cases], take)
    say(captured=found)


def _rows(side: Side, case: TakenCase, keys: set[Any]) -> Any:
    """Build and warm up a case as before its profiled iterations, and return the rows of one iteration."""
    made = case.make()
    with side.errors_named():
        made.build()
        for reset in (lambda: None, made.reset):
            reset()
            for _ in range(WARMUP_CALLS):
                made.prepare()
                made()
                made.finish()
        with made.marked() as run:
            return side.load("mnistbench.gate.reproducers.capture").capture(run, contextlib.nullcontext(), keys, made.device)


def _largest(rows: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the rows with calls, the largest first, each call once: ``aten::copy_`` may run in the call of ``aten::clone``."""
    found: list[tuple[Any, Any]] = []
    taken: dict[int, Any] = {}  # position of a call -> the call
    for key, row in sorted((item for item in rows if item[1].calls), key=lambda item: (-item[1].elements, item[0])):
        others = row.without(taken)
        if others.calls and len([one for _, one in found if one.calls]) == MOST_ROWS:
            continue
        for position, call in zip(row.positions, row.calls, strict=True):
            if position in taken:
                taken[position].self_ns += call.self_ns
        found.append((key, others))
        taken.update(zip(others.positions, others.calls, strict=True))
    return found


def _save(rows: list[tuple[Any, Any]], path: Path) -> None:
    values = {
        f"{position}.{place}.{number}": tensor
        for position, (_, row) in enumerate(rows)
        for place, call in enumerate(row.calls)
        for number, tensor in call.saved.items()
    }
    if values:
        sys.modules["torch"].save(values, path)
