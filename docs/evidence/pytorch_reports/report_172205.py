"""pytorch/pytorch#172205: contiguous() after permute() 156 times slower than a copy. Run it with torch 2.6.0 and 2.15.0; it needs nothing else."""

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
a = torch.rand(64, 3, 64, 64)
report("clone-64x3x64x64-float32-contiguous-1t-forward", lambda: a.clone())
a = torch.rand(64, 3, 64, 64).contiguous(memory_format=torch.channels_last)
report("clone-64x3x64x64-float32-channels_last-1t-forward", lambda: a.clone())
a = torch.rand(64, 3, 64, 64).to(torch.bfloat16)
report("clone-64x3x64x64-bfloat16-contiguous-1t-forward", lambda: a.clone())
a = torch.rand(64, 3, 64, 64).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
report("clone-64x3x64x64-bfloat16-channels_last-1t-forward", lambda: a.clone())
a = torch.rand(64, 3, 64, 64).to(torch.float16)
report("clone-64x3x64x64-float16-contiguous-1t-forward", lambda: a.clone())
a = torch.rand(64, 3, 64, 64).to(torch.float16).contiguous(memory_format=torch.channels_last)
report("clone-64x3x64x64-float16-channels_last-1t-forward", lambda: a.clone())
a = torch.rand(64, 3, 64, 64)
report("permute_contiguous-64x3x64x64-float32-contiguous-1t-forward", lambda: a.permute(0, 2, 3, 1).contiguous())
a = torch.rand(64, 3, 64, 64).contiguous(memory_format=torch.channels_last)
report("permute_contiguous-64x3x64x64-float32-channels_last-1t-forward", lambda: a.permute(0, 2, 3, 1).contiguous())
a = torch.rand(64, 3, 64, 64).to(torch.bfloat16)
report("permute_contiguous-64x3x64x64-bfloat16-contiguous-1t-forward", lambda: a.permute(0, 2, 3, 1).contiguous())
a = torch.rand(64, 3, 64, 64).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
report("permute_contiguous-64x3x64x64-bfloat16-channels_last-1t-forward", lambda: a.permute(0, 2, 3, 1).contiguous())
a = torch.rand(64, 3, 64, 64).to(torch.float16)
report("permute_contiguous-64x3x64x64-float16-contiguous-1t-forward", lambda: a.permute(0, 2, 3, 1).contiguous())
a = torch.rand(64, 3, 64, 64).to(torch.float16).contiguous(memory_format=torch.channels_last)
report("permute_contiguous-64x3x64x64-float16-channels_last-1t-forward", lambda: a.permute(0, 2, 3, 1).contiguous())
a = torch.rand(8, 32, 28, 28)
w = torch.rand(64, 32, 1, 1)
report("conv2d_1x1-8x32x28x28-float32-contiguous-1t-forward", lambda: F.conv2d(a, w))
a = torch.rand(8, 32, 28, 28).contiguous(memory_format=torch.channels_last)
w = torch.rand(64, 32, 1, 1).contiguous(memory_format=torch.channels_last)
report("conv2d_1x1-8x32x28x28-float32-channels_last-1t-forward", lambda: F.conv2d(a, w))
a = torch.rand(8, 32, 28, 28).to(torch.bfloat16)
w = torch.rand(64, 32, 1, 1).to(torch.bfloat16)
report("conv2d_1x1-8x32x28x28-bfloat16-contiguous-1t-forward", lambda: F.conv2d(a, w))
a = torch.rand(8, 32, 28, 28).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
w = torch.rand(64, 32, 1, 1).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
report("conv2d_1x1-8x32x28x28-bfloat16-channels_last-1t-forward", lambda: F.conv2d(a, w))
a = torch.rand(8, 32, 28, 28).to(torch.float16)
w = torch.rand(64, 32, 1, 1).to(torch.float16)
report("conv2d_1x1-8x32x28x28-float16-contiguous-1t-forward", lambda: F.conv2d(a, w))
a = torch.rand(8, 32, 28, 28).to(torch.float16).contiguous(memory_format=torch.channels_last)
w = torch.rand(64, 32, 1, 1).to(torch.float16).contiguous(memory_format=torch.channels_last)
report("conv2d_1x1-8x32x28x28-float16-channels_last-1t-forward", lambda: F.conv2d(a, w))
