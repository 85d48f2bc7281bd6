"""How calls are timed, and what lies between the readings of a clock."""

import resource

import pytest

from mnistbench.measuring.timing import clocked

pytestmark = pytest.mark.versions


def test_a_short_function_maps_no_memory_at_any_depth_of_the_stack():
    def short():
        pass

    # The frame of a function of ordinary size.
    short.__code__ = short.__code__.replace(co_stacksize=30)
    calls = 200

    def repeated():
        for _ in range(calls):
            short()

    def page_faults(work):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        work()
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    def page_faults_at(depth, work):
        if depth:
            return page_faults_at(depth - 1, work)
        return min(page_faults(work) for _ in range(3))

    # A chunk of CPython's stack has the frames of some 130 calls.
    depths = range(160)
    assert max(page_faults_at(depth, repeated) for depth in depths) >= calls
    assert max(page_faults_at(depth, lambda: clocked(repeated)) for depth in depths) < calls / 10
