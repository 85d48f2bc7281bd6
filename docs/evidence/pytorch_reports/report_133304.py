"""pytorch/pytorch#133304: conv_transpose1d of changing shapes 3.4 times slower than in 2.1.2. Run it with torch 2.6.0 and 2.15.0; it needs nothing else."""

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
a = torch.rand(1, 1026, 64)
w = torch.rand(1026, 1, 1024)
report("conv_transpose1d-1x1026x64-float32-contiguous-1t-forward", lambda: F.conv_transpose1d(a, w, stride=256))
a = torch.rand(1, 1026, 256)
w = torch.rand(1026, 1, 1024)
report("conv_transpose1d-1x1026x256-float32-contiguous-1t-forward", lambda: F.conv_transpose1d(a, w, stride=256))
