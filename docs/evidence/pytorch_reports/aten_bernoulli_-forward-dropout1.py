# aten::bernoulli_, forward dropout1 is slower: +750.1 % (+529.3 % to +1048.5 %), 675 us -> 5.69 ms in each iteration of step convnet-b64-cpu on digits
# base 976a3e0 -> head 976a3e0, torch 2.6.0+cu124 -> 2.7.0+cu126, nvidia-cublas-cu12 12.4.5.8 -> 12.6.4.1, nvidia-cuda-cupti-cu12 12.4.127 -> 12.6.80, nvidia-cuda-nvrtc-cu12 12.4.127 -> 12.6.77, nvidia-cuda-runtime-cu12 12.4.127 -> 12.6.77, nvidia-cudnn-cu12 9.1.0.70 -> 9.5.1.17
# 1 of 1 calls in an iteration of the base; python FILE base makes them
# 1 of 1 calls in an iteration of the head
# mnistbench: {"title": "aten::bernoulli_, forward dropout1", "case": "step convnet-b64-cpu on digits", "change": 7.501169317994388, "low": 5.292601203502143, "high": 10.484897490879835, "base_ns": 675178.5, "head_ns": 5692713.75, "base": "976a3e0", "head": "976a3e0", "torch": "2.6.0+cu124 -> 2.7.0+cu126", "packages": {"nvidia-cublas-cu12": ["12.4.5.8", "12.6.4.1"], "nvidia-cuda-cupti-cu12": ["12.4.127", "12.6.80"], "nvidia-cuda-nvrtc-cu12": ["12.4.127", "12.6.77"], "nvidia-cuda-runtime-cu12": ["12.4.127", "12.6.77"], "nvidia-cudnn-cu12": ["9.1.0.70", "9.5.1.17"], "nvidia-cufft-cu12": ["11.2.1.3", "11.3.0.4"], "nvidia-cufile-cu12": ["", "1.11.1.6"], "nvidia-curand-cu12": ["10.3.5.147", "10.3.7.77"], "nvidia-cusolver-cu12": ["11.6.1.9", "11.7.1.2"], "nvidia-cusparse-cu12": ["12.3.1.170", "12.5.4.2"], "nvidia-cusparselt-cu12": ["0.6.2", "0.6.3"], "nvidia-nccl-cu12": ["2.21.5", "2.26.2"], "nvidia-nvjitlink-cu12": ["12.4.127", "12.6.85"], "nvidia-nvtx-cu12": ["12.4.127", "12.6.77"], "sympy": ["1.13.1", "1.14.0"], "torch": ["2.6.0", "2.7.0"], "torchvision": ["0.21.0", "0.22.0"], "triton": ["3.2.0", "3.3.0"]}, "variables": {"base": {}, "head": {}}, "threads": 1, "case_ns": 0.0, "has_base": true, "schema": 1}
import json
import statistics
import sys
import time
import torch
from torch.utils.benchmark import Timer
torch.manual_seed(0)
torch.set_num_threads(1)
def base():
    x1 = torch.randn(589824).mul(1.17e+19).add(8.61e+17).clamp(-3.69e+19,
        3.69e+19).mul(torch.rand(589824) >= 0.92).view((64, 64, 12, 12))
    def call():
        torch.ops.aten.bernoulli_.float(x1, 0.75)
    return call, [], [(x1, 134217728, 20000000)]
def head():
    x1 = torch.randn(589824).mul(7.88e+18).add(-7260000000000000.0).clamp(-3.69e+19,
        3.69e+19).mul(torch.rand(589824) >= 0.4).view((64, 64, 12, 12))
    def call():
        torch.ops.aten.bernoulli_.float(x1, 0.75)
    return call, [], [(x1, 134217728, 20000000)]
call, written, used = (base if "base" in sys.argv else head)()
other = torch.zeros(max((since for _, since, _ in used), default=0), dtype=torch.uint8)
def prepare():  # not timed
    for (one, since, ns), (_, next_since, next_ns) in zip(used, [*used[1:], (None, 0, 0)]):
        if one is not None: one.sum()
        end = time.perf_counter_ns() + ns - next_ns  # wait as long as the program does after using this tensor
        other[next_since:since].add_(1)  # and use as many bytes of other memory
        while time.perf_counter_ns() < end: pass
timer = Timer("call()", "prepare()", globals={"call": call, "prepare": prepare}, num_threads=1)
def measure():  # median time of the calls, in seconds
    return statistics.median(timer.timeit(1).median for _ in range(10))
for _ in sys.stdin if "--turns" in sys.argv else range(1):  # mnistbench reproduce lets two processes take turns
    seconds = measure()
    print(f"{1e6 * seconds:,.1f} us")
    print(json.dumps({"seconds": seconds}), flush=True)
