"""Compare ``mnistbench trace`` with torch's own ``key_averages()`` on the same profile.

The comparison goes operation by operation.

    python docs/evidence/key_averages.py FOLDER [--device cuda]

Profiles training steps of ConvNet, writes the trace and the report to FOLDER, and prints each
operation in which calls, device time or host time differ, then one line: OK, or what differs. Exit
code 1 if calls or device times differ; on a CPU, where nothing else was compared, also if host
times differ. On an accelerator the host time of an operation excludes the runtime calls inside it,
which the profiler does not always link to the operation, so differences of host times are only
counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Profiled steps, steps before them, and samples of each.
STEPS = 5
WARMUP_STEPS = 3
BATCH_SIZE = 64

#: Largest difference that rounding explains, in nanoseconds per call: both sides add times that are
#: rounded to nanoseconds.
ROUNDING_NS = 1.0


@dataclass
class Averages:
    """What ``key_averages()`` has."""

    operations: dict[str, Sums]  # without ranges, with calls of the accelerator's runtime
    ranges: set[str]  # names; the device time of a range is that of its copy on the device
    device_ns: float = 0.0  # of all kernels, copies and fills


@dataclass
class Sums:
    """One operation, summed over all steps.

    Times are nanoseconds without the operations that it calls.
    """

    calls: int = 0
    device_ns: float = 0.0
    host_ns: float = 0.0


def profiled(device: str, trace: Path) -> Averages:
    """Profile steps, write their trace, and return what ``key_averages()`` has."""
    import torch
    from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public at run time
    from torch.profiler import ProfilerActivity

    from mnistbench.suite.measuring.profiling import activities_of, has_device_view
    from mnistbench.suite.workloads.step import Step
    from mnistbench.suite.workloads.workload import builtin_workloads

    [workload] = [
        workload for workload in builtin_workloads("digits", None) if workload.name == "convnet"
    ]
    model = workload.make_model().to(device)
    step = Step(model, workload.loss, workload.make_optimizer(model.parameters()))
    inputs, targets = workload.make_batch(
        BATCH_SIZE, torch.device(device), torch.Generator().manual_seed(1)
    )
    activities: list[ProfilerActivity] = activities_of(
        device, "device" if has_device_view(device) else "host"
    )
    for _ in range(WARMUP_STEPS):
        step(inputs, targets)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step(inputs, targets)
        if device != "cpu":
            torch.accelerator.synchronize(device)
    profiler.export_chrome_trace(str(trace))
    averages = Averages({}, set())
    for average in profiler.key_averages():
        if average.device_type != DeviceType.CPU:
            averages.device_ns += (
                0.0 if average.is_user_annotation else 1e3 * average.self_device_time_total
            )
        elif average.is_user_annotation:
            averages.ranges.add(average.key)
        else:
            sums = averages.operations.setdefault(average.key, Sums())
            sums.calls += average.count
            sums.device_ns += 1e3 * average.self_device_time_total
            sums.host_ns += 1e3 * average.self_cpu_time_total
    return averages


def reported(trace: Path, report: Path) -> tuple[dict[str, Sums], float]:
    """Run ``mnistbench trace``.

    Return the operations of its report, and the device time of all rows in nanoseconds.
    """
    from mnistbench.core.operation import NOT_OPERATIONS

    options = ["--by", "op", "--format", "json", "--output", str(report)]
    subprocess.run([sys.executable, "-m", "mnistbench", "trace", str(trace), *options], check=True)
    rows: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["traces"][0][
        "operations"
    ]
    operations = {
        row["operation"]: Sums(
            round(row["calls"]), row["self_device_ns"] or 0.0, row["self_cpu_ns"]
        )
        for row in rows
        if row["operation"] not in NOT_OPERATIONS
    }
    return operations, sum(row["self_device_ns"] or 0.0 for row in rows)


def differences(ours: dict[str, Sums], theirs: dict[str, Sums], quantity: str) -> list[str]:
    """Return a line for each operation of ours whose quantity differs by more than rounding.

    A quantity is a field of ``Sums``.
    """
    lines = []
    for name, sums in sorted(ours.items()):
        if name not in theirs:
            lines.append(f"{name}: key_averages() does not have it")
            continue
        value = getattr(sums, quantity)
        expected = getattr(theirs[name], quantity)
        tolerance = 0 if quantity == "calls" else ROUNDING_NS * sums.calls
        if abs(value - expected) > tolerance:
            lines.append(f"{name}: {quantity} {value:,.0f}, key_averages() has {expected:,.0f}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    settings = parser.parse_args()
    settings.folder.mkdir(parents=True, exist_ok=True)
    trace = settings.folder / "trace.json"
    averages = profiled(settings.device, trace)
    rows, device_ns = reported(trace, settings.folder / "report.json")
    ours = {name: sums for name, sums in rows.items() if name not in averages.ranges}
    differences_of = {
        quantity: differences(ours, averages.operations, quantity)
        for quantity in ("calls", "device_ns", "host_ns")
    }
    if abs(device_ns - averages.device_ns) > ROUNDING_NS * sum(
        sums.calls for sums in ours.values()
    ):
        differences_of["device_ns"].append(
            f"all kernels and copies: {device_ns:,.0f}, key_averages() has "
            f"{averages.device_ns:,.0f}"
        )
    for line in (line for lines in differences_of.values() for line in lines):
        print(line)
    decisive = ("calls", "host_ns") if settings.device == "cpu" else ("calls", "device_ns")
    is_equal = bool(ours) and not any(differences_of[quantity] for quantity in decisive)
    counts = ", ".join(f"{len(lines)} in {quantity}" for quantity, lines in differences_of.items())
    verdict = "OK" if is_equal else "DIFFERENT"
    print(
        f"{verdict}: {len(ours)} operations, {device_ns / 1e3:,.0f} us of kernels and copies; "
        f"differences: {counts}"
    )
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
