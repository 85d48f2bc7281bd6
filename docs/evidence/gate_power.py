"""Compute false alarms and power of ``mnistbench gate`` from recorded trials.

    python docs/evidence/gate_power.py pool POOL.json.gz RAW.jsonl.gz...  # samples of the same code
    python docs/evidence/gate_power.py judge POOL.json.gz [DRAWS]  # tables from it
    python docs/evidence/gate_power.py targets POOL.json.gz [DRAWS]  # the main rates
    python docs/evidence/gate_power.py once POOL.json.gz [DRAWS]  # rates of what occurs once
    python docs/evidence/gate_power.py small POOL.json.gz [DRAWS]  # --threshold 0.5% of each case

Gates are drawn from the trials by ``Pool`` of ``gate.qualification``, on all cores for the
last two. For power and for the comparison of designs they have new roles; the row "recorded roles"
keeps the recorded ones.
"""

from __future__ import annotations

import gzip
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from mnistbench.gate.decide.statistics import (
    differences,
    permutation,
    quantities,
)
from mnistbench.gate.decide.statistics.quantities import (
    CaseTime,
    OneTimeCost,
    OperationTime,
    Quantity,
)
from mnistbench.gate.decide.verdict.decision import Decision
from mnistbench.gate.decide.verdict.estimates import Estimate, kinds_of
from mnistbench.gate.decide.verdict.findings import CHECKPOINTS
from mnistbench.gate.measure.budget import planned_trials
from mnistbench.gate.options import TRIALS, Thresholds
from mnistbench.gate.qualification import resampling
from mnistbench.gate.qualification.resampling import is_found, share
from mnistbench.gate.samples import raw_samples
from mnistbench.judging import verdicts
from mnistbench.judging.kinds import ITERATION, MEAN, MEMORY, ONCE
from mnistbench.judging.verdicts import CONTRADICTED, REGRESSED

#: Fewer than the product's, so that thousands of verdicts take minutes: a p-value of 1 % is then
#: known to 0.2 %.
EXCHANGES = 2_000

#: The product's defaults.
LIMITS = Thresholds()

#: Most fresh trials.
FRESH = max(CHECKPOINTS)

#: Verdicts that a process computes at a time.
PART = 100

#: How a trial's difference is made of its samples: the product's way, and others for comparison.
WAYS = {
    "pairs": differences.difference,
    "medians": lambda base, new: _with_error(statistics.median, base, new),
    "fastest": lambda base, new: _with_error(min, base, new),
}


def _with_error(typical: Callable, base: Sequence, new: Sequence) -> differences.Difference:
    """Return the difference of typical times, weighted as that of pairs."""
    log = math.log(typical(new) / typical(base))
    return WAYS["pairs"](base, new)._replace(log=log)


def pool(target: Path, files: Sequence[str]) -> None:
    trials = [
        (Path(file).name, trial)
        for file in files
        for trial in raw_samples.load(Path(file)).trials
        if trial.stage == 1
    ]
    logs = {}
    checked: dict[str, list[quantities.OperationGroup]] = {}
    measured = quantities.quantities([trial for _, trial in trials])
    keys = {quantity.key for quantity in measured}
    for quantity in measured:
        if quantity.is_operation:
            checked.setdefault(quantity.case, []).append(
                quantities.OperationGroup(quantity.kind, quantity.name, quantity.members)
            )

    def logs_of(measured: Sequence[raw_samples.Trial]) -> list[list[float]]:
        again = quantities.quantities(measured, checked)
        kept = [quantity for quantity in again if quantity.key in keys]
        return [[round(log, 5) for log in quantity.logs] for quantity in kept]

    for name, way in WAYS.items():
        differences.difference = quantities.difference = way
        logs[name] = logs_of([trial for _, trial in trials])
    differences.difference = quantities.difference = WAYS["pairs"]
    in_turn = [
        replace(
            trial,
            cases={
                case: list(map(_without_blocks, builds)) for case, builds in trial.cases.items()
            },
        )
        for _, trial in trials
    ]
    logs["in turn"] = logs_of(in_turn)
    one_build = [
        replace(trial, cases={case: builds[:1] for case, builds in trial.cases.items()})
        for _, trial in trials
    ]
    logs["one build"] = logs_of(one_build)
    data = {
        "quantities": [
            [e.case, e.kind, e.name, e.clock, round(e.share, 4), round(e.base)] for e in measured
        ],
        "files": [name for name, _ in trials],
        "seconds": [round(trial.seconds, 1) for _, trial in trials],
        "logs": logs,
    }
    target.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0))
    print(f"{len(trials)} trials, {len(measured)} quantities")


def _without_blocks(build: raw_samples.Build) -> raw_samples.Build:
    return {name: replace(side, block_ns=()) for name, side in build.items()}


def _quantity(case: str, kind: str, name: str, _: str, share: float, ns: float) -> Quantity:
    if kind in (ITERATION, MEAN):
        return CaseTime(case, kind, name, (), ns, ns)
    if kind in (ONCE, MEMORY):
        return OneTimeCost(case, kind, name, (), ns, ns)
    return OperationTime(case, kind, name, (), ns, ns, (), share)


class Pool:
    """Recorded trials of the same code on both sides."""

    def __init__(self, path: Path, seed: int = 1) -> None:
        data = json.loads(gzip.decompress(path.read_bytes()))
        self.logs = {way: np.array(logs) for way, logs in data["logs"].items()}
        self.quantities = [_quantity(*saved) for saved in data["quantities"]]
        self.trials = len(data["files"])
        self._seed = seed
        self._pools: dict[tuple[object, ...], resampling.Pool] = {}

    def verdict(
        self,
        target: int | None,
        change: float,
        *,
        way: str = "pairs",
        clocks: Sequence[str] = ("wall", "cpu"),
        trials: int = TRIALS,
        recorded_from: int | None = None,
        limits: Thresholds = LIMITS,
        once: bool = True,
    ) -> tuple[list[Estimate], Decision]:
        """Return what the first stage flagged, and the decision.

        ``recorded_from`` takes the trials from there on, with the roles that they had. Without
        ``once``, what occurs once is not tested.
        """
        key = (way, once, *clocks)
        if key not in self._pools:
            quantities = [
                replace(quantity, logs=tuple(row))
                for quantity, row in zip(self.quantities, self.logs[way], strict=True)
                if (quantity.clock in clocks if quantity.is_case else once or not quantity.is_once)
            ]
            self._pools[key] = resampling.Pool(quantities, self._seed)
        hit = None if target is None else self.quantities[target]
        return self._pools[key].gate(
            limits,
            hit,
            change,
            trials=trials,
            start=recorded_from,
        )


def main() -> None:
    if sys.argv[1] == "pool":
        pool(Path(sys.argv[2]), sys.argv[3:])
        return
    permutation.EXCHANGES = EXCHANGES
    draws = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    recorded = Pool(Path(sys.argv[2]))
    print(f"{recorded.trials} trials recorded; {draws} verdicts a line")
    if sys.argv[1] == "small":
        small(recorded, draws)
        return
    looks = ", ".join(map(str, CHECKPOINTS))
    print(f"{TRIALS} trials and {looks} fresh ones each\n")
    if sys.argv[1] == "targets":
        targets(Path(sys.argv[2]), draws)
        return
    if sys.argv[1] == "once":
        once(Path(sys.argv[2]), draws)
        return
    rates(recorded, draws)


def rates(recorded: Pool, draws: int) -> None:
    """Print the spreads of all quantities, and the rates of verdicts about each."""
    print("spread (SD) of a trial's difference")
    for row, quantity in enumerate(recorded.quantities):
        if quantity.kind == "iteration" or quantity.share >= 0.05:
            spreads = " ".join(
                f"{way} {100 * logs[row].std(ddof=1):5.2f} %" for way, logs in recorded.logs.items()
            )
            print(f"  {quantity.case:32} {quantity.name:44} {quantity.share:6.1%}  {spreads}")
    print("\nthe same code on both sides, recorded roles")
    with_recorded_roles(recorded)
    print("\nthe same code on both sides, roles drawn anew")
    same(recorded, draws)
    print("\na slower case")
    medians = [
        row
        for row, quantity in enumerate(recorded.quantities)
        if quantity.kind == "iteration" and quantity.clock == "wall"
    ]
    for change in (0.01, 0.02, 0.03, 0.05, 0.10):
        for row in medians:
            caught(recorded, row, change, draws)
    print("\na slower case, --threshold 1%")
    for row in medians:
        caught(recorded, row, 0.01, draws, limits=Thresholds(case=0.01))
    print("\na slower operation")
    operations = [
        row for row, quantity in enumerate(recorded.quantities) if quantity.kind == "operation"
    ]
    for least, most in ((0.02, 0.05), (0.05, 0.10), (0.10, 1.0)):
        rows = [row for row in operations if least <= recorded.quantities[row].share < most]
        for change in (0.03, 0.05, 0.10, 0.20):
            caught_any(recorded, rows, change, draws, f"{least:.0%} to {most:.0%} of its case")


def targets(path: Path, draws: int) -> None:
    """Print the rates of wrong and right verdicts of the product, in parts of 100 verdicts."""
    _answer(path, draws, _questions(Pool(path)))


def once(path: Path, draws: int) -> None:
    """Print the rates of what occurs once, and the main rates without it and with it."""
    recorded = Pool(path)
    for quantity, logs in zip(recorded.quantities, recorded.logs["pairs"], strict=True):
        if quantity.is_once:
            spread = f"SD of a trial's difference {logs.std(ddof=1):.2%}"
            print(f"  {quantity.case}, {quantity.name}: {quantity.base:,.0f}, {spread}")
    for row, quantity in enumerate(recorded.quantities):
        changes = (0.2, 0.5) if quantity.kind == ONCE else (0.1, 0.2) if quantity.is_once else ()
        _answer(
            path,
            draws,
            {
                f"+{change:.0%} on {quantity.name} ({quantity.case})": ([row], change, LIMITS, True)
                for change in changes
            },
        )
    for tested in (False, True):
        print(f"what occurs once is {'tested, too' if tested else 'not tested'}")
        _answer(
            path,
            draws,
            {text: (*question[:3], tested) for text, question in _questions(recorded).items()},
        )


def small(recorded: Pool, draws: int) -> None:
    """Print how often half a percent is found by gates of one case, and how often they are wrong.

    Each has as many trials as a gate plans after ten consecutive ones from a random one on.
    """
    limits = replace(LIMITS, case=0.005)
    draw = np.random.default_rng(1)
    for row in calls_of(recorded):
        of_case = [
            replace(quantity, logs=tuple(logs))
            for quantity, logs in zip(recorded.quantities, recorded.logs["pairs"], strict=True)
            if quantity.case == recorded.quantities[row].case and not quantity.is_once
        ]
        [hit] = [quantity for quantity in of_case if quantity.key == recorded.quantities[row].key]
        gates = resampling.Pool(of_case)
        planned, fresh = list[int](), list[int]()
        hits = red = 0
        for _ in range(draws):
            start = draw.integers(recorded.trials - TRIALS + 1)
            first = [
                replace(quantity, logs=quantity.logs[start : start + TRIALS])
                for quantity in of_case
            ]
            trials = planned_trials(first, limits)
            _, slower = gates.gate(limits, hit, 0.005, trials=trials)
            _, same = gates.gate(limits, trials=trials)
            planned.append(trials)
            fresh.append(slower.fresh)
            hits += is_found(slower, hit)
            red += any(finding.verdict == REGRESSED for finding in same.findings)
        print(
            f"  {hit.case}: SD {np.std(hit.logs, ddof=1):.2%}, "
            f"{np.median(planned):.0f} ({min(planned)} to {max(planned)}) trials, "
            f"{np.mean(fresh):.0f} fresh, +0.5 % found {share(hits, draws)}; "
            f"the same code red {share(red, draws)}",
            flush=True,
        )


#: Rows of quantities that are changed in turn, the change, the limits, and whether what occurs once
#: is tested.
Question = tuple[list[int], float, Thresholds, bool]


def _questions(recorded: Pool) -> dict[str, Question]:
    questions: dict[str, Question] = {"the same code": ([], 0.0, LIMITS, True)}
    for row in calls_of(recorded):
        # Trials of the default threshold, 2 %, are shorter than those of 1 %.
        for change in (0.01, 0.02):
            text = f"+{change:.0%} on {recorded.quantities[row].case}, --threshold {change:.0%}"
            questions[text] = ([row], change, replace(LIMITS, case=change), True)
    operations = [
        row for row, quantity in enumerate(recorded.quantities) if quantity.kind == "operation"
    ]
    for least in (0.05, 0.10):
        rows = [row for row in operations if recorded.quantities[row].share >= least]
        questions[
            f"+5 % on an operation of {least:.0%} of its case or more ({len(rows)} of them)"
        ] = (rows, 0.05, LIMITS, True)
    return questions


def _answer(path: Path, draws: int, questions: Mapping[str, Question]) -> None:
    parts = -(-draws // PART)
    with ProcessPoolExecutor() as processes:
        for text, question in questions.items():
            outcomes = [
                outcome
                for part in processes.map(
                    _outcomes, [(path, part, question) for part in range(parts)]
                )
                for outcome in part
            ]
            red, hits, unsure, flagged, fresh, widths = zip(*outcomes, strict=True)
            counts = {look: fresh.count(look) for look in sorted(set(fresh))}
            caught_text = f"caught {share(sum(hits), len(hits))}, " if question[0] else ""
            print(
                f"  {text}: {len(hits)} verdicts, {caught_text}red {share(sum(red), len(red))}, "
                f"inconclusive {share(sum(unsure), len(unsure))}, flagged "
                f"{share(sum(flagged), len(flagged))}, fresh trials {counts}{_interval(widths)}",
                flush=True,
            )


def _interval(widths: Sequence[float | None]) -> str:
    """Return the median width of the intervals of what was caught."""
    known = [width for width in widths if width is not None]
    return f", median width of its interval {statistics.median(known):.2%}" if known else ""


def _outcomes(
    task: tuple[Path, int, Question],
) -> list[tuple[bool, bool, bool, bool, int, float | None]]:
    """Return what each verdict says, its fresh trials, and the width of the caught interval.

    Whether it is red, catches the change, is inconclusive, and flags anything.
    """
    path, part, (rows, change, limits, tested) = task
    permutation.EXCHANGES = EXCHANGES
    recorded = Pool(path, seed=1 + part)
    outcomes = []
    for draw_number in range(PART):
        row = rows[draw_number % len(rows)] if rows else None
        first, decision = recorded.verdict(row, change, limits=limits, once=tested)
        hit = row is not None and is_found(decision, recorded.quantities[row])
        widths = [
            finding.best.high - finding.least
            for finding in decision.findings
            if row is not None
            and finding.verdict == REGRESSED
            and finding.screened.quantity.key == recorded.quantities[row].key
        ]
        unsure = decision.outcome == verdicts.INCONCLUSIVE
        flagged = any(estimate.change > 0 for estimate in first)
        width = widths[0] if widths else None
        outcomes.append(
            (decision.outcome == REGRESSED, hit, unsure, flagged, decision.fresh, width)
        )
    return outcomes


def with_recorded_roles(recorded: Pool) -> None:
    """Test all trials at once, and form every verdict that consecutive trials give.

    Their windows overlap.
    """
    quantities = [
        replace(quantity, logs=tuple(row))
        for quantity, row in zip(recorded.quantities, recorded.logs["pairs"], strict=True)
    ]
    kinds = kinds_of(quantities)
    p = np.minimum(
        *(
            permutation.directed_test(
                recorded.logs["pairs"], kinds, np.full(len(quantities), sign), 1
            )
            for sign in (1.0, -1.0)
        )
    )
    smallest = quantities[int(np.argmin(p))]
    print(
        f"  all {recorded.trials} trials together: smallest adjusted p {p.min():.2f} "
        f"({smallest.case}, {smallest.title})"
    )
    starts = range(recorded.trials - TRIALS - FRESH + 1)
    outcomes = [recorded.verdict(None, 0.0, recorded_from=start) for start in starts]
    flagged = sum(any(estimate.change > 0 for estimate in first) for first, _ in outcomes)
    red = sum(decision.outcome == REGRESSED for _, decision in outcomes)
    unsure = sum(decision.outcome == verdicts.INCONCLUSIVE for _, decision in outcomes)
    apart = recorded.trials // (TRIALS + FRESH)
    windows = f"{len(starts)} windows, {apart} of them without a trial in common"
    print(f"  {windows}: flagged {flagged}, red {red}, inconclusive {unsure}")
    kinds = [reason.kind for _, decision in outcomes for reason in decision.reasons]
    print(f"  reasons: { ({kind: kinds.count(kind) for kind in sorted(set(kinds))}) }")


def same(recorded: Pool, draws: int) -> None:
    ways = {
        "as built": {},
        "8 trials": {"trials": 8},
        "12 trials": {"trials": 12},
        "16 trials": {"trials": 16},
        "medians of a side, not pairs": {"way": "medians"},
        "fastest call of a side": {"way": "fastest"},
        "one build": {"way": "one build"},
        "CPU time in turn alone, not at once": {"way": "in turn"},
        "wall clock alone": {"clocks": ("wall",)},
        "CPU clock alone": {"clocks": ("cpu",)},
    }
    for name, how in ways.items():
        if how.get("way", "pairs") not in recorded.logs:  # recorded by an earlier version
            continue
        flagged = red = unsure = 0
        bounds = []
        for _ in range(draws):
            first, decision = recorded.verdict(None, 0.0, **how)
            flagged += any(estimate.change > 0 for estimate in first)
            red += any(finding.verdict == REGRESSED for finding in decision.findings)
            unsure += decision.outcome == verdicts.INCONCLUSIVE
            bounds.append(decision.bound)
        power = [
            caught_share(recorded, row, 0.02, draws // 4, **how)
            for row in calls_of(recorded, **how)
        ]
        print(
            f"  {name:30} flagged {share(flagged, draws)}, red {share(red, draws)}, "
            f"inconclusive {share(unsure, draws)}, X {statistics.median(bounds):.1%}, +2 % on a "
            f"case caught {statistics.fmean(power):.0%}"
        )


def calls_of(recorded: Pool, clocks: Sequence[str] = ("wall", "cpu"), **_: object) -> list[int]:
    return [
        row
        for row, e in enumerate(recorded.quantities)
        if e.kind == "iteration" and e.clock == clocks[0]
    ]


def caught_share(recorded: Pool, row: int, change: float, draws: int, **how: object) -> float:
    return (
        sum(
            is_found(recorded.verdict(row, change, **how)[1], recorded.quantities[row])
            for _ in range(draws)
        )
        / draws
    )


def caught(recorded: Pool, row: int, change: float, draws: int, **how: object) -> None:
    quantity = recorded.quantities[row]
    hits = sum(is_found(recorded.verdict(row, change, **how)[1], quantity) for _ in range(draws))
    print(f"  +{change:4.0%} {quantity.case:32} {share(hits, draws)}")


def caught_any(recorded: Pool, rows: Sequence[int], change: float, draws: int, text: str) -> None:
    hits = named = red = contradicted = passed = 0
    for draw_number in range(draws):
        row = rows[draw_number % len(rows)]
        _, decision = recorded.verdict(row, change)
        operations = [
            f for f in decision.findings if f.verdict == REGRESSED and not f.quantity.is_case
        ]
        hit = is_found(decision, recorded.quantities[row])
        hits += hit
        red += bool(operations)
        named += bool(operations) and operations[0].quantity.name == recorded.quantities[row].name
        contradicted += any(f.verdict == CONTRADICTED for f in decision.findings)
        passed += decision.outcome == verdicts.PASSED
    print(
        f"  +{change:4.0%} {text:24} ({len(rows)} operations) caught {share(hits, draws)}, named "
        f"first in {named} of {red}, contradicted {contradicted}, passed {passed}"
    )


if __name__ == "__main__":
    main()
