"""Memory is predicted from shapes.

Every number of a small network by hand, and the built-in networks against the profiler.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from mnistbench.core.params import Params
from mnistbench.course.studies.memory import measurement
from mnistbench.course.studies.memory.measurement import measured_peak
from mnistbench.course.studies.memory.prediction import predicted_peak
from mnistbench.course.studies.memory.study import Settings, Site
from mnistbench.suite.measuring.case import fork_random, thread_count
from mnistbench.suite.workloads.workload import Workload

SGD = partial(torch.optim.SGD, lr=0.1)


def workload(*modules, optimizer=SGD, features=4, loss=nn.functional.mse_loss, classes=2):
    def batch(size, device, generator):
        return torch.zeros(size, features, device=device), torch.zeros(size, classes, device=device)

    return Workload(
        "small", lambda: nn.Sequential(*(make() for make in modules)), batch, loss, optimizer
    )


def predicted(small, phase, batch_size=2, device="cpu"):
    peak, layers = predicted_peak(small, phase, batch_size, device)
    return peak, {layer.name: layer for layer in layers}


LINEAR = (partial(nn.Linear, 4, 3), nn.ReLU, partial(nn.Linear, 3, 2))


def test_inference_of_two_linear_layers():
    peak, layers = predicted(workload(*LINEAR), "forward")
    # Weights (4 * 3 + 3 + 3 * 2 + 2) * 4 = 92, inputs 2 * 4 * 4 = 32. The largest sum: hidden
    # numbers before and after ReLU.
    assert (peak.held, peak.n_bytes) == (92 + 32, 92 + 32 + 24 + 24)
    assert peak.site == Site("1", "forward", "aten::relu")
    assert [(layer.input, layer.output, layer.weight, layer.peak) for layer in layers.values()] == [
        (32, 24, 60, 124 + 24),
        (24, 24, 0, 124 + 24 + 24),
        (24, 16, 32, 124 + 24 + 16),
    ]
    assert [(layer.saved, layer.gradient) for layer in layers.values()] == [(0, 0)] * len(layers)


def test_a_step_of_two_linear_layers():
    peak, layers = predicted(workload(*LINEAR), "step")
    # Weights and gradients 92 each, inputs 32, targets 16.
    assert peak.held == 92 + 92 + 32 + 16
    # Gradients are dropped first. Live in the backward pass of the first layer: output and loss,
    # the gradients of the loss and of the hidden numbers, and all gradients of parameters.
    assert peak.n_bytes == (92 + 32 + 16) + (16 + 4) + (4 + 24) + 92
    assert (peak.site.layer, peak.site.phase) == ("0", "backward")
    # The first layer saves the batch, the second what ReLU has saved, and the loss the output.
    assert {name: layer.saved for name, layer in layers.items()} == {
        "0": 0,
        "1": 24,
        "2": 0,
        "(loss)": 16,
        "(backward)": 0,
    }
    assert [layers[name].gradient for name in "012"] == [60, 0, 32]
    assert (layers["(loss)"].input, layers["(loss)"].output) == (16 + 16, 4)


def test_state_of_an_optimizer_counts_in_the_layer_of_its_parameters():
    adadelta = partial(torch.optim.Adadelta, lr=1.0)
    peak, layers = predicted(workload(*LINEAR, optimizer=adadelta), "step")
    # Two tensors, and a number of steps.
    assert [layers[name].state for name in "012"] == [2 * 60 + 2 * 4, 0, 2 * 32 + 2 * 4]
    assert peak.held == 4 * 92 + 4 * 4 + 32 + 16
    assert layers["(optimizer)"].peak > 0


@pytest.mark.parametrize(
    ("modules", "outputs", "saved", "more"),
    [
        ((partial(nn.Linear, 4, 4), nn.ReLU), [32, 32], [0, 32], 64),
        ((partial(nn.Linear, 4, 4), partial(nn.ReLU, inplace=True)), [32, 0], [0, 32], 32),
        (
            (partial(nn.Linear, 4, 4), nn.ReLU, partial(nn.Unflatten, 1, (2, 2)), nn.Flatten),
            [32, 32, 0, 0],
            [0, 32, 0, 0],
            64,
        ),
        ((partial(nn.Linear, 4, 4), nn.Sigmoid, nn.Sigmoid), [32, 32, 32], [0, 32, 32], 64),
        ((partial(nn.Linear, 4, 4), nn.Identity, nn.Sigmoid), [32, 0, 32], [0, 0, 32], 64),
    ],
)
def test_a_storage_counts_once(modules, outputs, saved, more):
    _, layers = predicted(workload(*modules, classes=4), "step")
    rows = [layers[str(number)] for number in range(len(modules))]
    assert [row.output for row in rows] == outputs
    assert [row.saved for row in rows] == saved
    inference, _ = predicted(workload(*modules, classes=4), "forward")
    assert inference.n_bytes == inference.held + more


@pytest.mark.versions
@pytest.mark.parametrize("phase", ["forward", "step"])
@pytest.mark.parametrize(
    "modules",
    [
        LINEAR,
        (
            partial(nn.Linear, 4, 4),
            partial(nn.ReLU, inplace=True),
            partial(nn.Unflatten, 1, (2, 2)),
            nn.Flatten,
        ),
        (partial(nn.Linear, 4, 4), partial(nn.Dropout, 0.5), nn.Sigmoid),
    ],
)
def test_small_networks_need_what_is_predicted(modules, phase):
    def batch(size, device, generator):
        return torch.zeros(size, 4, device=device), torch.zeros(
            size, dtype=torch.int64, device=device
        )

    small = replace(
        workload(*modules, partial(nn.LogSoftmax, 1), loss=nn.functional.nll_loss), make_batch=batch
    )
    params = Params(
        "small", phase, 64, "cpu", "float32", 1, compile=False, seed=1, dataset="synthetic"
    )
    with thread_count(1), fork_random(torch.device("cpu")):
        measured, measured_layers = measured_peak(params, small)
    peak, layers = predicted(small, phase, 64)
    # Operations allocate some scalars inside.
    assert (peak.held, peak.n_bytes) == (measured.held, pytest.approx(measured.n_bytes, abs=16))
    assert {name for name, layer in layers.items() if layer.peak} == set(measured_layers)


def test_a_weight_of_two_layers_counts_in_the_first():
    class Tied(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
            self[1].weight = self[0].weight

    momentum = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    peak, layers = predicted(workload(Tied, classes=4, optimizer=momentum), "step")
    assert [
        (layers[name].weight, layers[name].gradient, layers[name].state) for name in ("0.0", "0.1")
    ] == [
        (64, 64, 64),
        (0, 0, 0),
    ]
    assert peak.held == 3 * 64 + 32 + 32


def test_buffers_are_weights():
    _, layers = predicted(workload(partial(nn.BatchNorm1d, 4), classes=4), "forward")
    # Two parameters, two buffers, and the number of batches.
    assert layers["0"].weight == 4 * 4 * 4 + 8


def test_sizes_on_cuda_are_rounded_as_its_allocator_does():
    peak, layers = predicted(workload(*LINEAR), "forward", device="cuda")
    assert [layers[name].weight for name in "012"] == [2 * 512, 0, 2 * 512]
    assert (peak.held, peak.n_bytes) == (5 * 512, 7 * 512)


def test_a_prediction_allocates_no_tensor():
    peak, _ = predicted(workload(*LINEAR), "step", batch_size=10**9)
    assert peak.n_bytes > 40e9


@pytest.fixture(scope="module")
def study():
    return measurement.study(Settings())


@pytest.mark.versions
def test_only_a_convolution_needs_more_memory_than_is_predicted(study):
    assert len(study.cases) == 12
    assert {case.name for case in study.cases if case.measured.held != case.predicted.held} == set()
    # A library copies images and kernels into a layout of its own. Operations allocate some
    # scalars inside.
    below = {
        (case.name, layer.name): layer.gap
        for case in study.cases
        for layer in case.layers
        if layer.gap < 0
    }
    far = {
        (case.name, layer.name): layer.gap
        for case in study.cases
        for layer in case.layers
        if layer.kind != "Conv2d"
        and (
            (layer.peak is None) != (layer.measured_peak is None)
            or abs(layer.gap) > 0.001 * (layer.peak or 0)
        )
    }
    assert (below, far) == ({}, {})


def test_layers_add_up_to_what_is_held(study):
    for case in study.cases:
        batch = case.batch_size * (28 * 28 * 4 + (8 if case.phase == "step" else 0))
        assert (
            case.predicted.held
            == batch + case.whole.weight + case.whole.gradient + case.whole.state
        )
        assert case.predicted.n_bytes == max(layer.peak or 0 for layer in case.layers)
        assert case.measured.n_bytes == max(layer.measured_peak or 0 for layer in case.layers)
