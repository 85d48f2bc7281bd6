"""What a program does between the last use of memory and a call."""

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from mnistbench.suite.reproducers.tensors import HostBlock, allocated, before_calls

A = HostBlock(1_000, 100)
B = HostBlock(2_000, 500)
C = HostBlock(3_000, 40)


def test_bytes_and_time_after_the_last_use_are_counted():
    used = [[A], [B], [B, C], [A]]
    wanted = [[], [], [], [A]]
    total_ns = {0: 5_000, 1: 20_000, 2: 30_000, 3: 7_000}
    assert before_calls(wanted, used, total_ns)[3] == [(540, 50_000)]  # B counts once


def test_what_was_used_just_before_is_zero():
    assert before_calls([[], [A]], [[A], []], {0: 5_000, 1: 5_000})[1] == [(0, 0)]


def test_what_is_used_first_was_used_before_an_iteration_of_each_side():
    assert before_calls([[A], []], [[A, C], [B]], {0: 5_000, 1: 20_000})[0] == [(2 * 640, 50_000)]


def test_memory_that_a_call_has_freed_is_warm_if_most_of_the_new_block_was_in_it():
    workspace = HostBlock(5_000, 1_000)
    for new, is_warm in (
        (HostBlock(5_400, 600), True),
        (HostBlock(5_400, 1_200), True),
        (HostBlock(5_400, 1_201), False),
        (A, False),
    ):
        [[use]] = before_calls([[], [new]], [[workspace], []], {0: 1_000})[1:]
        assert (use == (0, 0)) is is_warm, new


def test_nothing_is_between_a_call_and_no_block():
    assert before_calls([[], [None, HostBlock(9, 0), A]], [[B], []], {0: 1_000})[1] == [
        (0, 0),
        (0, 0),
        (1_000, 2_000),
    ]


def test_a_call_without_a_time_took_none():
    assert before_calls([[], [], [A]], [[A], [B], []], {0: 1_000})[2] == [(500, 0)]


def test_memory_inside_an_operation_belongs_to_its_call():
    # oneDNN computes no doubles.
    images = torch.randn(1, 3, 20, 20).double()
    kernels = torch.randn(4, 3, 5, 5).double()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        with record_function("call:7"):
            output = torch.nn.functional.conv2d(images, kernels)
        torch.ones(10_000)
    blocks = allocated(recorded, "call:")
    assert list(blocks) == [7]
    assert HostBlock(output.data_ptr(), output.nbytes) in blocks[7]
    matrix = 3 * 5 * 5 * 16 * 16 * 8  # the pixels under the kernel, for each position
    assert max(block.n_bytes for block in blocks[7]) == matrix
