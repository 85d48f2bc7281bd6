"""Compare first iterations in new processes with those in processes forked from a server.

The new processes import torch themselves.

Run in a checkout, in an environment with the dependencies, on a CPU: ``python
docs/evidence/first_call_processes.py [PAIRS]``. For each phase and batch size it runs PAIRS pairs
(default: 10) of processes in random order and prints the median, the minimum and the interquartile
range of the first iteration, of the sum of its operations and of each large operation, and whether
all processes ran the same operations.
"""

import random
import statistics
import sys
from dataclasses import replace

from mnistbench.core.params import Params
from mnistbench.suite.profile.first_call import FirstCallJob, calls_of_process

PARAMS = Params(
    workload="convnet",
    phase="step",
    batch_size=1,
    device="cpu",
    dtype="float32",
    threads=1,
    compile=False,
    seed=1,
    dataset="digits",
)
#: Operations with at least this share of the sum are listed by themselves.
LARGE = 0.1


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    ways = {"fresh": False, "forked": True}
    trained = calls_of_process(FirstCallJob(PARAMS, None), forks=False)
    calls = {}
    print(
        "| case | time, ms: median (minimum; IQR) | fresh | forked | ratio of medians |",
        "|---|---|---|---|---|",
        sep="\n",
    )
    cases = [
        replace(PARAMS, phase=phase, batch_size=size)
        for phase in ("forward", "step")
        for size in (1, 64)
    ]
    for _ in range(pairs):
        for params in random.sample(cases, len(cases)):
            job = FirstCallJob(params, None, trained.trained_weights)
            for way in random.sample(sorted(ways), 2):
                (call,) = calls_of_process(job, forks=ways[way]).calls
                calls.setdefault(params, {}).setdefault(way, []).append(call)
    for params in cases:
        show(params, calls[params])


def show(params, calls):
    kinds = {
        tuple(sorted((row.key, row.calls) for row in call.table.rows))
        for calls_of_way in calls.values()
        for call in calls_of_way
    }
    name = f"{params.phase}, batch {params.batch_size}"
    row(
        (
            f"{name}; "
            f"{'the same operations' if len(kinds) == 1 else f'{len(kinds)} lists of operations'}"
        ),
        "iteration",
        {way: [call.ns for call in calls_of_way] for way, calls_of_way in calls.items()},
    )
    row(
        "",
        "sum of operations",
        {way: [total(call) for call in calls_of_way] for way, calls_of_way in calls.items()},
    )
    typical = statistics.median(total(call) for call in calls["fresh"])
    for key in dict.fromkeys(row.key for call in calls["fresh"] for row in call.table.rows):
        times = {
            way: [of(call, key) for call in calls_of_way] for way, calls_of_way in calls.items()
        }
        if statistics.median(times["fresh"]) >= LARGE * typical:
            row("", " ".join(filter(None, key)), times)


def total(call):
    return sum(row.self_ns("cpu") for row in call.table.rows)


def of(call, key):
    return sum(row.self_ns("cpu") for row in call.table.rows if row.key == key)


def row(case, what, times):
    shown = []
    for way in ("fresh", "forked"):
        first, median, third = statistics.quantiles(times[way], n=4)
        shown.append(
            f"{median / 1e6:.2f} ({min(times[way]) / 1e6:.2f}; {(third - first) / 1e6:.2f})"
        )
    ratio = statistics.median(times["forked"]) / statistics.median(times["fresh"])
    print(f"| {case} | {what} | {' | '.join(shown)} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
