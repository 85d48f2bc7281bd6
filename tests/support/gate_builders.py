"""What trials of a gate leave.

One ordinary object of each kind, with keyword overrides, and whole series of trials.

Nothing here draws from numpy: golden files must not change with its version.
"""

from __future__ import annotations

import dataclasses
import math
import random
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mnistbench.core.compiled.compilation import Compilation
from mnistbench.core.operation import OUTSIDE, OpKey
from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.decide.statistics.quantities import (
    CaseTime,
    OneTimeCost,
    OperationTime,
    Quantity,
)
from mnistbench.gate.decide.verdict.estimates import Estimate
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.listing import ListedCase, Listing, Listings
from mnistbench.gate.processes.messages import Selection
from mnistbench.gate.processes.sides.turns import Turns
from mnistbench.gate.processes.starting import Setup, TrialPlan, stage_home
from mnistbench.gate.report.report import report
from mnistbench.gate.samples.case_profile import CallPath, CaseProfile, ProfiledFunction
from mnistbench.gate.samples.raw_samples import (
    COMPLETE,
    End,
    GateHeader,
    Operation,
    Recorded,
    SideSample,
    Trial,
    append,
    create,
)
from mnistbench.gate.survey.side_surveys import (
    SurveyRequest,
    SurveyResult,
    survey_in_processes,
)
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.kinds import ITERATION, MEAN, MEMORY, ONCE
from mnistbench.showing.output import render

CASE = "bench/test_step.py::test_step[convnet-b16-cpu]"
LABEL = "step convnet-b16-cpu on digits"

#: Limits that the noise of a busy machine does not reach.
GENEROUS = ("--threshold=150%", "--op-threshold=150%", "--once-threshold=300%")

#: Pairs of calls, and profiled iterations, of a build.
PAIRS = 5

MM: OpKey = ("aten::mm", "forward", "fc1")
CONV: OpKey = ("aten::mkldnn_convolution", "forward", "conv2")
ADD: OpKey = ("aten::add_", "optimizer", "")
CLONE: OpKey = ("aten::clone", "forward", "fc1")
GEMM: OpKey = ("aten::_scaled_mm", "forward", "fc1")
TINY: OpKey = ("aten::t", "forward", "fc1")
FORWARD: OpKey = (OUTSIDE, "forward", "")
BETWEEN: OpKey = (OUTSIDE, "", "")
ENGINE: OpKey = ("autograd::engine::evaluate_function: AddmmBackward0", "backward", "fc1")


# ---- Two sides -----------------------------------------------------------------------------------


def plan(folder: Path, *arguments: str) -> TrialPlan:
    """The plan of trials whose sides are the folders ``base`` and ``head`` of a folder.

    They may be filled later.
    """
    trees = {}
    for side in (BASE, HEAD):
        (folder / side).mkdir()
        trees[side] = Tree(folder / side, folder / side, side)
    setup = Setup(
        trees=trees,
        pythons=dict.fromkeys(trees, sys.executable),
        variables={BASE: {}, HEAD: {}},
        home=stage_home(folder),
        repository=folder / "nowhere",
    )
    return TrialPlan(setup, Selection(arguments))


def with_setup(plan: TrialPlan, **changes: Any) -> TrialPlan:
    """The plan with another setup."""
    return replace(plan, setup=replace(plan.setup, **changes))


def surveyed(plan: TrialPlan, folder: Path, **changes: Any) -> SurveyResult:
    """What a survey of both sides finds; changes are those of the request."""
    request = SurveyRequest(setup=plan.setup, selection=plan.selection, **changes)
    return survey_in_processes(request, 1, folder / "log")


# ---- Samples -------------------------------------------------------------------------------------


def run_whole(trial: Any) -> Any:
    """Return the result of a trial, from its start to its end."""
    trial.ready()
    return trial.measure()


def both(
    work: Callable[[Turns, str], Any],
    first: str = BASE,
    after_turn: Callable[[str], None] = lambda _: None,
) -> list[Any]:
    """Run ``work(turns, name)`` for both sides at the same time, in threads.

    Call ``after_turn(name)`` after each turn of a side. Return both results.
    """
    peers = socket.socketpair()

    def run(name: str, peer: socket.socket) -> Any:
        with closing(Turns(name, peer, first, lambda: after_turn(name))) as turns:
            return work(turns, name)

    with ThreadPoolExecutor(2) as pool:
        return [
            future.result(10)
            for future in [
                pool.submit(run, *side) for side in zip((BASE, HEAD), peers, strict=True)
            ]
        ]


def operation(ns: int | Sequence[int] = 1_000_000, **changes: Any) -> Operation:
    """One that is called once per iteration and keeps no memory."""
    times = (ns,) * PAIRS if isinstance(ns, int) else tuple(ns)
    return Operation(
        **{"self_ns": times, "calls": 1.0, "memory_bytes": 0, "kernels": (), **changes}
    )


def side(
    wall: int | Sequence[int] = 4_000_000,
    operations: Mapping[OpKey, Any] | None = None,
    **changes: Any,
) -> SideSample:
    """A side whose calls took this long; operations are given by their time, or whole.

    ``times`` has the times by all clocks.
    """
    times = (wall,) * PAIRS if isinstance(wall, int) else tuple(wall)
    ordinary: dict[str, Any] = {
        "outcome": ("0123456789abcdef", 0.5),
        "parameters": 1_199_882,
        **time_columns(changes.pop("times", {"wall": times, "cpu": times})),
        **operation_columns({MM: 1_000_000} if operations is None else operations),
    }
    return SideSample(**{**ordinary, **changes})


def time_columns(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The columns of a side for times by clock."""
    clocks = ("wall", "cpu", "device", "busy")
    return {f"{clock}_ns": tuple(times.get(clock, ())) for clock in clocks}


def operation_columns(operations: Mapping[OpKey, Any]) -> dict[str, Any]:
    """The columns of a side for its operations, which are given by their time, or whole."""
    rows = [row if isinstance(row, Operation) else operation(row) for row in operations.values()]
    return {
        "keys": tuple(operations),
        **{name: tuple(getattr(row, name) for row in rows) for name in Operation._fields},
    }


def build(base: SideSample | None = None, new: SideSample | None = None) -> dict[str, SideSample]:
    """Both sides of a case, alike if not given."""
    return {BASE: base or side(), HEAD: new or base or side()}


def trial(*builds: Mapping[str, SideSample], **changes: Any) -> Trial:
    """A trial of one ordinary case; ``cases`` names others."""
    ordinary: dict[str, Any] = {
        "stage": 1,
        "cases": {CASE: list(builds) or [build()]},
        "seconds": 20.0,
    }
    return Trial(**{**ordinary, **changes})


def swapped(recorded_trial: Trial) -> Trial:
    """The same trial with the names of the two sides exchanged."""
    cases = {
        case: [{BASE: build[HEAD], HEAD: build[BASE]} for build in builds]
        for case, builds in recorded_trial.cases.items()
    }
    return Trial(
        recorded_trial.stage,
        cases,
        recorded_trial.seconds,
        {BASE: recorded_trial.once[HEAD], HEAD: recorded_trial.once[BASE]}
        if recorded_trial.once
        else {},
    )


# ---- The file ------------------------------------------------------------------------------------


def listings(
    labels: Mapping[str, str],
    *,
    exact: Mapping[str, bool] | None = None,
    only_base: Sequence[str] = (),
    only_head: Sequence[str] = (),
    changed: Sequence[str] = (),
    torch: str = "2.15.0",
    packages: Mapping[str, Sequence[str]] | None = None,
    left_out: Mapping[str, Mapping[str, str]] | None = None,
    unmeasurable: Mapping[str, str] | None = None,
    resident: Mapping[str, int] | None = None,
    cpu: Mapping[str, Mapping[str, str]] | None = None,
    **facts_of_cases: Mapping[str, Any],
) -> Listings:
    """What the surveys of both sides have found of these cases.

    Keywords are facts as the properties of ``Listings`` give them. ``facts_of_cases`` have a value
    by case, for both sides, or a mapping or pair of those of each side.
    """
    versions = {name: tuple(pair) for name, pair in (packages or {}).items()}
    torch_of = torch.split(" -> ")
    sides = {}
    for position, (side, own) in enumerate(((BASE, only_base), (HEAD, only_head))):
        cases = {}
        for node_id in (*labels, *own, *changed):
            is_exact = (exact or {}).get(node_id, True)
            params = {"device": "cpu", "threads": 1 if is_exact else 2}
            if node_id in changed:
                params["batch_size"] = position
            facts = {
                _FACTS.get(name, name): _of_side(values[node_id], side, position)
                for name, values in facts_of_cases.items()
                if node_id in values
            }
            cases[node_id] = ListedCase(labels.get(node_id, node_id), params, **facts)
        sides[side] = Listing(
            cases,
            {name: pair[position] for name, pair in versions.items() if pair[position]},
            {"torch": torch_of[-1 if side == HEAD else 0]} if torch else {},
            left_out=(left_out or {}).get(side, {}),
            unmeasurable=unmeasurable or {},
            resident=(resident or {}).get(side, 0),
            cpu=(cpu or {}).get(side, {}),
        )
    return Listings(sides[BASE], sides[HEAD])


#: Fact of a pair -> field of a listed case.
_FACTS = {"returned": "returns", "notes": "note"}


def _of_side(value: Any, side: str, position: int) -> Any:
    if isinstance(value, Mapping):
        return value.get(side, {})
    return value[position] if isinstance(value, tuple | list) else value


#: Fields of a header; other keywords are facts of its listings.
_OF_HEADER = {field.name for field in dataclasses.fields(GateHeader)}


def header(**changes: Any) -> GateHeader:
    """The first line of a file: one case that is exact.

    ``labels`` alone makes all its cases exact.
    """
    facts = {name: value for name, value in changes.items() if name not in _OF_HEADER}
    if sources := facts.get("sources"):
        changes["differing"] = tuple(sorted({name for names in sources.values() for name in names}))
        facts["sources"] = {case: (tuple(names), tuple(names)) for case, names in sources.items()}
    ordinary: dict[str, Any] = {
        "started": "2026-11-20T10:31:05+00:00",
        "base": "origin/main (1a2b3c4)",
        "head": "5d6e7f8 with changes",
        "arguments": ("bench",),
        "seed": 7,
        "sides": listings(**{"labels": {CASE: LABEL}, **facts}),
        "variables": {},
    }
    own = {name: value for name, value in changes.items() if name in _OF_HEADER}
    return GateHeader(**{**ordinary, **own})


def recorded(trials: Sequence[Trial], *, end: End = COMPLETE, **header_changes: Any) -> Recorded:
    """The content of a file with these trials; the other keywords are of its header."""
    return Recorded(Path("raw.jsonl.gz"), header(**header_changes), list(trials), end)


def write(
    path: Path, trials: Sequence[Trial], *, end: End | None = COMPLETE, **header_changes: Any
) -> Path:
    """Write a file of raw samples anew; without its end, as if the process was killed."""
    path.unlink(missing_ok=True)
    last = [end.line()] if end else []
    return write_lines(path, header(**header_changes).line(), *map(line, trials), *last)


def write_lines(path: Path, first: Mapping[str, Any], *more: Mapping[str, Any]) -> Path:
    """Write a file of these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    create(path, first)
    for stored_line in more:
        append(path, stored_line)
    return path


def line(recorded_trial: Trial) -> dict[str, Any]:
    """What a trial says of itself, as JSON."""
    return {
        "stage": recorded_trial.stage,
        "cases": {
            case: [
                {name: dataclasses.asdict(sample) for name, sample in build.items()}
                for build in builds
            ]
            for case, builds in recorded_trial.cases.items()
        },
        "seconds": recorded_trial.seconds,
        "once": recorded_trial.once,
        "unmeasurable": recorded_trial.unmeasurable,
    }


# ---- A series of trials ------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A case as a series of trials measures it.

    What the base takes, and the factor by which the head differs.
    """

    ns: int = 4_000_000
    factor: float = 1.0
    operations: Mapping[OpKey, tuple[int, float]] = field(
        default_factory=lambda: {
            CONV: (1_500_000, 1.0),
            MM: (1_000_000, 1.0),
            ADD: (400_000, 1.0),
            TINY: (20_000, 1.0),
            FORWARD: (1_080_000, 1.0),
        }  # as much as the call takes, as in a profile
    )
    # What is counted: calls, bytes, kernels.
    base: Mapping[OpKey, Mapping[str, Any]] = field(default_factory=dict)
    new: Mapping[OpKey, Mapping[str, Any]] = field(default_factory=dict)
    only_base: Sequence[OpKey] = ()
    only_new: Sequence[OpKey] = ()
    compilations: Sequence[Compilation | None] = (None, None)  # of the base and of the head
    spread: float = 0.004  # of a trial's difference; operations have three times of it
    outcomes: tuple[tuple[str, float], tuple[str, float]] = (("0123456789abcdef", 0.5),) * 2
    parameters: tuple[int, int] = (1_199_882, 1_199_882)


def series(
    cases: Mapping[str, Measured] | Measured | None = None,
    *,
    count: int = 8,
    stage: int = 1,
    seed: int = 1,
    once: Mapping[tuple[str, str], tuple[int, float]] | None = None,
) -> list[Trial]:
    """Trials on a machine whose speed changes from pair to pair by a factor of two.

    ``once`` has costs that occur once: name and case -> what the base takes, and the factor by
    which the head differs.
    """
    coin = random.Random(seed)
    measured = {CASE: cases or Measured()} if not isinstance(cases, Mapping) else cases
    return [
        Trial(
            stage,
            {
                name: [_measured(measured_case, coin) for _ in range(2)]
                for name, measured_case in measured.items()
            },
            20.0,
            _once(once, random.Random(1_000 * seed + number)) if once else {},
        )
        for number in range(count)
    ]


def _once(
    costs: Mapping[tuple[str, str], tuple[int, float]], coin: random.Random
) -> dict[str, dict[str, dict[str, int]]]:
    """Costs of both sides, each of which varies by 2 %."""
    costs_of_side: dict[str, dict[str, dict[str, int]]] = {BASE: {}, HEAD: {}}
    for (name, case), (base, factor) in costs.items():
        for side, value in ((BASE, base), (HEAD, base * factor)):
            costs_of_side[side].setdefault(name, {})[case] = round(value * coin.uniform(0.98, 1.02))
    return costs_of_side


def _measured(measured: Measured, coin: random.Random) -> dict[str, SideSample]:
    times = _pairs(measured.ns, measured.factor, measured.spread, coin, _speeds(coin))
    speeds = _speeds(coin)  # of the profiled iterations
    rows = {
        key: _pairs(ns, factor, 3 * measured.spread, coin, speeds)
        for key, (ns, factor) in measured.operations.items()
    }
    samples = {}
    for position, (name, counted, lacks) in enumerate(
        ((BASE, measured.base, measured.only_new), (HEAD, measured.new, measured.only_base)),
    ):
        samples[name] = side(
            times[position],
            {
                key: operation(row[position], **counted.get(key, {}))
                for key, row in rows.items()
                if key not in lacks
            },
            outcome=measured.outcomes[position],
            parameters=measured.parameters[position],
            compilation=measured.compilations[position],
        )
    return samples


def _speeds(coin: random.Random) -> list[float]:
    """How slow the machine is in each pair."""
    return [coin.choice((1.0, 1.0, 1.0, 2.0)) * coin.uniform(1, 1.02) for _ in range(PAIRS)]


def _pairs(
    ns: int, factor: float, spread: float, coin: random.Random, speeds: Sequence[float]
) -> tuple[list[int], list[int]]:
    """Times of both sides.

    What differs between them in this build is a sum of uniform numbers, nearly normal.
    """
    moved = factor * math.exp(spread * sum(coin.uniform(-1, 1) for _ in range(3)))
    return [round(ns * speed) for speed in speeds], [round(ns * speed * moved) for speed in speeds]


# ---- Call paths ----------------------------------------------------------------------------------

#: The names of the functions on a path, without the case; the pairs are of base and head.
PathRow = tuple[tuple[str, ...], tuple[float, float], tuple[int, int]]


def case_profile(
    rows: Sequence[PathRow],
    changes: Mapping[str, str] | None = None,
    outside_ns: tuple[int, int] = (100_000, 100_000),
) -> CaseProfile:
    """The call paths of a case from functions on a path, calls and self times in ns.

    ``changes`` has how functions differ; they differ themselves if it is not what they use.
    ``outside_ns`` is the time outside of functions.
    """
    how = changes or {}
    names = list(dict.fromkeys(path[-1] for path, _, _ in rows))
    positions: dict[tuple[str, ...], int] = {(): 0}
    paths = [CallPath(-1, 0, 1, 1, *outside_ns)]
    for path, calls, self_ns in rows:
        positions[path] = len(paths)
        paths.append(
            CallPath(positions[path[:-1]], 1 + names.index(path[-1]), *calls, *self_ns),
        )
    functions = [
        ProfiledFunction(name, how.get(name, ""), name in how and not how[name].startswith("uses"))
        for name in names
    ]
    return CaseProfile((ProfiledFunction("the case"), *functions), tuple(paths))


# ---- Effects -------------------------------------------------------------------------------------


def quantity(logs: Sequence[float], **changes: Any) -> Quantity:
    """A whole call by its wall time, or whatever the keywords say."""
    kind = changes.get("kind", ITERATION)
    common: dict[str, Any] = {
        "case": "case",
        "kind": kind,
        "logs": tuple(logs),
        "base": 4_000_000.0,
        "head": 4_000_000.0 * math.exp(logs[0] if logs and math.isfinite(logs[0]) else 0.0),
    }
    if kind in (ITERATION, MEAN):
        return CaseTime(**{**common, "name": "wall", **changes})
    if kind in (ONCE, MEMORY):
        return OneTimeCost(**{**common, "name": "import", **changes})
    operation = {"name": "aten::mm, forward fc1", "members": (MM,), "share": 0.25}
    return OperationTime(**{**common, **operation, **changes})


def estimate(change: float, low: float, high: float, **changes: Any) -> Estimate:
    """What is known of an ordinary call."""
    return Estimate(quantity((0.0,) * 8, **changes), change, low, high, 1.0, 8)


# ---- Reports -------------------------------------------------------------------------------------


def rendered(verdict: Verdict, form: str, top: int = 3) -> str:
    """The report of a verdict, with so many operations of each case."""
    options = dataclasses.replace(verdict.options, top=top)
    return render(report(dataclasses.replace(verdict, options=options)), form)
