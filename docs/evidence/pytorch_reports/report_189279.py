"""pytorch/pytorch#189279: sinh, cosh, atan, log2, log10 of 512 x 512: 3 to 5 times slower. Run it with torch 2.9.1 and 2.14.0; it needs nothing else."""

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
a = torch.rand(512, 512)
report("log2-512x512-float32-contiguous-1t-forward", lambda: a.log2())
report("log10-512x512-float32-contiguous-1t-forward", lambda: a.log10())
report("sinh-512x512-float32-contiguous-1t-forward", lambda: a.sinh())
report("cosh-512x512-float32-contiguous-1t-forward", lambda: a.cosh())
report("atan-512x512-float32-contiguous-1t-forward", lambda: a.atan())
report("log10_-512x512-float32-contiguous-1t-forward", lambda: a.log10_())
report("log2_-512x512-float32-contiguous-1t-forward", lambda: a.log2_())
