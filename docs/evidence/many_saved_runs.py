"""Measure time and memory of list, history and a comparison with all saved runs.

There are 10, 100 and 1,000 saved runs of 12 cases.

``python docs/evidence/many_saved_runs.py SAVED.json`` copies one saved run, with slightly different
times, and measures every command in its own process.
``pytest bench -k "test_step or test_forward" --benchmark-json=SAVED.json`` makes a run of 12 cases.
Ratios between the sizes show how the cost grows; the seconds are those of one machine.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (10, 100, 1_000)
CASES = 12

#: Runs a command of ours and prints its CPU time in seconds and its peak memory in KiB (Linux) at
#: the end.
MEASURED = """
import resource, sys
from mnistbench.cli import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(0 if code in (0, 1, 2) else code)  # 2: the copies vary too much to judge
"""


def copies(source, folder, count):
    saved = json.loads(source.read_text(encoding="utf-8"))
    saved["benchmarks"] = saved["benchmarks"][:CASES]
    assert len(saved["benchmarks"]) == CASES, f"{source} has fewer than {CASES} cases"
    rng = random.Random(1)  # no secret
    for number in range(count):
        for benchmark in saved["benchmarks"]:
            benchmark["stats"]["median"] *= rng.lognormvariate(0, 0.01)
            for table in benchmark["extra_info"]["mnistbench"]["tables"]:
                times = json.loads(table["times"])
                times["self_ns"] = [
                    round(ns * rng.lognormvariate(0, 0.01)) for ns in times["self_ns"]
                ]
                table["times"] = json.dumps(times, separators=(",", ":"))
        saved["datetime"] = (
            f"2026-{1 + number // 800:02}-{1 + number // 40 % 20:02}T10:{number % 40:02}:00+00:00"
        )
        path = folder / "machine" / f"{number + 1:04}_run.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(saved, indent=4), encoding="utf-8")
    return saved["benchmarks"][0]["fullname"], path.stat().st_size


def measured(arguments):
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True
    )
    wall = time.perf_counter() - start
    *_, cpu, kib = done.stderr.split()
    return wall, float(cpu), int(kib) / 1024


def main(source):
    print(f"{'':28}" + "".join(f"{f'{size:,} runs':>30}" for size in SIZES))
    rows = {}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            case, bytes_each = copies(source, Path(name), size)
            compare = ["compare", "*", "latest", "--op-fail=10%", "--pool-commits"]
            commands = {
                "compare with all": compare,
                "list": ["list"],
                "history of one case": ["history", case],
            }
            for label, arguments in commands.items():
                rows.setdefault(label, []).append(measured([*arguments, "--storage", name]))
    for label, cells in rows.items():
        print(
            f"{label:28}"
            + "".join(
                f"{f'{wall:.2f} s, CPU {cpu:.2f} s, {mib:.0f} MiB':>30}" for wall, cpu, mib in cells
            )
        )
    print(f"a file has {bytes_each / 1024:.0f} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
