"""pytorch/pytorch#183812: scatter_reduce 15 to 58 times. Run it with torch 2.12.0 and 2.13.0; it needs nothing else."""

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
a = torch.rand(128, 64, 128)
i = torch.randint(64, [128, 256, 128])
b = torch.rand(128, 256, 128)
report("scatter_reduce_cube-128x64x128-float32-contiguous-1t-forward", lambda: a.scatter_reduce(1, i, b, 'amax', include_self=False))
a = torch.rand(128, 64, 128).to(torch.float16)
i = torch.randint(64, [128, 256, 128])
b = torch.rand(128, 256, 128).to(torch.float16)
report("scatter_reduce_cube-128x64x128-float16-contiguous-1t-forward", lambda: a.scatter_reduce(1, i, b, 'amax', include_self=False))
