"""pytorch/pytorch#183815: conv2d in bfloat16 4 to 16 times. Run it with torch 2.12.0 and 2.13.0; it needs nothing else."""

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
a = torch.rand(8, 64, 56, 56).to(torch.bfloat16)
w = torch.rand(64, 8, 3, 3).to(torch.bfloat16)
report("conv2d_grouped-8x64x56x56-bfloat16-contiguous-1t-forward", lambda: F.conv2d(a, w, groups=8))
a = torch.rand(8, 64, 56, 56).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
w = torch.rand(64, 8, 3, 3).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
report("conv2d_grouped-8x64x56x56-bfloat16-channels_last-1t-forward", lambda: F.conv2d(a, w, groups=8))
a = torch.rand(8, 16, 112, 112).to(torch.bfloat16)
w = torch.rand(32, 16, 7, 7).to(torch.bfloat16)
report("conv2d_dilated-8x16x112x112-bfloat16-contiguous-1t-forward", lambda: F.conv2d(a, w, dilation=2))
