"""pytorch/pytorch#189280: quantized cat 3 to 4 times, fake_quantize 700 times. Run it with torch 2.9.1 and 2.14.0; it needs nothing else."""

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


def gradient(result, *inputs):
    """Return a function that computes the gradients of the inputs."""
    ones = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, inputs, ones, retain_graph=True)


torch.manual_seed(0)
torch.set_num_threads(1)
print(torch.__version__, torch.backends.cpu.get_cpu_capability())
a = torch.rand(1, 3, 512, 512)
s = torch.rand(1)
z = torch.rand(1)
c = torch.rand(3)
i = torch.randint(15, [3])
report("fake_quantize_per_tensor-1x3x512x512-float32-contiguous-1t-forward", lambda: torch.fake_quantize_per_tensor_affine(a, 1.0, 0, 0, 15))
a.requires_grad_()
s.requires_grad_()
z.requires_grad_()
report("fake_quantize_per_tensor-1x3x512x512-float32-contiguous-1t-backward", gradient(torch.fake_quantize_per_tensor_affine(a, 1.0, 0, 0, 15), a, s, z))
a = torch.rand(1, 3, 512, 512)
s = torch.rand(1)
z = torch.rand(1)
c = torch.rand(3)
i = torch.randint(15, [3])
report("fake_quantize_per_channel-1x3x512x512-float32-contiguous-1t-forward", lambda: torch.fake_quantize_per_channel_affine(a, c, i.int(), 1, 0, 15))
a.requires_grad_()
s.requires_grad_()
z.requires_grad_()
report("fake_quantize_per_channel-1x3x512x512-float32-contiguous-1t-backward", gradient(torch.fake_quantize_per_channel_affine(a, c, i.int(), 1, 0, 15), a, s, z))
a = torch.rand(1, 3, 512, 512)
s = torch.rand(1)
z = torch.rand(1)
c = torch.rand(3)
i = torch.randint(15, [3])
report("fake_quantize_learnable-1x3x512x512-float32-contiguous-1t-forward", lambda: torch._fake_quantize_learnable_per_tensor_affine(a, s, z, 0, 15, 1.0))
a.requires_grad_()
s.requires_grad_()
z.requires_grad_()
report("fake_quantize_learnable-1x3x512x512-float32-contiguous-1t-backward", gradient(torch._fake_quantize_learnable_per_tensor_affine(a, s, z, 0, 15, 1.0), a, s, z))
a = torch.quantize_per_tensor(torch.rand(512, 512, 2), 0.01, 0, torch.quint8)
b = torch.quantize_per_tensor(torch.rand(512, 512, 2), 0.01, 0, torch.quint8)
report("quantized_cat-512x512x2-float32-contiguous-1t-forward", lambda: torch.ops.quantized.cat([a, b], 1, 1.0, 0))
a = torch.quantize_per_tensor(torch.rand(512, 512, 2), 0.01, 0, torch.quint8).transpose(-1, -2).contiguous().transpose(-1, -2)
b = torch.quantize_per_tensor(torch.rand(512, 512, 2), 0.01, 0, torch.quint8).transpose(-1, -2).contiguous().transpose(-1, -2)
report("quantized_cat-512x512x2-float32-transposed-1t-forward", lambda: torch.ops.quantized.cat([a, b], 1, 1.0, 0))
