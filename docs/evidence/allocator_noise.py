"""Measure how much the step time differs between fresh processes.

It is measured with a pinned allocator, as every session that measures has it, and with the default.

Run in a checkout, in an environment with the dependencies: ``python
docs/evidence/allocator_noise.py [trials]``. Trials of the two settings alternate, so drift of
the machine affects both.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mnistbench.core.machine import pin_allocator

BATCH_SIZES = (1, 16, 64)
SECONDS_PER_CASE = 1.0


def trial(allocator):
    """Median step time in milliseconds for each batch size, in a process of its own."""
    child = subprocess.run(
        [sys.executable, __file__, "--measure", allocator],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    return json.loads(child.stdout)


def measure():
    import torch

    from mnistbench.suite.measuring.case import build
    from mnistbench.suite.workloads.workload import builtin_workloads, params_of

    torch.set_num_threads(1)
    workload = builtin_workloads("digits", None)[0]
    medians = []
    for batch_size in BATCH_SIZES:
        case = build(params_of(workload, "step", batch_size, "cpu", threads=1, seed=1), workload)
        for _ in range(3):
            case()
        times = []
        while sum(times) < SECONDS_PER_CASE:
            start = time.perf_counter()
            case()
            times.append(time.perf_counter() - start)
        medians.append(1e3 * statistics.median(times))
    return medians


def main(trials):
    samples = {"default": [], "pinned": []}
    for _ in range(trials):
        for allocator, medians in samples.items():
            medians.append(trial(allocator))
    print(f"{trials} trials of each setting, ConvNet training step, one thread")
    print(f"{'':10}" + "".join(f"{f'batch {size}':>24}" for size in BATCH_SIZES))
    for name, rows in samples.items():
        cells = [
            f"{statistics.median(x):.2f} ms +- {statistics.stdev(x) / statistics.mean(x):.1%}"
            for x in zip(*rows, strict=True)
        ]
        print(f"{name:10}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        if sys.argv[2] == "pinned":
            pin_allocator()
        print(json.dumps(measure()))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
