"""Which functions call an operation, forward and backward."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mnistbench.suite.measuring.operation_callers import PythonFunction, callers_of_operations
from mnistbench.suite.measuring.profiling import forward_range, marked_calls

pytestmark = pytest.mark.versions


class TwoParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc = nn.Linear(2 * 4 * 4, 3)

    def features(self, images: Tensor) -> Tensor:
        return self.conv(images).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.features(images))


def step(model: nn.Module, images: Tensor) -> None:
    model(images).square().mean().backward()


def callers_by_name() -> dict[tuple[str, str], set[str]]:
    """Functions of this file that call each operation and phase."""
    model = TwoParts()
    images = torch.ones(2, 1, 6, 6)

    def run() -> None:
        with forward_range():
            step(model, images)

    with marked_calls():
        times_ns = callers_of_operations(run)
    callers: dict[tuple[str, str], set[str]] = {}
    for ((name, phase, _), functions), self_ns in times_ns.items():
        assert self_ns >= 0
        own = {function.name for function in functions if Path(__file__).match(function.path)}
        own &= {"features", "forward", "step"}  # without the functions of the test
        callers.setdefault((name, phase), set()).update(own)
    return callers


def test_an_operation_has_the_functions_around_it_also_of_its_backward_pass() -> None:
    callers = callers_by_name()
    assert callers["aten::addmm", "forward"] == {"forward", "step"}
    assert callers["aten::convolution", "forward"] == {"features", "forward", "step"}
    assert callers["aten::convolution_backward", "backward"] == {
        "features",
        "forward",
        "step",
    }
    assert "features" not in callers["aten::mm", "backward"]


def test_a_function_has_the_line_of_its_definition() -> None:
    model = TwoParts()
    times_ns = callers_of_operations(lambda: step(model, torch.ones(2, 1, 6, 6)))
    functions = {function for _, functions in times_ns for function in functions}
    line = inspect.getsourcelines(TwoParts.features)[1]
    [features] = [function for function in functions if function.name == "features"]
    assert features == PythonFunction(features.path, line, "features")
    assert Path(__file__).match(features.path)
