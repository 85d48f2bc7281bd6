"""What a gate of many machines finds.

Simulated gates of 5,000 tests on 40 runners of different speed and noise.

    python docs/evidence/shards.py same [SHARDS]   # false alarms of shards of the same code
    python docs/evidence/shards.py live [SHARDS]   # false alarms of shards that are judged in full
    python docs/evidence/shards.py power [SHARDS]  # +10 % on a test of the noisiest runner
    python docs/evidence/shards.py bounds [GATES]  # bounds of all shards together and alone
    python docs/evidence/shards.py balance         # times of shards for ways to deal out the tests
    python docs/evidence/shards.py reached RESULTS # reached cases of shards, for real commits

A shard has 125 tests with two quantities: the median and the mean of the wall time. The difference
of a trial is normal. The SD of a median is that of its runner (0.5 to 4 %, evenly spaced
logarithms) times that of its test (log-normal, SD of the logarithm 0.5), and that of a mean is
twice as large. On every fourth runner a fifth of the trials are three times as noisy. The speed
of a machine cancels in these differences, so it has no part here. Decisions are those of the
product.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from mnistbench.gate.decide.statistics import permutation
from mnistbench.gate.decide.statistics.quantities import CaseTime, Quantity
from mnistbench.gate.decide.verdict.decision import Decision, decide, is_settled, united
from mnistbench.gate.decide.verdict.findings import checkpoints, product
from mnistbench.gate.options import TRIALS, Thresholds
from mnistbench.gate.qualification.resampling import share
from mnistbench.gate.samples.raw_samples import Shard
from mnistbench.gate.words import WALL
from mnistbench.judging.kinds import ITERATION, MEAN
from mnistbench.judging.verdicts import REGRESSED

RUNNERS = 40
TESTS = 125

LIMITS = Thresholds(case=0.05)

#: Runner with the largest noise.
NOISIEST = RUNNERS - 1

#: Shards that a process simulates at a time.
PART = 50


def shard(
    draw: np.random.Generator, runner: int, change: float = 0.0, size: int = TRIALS
) -> list[Quantity]:
    """Return the quantities of a shard on a runner, of its first test with a change.

    Each has ``size`` trials.
    """
    quiet = 0.005
    noisy = 0.04
    runner_spread = quiet * (noisy / quiet) ** (runner / (RUNNERS - 1))
    trial_factors = (
        draw.choice([1.0, 3.0], size, p=[0.8, 0.2]) if runner % 4 == 0 else np.ones(size)
    )
    quantities = []
    for test in range(TESTS):
        test_spread = runner_spread * math.exp(draw.normal(0, 0.5)) if test else runner_spread
        common = draw.normal(0, 1, size)  # the mean of a trial contains what its median contains
        for kind, factor in ((ITERATION, 1.0), (MEAN, 2.0)):
            own = draw.normal(0, 1, size)
            noise = common if kind == ITERATION else (common + math.sqrt(3) * own) / 2
            logs = test_spread * factor * trial_factors * noise + (
                math.log1p(change) if test == 0 else 0.0
            )
            quantities.append(CaseTime(f"{runner}: test_{test}", kind, WALL, tuple(logs), 1e6, 1e6))
    return quantities


def cut(
    quantities: Sequence[Quantity], start: int, stop: int, cases: set[str] | None = None
) -> list[Quantity]:
    return [
        replace(quantity, logs=quantity.logs[start:stop])
        for quantity in quantities
        if cases is None or quantity.case in cases
    ]


def judged(draw: np.random.Generator, runner: int, shards: int, change: float = 0.0) -> Decision:
    """Return the decision of a shard about its part, with the fresh trials that it needs."""
    seed = int(draw.integers(2**31))
    at = checkpoints(LIMITS, shards)
    quantities = shard(draw, runner, change, TRIALS + at[-1])
    first = cut(quantities, 0, TRIALS)
    cases = {
        finding.quantity.case for finding in decide(first, [], LIMITS, seed, shards=shards).findings
    }
    decision = decide(first, [], LIMITS, seed, shards=shards)
    for checkpoint in at if cases else ():
        decision = decide(
            first,
            cut(quantities, TRIALS, TRIALS + checkpoint, cases),
            LIMITS,
            seed,
            shards=shards,
        )
        if is_settled(decision, LIMITS):
            break
    return decision


def _same(task: tuple[int, int]) -> list[tuple[float, float]]:
    """Return for each shard the p-value of the first stage, and the risk of its checkpoints.

    That is the probability that they then confirm a false alarm.

    The probability follows from p-values of fresh trials that are uniform, which is what the
    permutation test guarantees.
    """
    part, number = task
    draw = np.random.default_rng(part)
    p_values_and_risks = []
    kinds = [quantity.kind for quantity in shard(np.random.default_rng(0), 0)]
    for index in range(number):
        logs = np.array(
            [quantity.logs for quantity in shard(draw, (part * number + index) % RUNNERS)]
        )
        p = float(permutation.directed_test(logs, kinds, np.ones(len(logs)), 1).min())
        p_values_and_risks.append(
            (
                p,
                sum(min(1 / 16, product(RUNNERS) / p) for _ in checkpoints(LIMITS, RUNNERS))
                if p <= 0.05
                else 0.0,
            )
        )
    return p_values_and_risks


def same(shards: int) -> None:
    parts = [(part, PART) for part in range(-(-shards // PART))]
    with ProcessPoolExecutor() as processes:
        p_values_and_risks = [result for part in processes.map(_same, parts) for result in part]
    p, alarm = map(np.array, zip(*p_values_and_risks, strict=True))
    gates = len(p) // RUNNERS
    for level in (0.05, 0.01, 2 / 1024):
        reached = share(int((p <= level).sum()), len(p))
        print(
            f"{len(p)} shards of the same code: smallest p-value at most {level:.2g} in {reached}"
        )
    error = RUNNERS * alarm.std(ddof=1) / math.sqrt(len(alarm))
    print(
        f"false alarms of a gate of {RUNNERS}: {RUNNERS * alarm.mean():.2e}, standard error "
        f"{error:.1e} ({gates} gates)"
    )


def _live(task: tuple[int, int]) -> int:
    part, number = task
    draw = np.random.default_rng(100_000 + part)
    return sum(
        judged(draw, (part * number + index) % RUNNERS, RUNNERS).outcome == REGRESSED
        for index in range(number)
    )


def live(shards: int) -> None:
    """Count the false alarms of shards that are judged in full."""
    parts = [(part, PART) for part in range(-(-shards // PART))]
    with ProcessPoolExecutor() as processes:
        red = sum(processes.map(_live, parts))
    number = len(parts) * PART
    print(
        f"{number} shards, or {number // RUNNERS} gates, of the same code judged in full: {red} "
        "regressed"
    )


def _power(task: tuple[int, int, int, float]) -> list[tuple[bool, int]]:
    part, number, shards, change = task
    draw = np.random.default_rng(part)
    hits = []
    for _ in range(number):
        decision = judged(draw, NOISIEST, shards, change)
        cases = {
            finding.quantity.case for finding in decision.findings if finding.verdict == REGRESSED
        }
        hits.append((f"{NOISIEST}: test_0" in cases, decision.fresh))
    return hits


def power(shards: int) -> None:
    parts = -(-shards // PART)
    with ProcessPoolExecutor() as processes:
        for change in (0.05, 0.1, 0.15):
            for number in (1, 8, RUNNERS):
                tasks = [(part, PART, number, change) for part in range(parts)]
                hits_and_fresh = [
                    result for part in processes.map(_power, tasks) for result in part
                ]
                fresh = statistics.fmean(trials for _, trials in hits_and_fresh)
                count = len(hits_and_fresh)
                hits = f"{share(sum(hit for hit, _ in hits_and_fresh), count)} of {count}"
                what = f"+{change:.0%} on a test of the noisiest runner, one of {number}"
                print(f"{what}: found in {hits}, {fresh:.1f} fresh trials", flush=True)


def bounds(gates: int) -> None:
    """Print the median of the largest bound of medians on the noisiest runner.

    And the share of gates with a wrong bound.
    """
    draw = np.random.default_rng(7)
    for number in (1, 8, RUNNERS):
        wrong = 0
        largest = []
        alone = []
        for _ in range(gates):
            runners = (
                [round(index * (RUNNERS - 1) / max(1, number - 1)) for index in range(number)]
                if number > 1
                else [NOISIEST]
            )
            parts = [shard(draw, runner) for runner in runners]
            decisions = [decide(part, [], LIMITS, 1, shards=number) for part in parts]
            together = united(decisions)
            wrong += any(case.high < 0 or case.low > 0 for case in together.cases)
            largest.append(decisions[-1].bound)
            alone.append(decide(parts[-1], [], LIMITS, 1).bound)
        texts = [f"{statistics.median(values):.1%}" for values in (largest, alone)]
        print(
            f"{number} shards: largest bound of the noisiest runner {texts[0]} together, "
            f"{texts[1]} alone; a bound of all shards is wrong in {share(wrong, gates)} of {gates} "
            "gates",
            flush=True,
        )


def balance() -> None:
    """Print the time of the slowest shard as a multiple of the mean.

    The suites are of files with parametrized tests.
    """
    draw = np.random.default_rng(1)
    for number, tests in ((8, 200), (40, 5_000)):
        ratios: dict[str, list[float]] = {}
        for _ in range(4_000 // number**2 + 5):
            suite: dict[str, float] = {}
            while len(suite) < tests:
                file_time = math.exp(draw.normal(0, 0.5))
                file = len(suite)
                size = int(draw.integers(1, 9))
                for test in range(int(draw.integers(1, 9))):
                    base = file_time * math.exp(draw.normal(0, 0.5))
                    suite |= {
                        f"test_{file:04}.py::test_{test}[{10**p}]": base * (1 + 0.5 * p)
                        for p in range(size)
                    }
            names = sorted(suite)[:tests]
            whole = sum(suite[name] for name in names)
            for way, parts in dealt(names, number).items():
                ratios.setdefault(way, []).append(
                    max(sum(suite[name] for name in part) for part in parts) * number / whole
                )
        for way, ratios_of_way in ratios.items():
            print(
                (
                    f"{tests} tests, {number} shards, {way}: slowest "
                    f"{statistics.median(ratios_of_way):.2f} times the mean"
                ),
                flush=True,
            )


def dealt(tests: Sequence[str], shards: int) -> dict[str, list[list[str]]]:
    """Return the tests of each shard for ways to deal them out."""
    names = sorted(tests)
    by_hash = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    step = len(names) / shards
    return {
        "in the order of names": [names[index::shards] for index in range(shards)],
        "runs of neighbours": [
            names[round(index * step) : round((index + 1) * step)] for index in range(shards)
        ],
        "in the order of a hash": [by_hash[index::shards] for index in range(shards)],
        "function by function": [
            Shard(number, shards, tuple(names)).own() for number in range(1, shards + 1)
        ],
    }


def reached(results: Path) -> None:
    """Print the reached cases of the fullest shard as a multiple of an equal share.

    Of the commits that reach some of the cases. The share is rounded up to whole cases.
    """
    commits = {}
    for line in results.read_text().splitlines():
        commit = json.loads(line)
        if commit["reasons"] and commit["same"]:
            commits[commit["project"], commit["commit"]] = commit
    for shards in (2, 4, 8):
        ratios: dict[str, list[float]] = {}
        for commit in commits.values():
            share_of_each = math.ceil(len(commit["reasons"]) / shards)
            for way, parts in dealt([*commit["reasons"], *commit["same"]], shards).items():
                fullest = max(sum(test in commit["reasons"] for test in part) for part in parts)
                ratios.setdefault(way, []).append(fullest / share_of_each)
        for way, ratios_of_way in ratios.items():
            print(
                f"{len(commits)} commits, {shards} shards, {way}: "
                f"{statistics.mean(ratios_of_way):.2f} on average, {max(ratios_of_way):.2f} at most"
            )


def main() -> None:
    simulations = {"same": same, "live": live, "power": power, "bounds": bounds}
    if sys.argv[1] == "balance":
        balance()
    elif sys.argv[1] == "reached":
        reached(Path(sys.argv[2]))
    else:
        simulations[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 400)


if __name__ == "__main__":
    main()
