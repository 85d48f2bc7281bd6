"""Show why some operations are bimodal: page faults and operation times, iteration by iteration.

    python docs/evidence/page_faults.py BATCH_SIZE [MiB touched first]

Profiles ConvNet's training step in four builds, eight iterations each: two with the default
allocator, then two with the pinned one of the same process. A tensor of fc1's size has
1,152 pages, relu2's gradient at batch 64 has 2,304.
"""

from __future__ import annotations

import os
import resource
import sys

os.environ["KINETO_LOG_LEVEL"] = "99"

import torch
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.machine import pin_allocator
from mnistbench.core.operation import ITERATION
from mnistbench.events.from_profiler import operation_table
from mnistbench.suite.measuring.case import build
from mnistbench.suite.measuring.profiling import marked
from mnistbench.suite.workloads.workload import builtin_workloads, params_of


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8).fill_(1)
    workload = builtin_workloads("digits", None)[0]
    for number in range(4):
        if number == 2:
            pin_allocator()
        case = build(
            params_of(workload, "step", int(sys.argv[1]), "cpu", threads=1, seed=1), workload
        )
        for _ in range(3):
            case()
        counted = []
        activities = [ProfilerActivity.CPU]
        with (
            torch.profiler.profile(activities=activities, profile_memory=True) as profiler,
            marked(case),
        ):
            case()
            for _ in range(8):
                before = faults()
                with record_function(ITERATION):
                    case()
                counted.append(faults() - before)
        rows = operation_table(profiler, "cpu", "host").rows
        allocator = "pinned" if number >= 2 else "default"
        print(f"build {number}, {allocator}: page faults {counted}")
        for name, module in (("aten::add", ""), ("aten::threshold_backward", "relu2")):
            [row] = [
                row
                for row in rows
                if (row.name, row.module) == (name, module) and row.phase != "forward"
            ]
            print(f"  {name:26} us {[ns // 1000 for ns in row.self_cpu_ns]}")


if __name__ == "__main__":
    main()
