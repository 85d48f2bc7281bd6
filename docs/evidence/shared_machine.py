"""Measure how much slower ``mnistbench train`` becomes if other processes need the same cores.

    python docs/evidence/shared_machine.py [ARGUMENTS of mnistbench train]

Runs whole commands in turns: alone, and with one other process on each core, which computes all the
time. Of two processes on a core each gets a half of it, so a training that loses in proportion
takes twice as long. The arms set variables of the OpenMP library, which decide how its threads wait
for each other. Nothing else may run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: 300,000 is the default of GNU's OpenMP for as many threads as cores.
ARMS = {
    "as it is (`GOMP_SPINCOUNT=10000`)": {},
    "`GOMP_SPINCOUNT=1000`": {"GOMP_SPINCOUNT": "1000"},
    "`GOMP_SPINCOUNT=300000`": {"GOMP_SPINCOUNT": "300000"},
    "`OMP_WAIT_POLICY=passive`": {"OMP_WAIT_POLICY": "passive"},
}
CORES = sorted(os.sched_getaffinity(0))


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep processes busy, one on each core."""
    loop = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", loop, str(core)]) for core in CORES[:number]]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def seconds(arguments: list[str], variables: dict[str, str]) -> tuple[float, float]:
    """Return the seconds of the command and of its training."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    }
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-P",
            "-m",
            "mnistbench",
            "train",
            "--no-accel",
            *arguments,
            "--output",
            f"{folder}/run",
        ]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env={**environ, **variables})
        took = time.perf_counter() - began
        epochs = json.loads(Path(folder, "run", "result.json").read_text())["epochs"]
    return took, sum(epoch["train_ns"] for epoch in epochs) / 1e9


def main() -> None:
    arguments = sys.argv[1:] or ["--epochs", "1"]
    print(
        "| variables | alone | training | with others | training | ratio |\n"
        "|---|---|---|---|---|---|"
    )
    for name, variables in ARMS.items():
        alone = seconds(arguments, variables)
        with busy_processes(len(CORES)):
            shared = seconds(arguments, variables)
        cells = (*(f"{value:.1f} s" for value in (*alone, *shared)), f"{shared[0] / alone[0]:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
