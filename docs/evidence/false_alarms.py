"""Count how often each rule fails runs of the same code.

``python docs/evidence/false_alarms.py measure 32 FOLDER`` runs ConvNet's training step at batch 1,
16 and 64, 32 times, and saves every run in FOLDER (a quarter of an hour on one CPU). ``python
docs/evidence/false_alarms.py judge FOLDER`` compares the runs with each other by every rule.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.saved_runs.storage import Storage

TEN_PERCENT = Criteria(op_fail=(Threshold("", 0.10),), case_fail=Threshold("", 0.10))
OPERATIONS = Criteria(op_fail=(Threshold("", 0.10),))
SUITE = ["bench/test_step.py", "-k", "convnet", "-q", "--bench-tensorboard=off"]


def measure(repetitions, folder):
    arguments = [*SUITE, f"--benchmark-storage={folder.absolute()}", "--benchmark-save=same"]
    for _ in range(repetitions):
        subprocess.run(
            [sys.executable, "-m", "pytest", *arguments], check=True, stdout=subprocess.DEVNULL
        )


def alarms(pairs, criteria):
    """Pairs (base runs, new run) that fail, and the mean number of operations that do."""
    judged = [judge(compare(bases, now, pool_commits=True), criteria) for bases, now in pairs]
    return [bool(judgement.regressions) for judgement in judged], [
        len(judgement.regressions) for judgement in judged
    ]


def share(flags):
    return f"{sum(flags):4} of {len(flags):4} {sum(flags) / len(flags):7.0%}"


def of_pytest_benchmark(paths, statistic):
    """What --benchmark-compare-fail=STATISTIC:10% does with each ordered neighbour."""
    stats = [
        {
            benchmark["fullname"]: benchmark["stats"][statistic]
            for benchmark in json.loads(path.read_text())["benchmarks"]
        }
        for path in paths
    ]
    return lambda pairs: [
        any(stats[now][name] > 1.10 * before for name, before in stats[base].items())
        for base, now in pairs
    ]


def evaluate(folder):
    saved = Storage(folder).all()
    runs = [file.run for file in saved]
    neighbours = list(itertools.pairwise(range(len(runs))))
    every = list(itertools.permutations(range(len(runs)), 2))
    print(f"{len(runs)} runs of the same code, 3 cases")
    print(f"{'':42}{'next run':>22}{'any other run':>24}")
    for statistic in ("mean", "min"):
        fails = of_pytest_benchmark([file.path for file in saved], statistic)
        print(
            f"{f'--benchmark-compare-fail={statistic}:10%':42}{share(fails(neighbours)):>22}{share(fails(every)):>24}"
        )
    call = Criteria(case_fail=Threshold("", 0.10))
    for label, criteria in (
        ("--case-fail 10%, one base run", call),
        ("--op-fail 10%, one base run", OPERATIONS),
    ):
        near, _ = alarms([([runs[a]], runs[b]) for a, b in neighbours], criteria)
        far, count = alarms([([runs[a]], runs[b]) for a, b in every], criteria)
        print(
            f"{label:42}{share(near):>22}{share(far):>24}   {sum(count) / len(count):.1f} "
            "verdicts a report"
        )
    for size in (8, 15, 24):
        windows = [
            (runs[start : start + size], runs[start + size]) for start in range(len(runs) - size)
        ]
        judged = [
            judge(compare(bases, now, pool_commits=True), TEN_PERCENT) for bases, now in windows
        ]
        flags = [bool(judgement.regressions) for judgement in judged]
        seen = sorted(
            finding.ruling.uncertainty
            for judgement in judged
            for case in judgement.cases
            for finding in case.findings
            if finding.ruling.by_runs
        )
        held_in = len([finding for case in judged[0].cases for finding in case.findings])
        print(
            f"{f'--op-fail and --case-fail 10%, {size} base runs':42}"
            f"{share(flags):>22}{'':24}   "
            f"{held_in} held; slowdown it can call, median {seen[len(seen) // 2]:.0%}, "
            f"calls only {median_of_calls(judged):.0%}"
        )


def median_of_calls(judged):
    seen = sorted(
        case.iteration.ruling.uncertainty
        for judgement in judged
        for case in judgement.cases
        if case.iteration.ruling.by_runs
    )
    return seen[len(seen) // 2]


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"] and len(sys.argv) == 4:
        measure(int(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:2] == ["judge"] and len(sys.argv) == 3:
        evaluate(Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
