# aten::upsample_nearest2d, forward is slower: +21.7 % (+8.9 % to +35.9 %), 1.71 ms -> 2.09 ms in each iteration of test_ops.py::test_op[interpolate_nearest-4x64x56x56-float32-contiguous-1t-forward]
# base 9dcbb2a -> head 9dcbb2a, torch 2.6.0+cu124 -> 2.15.0+cu132, cuda-bindings  -> 13.5.0, cuda-toolkit  -> 13.2.2, nvidia-cublas  -> 13.4.1.3, nvidia-cublas-cu12 12.4.5.8 -> , nvidia-cuda-cupti  -> 13.2.86
# 1 of 1 calls in an iteration of the head
# mnistbench: {"title": "aten::upsample_nearest2d, forward", "case": "test_ops.py::test_op[interpolate_nearest-4x64x56x56-float32-contiguous-1t-forward]", "change": 0.21686914541837973, "low": 0.08946306001792474, "high": 0.35917459839977955, "base_ns": 1705675.75, "head_ns": 2089246.75, "base": "9dcbb2a", "head": "9dcbb2a", "torch": "2.6.0+cu124 -> 2.15.0+cu132", "packages": {"cuda-bindings": ["", "13.5.0"], "cuda-toolkit": ["", "13.2.2"], "nvidia-cublas": ["", "13.4.1.3"], "nvidia-cublas-cu12": ["12.4.5.8", ""], "nvidia-cuda-cupti": ["", "13.2.86"], "nvidia-cuda-cupti-cu12": ["12.4.127", ""], "nvidia-cuda-nvrtc": ["", "13.2.86"], "nvidia-cuda-nvrtc-cu12": ["12.4.127", ""], "nvidia-cuda-runtime": ["", "13.2.86"], "nvidia-cuda-runtime-cu12": ["12.4.127", ""], "nvidia-cudnn-cu12": ["9.1.0.70", ""], "nvidia-cudnn-cu13": ["", "9.26.0.51"], "nvidia-cufft": ["", "12.2.0.57"], "nvidia-cufft-cu12": ["11.2.1.3", ""], "nvidia-cufile": ["", "1.17.1.22"], "nvidia-curand-cu12": ["10.3.5.147", ""], "nvidia-cusolver": ["", "12.2.0.11"], "nvidia-cusolver-cu12": ["11.6.1.9", ""], "nvidia-cusparse": ["", "12.7.10.12"], "nvidia-cusparse-cu12": ["12.3.1.170", ""], "nvidia-cusparselt-cu12": ["0.6.2", ""], "nvidia-cusparselt-cu13": ["", "0.8.1"], "nvidia-nccl-cu12": ["2.21.5", ""], "nvidia-nccl-cu13": ["", "2.30.7"], "nvidia-nvjitlink": ["", "13.5.37"], "nvidia-nvjitlink-cu12": ["12.4.127", ""], "nvidia-nvshmem-cu13": ["", "3.7.2"], "nvidia-nvtx": ["", "13.2.86"], "nvidia-nvtx-cu12": ["12.4.127", ""], "sympy": ["1.13.1", "1.14.0"], "torch": ["2.6.0", "2.15.0"], "torchvision": ["0.21.0", "0.29.2"], "triton": ["3.2.0", "3.9.0"]}, "variables": {"base": {}, "head": {}}, "threads": 1, "case_ns": 0.0, "has_base": false, "schema": 1}
import json
import statistics
import sys
import time
import torch
from torch.utils.benchmark import Timer

torch.manual_seed(0)
torch.set_num_threads(1)

def head():
    x1 = torch.randn(802816).mul(0.5369).add(-0.8373).exp().clamp(1.79e-07, 1.0).view((4, 64, 56, 56))
    def call():
        torch.ops.aten.upsample_nearest2d.default(x1, [112, 112], 2.0, 2.0)
    return call, [], [(x1, 32100000, 4330000)]

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
