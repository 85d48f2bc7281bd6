# aten::bernoulli_, forward dropout1 is slower: +716.0 % (+637.4 % to +803.0 %), 694 us -> 5.69 ms in each iteration of step convnet-b64-cpu on digits
# base 8f84d0d -> head 8f84d0d, torch 2.6.0+cu124 -> 2.7.0+cu126, nvidia-cublas-cu12 12.4.5.8 -> 12.6.4.1, nvidia-cuda-cupti-cu12 12.4.127 -> 12.6.80, nvidia-cuda-nvrtc-cu12 12.4.127 -> 12.6.77, nvidia-cuda-runtime-cu12 12.4.127 -> 12.6.77, nvidia-cudnn-cu12 9.1.0.70 -> 9.5.1.17
# 1 of 1 calls in an iteration of the base; python FILE base makes them
# 1 of 1 calls in an iteration of the head
# mnistbench: {"title": "aten::bernoulli_, forward dropout1", "case": "step convnet-b64-cpu on digits", "change": 7.160285725857334, "low": 6.374301303974726, "high": 8.03004371298729, "base_ns": 693999.0, "head_ns": 5685283.0, "base": "8f84d0d", "head": "8f84d0d", "torch": "2.6.0+cu124 -> 2.7.0+cu126", "packages": {"nvidia-cublas-cu12": ["12.4.5.8", "12.6.4.1"], "nvidia-cuda-cupti-cu12": ["12.4.127", "12.6.80"], "nvidia-cuda-nvrtc-cu12": ["12.4.127", "12.6.77"], "nvidia-cuda-runtime-cu12": ["12.4.127", "12.6.77"], "nvidia-cudnn-cu12": ["9.1.0.70", "9.5.1.17"], "nvidia-cufft-cu12": ["11.2.1.3", "11.3.0.4"], "nvidia-cufile-cu12": ["", "1.11.1.6"], "nvidia-curand-cu12": ["10.3.5.147", "10.3.7.77"], "nvidia-cusolver-cu12": ["11.6.1.9", "11.7.1.2"], "nvidia-cusparse-cu12": ["12.3.1.170", "12.5.4.2"], "nvidia-cusparselt-cu12": ["0.6.2", "0.6.3"], "nvidia-nccl-cu12": ["2.21.5", "2.26.2"], "nvidia-nvjitlink-cu12": ["12.4.127", "12.6.85"], "nvidia-nvtx-cu12": ["12.4.127", "12.6.77"], "sympy": ["1.13.1", "1.14.0"], "torch": ["2.6.0", "2.7.0"], "torchvision": ["0.21.0", "0.22.0"], "triton": ["3.2.0", "3.3.0"]}, "variables": {"base": {}, "head": {}}, "threads": 1, "case_ns": 0.0, "has_base": true, "schema": 1}
import json
import statistics
import sys
import torch
from torch.utils.benchmark import Timer

torch.manual_seed(0)
torch.set_num_threads(1)

def base():
    x1 = torch.randn(589824).mul(6790000000000.0).add(16100000000.0).clamp(-0.000308,
        2860000000000000.0).mul(torch.rand(589824) >= 0.7).view((64, 64, 12, 12))
    def call():
        torch.ops.aten.bernoulli_.float(x1, 0.75)
    return call, [], [(x1, 0, 0)]

def head():
    x1 = torch.randn(589824).mul(149000.0).add(-298.0).clamp(-74200000.0,
        2.37e-38).mul(torch.rand(589824) >= 0.58).view((64, 64, 12, 12))
    def call():
        torch.ops.aten.bernoulli_.float(x1, 0.75)
    return call, [], [(x1, 0, 0)]

call, written, used = (base if "base" in sys.argv else head)()
def prepare():  # not timed
    pass
timer = Timer("call()", "prepare()", globals={"call": call, "prepare": prepare}, num_threads=1)
def measure():  # median time of the calls, in seconds
    return statistics.median(timer.timeit(1).median for _ in range(17))

for _ in sys.stdin if "--turns" in sys.argv else range(1):  # mnistbench reproduce lets two processes take turns
    seconds = measure()
    print(f"{1e6 * seconds:,.1f} us")
    print(json.dumps({"seconds": seconds}), flush=True)
