"""pytorch/pytorch#162683: batched products in float16 5 times. Run it with torch 2.9.1 and 2.10.0; it needs nothing else."""

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
a = torch.rand(1, 12, 10, 64)
b = torch.rand(1, 12, 64, 10)
report("matmul_heads-1x12x10x64-float32-contiguous-1t-forward", lambda: a @ b)
a = torch.rand(1, 12, 10, 64).to(torch.bfloat16)
b = torch.rand(1, 12, 64, 10).to(torch.bfloat16)
report("matmul_heads-1x12x10x64-bfloat16-contiguous-1t-forward", lambda: a @ b)
a = torch.rand(1, 12, 10, 64).to(torch.float16)
b = torch.rand(1, 12, 64, 10).to(torch.float16)
report("matmul_heads-1x12x10x64-float16-contiguous-1t-forward", lambda: a @ b)
