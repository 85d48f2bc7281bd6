"""A verdict and its trials -> a script for each operation that was found slower."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mnistbench.core.compiled.names import COMPILED, LOOKUP
from mnistbench.core.errors import MnistbenchError
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.decide.verdict.decision import Decision
from mnistbench.gate.decide.verdict.estimates import as_shown
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.measure.rounds import Rounds
from mnistbench.gate.processes.messages import CaptureJob
from mnistbench.gate.processes.starting import GateError, TrialPlan, side_processes
from mnistbench.gate.samples.raw_samples import GateHeader, Reproducer, Trial
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.kinds import ADDED, OUTSIDE_KIND
from mnistbench.suite.reproducers.script import (
    VALUES,
    ScriptOrigin,
    file_name,
    make_same_calls,
    script,
)

#: Rows of each side, and a folder for values -> what :func:`capture_on_sides` returns.
Capture = Callable[
    [Mapping[str, Sequence[Mapping[str, Any]]], Path], Mapping[str, Mapping[str, Any]]
]

#: Most iterations before the one that is captured. The values of a training vary in its first
#: iterations, and with them the time of an operation: in steps of ConvNet, 48 to 86 % of the
#: argument of max-pooling are zeros in the first 20, 59 to 71 % later.
_MAX_ITERATIONS = 50

#: Largest change in the header of a script, which is JSON.
_LARGEST = 1e6

#: Why a quantity of OUTSIDE_KIND has no script.
_NO_OPERATION = (
    "it is no operation of torch, but time of Python and autograd, of the accelerator's runtime, "
    "or of kernels that belong to no operation"
)


def reproducers_of(verdict: Verdict, rounds: Rounds, folder: Path) -> tuple[Reproducer, ...]:
    """Write a script for each operation that was found slower."""
    slower = slower_operations(verdict.decision)
    if not slower:
        return ()
    rounds.progress.say("writing scripts that reproduce the slower operations")

    def capture(
        wanted: Mapping[str, Sequence[Mapping[str, Any]]], values: Path
    ) -> dict[str, Mapping[str, Any]]:
        if rounds.budget.start_s > rounds.budget.left_s:
            raise GateError("the budget leaves no time for it; increase --budget")
        return capture_on_sides(rounds.plan, rounds.seed, wanted, values, rounds.log)

    return write(verdict.header, rounds.recorded.trials, slower, capture, folder)


def slower_operations(decision: Decision) -> list[GateFinding]:
    """Return the operations that were found slower; also those whose slowdown is accepted."""
    return [
        finding
        for finding in decision.findings
        if finding.is_slower and finding.quantity.is_operation
    ]


def write(
    gate: GateHeader,
    trials: Sequence[Trial],
    findings: Sequence[GateFinding],
    capture: Capture,
    folder: Path,
) -> tuple[Reproducer, ...]:
    """Capture the calls of operations on both sides and write their scripts.

    As in the trials, iterations precede those whose calls count. A MnistbenchError of ``capture``
    is the reason why there are no scripts. The folder is made if there is one.
    """
    operations = [finding for finding in findings if finding.quantity.kind != OUTSIDE_KIND]
    titles = [file_name(finding.quantity.title) for finding in operations]
    names = {  # with the name of the case if operations of several cases have one title
        title
        if titles.count(title) == 1
        else f"{title}-{file_name(gate.names[finding.quantity.case])}": finding
        for title, finding in zip(titles, operations, strict=True)
    }
    captured: Mapping[str, Mapping[str, Any]] = {}
    why_none = ""
    if names:
        wanted = {
            side: [
                {
                    "script": name,
                    "case": finding.quantity.case,
                    "rows": _rows(finding.quantity, side),
                    "iterations": _iterations(trials, finding.quantity.case),
                }
                for name, finding in names.items()
            ]
            for side in (BASE, HEAD)
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            captured = capture(wanted, folder.resolve())
        except MnistbenchError as error:
            why_none = f"its calls could not be captured: {error}"
        except OSError as error:
            why_none = f"{folder} cannot be written ({error.strerror})"
        except KeyboardInterrupt:
            why_none = "interrupted"
    name_of_key = {finding.quantity.key: name for name, finding in names.items()}
    return tuple(
        _reproducer(
            gate,
            finding,
            name_of_key.get(finding.quantity.key, ""),
            captured,
            folder,
            why_none,
        )
        for finding in findings
    )


def capture_on_sides(
    plan: TrialPlan,
    seed: int,
    wanted: Mapping[str, Sequence[Mapping[str, Any]]],
    folder: Path,
    log: Path,
) -> dict[str, Mapping[str, Any]]:
    """Describe calls of operations on each side in a process of its own, both at the same time.

    ``wanted`` are the rows of operation tables by side, as a job has them; ``folder`` receives
    values.

    Returns:
        Side -> what ``side_calls.capture`` sends.

    Raises:
        GateError: a side cannot be run.
    """
    with side_processes(plan.setup, seed, log) as processes:
        for side, process in processes.items():
            process.begin(
                CaptureJob(
                    **plan.setup.job(side, plan.selection, seed),
                    framework="torch",
                    wanted=wanted[side],
                    values=str(folder),
                )
            )
        rows: Any = Mapping[str, Any]
        return {side: process.receive("captured", rows) for side, process in processes.items()}


def _iterations(trials: Sequence[Trial], case: str) -> int:
    """Return the iterations of a case before its profiled ones, at most _MAX_ITERATIONS.

    The same on both sides.
    """
    builds = (build[HEAD] for trial in trials for build in trial.cases.get(case, ()))
    return min(_MAX_ITERATIONS, next((build.untraced_calls for build in builds), 0))


def _rows(quantity: Quantity, side: str) -> list[list[str]]:
    """Return what is captured on a side: of a replaced operation those that the side calls."""
    if not quantity.replaced:
        return [list(key) for key in quantity.members]
    times = {
        operation.key: operation.base_ns if side == BASE else operation.head_ns
        for operation in quantity.replaced
    }
    return [list(key) for key, ns in times.items() if ns is not None]


def _reproducer(
    gate: GateHeader,
    finding: GateFinding,
    name: str,
    captured: Mapping[str, Mapping[str, Any]],
    folder: Path,
    why_none: str,
) -> Reproducer:
    quantity = finding.quantity
    key = quantity.key
    if why_not := _NO_OPERATION if quantity.kind == OUTSIDE_KIND else why_none:
        return Reproducer(key, "", why_not)
    if {name for name, _, _ in quantity.members} <= {COMPILED, LOOKUP}:
        return Reproducer(key, "", "it is time of compiled code outside its kernels")
    base, head = (
        captured[side].get(name, {"rows": (), "why_not": "its test did not run again"})
        for side in (BASE, HEAD)
    )
    for side, side_captured in ((BASE, base), (HEAD, head)):
        # Whose operations the base need not have.
        if not side_captured["rows"] and not (side == BASE and quantity.kind == ADDED):
            where = "" if base["why_not"] == head["why_not"] else f" in the {side}"
            return Reproducer(key, "", f"{side_captured['why_not']}{where}")
    needs_base = not make_same_calls(base["rows"], head["rows"])
    text = script(
        _origin(gate, finding, head["threads"]), head["rows"], base["rows"] if needs_base else None
    )
    path = folder / f"{name}.py"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return Reproducer(key, "", f"{path} cannot be written ({error.strerror})")
    if not needs_base:
        with contextlib.suppress(OSError):
            (folder / f"{name}{VALUES[BASE]}").unlink(missing_ok=True)
    return Reproducer(key, str(path), "")


def _origin(gate: GateHeader, finding: GateFinding, threads: int) -> ScriptOrigin:
    best = as_shown(finding.best)
    quantity = finding.best.quantity
    return ScriptOrigin(
        title=finding.quantity.title,  # as in the report
        case=gate.names[quantity.case],
        change=min(best.change, _LARGEST),
        low=min(best.low, _LARGEST),
        high=min(best.high, _LARGEST),
        base_ns=best.quantity.base,
        head_ns=best.quantity.head,
        base=gate.base,
        head=gate.head,
        torch=gate.sides.frameworks.get("torch", ""),
        packages=gate.sides.packages,
        variables=gate.variables,
        threads=threads,
        case_ns=max(quantity.base, quantity.head) / quantity.share
        if quantity.kind == ADDED
        else 0.0,
    )
