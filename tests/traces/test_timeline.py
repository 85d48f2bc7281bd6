"""Busy, idle, exposed and starved time of an accelerator."""

import pytest
import trace_builders as build

from mnistbench.traces.analysis import analyse


def timeline(tmp_path, *events):
    [found] = analyse(build.trace_file(tmp_path, events)).timelines
    return found


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_exposed_communication_and_copies(tmp_path):
    found = timeline(
        tmp_path, build.kernel("gemm", 0, 10), build.kernel(NCCL, 5, 10, stream=2),
        build.kernel("Memcpy HtoD", 12, 10, stream=3, category="gpu_memcpy"),
        build.kernel("Memset", 30, 2, category="gpu_memset"),
    )  # fmt: skip
    assert (found.span_ns, found.busy_ns, found.idle_ns) == (32_000, 24_000, 8_000)
    assert (found.computation_ns, found.communication_ns, found.exposed_communication_ns) == (12_000, 10_000, 5_000)
    assert (found.copies_ns, found.exposed_copies_ns) == (10_000, 7_000)
    assert (found.kernels, found.copies) == (2, 2)


@pytest.mark.parametrize(
    "name",
    [NCCL, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "void multimem_all_reduce_kernel<c10::BFloat16>",
     "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"],
)  # fmt: skip
def test_kernels_that_communicate(tmp_path, name):
    assert timeline(tmp_path, build.kernel(name, 0, 10)).communication_ns == 10_000


@pytest.mark.parametrize("name", ["void at::native::reduce_kernel<512, 1>", "gemm", "void cub::DeviceScanKernel"])
def test_kernels_that_compute(tmp_path, name):
    assert timeline(tmp_path, build.kernel(name, 0, 10)).computation_ns == 10_000


def test_starved_is_idle_without_a_waiting_kernel(tmp_path):
    """From 10 to 40 us nothing runs; the launch of the next kernel ends at 27 us."""
    found = timeline(
        tmp_path, build.launch(-5, 2, 1), build.kernel("a", 0, 10, correlation=1),
        build.launch(25, 2, 2), build.kernel("b", 40, 10, correlation=2),
    )  # fmt: skip
    assert (found.idle_ns, found.starved_ns, found.launches) == (30_000, 17_000, 2)


def test_a_kernel_that_waits_long_hides_other_gaps(tmp_path):
    found = timeline(
        tmp_path, build.launch(1, 1, 1), build.launch(2, 1, 2), build.launch(3, 1, 3), build.kernel("a", 5, 5, correlation=1),
        build.kernel("b", 20, 5, correlation=2), build.kernel("c", 40, 5, correlation=3),
    )  # fmt: skip
    assert (found.idle_ns, found.starved_ns) == (25_000, 0)


def test_events_without_a_launch_are_stated(tmp_path):
    found = timeline(tmp_path, build.kernel("a", 5, 5), build.kernel("b", 20, 5))
    assert (found.unlinked, found.unlinked_ns, found.starved_ns, found.launches) == (2, 10_000, 10_000, 0)


def test_each_accelerator_has_a_timeline(tmp_path):
    events = [build.kernel("a", 5, 5, device=0), build.kernel("b", 20, 5, device=1)]
    found = analyse(build.trace_file(tmp_path, events, devices=[build.H100, build.H100])).timelines
    assert [(each.device, each.span_ns, each.name) for each in found] == [("0", 5_000, build.H100), ("1", 5_000, build.H100)]
