"""The calls of slower operations on one side, as its process sends them.

The process of a side loads this module.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mnistbench.core.compiled.names import FUSED
from mnistbench.core.operation import OpKey
from mnistbench.gate.processes.messages import CaptureJob
from mnistbench.gate.processes.sides.session import TakenCase, run_tests
from mnistbench.gate.processes.sides.side import CaseError, Side
from mnistbench.measuring.provider import imported_provider
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.measuring.observing import run_eagerly, runs_eagerly
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
        keys = {script["script"]: _eager_keys(script["rows"]) for script in wanted}
        rows = _rows(
            side,
            case,
            {key for keys_of_script in keys.values() for key in keys_of_script},
            wanted[0]["iterations"],
        )
        for script in wanted:
            rows_of_script = [(key, rows[key]) for key in keys[script["script"]]]
            chosen = _largest(rows_of_script)
            stored = [row.stored(key[0]) for key, row in chosen]
            why_not = "" if stored else next((row.why_not for _, row in rows_of_script), "")
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


def _eager_keys(keys: Iterable[Sequence[str]]) -> list[OpKey]:
    """Return the rows of eager operations: of a fused kernel those that it computes.

    Those of operations and modules that the kernel's row does not name are left out.
    """
    eager: dict[OpKey, None] = {}
    for name, phase, module in keys:
        if not name.startswith(FUSED):
            eager[name, phase, module] = None
            continue
        operations = name.removeprefix(FUSED).partition(" (")[0].split(", ")
        for operation in operations:
            for part in module.split(" + "):
                eager[f"aten::{operation}", phase, part] = None
    return [*eager]


def _rows(side: Side, case: TakenCase, keys: set[Any], iterations: int) -> Any:
    """Run iterations of a case as before its profiled ones, and return the rows of one.

    The case is built and warmed up. Compiled code runs as it is written.
    """
    side_case = case.make()
    with side.errors_named(), contextlib.ExitStack() as stack:
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
            if imported_provider().compilations() and not runs_eagerly():
                stack.enter_context(run_eagerly())
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
