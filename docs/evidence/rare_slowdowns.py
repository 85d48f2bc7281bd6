"""What a gate says about slowdowns of single iterations and processes, and about roles.

Simulated gates, and recorded trials.

    python docs/evidence/rare_slowdowns.py iterations [GATES]  # slow single iterations
    python docs/evidence/rare_slowdowns.py processes [GATES]  # slow single processes
    python docs/evidence/rare_slowdowns.py means [GATES]  # the head's mean is slower, and varies
    python docs/evidence/rare_slowdowns.py tails [SETS]  # a test of the slowest iterations
    python docs/evidence/rare_slowdowns.py bounds [SETS]  # wrong upper bounds of skewed trials
    python docs/evidence/rare_slowdowns.py roles RAW.jsonl.gz  # roles as recorded

A simulated trial has two builds of a case with one thread, each with as many pairs and blocks as
the gate measures. Logarithms of times vary by 0.6 % between builds of a side and by 2 % between
iterations. Verdicts are those of ``mnistbench judge``.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from mnistbench.gate.decide.statistics import permutation
from mnistbench.gate.decide.statistics.quantities import quantities, quantities_of_stages
from mnistbench.gate.decide.verdict.decision import decide, is_settled
from mnistbench.gate.decide.verdict.findings import CHECKPOINTS
from mnistbench.gate.decide.verdict.verdict import Verdict, conclude
from mnistbench.gate.listing import ListedCase, Listing, Listings
from mnistbench.gate.options import TRIALS, JudgeOptions
from mnistbench.gate.processes.iterations import BLOCK_NS, BLOCKS, FEW_PAIRS
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.report.text import blocks
from mnistbench.gate.samples.raw_samples import (
    COMPLETE,
    GateHeader,
    Recorded,
    SideSample,
    Trial,
    load,
)
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.verdicts import PASSED

CASE = "test_simulated"
#: What a survey finds; two threads, so that results need not be equal to the bit.
LISTING = Listing({CASE: ListedCase(CASE, {"device": "cpu", "threads": 2})})

#: Fewer than the gate's, so that hundreds of verdicts take minutes: a p-value of 1 % is then known
#: to 0.2 %.
EXCHANGES = 2_000

OPTIONS = JudgeOptions()

DRAW = np.random.default_rng(20261124)

#: Builds of a trial.
BUILDS = 2
#: Number of iterations -> factors of their times.
Slow = Callable[[int], np.ndarray]


def number(ns: float, factor: float, fewest: int, most: int) -> int:
    return max(fewest, min(most, round(factor / math.sqrt(ns / 1e9))))


def of_side(ns: float, slow: Slow, *, waits: bool, spread: float) -> SideSample:
    """Return a side of a build."""
    size = max(1, math.ceil(BLOCK_NS / ns))
    pairs = number(ns, *FEW_PAIRS)
    count = number(size * ns, *BLOCKS)
    level = math.exp(DRAW.normal(0, 0.006 if not spread else spread * math.sqrt(BUILDS / 2)))
    quiet = ns * level * np.exp(DRAW.normal(0, 0.02, pairs + size * count))
    slowed = quiet * slow(len(quiet))
    computed = quiet if waits else slowed
    return SideSample(
        wall_ns=tuple(slowed[:pairs]),
        cpu_ns=tuple(computed[:pairs]),
        device_ns=(),
        outcome=("", 0.0),
        parameters=0,
        block_ns=tuple(computed[pairs:].reshape(count, size).mean(axis=1)),
    )


def trial(
    stage: int, ns: float, of_process: Callable[[], Slow], *, waits: bool, spread: float
) -> Trial:
    slow = of_process()
    builds = [
        {
            BASE: of_side(ns, np.ones, waits=waits, spread=spread),
            HEAD: of_side(ns, slow, waits=waits, spread=spread),
        }
        for _ in range(BUILDS)
    ]
    return Trial(stage, {CASE: builds}, 1.0)


def gate(
    ns: float, of_process: Callable[[], Slow], *, waits: bool = False, spread: float = 0.0
) -> tuple[Verdict, bool]:
    """Return the verdict of a simulated gate, and whether it flagged anything."""
    seed = int(DRAW.integers(2**31))
    simulated = partial(trial, ns=ns, of_process=of_process, waits=waits, spread=spread)
    trials = [simulated(1) for _ in range(TRIALS)]
    flagged = decide(quantities(trials), [], OPTIONS, seed).findings
    for look in CHECKPOINTS if flagged else ():
        trials += [
            simulated(2) for _ in range(look - sum(measured.stage == 2 for measured in trials))
        ]
        if is_settled(decide(*quantities_of_stages(trials), OPTIONS, seed), OPTIONS):
            break
    header = GateHeader(
        started="",
        base="",
        head="",
        arguments=(),
        seed=seed,
        sides=Listings(LISTING, LISTING),
        variables={BASE: {}, HEAD: {}},
    )
    return conclude(Recorded(Path("simulated"), header, trials, COMPLETE), OPTIONS), bool(flagged)


def stated(verdict: Verdict) -> tuple[float, float, bool]:
    """Return the shares of processes and of iterations that a pass does not rule out.

    And whether trials are named as far.
    """
    lines = [line for block in blocks(Rows(verdict)) for line in block.lines]
    matches = [
        re.search(r"less than ([\d.]+) % of all processes.*fewer than 1 of (\d+) iterations", line)
        for line in lines
    ]
    match = next(filter(None, matches), None)
    shares = (float(match[1]) / 100, 1 / int(match[2])) if match else (0.0, 0.0)
    return *shares, any("far from the others" in line for line in lines)


def share(hits: Iterable[bool]) -> str:
    hits = list(hits)
    return f"{sum(hits) / len(hits):4.0%}"


def iterations(gates: int) -> None:
    """Print how often a pass states a bound of the mean below the truth.

    And how often its last lines allow for it.
    """
    print(f"{'head':66} passed  bound of the mean below the truth  and not allowed for")
    for ns in (50e6, 200e6):
        for rarity, factor in ((30, 4), (300, 31), (1_000, 101)):
            for waits in (False, True):

                def slow(count: int, rarity: int = rarity, factor: int = factor) -> np.ndarray:
                    return np.where(DRAW.random(count) < 1 / rarity, factor, 1.0)

                def of_process(slow: Slow = slow) -> Slow:
                    return slow

                truth = (factor - 1) / rarity
                verdicts = [gate(ns, of_process, waits=waits)[0] for _ in range(gates)]
                passed = [verdict.outcome == PASSED for verdict in verdicts]
                below = [
                    ok and verdict.decision.bound_of_means < truth
                    for ok, verdict in zip(passed, verdicts, strict=True)
                ]
                wrong = [
                    too_low and stated(verdict)[1] < 1 / rarity
                    for too_low, verdict in zip(below, verdicts, strict=True)
                ]
                how = (
                    f"{ns / 1e6:.0f} ms, 1 of {rarity} {'waits' if waits else 'computes'} "
                    f"{factor} times as long"
                )
                print(
                    f"{how} (mean +{truth:.0%})".ljust(66),
                    share(passed),
                    share(below),
                    share(wrong),
                    sep="    ",
                    flush=True,
                )


def processes(gates: int) -> None:
    """Print the same for processes; the truth is the mean over processes."""
    print(f"{'head':48} passed  bound below the truth  and not allowed for  trials named")
    for rare, factor in ((0.10, 1.2), (0.05, 2.0), (0.30, 1.2)):

        def of_process(rare: float = rare, factor: float = factor) -> Slow:
            slow = factor if DRAW.random() < rare else 1.0
            return lambda count: np.full(count, slow)

        verdicts = [gate(50e6, of_process)[0] for _ in range(gates)]
        passed = [verdict.outcome == PASSED for verdict in verdicts]
        below = [
            ok and verdict.decision.bound < rare * (factor - 1)
            for ok, verdict in zip(passed, verdicts, strict=True)
        ]
        wrong = [
            too_low and stated(verdict)[0] < rare
            for too_low, verdict in zip(below, verdicts, strict=True)
        ]
        far = [stated(verdict)[2] for verdict in verdicts]
        how = f"{rare:.0%} of the processes take {factor - 1:.0%} longer"
        print(how.ljust(48), share(passed), share(below), share(wrong), share(far), sep="    ")


def means(gates: int) -> None:
    """Print how often a slower mean passes.

    Trials vary, so the bound of the mean is wide, and below its limit of 10 %.
    """
    print(f"{'head':40} flagged  passed  flagged and passed  inconclusive  regressed")
    for slower, spread in ((0.0, 0.0), (0.0, 0.03), (0.05, 0.03), (0.05, 0.02)):

        def of_process(slower: float = slower) -> Slow:
            # A tenth of the iterations takes longer, so that the median does not.
            return lambda count: np.where(DRAW.random(count) < 0.1, 1 + 10 * slower, 1.0)

        gates_and_flags = [gate(50e6, of_process, spread=spread) for _ in range(gates)]
        passed = [verdict.outcome == PASSED for verdict, _ in gates_and_flags]
        flagged = [was for _, was in gates_and_flags]
        passed_and_flagged = [ok and was for ok, was in zip(passed, flagged, strict=True)]
        rest = [
            share(verdict.outcome == outcome for verdict, _ in gates_and_flags)
            for outcome in ("inconclusive", "regressed")
        ]
        how = f"mean +{slower:.0%}, SD of trials {spread or 0.006:.1%}"
        print(
            how.ljust(40),
            share(flagged),
            share(passed),
            share(passed_and_flagged),
            *rest,
            sep="    ",
        )


def tails(sets: int) -> None:
    """Print how often the first stage shows a slower mean, and slower tails.

    Each with p <= 5 % by itself.

    The tail of a trial is the difference of both sides' shares of the slowest twentieth of all its
    iterations in turn.
    """
    print("the head: a slower mean, a slower tail")
    for rarity, factor in ((1, 1.0), (10, 1.5), (30, 2), (30, 4), (100, 11), (300, 31)):

        def slow(count: int, rarity: int = rarity, factor: float = factor) -> np.ndarray:
            return np.where(DRAW.random(count) < 1 / rarity, factor, 1.0)

        significant = []
        for number in range(sets):
            trials = [
                trial(1, 50e6, lambda slow=slow: slow, waits=True, spread=0.0)
                for _ in range(TRIALS)
            ]
            [mean] = [
                quantity.logs
                for quantity in quantities(trials)
                if (quantity.kind, quantity.clock) == ("mean", "wall")
            ]
            rows = [
                [
                    sum((build[side].times["wall"] for build in measured.cases[CASE]), ())
                    for side in (BASE, HEAD)
                ]
                for measured in trials
            ]
            limits = [np.quantile(base + head, 0.95) for base, head in rows]
            tail = [
                np.mean(np.array(head) > limit) - np.mean(np.array(base) > limit)
                for (base, head), limit in zip(rows, limits, strict=True)
            ]
            p = [
                permutation.directed_test(np.array([logs]), [""], np.ones(1), number)[0] <= 0.05
                for logs in (mean, tail)
            ]
            significant.append(p)
        print(
            f"1 of {rarity} iterations waits {factor} times as long".ljust(48),
            *map(share, zip(*significant, strict=True)),
            flush=True,
        )


def bounds(sets: int) -> None:
    """Print how often an upper bound of the mean is wrong, and how wide bounds are.

    Widths are in standard deviations.
    """
    print("quantities, trials, errors: an upper bound is wrong; mean distance of the largest bound")
    draws = {
        "normal": DRAW.standard_normal,
        "gamma(4)": lambda size: (DRAW.gamma(4, 1, size) - 4) / 2,
        "exponential": lambda size: DRAW.exponential(1, size) - 1,
        "log-normal": lambda size: (
            np.exp(0.75 * DRAW.standard_normal(size)) - math.exp(0.75**2 / 2)
        ),
    }
    for count in (1, 4, 12):
        for size in (4, 8, 10, 18):
            for name, draw in draws.items():
                high = [
                    permutation.simultaneous_bounds(
                        0.7 * draw((1, size)) + 0.7 * draw((count, size)), number
                    )[1]
                    for number in range(sets)
                ]
                wrong = share(bool((upper < 0).any()) for upper in high)
                print(
                    f"{count:3} {size:3} {name:12} {wrong} {np.mean(list(map(max, high))):.2f}",
                    flush=True,
                )


def roles(path: Path) -> None:
    """Print the mean difference of trials of the same code, by role and by first side.

    The roles are those that the trials had.
    """
    trials = [measured for measured in load(path).trials if measured.stage == 1]
    print(f"{len(trials)} trials")
    for quantity in quantities(trials):
        if quantity.is_case:
            error = statistics.stdev(quantity.logs) / math.sqrt(len(quantity.logs))
            mean = statistics.fmean(quantity.logs)
            print(
                f"{quantity.case} {quantity.title:16} {mean:+.3%} (SE {error:.3%}), positive "
                f"{sum(log > 0 for log in quantity.logs)}"
            )


def main() -> None:
    permutation.EXCHANGES = EXCHANGES
    if sys.argv[1] == "roles":
        roles(Path(sys.argv[2]))
        return
    parts = {
        "iterations": iterations,
        "processes": processes,
        "means": means,
        "tails": tails,
        "bounds": bounds,
    }
    parts[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 100)


if __name__ == "__main__":
    main()
