"""The networks: their size, their shapes, and that they are the networks they say they are."""

from __future__ import annotations

import pytest
import torch
from builders import params
from torch import Tensor, nn
from torch.nn import functional
from torch_builders import digit_batch, tiny_workload

from mnistbench.core.operation import OUTSIDE
from mnistbench.suite.measuring.case import build
from mnistbench.suite.measuring.profiling import LOSS, profile
from mnistbench.suite.workloads.workload import ConvNet, LeNet5, SmallNet

pytestmark = pytest.mark.versions

both_models = pytest.mark.parametrize("make_model", [ConvNet, LeNet5])


def images(batch_size: int) -> Tensor:
    return torch.randn(batch_size, 1, 28, 28, generator=torch.Generator().manual_seed(5))


class ExamplesNet(nn.Module):
    """The network of pytorch/examples, layers made and applied in its order.

    With functions where it has functions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        x = functional.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = functional.relu(self.fc1(x))
        x = self.dropout2(x)
        return functional.log_softmax(self.fc2(x), dim=1)


@pytest.mark.parametrize(
    ("make_model", "count"), [(ConvNet, 1_199_882), (LeNet5, 61_706), (SmallNet, 18_442)]
)
def test_number_of_parameters(make_model: type[nn.Module], count: int) -> None:
    assert sum(parameter.numel() for parameter in make_model().parameters()) == count


@both_models
@pytest.mark.parametrize("batch_size", [1, 5])
def test_output_is_ten_log_probabilities_per_image(
    make_model: type[nn.Module], batch_size: int
) -> None:
    output = make_model()(images(batch_size))
    assert output.shape == (batch_size, 10)
    torch.testing.assert_close(output.exp().sum(dim=1), torch.ones(batch_size))


def test_convnet_has_the_weights_of_the_examples_network_for_the_same_seed() -> None:
    torch.manual_seed(1)
    ours = ConvNet().state_dict()
    torch.manual_seed(1)
    theirs = ExamplesNet().state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("training", [False, True])
def test_convnet_computes_what_the_examples_network_computes(training: bool) -> None:
    ours = ConvNet().train(training)
    theirs = ExamplesNet().train(training)
    theirs.load_state_dict(ours.state_dict())
    outputs = []
    for model in (ours, theirs):
        torch.manual_seed(3)  # the same dropout masks
        outputs.append(model(images(4)))
    assert torch.equal(*outputs)


def test_lenet_is_two_convolutions_and_three_full_connections() -> None:
    model = LeNet5()
    weights = model.state_dict()

    def convolved(x: Tensor, name: str, padding: int) -> Tensor:
        x = functional.conv2d(
            x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=padding
        )
        return functional.max_pool2d(functional.relu(x), 2)

    def connected(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    x = convolved(convolved(images(3), "conv1", padding=2), "conv2", padding=0).flatten(1)
    x = functional.relu(connected(x, "fc1"))
    x = functional.relu(connected(x, "fc2"))
    torch.testing.assert_close(model(images(3)), connected(x, "fc3").log_softmax(dim=1))


@both_models
@pytest.mark.parametrize(("phase", "outside_modules"), [("forward", set()), ("step", {LOSS})])
def test_every_operation_of_the_forward_pass_belongs_to_a_layer(
    make_model: type[nn.Module], phase: str, outside_modules: set[str]
) -> None:
    workload = tiny_workload(name="net", make_model=make_model, make_batch=digit_batch)
    case = build(params(workload="net", phase=phase, batch_size=2), workload)
    rows = [
        row
        for row in profile(case, iterations=1).rows
        if row.phase == "forward" and row.name != OUTSIDE
    ]
    assert {row.module for row in rows} == {
        name for name, _ in case.model.named_children()
    } | outside_modules
