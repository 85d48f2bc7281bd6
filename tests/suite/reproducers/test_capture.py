"""Calls of operations, as one iteration makes them, tied to the rows of the operation table."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch_builders
from torch import library, nn

from mnistbench.core.operation import NO_MODULE
from mnistbench.events import model
from mnistbench.events.linking.links import link
from mnistbench.events.model import ThreadEvent, Trace
from mnistbench.suite.measuring import case
from mnistbench.suite.measuring.profiling import marked, profile
from mnistbench.suite.reproducers.capture import (
    CapturedCall,
    CapturedRow,
    capture,
    own_times,
    rows,
    times_of_calls,
)
from mnistbench.suite.reproducers.tensors import LARGEST_SAVED, description, distribution


def captured(run, *names):
    """The rows of operations outside all marks, by name."""
    rows = capture(run, nullcontext(), {(name, "", NO_MODULE) for name in names})
    return {key[0]: row for key, row in rows.items()}


def only_call(run, name):
    row = captured(run, name)[name]
    assert row.why_not == ""
    [call] = row.calls
    return call


@pytest.fixture(scope="module")
def step():
    built = case.build(torch_builders.tiny_params(), torch_builders.tiny_workload())
    built()
    return built


# ---- Rows ----------------------------------------------------------------------------------------


@pytest.mark.versions
def test_calls_of_forward_and_backward_are_tied_to_their_module(step):
    wanted = {
        ("aten::addmm", "forward", "hidden"),
        ("aten::addmm", "forward", "out"),
        ("aten::mm", "backward", "out"),
    }
    rows = capture(step, marked(step), wanted)
    shapes = {
        key: [[arg["tensor"]["shape"] for arg in call.args] for call in row.calls]
        for key, row in rows.items()
    }
    assert shapes["aten::addmm", "forward", "hidden"] == [[[8], [4, 16], [16, 8]]]
    assert shapes["aten::addmm", "forward", "out"] == [[[3], [4, 8], [8, 3]]]
    input_shapes = [[4, 3], [3, 8]]
    weight_shapes = [[3, 4], [4, 8]]
    assert sorted(shapes["aten::mm", "backward", "out"]) == sorted([input_shapes, weight_shapes])


@pytest.mark.versions
def test_every_row_of_operations_of_the_table_is_found_or_has_a_reason(step):
    keys = {row.key for row in profile(step, iterations=1).rows}
    rows = capture(step, marked(step), keys)
    assert rows.keys() == keys
    without = {key[0] for key, row in rows.items() if not row.calls}
    assert {
        "aten::addmm",
        "aten::mm",
        "aten::native_dropout",
        "aten::nll_loss_backward",
        "aten::add_",
    }.isdisjoint(without)
    assert all(bool(row.calls) != bool(row.why_not) for row in rows.values())
    assert rows[
        "autograd::engine::evaluate_function: AddmmBackward0", "backward", "out"
    ].why_not == (
        "autograd::engine::evaluate_function: AddmmBackward0 is not a call of an operation, nor a "
        "part of one"
    )


def test_an_operation_that_the_mode_does_not_see_is_found_by_the_call_around_it():
    net = nn.Conv2d(2, 4, 3)
    images = torch.randn(2, 2, 8, 8)
    row = captured(lambda: net(images), "aten::mkldnn_convolution", "aten::_convolution")
    for name, captured_row in row.items():
        [call] = captured_row.calls
        assert (call.name, call.overload, captured_row.number) == (
            "aten::convolution",
            "default",
            1,
        ), name
        assert call.args[3:] == [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    assert row["aten::_convolution"].self_share < row["aten::mkldnn_convolution"].self_share < 1


def profile_of(times_ns):
    """The events of a profile with one operation in the range of each call."""
    host = []
    for number, ns in enumerate(times_ns):
        start = 100_000 * number
        host.append(
            ThreadEvent(f"mnistbench.call:{number}", model.RANGE, 1, start, start + ns + 50)
        )
        host.append(ThreadEvent("aten::sin", model.OPERATION, 1, start, start + ns))
    trace = Trace(source="", host=host, device=[], flows=[], memory=[])
    link(trace)
    return trace


@pytest.mark.parametrize(
    ("elements", "chosen"),
    [
        ((5, 95, 1), [1]),
        ((50, 45, 5), [0, 1]),
        ((30, 20, 40, 10), [0, 1, 2]),
        ((10, 30, 20, 40), [1, 2, 3]),
        ((25, 25, 25, 25), [0, 1, 2]),
        ((0, 0), [0, 1]),
    ],
)
def test_the_largest_calls_of_a_row_are_kept_until_they_have_most_of_its_elements(elements, chosen):
    times_ns = [7_000, 1_000, 5_000, 2_000][: len(elements)]  # they do not matter
    calls = [
        CapturedCall("aten::sin", "default", [number], elements=size)
        for number, size in enumerate(elements)
    ]
    trace = profile_of(times_ns)
    own_ns = own_times(trace)
    total_ns = times_of_calls(trace, own_ns)
    [row] = rows(trace, calls, {("aten::sin", "", NO_MODULE)}, own_ns, total_ns).values()
    assert [call.args for call in row.calls] == [[number] for number in chosen]
    assert [call.self_ns for call in row.calls] == [times_ns[number] for number in chosen]
    assert (row.number, row.whole_ns, row.self_share) == (len(times_ns), sum(times_ns), 1.0)


def test_calls_of_a_program_that_changes_are_not_described():
    calls = iter((torch.sin, torch.cos))
    row = captured(lambda: next(calls)(torch.ones(3)), "aten::sin")["aten::sin"]
    assert row.calls == ()
    assert row.why_not == "was not captured, because two iterations make different calls"


def test_a_view_has_no_elements_because_it_reads_none():
    a = torch.randn(10, 20)
    rows = captured(
        lambda: (a.t(), a.sin(), torch.empty_like(a)), "aten::t", "aten::sin", "aten::empty_like"
    )
    assert {name: row.elements for name, row in rows.items()} == {
        "aten::t": 0,
        "aten::sin": 200,
        "aten::empty_like": 0,
    }


def test_the_time_between_calls_is_that_of_the_calls_between_them():
    a = torch.randn(10_000)
    b = torch.randn(300, 300)

    def run():
        a.sin_()
        for _ in range(10):
            b @ b
        a.sin_()
        a.sin_()

    rows = captured(run, "aten::sin_", "aten::mm")
    before, after, at_once = (
        call.args[0]["tensor"]["since_ns"] for call in rows["aten::sin_"].calls
    )
    # Before the first call, there was an iteration of each side.
    assert rows["aten::mm"].whole_ns <= after < before / 2
    assert at_once == 0


def test_a_row_that_does_not_occur_has_no_calls():
    assert (
        captured(lambda: torch.ones(2).sin(), "aten::cos")["aten::cos"].why_not == "was not called"
    )


def test_what_a_description_computes_itself_is_not_part_of_a_row():
    ones = torch.randn(3)
    row = captured(ones.sin, "aten::isfinite", "aten::mean")
    assert {name: captured_row.calls for name, captured_row in row.items()} == {
        "aten::isfinite": (),
        "aten::mean": (),
    }


# ---- Arguments -----------------------------------------------------------------------------------


def test_scalars_lists_and_types_are_plain_json():
    x = torch.randn(2, 3)
    assert only_call(lambda: torch.add(x, 2, alpha=0.5), "aten::add").args[1:] == [2]
    assert only_call(lambda: torch.add(x, 2, alpha=0.5), "aten::add").kwargs == {"alpha": 0.5}
    summed = only_call(lambda: x.sum([0, 1], dtype=torch.float64), "aten::sum")
    assert (summed.overload, summed.args[1], summed.kwargs) == (
        "dim_IntList",
        [0, 1],
        {"dtype": {"dtype": "float64"}},
    )
    assert only_call(lambda: x.clamp(max=float("inf")), "aten::clamp").args[1:] == [
        None,
        {"float": "inf"},
    ]
    call = only_call(
        lambda: torch.empty(2, device="cpu", memory_format=torch.contiguous_format), "aten::empty"
    )
    assert call.kwargs["memory_format"] == {"memory_format": "contiguous_format"}


def test_one_tensor_that_is_given_twice_is_one_tensor():
    x = torch.randn(3)
    assert only_call(lambda: x * x, "aten::mul").args[1] == {"same": 0}


def test_tensor_lists_are_described_and_changed_tensors_are_numbered():
    weights = [torch.randn(3), torch.randn(2, 2)]
    grads = [torch.randn(3), torch.randn(2, 2)]
    call = only_call(lambda: torch._foreach_add_(weights, grads, alpha=2.0), "aten::_foreach_add_")
    assert [[tensor["tensor"]["shape"] for tensor in arg] for arg in call.args] == [
        [[3], [2, 2]],
        [[3], [2, 2]],
    ]
    assert (call.overload, call.writes, call.kwargs) == ("List", [0, 1], {"alpha": 2.0})


def test_arguments_that_are_only_written_need_not_be_restored():
    x = torch.randn(3)
    out = torch.empty(3)
    assert only_call(lambda: torch.sin(x, out=out), "aten::sin").writes == []
    assert only_call(lambda: out.copy_(x), "aten::copy_").writes == []
    assert only_call(x.sin_, "aten::sin_").writes == [0]


def test_an_operation_of_another_library_has_a_reason():
    with library._scoped_library("reproducers_test", "FRAGMENT") as own:
        own.define("twice(Tensor x) -> Tensor")
        own.impl("twice", lambda x: x + x, "CPU")
        row = captured(
            lambda: torch.ops.reproducers_test.twice(torch.ones(2)), "reproducers_test::twice"
        )
    assert (
        row["reproducers_test::twice"].why_not
        == "reproducers_test::twice is not an operation of torch"
    )


def test_a_sparse_argument_is_a_reason():
    sparse = torch.eye(3).to_sparse()
    row = captured(lambda: torch.mm(sparse, torch.ones(3, 3)), "aten::mm")["aten::mm"]
    assert row.why_not == "aten::mm has an argument with the layout torch.sparse_coo"


# ---- Tensors -------------------------------------------------------------------------------------


def described(tensor, **options):
    return description(tensor, **{"values_matter": False, **options})


def test_the_place_in_memory_is_described():
    base = torch.randn(100)
    stored, _ = described(base[3:].as_strided((4, 5), (10, 2)))
    assert {
        name: stored[name] for name in ("shape", "stride", "offset", "elements", "dtype", "device")
    } == {
        "shape": [4, 5],
        "stride": [10, 2],
        "offset": 3,
        "elements": 39,
        "dtype": "float32",
        "device": "cpu",
    }
    assert described(torch.randn(3, 1).expand(3, 7))[0]["elements"] == 3
    assert described(torch.zeros(0, 4))[0]["elements"] == 0
    assert described(base[16:])[0]["offset"] == 0  # 64 bytes


def test_integers_are_saved_and_floats_only_where_they_matter():
    targets = torch.tensor([2, 0, 1])
    assert described(targets)[1].tolist() == [2, 0, 1]
    assert described(torch.zeros(3, dtype=torch.int64))[1] is None
    assert described(torch.randn(3))[1] is None
    values = torch.randn(2, 3)
    assert torch.equal(described(values, values_matter=True)[1], values.reshape(-1))
    assert set(only_call(values.relu, "aten::relu").saved) == {0}
    assert only_call(values.exp, "aten::exp").saved == {}
    pooled = only_call(
        lambda: nn.functional.max_pool2d(values[None], 2, return_indices=True),
        "aten::max_pool2d_with_indices",
    )
    assert torch.equal(pooled.saved[0], values.reshape(-1))


def test_of_a_large_tensor_the_first_rows_are_saved():
    rows = torch.arange(1_000 * 3_000).view(1_000, 3_000)
    saved = described(rows)[1]
    assert saved.numel() % 3_000 == 0
    assert LARGEST_SAVED - 3_000 * 8 < saved.numel() * 8 <= LARGEST_SAVED
    assert torch.equal(saved, rows.reshape(-1)[: saved.numel()])


def test_distributions():
    torch.manual_seed(0)
    normal = torch.randn(10_000) * 2 + 1
    values = distribution(normal)
    assert values["kind"] == "normal"
    assert (values["mean"], values["std"]) == pytest.approx((1, 2), abs=0.1)
    relu = distribution(normal.relu())
    assert relu["kind"] == "lognormal"
    assert relu["zeros"] == pytest.approx(0.31, abs=0.02)
    assert relu["least"] > 0
    assert distribution(torch.full((3,), 2.5)) == {"kind": "constant", "value": 2.5}
    assert distribution(torch.tensor([True, False, False, False])) == {
        "kind": "booleans",
        "share": 0.25,
    }
    assert distribution(torch.tensor([3, 9])) == {"kind": "integers", "least": 3, "most": 9}
    assert distribution(torch.tensor([1.0, float("nan"), 3.0]))["mean"] == 2
    assert distribution(torch.tensor([float("inf")])) == {"kind": "constant", "value": 0.0}
    assert distribution(torch.empty(0)) == {"kind": "constant", "value": 0}


# ---- The state of the caches ---------------------------------------------------------------------


def since(call):
    return [arg["tensor"]["since"] for arg in call.args]


def test_the_bytes_that_are_used_after_a_tensor_are_counted_once():
    a = torch.randn(10)
    b = torch.randn(100)
    c = torch.randn(1_000)

    def run():
        torch.cat([a, b, c])
        b.neg_()
        b.neg_()
        torch.dot(b.view(10, 10)[0].detach(), a)  # views use no memory
        torch.add(a, a.clone())

    names = ("aten::cat", "aten::neg_", "aten::dot", "aten::add")
    rows = captured(run, *names)
    cat, neg, dot, add = (rows[name].calls for name in names)
    iteration = 4 * (10 + 100 + 1_000 + 1_110 + 1 + 10 + 10)
    # One of each side.
    assert [tensor["tensor"]["since"] for tensor in cat[0].args[0]] == [2 * iteration] * 3
    assert [since(call) for call in neg] == [[4 * (1_000 + 1_110)], [0]]
    assert since(dot[0]) == [0, 4 * (100 + 1_000 + 1_110)]
    assert since(add[0]) == [4 * 10, 0]


def test_the_bytes_that_are_used_after_the_memory_of_a_result_are_counted():
    a = torch.randn(100_000)
    out = torch.empty(100_000)

    def run():
        torch.sin(a, out=out)
        a.exp().cos_()  # the result of the first is freed, and its block taken again
        a.add_(1)

    rows = captured(run, "aten::sin", "aten::exp", "aten::cos_", "aten::add_")
    calls = {name: row.calls[0].since[0] for name, row in rows.items()}
    # They have no new result.
    assert calls["aten::sin"] == calls["aten::cos_"] == calls["aten::add_"] == 0
    everything = 2 * 3 * 400_000  # of both sides, as it was not used before in this iteration
    assert calls["aten::exp"] == pytest.approx(everything, rel=1e-3)


def test_memory_that_empty_allocates_was_not_used_by_it():
    a = torch.randn(100_000)

    def run():
        mask = torch.empty_like(a)
        mask.bernoulli_(0.5)
        a.mul_(mask)

    [call] = captured(run, "aten::bernoulli_")["aten::bernoulli_"].calls
    everything = 2 * 2 * 400_000  # of both sides
    assert call.args[0]["tensor"]["since"] == pytest.approx(everything, rel=1e-3)


def test_a_row_without_the_calls_of_another_one():
    calls = (
        CapturedCall("aten::copy_", "default", elements=4, position=5),
        CapturedCall("aten::add", "Tensor", elements=3),
    )
    row = CapturedRow(calls)
    assert row.elements == 7
    assert row.without({5, 6}).calls == calls[1:]
