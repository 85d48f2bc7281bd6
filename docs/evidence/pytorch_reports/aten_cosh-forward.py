# aten::cosh, forward is slower: +491.1 % (+451.6 % to +533.3 %), 368 us -> 2.16 ms in each iteration of test_ops.py::test_op[cosh-512x512-float32-contiguous-1t-forward]
# base 8f84d0d -> head 8f84d0d, torch 2.9.1+cu128 -> 2.14.0+cu130, cuda-bindings  -> 13.5.0, cuda-toolkit  -> 13.0.3.0, nvidia-cublas  -> 13.1.1.3, nvidia-cublas-cu12 12.8.4.1 -> , nvidia-cuda-cupti  -> 13.0.85
# 1 of 1 calls in an iteration of the head
# mnistbench: {"title": "aten::cosh, forward", "case": "test_ops.py::test_op[cosh-512x512-float32-contiguous-1t-forward]", "change": 4.910690172060594, "low": 4.51614139934368, "high": 5.333459529201059, "base_ns": 367504.5, "head_ns": 2160422.5, "base": "8f84d0d", "head": "8f84d0d", "torch": "2.9.1+cu128 -> 2.14.0+cu130", "packages": {"cuda-bindings": ["", "13.5.0"], "cuda-toolkit": ["", "13.0.3.0"], "nvidia-cublas": ["", "13.1.1.3"], "nvidia-cublas-cu12": ["12.8.4.1", ""], "nvidia-cuda-cupti": ["", "13.0.85"], "nvidia-cuda-cupti-cu12": ["12.8.90", ""], "nvidia-cuda-nvrtc": ["", "13.0.88"], "nvidia-cuda-nvrtc-cu12": ["12.8.93", ""], "nvidia-cuda-runtime": ["", "13.0.96"], "nvidia-cuda-runtime-cu12": ["12.8.90", ""], "nvidia-cudnn-cu12": ["9.10.2.21", ""], "nvidia-cudnn-cu13": ["", "9.24.0.43"], "nvidia-cufft": ["", "12.0.0.61"], "nvidia-cufft-cu12": ["11.3.3.83", ""], "nvidia-cufile": ["", "1.15.1.6"], "nvidia-cufile-cu12": ["1.13.1.3", ""], "nvidia-curand": ["", "10.4.0.35"], "nvidia-curand-cu12": ["10.3.9.90", ""], "nvidia-cusolver": ["", "12.0.4.66"], "nvidia-cusolver-cu12": ["11.7.3.90", ""], "nvidia-cusparse": ["", "12.6.3.3"], "nvidia-cusparse-cu12": ["12.5.8.93", ""], "nvidia-cusparselt-cu12": ["0.7.1", ""], "nvidia-cusparselt-cu13": ["", "0.8.1"], "nvidia-nccl-cu12": ["2.27.5", ""], "nvidia-nccl-cu13": ["", "2.30.7"], "nvidia-nvjitlink": ["", "13.5.37"], "nvidia-nvjitlink-cu12": ["12.8.93", ""], "nvidia-nvshmem-cu12": ["3.3.20", ""], "nvidia-nvshmem-cu13": ["", "3.4.5"], "nvidia-nvtx": ["", "13.0.85"], "nvidia-nvtx-cu12": ["12.8.90", ""], "torch": ["2.9.1", "2.14.0"], "torchvision": ["0.24.1", "0.29.2"], "triton": ["3.5.1", "3.8.0"]}, "variables": {"base": {}, "head": {}}, "threads": 1, "case_ns": 0.0, "has_base": false, "schema": 1}
import json
import statistics
import sys
import time
import torch
from torch.utils.benchmark import Timer

torch.manual_seed(0)
torch.set_num_threads(1)

def head():
    x1 = torch.randn(262144).mul(0.5369).add(-0.8373).exp().clamp(1.55e-06, 1.0).view((512, 512))
    def call():
        torch.ops.aten.cosh.default(x1)
    return call, [], [(x1, 4190000, 4380000)]

call, written, used = head()
other = torch.zeros(max((since for _, since, _ in used), default=0), dtype=torch.uint8)
def prepare():  # not timed
    for (one, since, ns), (_, next_since, next_ns) in zip(used, [*used[1:], (None, 0, 0)]):
        if one is not None: one.sum()
        end = time.perf_counter_ns() + ns - next_ns  # wait as long as the program does after using this tensor
        other[next_since:since].add_(1)  # and use as many bytes of other memory
        while time.perf_counter_ns() < end: pass
timer = Timer("call()", "prepare()", globals={"call": call, "prepare": prepare}, num_threads=1)
def measure():  # median time of the calls, in seconds
    return statistics.median(timer.timeit(1).median for _ in range(19))

for _ in sys.stdin if "--turns" in sys.argv else range(1):  # mnistbench reproduce lets two processes take turns
    seconds = measure()
    print(f"{1e6 * seconds:,.1f} us")
    print(json.dumps({"seconds": seconds}), flush=True)
