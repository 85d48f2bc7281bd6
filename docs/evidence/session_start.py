"""Measure what the plug-in adds to the start of a pytest session that does not use it.

``python docs/evidence/session_start.py`` runs pairs of ``pytest --collect-only -q`` in an empty
project, with the plug-in and with ``-p no:mnistbench``, in random order. It prints the median
difference in wall and CPU time over the pairs, with its 95 % interval (signs of the pairs).
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

PAIRS = 40
COMMAND = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
WITHOUT = ["-p", "no:mnistbench"]


def took(folder, *arguments):
    """Return wall and CPU time of a session in milliseconds."""
    start = time.perf_counter()
    process = subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 5, "no tests are collected in an empty project"
    return 1e3 * wall, 1e3 * (usage.ru_utime + usage.ru_stime)


def main():
    rng = random.Random(1)  # no secret
    # The plug-in would be compiled in every session.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for sides in ([], WITHOUT):  # caches of bytecode and of the disk
            took(folder, *sides)
        for _ in range(PAIRS):
            sides = [(), tuple(WITHOUT)]
            rng.shuffle(sides)
            took_of_side = {side: took(folder, *side) for side in sides}
            pairs.append((took_of_side[()], took_of_side[tuple(WITHOUT)]))
    for position, what in enumerate(("wall", "CPU")):
        added = sorted(with_it[position] - without[position] for with_it, without in pairs)
        outer = round(PAIRS / 2 - 0.98 * PAIRS**0.5)
        base = statistics.median(without[position] for _, without in pairs)
        print(
            f"{what}: {statistics.median(added):.1f} ms added to {base:.0f} ms, "
            f"95 % interval {added[outer]:.1f} to {added[-1 - outer]:.1f} ms, {PAIRS} pairs"
        )


if __name__ == "__main__":
    main()
