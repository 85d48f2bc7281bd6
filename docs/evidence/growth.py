"""Measure how the cost of everything but timing grows with cases and with operations.

``python docs/evidence/growth.py suite`` runs pytest with 9, 36 and 144 cases, and with models of
10, 40 and 160 layers, each in a process of its own, with the shortest timing. ``python
docs/evidence/growth.py files SAVED.json`` saves and compares runs of 12 to 200 cases without
pytest. Ratios between the sizes show the growth; the seconds are CPU time on one machine.
"""

import dataclasses
import functools
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = (9, 36, 144)
LAYERS = (10, 40, 160)
IN_FILE = (12, 25, 50, 100, 200)
TIMES_ROWS = (1, 4, 16)

CONFTEST = """
import pytest, torch
from mnistbench import Workload

def model(layers):
    return lambda: torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(layers)))

def batch(size, device, generator):
    return tuple(torch.randn(size, 32, generator=generator).to(device) for _ in range(2))

@pytest.hookimpl
def pytest_mnistbench_workloads(config):
    loss = torch.nn.functional.mse_loss
    return [
        Workload(f"layers{layers}", model(layers), batch, loss, torch.optim.Adam)
        for layers in LAYERS
    ]
"""

SHORTEST = (
    "--benchmark-min-rounds=1",
    "--benchmark-max-time=0.005",
    "--benchmark-warmup=off",
    "--bench-batch-size=1",
    "--bench-device=cpu",
    "-q",
    "-p",
    "no:cacheprovider",
)


def session(arguments):
    """Run pytest here; print what it took as JSON on the last line."""
    import pytest
    from suite_time import Clock, minus, now

    clock = Clock()
    start = now()

    class Study:
        def pytest_collection_finish(self):
            import torch  # noqa: F401  # a part of the start, whichever case needs it first

            from mnistbench.pytest_plugin.session import Session
            from mnistbench.suite.measuring import tensorboard
            from mnistbench.suite.op_benchmark import fixture

            clock.wrap(fixture, "profile_first_call", "profiling")
            clock.wrap(fixture, "profile", "profiling")
            clock.wrap(fixture, "time_case", "timing")
            clock.wrap(tensorboard.Tracker, "training", "curves")
            clock.wrap(tensorboard.Tracker, "rounds", "curves")
            clock.wrap(Session, "judge", "comparing")
            clock.seconds["start"] = minus(now(), start)

    code = pytest.main(arguments, plugins=[Study()])
    assert code in (0, 1), f"pytest ended with {code}"
    clock.seconds["other"] = functools.reduce(minus, clock.seconds.values(), minus(now(), start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        "\n" + json.dumps({**{part: cpu for part, (_, cpu) in clock.seconds.items()}, "MiB": peak})
    )


def run(folder, model, *arguments):
    """Return what a session in a process of its own took."""
    storage = [
        f"--benchmark-storage={folder / 'saved'}",
        f"--bench-tensorboard={folder / 'tensorboard'}",
    ]
    command = [
        sys.executable,
        Path(__file__).resolve(),
        "session",
        folder,
        f"--bench-model={model}",
    ]
    done = subprocess.run(
        [*command, *storage, *SHORTEST, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


def project(folder, cases):
    """Write a project with as many tests, every second of them a training step."""
    (folder / "conftest.py").write_text(CONFTEST.replace("LAYERS", repr(LAYERS)), encoding="utf-8")
    tests = (
        f"def test_{n}(op_benchmark):\n    op_benchmark('{('forward', 'step')[n % 2]}')\n"
        for n in range(1, cases + 1)
    )
    (folder / "test_growth.py").write_text("\n".join(tests), encoding="utf-8")


def suite():
    parts = ("start", "timing", "profiling", "curves", "comparing", "other")
    print(
        f"{'':12}"
        + "".join(f"{part:>11}" for part in parts)
        + f"{'outside timing':>26}{'peak':>10}"
    )

    def show(label, took, count, unit):
        outside = sum(took.get(part, 0) for part in parts if part not in ("start", "timing"))
        per_unit = f"{1e3 * outside / count:.2f} ms per {unit}"
        seconds = "".join(f"{took.get(part, 0):9.2f} s" for part in parts)
        print(f"{label:12}{seconds}{per_unit:>26}{took['MiB']:6.0f} MiB", flush=True)

    for cases in CASES:
        with tempfile.TemporaryDirectory() as name:
            project(Path(name), cases)
            show(
                f"{cases} cases", run(Path(name), "layers10", "--benchmark-autosave"), cases, "case"
            )
    for layers in LAYERS:
        with tempfile.TemporaryDirectory() as name:
            project(Path(name), 1)
            run(Path(name), f"layers{layers}", "--benchmark-autosave")
            took = run(Path(name), f"layers{layers}", "--benchmark-autosave", "--benchmark-compare")
            [saved, *_] = (Path(name) / "saved").rglob("*.json")
            [benchmark] = json.loads(saved.read_text(encoding="utf-8"))["benchmarks"]
            rows = len(
                json.loads(benchmark["extra_info"]["mnistbench"]["tables"][-1]["operations"])[
                    "name"
                ]
            )
            show(f"{layers} layers", took, rows, f"row of {rows}")


# ---- Without pytest ------------------------------------------------------------------------------


def grown(saved, cases, times_rows):
    """Return a parsed run with as many cases, and tables with so many times the rows."""
    from mnistbench.core.record import KEY
    from mnistbench.saved_runs.run import Run

    records = Run.from_json(saved, "saved").cases
    grown_records = []
    for number in range(cases):
        record = records[number % len(records)]
        benchmark = saved["benchmarks"][number % len(records)]
        tables = tuple(
            dataclasses.replace(
                table,
                rows=tuple(
                    dataclasses.replace(row, module=f"{copy}.{row.module}")
                    for copy in range(times_rows)
                    for row in table.rows
                ),
            )
            for table in record.tables
        )
        params = dataclasses.replace(record.params, seed=number)
        grown_records.append(
            (
                dataclasses.replace(
                    record, params=params, tables=tables, node_id=f"{record.node_id}{number}"
                ),
                benchmark,
            )
        )
    return KEY, grown_records


def files(source):
    from mnistbench.compare.criteria import Criteria, Threshold
    from mnistbench.compare.diff import compare
    from mnistbench.compare.judge import judge
    from mnistbench.compare.report import report
    from mnistbench.saved_runs.storage import Storage
    from mnistbench.showing.terminal import draw_report

    saved = json.loads(source.read_text(encoding="utf-8"))
    parts = (
        "records to JSON",
        "write file",
        "read 2 files",
        "compare, judge",
        "render",
        "together",
    )
    print(f"{'':24}" + "".join(f"{part:>18}" for part in parts))
    for cases, times_rows in (
        *((cases, 1) for cases in IN_FILE),
        *((1, times) for times in TIMES_ROWS),
    ):
        key, grown_records = grown(saved, cases, times_rows)
        with tempfile.TemporaryDirectory() as name:
            marks = [time.process_time()]
            entries = [
                {**benchmark, "fullname": record.node_id, "extra_info": {key: record.to_json()}}
                for record, benchmark in grown_records
            ]
            marks.append(time.process_time())
            first, second = (Path(name) / f"000{number}_run.json" for number in (1, 2))
            first.write_text(
                json.dumps({**saved, "benchmarks": entries}, indent=4), encoding="utf-8"
            )
            marks.append(time.process_time())
            second.write_bytes(first.read_bytes())
            base, now = (Storage(Path(name)).find(number)[0].run for number in "12")
            marks.append(time.process_time())
            criteria = Criteria(op_fail=(Threshold("", 0.1),))
            judgement = judge(compare([base], now), criteria)
            marks.append(time.process_time())
            draw_report(report(judgement, 10).blocks)
            marks.append(time.process_time())
        seconds = [after - before for before, after in itertools.pairwise(marks)]
        rows = sum(len(table.rows) for table in grown_records[0][0].tables)
        label = f"{cases} cases" if times_rows == 1 and cases > 1 else f"1 case, {rows} rows"
        print(
            f"{label:24}" + "".join(f"{value:16.3f} s" for value in [*seconds, sum(seconds)]),
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1] == "session":
        session(sys.argv[2:])
    elif sys.argv[1] == "suite":
        suite()
    else:
        files(Path(sys.argv[2]))
