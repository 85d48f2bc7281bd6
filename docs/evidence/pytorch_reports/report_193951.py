"""pytorch/pytorch#193951: products in float16 1,385 times. Run it with torch 2.13.0 and 2.14.0; it needs nothing else."""

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
a = torch.rand(500, 500)
b = torch.rand(500, 500)
report("mm-500x500-float32-contiguous-1t-forward", lambda: a @ b)
a = torch.rand(500, 500).to(torch.bfloat16)
b = torch.rand(500, 500).to(torch.bfloat16)
report("mm-500x500-bfloat16-contiguous-1t-forward", lambda: a @ b)
a = torch.rand(500, 500).to(torch.float16)
b = torch.rand(500, 500).to(torch.float16)
report("mm-500x500-float16-contiguous-1t-forward", lambda: a @ b)
a = torch.rand(2048, 2048).to(torch.float16)
b = torch.rand(2048, 2048).to(torch.float16)
report("mm_float16-2048x2048-float16-contiguous-1t-forward", lambda: a @ b)
