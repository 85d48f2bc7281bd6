"""pytorch/pytorch#189283: index_add_ 2.4 times, baddbmm 2 times. Run it with torch 2.9.1 and 2.14.0; it needs nothing else."""

import time

import torch
import torch.nn.functional as F


def report(name, function):
    """Print the median time of a call."""
    times, ends = [], time.perf_counter() + 1
    while len(times) < 3 or time.perf_counter() < ends:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    print(f"{name}: {1e6 * sorted(times)[len(times) // 2]:,.1f} us")


torch.manual_seed(0)
torch.set_num_threads(1)
print(torch.__version__, torch.backends.cpu.get_cpu_capability())
a = torch.rand(128, 64, 32)
b = torch.rand(128, 32, 64)
c = torch.rand(128, 64, 64)
report("baddbmm-128x64x32-float32-contiguous-1t-forward", lambda: torch.baddbmm(c, a, b))
i = torch.randint(8, [1])
a = torch.rand(8, 32, 1)
b = torch.rand(1, 32, 1)
report("index_add_-1-float32-contiguous-1t-forward", lambda: a.index_add_(0, i, b))
i = torch.randint(8, [8])
a = torch.rand(8, 32, 1)
b = torch.rand(8, 32, 1)
report("index_add_-8-float32-contiguous-1t-forward", lambda: a.index_add_(0, i, b))
