"""Measure a case with a large working set that both sides of a gate run on one core.

They run at once.

``python docs/evidence/shared_cache.py`` runs a gate on a project of plain tests, which need no
torch. Each test reads as many bytes as the others, again and again from a working set of 16 KiB to
16 MiB; that of the head is 1.5 times as large (the factor is the first argument; 1 is a control in
which both sides run the same code). The second is the number of trials (10). The table has the
change of CPU time between the sides, with its standard error over trials or pairs of processes,
in %:

- alone: each side in a process of its own, one after the other, while nothing else runs;
- in turn: the pairs of the gate, in which the other side runs between two iterations;
- at once: the blocks of the gate, in which the kernel switches between both sides.

The last column is what the gate adds: at once minus alone. A larger working set needs fewer calls
of ``sum``, so the smallest ones take less time by their work alone; only the differences between
the columns are effects of the cache.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from mnistbench.core.child import measuring_environment
from mnistbench.gate.decide.statistics.differences import difference
from mnistbench.gate.samples.raw_samples import load
from mnistbench.gate.words import BASE, CPU, HEAD

#: Working sets of the base, KiB: in a usual L1, L2 and L3 cache, and at their borders.
SIZES = (16, 32, 64, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)

TEST = f"""
import os, sys, time

import numpy as np
import pytest

READ = 32 << 20  # bytes of a call


def reader(kib):
    data = np.ones(int(kib * 1024 * float(os.environ["FACTOR"])) // 8)
    passes, rest = divmod(READ // 8, data.size)

    def read():
        for _ in range(passes):
            data.sum()
        data[:rest].sum()

    return read


@pytest.mark.parametrize("kib", {SIZES})
def test_read(benchmark, kib):
    benchmark(reader(kib))


if __name__ == "__main__":
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    for kib in {SIZES}:
        read = reader(kib)
        times = []
        for _ in range(60):
            began = time.process_time_ns()
            read()
            times.append(time.process_time_ns() - began)
        print(sorted(times[10:])[25])
"""


def alone(file: Path, factor: str) -> list[int]:
    """Return the median CPU time of a call for each size, in nanoseconds.

    Nothing else runs beside the process.
    """
    environ = {**measuring_environment(os.environ, file.parent / "pycache"), "FACTOR": factor}
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, check=True, env=environ
    )
    return list(map(int, done.stdout.split()))


def shown(logs: list[float]) -> str:
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{100 * statistics.fmean(logs):+6.2f} ({100 * error:.2f})"


def main() -> None:
    factor = sys.argv[1] if len(sys.argv) > 1 else "1.5"
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_read.py")
        file.write_text(TEST, encoding="utf-8")
        sides = {BASE: "1", HEAD: factor}
        pairs = [{side: alone(file, value) for side, value in sides.items()} for _ in range(trials)]
        command = [
            sys.executable,
            "-m",
            "mnistbench",
            "gate",
            "--trials",
            trials,
            "--threshold",
            "900%",
            "--storage",
            "raw",
            "--base-env",
            "FACTOR=1",
            "--head-env",
            f"FACTOR={factor}",
            "--",
            file.name,
        ]
        subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL)
        [path] = Path(folder, "raw", "gate").iterdir()
        recorded = load(path)
    print(f"{'KiB':>6}  {'alone':>14}  {'in turn':>14}  {'at once':>14}  at once - alone")
    for position, kib in enumerate(SIZES):
        case_builds = [
            trial.cases[f"{file.name}::test_read[{kib}]"][0] for trial in recorded.trials
        ]
        columns = [
            [math.log(pair[HEAD][position] / pair[BASE][position]) for pair in pairs],
            [
                difference(build[BASE].times[CPU], build[HEAD].times[CPU]).log
                for build in case_builds
            ],
            [difference(build[BASE].block_ns, build[HEAD].block_ns).log for build in case_builds],
        ]
        added = 100 * (statistics.fmean(columns[2]) - statistics.fmean(columns[0]))
        print(f"{kib:>6}  {'  '.join(f'{shown(logs):>14}' for logs in columns)}  {added:+.2f}")


if __name__ == "__main__":
    main()
