"""Which kernels communicate between ranks: collectives, and dispatch and combine of experts.

A trace has no mark for them, so they are known by their names. A kernel also communicates if the
operation that launched it is a collective of torch.distributed, whatever its name is.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from mnistbench.core.operation import is_communication

#: The operation in which a process group of torch.distributed launches a collective.
_COLLECTIVE = "record_param_comms"


class KernelNames(NamedTuple):
    """The kernels of a library that communicate."""

    libraries: str
    pattern: str  # regular expression for a part of the name; upper and lower case are equal
    source: str  # repository, and the files with the kernels


#: Kernels that are named after a collective: those of vLLM, SGLang, aiter, TensorRT-LLM,
#: FlashInfer, FBGEMM, MSCCL++ and many that are written in Triton. A reduction over one block or
#: one warp is also called so, but stays on its accelerator; and a "small_reduce" is no
#: "all_reduce".
_COLLECTIVES = (
    r"(?<!sm)(?:(?<!block)(?<!block_)(?<!warp)(?<!warp_)all_?reduce|all_?gather|reduce_?scatter|"
    r"all_?(?:to|2)_?all)|cross_device_reduce"
)

KERNELS = (
    KernelNames(
        "any library",
        _COLLECTIVES,
        "vllm-project/vllm csrc/custom_all_reduce.cuh, ROCm/aiter, flashinfer-ai/flashinfer",
    ),
    KernelNames(
        "NCCL, RCCL and libraries with their interface",
        r"nccl|[a-z]ccl(?:Symk?)?(?:Dev)?Kernel",
        "NVIDIA/nccl src/device, ROCm/rccl (mscclKernel_Sum_half_Simple)",
    ),
    KernelNames(
        "MSCCL++", r"mscclpp::executionKernel", "microsoft/mscclpp include/execution_kernel.hpp"
    ),
    KernelNames(
        "NVSHMEM, rocSHMEM, Intel SHMEM",
        r"nvshmem|rocshmem|ishmem",
        "NVIDIA/nvshmem src/host/stream",
    ),
    KernelNames(
        "symmetric memory of PyTorch",
        r"c10d::(?:symmetric_memory|intra_node_comm|nvshmem_extension)::",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem (barrier_kernel, put_signal_kernel)",
    ),
    KernelNames(
        "oneCCL, HCCL",
        r"oneccl|hccl|\bhcom_",
        "uxlfoundation/oneCCL, Ascend/pytorch (hcom_allReduce__503_0_1)",
    ),
    KernelNames(
        "Transformer Engine",
        r"userbuffers",
        "NVIDIA/TransformerEngine comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    KernelNames(
        "TensorRT-LLM, FlashInfer",
        r"moeA2A(?:Dispatch|Combine)Kernel",
        "NVIDIA/TensorRT-LLM moeAlltoAllKernels.cu",
    ),
    KernelNames(
        "TensorRT-LLM, second half of an all-reduce",
        r"rms_?norm_?lamport",
        (
            "NVIDIA/TensorRT-LLM mnnvlTwoShotAllreduceKernels.cu: it waits for the sums of the "
            "other ranks"
        ),
    ),
    # deep_ep::intranode::combine, mangled _ZN7deep_ep9intranode7combine. The layout and epilogues
    # stay on the accelerator.
    KernelNames(
        "DeepEP",
        r"deep_ep(?:::|\d+)(?!layout)(?!\w*(?:::|\d+)(?:get_dispatch_layout|\w*epilogue))",
        "deepseek-ai/DeepEP csrc/kernels: intranode.cu, internode.cu, internode_ll.cu, elastic",
    ),
    KernelNames(
        "forks of DeepEP (UCCL-EP, NIXL EP)",
        r"\b(?:intranode|internode|internode_ll)::(?!get_dispatch_layout)|\bnixl_ep::",
        "uccl-project/uccl ep, ai-dynamo/nixl examples/device/ep",
    ),
    KernelNames(
        "hybrid DeepEP",
        r"hybrid_ep::\w*(?:dispatch|combine|sync)",
        "deepseek-ai/DeepEP csrc/hybrid_ep/backend/hybrid_ep_backend.cuh",
    ),
    KernelNames(
        "Mooncake EP",
        r"\bmooncake::(?:dispatch|combine)",
        "kvcache-ai/Mooncake mooncake-ep/src/mooncake_ep_kernel.cu",
    ),
    KernelNames(
        "pplx-kernels",
        (
            r"\(anonymous namespace\)::(?:dispatch|combine)Kernel\b|\ba2a_(?:dispatch|combine)"
            r"_(?:send|recv)"
        ),
        (
            "perplexityai/pplx-kernels csrc/all_to_all, perplexityai/pplx-garden "
            "p2p-all-to-all/a2a-kernels"
        ),
    ),
    # EpDispatchCombineArgs is the type of an argument, also of kernels that only convert.
    KernelNames(
        "MORI", r"\bEp(?:Dispatch|Combine)(?!Combine)", "ROCm/mori src/ops/dispatch_combine"
    ),
    KernelNames(
        "Triton-distributed",
        r"kernel_(?:dispatch|combine)_token|kernel_get_ag_splits",
        "ByteDance-Seed/Triton-distributed",
    ),
)

_KERNEL = re.compile("|".join(f"(?:{kernels.pattern})" for kernels in KERNELS), re.IGNORECASE)

#: Kernels that torch.compile generates compute only. Their names list the operations whose results
#: they use: ``triton_poi_fused_all_reduce_0``.
_GENERATED = re.compile(r"triton_[a-z]+_fused_")


@functools.lru_cache(maxsize=4096)
def is_communication_kernel(name: str) -> bool:
    """Whether a kernel communicates, by its name: ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``."""
    return _KERNEL.search(name) is not None and _GENERATED.match(name) is None


@functools.lru_cache(maxsize=4096)
def is_collective(operation: str) -> bool:
    """Whether the kernels that an operation launches itself communicate."""
    return operation == _COLLECTIVE or is_communication(operation)
