"""Which kernels communicate between ranks.

By their names, and by the operation that launched them.
"""

import re

import pytest
import trace_builders as build

from mnistbench.events.communication import KERNELS, is_communication_kernel

#: Names as the profiler writes them.
COMMUNICATION = (
    build.NCCL,
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
    "pcclKernel_twoShotReduceKernel",
    "void mscclpp::collective::allreduceNvls<__half>(...)",
    "void mscclpp::executionKernel<__half, mscclpp::LL8Packet, true>(int, __half*)",
    (
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, "
        "vllm::RankSignals, vllm::Signal*)"
    ),
    "void aiter::cross_device_reduce_2stage_naive<opus::bf16_t, 8>",
    (
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, "
        "8>, true>, __half>"
    ),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<4, "
        "__nv_bfloat16, 8, false>"
    ),
    "void tensorrt_llm::kernels::mnnvl::rmsNormLamport<__nv_bfloat16>",
    "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8, true>(int const*)",
    "moeA2ACombineKernel(tensorrt_llm::CombineKernelPointers)",
    "void tensorrt_llm::kernels::moeAllToAllKernel<__nv_bfloat16>",
    "void multimem_all_reduce_kernel<c10::BFloat16>",
    "void c10d::symmetric_memory::two_shot_all_reduce_kernel<c10::BFloat16, 16>",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "nvshmemi_proxy_quiet_entrypoint()",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "oneccl_allreduce_pcie",
    "hcom_broadcast__503_0_1",
    "void deep_ep::internode::dispatch<false, 8, false, 8>(int4*, float*)",
    "void deep_ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16>(__nv_bfloat16*)",
    "void deep_ep::internode::notify_dispatch<false, 4>(int const*, int*, int)",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int, int, int**, int)",
    "void deep_ep::internode_ll::dispatch<(bool)1, (bool)0, (int)7168>(void*, void*, int*)",
    "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768ELi4096EEEvPT_",
    "void deep_ep::elastic::hybrid_dispatch_impl<true, false, 24, 4>(void*)",
    "void uccl::internode_ll::combine<true, 7168, 9>(void*)",
    "void primus_turbo::deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
    "void nixl_ep::ep_kernels::combine<true, 7168, 9>(void*)",
    "void nccl_ep::internode_ll::dispatch<(bool)0, (bool)0, (int)7168>(void*)",
    (
        "void hybrid_ep::dispatch_kernel<hybrid_ep::tma_dispatch>"
        "(hybrid_ep::dispatch_kernel_param_t<unsigned short>)"
    ),
    "void mooncake::dispatch<true, 7168>(void*, float*)",
    "void (anonymous namespace)::dispatchKernel<10u, true, true>(int*, unsigned long)",
    "void (anonymous namespace)::combineKernel<__nv_bfloat16, 16u, true, false>(__nv_bfloat16*)",
    "void a2a_dispatch_send_kernel<true, 16u, 8u, 7168u>(unsigned long)",
    (
        "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>"
        "(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)"
    ),
    "EpCombineInterNodeV1Kernel_bf16",
    "kernel_combine_token_intra_node",
    "dlslime::intranode_alltoall_kernel",
    "kernel_all2all_push_2d",
)

#: Kernels that compute although their names contain the same words.
COMPUTATION = (
    "gemm",
    "void at::native::reduce_kernel<512, 1>",
    "void cub::DeviceScanKernel<cub::DispatchScan<float>>",
    "void cub::DeviceReduceSingleTileKernel<cub::DispatchReduce<float>::Policy600>",
    (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal"
        "<cutlass::epilogue::dispatch::Combine>>"
    ),
    (
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, "
        "4, 4, true>"
    ),
    "void flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, float, long, 512, 32>",
    "void at::native::index_elementwise_kernel<128, 4, at::native::index_put_kernel_impl>",
    "void dispatch_policy_kernel(int*)",
    "void moe_combine_kernel<__nv_bfloat16>",
    "void cusparse::gather_kernel<128, float>",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>",
    "void splitKreduce_kernel<32, 16, int, __nv_bfloat16>",
    "block_all_reduce_sum_f16x8_pack_f32_kernel(__half*, float*, int)",
    "void softmaxKernel<float, WarpAllReduce<float>>",
    "void small_reduce_kernel<float>(float const*)",
    "triton_poi_fused_all_reduce_0",
    "triton_red_fused_all_gather_into_tensor_mean_wait_tensor_3",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*)",
    "void deep_ep::elastic::dispatch_copy_epilogue_impl<true, false, 8>(void*)",
    "void mori::moe::ConvertDispatchOutputKernel<float>(mori::moe::EpDispatchCombineArgs<float>)",
    "computeOcclusionKernel",
    "_fwd_kernel_ep_scatter_2",
)


@pytest.mark.parametrize("name", COMMUNICATION)
def test_kernels_that_communicate(name):
    assert is_communication_kernel(name)


@pytest.mark.parametrize("name", COMPUTATION)
def test_kernels_that_compute(name):
    assert not is_communication_kernel(name)


def test_each_library_has_an_example():
    without = [
        kernels.libraries
        for kernels in KERNELS
        if not any(re.search(kernels.pattern, name, re.IGNORECASE) for name in COMMUNICATION)
    ]
    assert without == []


@pytest.mark.parametrize("operation", ["record_param_comms", "nccl:all_reduce"])
def test_what_a_collective_launches_communicates_whatever_its_name_is(timeline, operation):
    line = timeline(
        build.op(operation, 0, 50, external=1),
        build.launch(5, 3, 7, external=1),
        build.kernel("unknown_library_0", 20, 10, external=1, correlation=7),
    )
    assert (line.communication_ns, line.computation_ns) == (10_000, 0)


def test_copies_and_fills_of_a_collective_are_none(timeline):
    """NCCL sends to its own rank with a copy."""
    line = timeline(
        build.op("record_param_comms", 0, 50, external=1),
        build.kernel("Memcpy DtoD (Device -> Device)", 20, 10, external=1, category="gpu_memcpy"),
    )
    assert (line.communication_ns, line.copies_ns) == (0, 10_000)


def test_dispatch_and_combine_of_experts_are_exposed_communication(timeline):
    line = timeline(
        build.kernel("gemm", 0, 100),
        build.kernel("void deep_ep::internode::dispatch<false, 8>(int4*)", 50, 300, stream=20),
        build.kernel(
            "void deep_ep::internode::combine<false, 8>(__nv_bfloat16*)", 400, 200, stream=20
        ),
    )
    assert (line.computation_ns, line.communication_ns) == (100_000, 500_000)
    assert line.exposed_communication_ns == 450_000
