"""What torch.compile made of a case: counts, the lines below a table, and what differs."""

from dataclasses import replace

import pytest

from mnistbench.core.compiled.compilation import (
    BACKWARD_PART,
    FORWARD_PART,
    CodePlace,
    Compilation,
    CompiledGraph,
    CompileTime,
    GraphBreak,
    Recompilation,
    differences,
    lines_of,
    time_text,
    without_values,
)

FORWARD = CodePlace("model.py", 10, "forward")
BREAK = GraphBreak("Call to `print`: it is not traced", CodePlace("model.py", 12, "forward"))
AGAIN = Recompilation("self.k == 0", CodePlace("model.py", 11, "forward"), times=2)
GRAPH = CompiledGraph(FORWARD, FORWARD_PART, operations=9, kernels=2, external_calls=1)
BACKWARD = CompiledGraph(
    FORWARD, BACKWARD_PART, operations=5, kernels=1, external_calls=2, fallbacks=("my::scale",)
)
COLD = CompileTime(
    tracing_ns=500_000_000, backend_ns=1_200_000_000, build_ns=13_900_000_000, run_ns=200_000_000
)
WARM = CompileTime(
    tracing_ns=400_000_000, backend_ns=300_000_000, build_ns=200_000_000, run_ns=100_000_000
)
WHOLE = Compilation(
    graphs=(GRAPH, BACKWARD),
    breaks=(BREAK,),
    recompilations=(AGAIN,),
    cuda_graphs="skipped: cpu device",
    cache_hits=1,
    cache_misses=1,
    cold=COLD,
    warm=WARM,
    notes=("torch 2.11: something was not read",),
)


def texts(base, head):
    return [difference.text for difference in differences(base, head)]


def test_a_backward_part_is_no_graph_of_its_own():
    assert WHOLE.n_graphs == 1
    assert (WHOLE.n_operations, WHOLE.n_kernels, WHOLE.n_external_calls) == (14, 3, 3)
    assert WHOLE.n_recompilations == 2


def test_all_lines():
    assert list(lines_of(WHOLE)) == [
        (
            "compiled: 1 graph, 14 operations in 3 generated kernels and 3 library calls, "
            "1 graph break, 2 recompilations, CUDA graphs skipped: cpu device"
        ),
        (
            "kernels are named in a separate compilation; the time without the profiler is that of "
            "the program's own"
        ),
        "graph break at model.py:12: Call to `print`: it is not traced",
        "recompiled forward at model.py:11: self.k == 0 failed (2 times)",
        "no kernel is generated for my::scale: ATen computes it",
        (
            "first call with empty cache: 15.8 s (tracing 500 ms, backend 1.20 s, generation and "
            "build 13.9 s, run 200 ms)"
        ),
        (
            "first call with filled cache: 1.00 s (tracing 400 ms, backend 300 ms, generation and "
            "build 200 ms, run 100 ms)"
        ),
        "FX graph cache: 1 of 2 graphs found",
        "torch 2.11: something was not read",
    ]


def test_without_breaks_and_times_two_lines_are_left():
    assert len(list(lines_of(Compilation(graphs=(GRAPH,))))) == 2


def test_a_long_reason_is_cut():
    broken = replace(WHOLE, breaks=(replace(BREAK, reason="x" * 500),))
    assert max(map(len, lines_of(broken))) < 200


def test_the_parts_of_a_first_call_add_up():
    assert COLD.compile_ns + COLD.run_ns == COLD.total_ns == 15_800_000_000
    assert time_text(COLD).startswith("15.8 s (")


def test_a_place():
    assert str(FORWARD) == "model.py:10"
    assert FORWARD.without_line == "forward of model.py"


# ---- Differences ---------------------------------------------------------------------------------


def test_equal_compilations_have_no_difference_whatever_their_times():
    assert texts(WHOLE, WHOLE) == []
    assert texts(WHOLE, replace(WHOLE, cold=WARM, warm=None, cache_hits=0, notes=())) == []


def test_a_line_that_moves_is_no_difference():
    moved = replace(
        WHOLE,
        breaks=(replace(BREAK, place=replace(BREAK.place, line=99)),),
        recompilations=(replace(AGAIN, place=replace(AGAIN.place, line=98)),),
    )
    assert texts(WHOLE, moved) == []


def test_the_value_in_a_guard_is_no_difference():
    other = replace(WHOLE, recompilations=(replace(AGAIN, guard="self.k == 7"),))
    assert texts(WHOLE, other) == []
    assert without_values("self.k == 0") == without_values("self.k == 1.5")
    assert without_values("self.odd == True") == without_values("self.odd == False")
    assert without_values("mode == 'a'") == without_values("mode == 'b'")
    assert without_values("self.k == 0") != without_values("self.odd == 0")
    assert without_values("tensor 'x' size") != without_values("tensor 'y' size")


def test_a_new_break_is_a_cause_in_the_head():
    base = replace(WHOLE, breaks=())
    first, count = differences(base, WHOLE)
    assert first.text == ("new graph break at model.py:12 (Call to `print`: it is not traced)")
    assert first.place == BREAK.place
    assert count.text == "graph breaks: 0 -> 1"
    assert count.place is None


def test_a_vanished_recompilation_is_a_cause_in_the_base():
    first, count = differences(WHOLE, replace(WHOLE, recompilations=()))
    assert first.text == ("vanished recompilation of forward at model.py:11 (self.k == 0 fails)")
    assert first.place == AGAIN.place
    assert count.text == "recompilations: 2 -> 0"


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ({"graphs": (GRAPH, GRAPH, BACKWARD)}, "graphs: 1 -> 2"),
        (
            {"graphs": (GRAPH, replace(BACKWARD, fallbacks=()))},
            "calls of ATen for my::scale: 1 -> 0",
        ),
        (
            {"graphs": (replace(GRAPH, kernels=5), BACKWARD)},
            "generated kernels: 3 -> 6",
        ),
        ({"cuda_graphs": "used"}, "CUDA graphs: skipped: cpu device -> used"),
        ({"cuda_graphs": ""}, "CUDA graphs: skipped: cpu device -> not used"),
        ({"recompilations": (replace(AGAIN, times=3),)}, "recompilations: 2 -> 3"),
    ],
)
def test_counts_that_differ(head, text):
    assert text in texts(WHOLE, replace(WHOLE, **head))
