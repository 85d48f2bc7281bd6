"""FLOPs and bytes against torch's own counter and against sums by hand; which row gets them."""

from __future__ import annotations

import dataclasses
from operator import methodcaller

import pytest
import torch
from builders import params
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch_builders import CPU, tiny_workload

from mnistbench.suite.measuring.case import build, fork_random, thread_count
from mnistbench.suite.measuring.profiling import profile
from mnistbench.suite.profile import counting
from mnistbench.suite.profile.counting import layers, operation_costs
from mnistbench.suite.workloads.workload import ConvNet, LeNet5, Workload

pytestmark = pytest.mark.versions


@pytest.fixture(autouse=True)
def alone():
    with thread_count(1), fork_random(CPU):
        yield


def network(name: str) -> Workload:
    def make_batch(batch_size, device, generator):
        return torch.randn(batch_size, 1, 28, 28, generator=generator), torch.randint(
            10, (batch_size,), generator=generator
        )

    return tiny_workload(
        name=name, make_model={"convnet": ConvNet, "lenet5": LeNet5}[name], make_batch=make_batch
    )


@pytest.mark.parametrize("name", ["convnet", "lenet5"])
@pytest.mark.parametrize("phase", ["forward", "step"])
def test_the_sum_is_what_torch_s_counter_counts(name, phase):
    case = build(params(workload=name, phase=phase, batch_size=2), network(name))
    with FlopCounterMode(display=False) as counter:
        case()
    costs = operation_costs(case)
    assert sum(cost.flops or 0 for cost in costs.values()) == counter.get_total_flops() > 0


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this build of PyTorch has no oneDNN"
)
def test_a_product_of_onednn_counts_as_any_other():
    counts = []
    for product in (
        nn.functional.linear,
        lambda *tensors: torch.ops.mkldnn._linear_pointwise(*tensors, "none", [], ""),
    ):
        with counting.Counting() as counter:
            product(torch.ones(4, 30), torch.ones(20, 30), torch.ones(20))
        counts.append(sum(cost.flops or 0 for _, cost in counter.costs))
    assert counts == [2 * 4 * 30 * 20] * 2


def test_every_cost_has_a_row_of_the_table():
    case = build(params(workload="lenet5", batch_size=8), network("lenet5"))
    keys = {row.key for row in profile(case, iterations=1).rows}
    costs = operation_costs(case)
    assert set(costs) <= keys
    assert {key[1] for key in costs} == {"forward", "backward", "optimizer"}


def test_a_convolution_has_cost_and_time_in_the_same_row():
    case = build(params(workload="convnet", phase="forward", batch_size=2), network("convnet"))
    cost_of_module = {
        key[2]: (key[0], cost) for key, cost in operation_costs(case).items() if cost.flops
    }
    name, cost = cost_of_module["conv2"]
    assert name != "aten::conv2d"
    # 2 samples; a multiplication and an addition.
    assert cost.flops == 2 * (2 * 64 * 24 * 24 * 32 * 9)
    inputs = 2 * 32 * 26 * 26
    weights = 64 * 32 * 9
    bias = 64
    outputs = 2 * 64 * 24 * 24
    assert cost.n_bytes == 4 * (inputs + weights + bias + outputs)


def test_counting_does_not_change_the_case():
    case = build(params(workload="lenet5", batch_size=2), network("lenet5"))
    before = {name: value.clone() for name, value in case.model.state_dict().items()}
    operation_costs(case)
    assert all(torch.equal(value, before[name]) for name, value in case.model.state_dict().items())


OUT = torch.zeros(3, 4)
INDICES = torch.zeros(3, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "n_bytes"),
    [
        (lambda x: x.t(), 0),  # a view
        (lambda x: torch.empty(100), 0),  # nothing is written yet
        (lambda x: x + 1, 2 * 4 * 12),
        (lambda x: x * x, 2 * 4 * 12),  # one tensor is read, once
        (lambda x: x.add_(1), 2 * 4 * 12),  # in place: read and written
        # Clone, then two read and twice as much written.
        (lambda x: torch.cat([x, x.clone()]), (2 + 2 + 2) * 4 * 12),
        (lambda x: torch._foreach_add([x, x.clone()], 1.0), (2 + 4) * 4 * 12),
        (lambda x: x.half(), (4 + 2) * 12),
        (lambda x: x.mul_(x), 2 * 4 * 12),
        # Clone, then one read and the other written.
        (lambda x: x.copy_(x.clone()), (2 + 2) * 4 * 12),
        (lambda x: x.fill_(1.0), 4 * 12),
        (lambda x: x.fill_(torch.tensor(1.0)), 4 * 12 + 4),
        *[
            (methodcaller(name), 4 * 12)
            for name in ("zero_", "uniform_", "normal_", "random_", "cauchy_", "log_normal_")
        ],
        *[
            (methodcaller(name, 0.5), 4 * 12)
            for name in ("bernoulli_", "geometric_", "exponential_")
        ],
        # Clone, then the probabilities are read.
        (lambda x: x.bernoulli_(x.clone()), (2 + 2) * 4 * 12),
        (torch.zeros_like, 4 * 12),  # the shape is not read from memory
        (lambda x: torch.add(x, 1, out=OUT), 2 * 4 * 12),
        (lambda x: torch.add(x, 1, out=x), 2 * 4 * 12),  # read as input, written as output
        (lambda x: torch.topk(x, 2, out=(OUT[:, :2], INDICES)), 4 * 12 + (4 + 8) * 6),
        (lambda x: torch._foreach_add_([x, OUT], 1.0), (2 + 2) * 4 * 12),
        (lambda x: torch._foreach_zero_([x, OUT]), 2 * 4 * 12),
        (lambda x: torch._foreach_copy_([x], [OUT]), 2 * 4 * 12),
    ],
)
def test_bytes_are_those_read_and_written(call, n_bytes):
    inputs = torch.ones(3, 4)
    with counting.Counting() as counter:
        call(inputs)
    assert sum(cost.n_bytes for _, cost in counter.costs) == n_bytes


@pytest.mark.parametrize(
    ("times", "doer"),
    [
        ({"aten::relu": 1.0, "aten::clamp_min": 99.0}, "aten::clamp_min"),
        # It works itself.
        ({"aten::max_pool2d_backward": 30.0, "aten::fill_": 70.0}, "aten::max_pool2d_backward"),
        # The operation itself has no event.
        ({"aten::copy_": 5.0, "aten::empty": 4.0}, "aten::copy_"),
    ],
)
def test_which_operation_has_the_cost(times, doer):
    name = "aten::relu" if "aten::relu" in times else "aten::max_pool2d_backward"
    by_key = {(called, "forward", "m"): us for called, us in times.items()}
    assert counting._doer(name, by_key) == (doer, "forward", "m")


def test_a_case_whose_iterations_differ_has_no_costs():
    iterations = iter(range(100))

    def loss(output, targets):
        return output.sum() if next(iterations) % 2 else (output + 1).sum()

    case = build(
        params(workload="lenet5", phase="step", batch_size=2),
        dataclasses.replace(network("lenet5"), loss=loss),
    )
    assert operation_costs(case) == {}


class TestLayers:
    def test_of_a_network_are_for_one_sample(self):
        model = ConvNet().train()
        layer_of = {layer.name: layer for layer in layers(model, torch.zeros(5, 1, 28, 28))}
        assert list(layer_of) == [name for name, _ in model.named_children()]
        assert layer_of["conv1"].output_shape == (32, 26, 26)
        assert layer_of["conv1"].flops == 2 * 32 * 26 * 26 * 9
        assert layer_of["conv1"].output_bytes == 4 * 32 * 26 * 26
        assert (layer_of["fc1"].parameters, layer_of["fc1"].parameter_bytes) == (
            9216 * 128 + 128,
            4 * (9216 * 128 + 128),
        )
        assert layer_of["relu1"].flops is None
        assert sum(layer.parameters for layer in layer_of.values()) == 1_199_882
        assert model.training

    def test_a_layer_that_is_called_twice_has_two_rows(self):
        layer = nn.Linear(4, 4)
        rows = layers(nn.Sequential(layer, nn.ReLU(), layer), torch.zeros(1, 4))
        assert [item.kind for item in rows] == ["Linear", "ReLU", "Linear"]
