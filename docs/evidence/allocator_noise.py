"""Measure how much the step time differs between fresh processes.

It is measured with and without the allocator's thresholds.

Run in a checkout, in an environment with the dependencies: ``python
docs/evidence/allocator_noise.py [launches]``. Launches of the two settings alternate, so drift of
the machine affects both.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mnistbench.core.machine import PINNED

BATCH_SIZES = (1, 16, 64)
SECONDS_PER_CASE = 1.0


def launch(environment):
    """Median step time in milliseconds for each batch size, in a process of its own."""
    child = subprocess.run(
        [sys.executable, __file__, "--measure"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    return json.loads(child.stdout)


def measure():
    import torch

    from mnistbench.core.params import Params
    from mnistbench.measuring.case import build
    from mnistbench.workloads.workload import builtin_workloads

    torch.set_num_threads(1)
    workload = builtin_workloads("digits", None)[0]
    medians = []
    for batch_size in BATCH_SIZES:
        case = build(
            Params("convnet", "step", batch_size, "cpu", "float32", 1, False, 1, "digits"), workload
        )
        for _ in range(3):
            case()
        times = []
        while sum(times) < SECONDS_PER_CASE:
            start = time.perf_counter()
            case()
            times.append(time.perf_counter() - start)
        medians.append(1e3 * statistics.median(times))
    return medians


def main(launches):
    plain = {name: value for name, value in os.environ.items() if name not in PINNED}
    settings = {"default": plain, "pinned": {**plain, **PINNED}}
    samples = {name: [] for name in settings}
    for _ in range(launches):
        for name, environment in settings.items():
            samples[name].append(launch(environment))
    print(f"{launches} launches of each setting, ConvNet training step, one thread")
    print(f"{'':10}" + "".join(f"{f'batch {size}':>24}" for size in BATCH_SIZES))
    for name, rows in samples.items():
        cells = [
            f"{statistics.median(x):.2f} ms +- {statistics.stdev(x) / statistics.mean(x):.1%}"
            for x in zip(*rows, strict=True)
        ]
        print(f"{name:10}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        print(json.dumps(measure()))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
